"""Shapes: views of the same memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, all_axes, one_axis, shape_of
from alpha.autograd import Function, enters_graph, view_of
from alpha.errors import ShapeError, described
from alpha.functions.operands import broadcast_strides, broadcast_view, call, check_tensor, sum_to
from alpha.layout import is_channels_first
from alpha.mirrors import mirror
from alpha.tensor import Tensor, dense_strides

__all__ = [
    "broadcast_to",
    "expand",
    "flatten",
    "permute",
    "reshape",
    "squeeze",
    "sum_to_size",
    "transpose",
    "unsqueeze",
]

# -- views -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def view_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides of another shape over the same elements in row-major order, or None where there are none.

    Neighbouring axes without a gap between them count as one run, and each wanted axis must fit into one.
    """
    if 0 in shape:
        return dense_strides(wanted)
    runs: list[tuple[int, int]] = []  # (elements, stride), from the outermost
    for n, stride in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * stride:
            runs[-1] = (runs[-1][0] * n, stride)
        else:
            runs.append((n, stride))
    result: list[int] = []
    left, step = 1, 1
    for n in reversed(wanted):
        if n > 1 and left == 1:
            left, step = runs.pop()
        if left % n:
            return None
        result.append(step)
        left, step = left // n, step * n
    return tuple(reversed(result))


class Reshape(Function):
    """The elements in row-major order under another shape: a view where the strides allow it, else a copy."""

    passes_on = True
    views = True

    def forward(self, x: Tensor, shape: Shape) -> Tensor:
        self.shape = x.shape
        return _reshaped(x, shape)

    def backward(self, grad: Tensor) -> Tensor:
        return _reshaped(grad, self.shape)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return reshape(grad, self.shape)


def _reshaped(x: Tensor, shape: Shape) -> Tensor:
    strides = view_strides(x.shape, x.strides, shape)
    if strides is not None:
        return Tensor(x.storage, x.offset, shape, strides, x.dtype)
    dense = x.engine.empty(x.shape, x.dtype)
    x.engine.copy(x, dense)
    return dense.strided(0, shape, dense_strides(shape))


class Permute(Function):
    """The axes in another order."""

    passes_on = True
    views = True

    def forward(self, x: Tensor, axes: Shape) -> Tensor:
        self.axes = axes
        return Tensor(x.storage, x.offset, *_permuted(x.shape, x.strides, axes), x.dtype)

    def backward(self, grad: Tensor) -> Tensor:
        axes = _inverse(self.axes)
        return Tensor(grad.storage, grad.offset, *_permuted(grad.shape, grad.strides, axes), grad.dtype)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return permute(grad, _inverse(self.axes))


@lru_cache(maxsize=8192)
def _permuted(shape: Shape, strides: Shape, axes: Shape) -> tuple[Shape, Shape]:
    return tuple([shape[a] for a in axes]), tuple([strides[a] for a in axes])


@lru_cache(maxsize=8192)
def _inverse(axes: Shape) -> Shape:
    """The order of axes that undoes another."""
    return tuple([axes.index(axis) for axis in range(len(axes))])


class Expand(Function):
    """Repeated along axes of length 1 and new leading ones, without a copy."""

    views = True

    def forward(self, x: Tensor, shape: Shape) -> Tensor:
        self.shape = x.shape
        return broadcast_view(x, shape)

    def backward(self, grad: Tensor) -> Tensor:
        return sum_to(grad, self.shape)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        from alpha.expressions.functions import summed_to  # here: what it imports imports this module

        return summed_to(grad, self.shape)


def _in_graph(x: Tensor) -> bool:
    """Whether a view of a tensor enters the graph."""
    return (x.requires_grad or x._base is not None) and enters_graph(x)


def reshape(input: Tensor, shape: Any) -> Tensor:
    """Another shape for the same elements in row-major order; one length may be -1. A view where strides allow it."""
    check_tensor("reshape", input)
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    wanted = (_with_unknown if _are_ints(given) else _with_unknown.__wrapped__)("reshape", input.shape, given)
    return input if wanted == input.shape else _seen_as(input, wanted)


def view(x: Tensor, shape: Any) -> Tensor:
    """The same memory under another shape, one length of which may be -1; or, given a dtype, its bits read as that.

    ShapeError where no strides give the elements in row-major order: ``reshape`` then copies them. So does ``view`` of
    images and filters, which lie in memory in an order of their own: writes to one of both are then repeated in the
    other. What is read as another dtype is outside the graph; its last axis is as much longer or shorter as its numbers
    are smaller or larger.
    """
    check_tensor("view", x)
    if not isinstance(shape, tuple | list | int | np.integer):
        return _reinterpreted(x, dtypes.as_dtype(shape, "view"))
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    wanted = (_with_unknown if _are_ints(given) else _with_unknown.__wrapped__)("view", x.shape, given)
    strides = view_strides(x.shape, x.strides, wanted)
    if strides is None and _lies_as_images(x):
        out = call(Reshape, x, wanted) if _in_graph(x) else _reshaped(x, wanted)
        mirror(x, out)
        return out
    if strides is None:
        raise ShapeError(
            f"[view] expected a shape that fits the strides, got {wanted} for shape {x.shape} with strides "
            f"{x.strides}: use .reshape, which copies"
        )
    return call(Reshape, x, wanted) if _in_graph(x) else view_of(x, x.offset, wanted, strides)


def _lies_as_images(x: Tensor) -> bool:
    """Whether x may be images, or filters with PyTorch's layout, in the order of memory that engines give these.

    Channels are innermost; images with channels last have the batch around them. Every element has its own memory, or a
    write to the copy could not be repeated.
    """
    inner = sorted((stride, axis) for axis, (n, stride) in enumerate(zip(x.shape, x.strides, strict=True)) if n > 1)
    extents = [stride * x.shape[axis] for stride, axis in inner]
    if any(stride < extent for (stride, _), extent in zip(inner, [1, *extents], strict=False)):
        return False
    if is_channels_first("view", None):
        return x.ndim > 2 and [axis for _, axis in inner[:1]] == [1]
    return x.ndim > 3 and [axis for _, axis in inner[:2]] == [x.ndim - 1, 0]


def _reinterpreted(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """The bits of a tensor as numbers of another dtype."""
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return Tensor(x.storage, x.offset, x.shape, x.strides, dtype)
    places = (x.offset, *x.strides[:-1], *x.shape[-1:]) if new > old else ()
    if not x.shape or x.strides[-1] != 1 or any(place * old % new for place in places):
        raise ShapeError(
            f"[view] expected a last axis that lies without gaps in whole numbers of {dtype}, got {x.dtype} of shape "
            f"{x.shape} with strides {x.strides}: use .contiguous() or another dtype"
        )
    outer = [stride * old // new for stride in x.strides[:-1]]
    shape = (*x.shape[:-1], x.shape[-1] * old // new)
    return Tensor(x.storage, x.offset * old // new, shape, (*outer, 1), dtype)


def _seen_as(x: Tensor, shape: Shape) -> Tensor:
    """A tensor under a shape of as many elements."""
    strides = view_strides(x.shape, x.strides, shape)
    if strides is None or _in_graph(x):
        return call(Reshape, x, shape)
    return view_of(x, x.offset, shape, strides)


def _are_ints(values: tuple[Any, ...]) -> bool:
    """Whether all are of Python's own ints: among other types different values are equal, as 1 and True."""
    for value in values:  # noqa: SIM110  (all() costs as much as the rest of a view)
        if type(value) is not int:
            return False
    return True


@lru_cache(maxsize=8192)
def _with_unknown(function: str, old: Shape, shape: tuple[Any, ...]) -> Shape:
    """A shape in which one length may be -1, with the length that gives as many elements as the old shape has."""
    known = shape_of(function, ([n for n in shape if not (isinstance(n, (int, np.integer)) and n == -1)],))
    unknown = len(shape) - len(known)
    elements, count = math.prod(old), math.prod(known)
    fits = count == elements if unknown == 0 else count > 0 and elements % count == 0
    if unknown > 1 or not fits:
        raise ShapeError(
            f"[{function}] expected a shape of {elements} elements with at most one -1, got {described(shape)} for "
            f"{old}"
        )
    found = iter(known)
    return tuple(elements // count if isinstance(n, (int, np.integer)) and n == -1 else next(found) for n in shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes start_dim..end_dim made into one; a tensor without axes gets one."""
    check_tensor("flatten", input)
    shape = input.shape
    if not shape:
        return reshape(input, (1,))
    wanted = _flat(shape, one_axis("flatten", start_dim, len(shape)), one_axis("flatten", end_dim, len(shape)))
    return input if wanted is shape else _seen_as(input, wanted)


@lru_cache(maxsize=8192)
def _flat(shape: Shape, first: int, last: int) -> Shape:
    """A shape with the axes first..last made into one."""
    if first > last:
        raise ShapeError(f"[flatten] expected start_dim before end_dim, got {first} and {last} for shape {shape}")
    return shape if first == last else (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    """The axes in another order; a view."""
    if not isinstance(input, Tensor):
        check_tensor("permute", input)
    if not isinstance(dims, (tuple, list)):
        raise ShapeError(f"[permute] expected each of the {input.ndim} axes once, got {described(dims)}")
    given = tuple(dims)
    wanted = (_each_once if _are_ints(given) else _each_once.__wrapped__)(len(input.shape), given)
    if (input.requires_grad or input._base is not None) and enters_graph(input):
        return call(Permute, input, wanted)
    shape, strides = _permuted(input.shape, input.strides, wanted)
    return view_of(input, input.offset, shape, strides)


@lru_cache(maxsize=8192)
def _each_once(ndim: int, axes: tuple[Any, ...]) -> Shape:
    """All axes of a tensor in another order, counted from its first one."""
    wanted = tuple([one_axis("permute", axis, ndim) for axis in axes])
    if len(wanted) != ndim or len(set(wanted)) != ndim:
        raise ShapeError(f"[permute] expected each of the {ndim} axes once, got {described(axes)}")
    return wanted


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two axes exchanged; a view."""
    check_tensor("transpose", input)
    if not input.shape and one_axis("transpose", dim0, 1) == one_axis("transpose", dim1, 1):
        return input
    ndim = len(input.shape)
    a, b = one_axis("transpose", dim0, ndim), one_axis("transpose", dim1, ndim)
    wanted = _exchanged(ndim, a, b)
    return (
        call(Permute, input, wanted)
        if _in_graph(input)
        else view_of(input, input.offset, *_permuted(input.shape, input.strides, wanted))
    )


@lru_cache(maxsize=8192)
def _exchanged(ndim: int, first: int, second: int) -> Shape:
    """The axes in their order, but for two that are exchanged."""
    axes = list(range(ndim))
    axes[first], axes[second] = second, first
    return tuple(axes)


def expand(input: Tensor, shape: Any) -> Tensor:
    """Repeated to a shape along axes of length 1 and new leading ones; -1 keeps a length. A view."""
    check_tensor("expand", input)
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return _repeated(input, (_with_kept if _are_ints(given) else _with_kept.__wrapped__)(input.shape, given))


@lru_cache(maxsize=8192)
def _with_kept(shape: Shape, given: tuple[Any, ...]) -> Shape:
    """The shape that a shape is expanded to, in which -1 keeps a length."""
    extra = len(given) - len(shape)
    lengths = [
        shape[a - extra] if isinstance(n, (int, np.integer)) and n == -1 and a >= extra >= 0 else n
        for a, n in enumerate(given)
    ]
    return _checked_repeat("expand", shape, (tuple(lengths),))


def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Repeated to a shape that it broadcasts to; a view."""
    check_tensor("broadcast_to", input)
    return _repeated(input, _checked_repeat("broadcast_to", input.shape, (size,)))


def _checked_repeat(function: str, shape: Shape, given: tuple[Any, ...]) -> Shape:
    """The shape that is asked for; ShapeError where a shape does not broadcast to it."""
    wanted = shape_of(function, given)
    if not _broadcasts(shape, wanted):
        raise ShapeError(f"[{function}] expected a shape that {shape} broadcasts to, got {wanted}")
    return wanted


def _repeated(x: Tensor, shape: Shape) -> Tensor:
    """A tensor as a shape that it broadcasts to."""
    if _in_graph(x):
        return call(Expand, x, shape)
    return view_of(x, x.offset, shape, broadcast_strides(x.shape, x.strides, shape))


@lru_cache(maxsize=8192)
def _broadcasts(shape: Shape, wanted: Shape) -> bool:
    extra = len(wanted) - len(shape)
    return extra >= 0 and all(n in (1, w) for n, w in zip(shape, wanted[extra:], strict=True))


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over the axes along which a tensor of a size is repeated to broadcast to input's shape."""
    check_tensor("sum_to_size", input)
    wanted = shape_of("sum_to_size", size)
    if not _broadcasts(wanted, input.shape):
        raise ShapeError(f"[sum_to_size] expected a size that broadcasts to {input.shape}, got {wanted}")
    from alpha.expressions.functions import summed_to  # here: what it imports imports this module

    return summed_to(input, wanted)


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Removes axes of length 1: all of them, or those named; a view."""
    check_tensor("squeeze", input)
    shape = input.shape
    wanted = _without(shape, all_axes("squeeze", dim, len(shape)))
    return input if wanted == shape else _seen_as(input, wanted)


@lru_cache(maxsize=8192)
def _without(shape: Shape, axes: Shape) -> Shape:
    """A shape without those of some axes that have length 1."""
    return tuple([n for a, n in enumerate(shape) if n != 1 or a not in axes])


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Inserts an axis of length 1 before axis ``dim``; a view."""
    check_tensor("unsqueeze", input)
    axis = one_axis("unsqueeze", dim, len(input.shape) + 1)
    return _seen_as(input, (*input.shape[:axis], 1, *input.shape[axis:]))
