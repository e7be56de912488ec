"""The backward walk: gradients go from results back to the leaves, through each function's ``backward`` once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from alpha import steps
from alpha.arguments import flag
from alpha.autograd import anomaly
from alpha.autograd.function import SECOND_BACKWARD, Edge, Function, follow_base
from alpha.autograd.modes import BACKWARD, BACKWARD_IN_GRAPH, THREAD
from alpha.changes import finish
from alpha.dtypes import is_complex
from alpha.errors import ArgumentError, DtypeError, GraphError, ShapeError, described
from alpha.expressions.graph import Graph, Node
from alpha.expressions.program import Program
from alpha.hooks import RemovableHandle
from alpha.locks import RobustLock
from alpha.tensor import Tensor


def backward(
    result: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradient of a result to ``.grad`` of every leaf that requires one.

    Args:
        gradient: gradient of the final result with respect to this one; 1 for a tensor of one element.
        retain_graph: keep the saved tensors for another backward; by default as ``create_graph``.
        create_graph: enter the gradients into the graph, so that they have gradients themselves.
        inputs: the leaves that get gradients; by default all.
    """
    create_graph = flag("backward", "create_graph", create_graph)
    retain_graph = create_graph if retain_graph is None else flag("backward", "retain_graph", retain_graph)
    root = result, seed("backward", result, gradient, inputs is None and not create_graph)
    if inputs is None:
        walk_from([root], Walk(retain_graph, create_graph))
        return
    several = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for leaf in several:
        if not isinstance(leaf, Tensor) or leaf._node is not None or not leaf.requires_grad:
            raise GraphError(
                "[backward] expected inputs that are leaves and require grad, got another: use alpha.autograd.grad for "
                "gradients of results"
            )
    walk = Walk(retain_graph, create_graph)
    walk.aim([(leaf, 0) for leaf in several], [result])
    walk_from([root], walk)


def seed(name: str, result: Any, gradient: Tensor | None, is_read_only: bool = False) -> Tensor:
    """The gradient to begin with at a result: a given one, checked, or 1.

    ``is_read_only``: whether the walk that it is for shows it to nobody but functions, and hooks of the result.
    """
    if not isinstance(result, Tensor):
        raise DtypeError(f"[{name}] expected a Tensor to differentiate, got {described(result)}")
    if result._base is not None:
        follow_base(result)
    if not result.requires_grad:
        raise GraphError(
            f"[{name}] expected a tensor made from one that requires grad, got one outside the graph: set "
            "requires_grad=True on an input, and compute outside no_grad"
        )
    if gradient is None:
        if result.numel() != 1:
            raise GraphError(
                f"[{name}] expected a gradient for a tensor of shape {result.shape}, got none: reduce it to one "
                "element (.sum(), .mean()) or pass gradient="
            )
        if is_complex(result.dtype):
            raise DtypeError(
                f"[{name}] expected a real result to differentiate, got {result.dtype}: take .abs() or .real, or pass "
                "gradient="
            )
        node = result._node
        seen = not is_read_only or not isinstance(node, Function) or node._hooks or node._retained
        ones = None if seen else result.storage.engine.kept_ones(result)
        return _computed(_ONES, result.detach()) if ones is None else ones
    if not isinstance(gradient, Tensor):
        raise DtypeError(f"[{name}] expected a Tensor as gradient, got {described(gradient)}")
    if gradient.shape != result.shape:
        raise ShapeError(f"[{name}] expected a gradient of shape {result.shape}, got {gradient.shape}")
    return gradient


def walk_from(roots: Sequence[tuple[Tensor, Tensor]], walk: Walk) -> None:
    """Walks the graph from its roots, each given with its gradient, and settles what has arrived.

    Nodes run in the reverse order of their creation, so each runs once, after all nodes that used its outputs. Unless
    the graph is retained, each node's saved tensors are freed as soon as it has run. Leaves get their gradients at the
    end of the walk: an error or an interrupt before leaves every ``.grad`` as it was. Only those with hooks of
    ``register_post_accumulate_grad_hook`` get theirs as soon as nothing more is to be added.
    """
    call, outer = THREAD.call, THREAD.walk
    try:
        try:
            THREAD.call, THREAD.walk = BACKWARD_IN_GRAPH if walk.create_graph else BACKWARD, walk
            starts = [((root._node or root, root._output), grad) for root, grad in roots]
            if walk.completes or (_Hooks.used and walk.settles and not walk.create_graph):
                walk.count([edge for edge, _ in starts])
            for edge, grad in starts:
                walk.deliver(edge, grad, False)
                walk.pass_edges((edge,))
            walk.run()
            if walk.settles:
                walk.settle()
        finally:
            THREAD.call, THREAD.walk = call, outer
    except BaseException:
        THREAD.call, THREAD.walk = call, outer  # again, if an interrupt came before the first assignment
        raise


Waiting = tuple[Tensor, bool]
"""A gradient that waits for its node, and whether only the walk holds it, so that it may be added into."""


class Walk:
    """One backward: the queue of nodes to run, the gradients that wait for them, and the gradients of leaves.

    These belong to the walk and not to the graph, so a walk that fails leaves nothing behind.

    Attributes:
        given: whether the gradient that the running function was given may be written over: nobody else holds it.
        captured: the gradients that arrived at the outputs of functions that ``aim`` was given.
        settles: whether the leaves get their gradients in ``.grad``.
        completes: for some leaves what is called, with the gradient and whether it may be written to, as soon as
            nothing more will be added to it, instead of settling it.
    """

    settles = True
    given = False
    completes: Mapping[Tensor, Callable[[Tensor, bool], None]] = {}
    captured: dict[tuple[Any, int], Tensor]
    _wanted: set[tuple[Any, int]] | None = None  # None: the leaves
    _leading: set[Any]

    def __init__(self, retain_graph: bool, create_graph: bool = False) -> None:
        self.retain_graph, self.create_graph = retain_graph, create_graph
        self.queue: list[tuple[int, Function]] = []
        self.queued: set[Function] = set()  # of those with several outputs
        self.pending: dict[tuple[Function, int], Waiting] = {}
        self.leaves: dict[Tensor, Waiting] = {}
        self.handed_over: dict[Function, object] = {}  # to functions that are still to run
        self.left: dict[Tensor, int] = {}  # contributions that leaves may still get, where completeness is asked for

    def count(self, starts: Iterable[tuple[Any, int]]) -> None:
        """Counts how many contributions the leaves will get whose completeness is asked for."""
        left, seen = self.left, set()
        waiting: list[Iterable[Edge]] = [starts]
        while waiting:
            for edge in waiting.pop():
                if edge is None or (
                    self._wanted is not None and edge not in self._wanted and edge[0] not in self._leading
                ):
                    continue
                target = edge[0]
                if not isinstance(target, Function):
                    if target in self.completes or _has_late_hooks(target):
                        left[target] = left.get(target, 0) + 1
                elif target not in seen:
                    seen.add(target)
                    if self._wanted is None or target in self._leading:
                        waiting.append(target._edges)

    def pass_edges(self, edges: Iterable[Edge]) -> None:
        """Notes that what a function gave its arguments has been delivered; leaves may be complete by that."""
        left = self.left
        for edge in edges if left else ():
            if edge is not None and edge[0] in left:
                leaf = edge[0]
                left[leaf] -= 1
                if not left[leaf]:
                    self._complete(leaf)

    def _complete(self, leaf: Tensor) -> None:
        """Hands on, or settles, the gradient of a leaf to which nothing more will be added."""
        del self.left[leaf]
        found = self.leaves.pop(leaf, None)
        if found is None:
            return
        if leaf in self.completes:
            self.completes[leaf](*found)
            return
        others, self.leaves = self.leaves, {leaf: found}
        try:
            self.settle()
        finally:
            self.leaves = others

    def aim(self, wanted: Iterable[tuple[Any, int]], roots: Iterable[Tensor], since: int = -1) -> None:
        """Walks only to these outputs of functions and leaves, and runs only what leads to them.

        ``since``: what was recorded no later is not run.
        """
        self._wanted, self._leading, self.captured = set(wanted), set(), {}
        # What is older than all that is wanted cannot lead to it.
        oldest = max(since, min([getattr(target, "_sequence", -1) for target, _ in self._wanted], default=-1))
        nodes = {root._node for root in roots if root._node is not None}
        waiting = list(nodes)
        while waiting:
            for edge in waiting.pop()._edges:
                if edge is not None and isinstance(edge[0], Function) and edge[0] not in nodes:
                    nodes.add(edge[0])
                    if edge[0]._sequence > oldest:
                        waiting.append(edge[0])
        for node in sorted(nodes, key=lambda one: one._sequence):
            if node._sequence <= since:
                continue
            edges = [edge for edge in node._edges if edge is not None]
            if any(edge in self._wanted or edge[0] in self._leading for edge in edges):
                self._leading.add(node)

    def found(self, edge: tuple[Any, int]) -> Tensor | None:
        """The gradient that arrived where ``aim`` was told; None where none did."""
        target = edge[0]
        if isinstance(target, Function):
            return self.captured.get(edge)
        return self.leaves[target][0] if target in self.leaves else None

    def accumulator(self, function: Function, index: int) -> Tensor | None:
        """The gradient that waits for an output of a function, if it may be added into."""
        grad, owned = self.pending.get((function, index), _ABSENT)
        return grad if owned else None

    def is_last(self, function: Function, edge: tuple[Any, int]) -> bool:
        """Whether the running function is the last that adds to a gradient, which nobody but the walk looks at.

        All that is still to run before the edge's function would have to be in the queue, or be reached from there or
        from the running function's other arguments.
        """
        target = edge[0]
        if target._hooks or target._retained or self._wanted is not None or len(target._outputs) > 1:
            return False
        if edge in self.pending and not self.pending[edge][1]:  # what has arrived could only be added later
            return False
        born = target._sequence
        for other in function._edges:
            if other is not None and other != edge and isinstance(other[0], Function) and other[0]._sequence >= born:
                return False
        return sum(other == edge for other in function._edges) == 1 and (not self.queue or -self.queue[0][0] <= born)

    def run(self) -> None:
        """Runs all nodes that a gradient reaches."""
        queue = self.queue
        while queue:
            self._run(heapq.heappop(queue)[1])
        for leaf in [leaf for leaf in self.left if leaf in self.leaves]:  # whose functions were not all reached
            self._complete(leaf)

    def _run(self, function: Function) -> None:
        if function._saved is None:
            raise GraphError(SECOND_BACKWARD)
        pending, outputs = self.pending, len(function._outputs)
        if function._hooks or function._retained:
            for index in range(outputs):
                grad, _ = pending.get((function, index), _ABSENT)
                if grad is not None:
                    pending[function, index] = self._observe(function, index, grad), False
        if self._wanted is not None and not self._is_to_run(function):
            return
        # Nothing here holds on to a gradient that has done its work.
        self.given = given = outputs == 1 and pending[function, 0][1]
        run = function.backward_in_graph if self.create_graph else function.backward
        if outputs == 1:
            result = run(pending.pop((function, 0))[0])
        else:
            result = run(*[pending.pop((function, k), _ABSENT)[0] for k in range(outputs)])
        edges, owned = function._edges, function.fresh or (given and function.passes_on)
        if anomaly.STATE.on:
            anomaly.check(function.title, function._origin, result if isinstance(result, tuple | list) else [result])
        if not self.retain_graph:
            function.free()
        if type(result) is Tensor and len(edges) == 1:
            edge = edges[0]
            if edge is not None:
                self.deliver(edge, result, owned)
                if self.left:
                    del result
                    self.pass_edges(edges)
            return
        incoming = list(result) if isinstance(result, tuple | list) else [result]
        del result
        self._check_incoming(function, edges, incoming)
        for argument, edge in enumerate(edges):
            if argument == len(incoming):
                break
            grad, incoming[argument] = incoming[argument], None
            if edge is not None and grad is not None:
                self.deliver(edge, grad, owned)
        if self.left:
            grad = None
            self.pass_edges(edges)

    def _is_to_run(self, function: Function) -> bool:
        """Captures what was asked for of a function's gradients; whether it leads to more."""
        for index in range(len(function._outputs)):
            if (function, index) in (self._wanted or ()) and (function, index) in self.pending:
                self.captured[function, index] = self.pending[function, index][0]
                self.pending[function, index] = self.pending[function, index][0], False
        return function in self._leading

    @staticmethod
    def _check_incoming(function: Function, edges: tuple[Edge, ...], incoming: list[Any]) -> None:
        """Raises an error unless these are gradients of a function's arguments."""
        if len(incoming) > len(edges):
            raise GraphError(
                f"[{type(function).__name__}.backward] expected at most {len(edges)} gradients, one per argument of "
                f"forward, got {len(incoming)}"
            )
        if _GRADIENTS.issuperset(map(type, incoming)):
            return
        for argument, (edge, grad) in enumerate(zip(edges, incoming, strict=False)):
            if edge is not None and grad is not None and not isinstance(grad, Tensor):
                raise ArgumentError(
                    f"[{type(function).__name__}.backward] expected tensors or None as gradients, got "
                    f"{type(grad).__name__} for argument {argument}: return tensors"
                )

    def _observe(self, function: Function, index: int, grad: Tensor) -> Tensor:
        """Runs the hooks of an output, and keeps its gradient where ``retain_grad`` asked for it."""
        for hook in tuple((function._hooks or {}).get(index, {}).values()):
            grad = checked_hook(hook, grad)
        retained = (function._retained or {}).get(index)
        tensor = retained() if retained is not None else None
        if tensor is not None:
            self._add(self.leaves, tensor, grad, False)
        return grad

    def deliver(self, edge: tuple[Any, int], grad: Tensor, owned: bool) -> None:
        """Adds a gradient to what waits for a node or a leaf."""
        target, index = edge
        if self._wanted is not None and edge not in self._wanted and target not in self._leading:
            return
        if not isinstance(target, Function):
            self._deliver_leaf(target, grad, owned)
            return
        if target._saved is None:
            raise GraphError(SECOND_BACKWARD)
        outputs = target._outputs
        output = outputs[index]
        shape, engine, dtype = output[0], output[1], output[2]
        if grad.shape != shape or grad.storage.engine is not engine:
            raise _misshapen(f"the result of {type(target).__name__}", shape, engine, grad)
        if grad.dtype is not dtype and grad.dtype != dtype:
            grad, owned = grad.astype(dtype), True
        if edge in self.pending:
            self._add(self.pending, edge, grad, owned)
            return
        self.pending[edge] = grad, owned
        if len(outputs) > 1:
            if target in self.queued:
                return
            self.queued.add(target)
        heapq.heappush(self.queue, (-target._sequence, target))

    def _deliver_leaf(self, leaf: Tensor, grad: Tensor, owned: bool) -> None:
        if grad.shape != leaf.shape or grad.storage.engine is not leaf.storage.engine:
            raise _misshapen("a leaf", leaf.shape, leaf.engine, grad)
        if grad.dtype is not leaf.dtype and grad.dtype != leaf.dtype:
            grad, owned = grad.astype(leaf.dtype), True
        if leaf._leaf_hooks:
            for hook in tuple(leaf._leaf_hooks.values()):
                if type(hook) is AfterAccumulation:
                    continue
                replaced = checked_hook(hook, grad)
                grad, owned = replaced, owned and replaced is grad
        if leaf in self.leaves:
            self._add(self.leaves, leaf, grad, owned)
        else:
            self.leaves[leaf] = grad, owned

    def _add(self, pending: dict[Any, Waiting], key: Any, grad: Tensor, owned: bool) -> None:
        """Adds a gradient to the one that waits under a key."""
        if self.create_graph and key in pending:
            pending[key] = pending[key][0] + grad, False
        else:
            _add(pending, key, grad, owned)

    def settle(self) -> None:
        """Gives the leaves their gradients.

        After an interrupt the remaining leaves get theirs before it is passed on, and steps may be done twice. So the
        sums are computed first, in gradients that only the walk holds, and then copied.
        """
        lock = _settling
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                self._settle()
                break
        else:
            try:
                self._settle()
            finally:
                mutex.release()
        for leaf in self.leaves:
            for hook in tuple((leaf._leaf_hooks or {}).values()):
                if type(hook) is AfterAccumulation:
                    hook.function(leaf)

    def _settle(self) -> None:
        prepared: list[tuple[Tensor, Tensor | None, Tensor]] = []
        for leaf, (grad, owned) in self.leaves.items():
            before = leaf.grad
            if self.create_graph:
                prepared.append((leaf, None, grad if before is None else before + grad))
                continue
            prepared.append(
                (leaf, before, _added(grad, owned, before) if before is not None else _of(leaf, grad, owned))
            )

        def give() -> None:
            for leaf, before, grad in prepared:
                _settle_grad(leaf, before, grad)

        try:
            give()
        except KeyboardInterrupt:
            finish(give)
            raise


class AfterAccumulation(NamedTuple):
    """A leaf's hook that is called once its gradient is complete."""

    function: Callable[[Tensor], Any]

    def __call__(self, grad: Tensor) -> None:
        """Where it stands among the hooks that see contributions, it changes none."""


class _Hooks:
    """Whether any leaf ever got a hook that is called once its gradient is complete."""

    used = False


def _has_late_hooks(leaf: Tensor) -> bool:
    return any(type(hook) is AfterAccumulation for hook in (leaf._leaf_hooks or {}).values())


def register_post_accumulate_grad_hook(leaf: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Calls ``hook(leaf)`` when a backward has added all of a leaf's gradient to ``.grad``.

    That is in the midst of the backward, as soon as nothing more is to be added, so that the hook may use the gradient
    and free it. With ``create_graph=True`` it is at the end.
    """
    if leaf._node is not None or not leaf.requires_grad:
        raise GraphError("[register_post_accumulate_grad_hook] expected a leaf that requires grad, got another tensor")
    if not callable(hook):
        raise ArgumentError(
            f"[register_post_accumulate_grad_hook] expected a function of the leaf, got {described(hook)}"
        )
    if leaf._leaf_hooks is None:
        leaf._leaf_hooks = {}
    _Hooks.used = True
    return RemovableHandle(leaf._leaf_hooks, AfterAccumulation(hook))


def _misshapen(target: str, shape: tuple[int, ...], engine: Any, grad: Tensor) -> ShapeError:
    return ShapeError(
        f"[backward] expected a gradient of shape {shape} on {engine.name} for {target}, got {grad.shape} on "
        f"{grad.engine.name}: return gradients shaped as the arguments"
    )


def _program(of: Callable[[Graph, Node], Node]) -> Program:
    """A program of one tensor."""
    graph = Graph()
    x = graph.input(0)
    return Program(graph, [of(graph, x)], [x])


def _computed(program: Program, x: Tensor) -> Tensor:
    """The result of a program of one tensor."""
    found: Tensor | None = program.launches.launch(x)
    return x.storage.engine.pointwise("backward", program, (x,), ())[0] if found is None else found


_ONES = _program(lambda graph, _: graph.constant(1.0))
_COPY = _program(lambda _, x: x)

_GRADIENTS = frozenset((Tensor, type(None)))
"""Types of what a backward mostly returns."""

_ABSENT = (None, False)


def _add(pending: dict[Any, Waiting], key: Any, grad: Tensor, owned: bool) -> None:
    """Adds a gradient to the one that waits under a key."""
    found = pending.get(key)
    if found is None:
        pending[key] = grad, owned
        return
    before, may_be_added_into = found
    if not may_be_added_into:
        pending[key] = grad.engine.elementwise("add", before, grad, out=grad if owned else None), True
    elif grad is not before:  # else the function added its part into accumulator()
        grad.engine.elementwise("add", before, grad, out=before)


def _of(leaf: Tensor, grad: Tensor, owned: bool) -> Tensor:
    """A gradient as a leaf's first: a tensor that nobody else holds, since optimizers write to it.

    It lies in memory as the leaf does, so that optimizers need not copy it at every step.
    """
    order = leaf.memory_order()
    if owned and (grad.strides == leaf.strides or grad.is_contiguous(order)):
        return grad
    return _computed(_COPY, grad) if grad.memory_order() == order else grad.storage.engine.copied(grad, order)


def _added(grad: Tensor, owned: bool, before: Tensor) -> Tensor:
    """A gradient plus the one before, as a tensor that nobody else holds."""
    if before.shape != grad.shape or before.engine is not grad.engine:
        raise ShapeError(
            f"[backward] expected a leaf's .grad of shape {grad.shape} on {grad.engine.name} to add to, got "
            f"{before.shape} on {before.engine.name}: set it to None"
        )
    return before.engine.elementwise("add", before, grad, out=grad if owned else None)


def _settle_grad(leaf: Tensor, before: Tensor | None, grad: Tensor) -> None:
    """Makes ``grad`` a leaf's gradient, in the memory of the old one if there is one. May be repeated."""
    if leaf._node is None:
        steps.note_leaf(leaf, before)
    if before is None:
        leaf.grad = grad
        return
    leaf.engine.copy(grad, before)
    before.storage.touch()


def checked_hook(hook: Callable[[Tensor], Any], grad: Tensor) -> Tensor:
    """The gradient that a hook returns, or ``grad`` for None; an error if it has another shape, engine or dtype."""
    replaced = hook(grad)
    if replaced is None:
        return grad
    if not isinstance(replaced, Tensor):
        raise ArgumentError(f"[register_hook] expected a hook that returns a tensor or None, got {replaced!r}")
    if replaced.shape != grad.shape or replaced.engine is not grad.engine:
        raise ShapeError(
            f"[register_hook] expected a hook that returns a gradient of shape {grad.shape} on {grad.engine.name}, got "
            f"{replaced.shape} on {replaced.engine.name}: return it shaped as the one that it was given"
        )
    if replaced.dtype != grad.dtype:
        raise DtypeError(
            f"[register_hook] expected a hook that returns {grad.dtype}, got {replaced.dtype}: cast it back"
        )
    return replaced


_settling = RobustLock(Walk.settle)
"""Threads that share leaves add to their gradients one after the other."""
