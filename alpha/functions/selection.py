"""What holds, and where: places of elements, distinct values, places in an order, repeats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, one_axis, one_of, shape_of, whole
from alpha.conversion import tensor
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError, described
from alpha.functions.arithmetic import floor_divide
from alpha.functions.indexing import getitem
from alpha.functions.lookups import index_select
from alpha.functions.operands import check_room, check_tensor, is_number, operands
from alpha.functions.shape import expand, reshape
from alpha.functions.views import broadcast_tensors
from alpha.tensor import Tensor

__all__ = [
    "argwhere",
    "bucketize",
    "isin",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "repeat_interleave",
    "searchsorted",
    "unique",
    "unique_consecutive",
    "unravel_index",
]

Array = np.ndarray[Any, Any]


def _array(x: Tensor) -> Array:
    """The values on the host, outside the graph; OutOfMemoryError for an expanded tensor that no copy would fit."""
    check_room(x.engine, x.shape, x.dtype)
    return x.engine.to_numpy(x.detach())


# -- where elements are ------------------------------------------------------------------------------------------


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of elements that differ from 0, in row-major order: (count, axes), or a tensor per axis."""
    check_tensor("nonzero", input)
    if flag("nonzero", "as_tuple", as_tuple):
        return tuple([input.engine.from_numpy(part) for part in np.nonzero(np.atleast_1d(_array(input)))])
    return input.engine.from_numpy(np.argwhere(_array(input)))


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first ``size`` indices of ``nonzero``, (size, axes); where there are fewer, rows of ``fill_value`` follow."""
    check_tensor("nonzero_static", input)
    count, filler = whole("nonzero_static", "size", size, 0), whole("nonzero_static", "fill_value", fill_value)
    check_room(input.engine, (count, input.ndim), dtypes.default_int)
    found = np.argwhere(_array(input))[:count]
    rows = np.full((count, input.ndim), filler, np.int64)
    rows[: len(found)] = found
    return input.engine.from_numpy(rows)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The indices along each axis of a shape that indices into its elements in row-major order stand for.

    Tensors of int64 like ``indices``, one per axis; a negative index counts from the end. IndexingError for one beyond
    the elements, where PyTorch's indices wrap around.
    """
    check_tensor("unravel_index", indices)
    if not dtypes.is_integer(indices.dtype):
        raise DtypeError(f"[unravel_index] expected integers, got {indices.dtype}: cast them")
    lengths = shape_of("unravel_index", (shape,))
    count = math.prod(lengths)
    places = indices.detach().long()
    if places.numel():
        message = f"[unravel_index] expected indices of {count} elements of shape {lengths}, got {{value}}"
        places = places.engine.check_range(places, -count, count, RangeCheck(IndexingError, message))
    found = []
    for length in reversed(lengths):
        found.append(places % max(length, 1))
        places = floor_divide(places, max(length, 1))
    return tuple(reversed(found))


def argwhere(input: Tensor) -> Tensor:
    """The indices of elements that differ from 0, in row-major order: (count, axes)."""
    check_tensor("argwhere", input)
    found: Tensor = nonzero(input)
    return found


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask (bool) holds, in row-major order; input and the mask broadcast."""
    check_tensor("masked_select", input, mask)
    if not dtypes.is_bool(mask.dtype):
        raise DtypeError(f"[masked_select] expected a mask of bool, got {mask.dtype}: compare it first")
    wide, held = broadcast_tensors(input, mask)
    if not wide.shape:
        wide, held = reshape(wide, (1,)), reshape(held, (1,))
    return getitem(wide, held.contiguous())


# -- distinct values ---------------------------------------------------------------------------------------------


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or entries along an axis, in ascending order whatever ``sorted`` says.

    With them, where asked for, for each element its place among them, and how often each occurs.
    """
    check_tensor("unique", input)
    flag("unique", "sorted", sorted)
    inverse, counts = flag("unique", "return_inverse", return_inverse), flag("unique", "return_counts", return_counts)
    axis = None if dim is None else one_axis("unique", dim, input.ndim)
    array = _array(input)
    if axis is None and dtypes.is_integer(input.dtype) and array.size:
        least, most = int(array.min()), int(array.max())
        if most - least < _SPREAD * array.size:
            return _several([input.engine.from_numpy(part) for part in _counted(array, least, most, inverse, counts)])
    distinct: Any = np.unique  # whose types tell one result from several by literals alone
    found = distinct(array, return_inverse=inverse, return_counts=counts, axis=axis, equal_nan=False)
    parts = list(found) if isinstance(found, tuple) else [found]
    if inverse:
        parts[1] = parts[1].reshape(array.shape if axis is None else -1)
    if axis is None:
        parts[0] = parts[0].reshape(-1)
    return _several([input.engine.from_numpy(part) for part in parts])


_SPREAD = 2
"""Range of integers, relative to their number, in which they are counted and not sorted."""


def _counted(array: Array, least: int, most: int, inverse: bool, counts: bool) -> list[Array]:
    """The distinct integers of a range, their places and their counts, where asked for."""
    shifted = np.subtract(array, least, dtype=np.int64)
    found = np.bincount(shifted.reshape(-1), minlength=most - least + 1)
    is_there = found > 0
    parts = [(np.flatnonzero(is_there) + least).astype(array.dtype)]
    if inverse:
        parts.append((np.cumsum(is_there) - 1)[shifted])
    return [*parts, found[is_there]] if counts else parts


def _several(parts: list[Tensor]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal elements, or of equal entries along an axis, in their order.

    With them, where asked for, for each element the place of its run, and how long each run is.
    """
    check_tensor("unique_consecutive", input)
    inverse = flag("unique_consecutive", "return_inverse", return_inverse)
    counts = flag("unique_consecutive", "return_counts", return_counts)
    given = _array(input)
    axis = None if dim is None else one_axis("unique_consecutive", dim, input.ndim)
    lines = given.reshape(-1, 1) if axis is None else _lines(given, axis)
    is_first = np.ones(len(lines), bool)
    is_first[1:] = (lines[1:] != lines[:-1]).any(1)
    places = np.flatnonzero(is_first)
    values = given.reshape(-1)[places] if axis is None else np.take(given, places, axis)
    parts = [values]
    if inverse:
        parts.append((np.cumsum(is_first) - 1).reshape(given.shape if axis is None else -1))
    if counts:
        parts.append(np.diff(np.append(places, len(lines))))
    return _several([input.engine.from_numpy(part) for part in parts])


def _lines(array: Array, axis: int) -> Array:
    """A matrix with an entry along an axis in each row."""
    length = array.shape[axis]
    return np.moveaxis(array, axis, 0).reshape(length, array.size // length if length else 0)


# -- places in an order ------------------------------------------------------------------------------------------


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values belong in ascending lines, the last axis of ``sorted_sequence``: before equal ones, or behind.

    A sequence of one axis serves any values, others those of the same leading axes. ``right``, or ``side="right"``:
    behind equal ones. ``sorter``: the indices that sort the lines.
    """
    name = "searchsorted"
    check_tensor(name, sorted_sequence)
    if side is not None:
        one_of(name, "side", side, ("left", "right"))
    behind = flag(name, "right", right) or side == "right"
    if behind and side == "left":
        raise ArgumentError(f"[{name}] expected one side, got right=True and side='left'")
    engine = sorted_sequence.engine
    values = tensor(input, engine=engine) if is_number(input) else input
    check_tensor(name, values)
    engine.check_owner(name, values)
    if dtypes.is_complex(values.dtype) or dtypes.is_complex(sorted_sequence.dtype):
        raise DtypeError(f"[{name}] expected numbers with an order, got complex ones: take .abs(), .real or .imag")
    lines = _array(sorted_sequence)
    if sorter is not None:
        check_tensor(name, sorter)
        if sorter.shape != sorted_sequence.shape:
            raise ShapeError(f"[{name}] expected a sorter of shape {lines.shape}, got {sorter.shape}")
        lines = np.take_along_axis(lines, _array(sorter), -1)
    if not lines.ndim or (lines.ndim > 1 and lines.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            f"[{name}] expected a sequence of one axis, or of the values' leading axes, got {lines.shape} and "
            f"{values.shape}"
        )
    found = _places(lines, _array(values), behind)
    kind = dtypes.int32 if flag(name, "out_int32", out_int32) else dtypes.default_int
    return engine.from_numpy(np.asarray(found).astype(kind, copy=False))


def _places(lines: Array, values: Array, behind: bool) -> Array:
    """Where values belong in lines; of several lines by sorting both together, stably."""
    if lines.ndim == 1:
        return np.asarray(np.searchsorted(lines, values, "right" if behind else "left"))
    count, length = values.shape[-1], lines.shape[-1]
    both = (lines, values) if behind else (values, lines)
    order = np.argsort(np.concatenate(both, -1), -1, kind="stable")
    is_value = order >= length if behind else order < count
    passed = np.cumsum(~is_value, -1)
    found = np.empty(order.shape, np.int64)
    np.put_along_axis(found, order, passed, -1)
    return found[..., length:] if behind else found[..., :count]


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Which interval between ascending boundaries each value is in: ``searchsorted(boundaries, input)``."""
    check_tensor("bucketize", boundaries)
    if boundaries.ndim != 1:
        raise ShapeError(f"[bucketize] expected boundaries of one axis, got shape {boundaries.shape}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among the test elements; either may be a number."""
    flag("isin", "assume_unique", assume_unique)  # nothing is done that would depend on it
    one, other = operands("isin", elements, test_elements)
    engine = next(x.engine for x in (one, other) if isinstance(x, Tensor))
    given, tested = (_array(x) if isinstance(x, Tensor) else np.asarray(x) for x in (one, other))
    found = np.isin(given, tested, invert=flag("isin", "invert", invert))
    return engine.from_numpy(np.asarray(found))


# -- repeats -----------------------------------------------------------------------------------------------------


def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element, or entry along an axis, so many times in a row; ``repeats``: an int, or one for each of them.

    Without ``repeats`` input has the counts, and the result is each count's place so many times.
    """
    name = "repeat_interleave"
    check_tensor(name, input)
    if repeats is None:
        counts = _counts(name, input, input.numel())
        index = np.repeat(np.arange(input.numel(), dtype=input.dtype), counts)
        return input.engine.from_numpy(index)
    input, axis = (reshape(input, (input.numel(),)), 0) if dim is None else (input, dim)
    input = input if input.shape else reshape(input, (1,))
    axis = one_axis(name, axis, input.ndim)
    length = input.shape[axis]
    if not isinstance(repeats, Tensor) or repeats.numel() == 1:
        times = whole(name, "repeats", repeats.item() if isinstance(repeats, Tensor) else repeats, 0)
        wide = reshape(input, (*input.shape[: axis + 1], 1, *input.shape[axis + 1 :]))
        wide = expand(wide, (*input.shape[: axis + 1], times, *input.shape[axis + 1 :]))
        found = reshape(wide, (*input.shape[:axis], length * times, *input.shape[axis + 1 :]))
    else:
        index = np.repeat(np.arange(length), _counts(name, repeats, length))
        found = index_select(input, axis, input.engine.from_numpy(index))
    if output_size is not None and output_size != found.shape[axis]:
        raise ArgumentError(f"[{name}] expected output_size {found.shape[axis]}, got {described(output_size)}")
    return found


def _counts(name: str, repeats: Tensor, length: int) -> Array:
    """How often each entry is repeated."""
    if not dtypes.is_integer(repeats.dtype) or repeats.ndim != 1 or repeats.shape[0] != length:
        raise ShapeError(
            f"[{name}] expected {length} ints (int32 or int64) as repeats, got {repeats.dtype} of shape {repeats.shape}"
        )
    counts = _array(repeats)
    if (counts < 0).any():
        raise ArgumentError(f"[{name}] expected repeats >= 0, got {int(counts.min())}")
    return counts
