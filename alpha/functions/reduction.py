"""Reductions along axes, running sums and sorting; PyTorch's names and semantics."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from alpha import dtypes
from alpha.arguments import Shape, all_axes, flag, number, one_axis, whole
from alpha.autograd import Function, enters_graph
from alpha.autograd.composing import returned
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.expressions.functions import pointwise
from alpha.functions.elementwise import abs as _abs
from alpha.functions.elementwise import cast, eq, exp, isfinite, log, maximum, minimum, sign, sqrt, where
from alpha.functions.nothing import nothing
from alpha.functions.operands import (
    broadcast_view,
    call,
    check_float,
    check_tensor,
    compute,
    still_in_range,
)
from alpha.functions.shape import cat, flip, reshape, split
from alpha.launches import CUMSUM, REDUCTIONS, VARIANCE, Launches
from alpha.tensor import Tensor

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "cumsum",
    "logsumexp",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "sort",
    "std",
    "sum",
    "var",
]

Axes = tuple[int, ...]


class ValuesAndIndices(NamedTuple):
    """What ``max``, ``min`` and ``sort`` find along an axis, and where."""

    values: Tensor
    indices: Tensor


def _keeping(x: Tensor, shape: Shape, axes: Axes) -> Tensor:
    """A reduction's result or gradient seen with its axes at length 1, so that it broadcasts to the argument."""
    strides = list(x.strides)
    if x.ndim != len(shape):
        for axis in axes:
            strides.insert(axis, 1)
    kept = tuple([1 if a in axes else n for a, n in enumerate(shape)])
    return Tensor(x.storage, x.offset, kept, tuple(strides), x.dtype)


def _kept(x: Tensor, shape: Shape, axes: Axes) -> Tensor:
    """``_keeping`` by a differentiable function."""
    return reshape(x, tuple([1 if axis in axes else n for axis, n in enumerate(shape)]))


def _count(shape: Shape, axes: Axes) -> int:
    return math.prod(shape[axis] for axis in axes)


# -- sums --------------------------------------------------------------------------------------------------------


class Sum(Function):
    """The sum over axes."""

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.shape, self.axes = x.shape, axes
        return x.engine.reduce("sum", x, axes, keepdims)

    def backward(self, grad: Tensor) -> Tensor:
        return broadcast_view(_keeping(grad, self.shape, self.axes), self.shape)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return _kept(grad, self.shape, self.axes).expand(self.shape)


class Mean(Function):
    """The mean over axes."""

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.shape, self.axes = x.shape, axes
        return x.engine.mean(x, axes, keepdims)

    def backward(self, grad: Tensor) -> Tensor:
        share = compute("div", grad, _count(self.shape, self.axes))
        return broadcast_view(_keeping(share, self.shape, self.axes), self.shape)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return _kept(grad / _count(self.shape, self.axes), self.shape, self.axes).expand(self.shape)


class Var(Function):
    """The variance over axes: sum((x - mean(x)) ** 2) / (n - correction)."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, correction: int, keepdims: bool) -> Tensor:
        self.axes = axes
        self.divisor = _count(x.shape, axes) - correction
        var, mean = x.engine.variance(x, axes, correction, keepdims)
        self.save(x, mean)
        return var

    def backward(self, grad: Tensor) -> Tensor:
        x, mean = self.saved
        scale = 2 / self.divisor if self.divisor > 0 else math.nan
        return _var_slopes(_keeping(grad, x.shape, self.axes), x, mean, scale)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, _ = self.saved
        scale = 2 / self.divisor if self.divisor > 0 else math.nan
        return (x - mean(x, self.axes, True)) * (_kept(grad, x.shape, self.axes) * scale)


@pointwise
def _var_slopes(grad: Any, x: Any, mean: Any, scale: Any) -> Any:
    return (x - mean) * (grad * scale)


class Root(Function):
    """The square root of a variance; its gradient at 0 is 0, as in PyTorch."""

    fresh = True

    def forward(self, x: Tensor) -> Tensor:
        y = compute("sqrt", x)
        self.save(y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return _root_slopes(grad, y)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        (y,) = self.saved
        return _root_slopes(grad, y)


@pointwise
def _root_slopes(grad: Any, y: Any) -> Any:
    return where(eq(y, 0.0), 0.0, grad * 0.5 / y)


def _product(x: Tensor, axes: Axes) -> Tensor:
    """The product over axes, which it keeps, by halves: its gradients are exact where factors are 0."""
    for axis in axes:
        if x.shape[axis] == 0:
            x = x.sum(axis, True) + 1.0
        while (length := x.shape[axis]) > 1:
            first, second, *rest = split(x, length // 2, axis)
            x = cat([first * second, *rest], axis)
    return x


class Prod(Function):
    """The product over axes; the gradient is exact where factors are 0.

    ``everything`` says that no axes were named: PyTorch then gives no gradient where two factors are 0, whatever else
    there is.
    """

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool, everything: bool) -> Tensor:
        self.axes, self.everything = axes, everything
        y = x.engine.reduce("prod", x, axes, keepdims)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        if not self.axes:  # Each number is a product by itself; a copy, for what is returned must be newly made.
            return compute("mul", grad, 1.0)
        grad, y = _keeping(grad, x.shape, self.axes), _keeping(y, x.shape, self.axes)
        engine: Engine = x.engine
        return engine.prod_grad(grad, x, y, self.axes, self.everything)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        from alpha.autograd.composing import by_formula

        x = self.saved[0]
        if not self.axes:
            return grad * 1.0
        (dx,) = by_formula(lambda x: _product(x, self.axes), (x,), _kept(grad, x.shape, self.axes))
        return grad.engine.full(x.shape, 0, x.dtype) if dx is None else dx


def sum(
    x: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Sum over an axis, several, or all (None, or as in PyTorch an empty list); of bools and integers int64."""
    if dtype is not None:
        x = cast(x, dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("sum", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    found: Tensor | None = _SUM.launch_outside(x, dim, keepdim)
    if found is not None:
        return found
    check_tensor("sum", x)
    axes, kept = _reduced("sum", dim, x.ndim), flag("sum", "keepdim", keepdim)
    return _known(_SUM, call(Sum, x, axes, kept), x, (dim, keepdim), (axes, kept))


def mean(
    x: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Mean over an axis, several, or all (None, or an empty list); NaN of nothing. DtypeError unless float."""
    if dtype is not None:
        x = cast(x, dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("mean", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    found: Tensor | None = _MEAN.launch_outside(x, dim, keepdim)
    if found is not None:
        return found
    check_float("mean", x)
    axes, kept = _reduced("mean", dim, x.ndim), flag("mean", "keepdim", keepdim)
    return _known(_MEAN, call(Mean, x, axes, kept), x, (dim, keepdim), (axes, kept))


_SUM, _MEAN, _PROD, _NORM = (REDUCTIONS[op] for op in ("sum", "mean", "prod", "norm"))


def _numpy_names(function: str, dim: Any, axis: Any, keepdim: Any, keepdims: Any) -> tuple[Any, Any]:
    """dim and keepdim, given by NumPy's names ``axis`` and ``keepdims``; ArgumentError for both names of one."""
    if axis is not None and dim is not None:
        raise ArgumentError(f"[{function}] expected dim or axis, got both: they are the same")
    if keepdims is not None and keepdim is not False:
        raise ArgumentError(f"[{function}] expected keepdim or keepdims, got both: they are the same")
    return axis if axis is not None else dim, keepdim if keepdims is None else keepdims


def _corrected(function: str, x: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    """The variance over n - ``correction``, or its root."""
    check_float(function, x)
    by, kept = whole(function, "correction", correction), flag(function, "keepdim", keepdim)
    result = call(Var, x, _reduced(function, dim, x.ndim), by, kept)
    if function == "var":
        return result
    return call(Root, result) if result.requires_grad else sqrt(result)


def _reduced(function: str, dim: Any, ndim: int) -> Axes:
    """The axes to reduce over: all for an empty list, as in PyTorch."""
    return all_axes(function, None if isinstance(dim, tuple | list) and not dim else dim, ndim)


def _known(known: Launches, result: Tensor, x: Tensor, given: tuple[Any, Any], followed: tuple[Any, Any]) -> Tensor:
    """The result, whose launches get to know axes and keepdim as they were given."""
    if not result.requires_grad:
        x.storage.engine.alias(known, (x, *followed), known, (x, *given))
    return result


def var(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Variance over an axis, several, or all (None, or an empty list): by n - 1, or by n unless ``unbiased``."""
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("var", dim, axis, keepdim, keepdims)
    if correction is not None:
        return _corrected("var", x, dim, correction, keepdim)
    if type(dim) is tuple and not dim:
        dim = None
    found = VARIANCE.launch_outside(x, dim, unbiased, keepdim)
    if found is not None:
        result: Tensor = found[0]
        return result
    return _var("var", x, dim, unbiased, keepdim)


def _var(function: str, x: Tensor, dim: Any, unbiased: bool, keepdim: bool) -> Tensor:
    """The variance, whose launches get to know the arguments as they were given."""
    check_float(function, x)
    correction, kept = int(flag(function, "unbiased", unbiased)), flag(function, "keepdim", keepdim)
    axes = _reduced(function, dim, x.ndim)
    result = call(Var, x, axes, correction, kept)
    if not result.requires_grad:
        x.storage.engine.alias(VARIANCE, (x, axes, correction, kept), VARIANCE, (x, dim, unbiased, keepdim))
    return result


def std(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: int | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Square root of ``var``."""
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("std", dim, axis, keepdim, keepdims)
    if correction is not None:
        return _corrected("std", x, dim, correction, keepdim)
    if type(dim) is tuple and not dim:
        dim = None
    found = VARIANCE.launch_outside(x, dim, unbiased, keepdim)
    if found is not None:
        return sqrt(found[0])
    result = _var("std", x, dim, unbiased, keepdim)
    return call(Root, result) if result.requires_grad else sqrt(result)


def prod(
    x: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: dtypes.DtypeLike | None = None,
    axis: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Product over an axis, several, or all (None, or an empty list); of bools and integers int64."""
    if dtype is not None:
        x = cast(x, dtype)
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("prod", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    found: Tensor | None = _PROD.launch_outside(x, dim, keepdim)
    if found is not None:
        return found
    check_tensor("prod", x)
    axes, kept = _reduced("prod", dim, x.ndim), flag("prod", "keepdim", keepdim)
    return _known(_PROD, call(Prod, x, axes, kept, dim is None), x, (dim, keepdim), (axes, kept))


class Cumsum(Function):
    """Running sums; the gradient is the running sum from the other end."""

    fresh = True

    def forward(self, x: Tensor, axis: int) -> Tensor:
        self.axis = axis
        return x.engine.cumsum(x, axis)

    def backward(self, grad: Tensor) -> Tensor:
        return flip(grad.engine.cumsum(flip(grad, self.axis), self.axis), self.axis)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return flip(cumsum(flip(grad, (self.axis,)), self.axis), (self.axis,))


def cumsum(x: Tensor, dim: int | None = None, *, dtype: dtypes.DtypeLike | None = None, axis: Any = None) -> Tensor:
    """Running sums along an axis; of bools and integers int64."""
    if dtype is not None:
        x = cast(x, dtype)
    if axis is not None:
        dim, _ = _numpy_names("cumsum", dim, axis, False, None)
    found: Tensor | None = CUMSUM.launch_outside(x, dim)
    if found is not None:
        return found
    check_tensor("cumsum", x)
    place = one_axis("cumsum", dim, x.ndim)
    result = call(Cumsum, x, place)
    if not result.requires_grad:
        x.storage.engine.alias(CUMSUM, (x, place), CUMSUM, (x, dim))
    return result


# -- extremes ----------------------------------------------------------------------------------------------------


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
        found = compute("logical_or", compute("eq", x, _keeping(y, x.shape, self.axes)), compute("ne", x, x))
        count = x.engine.reduce("sum", found, self.axes, True)
        share = compute("div", _keeping(grad, x.shape, self.axes), cast(count, x.dtype))
        return compute("where", found, share, 0.0)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        found = (x.detach() == _kept(y.detach(), x.shape, self.axes)) | (x.detach() != x.detach())
        share = _kept(grad, x.shape, self.axes) / sum(cast(found, x.dtype), self.axes, True)
        return where(found, share, 0.0)


class Chosen(Function):
    """The elements at given positions along an axis, one each."""

    fresh = True

    def forward(self, x: Tensor, index: Tensor, axis: int, keepdims: bool) -> Tensor:
        self.shape, self.axis = x.shape, axis
        self.save(index)
        kept = (*index.shape[:axis], 1, *index.shape[axis:])
        out = x.engine.gather_along(x, _with_axis(index, kept, axis), axis)
        return out if keepdims else out.strided(out.offset, index.shape, _without(out.strides, axis))

    def backward(self, grad: Tensor) -> Tensor:
        # The caller has these indices too, and may have written to them through an array.
        index = still_in_range("max and min", self.saved[0], self.axis, self.shape)
        shape = (*index.shape[: self.axis], 1, *index.shape[self.axis :])
        if grad.ndim < len(self.shape):
            grad = _with_axis(grad, shape, self.axis)
        order = range(len(self.shape))
        found: Tensor = grad.engine.gather_along_grad(
            grad, _with_axis(index, shape, self.axis), self.axis, self.shape, order
        )
        return found

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        from alpha.functions.indexing import take_along_dim

        (index,) = self.saved
        kept = (*index.shape[: self.axis], 1, *index.shape[self.axis :])

        def again(g: Tensor) -> Tensor:
            taken = take_along_dim(g, index.reshape(kept), self.axis)
            return taken if grad.ndim == len(self.shape) else taken.reshape(index.shape)

        return returned(self, grad, again)


def _with_axis(x: Tensor, shape: Shape, axis: int) -> Tensor:
    """A view with an axis of length 1 more."""
    return x.strided(x.offset, shape, (*x.strides[:axis], 1, *x.strides[axis:]))


def _without(values: Shape, axis: int) -> Shape:
    return values[:axis] + values[axis + 1 :]


def max(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Any:
    """The largest element; along an axis ``(values, indices)``. NaN where there is one, the first on ties.

    Of two tensors, ``max(x, other)``, the larger elements: ``maximum``.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("max", dim, axis, keepdim, keepdims)
    return _extreme("max", x, dim, keepdim)


def min(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Any:
    """The smallest element; along an axis ``(values, indices)``. NaN where there is one, the first on ties.

    Of two tensors, ``min(x, other)``, the smaller elements: ``minimum``.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("min", dim, axis, keepdim, keepdims)
    return _extreme("min", x, dim, keepdim)


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
        _check_not_empty(name, x, axes)
        return _known(known, call(Extreme, x, name, axes, kept), x, (None, keepdim), (axes, kept))
    axis = one_axis(name, dim, x.ndim)
    _check_not_empty(name, x, (axis,))
    index = x.engine.arg_reduce(f"arg{name}", x.detach(), axis)
    if found is None:
        if dtypes.is_float(x.dtype) and not enters_graph(x):
            values = x.storage.engine.reduce(name, x, (axis,), kept)
            found = _known(known, values, x, (dim, keepdim), ((axis,), kept))
        else:
            found = call(Chosen, x, index, axis, kept)
    return ValuesAndIndices(found, _keeping(index, x.shape, (axis,)) if kept else index)


def _check_not_empty(name: str, x: Tensor, axes: Axes) -> None:
    if _count(x.shape, axes) == 0:
        raise ShapeError(f"[{name}] expected at least one element along axes {axes}, got shape {x.shape}")


def _arg_reduce(name: str, x: Tensor, axis: int) -> Tensor:
    _check_not_empty(name, x, (axis,))
    return x.engine.arg_reduce(name, x.detach(), axis)


def argmax(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Index of the largest element, the first on ties, along an axis or in the flattened tensor."""
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("argmax", dim, axis, keepdim, keepdims)
    return _arg("argmax", x, dim, keepdim)


def argmin(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Index of the smallest element, the first on ties, along an axis or in the flattened tensor."""
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("argmin", dim, axis, keepdim, keepdims)
    return _arg("argmin", x, dim, keepdim)


def _arg(name: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    check_tensor(name, x)
    keepdim = flag(name, "keepdim", keepdim)
    if dim is None:
        index = _arg_reduce(name, reshape(x.detach(), (-1,)) if x.numel() else x.strided(0, (0,), (1,)), 0)
        return index.strided(index.offset, (1,) * x.ndim, (1,) * x.ndim) if keepdim else index
    axis = one_axis(name, dim, x.ndim)
    index = _arg_reduce(name, x, axis)
    return _keeping(index, x.shape, (axis,)) if keepdim else index


def any(x: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None) -> Tensor:
    """Whether any element differs from 0, over an axis, several, or all; over an empty list of axes each by itself."""
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("any", dim, axis, keepdim, keepdims)
    check_tensor("any", x)
    return x.storage.engine.reduce("any", x, all_axes("any", dim, x.ndim), flag("any", "keepdim", keepdim))


def all(x: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None) -> Tensor:
    """Whether every element differs from 0, over an axis, several, or all; over an empty list each by itself."""
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("all", dim, axis, keepdim, keepdims)
    check_tensor("all", x)
    return x.storage.engine.reduce("all", x, all_axes("all", dim, x.ndim), flag("all", "keepdim", keepdim))


# -- sorting -----------------------------------------------------------------------------------------------------


class Sort(Function):
    """Values in order along an axis, and the indices they came from."""

    fresh = True

    def forward(self, x: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
        self.axis = axis
        # Turning the axis round before and after keeps equal elements in their order.
        values, indices = x.engine.sort(flip(x, axis) if descending else x, axis)
        if descending:
            values, indices = flip(values, axis), flip(indices, axis)
            compute("sub", x.shape[axis] - 1, indices, out=indices)
        self.save(indices)
        return values, indices

    def backward(self, grad: Tensor, _: Tensor | None) -> Tensor:
        # The caller has these indices too, and may have written to them through an array.
        indices = still_in_range("sort", self.saved[0], self.axis, grad.shape)
        found: Tensor = grad.engine.gather_along_grad(grad, indices, self.axis, grad.shape, grad.memory_order())
        return found

    def backward_in_graph(self, grad: Tensor, _: Tensor | None) -> Tensor:
        from alpha.functions.indexing import take_along_dim

        indices = still_in_range("sort", self.saved[0], self.axis, grad.shape)
        return returned(self, grad, lambda g: take_along_dim(g, indices, self.axis), None)


def sort(
    x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None
) -> ValuesAndIndices:
    """Values in stable order along an axis, and their int64 indices; NaN counts as the largest.

    The order is stable whatever ``stable`` says. ``axis`` is NumPy's name for ``dim``.
    """
    check_tensor("sort", x)
    place, descending = one_axis("sort", dim if axis is None else axis, x.ndim), flag("sort", "descending", descending)
    flag("sort", "stable", stable)
    if not descending and not enters_graph(x):
        return ValuesAndIndices(*x.storage.engine.sort(x, place))
    return ValuesAndIndices(*Sort.apply(x, place, descending))


# -- norms -------------------------------------------------------------------------------------------------------


class LogSumExp(Function):
    """log(sum(exp(x))) over axes."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.axes = axes
        top = x.engine.reduce("max", x, axes, True)
        total = x.engine.reduce("sum", _powers(x, top), axes, True)
        kept = _logarithm(total, top)
        self.save(x, kept)
        return kept if keepdims else _dropped(kept, axes)

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        kept = _keeping(grad, x.shape, self.axes)
        return _shares(kept, x, y)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x = self.saved[0]
        y = logsumexp(x, self.axes, True)
        return _shares(_kept(grad, x.shape, self.axes), x, y)


@pointwise
def _powers(x: Any, top: Any) -> Any:
    """Powers of e that do not overflow."""
    return exp(x - where(isfinite(top), top, 0.0))


@pointwise
def _logarithm(total: Any, top: Any) -> Any:
    """The logarithm of what ``_powers`` sum to, before they were made smaller."""
    return log(total) + where(isfinite(top), top, 0.0)


@pointwise
def _shares(grad: Any, x: Any, y: Any) -> Any:
    return exp(x - y) * grad


def _dropped(x: Tensor, axes: Axes) -> Tensor:
    kept = [a for a in range(x.ndim) if a not in axes]
    return x.strided(x.offset, tuple(x.shape[a] for a in kept), tuple(x.strides[a] for a in kept))


class EuclideanNorm(Function):
    """sqrt(sum(x * x)) over axes; its gradient at 0 is 0."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.axes = axes
        if _count(x.shape, axes) == 1:  # |x|, also where the square has no number
            y = x.engine.reduce("sum", compute("abs", x), axes, keepdims)
        else:
            y = x.engine.euclidean_norm(x, axes, keepdims)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        grad, y = _keeping(grad, x.shape, self.axes), _keeping(y, x.shape, self.axes)
        return _norm_slopes(grad, x, y)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x, y = self.saved
        return _norm_slopes(_kept(grad, x.shape, self.axes), x, _kept(y, x.shape, self.axes))


@pointwise
def _norm_slopes(grad: Any, x: Any, y: Any) -> Any:
    return where(eq(y, 0.0), 0.0, x / y) * grad


class NonZeros(Function):
    """The number of elements that differ from 0, in their own dtype; its gradient is 0."""

    fresh = True

    def forward(self, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        self.shape = x.shape
        return x.engine.reduce("sum", cast(compute("ne", x, 0), x.dtype), axes, keepdims)

    def backward(self, grad: Tensor) -> Tensor:
        out = grad.engine.empty(self.shape, grad.dtype)
        grad.engine.fill(out, 0)
        return out

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return grad.engine.full(self.shape, 0, grad.dtype)


class PowerNorm(Function):
    """sum(|x| ** p) ** (1 / p) over axes, p other than 0, 2 and infinities; where it is 0 so is its gradient."""

    fresh = True

    def forward(self, x: Tensor, p: float, axes: Axes, keepdims: bool) -> Tensor:
        self.p, self.axes = p, axes
        size = compute("abs", x)
        if p == 1 or _count(x.shape, axes) == 1:
            y = x.engine.reduce("sum", size, axes, keepdims)
        else:
            y = compute("pow", x.engine.reduce("sum", compute("pow", size, p), axes, keepdims), 1 / p)
        self.save(x, y)
        return y

    def backward(self, grad: Tensor) -> Tensor:
        """sign(x) * (|x| / norm) ** (p - 1) * grad, as factors of which none overflows where PyTorch's does not."""
        x, y = self.saved
        p, grad, y = self.p, _keeping(grad, x.shape, self.axes), _keeping(y, x.shape, self.axes)
        if p == 1:
            return compute("mul", compute("sign", x), grad)
        size = compute("abs", x)
        if p < 1:
            steep = compute("where", compute("eq", x, 0), 0.0, compute("pow", size, p - 1))
            return compute("mul", compute("mul", compute("mul", compute("sign", x), steep), grad), _raised(y, 1 - p))
        slope = compute("mul", compute("sign", x), _raised(size, p - 1)) if p < 2 else None
        if slope is None:
            slope = compute("mul", x, _raised(size, p - 2))
        scale = compute("where", compute("eq", y, 0), 0.0, compute("div", grad, _raised(y, p - 1)))
        return compute("mul", slope, scale)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        x = self.saved[0]
        p, axes = self.p, self.axes
        size = _abs(x)
        y = _kept(sum(size, axes) if p == 1 else sum(size**p, axes) ** (1 / p), x.shape, axes)
        rest = where(eq(size, 0.0), 0.0, where(eq(size, 0.0), 1.0, size) ** (p - 1))
        scale = where(eq(y, 0.0), 0.0, where(eq(y, 0.0), 1.0, y) ** (1 - p))
        return sign(x) * rest * scale * _kept(grad, x.shape, axes)


def _raised(x: Tensor, p: float) -> Tensor:
    """x >= 0 to a power."""
    return x if p == 1 else compute("sqrt", x) if p == 0.5 else compute("pow", x, p)


def logsumexp(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """log(sum(exp(x))) over an axis, several, or all (None, or an empty list), without overflow.

    Of bools and integers float32.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("logsumexp", dim, axis, keepdim, keepdims)
    check_tensor("logsumexp", x)
    x = x if dtypes.is_float(x.dtype) else cast(x, dtypes.default_float)
    keepdim = flag("logsumexp", "keepdim", keepdim)
    axes = _reduced("logsumexp", dim, x.ndim)
    if not _count(x.shape, axes):
        left = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdim or a not in axes)
        return nothing(left, x, value=-math.inf)
    return call(LogSumExp, x, axes, keepdim)


def norm(
    x: Tensor, p: float = 2, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool | None = None
) -> Tensor:
    """Vector norm (sum(|x| ** p)) ** (1 / p) over an axis, several, or all (None, or an empty list).

    ``p`` is any number: infinity gives the largest |x|, minus infinity the smallest, 0 the number of elements that
    differ from 0. ShapeError for no elements where p is negative or infinite: nothing is the least or the largest.
    """
    if axis is not None or keepdims is not None:
        dim, keepdim = _numpy_names("norm", dim, axis, keepdim, keepdims)
    if type(dim) is tuple and not dim:
        dim = None
    if type(p) in (int, float) and p == 2:
        found: Tensor | None = _NORM.launch_outside(x, dim, keepdim)
        if found is not None:
            return found
    check_float("norm", x)
    p, kept = number("norm", "p", p), flag("norm", "keepdim", keepdim)
    axes = _reduced("norm", dim, x.ndim)
    if isinstance(p, bool) or not isinstance(p, int | float) or math.isnan(p):
        raise ArgumentError(f"[norm] expected p as a number (math.inf for the largest), got {p!r}")
    if p < 0 or p == math.inf:
        _check_not_empty("norm", x, axes)
    if p == 2:
        return _known(_NORM, call(EuclideanNorm, x, axes, kept), x, (dim, keepdim), (axes, kept))
    if math.isinf(p):
        return call(Extreme, _abs(x), "max" if p > 0 else "min", axes, kept)
    if p == 0:
        return call(NonZeros, x, axes, kept)
    return call(PowerNorm, x, float(p), axes, kept)
