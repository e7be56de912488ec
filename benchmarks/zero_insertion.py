"""Transposed convolution as HUGE2's baseline computes it: zeros inserted, im2col, one matrix product per image.

That is the way of DarkNet, which Shi et al. (arXiv 1907.11210) measure theirs against: the source is spread out with
zeros between and around its elements, and convolved with the filter turned round by im2col and a product of matrices;
gradients are those of that convolution. Written from the definition, with NumPy's matrix product (OpenBLAS).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ZeroInsertion:
    """A transposed convolution of square images.

    Args:
        size: H and W of the source.
        filter, stride, padding, output_padding: as ``conv_transpose2d`` has them.
    """

    size: int
    filter: int
    stride: int
    padding: int
    output_padding: int

    @property
    def result(self) -> int:
        """H and W of the result."""
        return (self.size - 1) * self.stride - 2 * self.padding + self.filter + self.output_padding

    @property
    def spread(self) -> int:
        """H and W of the source with all its zeros."""
        return self.result + self.filter - 1

    def forward(self, x: Array, w: Array) -> Array:
        """Results (N, OH, OW, OC) of sources (N, H, W, IC) and filters (IC, FH, FW, OC)."""
        matrix, result = self._matrix(w), self.result
        y = np.empty((len(x), result, result, w.shape[3]), x.dtype)
        for image, out in zip(x, y, strict=True):
            np.matmul(self._columns(image), matrix, out=out.reshape(result * result, -1))
        return y

    def gradients(self, x: Array, w: Array, dy: Array) -> tuple[Array, Array]:
        """dX and dW; im2col again for dW, and its reverse for dX."""
        matrix = self._matrix(w)
        dx, dw = np.empty_like(x), np.zeros_like(matrix)
        for image, grad, out in zip(x, dy, dx, strict=True):
            rows = grad.reshape(self.result * self.result, -1)
            dw += self._columns(image).T @ rows
            out[:] = self._inner(self._summed(rows @ matrix.T, x.shape[3]))
        taps = dw.reshape(self.filter, self.filter, x.shape[3], -1)[::-1, ::-1]
        return dx, np.ascontiguousarray(taps.transpose(2, 0, 1, 3))

    def _matrix(self, w: Array) -> Array:
        """The filters turned round: (FH * FW * IC, OC)."""
        turned = w[:, ::-1, ::-1].transpose(1, 2, 0, 3)
        return np.ascontiguousarray(turned).reshape(-1, w.shape[3])

    def _inner(self, spread: Array) -> Array:
        """The view of a spread image that holds the source."""
        first = self.filter - 1 - self.padding
        last = first + (self.size - 1) * self.stride + 1
        return spread[first : last : self.stride, first : last : self.stride]

    def _columns(self, image: Array) -> Array:
        """im2col of a source with its zeros: (OH * OW, FH * FW * IC)."""
        spread = np.zeros((self.spread, self.spread, image.shape[2]), image.dtype)
        self._inner(spread)[:] = image
        windows = np.lib.stride_tricks.sliding_window_view(spread, (self.filter, self.filter), axis=(0, 1))
        return np.ascontiguousarray(windows.transpose(0, 1, 3, 4, 2)).reshape(self.result * self.result, -1)

    def _summed(self, columns: Array, channels: int) -> Array:
        """im2col's reverse: each column's numbers added where they came from."""
        spread = np.zeros((self.spread, self.spread, channels), columns.dtype)
        taps = columns.reshape(self.result, self.result, self.filter, self.filter, channels)
        for i in range(self.filter):
            for j in range(self.filter):
                spread[i : i + self.result, j : j + self.result] += taps[:, :, i, j]
        return spread
