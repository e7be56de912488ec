"""Autograd: Function, the graph that functions record, views within it, and no_grad."""

from __future__ import annotations

import inspect
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from alpha.arguments import flag
from alpha.dtypes import FLOATS, is_float
from alpha.errors import ArgumentError, GraphError
from alpha.expressions.symbols import Symbol
from alpha.hooks import RemovableHandle
from alpha.scopes import Scope, Scoped
from alpha.tensor import Storage, Tensor

if TYPE_CHECKING:
    from alpha.walk import Walk

P = ParamSpec("P")
R = TypeVar("R")
_sequence = itertools.count()


class _Call(NamedTuple):
    """A thread's autograd state for the functions called now. Replaced as a whole, so that an interrupt finds no half
    of it.

    Attributes:
        enabled: whether functions record a graph, unless one of ``scopes`` says otherwise.
        recorded: whether the function whose ``forward`` is running will enter the graph.
        inference: whether a function's ``forward`` is running that will not enter the graph.
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
    walk: Walk | None = None


THREAD = _Thread()
_FORWARD = {
    (recorded, training): _Call(False, recorded, not training, training)
    for recorded in (False, True)
    for training in (False, True)
}
"""The state while a function's ``forward`` runs, by (recorded, training)."""

BACKWARD = _Call(False, False, False, True)
"""The state while a function's ``backward`` runs."""


def is_grad_enabled() -> bool:
    """Whether functions called now on this thread record a graph."""
    call = THREAD.call
    return call.enabled if call.scopes is None else _innermost(call)


def _innermost(call: _Call) -> bool:
    """Whether the innermost ``with`` block that is running lets functions record a graph."""
    for scope, enabled in reversed(call.scopes or ()):
        if scope.is_open:
            return enabled
    return call.enabled


def is_recorded() -> bool:
    """Whether the function whose ``forward`` is running on this thread will enter the graph."""
    return THREAD.call.recorded


def is_inference() -> bool:
    """Whether a ``forward`` is running on this thread that belongs to no graph, not even of an outer function.

    What an engine derives from parameters may then be kept: no optimizer step will follow.
    """
    call = THREAD.call
    return call.inference and not call.training


def leads_to_inference() -> bool:
    """Whether ``is_inference`` holds in the ``forward`` of a function that is called now, outside the graph."""
    return not THREAD.call.training


def _switch(enabled: bool) -> None:
    """Turns the recording of the graph on or off on this thread, until the innermost ``with`` block that runs ends."""
    call = THREAD.call
    scopes = call.scopes or []
    for index in reversed(range(len(scopes))):
        if scopes[index][0].is_open:
            scopes[index] = (scopes[index][0], enabled)
            return
    THREAD.call = call._replace(enabled=enabled)


class _GradMode(Scoped):
    """Context manager and decorator: turns the recording of the graph on or off on this thread.

    As a decorator of a generator function it is in force while the generator runs, not while its caller does.
    """

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self._enabled = enabled

    def prepare(self, scope: Scope) -> None:
        call = THREAD.call
        if call.scopes is None:
            THREAD.call = call._replace(scopes=[(scope, self._enabled)])
            return
        while call.scopes and call.scopes[-1][0].is_over:
            call.scopes.pop()
        call.scopes.append((scope, self._enabled))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function):
            return cast(Callable[P, R], self._around_generator(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return call

    def _around_generator(self, function: Callable[P, Generator[Any, Any, Any]]) -> Callable[P, Any]:
        @wraps(function)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
            with _GradMode(self._enabled):
                generator = function(*args, **kwargs)
            resume, value = generator.send, None
            while True:
                try:
                    with _GradMode(self._enabled):
                        result = resume(value)
                except StopIteration as end:
                    return end.value
                try:
                    resume, value = generator.send, (yield result)
                except GeneratorExit:
                    with _GradMode(self._enabled):
                        generator.close()
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error

        return generate


class set_grad_enabled(_GradMode):
    """Turns the recording of the graph on or off on this thread.

    Called, from now on (within ``with no_grad():`` and its like until that block ends); as a context manager for a
    block; as a decorator for a function. Either of the latter leaves the mode outside as it was.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(flag("set_grad_enabled", "mode", mode))
        self._before = is_grad_enabled()
        _switch(self._enabled)

    def prepare(self, scope: Scope) -> None:
        super().prepare(scope)
        _switch(self._before)  # of what is around the block, which is not open yet

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        _switch(self._before)
        return super().__call__(function)


class no_grad(_GradMode):
    """``with no_grad():``, ``@no_grad()`` or ``@no_grad``: functions record no graph."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(_GradMode):
    """``with enable_grad():``, ``@enable_grad()`` or ``@enable_grad``: functions record a graph again."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        super().__init__(True)


class Function:
    """A differentiable function: subclass, write ``forward`` and ``backward``, call ``Sub.apply(*args)``.

    ``forward(self, *args, **kwargs)`` computes with tensors (no graph is recorded inside) and returns a tensor or a
    tuple of them; ``self.save(...)`` keeps what backward needs. ``backward(self, *grads)`` gets one gradient per
    output (None where nothing flowed back) and returns one per argument of ``forward``, None for those not in
    ``self.needs``; a single tensor for a single argument; trailing Nones may be left out.

    Attributes:
        needs: per positional argument, whether its gradient is asked for.
        fresh: whether every tensor that backward returns is newly made and held by nobody else, so that the walk
            may add into it.
        passes_on: whether what backward returns is new, or the given gradient and views of it that share no element:
            where nobody else holds that gradient, nobody else holds these.
        views: whether the results may be views of the first argument's memory. Their places in the graph then follow
            each other's in-place writes.
    """

    fresh = False
    passes_on = False
    views = False
    needs: tuple[bool, ...]

    _saved: tuple[tuple[Tensor, int] | None, ...] | None = ()
    _exchange: tuple[int, int, int, tuple[Any, ...]] | None = None
    _hooks: dict[int, dict[RemovableHandle, Callable[[Tensor], Tensor | None]]] | None = None
    # A weak reference: the tensor holds this node, and a cycle would keep the graph's memory until a garbage
    # collection.
    _retained: dict[int, weakref.ref[Tensor]] | None = None

    # Only functions in the graph have these:
    _sequence: int
    _edges: tuple[Edge, ...]
    _outputs: tuple[tuple[tuple[int, ...], Any, Any], ...]  # shape, engine and dtype of each

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the function's result."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with forward, got none: write one")

    def backward(self, *grads: Any) -> Any:
        """Computes the arguments' gradients."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with backward, got none: write one")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls ``forward`` and, where an argument requires a gradient, enters the result into the graph."""
        function = cls()
        thread = THREAD
        outer = thread.call
        needs: list[bool] = []
        edges: list[Edge] = []
        recorded = False
        enabled = outer.enabled if outer.scopes is None else _innermost(outer)
        for arg in args:
            if enabled and isinstance(arg, Tensor) and (arg.requires_grad if arg._base is None else _needs(arg)):
                needs.append(True)
                edges.append((arg._node or arg, arg._output))
                recorded = True
            else:
                needs.append(False)
                edges.append(None)
        function.needs = tuple(needs)
        try:
            try:
                thread.call = _FORWARD[recorded, recorded or outer.training]
                result = function.forward(*args, **kwargs)
            finally:
                thread.call = outer
        except BaseException:
            thread.call = outer  # again, if an interrupt came before the first assignment
            raise
        if type(result) is not Tensor:
            _check_result(cls, result)
        if cls.views:
            for out in result if isinstance(result, tuple) else (result,):
                set_base(out, args[0])
        if not recorded:
            return result
        if isinstance(result, tuple):
            function._sequence, function._edges = next(_sequence), tuple(edges)
            outputs = tuple([function._output_of(out, args, index) for index, out in enumerate(result)])
            function._outputs = tuple([(out.shape, out.storage.engine, out.dtype) for out in outputs])
            return outputs
        result = function._output_of(result, args, 0)
        function._enter(edges, result)
        return result

    def _enter(self, edges: list[Edge], result: Tensor) -> None:
        """Enters the function into the graph as the origin of its only result, which is in the graph already."""
        self._sequence, self._edges = next(_sequence), tuple(edges)
        self._outputs = ((result.shape, result.storage.engine, result.dtype),)

    def record(self, edges: list[Edge], saved: list[Tensor], result: Tensor) -> Tensor:
        """Does what ``apply`` does for a function that has computed its result, a new tensor of floats, by itself.

        ``edges``: as ``edges_of`` gives them; ``saved``: what backward needs, as tensors that lie so. Returns the
        result.
        """
        self.needs = tuple([edge is not None for edge in edges])
        # A detached alias of the result: it holds this function. Arguments are held by the edges, too.
        self._saved = tuple([(x.detach() if x is result else x, x.storage.version) for x in saved])
        for x in saved:
            if x.storage.waiting is not None:
                _notify(x.storage)
        result._node, result._output, result.requires_grad = self, 0, True
        self._enter(edges, result)
        return result

    def _output_of(self, out: Tensor, args: tuple[Any, ...], index: int) -> Tensor:
        """One of the results, in the graph.

        An argument that forward returned unchanged becomes a new tensor: the argument's place in the graph must stay.
        """
        for arg in args:
            if arg is out:
                out = _another(out)
                break
        if out.dtype in FLOATS or is_float(out.dtype):
            out._node, out._output, out.requires_grad = self, index, True
        return out

    def save(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward, which raises an error if one was overwritten meanwhile."""
        if not THREAD.call.recorded:
            self._saved = tuple([None if t is None else (t, t.storage.version) for t in tensors])
            return
        # A detached alias: keeping an output itself would tie it and this node into a reference cycle.
        self._saved = tuple([None if t is None else (t.detach(), t.storage.version) for t in tensors])
        for tensor in tensors:
            if tensor is not None and tensor.storage.waiting is not None:
                _notify(tensor.storage)

    def exchange(self, place: int, other: int, result: Tensor) -> None:
        """Once another function saves ``result``, saves it too, at index ``other``, and drops the tensor at index
        ``place``.

        So backward uses what stays in memory anyway. Until then ``result`` is not needed: it may be overwritten.
        """
        layout = (result.offset, result.shape, result.strides, result.dtype)
        self._exchange = (place, other, result.storage.version, layout)
        result.storage.waiting = weakref.ref(self)

    @property
    def title(self) -> str:
        """The function's name in messages."""
        return type(self).__name__

    @property
    def saved(self) -> tuple[Any, ...]:
        """The tensors that ``save`` kept; GraphError if one was overwritten or all were freed."""
        if self._saved is None:
            raise GraphError(SECOND_BACKWARD)
        for entry in self._saved:
            if entry is not None and entry[0].storage.version != entry[1]:
                raise GraphError(
                    f"[{self.title}.backward] expected the saved tensor of shape {entry[0].shape} at version "
                    f"{entry[1]}, got version {entry[0].version}: an in-place operation overwrote what backward "
                    "needs; use the operation that makes a new tensor, or .clone() before"
                )
        return tuple([None if entry is None else entry[0] for entry in self._saved])

    def accumulator(self, argument: int) -> Tensor | None:
        """The gradient that has already arrived for an argument, if it may be added into.

        A backward that adds its own contribution into it returns that same tensor, and saves a pass over memory.
        """
        edge, walk = self._edges[argument], THREAD.walk
        if edge is None or walk is None or not isinstance(edge[0], Function):
            return None
        return walk.accumulator(*edge)

    def _take(self, storage: Storage) -> None:
        """Makes the exchange, unless the result was overwritten meanwhile."""
        if self._saved is None or self._exchange is None:
            return
        place, other, version, layout = self._exchange
        if storage.version == version:
            saved = list(self._saved)
            saved[place], saved[other] = None, (Tensor(storage, *layout), version)
            self._saved = tuple(saved)


Edge = tuple[Any, int] | None
"""Where a gradient goes: (Function, index of its output) or (leaf Tensor, 0); None if it is not asked for."""

SECOND_BACKWARD = (
    "[backward] expected a graph that still holds its saved tensors, got one freed by an earlier backward: call the "
    "first with retain_graph=True, or compute the loss again"
)


def enters_graph(*arguments: Any) -> bool:
    """Whether a function called now on these arguments would enter the graph."""
    if is_grad_enabled():
        for argument in arguments:
            if isinstance(argument, Tensor) and (
                argument.requires_grad if argument._base is None else _needs(argument)
            ):
                return True
    return False


def edges_of(tensors: Sequence[Tensor]) -> list[Edge] | None:
    """Where the gradients of a function of these tensors go; None if it would not enter the graph."""
    call = THREAD.call
    if not (call.enabled if call.scopes is None else _innermost(call)):
        return None
    edges: list[Edge] = []
    found = False
    for x in tensors:
        if x.requires_grad if x._base is None else _needs(x):
            edges.append((x._node or x, x._output))
            found = True
        else:
            edges.append(None)
    return edges if found else None


def _needs(argument: Any) -> bool:
    """Whether an argument's gradient is asked for; a view takes its base's place in the graph first."""
    if isinstance(argument, Tensor):
        if argument._base is not None and 0 <= argument._base_version != argument.storage.version:
            follow_base(argument)
        return argument.requires_grad
    return False


def _notify(storage: Storage) -> None:
    """Tells the function that waits for it that another function saved this storage's contents."""
    waiting, storage.waiting = storage.waiting, None
    function = waiting() if waiting is not None else None
    if function is not None:
        function._take(storage)


def _another(tensor: Tensor) -> Tensor:
    """A new tensor over the same memory, outside the graph."""
    view = tensor.detach()
    set_base(view, tensor)
    return view


def _check_result(function: type[Function], result: Any) -> None:
    """Raises ArgumentError unless ``forward`` returned tensors, or symbols where ``alpha.pointwise`` called it."""
    for out in result if isinstance(result, tuple) else (result,):
        if not isinstance(out, Tensor | Symbol):
            raise ArgumentError(
                f"[{function.__name__}.forward] expected a tensor or a tuple of tensors as its result, got "
                f"{type(out).__name__}: return tensors"
            )


# -- views ---------------------------------------------------------------------------------------------------------


def set_base(view: Tensor, source: Tensor) -> None:
    """Notes that a tensor views another's memory, unless it is a copy or that tensor itself."""
    if view.storage is source.storage and view is not source:
        view._base = base = source._base if source._base is not None else source
        view._base_version = -1 if base.requires_grad and not is_grad_enabled() else view.version


def view_of(x: Tensor, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """A view of a tensor, as a function with ``views`` returns it where it does not enter the graph."""
    storage = x.storage
    view = Tensor(storage, offset, shape, strides, x.dtype)
    base = x._base
    view._base = base = x if base is None else base
    view._base_version = -1 if base.requires_grad and not is_grad_enabled() else storage.version
    return view


def views_of(x: Tensor, places: Sequence[tuple[int, tuple[int, ...]]], strides: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Views as ``view_of`` makes them: for each, how many elements behind the tensor it begins, and its shape."""
    storage, first, dtype, base = x.storage, x.offset, x.dtype, x._base
    base = x if base is None else base
    version = -1 if base.requires_grad and not is_grad_enabled() else storage.version
    views = []
    for start, shape in places:
        view = Tensor(storage, first + start, shape, strides, dtype)
        view._base, view._base_version = base, version
        views.append(view)
    return tuple(views)


def follow_base(view: Tensor) -> None:
    """Updates a view's place in the graph from its base, if the shared memory was written to in place."""
    if view._base is not None and 0 <= view._base_version != view.version:
        version = view.version
        leaf = view.requires_grad and view._node is None
        if view._base.requires_grad and not leaf:
            out = Region.apply(view._base, view.detach())
            if out._node is not None:
                view._enter(out._node, out._output)
        view._base_version = version


class Overwrite(Function):
    """The base after one of its views was overwritten: the region's gradient goes to what was written there."""

    fresh = True

    def forward(self, base: Tensor, view: Tensor) -> Tensor:
        self.base, self.region = _layout(base), _layout(view)
        return base

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        whole = _laid_out(grad, self.base)
        region = _at(whole, self.base, self.region)
        written = region.clone()
        grad.engine.fill(region, 0)
        return whole, written


class Region(Function):
    """A view of the base, given by its place in memory."""

    fresh = True

    def forward(self, base: Tensor, view: Tensor) -> Tensor:
        self.base, self.region = _layout(base), _layout(view)
        return view.detach()

    def backward(self, grad: Tensor) -> Tensor:
        zero = grad.engine.empty((), grad.dtype)
        grad.engine.fill(zero, 0)
        whole = _laid_out(zero, self.base)
        grad.engine.copy(grad, _at(whole, self.base, self.region))
        return whole


Layout = tuple[int, tuple[int, ...], tuple[int, ...]]


def _layout(x: Tensor) -> Layout:
    return x.offset, x.shape, x.strides


def _laid_out(grad: Tensor, layout: Layout) -> Tensor:
    """A copy of a gradient with the strides of its tensor."""
    _, shape, strides = layout
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if math.prod(shape) else 0
    storage = grad.engine.allocate(span * grad.dtype.itemsize)
    out = Tensor(storage, 0, shape, strides, grad.dtype)
    grad.engine.copy(grad, out)
    return out


def _at(whole: Tensor, base: Layout, region: Layout) -> Tensor:
    return whole.strided(region[0] - base[0], region[1], region[2])
