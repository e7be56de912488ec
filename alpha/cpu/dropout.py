"""The CPU engine's dropout: the mask is drawn by the loop that applies it.

Equal for any number of threads and any memory order: element i, counted in logical row-major order, has the same random
word in each.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tapes, tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.pointwise import Plan, PointwiseOperations
from alpha.expressions import dropout
from alpha.expressions.dropout import DRAWN_DTYPE
from alpha.random import WORDS
from alpha.records import AttentionSettings
from alpha.tensor import Tensor, dense_strides

_DRAW = struct.Struct("QQq").pack
"""Seed, first counter and threshold, at the end of a job."""


class DropoutOperations(PointwiseOperations):
    """Dropout in one pass."""

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        plan = _plan(x.shape, x.strides, x.dtype)
        y, mask = _results(self, plan)
        if plan.elements:
            refresh = self.redrawn(seed, offset, x.numel())
            self._drop(plan, (y, mask), x, 0, p, (seed, offset), refresh)
        return y, mask

    def dropped_scores(
        self, block: Tensor, settings: AttentionSettings, scores: Shape, first: int, is_again: bool
    ) -> Tensor:
        start = first * scores[-1]
        plan = _plan_of_part(block.shape, block.strides, block.dtype, scores)
        if start % WORDS or not plan.fits:  # loops draw the words of a counter together
            return super().dropped_scores(block, settings, scores, first, is_again)
        (y,) = _results(self, plan)
        place = settings.seed, settings.offset
        refresh = self.redrawn(*place, math.prod(scores), is_again)
        self._drop(plan, (y,), block, start, settings.dropout, place, refresh)
        return y

    def _drop(
        self,
        plan: Plan,
        results: Sequence[Tensor],
        x: Tensor,
        start: int,
        p: float,
        place: tuple[int, int],
        refresh: Callable[[], bytes] | None,
    ) -> None:
        """Runs a plan; ``start``: the number in the draw of x's first element."""
        addresses = [*[y.storage.address for y in results], x.address, start]
        job = plan.pack(plan.address, *addresses, dropout.scale(p)) + _DRAW(*place, dropout.threshold(p))
        live = None if refresh is None else tapes.Live(len(job) - 24, refresh)
        tasks.run(plan.loop, job, plan.tasks, self.threads, live)


def _results(engine: HostEngine, plan: Plan) -> list[Tensor]:
    """New tensors for a plan's results."""
    return [Tensor(engine.allocate(n), 0, plan.shape, plan.strides, dtype) for n, dtype in plan.results]


@caches.kept
def _plan(shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> Plan:
    kept = shape, dense_strides(shape), DRAWN_DTYPE
    return Plan(dropout.KEPT_AND_MASK, "dropout", None, [(shape, strides, dtype), kept])


@caches.kept
def _plan_of_part(shape: Shape, strides: Shape, dtype: np.dtype[Any], whole: Shape) -> Plan:
    """The plan for a part of a tensor of a shape, which is drawn as a part of it."""
    return Plan(dropout.KEPT, "dropout", None, [(shape, strides, dtype), (shape, dense_strides(whole), DRAWN_DTYPE)])
