"""The CPU engine's dropout: counter-based random numbers, equal for any number of threads and any memory order."""

from __future__ import annotations

import math

import numpy as np

from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import dropout as kernels
from alpha.tensor import Tensor


class DropoutOperations(HostEngine):
    """Dropout. Element i, counted in logical row-major order, uses the same random word in every memory order."""

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        y, mask = self.empty_like(x), self.empty_like(x, np.dtype(np.bool_))
        if x.strides != y.strides:  # gaps, or broadcast axes
            source, x = x, self.empty_like(x)
            self.copy(source, x)
        # Keeps where uniform >= p, computed exactly: (word >> 8) * 2**-24 >= p.
        threshold = math.ceil(p * 2**24)
        scale = x.dtype.type(1 / (1 - p) if p < 1 else 0)
        self.launch(
            kernels.dropout,
            self._flat(x),
            self._flat(y),
            self._flat(mask),
            np.array(x.shape or (1,), np.int64),
            np.array(y.strides or (1,), np.int64),
            np.uint64(seed),
            np.uint64(offset),
            np.uint32(threshold),
            scale,
            tasks=-(-x.numel() // kernels.CHUNK),
        )
        return y, mask

    def _flat(self, tensor: Tensor) -> Array:
        return self.array(tensor.view(tensor.offset, (tensor.numel(),), (1,)))
