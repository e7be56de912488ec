"""The CUDA engine's losses: softmax and cross entropy of rows in one launch, and its gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cu32.base import c_type, of_reals
from alpha.cu32.checks import CheckOperations
from alpha.cu32.compiler import Source
from alpha.dtypes import float64, int64, is_stored
from alpha.engine import RangeCheck
from alpha.errors import ShapeError
from alpha.tensor import Tensor

SOURCES = of_reals("losses")
BLOCK = 256
WARP = 32
LONG_ROW = 1024
"""Classes from which a whole block works on a row instead of a warp at most."""


_REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}
"""The kernels' numbers of them."""


class _Results(NamedTuple):
    """Where kernels leave a loss: in the order of their arguments."""

    loss: Tensor
    followed: Tensor
    factor: Tensor
    losses_of_blocks: Tensor
    rows_of_blocks: Tensor
    counter: Tensor


class LossOperations(CheckOperations):
    """A label out of range, which the functions check, gives NaN and is never followed."""

    has_losses_at_once = True

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

    def cross_entropy_loss(
        self, logits: Tensor, labels: Tensor, ignore_index: int, reduction: str, smoothing: float, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        rows, columns = logits.shape
        if not rows or is_stored(logits.dtype):
            return None
        probabilities = self.empty(logits.shape, logits.dtype)
        x = logits if columns == 1 or logits.strides[1] == 1 else self.dense(logits, (0, 1))
        results = self._results(x, reduction, -(-rows // (BLOCK // _lanes(columns))))
        self._launch_rows(
            "cross_entropy_loss",
            x,
            labels,
            results.loss,
            probabilities,
            *results[1:],
            self.flag(check),
            rows,
            columns,
            x.strides[0],
            labels.strides[0],
            ignore_index,
            np.float64(smoothing),
            np.int32(_REDUCTIONS[reduction]),
        )
        return results.loss, probabilities, results.followed, results.factor

    def nll_loss(
        self, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        count, columns = rows.shape
        if not count or is_stored(rows.dtype):
            return super().nll_loss(rows, labels, ignore_index, reduction, check)
        grid = -(-count // BLOCK)
        results, sizes = self._results(rows, reduction, grid), (count, columns, *rows.strides, labels.strides[0])
        last = (ignore_index, np.int32(_REDUCTIONS[reduction]))
        self.launch(_source(rows), "nll_loss", grid, BLOCK, rows, labels, *results, self.flag(check), *sizes, *last)
        return results.loss, results.followed, results.factor

    def nll_loss_grad(self, grad: Tensor, followed: Tensor, factor: Tensor | float, classes: int) -> Tensor:
        if not isinstance(factor, Tensor) or is_stored(grad.dtype):
            return super().nll_loss_grad(grad, followed, factor, classes)
        out = self.empty((followed.shape[0], classes), grad.dtype)
        step = grad.strides[0] if grad.ndim else 0
        tensors, grid = (followed, grad, factor, out), self.blocks(out.numel(), BLOCK)
        self.launch(_source(out), "nll_loss_grad", grid, BLOCK, *tensors, *out.shape, step)
        return out

    def _results(self, rows: Tensor, reduction: str, blocks: int) -> _Results:
        """Memory for a loss of so many rows by so many blocks."""
        count = rows.shape[0]
        loss = self.empty((count,) if reduction == "none" else (), rows.dtype)
        losses, rows_of_blocks = self.empty((blocks,), float64), self.empty((blocks,), int64)
        followed, factor = self.empty((count,), int64), self.empty((), rows.dtype)
        return _Results(loss, followed, factor, losses, rows_of_blocks, self._counter())

    def _counter(self) -> Tensor:
        """A counter of blocks, 0 between launches; of one stream, whose kernels run one after another."""
        return self.constant(("losses.counter", self.device.stream), lambda: np.zeros(1, np.int32))

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        _check("cross_entropy_grad", probabilities, labels)
        return self._gradient(probabilities, labels, scale, None, smoothing)

    def cross_entropy_loss_grad(
        self, grad: Tensor, probabilities: Tensor, followed: Tensor, factor: Tensor, smoothing: float
    ) -> Tensor:
        return self._gradient(probabilities, followed, grad, factor, smoothing)

    def _gradient(
        self, probabilities: Tensor, labels: Tensor, scale: Tensor, factor: Tensor | None, smoothing: float
    ) -> Tensor:
        """That of rows' losses, each with a scale of its own or all with one."""
        rows, columns = probabilities.shape
        out = self.empty((rows, columns), probabilities.dtype)
        if out.numel():
            kind = out.dtype.type
            self._launch_rows(
                "cross_entropy_grad",
                self.dense(probabilities, (0, 1)),
                labels,
                scale,
                factor,
                out,
                rows,
                columns,
                labels.strides[0],
                scale.strides[0] if scale.ndim else 0,
                kind(smoothing / columns),
                kind(1 - smoothing),
            )
        return out

    def _launch_rows(self, kernel: str, x: Tensor, *arguments: object) -> None:
        """Runs a kernel with as many lanes per row as its length is worth."""
        rows, columns = x.shape
        lanes = _lanes(columns)
        self.launch(_source(x), kernel, -(-rows // (BLOCK // lanes)), BLOCK, x, *arguments, np.int32(lanes))


def _source(x: Tensor) -> Source:
    return Source("losses", REAL=c_type(x.dtype))


def _lanes(columns: int) -> int:
    """Threads of a row."""
    return BLOCK if columns >= LONG_ROW else min(WARP, 1 << max(columns - 1, 0).bit_length())


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ShapeError(f"[{function}] expected rows (N, C) and labels (N,), got {rows.shape} and {labels.shape}")
