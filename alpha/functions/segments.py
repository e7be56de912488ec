"""Reductions over segments: consecutive entries along an axis, each segment with a length of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number, one_axis, one_of
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.arithmetic import add, div, mul
from alpha.functions.comparison import where
from alpha.functions.operands import check_float, check_room
from alpha.functions.scattering import index_add, scatter_reduce
from alpha.functions.shape import expand, reshape
from alpha.functions.views import narrow
from alpha.tensor import Tensor

__all__ = ["segment_reduce"]

Array = np.ndarray[Any, Any]

_EMPTY = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""What a segment without entries gives."""


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """The "sum", "mean", "prod", "max" or "min" of each segment of entries along an axis; floats.

    Args:
        data: (*B, N, *rest), N being the length of the axis.
        lengths: (*B, S) integers >= 0 that add up to N in each row: how many entries each segment has.
        offsets: in their place (*B, S + 1) ascending integers from 0 to N: where segments begin and the last one ends.
        unsafe: whether lengths may add up to less; entries behind the last segment count nothing.
        initial: a number that each segment begins with; a mean's sum, too. Without one a segment without entries is 0,
            of products 1, of means NaN, of extremes the infinity that any entry replaces.

    Returns (*B, S, *rest). Equal extremes share the gradient.
    """
    check_float("segment_reduce", data)
    one_of("segment_reduce", "reduce", reduce, list(_EMPTY))
    place = one_axis("segment_reduce", axis, data.ndim)
    start = None if initial is None else number("segment_reduce", "initial", initial)
    edges = _edges(data, lengths, offsets, place, flag("segment_reduce", "unsafe", unsafe))
    batch, size, rest = data.shape[:place], data.shape[place], data.shape[place + 1 :]
    rows, count, width = math.prod(batch), edges.shape[1] - 1, math.prod(rest)
    check_room(data.engine, (rows, count + 1, width), data.dtype)
    index = data.engine.from_numpy(_segments(edges, size).reshape(-1))
    reduced = _reduced(reshape(data, (rows * size, width)), index, reduce, rows * (count + 1))
    kept = narrow(reshape(reduced, (rows, count + 1, width)), 1, 0, count)
    amounts = data.engine.from_numpy(np.diff(edges)[:, :, None].astype(data.dtype))
    return reshape(_begun(kept, amounts, reduce, start), (*batch, count, *rest))


def _edges(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, unsafe: bool) -> Array:
    """Where segments begin and the last one ends, (rows, segments + 1); an error where they are no segments of data."""
    if (lengths is None) == (offsets is None):
        raise ArgumentError("[segment_reduce] expected either lengths or offsets, got both or none of them")
    name, given = ("lengths", lengths) if lengths is not None else ("offsets", offsets)
    if not isinstance(given, Tensor):
        raise DtypeError(f"[segment_reduce] expected {name} as a Tensor, got {described(given)}")
    if not dtypes.is_integer(given.dtype):
        raise DtypeError(f"[segment_reduce] expected {name} as integers, got {given.dtype}: cast them")
    if given.ndim != axis + 1 or given.shape[:-1] != data.shape[:axis] or (name == "offsets" and not given.shape[-1]):
        raise ShapeError(
            f"[segment_reduce] expected {name} of shape {(*data.shape[:axis], 'S')}, got {given.shape}: its last axis "
            f"stands for axis {axis} of the data"
        )
    size = data.shape[axis]
    values = given.engine.to_numpy(given.detach()).reshape(math.prod(data.shape[:axis]), -1).astype(np.int64)
    if name == "offsets":
        edges = values
    else:
        edges = np.concatenate([np.zeros((len(values), 1), np.int64), np.cumsum(values, 1)], 1)
    whole = unsafe or name == "offsets" or bool((edges[:, -1] == size).all())
    if not whole or (np.diff(edges) < 0).any() or (edges < 0).any() or (edges > size).any():
        raise ArgumentError(f"[segment_reduce] expected {name} of segments that make up {size} entries, got others")
    return edges


def _segments(edges: Array, size: int) -> Array:
    """The segment of each entry, numbered through all rows, of which each has one more, for entries in none."""
    rows, count = len(edges), edges.shape[1] - 1
    begun = np.zeros((rows, size + 1), np.int64)
    np.add.at(begun, (np.arange(rows)[:, None], edges[:, :-1]), 1)
    entries = np.arange(size)
    is_inside = (entries >= edges[:, :1]) & (entries < edges[:, -1:])
    found: Array = np.where(is_inside, begun.cumsum(1)[:, :size] - 1, count)
    found += np.arange(rows)[:, None] * (count + 1)
    return found


def _reduced(data: Tensor, index: Tensor, reduce: str, count: int) -> Tensor:
    """The entries of data reduced by the segments that an index names, (count, width)."""
    empty = 0.0 if reduce == "mean" else _EMPTY[reduce]
    base = data.new_full((count, data.shape[1]), empty)
    if reduce in ("sum", "mean"):
        return index_add(base, 0, index, data)
    wide = expand(reshape(index, (-1, 1)), data.shape).contiguous()
    kind = reduce if reduce == "prod" else f"a{reduce}"
    return scatter_reduce(base, 0, wide, data, kind, include_self=False)


def _begun(x: Tensor, amounts: Tensor, reduce: str, start: float | None) -> Tensor:
    """Reductions that begin with a number; means divided by how many entries there are."""
    if start is not None and reduce in ("max", "min"):
        return where(x < start if reduce == "max" else x > start, start, x)
    if start is not None:
        x = mul(x, start) if reduce == "prod" else add(x, start)
    if reduce != "mean":
        return x
    return where(amounts > 0, div(x, amounts.clamp(min=1)), _EMPTY["mean"] if start is None else start)
