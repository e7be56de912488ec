"""Autograd: Function, the graph it leaves behind, the backward walk, no_grad."""

from __future__ import annotations

import heapq
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import alpha.tensor as _tensor
from alpha.dtypes import is_float
from alpha.errors import GraphError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")
_sequence = itertools.count()


class _Mode(threading.local):
    enabled = True
    recorded = False
    inference = False
    training = False  # within a function that enters the graph, or within backward


_mode = _Mode()


def is_grad_enabled() -> bool:
    """Whether functions called now on this thread leave a graph."""
    return _mode.enabled


def is_recorded() -> bool:
    """Whether the function whose ``forward`` is running on this thread will enter the graph."""
    return _mode.recorded


def is_inference() -> bool:
    """Whether a function's ``forward`` is running on this thread for no graph's sake: nor inside another, or backward.

    What an engine derives from parameters may then serve again: no optimizer's step is to follow.
    """
    return _mode.inference and not _mode.training


class set_grad_enabled:
    """Context manager and decorator: turns the recording of the graph on or off on this thread."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._outer: list[bool] = []

    def __enter__(self) -> None:
        self._outer.append(_mode.enabled)
        _mode.enabled = self._enabled

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _mode.enabled = self._outer.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_grad_enabled(self._enabled):
                return function(*args, **kwargs)

        return call


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
    _outputs: tuple[tuple[tuple[int, ...], Any], ...]
    _hooks: dict[int, list[Callable[[_tensor.Tensor], _tensor.Tensor | None]]]
    # Weakly: the tensor holds this node, and a cycle would keep the graph's memory until a garbage collection.
    _retained: dict[int, weakref.ref[_tensor.Tensor]]
    _pending: dict[int, _Pending]

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
        mode = _mode
        outer = mode.enabled, mode.recorded, mode.inference, mode.training
        function.needs = needs = tuple([_needs(arg) for arg in args]) if outer[0] else (False,) * len(args)
        recorded = True in needs
        training = recorded or outer[3]
        mode.enabled, mode.recorded, mode.inference, mode.training = False, recorded, not training, training
        try:
            result = function.forward(*args, **kwargs)
        finally:
            mode.enabled, mode.recorded, mode.inference, mode.training = outer
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
        self._hooks, self._retained, self._pending = {}, {}, {}
        outputs = result if isinstance(result, tuple) else (result,)
        # An argument handed through unchanged becomes a new tensor: its old place in the graph must stay.
        given = set(map(id, args))
        outputs = tuple([_another(out) if id(out) in given else out for out in outputs])
        self._outputs = tuple([(out.shape, out.storage.engine) for out in outputs])
        for index, out in enumerate(outputs):
            if is_float(out.dtype):
                out._enter(self, index)
        return outputs if isinstance(result, tuple) else outputs[0]

    def save(self, *tensors: _tensor.Tensor | None) -> None:
        """Keeps tensors for backward; each is guarded against being overwritten until then."""
        # A detached alias: keeping an output itself would tie it and this node into a reference cycle.
        self._saved = tuple([None if t is None else (t.detach(), t.storage.version) for t in tensors])
        if _mode.recorded:
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
        edge = self._edges[argument]
        if edge is None or not isinstance(edge[0], Function):
            return None
        pending = edge[0]._pending.get(edge[1])
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


Edge = tuple[Any, int] | None
"""Where a gradient goes: (Function, index of its output) or (leaf Tensor, 0); None if it is not asked for."""

_SECOND_BACKWARD = (
    "[backward] expected a graph that still holds its saved tensors, got one freed by an earlier backward: call the "
    "first with retain_graph=True, or compute the loss again"
)


def backward(roots: Sequence[_tensor.Tensor], grads: Sequence[_tensor.Tensor], retain_graph: bool = False) -> None:
    """Walks the graph from the roots and adds to ``.grad`` of every leaf that requires a gradient.

    Nodes run in the reverse order of their making, so each runs once, after all that used its outputs. Unless
    ``retain_graph`` each node's saved tensors are freed as soon as it has run.
    """
    queue: list[tuple[int, Function]] = []
    visited: list[Function] = []
    outer = _mode.training
    with no_grad():
        _mode.training = True
        try:
            for root, grad in zip(roots, grads, strict=True):
                _deliver((root._node or root, root._output), grad, False, queue, visited)
            while queue:
                _run(heapq.heappop(queue)[1], retain_graph, queue, visited)
        finally:
            _mode.training = outer
            for function in visited:  # an error on the way leaves no half gradients behind
                function._pending.clear()


def enters_graph(*arguments: Any) -> bool:
    """Whether a function called now on these arguments would enter the graph."""
    if _mode.enabled:
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


def _run(function: Function, retain_graph: bool, queue: list[tuple[int, Function]], visited: list[Function]) -> None:
    if function._saved is None:
        raise GraphError(_SECOND_BACKWARD)
    pending, function._pending = function._pending, {}
    outgoing: list[_tensor.Tensor | None] = []
    for index in range(len(function._outputs)):
        grad = pending[index].grad if index in pending else None
        if grad is not None:
            grad = _observe(function, index, grad)
        outgoing.append(grad)
    pending.clear()
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
    if not retain_graph:
        function._release()
    for argument, edge in enumerate(edges[: len(incoming)]):
        grad, incoming[argument] = incoming[argument], None
        if edge is not None and grad is not None:
            _deliver(edge, grad, fresh, queue, visited)


def _observe(function: Function, index: int, grad: _tensor.Tensor) -> _tensor.Tensor:
    """Runs the hooks of an output, and keeps its gradient where ``retain_grad`` asked for it."""
    for hook in function._hooks.get(index, ()):
        replaced = hook(grad)
        grad = grad if replaced is None else replaced
    tensor = function._retained[index]() if index in function._retained else None
    if tensor is not None:
        tensor.grad = grad if tensor.grad is None else tensor.grad + grad
    return grad


def _deliver(
    edge: tuple[Any, int],
    grad: _tensor.Tensor,
    owned: bool,
    queue: list[tuple[int, Function]],
    visited: list[Function],
) -> None:
    target, index = edge
    if not isinstance(target, Function):
        target._accumulate_grad(grad, owned)
        return
    if target._saved is None:
        raise GraphError(_SECOND_BACKWARD)
    shape, engine = target._outputs[index]
    if grad.shape != shape or grad.engine is not engine:
        raise ShapeError(
            f"[backward] expected a gradient of shape {shape} on {engine.name} for the result of "
            f"{type(target).__name__}, got {grad.shape} on {grad.engine.name}: return gradients shaped as the arguments"
        )
    if not target._pending:
        heapq.heappush(queue, (-target._sequence, target))
        visited.append(target)
    pending = target._pending.get(index)
    if pending is None:
        target._pending[index] = _Pending(grad, owned)
    elif pending.owned and grad is pending.grad:
        return  # the function added its part into accumulator()
    elif pending.owned:
        engine.elementwise("add", pending.grad, grad, out=pending.grad)
    else:
        target._pending[index] = _Pending(engine.elementwise("add", pending.grad, grad), True)
