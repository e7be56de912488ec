"""Rows of a table by their numbers: embedding, and embedding_bag, which sums them up."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, flag, number, whole
from alpha.autograd import Function, no_grad
from alpha.autograd.composing import returned
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError, described
from alpha.functions.elementwise import div, minimum, where
from alpha.functions.extremes import any, max
from alpha.functions.indexing import setitem
from alpha.functions.lookups import index_select
from alpha.functions.operands import call, check_float, check_tensor
from alpha.functions.reduction import sum
from alpha.functions.shape import reshape, unsqueeze
from alpha.functions.vector_norms import norm
from alpha.launches import INDEX_SELECT
from alpha.tensor import Tensor

__all__ = ["embedding", "embedding_bag"]

_ROW = slice(None)


class Embedding(Function):
    """The rows that an index names, as a copy; repeated rows add up their gradients, or average them."""

    fresh = True

    def forward(self, weight: Tensor, index: Tensor, padding: int | None, averages: bool = False) -> Tensor:
        self.padding, self.shape, self.order = padding, weight.shape, weight.memory_order()
        self.averages = averages
        engine, check = weight.storage.engine, _within(weight.shape[0])
        if not self.needs[0]:
            return engine.index_select(weight, index, 0, check, from_end=False)
        if index.numel():  # backward follows what was checked, whoever writes to it meanwhile
            index = engine.check_range(index, 0, weight.shape[0], check)
        self.save(index)
        return engine.index_select(weight, index, 0)

    def backward(self, grad: Tensor) -> Tensor:
        (index,) = self.saved
        if self.averages:
            grad = grad / _counts(index, self.shape[0], grad)
        return call(RowSums, grad, index, self.shape, self.order, self.padding)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        (index,) = self.saved

        def again(g: Tensor) -> Tensor:
            rows: Tensor = g[index]
            return rows if self.padding is None else where((index != self.padding).unsqueeze(-1), rows, 0.0)

        return returned(self, grad, again)


class RowSums(Function):
    """A table of zeros with rows added where an index names them, but for one row."""

    fresh = True

    def forward(self, rows: Tensor, index: Tensor, shape: Shape, order: Shape | None, padding: int | None) -> Tensor:
        self.padding = padding
        self.save(index)
        engine = rows.engine
        whole = engine.full(shape, 0, rows.dtype, order)
        engine.scatter(whole, (index, _ROW), rows, True)
        if padding is not None:
            row = whole.strided(padding * whole.strides[0], whole.shape[1:], whole.strides[1:])
            engine.fill(row, 0)
        return whole

    def backward(self, grad: Tensor) -> Tensor:
        (index,) = self.saved
        rows = reshape(index_select(grad, 0, reshape(index, (-1,))), (*index.shape, grad.shape[1]))
        return rows if self.padding is None else where(unsqueeze(index == self.padding, -1), 0.0, rows)


def _counts(index: Tensor, rows: int, like: Tensor) -> Tensor:
    """How often each element of an index occurs in it, with an axis of length 1 behind."""
    ones = like.engine.full((*index.shape, 1), 1, like.dtype)
    counts = call(RowSums, ones, index, (rows, 1), None, None)
    return reshape(index_select(counts, 0, reshape(index, (-1,))), ones.shape)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """``weight[input]``: the row of a table for each element of an integer tensor.

    Args:
        input: integers in 0..rows-1, of any shape.
        weight: (rows, columns).
        padding_idx: a row that gets no gradient; negative counts from the end.
        max_norm: rows that are looked up and whose norm is larger are scaled to it, in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: whether a row that is looked up several times gets the mean of its gradients.
        sparse: False: gradients are dense.

    Returns (*input.shape, columns). IndexingError (an IndexError) for an index outside the table.
    """
    plain = max_norm is None and scale_grad_by_freq is False and sparse is False
    if padding_idx is None and plain:
        found: Tensor | None = INDEX_SELECT.launch_outside(weight, 0, input, False)
        if found is not None:
            return found
    check_tensor("embedding", input)
    check_float("embedding", weight)
    input.engine.check_owner("embedding", weight)
    if not dtypes.is_integer(input.dtype):
        raise DtypeError(f"[embedding] expected an index of integers, got {input.dtype}: cast it with .long()")
    padding = _checked_row("embedding", weight, padding_idx)
    index = input.detach().long()
    averages = False
    if not plain:
        averages = flag("embedding", "scale_grad_by_freq", scale_grad_by_freq)
        _limit("embedding", weight, index, max_norm, norm_type, sparse)
    return call(Embedding, weight, index, padding, averages)


def _checked_row(function: str, weight: Tensor, padding_idx: int | None) -> int | None:
    """The row without a gradient, counted from the first."""
    if weight.ndim != 2:
        raise ShapeError(f"[{function}] expected a weight (rows, columns), got shape {weight.shape}")
    if padding_idx is None:
        return None
    rows, padding_idx = weight.shape[0], whole(function, "padding_idx", padding_idx)
    if not -rows <= padding_idx < rows:
        raise ArgumentError(f"[{function}] expected padding_idx within {rows} rows, got {padding_idx}")
    return padding_idx % rows


def _limit(function: str, weight: Tensor, index: Tensor, max_norm: Any, norm_type: float, sparse: bool) -> None:
    """Scales the rows that an index names to a norm at most, in place."""
    if flag(function, "sparse", sparse):
        raise ArgumentError(f"[{function}] expected sparse=False, got True: gradients are dense here")
    if max_norm is None or not index.numel():
        return
    limit, p = number(function, "max_norm", max_norm), number(function, "norm_type", norm_type)
    with no_grad():
        flat = reshape(weight.engine.check_range(index, 0, weight.shape[0], _within(weight.shape[0])), (-1,))
        rows = index_select(weight, 0, flat)
        setitem(weight.detach(), flat, rows * minimum(div(limit, norm(rows, p, 1, True) + 1e-7), 1.0))


@lru_cache(maxsize=1024)
def _within(rows: int) -> RangeCheck:
    """The error of an index outside a table."""
    message = f"[embedding] expected indices in 0..{rows - 1}, got {{value}}: use a weight of more rows"
    return RangeCheck(IndexingError, message)


# -- bags --------------------------------------------------------------------------------------------------------


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows that each bag of indices names; 0 of an empty bag.

    Args:
        input: integers (bags, length), or (count,) with ``offsets``.
        weight: (rows, columns).
        offsets: (bags,), where each bag begins, from 0 on; with ``include_last_offset`` also where the last one ends.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for ``embedding``.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        per_sample_weights: shaped as the input; factors of the rows of ``"sum"``.
        padding_idx: a row that counts as if it were in no bag.

    Returns (bags, columns).
    """
    name = "embedding_bag"
    check_tensor(name, input)
    check_float(name, weight)
    input.engine.check_owner(name, weight)
    padding, averages = _checked_row(name, weight, padding_idx), flag(name, "scale_grad_by_freq", scale_grad_by_freq)
    if not isinstance(mode, str) or mode not in ("sum", "mean", "max"):
        raise ArgumentError(f'[{name}] expected mode "sum", "mean" or "max", got {described(mode)}')
    if not dtypes.is_integer(input.dtype) or input.ndim not in (1, 2) or (input.ndim == 2) != (offsets is None):
        raise ShapeError(
            f"[{name}] expected integers (bags, length) without offsets, or (count,) with offsets, got {input.shape} "
            f"of {input.dtype} and {'no' if offsets is None else 'some'} offsets"
        )
    _check_factors(name, mode, input, weight, per_sample_weights, averages)
    index = reshape(input.detach().long(), (-1,))
    _limit(name, weight, index, max_norm, norm_type, sparse)
    starts = _starts(name, input, offsets, include_last_offset)
    bags = len(starts) - 1
    rows = call(Embedding, weight, index, padding, averages)
    kept = None if padding is None else index != padding
    if mode == "max":
        return _largest(rows, starts, kept)
    if kept is not None:
        rows = where(unsqueeze(kept, 1), rows, 0.0)
    if per_sample_weights is not None:
        rows = rows * reshape(per_sample_weights, (-1, 1))
    if input.ndim == 2 and index.numel():
        sums = sum(reshape(rows, (*input.shape, rows.shape[1])), 1)
    else:
        sums = call(RowSums, rows, _owners(rows, starts), (bags, weight.shape[1]), None, None)
    if mode == "sum":
        return sums
    if kept is None:
        counts = rows.engine.from_numpy(np.maximum(np.diff(starts), 1).astype(rows.dtype)[:, None])
    else:
        ones = kept.astype(rows.dtype)
        counts = call(RowSums, unsqueeze(ones, 1), _owners(rows, starts), (bags, 1), None, None).clamp(1)
    return sums / counts


def _check_factors(name: str, mode: str, input: Tensor, weight: Tensor, factors: Tensor | None, averages: bool) -> None:
    if averages and mode == "max":
        raise ArgumentError(f'[{name}] expected no scale_grad_by_freq with mode "max", got True')
    if factors is None:
        return
    check_float(name, factors)
    input.engine.check_owner(name, factors)
    if mode != "sum" or factors.shape != input.shape or factors.dtype != weight.dtype:
        raise ArgumentError(
            f'[{name}] expected per_sample_weights of shape {input.shape} and {weight.dtype} with mode "sum" alone, '
            f'got {factors.shape} of {factors.dtype} with "{mode}"'
        )


def _starts(name: str, input: Tensor, offsets: Tensor | None, include_last: bool) -> np.ndarray[Any, Any]:
    """Where each bag begins, and where the last one ends."""
    if offsets is None:
        return np.arange(input.shape[0] + 1) * input.shape[1]
    check_tensor(name, offsets)
    if offsets.ndim != 1 or not dtypes.is_integer(offsets.dtype):
        raise ShapeError(f"[{name}] expected offsets of integers (bags,), got {offsets.shape} of {offsets.dtype}")
    count = input.shape[0]
    found = np.array(offsets.detach().numpy(), np.int64)
    if not flag(name, "include_last_offset", include_last):
        found = np.append(found, count)
    if not len(found) or found[0] != 0 or found[-1] > count or (np.diff(found) < 0).any():
        raise ArgumentError(f"[{name}] expected offsets that rise from 0 to {count}, got {described(found)}")
    found[-1] = count
    return found


def _owners(rows: Tensor, starts: np.ndarray[Any, Any]) -> Tensor:
    """The bag of each row."""
    return rows.engine.from_numpy(np.repeat(np.arange(len(starts) - 1), np.diff(starts)))


def _largest(rows: Tensor, starts: np.ndarray[Any, Any], kept: Tensor | None) -> Tensor:
    """The maxima of bags: rows in a table of a column per place in a bag, where shorter bags have -infinity."""
    lengths, engine = np.diff(starts), rows.engine
    longest = int(lengths.max()) if len(lengths) else 0
    if not longest or not rows.shape[1]:
        return engine.full((len(lengths), rows.shape[1]), 0, rows.dtype)
    places = np.arange(longest)
    inside = engine.from_numpy(places < lengths[:, None])
    table = engine.from_numpy(np.minimum(starts[:-1, None] + places, starts[-1] - 1).reshape(-1))
    if kept is not None:
        inside = inside & reshape(index_select(kept, 0, table), inside.shape)
    laid = reshape(index_select(rows, 0, table), (*inside.shape, rows.shape[1]))
    values, _ = max(where(unsqueeze(inside, 2), laid, -np.inf), 1)
    return where(any(inside, 1, keepdim=True), values, 0.0)
