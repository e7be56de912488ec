"""Diagonals and triangles of matrices, and copies in which a part is another tensor's."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from alpha import dtypes, engines
from alpha.arguments import flag, one_axis, whole
from alpha.errors import ShapeError
from alpha.expressions.functions import pointwise
from alpha.functions.creation import host_made
from alpha.functions.elementwise import ge, le, where
from alpha.functions.indexing import getitem, setitem
from alpha.functions.inplace import copy_
from alpha.functions.joining import several
from alpha.functions.operands import call, check_room, check_tensor
from alpha.functions.reduction import sum
from alpha.functions.shape import reshape
from alpha.functions.views import Strided, as_strided, select
from alpha.places import chosen
from alpha.tensor import Tensor

__all__ = [
    "as_strided_scatter",
    "block_diag",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_scatter",
    "select_scatter",
    "slice_scatter",
    "trace",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
]

# -- triangles ---------------------------------------------------------------------------------------------------


@pointwise
def _lower(x: Any, row: Any, column: Any) -> Any:
    return where(ge(row, column), x, 0.0)


@pointwise
def _upper(x: Any, row: Any, column: Any) -> Any:
    return where(le(row, column), x, 0.0)


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and below a diagonal of each matrix, 0 elsewhere; ``diagonal`` 1 is above the main one."""
    return _triangle("tril", input, diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and above a diagonal of each matrix, 0 elsewhere; ``diagonal`` 1 is above the main one."""
    return _triangle("triu", input, diagonal)


def _triangle(name: str, x: Tensor, diagonal: int) -> Tensor:
    check_tensor(name, x)
    if x.ndim < 2:
        raise ShapeError(f"[{name}] expected at least two axes, got shape {x.shape}")
    k = whole(name, "diagonal", diagonal)
    rows, columns = x.shape[-2:]
    k = max(-rows, min(k, columns))
    kind = x.dtype if dtypes.is_float(x.dtype) else dtypes.default_int  # whole numbers, which both hold
    row = reshape(x.engine.progression(k, 1, rows, kind), (rows, 1))
    column = x.engine.progression(0, 1, columns, kind)
    if dtypes.is_float(x.dtype):
        return _lower(x, row, column) if name == "tril" else _upper(x, row, column)
    return where(ge(row, column) if name == "tril" else le(row, column), x, False)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: dtypes.DtypeLike = dtypes.default_int, engine: Any = None,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """(2, N): the rows and the columns of the elements on and below a diagonal."""
    return _indices("tril_indices", row, col, offset, dtype, chosen("tril_indices", engine, device))


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: dtypes.DtypeLike = dtypes.default_int, engine: Any = None,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """(2, N): the rows and the columns of the elements on and above a diagonal."""
    return _indices("triu_indices", row, col, offset, dtype, chosen("triu_indices", engine, device))


def _indices(name: str, row: int, col: int, offset: int, dtype: dtypes.DtypeLike, engine: Any) -> Tensor:
    rows, columns = whole(name, "row", row, 0), whole(name, "col", col, 0)
    offset = whole(name, "offset", offset)
    make = np.tril_indices if name == "tril_indices" else np.triu_indices
    target, kind = engines.resolve(engine), dtypes.as_dtype(dtype, name)
    for shape in ((rows, columns), (max(rows, columns),)):  # NumPy's mask, and the numbers that it compares
        check_room(target, shape, dtypes.default_int)
    key = name, rows, columns, max(-rows, min(offset, columns)), kind
    return host_made(target, key, lambda: np.stack(make(rows, offset, columns)).astype(kind))


# -- diagonals ---------------------------------------------------------------------------------------------------


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of each matrix of two axes, as a new last axis; a view. ``offset`` 1 is above the main one."""
    check_tensor("diagonal", input)
    first, second = one_axis("diagonal", dim1, input.ndim), one_axis("diagonal", dim2, input.ndim)
    if first == second:
        raise ShapeError(f"[diagonal] expected two different axes, got {dim1} and {dim2} for shape {input.shape}")
    offset = whole("diagonal", "offset", offset)
    rows, columns = input.shape[first], input.shape[second]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    rest = [axis for axis in range(input.ndim) if axis not in (first, second)]
    shape = (*[input.shape[axis] for axis in rest], length)
    strides = (*[input.strides[axis] for axis in rest], input.strides[first] + input.strides[second])
    start = offset * input.strides[second] if offset >= 0 else -offset * input.strides[first]
    return call(Strided, input, input.offset + (start if length else 0), shape, strides)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with a vector on a diagonal and 0 elsewhere, or the diagonal of a matrix."""
    check_tensor("diag", input)
    if input.ndim not in (1, 2):
        raise ShapeError(f"[diag] expected a vector or a matrix, got shape {input.shape}: see diag_embed and diagonal")
    return diag_embed(input, diagonal) if input.ndim == 1 else _diagonal(input, diagonal).clone()


_diagonal = diagonal


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on a diagonal and 0 elsewhere."""
    check_tensor("diagflat", input)
    return diag_embed(reshape(input, (input.numel(),)), offset)


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of two new axes, each with a line of the last axis on a diagonal and 0 elsewhere."""
    check_tensor("diag_embed", input)
    if not input.shape:
        raise ShapeError("[diag_embed] expected at least one axis, got shape ()")
    first, second = one_axis("diag_embed", dim1, input.ndim + 1), one_axis("diag_embed", dim2, input.ndim + 1)
    offset = whole("diag_embed", "offset", offset)
    length = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for axis in sorted((first, second)):
        shape.insert(axis, length)
    if first == second:
        raise ShapeError(f"[diag_embed] expected two different axes, got {dim1} and {dim2}")
    out = input.engine.full(shape, 0, input.dtype)
    copy_(diagonal(out, offset, first, second), input)
    return out


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    check_tensor("trace", input)
    if input.ndim != 2:
        raise ShapeError(f"[trace] expected a matrix, got shape {input.shape}")
    return sum(diagonal(input))


def block_diag(*tensors: Any) -> Tensor:
    """A matrix with matrices along its diagonal and 0 elsewhere; vectors count as rows."""
    if not tensors:
        return engines.resolve(None).full((1, 0), 0, dtypes.default_float)
    found = several("block_diag", tensors)
    if any(x.ndim > 2 for x in found):
        raise ShapeError(f"[block_diag] expected at most two axes, got {', '.join(str(x.shape) for x in found)}")
    blocks = [reshape(x, (1, x.numel())) if x.ndim < 2 else x for x in found]
    row = column = 0
    size = [0, 0]
    for block in blocks:
        size = [total + n for total, n in zip(size, block.shape, strict=True)]
    out = blocks[0].engine.full(size, 0, blocks[0].dtype)
    for block in blocks:
        setitem(out, (slice(row, row + block.shape[0]), slice(column, column + block.shape[1])), block)
        row, column = row + block.shape[0], column + block.shape[1]
    return out


# -- copies with a part overwritten ------------------------------------------------------------------------------


def _replaced(name: str, x: Tensor, src: Tensor, part: Any) -> Tensor:
    """A copy of x whose part, a view that ``part`` makes of it, is the other tensor's."""
    check_tensor(name, x, src)
    out = x.clone()
    view = part(out)
    if view.shape != src.shape:
        raise ShapeError(f"[{name}] expected src of the part's shape {view.shape}, got {src.shape}")
    copy_(view, src)
    return out


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input whose diagonals are ``src``."""
    return _replaced("diagonal_scatter", input, src, lambda out: diagonal(out, offset, dim1, dim2))


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input whose entry along an axis is ``src``."""
    return _replaced("select_scatter", input, src, lambda out: select(out, dim, index))


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of input whose entries ``start:end:step`` along an axis are ``src``."""
    check_tensor("slice_scatter", input)
    key = (slice(None),) * one_axis("slice_scatter", dim, input.ndim) + (slice(start, end, step),)
    return _replaced("slice_scatter", input, src, lambda out: getitem(out, key))


def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of input of which the elements that ``as_strided`` sees are ``src``."""
    return _replaced("as_strided_scatter", input, src, lambda out: as_strided(out, size, stride, storage_offset))


def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The elements input[i, i, ...] set to a number; ``wrap``: again after a row of a high matrix. Returns it."""
    check_tensor("fill_diagonal_", input)
    if input.ndim < 2 or (input.ndim > 2 and len(set(input.shape)) > 1):
        raise ShapeError(f"[fill_diagonal_] expected a matrix, or more axes of one length, got shape {input.shape}")
    step, columns = builtins.sum(input.strides), input.shape[1]
    if flag("fill_diagonal_", "wrap", wrap) and input.ndim == 2 and input.shape[0] > columns:
        rows, period = input.shape[0], columns + 1
        for start in range(0, rows, period):
            diagonal_ = as_strided(
                input, (min(columns, rows - start),), (step,), input.offset + start * input.strides[0]
            )
            copy_(diagonal_, fill_value)
        return input
    copy_(as_strided(input, (min(input.shape),), (step,), input.offset), fill_value)
    return input
