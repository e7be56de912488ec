"""The standard's functions of arrays' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.arguments import all_axes, flag, one_axis
from alpha.array_api.promotion import Axis, flattened, promoted
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions import indexing, joining, lookups, selection, views
from alpha.functions import shape as shapes
from alpha.functions.casting import clone
from alpha.functions.operands import check_tensor, listed
from alpha.tensor import Tensor

__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
    "repeat", "reshape", "roll", "squeeze", "stack", "take", "take_along_axis", "tile", "unstack",
]  # fmt: skip


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Arrays repeated to the shape that they broadcast to."""
    return views.broadcast_tensors(list(arrays))


broadcast_shapes = views.broadcast_shapes


def broadcast_to(x: Tensor, /, shape: Any) -> Tensor:
    """The array repeated to a shape that it broadcasts to."""
    return shapes.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after another along an axis, or for None flattened first."""
    given = promoted(listed("concat", "arrays", arrays))
    if axis is None:
        return joining.concat([flattened(x) for x in given], 0)
    return joining.concat(given, axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """New axes of length 1 at places of the result."""
    check_tensor("expand_dims", x)
    added = len(axis) if isinstance(axis, tuple) else 1
    places = all_axes("expand_dims", axis, x.ndim + added) if added else ()
    lengths = iter(x.shape)
    return shapes.reshape(x, tuple([1 if a in places else next(lengths) for a in range(x.ndim + added)]))


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    """The elements in reverse order along axes, or along all."""
    check_tensor("flip", x)
    return joining.flip(x, all_axes("flip", axis, x.ndim))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places; the others keep their order."""
    return views.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return shapes.permute(x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each entry along an axis, or each element, so many times in a row; an int, or one for each of them."""
    return selection.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """Another shape for the same elements in row-major order.

    ``copy=False`` is an error where the elements have to be copied, True copies in any case.
    """
    check_tensor("reshape", x)
    if copy is None:
        return shapes.reshape(x, shape)
    if flag("reshape", "copy", copy):
        return shapes.reshape(clone(x), shape)
    return shapes.view(x, tuple(shape) if isinstance(shape, tuple | list) else (shape,))


def roll(x: Tensor, /, shift: Any, *, axis: Axis = None) -> Tensor:
    """The elements moved on along axes, or in the flattened array, those that leave coming back at the beginning."""
    check_tensor("roll", x)
    if isinstance(axis, tuple) and not isinstance(shift, tuple | list):
        shift = (shift,) * len(axis)
    elif isinstance(axis, int) and isinstance(shift, tuple | list):
        axis = (axis,) * len(shift)
    if axis == ():
        return clone(x)
    return joining.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """The array without axes of length 1; ShapeError where one has another length."""
    check_tensor("squeeze", x)
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([one_axis("squeeze", a, x.ndim) for a in given])
    if len(set(axes)) != len(axes) or any(x.shape[a] != 1 for a in axes):
        raise ShapeError(f"[squeeze] expected different axes of length 1, got {described(axis)} of shape {x.shape}")
    return shapes.squeeze(x, axes) if axes else x


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape side by side along a new axis."""
    return joining.stack(promoted(listed("stack", "arrays", arrays)), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The entries along an axis that a vector of indices names; without an axis x is a vector."""
    check_tensor("take", x, indices)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"[take] expected an axis for an array of {x.ndim} axes, got None")
    place = one_axis("take", 0 if axis is None else axis, x.ndim)
    found: Tensor = indexing.getitem(x, (*(slice(None),) * place, indices))
    return found


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at indices along an axis, of each line those in the same place; other axes broadcast."""
    return lookups.take_along_dim(x, indices, axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array repeated so many times along each axis; missing leading counts or axes are 1."""
    return joining.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """All entries along an axis, without it."""
    return views.unbind(x, axis)
