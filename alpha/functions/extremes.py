"""The largest and smallest elements, where they are, and whether any or all elements differ from 0."""

from __future__ import annotations

from typing import Any, NamedTuple

from alpha import dtypes
from alpha.arguments import all_axes, flag, one_axis
from alpha.autograd import Function, enters_graph
from alpha.functions.axes import (
    Axes,
    ValuesAndIndices,
    check_not_empty,
    keeping,
    known_as,
    numpy_names,
    of_line,
    reduced_axes,
    restored,
)
from alpha.functions.elementwise import cast, eq, logical_or, maximum, minimum, ne, where
from alpha.functions.lookups import gather
from alpha.functions.operands import call, check_tensor, compute
from alpha.functions.reduction import sum
from alpha.functions.shape import reshape, squeeze, unsqueeze
from alpha.launches import REDUCTIONS
from alpha.tensor import Tensor

__all__ = ["all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "max", "min"]


class Extreme(Function):
    """The largest or smallest element over axes; equal ones, or all NaN, share the gradient, as in PyTorch."""

    fresh = True

    def forward(self, x: Tensor, op: str, axes: Axes, keepdims: bool) -> Tensor:
        self.axes = axes
        y = x.engine.reduce(op, x, axes, keepdims)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        # Where there is a NaN it is the result; elsewhere no element differs from itself.
        found = compute("logical_or", compute("eq", x, keeping(y, x.shape, self.axes)), compute("ne", x, x))
        count = x.engine.reduce("sum", found, self.axes, True)
        share = compute("div", keeping(grad, x.shape, self.axes), cast(count, x.dtype))
        return compute("where", found, share, 0.0)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        found = logical_or(eq(x.detach(), restored(y.detach(), x.shape, self.axes)), ne(x.detach(), x.detach()))
        share = restored(grad, x.shape, self.axes) / cast(sum(found, self.axes, True), x.dtype)
        return where(found, share, 0.0)


def max(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Any:
    """The largest element; along an axis ``(values, indices)``. NaN where there is one, the first on ties.

    Of two tensors, ``max(input, other)``, the larger elements: ``maximum``.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("max", dim, axis, keepdim, keepdims)
    return _extreme("max", input, dim, keepdim)


def min(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Any:
    """The smallest element; along an axis ``(values, indices)``. NaN where there is one, the first on ties.

    Of two tensors, ``min(input, other)``, the smaller elements: ``minimum``.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("min", dim, axis, keepdim, keepdims)
    return _extreme("min", input, dim, keepdim)


def _extreme(name: str, x: Tensor, dim: int | None, keepdim: bool) -> Any:
    known = REDUCTIONS[name]
    found: Tensor | None = known.launch_outside(x, dim, keepdim)
    if found is not None and dim is None:
        return found
    check_tensor(name, x)
    if isinstance(dim, Tensor):
        return maximum(x, dim) if name == "max" else minimum(x, dim)
    kept = flag(name, "keepdim", keepdim)
    if dim is None:
        axes = all_axes(name, None, x.ndim)
        check_not_empty(name, x, axes)
        return known_as(known, call(Extreme, x, name, axes, kept), x, (None, keepdim), (axes, kept))
    if not x.shape:
        return of_line(max if name == "max" else min, x, dim, True)
    axis = one_axis(name, dim, x.ndim)
    check_not_empty(name, x, (axis,))
    index = x.engine.arg_reduce(f"arg{name}", x.detach(), axis)
    if found is None:
        if dtypes.is_float(x.dtype) and not enters_graph(x):
            values = x.storage.engine.reduce(name, x, (axis,), kept)
            found = known_as(known, values, x, (dim, keepdim), ((axis,), kept))
        else:
            chosen = gather(x, axis, unsqueeze(index, axis))
            found = chosen if kept else squeeze(chosen, axis)
    return ValuesAndIndices(found, keeping(index, x.shape, (axis,)) if kept else index)


def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest element over an axis, several, or all (None, or an empty list); equal ones share the gradient."""
    return _over_axes("max", input, dim, keepdim)


def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest element over an axis, several, or all (None, or an empty list); equal ones share the gradient."""
    return _over_axes("min", input, dim, keepdim)


def _over_axes(op: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    name = f"a{op}"
    check_tensor(name, x)
    axes, kept = reduced_axes(name, dim, x.ndim), flag(name, "keepdim", keepdim)
    check_not_empty(name, x, axes)
    return call(Extreme, x, op, axes, kept)


class Extremes(NamedTuple):
    """What ``aminmax`` finds."""

    min: Tensor
    max: Tensor


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Extremes:
    """``(min, max)``: the smallest and the largest element along an axis, or of all."""
    check_tensor("aminmax", input)
    if dim is not None and input.shape:
        dim = one_axis("aminmax", dim, input.ndim)
    return Extremes(amin(input, dim, keepdim), amax(input, dim, keepdim))


def _arg_reduce(name: str, x: Tensor, axis: int) -> Tensor:
    check_not_empty(name, x, (axis,))
    return x.engine.arg_reduce(name, x.detach(), axis)


def argmax(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Index of the largest element, the first on ties, along an axis or in the flattened tensor."""
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("argmax", dim, axis, keepdim, keepdims)
    return _arg("argmax", input, dim, keepdim)


def argmin(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Index of the smallest element, the first on ties, along an axis or in the flattened tensor."""
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("argmin", dim, axis, keepdim, keepdims)
    return _arg("argmin", input, dim, keepdim)


def _arg(name: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    check_tensor(name, x)
    keepdim = flag(name, "keepdim", keepdim)
    if dim is None:
        index = _arg_reduce(name, reshape(x.detach(), (-1,)) if x.numel() else x.strided(0, (0,), (1,)), 0)
        return index.strided(index.offset, (1,) * x.ndim, (1,) * x.ndim) if keepdim else index
    if not x.shape:
        found: Tensor = of_line(argmax if name == "argmax" else argmin, x, dim, True)
        return found
    axis = one_axis(name, dim, x.ndim)
    index = _arg_reduce(name, x, axis)
    return keeping(index, x.shape, (axis,)) if keepdim else index


def any(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Whether any element differs from 0, over an axis, several, or all; over an empty list of axes each by itself."""
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("any", dim, axis, keepdim, keepdims)
    check_tensor("any", input)
    return input.storage.engine.reduce("any", input, all_axes("any", dim, input.ndim), flag("any", "keepdim", keepdim))


def all(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Whether every element differs from 0, over an axis, several, or all; over an empty list each by itself."""
    if axis is not None or keepdims is not None:
        dim, keepdim = numpy_names("all", dim, axis, keepdim, keepdims)
    check_tensor("all", input)
    return input.storage.engine.reduce("all", input, all_axes("all", dim, input.ndim), flag("all", "keepdim", keepdim))
