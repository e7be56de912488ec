"""Embedding: rows of a table by their numbers."""

from __future__ import annotations

from functools import lru_cache

from alpha import dtypes
from alpha.arguments import whole
from alpha.autograd import Function
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError
from alpha.functions.operands import call, check_float, check_tensor
from alpha.launches import INDEX_SELECT
from alpha.tensor import Tensor

__all__ = ["embedding"]

_ROW = slice(None)


class Embedding(Function):
    """The rows that an index names, as a copy; repeated rows add up their gradients."""

    fresh = True

    def forward(self, weight: Tensor, index: Tensor, padding: int | None) -> Tensor:
        self.padding, self.shape, self.order = padding, weight.shape, weight.memory_order()
        engine, check = weight.storage.engine, _within(weight.shape[0])
        if not self.needs[0]:
            return engine.index_select(weight, index, 0, check, from_end=False)
        if index.numel():  # backward follows what was checked, whoever writes to it meanwhile
            index = engine.check_range(index, 0, weight.shape[0], check)
        self.save(index)
        return engine.index_select(weight, index, 0)

    def backward(self, grad: Tensor) -> Tensor:
        (index,) = self.saved
        engine = grad.engine
        whole = engine.full(self.shape, 0, grad.dtype, self.order)
        engine.scatter(whole, (index, _ROW), grad, True)
        if self.padding is not None:
            row = whole.strided(self.padding * whole.strides[0], self.shape[1:], whole.strides[1:])
            engine.fill(row, 0)
        return whole


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """``weight[input]``: the row of a table for each element of an integer tensor.

    Args:
        input: integers in 0..rows-1, of any shape.
        weight: (rows, columns).
        padding_idx: a row that gets no gradient; negative counts from the end.

    Returns (*input.shape, columns). IndexingError (an IndexError) for an index outside the table.
    """
    if padding_idx is None:
        found: Tensor | None = INDEX_SELECT.launch_outside(weight, 0, input, False)
        if found is not None:
            return found
    check_tensor("embedding", input)
    check_float("embedding", weight)
    input.engine.check_owner("embedding", weight)
    if not dtypes.is_integer(input.dtype):
        raise DtypeError(f"[embedding] expected an index of integers, got {input.dtype}: cast it with .long()")
    if weight.ndim != 2:
        raise ShapeError(f"[embedding] expected a weight (rows, columns), got shape {weight.shape}")
    rows = weight.shape[0]
    if padding_idx is not None:
        padding_idx = whole("embedding", "padding_idx", padding_idx)
        if not -rows <= padding_idx < rows:
            raise ArgumentError(f"[embedding] expected padding_idx within {rows} rows, got {padding_idx}")
    return call(Embedding, weight, input.detach().long(), None if padding_idx is None else padding_idx % rows)


@lru_cache(maxsize=1024)
def _within(rows: int) -> RangeCheck:
    """The error of an index outside a table."""
    message = f"[embedding] expected indices in 0..{rows - 1}, got {{value}}: use a weight of more rows"
    return RangeCheck(IndexingError, message)
