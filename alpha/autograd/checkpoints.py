"""Checkpoints: what a function saves for backward is dropped, and computed again when backward comes to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from alpha import casts, random
from alpha.arguments import flag
from alpha.autograd.composing import Alias
from alpha.autograd.function import Edge, Function, newest, note_of
from alpha.autograd.modes import enable_grad, is_grad_enabled
from alpha.autograd.walk import Walk, walk_from
from alpha.errors import ArgumentError, GraphError
from alpha.tensor import Tensor


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    keep_result: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls a function of whose intermediate tensors none is kept: backward calls it again.

    Memory falls to the arguments and what one such function saves; each costs a second forward. Gradients are those of
    a plain call, also of parameters that the function reads, and have gradients themselves.

    Args:
        function: of tensors and other arguments; returns a tensor or a tuple of tensors. What it changes (running
            statistics) it changes twice.
        use_reentrant: accepted for PyTorch's sake: there is one implementation.
        preserve_rng_state: draw the same random numbers again (dropout).
        keep_result: keep the result, too, for functions that save it. Otherwise it is computed again with the rest, as
            soon as backward asks for it: for a function whose result takes more memory than it is worth, such as the
            convolution before a normalisation. Behind it should be one that keeps its own result, or backward computes
            all again that leads here.

    Source: Chen et al., arXiv 1604.06174.
    """
    preserve_rng_state = flag("checkpoint", "preserve_rng_state", preserve_rng_state)
    keep_result = flag("checkpoint", "keep_result", keep_result)
    if not callable(function):
        raise ArgumentError(f"[checkpoint] expected a function first, got {type(function).__name__}")
    if not is_grad_enabled():
        return function(*args, **kwargs)
    node = Recomputed()
    node.state = random.get_state() if preserve_rng_state else None
    node.function, node.options, node.casts = function, kwargs, casts.THREAD.casts
    return node.first(args, keep_result)


class _Call(NamedTuple):
    """A call of a function in a graph of its own.

    Attributes:
        inner: the tensors among its arguments.
        results: a tuple of tensors.
        since: what was recorded later belongs to the call.
    """

    inner: list[Tensor]
    results: tuple[Tensor, ...]
    since: int


class Recomputed(Function):
    """A function whose intermediate tensors are computed again in backward."""

    state: Any
    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # but for the tensors, in whose places stands None
    options: dict[str, Any]
    casts: casts.Casts  # what autocast said in the first call
    places: tuple[int, ...]  # of the tensors among the arguments
    outside: tuple[Edge, ...]  # where else gradients go: what the function reads beside its arguments
    _second: _Call | None = None  # the second call, where the result was asked for before backward comes here

    def first(self, args: tuple[Any, ...], keep_result: bool) -> Any:
        """The function's result, entered into the graph as this function's."""
        self.places = tuple([place for place, x in enumerate(args) if isinstance(x, Tensor)])
        self.arguments = tuple([None if isinstance(x, Tensor) else x for x in args])
        tensors = [args[place] for place in self.places]
        since, inner = newest(), [x.detach().requires_grad_(x.requires_grad) for x in tensors]
        with enable_grad():
            output = self._called(inner)
        several = isinstance(output, tuple)
        results = output if several else (output,)
        if not all(isinstance(result, Tensor) for result in results):
            raise ArgumentError(
                "[checkpoint] expected a function that returns a tensor or a tuple of tensors, got others"
            )
        if not any(result.requires_grad for result in results):
            return output
        self.outside = tuple(_outside(results, since, inner))
        self.needs = (*[x.requires_grad for x in tensors], *[True] * len(self.outside))
        self._saved = tuple([(x.detach(), x.version, x.requires_grad) for x in tensors])
        for place, x in enumerate(tensors):
            if x.storage.waiting is not None:
                self._announce(place, x)
        found = []
        for index, result in enumerate(results):
            entered = result.detach()
            if result.requires_grad:
                entered._enter(self, index)
            found.append(entered)
        edges: list[Edge] = [(x._node or x, x._output) if x.requires_grad else None for x in tensors]
        self._enter([*edges, *self.outside], tuple(map(note_of, found)))
        if not keep_result and not several:
            self.offer(found[0])
        return tuple(found) if several else found[0]

    def _called(self, tensors: list[Tensor]) -> Any:
        arguments = list(self.arguments)
        for place, x in zip(self.places, tensors, strict=True):
            arguments[place] = x
        return self.function(*arguments, **self.options)

    @property
    def title(self) -> str:
        return "checkpoint"

    def remake(self) -> Tensor:
        if self._second is None:
            self._second = self._called_again(self._inner())
        return self._second.results[0].detach()

    def free(self) -> None:
        super().free()
        self._second = None

    def backward(self, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, self._second = self._second or self._called_again(self._inner()), None
        return self._gradients(call, grads, False)

    def backward_in_graph(self, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        inner = [Alias.apply(x) if x.requires_grad else x for x in self.saved]
        return self._gradients(self._called_again(inner), grads, True)

    def _inner(self) -> list[Tensor]:
        """The tensors among the arguments as leaves of a graph of their own."""
        return [x.detach().requires_grad_(needed) for x, needed in zip(self.kept(), self.needs, strict=False)]

    def _called_again(self, inner: list[Tensor]) -> _Call:
        """The second call of the function."""
        since = newest()
        before = casts.enter(self, self.casts._replace(keeps=False))
        try:
            with nullcontext() if self.state is None else random.drawing_again(self.state), enable_grad():
                output = self._called(inner)
        finally:
            casts.leave(self, before)
        results = output if isinstance(output, tuple) else (output,)
        if [x.shape for x in results] != [shape for shape, *_ in self._outputs]:
            raise GraphError(
                "[checkpoint] expected a function that computes the same again, got results of other shapes"
            )
        return _Call(inner, results, since)

    def _gradients(self, call: _Call, grads: Any, create_graph: bool) -> tuple[Tensor | None, ...]:
        """The gradients of the arguments, and of what else the function read."""
        inner, results, since = call
        edges = [(x._node or x, x._output) if x.requires_grad else None for x in inner]
        wanted = [edge for edge in (*edges, *self.outside) if edge is not None]
        walk = Walk(create_graph, create_graph)
        walk.settles = False
        roots = [(x, grad) for x, grad in zip(results, grads, strict=True) if grad is not None and x.requires_grad]
        walk.aim(wanted, [x for x, _ in roots], since)
        walk_from(roots, walk)
        return tuple([None if edge is None else walk.found(edge) for edge in (*edges, *self.outside)])


def _outside(results: tuple[Tensor, ...], since: int, inner: list[Tensor]) -> list[Edge]:
    """Where gradients leave what was recorded since a moment, other than to the given leaves."""
    leaves = {id(x) for x in inner}
    found: dict[tuple[Any, int], None] = {}
    seen: set[Function] = set()
    waiting: list[Edge] = [(x._node or x, x._output) for x in results if x.requires_grad]
    while waiting:
        edge = waiting.pop()
        if edge is None:
            continue
        target = edge[0]
        if not isinstance(target, Function) or target._sequence <= since:
            if id(target) not in leaves:
                found[edge] = None
        elif target not in seen:
            seen.add(target)
            waiting += target._edges
    return list(found)
