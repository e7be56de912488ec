"""Views and regions of memory: what a tensor is a view of, and a part of a tensor by its place."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def layout_of(x: Tensor) -> Layout:
    return x.offset, x.shape, x.strides


def laid_out(grad: Tensor, layout: Layout) -> Tensor:
    """A copy of a gradient with the strides of its tensor."""
    _, shape, strides = layout
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if math.prod(shape) else 0
    storage = grad.engine.allocate(span * grad.dtype.itemsize)
    out = Tensor(storage, 0, shape, strides, grad.dtype)
    grad.engine.copy(grad, out)
    return out


def region_at(whole: Tensor, base: Layout, region: Layout) -> Tensor:
    return whole.strided(region[0] - base[0], region[1], region[2])
