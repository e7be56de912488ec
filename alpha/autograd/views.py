"""Views in the graph: they take their places from each other's memory once it was written to in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpha.autograd.function import Function
from alpha.autograd.modes import is_grad_enabled
from alpha.tensor import Tensor

Layout = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Where a tensor lies in its storage: offset, shape and strides."""


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

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        parts: tuple[Tensor, Tensor] = Cut.apply(grad, self.base, self.region)
        return parts


class Cut(Function):
    """A gradient with a region set to 0, and what stood in the region."""

    fresh = True

    def forward(self, grad: Tensor, base: Layout, region: Layout) -> tuple[Tensor, Tensor]:
        self.base, self.region = base, region
        whole = _laid_out(grad, base)
        part = _at(whole, base, region)
        written = part.clone()
        grad.engine.fill(part, 0)
        return whole, written

    def backward(self, whole: Tensor | None, part: Tensor | None) -> Tensor:
        some = next(grad for grad in (whole, part) if grad is not None)
        whole, part = [
            some.engine.full(layout[1], 0, some.dtype) if grad is None else grad
            for grad, layout in ((whole, self.base), (part, self.region))
        ]
        joined: Tensor = Joined.apply(whole, part, self.base, self.region)
        return joined


class Joined(Function):
    """A tensor whose region is another's."""

    fresh = True

    def forward(self, whole: Tensor, part: Tensor, base: Layout, region: Layout) -> Tensor:
        self.base, self.region = base, region
        result = _laid_out(whole, base)
        whole.engine.copy(part, _at(result, base, region))
        return result

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        parts: tuple[Tensor, Tensor] = Cut.apply(grad, self.base, self.region)
        return parts


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

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        zeros = grad.engine.full(self.base[1], 0, grad.dtype)
        joined: Tensor = Joined.apply(zeros, grad, self.base, self.region)
        return joined


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
