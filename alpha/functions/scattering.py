"""Writing by index: into a copy, ``scatter_add``, or in place, ``scatter_add_``.

Where several values have the same place, which of them stays is not said, but sums, products and extremes have all.
"""

from __future__ import annotations

import math
from typing import Any

from alpha import dtypes
from alpha.arguments import flag, one_axis, one_of
from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.autocasting import in_widest
from alpha.functions.elementwise import cast, clone, eq, floor_divide, logical_and, maximum, where
from alpha.functions.indexing import Accumulate, Assign, fitting, getitem, setitem
from alpha.functions.inplace import copy_, write, written_value
from alpha.functions.keys import check_index, positions, resolved_key
from alpha.functions.lookups import gather
from alpha.functions.operands import call, check_tensor
from alpha.functions.selection import unique
from alpha.functions.shape import expand, reshape
from alpha.functions.views import broadcast_tensors
from alpha.tensor import Tensor

__all__ = [
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "masked_scatter",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
]


def _applied(name: str, x: Tensor, function: type[Function], *args: Any) -> Tensor:
    """A function that writes into a tensor, of a copy of x, or of x itself where the name ends so.

    A tensor without axes counts as one of length 1.
    """
    args = tuple([arg.clone() if isinstance(arg, Tensor) and arg.storage is x.storage else arg for arg in args])
    seen = x if x.shape else reshape(x, (1,))
    if name.endswith("_"):
        write(name, seen, function, *args)
        return x
    out = call(function, clone(seen), *args)
    return out if x.shape else reshape(out, ())


# -- by an index of its own for each number ----------------------------------------------------------------------


class ScatterAlong(Function):
    """x with values written to positions along an axis."""

    def forward(self, x: Tensor, values: Tensor, index: Tensor, axis: int) -> Tensor:
        self.index, self.axis = index, axis
        x.engine.put_along(x, index, values, axis)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rest = scatter(grad, self.axis, self.index, 0) if self.needs[0] else None
        return rest, gather(grad, self.axis, self.index) if self.needs[1] else None


class AddAlong(Function):
    """x with values added at positions along an axis."""

    def forward(self, x: Tensor, values: Tensor, index: Tensor, axis: int) -> Tensor:
        self.index, self.axis = index, axis
        x.engine.scatter_along(x, index, values, axis)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        return grad, gather(grad, self.axis, self.index) if self.needs[1] else None


def _along(name: str, x: Tensor, dim: int, index: Tensor, src: Any) -> tuple[int, Tensor, Tensor]:
    """The axis, the index checked, and as many values, of what is written along an axis."""
    check_tensor(name, x, index)
    check_index(name, x, index)
    shape = x.shape or (1,)
    axis, places = one_axis(name, dim, len(shape)), index if index.shape else reshape(index, (1,))
    if isinstance(src, Tensor):
        x.engine.check_owner(name, src)
        if src.dtype != x.dtype:
            raise DtypeError(f"[{name}] expected src of {x.dtype}, as x is, got {src.dtype}: cast it")
        src = src if src.shape else reshape(src, (1,))
        source = src.shape
    else:
        source = places.shape
        value = written_value(name, x, src)
        src = x.engine.full(places.shape, value, x.dtype) if not isinstance(value, Tensor) else value
    if not places.numel():
        nothing = (0,) * len(shape)
        values = getitem(src, (slice(0, 0),) * len(shape)) if src.ndim == len(shape) else x.new_empty(nothing)
        return axis, x.engine.full(nothing, 0, dtypes.default_int), values
    fits = len(places.shape) == len(shape) == len(source)
    if not fits or any(
        n > m or (n > k and a != axis) for a, (n, m, k) in enumerate(zip(places.shape, source, shape, strict=True))
    ):
        raise ShapeError(
            f"[{name}] expected an index no longer than src, nor than x except along axis {axis}, got x: {x.shape}, "
            f"index: {index.shape} and src: {source}"
        )
    if source != places.shape:
        src = getitem(src, tuple([slice(0, n) for n in places.shape]))
    return axis, positions(name, places.detach().long(), shape, axis), src


def _scatter(name: str, x: Tensor, dim: int, index: Tensor, src: Any, value: Any, reduce: str | None) -> Tensor:
    src = value if src is None else src
    if src is None:
        raise ArgumentError(f"[{name}] expected src or value, got neither")
    axis, places, values = _along(name, x, dim, index, src)
    if reduce is None:
        return _applied(name, x, ScatterAlong, values, places, axis)
    if one_of(name, "reduce", reduce, ("add", "multiply")) == "add":
        return _applied(name, x, AddAlong, values, places, axis)
    product = scatter_reduce(x, dim, index, values if x.shape else reshape(values, index.shape), "prod")
    return copy_(x, product) if name.endswith("_") else product


def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """A copy of input with out[i][index[i][j][k]][k] = src[i][j][k] for dim 1, and likewise for others.

    ``src`` is a tensor of that dtype, no shorter than index, or a number (also as ``value``). With ``reduce`` "add" or
    "multiply" it is added to or multiplied with what is there.
    """
    return _scatter("scatter", input, dim, index, src, value, reduce)


def scatter_(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """``scatter`` into input itself. Returns input."""
    return _scatter("scatter_", input, dim, index, src, value, reduce)


@in_widest
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of input with src[i][j][k] added to out[i][index[i][j][k]][k] for dim 1, and likewise for others."""
    return _scatter_add("scatter_add", input, dim, index, src)


def scatter_add_(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``scatter_add`` into input itself. Returns input."""
    return _scatter_add("scatter_add_", input, dim, index, src)


def _scatter_add(name: str, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    check_tensor(name, src)
    axis, places, values = _along(name, x, dim, index, src)
    return _applied(name, x, AddAlong, values, places, axis)


_OPERATIONS = {"prod": "multiply", "amax": "maximum", "amin": "minimum"}


class ReduceAlong(Function):
    """Products or extremes of x's elements and of the values that have their places along an axis.

    Without ``includes`` an element that has values counts nothing itself.
    """

    def forward(self, x: Tensor, values: Tensor, index: Tensor, axis: int, op: str, includes: bool) -> Tensor:
        self.index, self.axis, self.op, self.includes = index, axis, op, includes
        y = x.engine.copied(x, range(x.ndim))
        if not includes:
            neutral = x.engine.full_like(values, _neutral(op, x.dtype), x.dtype)
            x.engine.put_along(y, index, neutral, axis)
        x.engine.put_along(y, index, values, axis, _OPERATIONS[op])
        self.save(x, values, y)
        return y

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, values, y = self.saved
        dx, dvalues = (self._of_product if self.op == "prod" else self._of_extreme)(grad, x, values, y)
        return dx if self.includes else scatter(dx, self.axis, self.index, 0), dvalues

    def _of_extreme(self, grad: Tensor, x: Tensor, values: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Equal extremes share the gradient."""
        axis, index = self.axis, self.index
        is_value, is_own = cast(eq(values, gather(y, axis, index)), x.dtype), cast(eq(x, y), x.dtype)
        share = grad / scatter_add(is_own, axis, index, is_value)
        return is_own * share, is_value * gather(share, axis, index)

    def _of_product(self, grad: Tensor, x: Tensor, values: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The product of the others: the whole one over the factor, or that of the factors beside the only 0."""
        axis, index = self.axis, self.index
        divisor, is_zero = where(eq(x, 0.0), 1.0, x), eq(values, 0.0)
        product = self._again(divisor, values) / divisor
        zeros = gather(scatter_add(x.new_zeros(x.shape), axis, index, cast(is_zero, x.dtype)), axis, index)
        is_only = logical_and(is_zero, eq(zeros, 1.0))
        without = gather(grad * self._again(x, where(is_only, 1.0, values)), axis, index)
        over = gather(grad * y, axis, index) / where(is_zero, 1.0, values)
        return grad * product, where(is_only, without, over)

    def _again(self, x: Tensor, values: Tensor) -> Tensor:
        return call(ReduceAlong, x, values, self.index, self.axis, self.op, self.includes)


def _neutral(op: str, dtype: dtypes.DType) -> Any:
    """The number that leaves a product or an extreme as it is."""
    if op == "prod":
        return 1
    if dtypes.is_bool(dtype):
        return op == "amin"
    least, most = (-math.inf, math.inf) if dtypes.is_float(dtype) else dtypes.limits(dtype)
    return least if op == "amax" else most


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``scatter_add`` with "sum", "prod", "mean", "amax" or "amin" of all values at a place.

    Without ``include_self`` what input holds at such a place counts nothing.
    """
    name = "scatter_reduce"
    check_tensor(name, src)
    includes = flag(name, "include_self", include_self)
    one_of(name, "reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
    axis, places, values = _along(name, input, dim, index, src)
    seen = input if input.shape else reshape(input, (1,))
    if reduce in _OPERATIONS:
        out = call(ReduceAlong, seen, values, places, axis, reduce, includes)
    else:
        kept = seen if includes else scatter(seen, axis, places, False)
        out = scatter_add(kept, axis, places, values)
        if reduce == "mean":
            counts = seen.new_full(seen.shape, 1 if includes else 0, dtype=dtypes.default_int)
            counts = scatter_add(counts, axis, places, values.new_full(values.shape, 1, dtype=dtypes.default_int))
            counts = maximum(counts, 1)
            out = (
                out / cast(counts, input.dtype)
                if dtypes.is_float(input.dtype)
                else cast(floor_divide(out, counts), input.dtype)
            )
    return out if input.shape else reshape(out, ())


# -- whole entries along an axis ---------------------------------------------------------------------------------


def _entries(name: str, x: Tensor, dim: int, index: Tensor, source: Any) -> tuple[tuple[Any, ...], Any]:
    """The key of the entries that an index names along an axis, and what belongs there."""
    check_tensor(name, x, index)
    check_index(name, x, index)
    shape = x.shape or (1,)
    axis, places = one_axis(name, dim, len(shape)), index if index.shape else reshape(index, (1,))
    if places.ndim != 1:
        raise ShapeError(f"[{name}] expected an index of one axis, got shape {index.shape}")
    if isinstance(source, Tensor) and not name.startswith("index_fill"):
        x.engine.check_owner(name, source)
        if source.dtype != x.dtype:
            raise DtypeError(f"[{name}] expected a source of {x.dtype}, as x is, got {source.dtype}: cast it")
        wanted = (*shape[:axis], places.shape[0], *shape[axis + 1 :])
        if source.numel() == places.shape[0] and source.ndim <= 1 and len(shape) == 1:
            source = reshape(source, wanted)
        if source.shape != wanted:
            raise ShapeError(f"[{name}] expected a source of shape {wanted}, got {source.shape}")
    followed = positions(name, places.detach().long(), shape, axis)
    return tuple([followed if a == axis else slice(None) for a in range(len(shape))]), source


def _index_add(name: str, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    check_tensor(name, source)
    key, values = _entries(name, x, dim, index, source)
    values = values if alpha == 1 else values * alpha
    return _applied(name, x, Accumulate, values, key)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of input with ``alpha * source`` added to the entries along an axis that a vector of integers names."""
    return _index_add("index_add", input, dim, index, source, alpha)


def index_add_(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """``index_add`` into input itself. Returns input."""
    return _index_add("index_add_", input, dim, index, source, alpha)


def _assigned(name: str, x: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
    key, values = _entries(name, x, dim, index, source)
    return _applied(name, x, Assign, values, key)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of input in which the entries along an axis that a vector of integers names are those of ``source``."""
    check_tensor("index_copy", source)
    return _assigned("index_copy", input, dim, index, source)


def index_copy_(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``index_copy`` into input itself. Returns input."""
    check_tensor("index_copy_", source)
    return _assigned("index_copy_", input, dim, index, source)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of input in which the entries along an axis that a vector of integers names hold one number."""
    return _filled("index_fill", input, dim, index, value)


def index_fill_(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """``index_fill`` into input itself. Returns input."""
    return _filled("index_fill_", input, dim, index, value)


def _filled(name: str, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        if value.shape:
            raise ShapeError(f"[{name}] expected a number or a tensor without axes, got shape {value.shape}")
        if value.requires_grad:  # which an entry that is named twice must not count twice
            check_tensor(name, index)
            index = unique(index)
    return _assigned(name, x, dim, index, written_value(name, x, value))


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``index_add`` with "prod", "mean", "amax" or "amin" of all entries at a place, as in ``scatter_reduce``."""
    one_of("index_reduce", "reduce", reduce, ("prod", "mean", "amax", "amin"))
    check_tensor("index_reduce", input, index, source)
    key, values = _entries("index_reduce", input, dim, index, source)
    axis = next(a for a, part in enumerate(key) if isinstance(part, Tensor))
    line = reshape(key[axis], tuple([-1 if a == axis else 1 for a in range(values.ndim)]))
    seen = input if input.shape else reshape(input, (1,))
    out = scatter_reduce(seen, axis, expand(line, values.shape), values, reduce, include_self=include_self)
    return out if input.shape else reshape(out, ())


# -- by a key, a mask, or a place in the flattened tensor --------------------------------------------------------


def _index_put(name: str, x: Tensor, indices: Any, values: Any, accumulate: bool) -> Tensor:
    check_tensor(name, x)
    if not isinstance(indices, (tuple, list)):
        raise ArgumentError(f"[{name}] expected a tuple of index tensors, got {described(indices)}")
    key = resolved_key(name, x, tuple([slice(None) if entry is None else entry for entry in indices]))
    new = written_value(name, x, values, check_shape=False)
    if isinstance(new, Tensor):
        new = fitting(x, key, new)
        new = new.clone() if new.storage is x.storage else new
    function = Accumulate if flag(name, "accumulate", accumulate) else Assign
    if name.endswith("_"):
        return write(name, x, function, new, key)
    return call(function, clone(x), new, key)


@in_widest
def index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy after ``input[indices] = values``, or ``+=`` with ``accumulate``, where repeated elements get all."""
    return _index_put("index_put", input, indices, values, accumulate)


def index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """``index_put`` into input itself. Returns input."""
    return _index_put("index_put_", input, indices, values, accumulate)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input in which the elements that ``index`` names in the flattened tensor are those of ``source``."""
    check_tensor("put", input, index, source)
    check_index("put", input, index)
    if index.numel() != source.numel():
        raise ShapeError(f"[put] expected as many values as indices, got {source.shape} and {index.shape}")
    flat, places = reshape(input, (input.numel(),)), reshape(index, (index.numel(),))
    return reshape(index_put(flat, (places,), reshape(source, places.shape), accumulate), input.shape)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of input in which the elements where a mask holds are the first ones of ``source``, in row-major order."""
    check_tensor("masked_scatter", input, mask, source)
    if not dtypes.is_bool(mask.dtype):
        raise DtypeError(f"[masked_scatter] expected a mask of bool, got {mask.dtype}: compare it first")
    if source.dtype != input.dtype:
        raise DtypeError(f"[masked_scatter] expected a source of {input.dtype}, as x is, got {source.dtype}: cast it")
    wide, where_true = broadcast_tensors(input, mask)
    out, held = clone(wide if wide.shape else reshape(wide, (1,))), where_true.contiguous()
    held = held if held.shape else reshape(held, (1,))
    count = int(held.sum().item())
    if count > source.numel():
        raise ShapeError(f"[masked_scatter] expected at least {count} elements in source, got shape {source.shape}")
    setitem(out, held, getitem(reshape(source, (source.numel(),)), slice(0, count)))
    return out if wide.shape else reshape(out, ())
