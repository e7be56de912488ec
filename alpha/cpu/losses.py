"""The CPU engine's losses: softmax and cross entropy in one pass, and its gradient."""

from __future__ import annotations

import numpy as np

from alpha.cpu.base import HostEngine
from alpha.errors import ShapeError
from alpha.tensor import Tensor


class LossOperations(HostEngine):
    """Rows are few and NumPy's exponential is vectorised, so this needs no compiled kernel."""

    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        _check("cross_entropy", logits, labels)
        losses = self.empty(labels.shape, logits.dtype)
        probabilities = self.empty(logits.shape, logits.dtype)
        x, index, p = self.array(logits), self.array(labels), self.array(probabilities)
        with np.errstate(invalid="ignore", divide="ignore"):  # infinite logits give NaN, as they should
            largest = x.max(axis=1, keepdims=True)
            np.subtract(x, largest, out=p)
            picked = np.take_along_axis(p, index[:, None], axis=1)[:, 0].astype(np.float64)
            target = picked if smoothing == 0 else (1 - smoothing) * picked + smoothing * p.mean(1, dtype=np.float64)
            np.exp(p, out=p)
            total = p.sum(axis=1, dtype=np.float64)
            self.array(losses)[...] = np.log(total) - target
            p *= (1 / total).astype(p.dtype)[:, None]
        return losses, probabilities

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        _check("cross_entropy_grad", probabilities, labels)
        out = self.empty(probabilities.shape, probabilities.dtype)
        p, index, rows, dx = (self.array(t) for t in (probabilities, labels, scale, out))
        if smoothing:
            np.subtract(p, p.dtype.type(smoothing / p.shape[1]), out=dx)
        else:
            np.copyto(dx, p)
        dx[np.arange(len(index)), index] -= dx.dtype.type(1 - smoothing)
        dx *= rows[:, None]
        return out


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ShapeError(f"[{function}] expected rows (N, C) and labels (N,), got {rows.shape} and {labels.shape}")
