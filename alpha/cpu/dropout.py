"""The CPU engine's dropout: the mask is drawn by the loop that applies it.

Equal for any number of threads and any memory order: element i, counted in logical row-major order, has the same random
word in each.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tapes, tasks
from alpha.cpu.pointwise import Plan, PointwiseOperations
from alpha.expressions import dropout
from alpha.tensor import Tensor, dense_strides

_DRAW = struct.Struct("QQq").pack
"""Seed, first counter and threshold, at the end of a job."""


class DropoutOperations(PointwiseOperations):
    """Dropout in one pass."""

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        plan = _plan(x.shape, x.strides, x.dtype)
        y, mask = [Tensor(self.allocate(n), 0, plan.shape, plan.strides, dtype) for n, dtype in plan.results]
        if plan.elements:
            places = y.storage.address, mask.storage.address, x.storage.address + x.offset * x.dtype.itemsize
            job = plan.pack(plan.address, *places, 0, dropout.scale(p)) + _DRAW(seed, offset, dropout.threshold(p))
            refresh = self.redrawn(seed, offset, x.numel())
            live = None if refresh is None else tapes.Live(len(job) - 24, refresh)
            tasks.run(plan.loop, job, plan.tasks, self.threads, live)
        return y, mask


@caches.kept
def _plan(shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> Plan:
    kept = shape, dense_strides(shape), dropout.DRAWN_DTYPE
    return Plan(dropout.KEPT_AND_MASK, "dropout", None, [(shape, strides, dtype), kept])
