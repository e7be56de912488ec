"""The CUDA engine's losses: softmax and cross entropy of rows in one launch, and its gradient."""

from __future__ import annotations

import numpy as np

from alpha.cu32.base import DeviceEngine, c_type, of_reals
from alpha.cu32.compiler import Source
from alpha.errors import ShapeError
from alpha.tensor import Tensor

SOURCES = of_reals("losses")
BLOCK = 256
WARP = 32
LONG_ROW = 1024
"""Classes from which a whole block works on a row instead of a warp at most."""


class LossOperations(DeviceEngine):
    """A label out of range, which the functions check, gives NaN and is never followed."""

    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        _check("cross_entropy", logits, labels)
        rows, columns = logits.shape
        losses = self.empty((rows,), logits.dtype)
        probabilities = self.empty((rows, columns), logits.dtype)
        x = logits if columns <= 1 or logits.strides[1] == 1 else self.dense(logits, (0, 1))
        if rows:
            self._launch_rows(
                "cross_entropy",
                x,
                labels,
                losses,
                probabilities,
                rows,
                columns,
                x.strides[0],
                labels.strides[0],
                np.float64(smoothing),
            )
        return losses, probabilities

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        _check("cross_entropy_grad", probabilities, labels)
        rows, columns = probabilities.shape
        out = self.empty((rows, columns), probabilities.dtype)
        if out.numel():
            kind = out.dtype.type
            self._launch_rows(
                "cross_entropy_grad",
                self.dense(probabilities, (0, 1)),
                labels,
                scale,
                out,
                rows,
                columns,
                labels.strides[0],
                scale.strides[0],
                kind(smoothing / columns),
                kind(1 - smoothing),
            )
        return out

    def _launch_rows(self, kernel: str, x: Tensor, *arguments: object) -> None:
        """Runs a kernel with as many lanes per row as its length is worth."""
        rows, columns = x.shape
        lanes = BLOCK if columns >= LONG_ROW else min(WARP, 1 << max(columns - 1, 0).bit_length())
        source = Source("losses", REAL=c_type(x.dtype))
        self.launch(source, kernel, -(-rows // (BLOCK // lanes)), BLOCK, x, *arguments, np.int32(lanes))


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ShapeError(f"[{function}] expected rows (N, C) and labels (N,), got {rows.shape} and {labels.shape}")
