"""Tensors beside each other, repeated, turned round and rolled: copies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from alpha.arguments import Shape, all_axes, one_axis, shape_of, whole
from alpha.autograd import Function
from alpha.autograd.composing import returned
from alpha.composed import arrays
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.elementwise import cast
from alpha.functions.operands import call, check_room, check_tensor, common_dtype
from alpha.functions.shape import reshape, squeeze, transpose
from alpha.functions.splitting import cut_along, split
from alpha.launches import CONCAT, FLIP, STACK, Launches
from alpha.tensor import Tensor, dense_strides

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "cat",
    "column_stack",
    "concat",
    "concatenate",
    "dstack",
    "flip",
    "fliplr",
    "flipud",
    "hstack",
    "repeat",
    "roll",
    "rot90",
    "row_stack",
    "stack",
    "tile",
    "vstack",
]

MOST_ADDED = 8
"""Most repeats whose gradients are added one to another: a sum over the axes of more repeats takes less."""


class Concat(Function):
    """Tensors one after another along an axis."""

    passes_on = True

    def forward(self, *tensors: Tensor, axis: int) -> Tensor:
        self.sizes, self.axis = tuple([x.shape[axis] for x in tensors]), axis
        return tensors[0].storage.engine.concat(tensors, axis)

    def backward(self, grad: Tensor) -> tuple[Tensor, ...]:
        return cut_along(grad, self.sizes, self.axis)

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor, ...]:
        return split(grad, self.sizes, self.axis)


class Stack(Function):
    """Tensors of one shape side by side along a new axis."""

    passes_on = True

    def forward(self, *tensors: Tensor, axis: int) -> Tensor:
        self.axis = axis
        return tensors[0].storage.engine.stack(tensors, axis)

    def backward(self, grad: Tensor) -> tuple[Tensor, ...]:
        axis, shape, strides = self.axis, grad.shape, grad.strides
        shape, strides, step = shape[:axis] + shape[axis + 1 :], strides[:axis] + strides[axis + 1 :], strides[axis]
        return tuple(
            [Tensor(grad.storage, grad.offset + i * step, shape, strides, grad.dtype) for i in range(grad.shape[axis])]
        )

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple([squeeze(piece, self.axis) for piece in split(grad, 1, self.axis)])


class Flip(Function):
    """The elements in reverse order along axes."""

    fresh = True

    def forward(self, x: Tensor, axes: Shape) -> Tensor:
        self.axes = axes
        return x.storage.engine.flip(x, axes)

    def backward(self, grad: Tensor) -> Tensor:
        return grad.storage.engine.flip(grad, self.axes)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return flip(grad, self.axes)


class Tile(Function):
    """The tensor, under a shape with as many axes as counts, repeated so many times along each axis."""

    fresh = True

    def forward(self, x: Tensor, counts: Shape, shape: Shape) -> Tensor:
        self.counts, self.shape, self.given = counts, shape, x.shape
        engine, strides = x.storage.engine, (0,) * (len(shape) - x.ndim) + x.strides
        out = engine.empty([count * n for count, n in zip(counts, shape, strict=True)], x.dtype)
        wide = Tensor(x.storage, x.offset, self._paired(), tuple([s for n in strides for s in (0, n)]), x.dtype)
        if out.numel():
            engine.copy(wide, self._split(out))
        return out

    def backward(self, grad: Tensor) -> Tensor:
        engine = grad.storage.engine
        if not grad.numel():
            return arrays.filled(engine, self.given, 0, grad.dtype)
        axes = tuple([2 * axis for axis, count in enumerate(self.counts) if count > 1])
        if math.prod(self.counts) <= MOST_ADDED:
            once = self._added(grad)
        else:
            once = engine.reduce("sum", self._split(grad), axes, False)
        dense = engine.dense(once, range(once.ndim))
        return dense.strided(dense.offset, self.given, dense_strides(self.given))

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return returned(self, grad, lambda g: call(Tile, g, self.counts, self.shape))

    def _added(self, grad: Tensor) -> Tensor:
        """The sum of the gradients of a few repeats, neighbours first."""
        engine, places = grad.storage.engine, [grad.offset]
        for count, n, stride in zip(self.counts, self.shape, grad.strides, strict=True):
            places = [place + k * n * stride for place in places for k in range(count)]
        parts = [Tensor(grad.storage, place, self.shape, grad.strides, grad.dtype) for place in places]
        if len(parts) == 1:
            return engine.copied(parts[0])
        while len(parts) > 1:
            pairs = [engine.elementwise("add", *parts[k : k + 2]) for k in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[2 * len(pairs) :]
        return parts[0]

    def _paired(self) -> Shape:
        """The result's shape, with each axis as two: repeats, and the tensor's own."""
        return tuple([length for pair in zip(self.counts, self.shape, strict=True) for length in pair])

    def _split(self, y: Tensor) -> Tensor:
        """A view of a tensor of the result's shape with each axis as two."""
        strides = tuple([s for n, stride in zip(self.shape, y.strides, strict=True) for s in (n * stride, stride)])
        return Tensor(y.storage, y.offset, self._paired(), strides, y.dtype)


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after another along an axis; their other lengths are equal, dtypes are promoted."""
    if type(tensors) is list or type(tensors) is tuple:
        result: Tensor | None = CONCAT.launch_outside(tuple(tensors), dim, None)
        if result is not None:
            return result
    found = several("concat", tensors)
    if any(x.ndim != 1 for x in found):  # an empty vector counts as no tensor, as in PyTorch
        found = [x for x in found if x.shape != (0,)]
    axis = one_axis("concat", dim, found[0].ndim)
    shape = found[0].shape
    for x in found:
        if x.shape != shape and (x.ndim != len(shape) or not _differ_only(x.shape, shape, axis)):
            shapes = ", ".join(str(t.shape) for t in found)
            raise ShapeError(f"[concat] expected shapes that differ only along axis {axis}, got {shapes}")
    return _joined(CONCAT, call(Concat, *found, axis=axis), (found, dim, None), (found, axis, None))


cat = concat


def concatenate(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """``concat``, whose axis has NumPy's name, too."""
    return concat(tensors, dim if axis is None else axis)


def _joined(known: Launches, result: Tensor, given: tuple[Any, ...], followed: tuple[Any, ...]) -> Tensor:
    """The result, whose launches get to know the axis as it was given."""
    if given[1] != followed[1] and not result.requires_grad:
        result.storage.engine.alias(known, followed, known, given)
    return result


def _differ_only(shape: Shape, other: Shape, axis: int) -> bool:
    """Whether shapes with equally many axes have the same lengths along all of them but one."""
    return shape[:axis] == other[:axis] and shape[axis + 1 :] == other[axis + 1 :]


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis."""
    if type(tensors) is list or type(tensors) is tuple:
        result: Tensor | None = STACK.launch_outside(tuple(tensors), dim)
        if result is not None:
            return result
    found = several("stack", tensors)
    for x in found:
        if x.shape != found[0].shape:
            shapes = ", ".join(str(t.shape) for t in found)
            raise ShapeError(f"[stack] expected tensors of one shape, got {shapes}")
    axis = one_axis("stack", dim, found[0].ndim + 1)
    return _joined(STACK, call(Stack, *found, axis=axis), (found, dim), (found, axis))


def several(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """At least one tensor, all on one engine, in one dtype."""
    found: list[Tensor] = []
    if isinstance(tensors, (tuple, list)):
        check_tensor(name, *tensors)
        found += tensors
    elif isinstance(tensors, str | bytes | range | np.ndarray | Tensor) or not isinstance(tensors, Iterable):
        raise ArgumentError(f"[{name}] expected a list of tensors, got {described(tensors)}")
    else:
        for x in tensors:  # one by one: what comes may have no end
            check_tensor(name, x)
            found.append(x)
    if not found:
        raise ArgumentError(f"[{name}] expected at least one tensor, got none")
    found[0].engine.check_owner(name, *found)
    dtype = found[0].dtype
    if all(x.dtype is dtype for x in found):
        return found
    dtype = common_dtype(found)
    return [cast(x, dtype) for x in found]


def flip(input: Tensor, dims: int | Sequence[int]) -> Tensor:
    """The elements in reverse order along axes; a copy."""
    given = tuple(dims) if type(dims) is list else dims
    found: Tensor | None = FLIP.launch_outside(input, given)
    if found is not None:
        return found
    check_tensor("flip", input)
    axes = all_axes("flip", tuple(dims) if isinstance(dims, (tuple, list)) else (dims,), input.ndim)
    out = call(Flip, input, axes)
    if not out.requires_grad:
        input.engine.alias(FLIP, (input, axes), FLIP, (input, given))
    return out


def tile(input: Tensor, dims: int | Sequence[int]) -> Tensor:
    """The tensor repeated so many times along each axis; missing leading axes or counts are 1."""
    check_tensor("tile", input)
    counts = shape_of("tile", (tuple(dims) if isinstance(dims, (tuple, list)) else (dims,),))
    ndim = max(len(counts), input.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - input.ndim) + input.shape
    wanted = shape_of("tile", (tuple(count * n for count, n in zip(counts, shape, strict=True)),))
    check_room(input.engine, wanted, input.dtype)
    return call(Tile, input, counts, shape)


repeat = tile


# -- beside each other along an axis of their own ----------------------------------------------------------------


def _at_least(name: str, tensors: tuple[Any, ...], axes: int) -> Any:
    """``atleast_1d`` and its like of one tensor, of several, or of a list of them."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return _with_axes(tensors[0], axes)
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    check_tensor(name, *given)
    return tuple([_with_axes(x, axes) for x in given])


def _with_axes(x: Tensor, axes: int) -> Tensor:
    """At least so many axes: a vector is a row, a matrix one of a last axis of length 1."""
    if x.ndim >= axes:
        return x
    shape = {0: (1,) * axes, 1: (1, *x.shape, 1)[:axes], 2: (*x.shape, 1)}[x.ndim]
    return reshape(x, shape)


def atleast_1d(*tensors: Any) -> Any:
    """A tensor, or each of several, with at least one axis."""
    return _at_least("atleast_1d", tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """A tensor, or each of several, with at least two axes; a vector becomes a row."""
    return _at_least("atleast_2d", tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """A tensor, or each of several, with at least three axes; (N,) becomes (1, N, 1) and (M, N) becomes (M, N, 1)."""
    return _at_least("atleast_3d", tensors, 3)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors beside each other: along the second axis, vectors along their only one."""
    found = [_with_axes(x, 1) for x in several("hstack", tensors)]
    return concat(found, 0 if found[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors below each other: along the first axis, vectors as rows."""
    return concat([_with_axes(x, 2) for x in several("vstack", tensors)], 0)


row_stack = vstack


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors behind each other: along the third axis, (N,) as (1, N, 1) and (M, N) as (M, N, 1)."""
    return concat([_with_axes(x, 3) for x in several("dstack", tensors)], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors beside each other, vectors as columns."""
    found = several("column_stack", tensors)
    return concat([reshape(x, (x.numel(), 1)) if x.ndim < 2 else x for x in found], 1)


# -- turned round ------------------------------------------------------------------------------------------------


def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order; input has at least two axes."""
    check_tensor("fliplr", input)
    return flip(input, (one_axis("fliplr", 1, input.ndim),))


def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order; input has at least one axis."""
    check_tensor("flipud", input)
    return flip(input, (one_axis("flipud", 0, input.ndim),))


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by 90 degrees, ``k`` times, from the first of two axes to the second."""
    check_tensor("rot90", input)
    turns = whole("rot90", "k", k) % 4
    if not isinstance(dims, (tuple, list)) or len(all_axes("rot90", tuple(dims), input.ndim)) != 2:
        raise ShapeError(f"[rot90] expected two different axes, got {described(dims)}")
    first, second = dims
    if turns == 2:
        return flip(input, (first, second))
    if not turns:
        return input.clone()
    return flip(transpose(input, first, second), (first if turns == 1 else second,))


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """The elements moved on along axes, those that leave at the end coming back at the beginning.

    Without axes they move in the flattened tensor.
    """
    check_tensor("roll", input)
    by = tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        if len(by) != 1:
            raise ShapeError(f"[roll] expected one shift without dims, got {described(shifts)}: name the axes")
        return reshape(roll(reshape(input, (input.numel(),)), by, 0), input.shape)
    axes = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    if len(by) != len(axes):
        raise ShapeError(f"[roll] expected a shift for each of {len(axes)} axes, got {described(shifts)}")
    out = input
    for shift, dim in zip(by, axes, strict=True):
        length = input.shape[one_axis("roll", dim, input.ndim)]
        start = -whole("roll", "shifts", shift) % length if length else 0
        if start:
            out = concat(split(out, [start, length - start], dim)[::-1], dim)
    return out.clone() if out is input else out
