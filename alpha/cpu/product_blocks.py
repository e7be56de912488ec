"""How a product of matrices is cut into blocks, each computed by NumPy's BLAS.

BLAS divides a product of more than ``BLAS_MACS`` multiply-adds between its threads, and then their number changes the
bits. Blocks have no more than that, and are cut by the matrices' shapes and layouts alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from alpha.tensor import Tensor

BLAS_MACS = 1 << 18
"""Most multiply-adds of a product of two matrices that NumPy's BLAS gives to one thread."""

BLAS_VECTOR = 1 << 13
"""Elements of a matrix that BLAS multiplies with a vector on one thread: less than its limits, 9,216 and 10,000."""


class Limits(NamedTuple):
    """Where blocks beat the convolutions' kernels, for a layout of the matrices."""

    macs: int
    """Most multiply-adds of the product."""
    rows: int
    """Fewest rows per block of all columns."""


BY_ROWS, X_BY_COLUMNS, Y_BY_COLUMNS = Limits(1 << 23, 4), Limits(1 << 27, 8), Limits(1 << 19, 16)
"""Both matrices with dense rows; x with dense columns, as in a weight's gradient; y with dense columns.

Microseconds of a call on a Zen 5, float32: in blocks, and by the convolutions' kernels on one thread:

| rows, depth, columns | BY_ROWS | X_BY_COLUMNS | Y_BY_COLUMNS |
|---|---|---|---|
| 72, 72, 72 | 17, 27 | 17, 39 | 22, 28 |
| 100, 100, 100 | 29, 42 | 29, 68 | 50, 42 |
| 200, 200, 200 | 173, 184 | 184, 319 | 193, 185 |
| 256, 256, 256 | 302, 322 | 304, 631 | 328, 323 |
| 512, 512, 512 | 2590, 2660 | 2630, 4250 | 2520, 2630 |

Two threads share the kernels' work, of 256 in 220 to 440 and of 512 in 1440 to 3080, but not blocks: to start them from
Python took as long as they saved, up to 512.
"""

BLOCK_ROWS = ((512, 32), (1024, 16))
"""Rows per block where columns are cut too, by the greatest depth that they serve; a deeper product is not cut so."""

COLUMN_STEP = 16
"""Columns per block are a multiple of this where columns are cut: whole vectors."""


class Blocks(NamedTuple):
    """Rows and columns per block of a product; the last blocks may have fewer, but more than one."""

    rows: int
    columns: int


@lru_cache(maxsize=4096)
def blocks_of(rows: int, depth: int, columns: int, limits: Limits) -> Blocks | None:
    """The blocks of a product of two matrices; None where the convolutions' kernels are to compute it."""
    if rows * depth * columns > limits.macs:
        return None
    of_all_columns, of_all_rows = BLAS_MACS // (depth * columns), BLAS_MACS // (depth * rows)
    height, width = rows, columns
    if of_all_columns >= limits.rows:
        height = _evened(rows, of_all_columns)
    elif of_all_rows >= COLUMN_STEP:
        width = of_all_rows // COLUMN_STEP * COLUMN_STEP
    elif depth <= BLOCK_ROWS[-1][0]:
        height = _evened(rows, next(most for greatest, most in BLOCK_ROWS if depth <= greatest))
        width = BLAS_MACS // (depth * height) // COLUMN_STEP * COLUMN_STEP
    else:
        return None
    blocks = Blocks(_without_single(rows, height), _without_single(columns, min(columns, width)))
    return blocks if min(blocks) > 1 else None


def _evened(length: int, most: int) -> int:
    """The length of blocks of about one length, at most ``most``."""
    return -(-length // -(-length // most))


def _without_single(length: int, step: int) -> int:
    """At most ``step``, so that no single row or column is left over: BLAS has other limits for vectors."""
    while length % step == 1 and step > 1:
        step -= 1
    return step


@lru_cache(maxsize=4096)
def runs(length: int, step: int) -> tuple[tuple[int, int, int], ...]:
    """Blocks of one length, and what is left over as another: first row or column, count of blocks, and length."""
    count, rest = divmod(length, step)
    whole = (0, count, step)
    return (whole, (count * step, 1, rest)) if rest else (whole,)


def view(x: Tensor, down: tuple[int, int, int], across: tuple[int, int, int]) -> Tensor:
    """Matrices' blocks in some runs of rows and of columns, as (..., block row, block column, row, column)."""
    (top, many, height), (left, some, width) = down, across
    step, apart = x.strides[-2:]
    shape = (*x.shape[:-2], many, some, height, width)
    strides = (*x.strides[:-2], height * step, width * apart, step, apart)
    return Tensor(x.storage, x.offset + top * step + left * apart, shape, strides, x.dtype)
