"""Function, and the graph that functions record."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from alpha.autograd import anomaly, contexts, regions
from alpha.autograd.kept import Remade, is_alone, value_of
from alpha.autograd.modes import FORWARD, THREAD, innermost, is_grad_enabled
from alpha.dtypes import FLOATS, has_gradients
from alpha.errors import ArgumentError, GraphError
from alpha.expressions.symbols import Symbol
from alpha.hooks import RemovableHandle
from alpha.tensor import Storage, Tensor

_sequence = itertools.count()


Saved = tuple[Tensor | Remade, int, bool]
"""A tensor kept for backward, outside the graph; its version then; whether it is an argument that needs a gradient."""


class Function(contexts.Context):
    """A differentiable function: subclass, write ``forward`` and ``backward``, call ``Sub.apply(*args)``.

    ``forward(self, *args, **kwargs)`` computes with tensors (no graph is recorded inside) and returns a tensor or a
    tuple of them; ``self.save(...)`` keeps what backward needs. ``backward(self, *grads)`` gets one gradient per
    output (None where nothing flowed back) and returns one per argument of ``forward``, None for those not in
    ``self.needs``; a single tensor for a single argument; trailing Nones may be left out.

    PyTorch's form serves too: ``forward(ctx, ...)`` and ``backward(ctx, ...)`` as static methods, with or without
    ``setup_context(ctx, inputs, output)``; ``ctx`` is the function. Gradients that did not flow are zeros there.

    Second gradients (``create_graph=True``): ``backward`` runs with recording on, and what ``self.saved`` holds of
    arguments and results is in the graph. So a backward made of differentiable functions is differentiable, if all
    that it reads are gradients, arguments and results. One that is not has ``backward_in_graph`` beside it.

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

    _saved: tuple[Saved | None, ...] | None = ()
    _exchange: tuple[int, int, int, tuple[Any, ...]] | None = None
    _offered: tuple[int, tuple[Any, ...]] | None = None  # the version and the layout of a result that it can remake
    _remade: weakref.ref[Remade] | None = None  # what stands for that result where others save it
    _takes_remade = False  # whether some of what was saved is made again
    _hooks: dict[int, dict[RemovableHandle, Callable[[Tensor], Tensor | None]]] | None = None
    # A weak reference: the tensor holds this node, and a cycle would keep the graph's memory until a garbage
    # collection.
    _retained: dict[int, weakref.ref[Tensor]] | None = None

    # Only functions in the graph have these:
    _sequence: int
    _edges: tuple[Edge, ...]
    _outputs: tuple[Output, ...]
    _origin: str = ""  # where it was called, noted while anomalies are looked for

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        contexts.adapt(cls)

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
        enabled = outer.enabled if outer.scopes is None else innermost(outer)
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
                thread.call = FORWARD[recorded, recorded or outer.training]
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
                regions.set_base(out, args[0])
        if not recorded:
            return result
        if isinstance(result, tuple):
            outputs = tuple([function._output_of(out, args, index) for index, out in enumerate(result)])
            function._enter(edges, tuple(map(note_of, outputs)))
            return outputs
        result = function._output_of(result, args, 0)
        function._enter(edges, (note_of(result),))
        return result

    def _enter(self, edges: list[Edge], outputs: tuple[Output, ...]) -> None:
        """Enters the function into the graph as the origin of its results, which are in the graph already."""
        self._sequence, self._edges, self._outputs = next(_sequence), tuple(edges), outputs
        if anomaly.STATE.on:
            self._origin = anomaly.origin()

    def record(self, edges: list[Edge], saved: list[Tensor], result: Tensor) -> Tensor:
        """Does what ``apply`` does for a function that has computed its result, a new tensor of floats, by itself.

        ``edges``: as ``edges_of`` gives them; ``saved``: what backward needs, as tensors that lie so. Returns the
        result.
        """
        self.needs = tuple([edge is not None for edge in edges])
        # A detached alias of the result: it holds this function. Arguments are held by the edges, too.
        self._saved = tuple([(x.detach() if x is result else x, x.storage.version, x.requires_grad) for x in saved])
        for place, x in enumerate(saved):
            if x.storage.waiting is not None:
                self._announce(place, x)
        result._node, result._output, result.requires_grad = self, 0, True
        self._enter(edges, (note_of(result),))
        return result

    def _output_of(self, out: Tensor, args: tuple[Any, ...], index: int) -> Tensor:
        """One of the results, in the graph.

        An argument that forward returned unchanged becomes a new tensor: the argument's place in the graph must stay.
        """
        for arg in args:
            if arg is out:
                out = _another(out)
                break
        if (out.dtype in FLOATS or has_gradients(out.dtype)) and not (
            self._without_gradient and any(out is one for one in self._without_gradient)
        ):
            out._node, out._output, out.requires_grad = self, index, True
        return out

    def save(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward, which raises an error if one was overwritten meanwhile."""
        if not THREAD.call.recorded:
            self._saved = tuple([None if t is None else (t, t.storage.version, False) for t in tensors])
            return
        # A detached alias: keeping an output itself would tie it and this node into a reference cycle.
        self._saved = tuple([None if t is None else (t.detach(), t.storage.version, t.requires_grad) for t in tensors])
        for place, tensor in enumerate(tensors):
            if tensor is not None and tensor.storage.waiting is not None:
                self._announce(place, tensor)

    def exchange(self, place: int, other: int, result: Tensor) -> None:
        """Once another function saves ``result``, saves it too, at index ``other``, and drops the tensor at index
        ``place``.

        So backward uses what stays in memory anyway. Until then ``result`` is not needed: it may be overwritten.
        """
        self._exchange = (place, other, result.storage.version, _layout(result))
        result.storage.waiting = weakref.ref(self)

    def offer(self, result: Tensor) -> None:
        """Spares other functions keeping ``result``: where they save it as their argument, ``remake`` makes it again.

        It must have the same bits, and be made of what this function has saved.
        """
        self._offered = result.storage.version, _layout(result)
        result.storage.waiting = weakref.ref(self)

    def remake(self) -> Tensor:
        """The result that was offered, made again outside the graph."""
        raise NotImplementedError(f"[{self.title}] expected a function with remake, which offers its result: write one")

    @property
    def title(self) -> str:
        """The function's name in messages."""
        return type(self).__name__

    @property
    def saved(self) -> tuple[Any, ...]:
        """The tensors that ``save`` kept; GraphError if one was overwritten or all were freed."""
        kept, walk = self.kept(), THREAD.walk
        if walk is not None and walk.create_graph:
            return tuple([None if entry is None else self._in_graph(*entry) for entry in self._saved or ()])
        return kept

    def kept(self) -> tuple[Any, ...]:
        """``saved`` outside the graph, also while one is made of the gradients."""
        entries = self.kept_or_remade()
        return tuple([value_of(entry) for entry in entries]) if self._takes_remade else entries

    def kept_or_remade(self) -> tuple[Any, ...]:
        """``kept``, with ``Remade`` for what is made again."""
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

    def _in_graph(self, saved: Tensor | Remade, _: int, is_argument: bool) -> Tensor:
        """What was saved, at the place in the graph of the argument or the result that it is."""
        if type(saved) is Remade:
            return _placed(saved.made(), (saved.function, 0))
        assert isinstance(saved, Tensor)
        place = (id(saved.storage), saved.offset, saved.strides)
        if is_argument:
            for edge in self._edges:
                if edge is None:
                    continue
                target, index = edge
                if not isinstance(target, Function):
                    if target.shape == saved.shape and (id(target.storage), target.offset, target.strides) == place:
                        leaf: Tensor = target
                        return leaf
                elif target._outputs[index][0] == saved.shape and target._outputs[index][3:] == place:
                    return _placed(saved, edge)
            raise GraphError(
                f"[{self.title}.backward] expected save() to keep arguments or results alone, got another tensor of "
                f"shape {saved.shape} that requires grad: give it to forward as an argument, or create no graph"
            )
        for index, output in enumerate(self._outputs):
            if output[0] == saved.shape and output[3:] == place and has_gradients(output[2]):
                return _placed(saved, (self, index))
        return saved

    def argument_in_graph(self, argument: int, value: Tensor) -> Tensor:
        """An argument's value, given as a tensor outside the graph, at the argument's place in the graph."""
        edge = self._edges[argument]
        if edge is None or not isinstance(edge[0], Function):
            leaf: Tensor = value if edge is None else edge[0]
            return leaf
        return _placed(value, edge)

    def backward_in_graph(self, *grads: Any) -> Any:
        """``backward`` while the gradients enter a graph, so that they have gradients themselves."""
        return self.backward(*grads)

    def may_overwrite(self, place: int) -> bool:
        """Whether backward may write over the tensor that it saved at a place: it is the last who has its memory.

        Who does calls ``touch`` of its storage first: after an error on the way backward cannot run again.
        """
        walk = THREAD.walk
        if walk is None or walk.retain_graph or walk.create_graph or self._saved is None:
            return False
        entry = self._saved[place]
        return entry is not None and isinstance(entry[0], Tensor) and is_alone(entry[0])

    def may_overwrite_gradient(self) -> bool:
        """Whether backward may write over the gradient that it was given, of a function with one result."""
        walk = THREAD.walk
        return walk is not None and walk.given and not walk.create_graph

    def drop_saved(self) -> None:
        """Drops what was saved, within backward, as soon as that has read it: what it makes next may lie there."""
        walk = THREAD.walk
        if walk is not None and not walk.retain_graph:
            self._saved = None

    def accumulator(self, argument: int) -> Tensor | None:
        """The gradient that has already arrived for an argument, if it may be added into.

        A backward that adds its own contribution into it returns that same tensor, and saves a pass over memory.
        """
        edge, walk = self._edges[argument], THREAD.walk
        if edge is None or walk is None or walk.create_graph or not isinstance(edge[0], Function):
            return None
        return walk.accumulator(*edge)

    def completed(self, argument: int) -> Function | None:
        """The function that an argument came from, if its gradient is complete with what this backward returns for it.

        None, too, where somebody looks at that gradient on its way, or it enters a graph. Who gives that function
        another one, with ``hand_over``, then knows that nobody else sees it.
        """
        edge, walk = self._edges[argument], THREAD.walk
        if edge is None or walk is None or walk.create_graph or not isinstance(edge[0], Function):
            return None
        return edge[0] if walk.is_last(self, edge) else None

    def normalised_result(self) -> Any:
        """``Normalised`` and the residual of a BatchNorm whose gradient a convolution may take a part of; else None."""
        return None

    def hand_over(self, function: Function, found: object) -> None:
        """Leaves for a function, before its backward in this walk, what it takes with ``handed_over``."""
        walk = THREAD.walk
        if walk is not None:
            walk.handed_over[function] = found

    def handed_over(self) -> Any:
        """What a function that ran before in this walk left for this one; None if nothing."""
        walk = THREAD.walk
        return None if walk is None else walk.handed_over.pop(self, None)

    def _announce(self, place: int, tensor: Tensor) -> None:
        """Tells the function that made a tensor that this one saves it, and perhaps keeps what stands for it."""
        waiting = tensor.storage.waiting
        function = waiting() if waiting is not None else None
        if function is None or function._offered is None:
            tensor.storage.waiting = None
            if function is not None:
                function._take(tensor.storage)
            return
        stand_in = function._stands_for(tensor)
        if stand_in is not None and self._saved is not None:
            saved = list(self._saved)
            saved[place] = stand_in, stand_in.version, True
            self._saved, self._takes_remade = tuple(saved), True

    def _stands_for(self, tensor: Tensor) -> Remade | None:
        """What stands for the result that was offered; None where the tensor is another one."""
        if (
            tensor.storage.exported
            or tensor._node is not self
            or (tensor.storage.version, _layout(tensor)) != self._offered
        ):
            return None
        found = self._remade() if self._remade is not None else None
        if found is None:
            found = Remade(self, tensor)
            self._remade = weakref.ref(found)
        return found

    def note_written(self) -> None:
        """Notes that a result was written to: functions that saved it may not go on."""
        found = self._remade() if self._remade is not None else None
        if found is not None:
            found.version = -1

    def free(self) -> None:
        """Drops what was saved, and its place in the graph. What others need of its result is made before."""
        if self._remade is not None:
            found = self._remade()
            if found is not None and found.version >= 0:
                found.made()
        self._saved, self._edges, self._retained = None, (), None

    def _take(self, storage: Storage) -> None:
        """Makes the exchange, unless the result was overwritten meanwhile."""
        if self._saved is None or self._exchange is None:
            return
        place, other, version, layout = self._exchange
        if storage.version == version:
            saved = list(self._saved)
            saved[place], saved[other] = None, (Tensor(storage, *layout), version, False)
            self._saved = tuple(saved)


Output = tuple[tuple[int, ...], Any, Any, int, int, tuple[int, ...]]
"""What a function's result was: its shape, engine and dtype; its storage's id, its offset and strides."""

Edge = tuple[Any, int] | None
"""Where a gradient goes: (Function, index of its output) or (leaf Tensor, 0); None if it is not asked for."""

SECOND_BACKWARD = (
    "[backward] expected a graph that still holds its saved tensors, got one freed by an earlier backward: call the "
    "first with retain_graph=True, or compute the loss again"
)


def newest() -> int:
    """A number that functions recorded from now on exceed."""
    return next(_sequence)


def note_of(x: Tensor) -> Output:
    """What the graph notes of a function's result."""
    storage = x.storage
    return x.shape, storage.engine, x.dtype, id(storage), x.offset, x.strides


def _placed(x: Tensor, edge: tuple[Any, int]) -> Tensor:
    """A tensor's values as an output of a function in the graph."""
    alias = x.detach()
    alias._enter(*edge)
    return alias


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
    if not (call.enabled if call.scopes is None else innermost(call)):
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


def _layout(x: Tensor) -> tuple[Any, ...]:
    """How a tensor lies in its storage."""
    return x.offset, x.shape, x.strides, x.dtype


def _another(tensor: Tensor) -> Tensor:
    """A new tensor over the same memory, outside the graph."""
    view = tensor.detach()
    regions.set_base(view, tensor)
    return view


def _check_result(function: type[Function], result: Any) -> None:
    """Raises ArgumentError unless ``forward`` returned tensors, or symbols where ``alpha.pointwise`` called it."""
    for out in result if isinstance(result, tuple) else (result,):
        if not isinstance(out, Tensor | Symbol):
            raise ArgumentError(
                f"[{function.__name__}.forward] expected a tensor or a tuple of tensors as its result, got "
                f"{type(out).__name__}: return tensors"
            )


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


class Region(Function):
    """A view of the base, given by its place in memory."""

    fresh = True

    def forward(self, base: Tensor, view: Tensor) -> Tensor:
        self.base, self.region = regions.layout_of(base), regions.layout_of(view)
        return view.detach()

    def backward(self, grad: Tensor) -> Tensor:
        zero = grad.engine.empty((), grad.dtype)
        grad.engine.fill(zero, 0)
        whole = regions.laid_out(zero, self.base)
        grad.engine.copy(grad, regions.region_at(whole, self.base, self.region))
        return whole

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        zeros = grad.engine.full(self.base[1], 0, grad.dtype)
        from alpha.autograd.views import Joined

        joined: Tensor = Joined.apply(zeros, grad, self.base, self.region)
        return joined
