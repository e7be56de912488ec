"""Autograd: Function, the graph it leaves behind, the backward walk, no_grad."""

from __future__ import annotations

import heapq
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import alpha.tensor as _tensor
from alpha.changes import finish
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, DtypeError, GraphError, ShapeError
from alpha.locks import RobustLock
from alpha.scopes import Scope, Scoped

P = ParamSpec("P")
R = TypeVar("R")
_sequence = itertools.count()


class _Call(NamedTuple):
    """What the functions called now on a thread find: replaced as a whole, so that no interrupt leaves half of it.

    Attributes:
        enabled: whether functions leave a graph, unless one of ``scopes`` says otherwise.
        recorded: whether the function whose ``forward`` is running will enter the graph.
        inference: whether a function's ``forward`` is running that will not.
        training: whether this is within a function that enters the graph, or within backward.
        scopes: the ``with`` blocks that switch recording, innermost last, with what they switch it to; made when the
            first is entered.
    """

    enabled: bool
    recorded: bool
    inference: bool
    training: bool
    scopes: list[tuple[Scope, bool]] | None = None


class _Thread(threading.local):
    call = _Call(True, False, False, False)
    walk: _Walk | None = None


_thread = _Thread()
_FORWARD = {
    (recorded, training): _Call(False, recorded, not training, training)
    for recorded in (False, True)
    for training in (False, True)
}
"""What a function's ``forward`` finds."""


def is_grad_enabled() -> bool:
    """Whether functions called now on this thread leave a graph."""
    call = _thread.call
    return call.enabled if call.scopes is None else _innermost(call)


def _innermost(call: _Call) -> bool:
    """What the innermost ``with`` block that is running says."""
    for scope, enabled in reversed(call.scopes or ()):
        if scope.is_open:
            return enabled
    return call.enabled


def is_recorded() -> bool:
    """Whether the function whose ``forward`` is running on this thread will enter the graph."""
    return _thread.call.recorded


def is_inference() -> bool:
    """Whether a function's ``forward`` is running on this thread for no graph's sake: nor inside another, or backward.

    What an engine derives from parameters may then serve again: no optimizer's step is to follow.
    """
    call = _thread.call
    return call.inference and not call.training


class set_grad_enabled(Scoped):
    """Context manager and decorator: turns the recording of the graph on or off on this thread.

    As a decorator of a generator function it holds while the generator runs, not while its caller does.
    """

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self._enabled = enabled

    def prepare(self, scope: Scope) -> None:
        call = _thread.call
        if call.scopes is None:
            _thread.call = call._replace(scopes=[(scope, self._enabled)])
            return
        while call.scopes and call.scopes[-1][0].is_over:
            call.scopes.pop()
        call.scopes.append((scope, self._enabled))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function):
            return cast(Callable[P, R], self._around_generator(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_grad_enabled(self._enabled):
                return function(*args, **kwargs)

        return call

    def _around_generator(self, function: Callable[P, Generator[Any, Any, Any]]) -> Callable[P, Any]:
        @wraps(function)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
            with set_grad_enabled(self._enabled):
                generator = function(*args, **kwargs)
            resume, value = generator.send, None
            while True:
                try:
                    with set_grad_enabled(self._enabled):
                        result = resume(value)
                except StopIteration as end:
                    return end.value
                try:
                    resume, value = generator.send, (yield result)
                except GeneratorExit:
                    with set_grad_enabled(self._enabled):
                        generator.close()
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error

        return generate


class no_grad(set_grad_enabled):
    """``with no_grad():`` or ``@no_grad()``: functions leave no graph."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(set_grad_enabled):
    """``with enable_grad():`` within no_grad: functions leave a graph again."""

    def __init__(self) -> None:
        super().__init__(True)


class Function:
    """A differentiable function: subclass, write ``forward`` and ``backward``, call ``Sub.apply(*args)``.

    ``forward(self, *args, **kwargs)`` computes with tensors (no graph is recorded inside) and returns a tensor or a
    tuple of them; ``self.save(...)`` keeps what backward needs. ``backward(self, *grads)`` gets one gradient an output
    (None where nothing flowed back) and returns one an argument of ``forward``, None for those not in
    ``self.needs``; a single tensor for a single argument; trailing Nones may be left out.

    Attributes:
        needs: per positional argument, whether its gradient is asked for.
        fresh: whether every tensor that backward returns is newly made and held by nobody else, so that the walk
            may add into it.
        views: whether the results may be views of the first argument's memory; one written to in place later then
            takes the other's place in the graph along.
    """

    fresh = False
    views = False
    needs: tuple[bool, ...]

    _saved: tuple[tuple[_tensor.Tensor, int] | None, ...] | None = ()
    _exchange: tuple[int, int, int, tuple[Any, ...]] | None = None

    # Of a function in the graph alone:
    _sequence: int
    _edges: tuple[Edge, ...]
    _outputs: tuple[tuple[tuple[int, ...], Any, Any], ...]  # shape, engine and dtype of each
    _hooks: dict[int, list[Callable[[_tensor.Tensor], _tensor.Tensor | None]]]
    # Weakly: the tensor holds this node, and a cycle would keep the graph's memory until a garbage collection.
    _retained: dict[int, weakref.ref[_tensor.Tensor]]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function's value."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with forward, got none: write one")

    def backward(self, *grads: Any) -> Any:
        """The arguments' gradients."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with backward, got none: write one")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls ``forward`` and, where an argument requires a gradient, enters the result into the graph."""
        function = cls()
        thread = _thread
        outer = thread.call
        enabled = outer.enabled if outer.scopes is None else _innermost(outer)
        function.needs = needs = tuple([_needs(arg) for arg in args]) if enabled else (False,) * len(args)
        recorded = True in needs
        try:
            try:
                thread.call = _FORWARD[recorded, recorded or outer.training]
                result = function.forward(*args, **kwargs)
            finally:
                thread.call = outer
        finally:
            thread.call = outer  # once more, if an interrupt came before the first time
        if type(result) is not _tensor.Tensor:
            _check_result(cls, result)
        if cls.views:
            for out in result if isinstance(result, tuple) else (result,):
                out._set_base(args[0])
        if recorded:
            return function._record(args, result)
        return result

    def _record(self, args: tuple[Any, ...], result: Any) -> Any:
        """Enters the function into the graph as what made the result; the result as the caller gets it."""
        self._sequence = next(_sequence)
        self._edges = tuple(
            [(arg._node or arg, arg._output) if need else None for arg, need in zip(args, self.needs, strict=True)]
        )
        self._hooks, self._retained = {}, {}
        outputs = result if isinstance(result, tuple) else (result,)
        # An argument handed through unchanged becomes a new tensor: its old place in the graph must stay.
        given = set(map(id, args))
        outputs = tuple([_another(out) if id(out) in given else out for out in outputs])
        self._outputs = tuple([(out.shape, out.storage.engine, out.dtype) for out in outputs])
        for index, out in enumerate(outputs):
            if is_float(out.dtype):
                out._enter(self, index)
        return outputs if isinstance(result, tuple) else outputs[0]

    def save(self, *tensors: _tensor.Tensor | None) -> None:
        """Keeps tensors for backward; each is guarded against being overwritten until then."""
        # A detached alias: keeping an output itself would tie it and this node into a reference cycle.
        self._saved = tuple([None if t is None else (t.detach(), t.storage.version) for t in tensors])
        if _thread.call.recorded:
            for tensor in tensors:
                if tensor is not None and tensor.storage.waiting is not None:
                    _tell(tensor.storage)

    def exchange(self, place: int, other: int, result: _tensor.Tensor) -> None:
        """Once another function saves ``result``, keeps it at ``other`` among the saved and drops what is at ``place``.

        So what stays in memory anyway serves. Until then ``result`` may be overwritten or dropped: it is not needed.
        """
        layout = (result.offset, result.shape, result.strides, result.dtype)
        self._exchange = (place, other, result.storage.version, layout)
        result.storage.waiting = weakref.ref(self)

    @property
    def saved(self) -> tuple[Any, ...]:
        """What ``save`` kept; GraphError if one was overwritten or all were freed."""
        if self._saved is None:
            raise GraphError(_SECOND_BACKWARD)
        for entry in self._saved:
            if entry is not None and entry[0].storage.version != entry[1]:
                raise GraphError(
                    f"[{type(self).__name__}.backward] expected the saved tensor of shape {entry[0].shape} at version "
                    f"{entry[1]}, got version {entry[0].version}: an in-place operation overwrote what backward "
                    "needs; use the operation that makes a new tensor, or .clone() before"
                )
        return tuple([None if entry is None else entry[0] for entry in self._saved])

    def accumulator(self, argument: int) -> _tensor.Tensor | None:
        """A gradient that has already arrived for an argument and may be added into, if there is one.

        A backward that adds its own contribution into it returns that same tensor, and saves a pass over memory.
        """
        edge, walk = self._edges[argument], _thread.walk
        if edge is None or walk is None or not isinstance(edge[0], Function):
            return None
        pending = walk.pending.get(edge[0], {}).get(edge[1])
        return pending.grad if pending is not None and pending.owned else None

    def _take(self, storage: _tensor.Storage) -> None:
        """Makes the exchange, unless the result was overwritten before."""
        if self._saved is None or self._exchange is None:
            return
        place, other, version, layout = self._exchange
        if storage.version == version:
            saved = list(self._saved)
            saved[place], saved[other] = None, (_tensor.Tensor(storage, *layout), version)
            self._saved = tuple(saved)

    def _release(self) -> None:
        self._saved = None
        self._edges = ()
        self._retained = {}


class _Pending:
    """A gradient that waits for its node, and whether the walk alone holds it."""

    __slots__ = ("grad", "owned")

    def __init__(self, grad: _tensor.Tensor, owned: bool) -> None:
        self.grad, self.owned = grad, owned

    def own(self, before: _tensor.Tensor | None) -> _tensor.Tensor:
        """A tensor of nobody else's that holds this gradient, added to the one before if there is one."""
        if before is not None:
            if before.shape != self.grad.shape or before.engine is not self.grad.engine:
                raise ShapeError(
                    f"[backward] expected a leaf's .grad of shape {self.grad.shape} on {self.grad.engine.name} to add "
                    f"to, got {before.shape} on {before.engine.name}: set it to None"
                )
            return before.engine.elementwise("add", before, self.grad, out=self.grad if self.owned else None)
        # The caller's tensor may be held elsewhere: .grad must be one that optimizers may write to.
        return self.grad if self.owned else self.grad.clone()


Edge = tuple[Any, int] | None
"""Where a gradient goes: (Function, index of its output) or (leaf Tensor, 0); None if it is not asked for."""

_SECOND_BACKWARD = (
    "[backward] expected a graph that still holds its saved tensors, got one freed by an earlier backward: call the "
    "first with retain_graph=True, or compute the loss again"
)


def backward(roots: Sequence[_tensor.Tensor], grads: Sequence[_tensor.Tensor], retain_graph: bool = False) -> None:
    """Walks the graph from the roots and adds to ``.grad`` of every leaf that requires a gradient.

    Nodes run in the reverse order of their making, so each runs once, after all that used its outputs. Unless
    ``retain_graph`` each node's saved tensors are freed as soon as it has run. The leaves get their gradients when the
    walk is over, all of them: an error or an interrupt on the way leaves every ``.grad`` as it was.
    """
    thread = _thread
    call, outer = thread.call, thread.walk
    walk = _Walk(retain_graph)
    try:
        try:
            thread.call, thread.walk = _BACKWARD, walk
            for root, grad in zip(roots, grads, strict=True):
                walk.deliver((root._node or root, root._output), grad, False)
            walk.run()
            walk.settle()
        finally:
            thread.call, thread.walk = call, outer
    finally:
        thread.call, thread.walk = call, outer  # once more, if an interrupt came before the first time


def enters_graph(*arguments: Any) -> bool:
    """Whether a function called now on these arguments would enter the graph."""
    if is_grad_enabled():
        for argument in arguments:  # without a call where the answer is plain: small products ask often
            if isinstance(argument, _tensor.Tensor) and (
                argument.requires_grad or (argument._base is not None and _needs(argument))
            ):
                return True
    return False


def _needs(argument: Any) -> bool:
    """Whether an argument's gradient is asked for; a view takes its base's place in the graph first."""
    if not isinstance(argument, _tensor.Tensor):
        return False
    if argument._base is not None:
        argument._follow_base()
    return argument.requires_grad


def _tell(storage: _tensor.Storage) -> None:
    """A function saved what another waits for."""
    waiting, storage.waiting = storage.waiting, None
    function = waiting() if waiting is not None else None
    if function is not None:
        function._take(storage)


def _another(tensor: _tensor.Tensor) -> _tensor.Tensor:
    """A new tensor over the same memory."""
    view = tensor.detach()
    view._set_base(tensor)
    return view


def _check_result(function: type[Function], result: Any) -> None:
    """ArgumentError unless ``forward`` returned a tensor or a tuple of them."""
    for out in result if isinstance(result, tuple) else (result,):
        if not isinstance(out, _tensor.Tensor):
            raise ArgumentError(
                f"[{function.__name__}.forward] expected a tensor or a tuple of tensors as its result, got "
                f"{type(out).__name__}: return tensors"
            )


def checked_hook(hook: Callable[[_tensor.Tensor], Any], grad: _tensor.Tensor) -> _tensor.Tensor:
    """What a hook makes of a gradient: itself for None; an error unless it is another of the same kind."""
    replaced = hook(grad)
    if replaced is None:
        return grad
    if not isinstance(replaced, _tensor.Tensor):
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


class _Walk:
    """One backward: the nodes that wait, the gradients that wait for them, and those for the leaves.

    All of it belongs to the walk, not to the graph, so a walk that is given up leaves nothing behind.
    """

    def __init__(self, retain_graph: bool) -> None:
        self.retain_graph = retain_graph
        self.queue: list[tuple[int, Function]] = []
        self.pending: dict[Function, dict[int, _Pending]] = {}
        self.leaves: dict[_tensor.Tensor, _Pending] = {}

    def run(self) -> None:
        """Runs every node that a gradient reaches."""
        while self.queue:
            self._run(heapq.heappop(self.queue)[1])

    def _run(self, function: Function) -> None:
        if function._saved is None:
            raise GraphError(_SECOND_BACKWARD)
        pending = self.pending.pop(function)
        outgoing: list[_tensor.Tensor | None] = [
            pending[index].grad if index in pending else None for index in range(len(function._outputs))
        ]
        pending.clear()
        if function._hooks or function._retained:
            outgoing = [
                None if grad is None else self._observe(function, index, grad) for index, grad in enumerate(outgoing)
            ]
        result = function.backward(*outgoing)
        outgoing.clear()
        incoming = list(result) if isinstance(result, tuple | list) else [result]
        if len(incoming) > len(function._edges):
            raise GraphError(
                f"[{type(function).__name__}.backward] expected at most {len(function._edges)} gradients, one an "
                f"argument of forward, got {len(incoming)}"
            )
        del result
        edges, fresh = function._edges, function.fresh
        if not self.retain_graph:
            function._release()
        for argument, edge in enumerate(edges[: len(incoming)]):
            grad, incoming[argument] = incoming[argument], None
            if edge is not None and grad is not None:
                if not isinstance(grad, _tensor.Tensor):
                    raise ArgumentError(
                        f"[{type(function).__name__}.backward] expected tensors or None as gradients, got "
                        f"{type(grad).__name__} for argument {argument}: return tensors"
                    )
                self.deliver(edge, grad, fresh)

    def _observe(self, function: Function, index: int, grad: _tensor.Tensor) -> _tensor.Tensor:
        """Runs the hooks of an output, and keeps its gradient where ``retain_grad`` asked for it."""
        for hook in tuple(function._hooks.get(index, ())):
            grad = checked_hook(hook, grad)
        tensor = function._retained[index]() if index in function._retained else None
        if tensor is not None:
            _add(self.leaves, tensor, grad, False)
        return grad

    def deliver(self, edge: tuple[Any, int], grad: _tensor.Tensor, owned: bool) -> None:
        """Adds a gradient to those that wait for a node or a leaf."""
        target, index = edge
        if not isinstance(target, Function):
            self._deliver_leaf(target, grad, owned)
            return
        if target._saved is None:
            raise GraphError(_SECOND_BACKWARD)
        shape, engine, dtype = target._outputs[index]
        if grad.shape != shape or grad.storage.engine is not engine:
            raise _misshapen(f"the result of {type(target).__name__}", shape, engine, grad)
        if grad.dtype is not dtype and grad.dtype != dtype:
            grad, owned = grad.astype(dtype), True
        waiting = self.pending.get(target)
        if waiting is None:
            self.pending[target] = {index: _Pending(grad, owned)}
            heapq.heappush(self.queue, (-target._sequence, target))
        else:
            _add(waiting, index, grad, owned)

    def _deliver_leaf(self, leaf: _tensor.Tensor, grad: _tensor.Tensor, owned: bool) -> None:
        if grad.shape != leaf.shape or grad.storage.engine is not leaf.storage.engine:
            raise _misshapen("a leaf", leaf.shape, leaf.engine, grad)
        if grad.dtype is not leaf.dtype and grad.dtype != leaf.dtype:
            grad, owned = grad.astype(leaf.dtype), True
        if leaf._leaf_hooks:
            for hook in tuple(leaf._leaf_hooks):
                replaced = checked_hook(hook, grad)
                grad, owned = replaced, owned and replaced is grad
        _add(self.leaves, leaf, grad, owned)

    def settle(self) -> None:
        """Gives the leaves their gradients.

        An interrupt ends nothing half way: what remains is done before it goes on. So each step must come to the same
        when it is done twice: the sums are made beforehand, in the gradients that the walk alone holds, then copied.
        """
        lock = _settling
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                self._settle()
                return
        try:
            self._settle()
        finally:
            mutex.release()

    def _settle(self) -> None:
        prepared = [
            (leaf, before, waiting.grad if waiting.owned and before is None else waiting.own(before))
            for leaf, waiting in self.leaves.items()
            for before in (leaf.grad,)
        ]

        def give() -> None:
            for leaf, before, grad in prepared:
                leaf._settle_grad(before, grad)

        try:
            give()
        except KeyboardInterrupt:
            finish(give)
            raise


def _misshapen(target: str, shape: tuple[int, ...], engine: Any, grad: _tensor.Tensor) -> ShapeError:
    return ShapeError(
        f"[backward] expected a gradient of shape {shape} on {engine.name} for {target}, got {grad.shape} on "
        f"{grad.engine.name}: return gradients shaped as the arguments"
    )


def _add(pending: dict[Any, _Pending], key: Any, grad: _tensor.Tensor, owned: bool) -> None:
    """Adds a gradient to what waits under a key."""
    found = pending.get(key)
    if found is None:
        pending[key] = _Pending(grad, owned)
    elif found.owned and grad is found.grad:
        return  # the function added its part into accumulator()
    elif found.owned:
        grad.engine.elementwise("add", found.grad, grad, out=found.grad)
    else:
        pending[key] = _Pending(grad.engine.elementwise("add", found.grad, grad), True)


_BACKWARD = _Call(False, False, False, True)
"""What a function's ``backward`` finds."""

_settling = RobustLock(_Walk.settle)
"""Threads that share leaves add to their gradients one after the other."""
