"""Product: what one product of matrices, or a batch of them, is, as a value by which choices and plans are cached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from alpha.cpu.isa import L1_SET_STRIDE, L1_WAYS
from alpha.dtypes import computed_in
from alpha.tensor import Tensor

PRODUCT = "product"


@dataclass(frozen=True)
class Product:
    """``batch`` products of (rows, depth) and (depth, columns).

    Attributes:
        item: bytes of a number.
        x_is_by_columns, y_is_by_columns: whether the left, the right matrix has dense columns instead of dense rows.
        is_kept: whether the right matrix is a layer's weights in inference, which may be kept packed.
        x_rows_collide: whether rows of the left matrix lie so far apart that all share a set of the L1 cache.
        are_pairs: whether terms are words of two bfloat16, whose products are summed in float32.
        are_halves: whether these words are to be made of matrices of bfloat16, of twice as many terms.
    """

    rows: int
    depth: int
    columns: int
    batch: int
    item: int
    x_is_by_columns: bool
    y_is_by_columns: bool
    is_kept: bool = False
    x_rows_collide: bool = False
    are_pairs: bool = False
    are_halves: bool = False

    operator: ClassVar[str] = PRODUCT

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached, since every call looks up its algorithm by it."""
        layouts = self.x_is_by_columns, self.y_is_by_columns, self.is_kept, self.x_rows_collide
        dtypes = self.item, self.are_pairs, self.are_halves
        return hash((self.rows, self.depth, self.columns, self.batch, *dtypes, *layouts))

    @property
    def macs(self) -> int:
        """Multiply-adds of one of the products."""
        return self.rows * self.depth * self.columns

    @property
    def is_of_vectors(self) -> bool:
        """Whether one of the operands is a vector."""
        return 1 in (self.rows, self.columns) or (self.depth == 1 and self.batch == 1)


@lru_cache(maxsize=8192)
def product(
    sizes: tuple[int, int, int],
    batch: int,
    item: int,
    x_is_by_columns: bool = False,
    y_is_by_columns: bool = False,
    is_kept: bool = False,
    x_rows_collide: bool = False,
) -> Product:
    """The problem of (rows, depth, columns); equal calls get the same object, by which plans are found fast."""
    collide = x_rows_collide and not x_is_by_columns and sizes[0] > L1_WAYS
    return Product(*sizes, batch, item, x_is_by_columns, y_is_by_columns, is_kept, collide)


def product_of(x: Tensor, y: Tensor, is_kept: bool = False) -> Product:
    """The problem of (..., rows, depth) and (..., depth, columns), whose batch axes broadcast.

    That of matrices of 16 bits is of float32, in which they are multiplied.
    """
    rows, depth = x.shape[-2:]
    batch = 1
    if len(x.shape) > 2 or len(y.shape) > 2:
        batch = math.prod(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    item = computed_in(x.dtype).itemsize
    collide = x.strides[-2] * item % L1_SET_STRIDE == 0
    return product((rows, depth, y.shape[-1]), batch, item, is_by_columns(x), is_by_columns(y), is_kept, collide)


def is_by_rows(x: Tensor) -> bool:
    """Whether matrices' rows are dense, and runs of memory of their own."""
    return x.strides[-1] == 1 and x.strides[-2] >= x.shape[-1]


def is_by_columns(x: Tensor) -> bool:
    """Whether only matrices' columns are dense, and runs of memory of their own."""
    return x.strides[-2] == 1 and x.strides[-1] != 1 and x.strides[-1] >= x.shape[-2]
