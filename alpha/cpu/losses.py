"""The CPU engine's losses: softmax and cross entropy in one pass, and its gradient."""

from __future__ import annotations

from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import losses as kernels
from alpha.errors import ShapeError
from alpha.tensor import Tensor


class LossOperations(HostEngine):
    """Cross entropy. A row of logits is a sample, or a pixel of one."""

    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        _check("cross_entropy", logits, labels)
        losses = self.empty(labels.shape, logits.dtype)
        probabilities = self.empty(logits.shape, logits.dtype)
        self.launch(
            kernels.cross_entropy, self._in_order(logits), self._in_order(labels), float(smoothing),
            self.array(losses), self.array(probabilities), tasks=_tasks(logits),
        )  # fmt: skip
        return losses, probabilities

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        _check("cross_entropy_grad", probabilities, labels)
        if scale.shape != labels.shape:
            raise ShapeError(f"[cross_entropy_grad] expected one scale per row, {labels.shape}, got {scale.shape}")
        out = self.empty(probabilities.shape, probabilities.dtype)
        self.launch(
            kernels.cross_entropy_grad, self._in_order(probabilities), self._in_order(labels),
            self._in_order(scale), float(smoothing), self.array(out), tasks=_tasks(probabilities),
        )  # fmt: skip
        return out

    def _in_order(self, x: Tensor) -> Array:
        """The elements in row-major order, as the kernels index them."""
        return self.array(self.dense(x, range(x.ndim)))


def _tasks(rows: Tensor) -> int:
    return -(-rows.shape[0] // kernels.ROWS)


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or (rows.shape[0] and not rows.shape[1]):
        raise ShapeError(
            f"[{function}] expected rows (N, C), C >= 1, and labels (N,), got {rows.shape} and {labels.shape}"
        )
