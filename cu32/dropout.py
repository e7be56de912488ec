"""The CUDA engine's dropout: counter-based random numbers, the same whatever the memory order."""

from __future__ import annotations

import math

import numpy as np

from alpha.cu32.base import REALS, DeviceEngine, c_type, of_reals
from alpha.cu32.compiler import Source
from alpha.cu32.random import place_of_draw
from alpha.cu32.structs import KernelStruct
from alpha.dtypes import bool_
from alpha.expressions import dropout
from alpha.tensor import Tensor

SOURCES = of_reals("dropout")
RULES = {real: KernelStruct("dropout.cu", "Rule", REAL=real) for real in REALS}
AXES = KernelStruct("dropout.cu", "Axes")
BLOCK = 256
MOST_AXES = 8
"""Axes that the strided kernels take; tensors with more are copied."""


class DropoutOperations(DeviceEngine):
    """Element i, counted in logical row-major order, uses the same random word in every memory order."""

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        y, mask = self.empty_like(x), self.empty_like(x, bool_)
        count = x.numel()
        if not count:
            return y, mask
        place = place_of_draw(self, seed, offset, count)
        rule = _rule(p, x.dtype)
        rows = tuple(range(x.ndim))
        if x.is_contiguous(rows):
            self._dropout_flat(x, y, mask, rule, place)
        elif x.ndim <= MOST_AXES and count < 2**31:
            self._dropout_strided(x, y, mask, rule, place)
        else:
            parts = self.empty(x.shape, x.dtype), self.empty(x.shape, bool_)
            self._dropout_flat(self.dense(x, rows), *parts, rule, place)
            self.copy(parts[0], y)
            self.copy(parts[1], mask)
        return y, mask

    def _dropout_flat(
        self, x: Tensor, y: Tensor, mask: Tensor, rule: bytes, place: tuple[bytes, Tensor | None]
    ) -> None:
        source, count = Source("dropout", REAL=c_type(x.dtype)), x.numel()
        grid = self.blocks(-(-count // 4), BLOCK)
        self.launch(source, "dropout", grid, BLOCK, x, y, mask, count, x.address % 16 == 0, rule, *place)

    def _dropout_strided(
        self, x: Tensor, y: Tensor, mask: Tensor, rule: bytes, place: tuple[bytes, Tensor | None]
    ) -> None:
        axes = y.memory_order()
        logical = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
        # The vectors of four need whole counters in a row, and each at a multiple of 16 bytes in x.
        last = axes[-1]
        steps = [x.strides[axis] for axis in axes[:-1] if x.shape[axis] > 1]
        vectors = (
            last == x.ndim - 1
            and x.shape[last] % 4 == 0
            and x.strides[last] == 1
            and not any(step % 4 for step in steps)
            and x.address % 16 == 0
        )
        lengths, steps_in_count, steps_in_x = (
            [values[axis] for axis in axes] for values in (x.shape, logical, x.strides)
        )
        packed = AXES.pack(count=x.ndim, size=lengths, logical=steps_in_count, x=steps_in_x)
        self.launch(
            Source("dropout", REAL=c_type(x.dtype)),
            "dropout_strided4" if vectors else "dropout_strided",
            self.blocks(x.numel() // 4 if vectors else x.numel(), BLOCK),
            BLOCK,
            x,
            y,
            mask,
            x.numel(),
            packed,
            rule,
            *place,
        )


def _rule(p: float, dtype: np.dtype[np.generic]) -> bytes:
    """The scale and the threshold of a kept word."""
    return RULES[c_type(dtype)].pack(scale=dropout.scale(p), threshold=dropout.threshold(p))
