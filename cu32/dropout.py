"""The CUDA engine's dropout: the mask is drawn by the kernel that applies it, the same whatever the memory order."""

from __future__ import annotations

import math

from alpha import caches
from alpha.arguments import Shape
from alpha.cu32.pointwise import Plan, PointwiseOperations, TensorLayout, layout_of
from alpha.cu32.random import place_of_draw
from alpha.expressions import dropout
from alpha.records import AttentionSettings
from alpha.tensor import Tensor, dense_strides


class DropoutOperations(PointwiseOperations):
    """Element i, counted in logical row-major order, uses the same random word in every memory order."""

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        plan = _plan(layout_of(x))
        y, mask = self.results_of(plan)
        if x.numel():
            self._drop(plan, (y, mask), x, 0, p, place_of_draw(self, seed, offset, x.numel()))
        return y, mask

    def dropped_scores(
        self, block: Tensor, settings: AttentionSettings, scores: Shape, first: int, is_again: bool
    ) -> Tensor:
        start = first * scores[-1]
        plan = _plan_of_part(layout_of(block), scores, start & 15)
        place = place_of_draw(self, settings.seed, settings.offset, math.prod(scores), is_again)
        (y,) = self.results_of(plan)
        self._drop(plan, (y,), block, start, settings.dropout, place)
        return y

    def _drop(
        self,
        plan: Plan,
        results: tuple[Tensor, ...],
        x: Tensor,
        start: int,
        p: float,
        place: tuple[bytes, Tensor | None],
    ) -> None:
        """Launches a plan; ``start``: the number in the draw of x's first element."""
        given, live = place
        if self.capture is not None:
            self.capture.keep(x, *results, *([] if live is None else [live]))
        draw = given, 0 if live is None else live.address, dropout.threshold(p)
        self.launch_plan(plan, [*[y.address for y in results], x.address, start], dropout.scale(p), *draw)


@caches.kept
def _plan(x: TensorLayout) -> Plan:
    """The plan for a tensor that lies so, of whose draw the first element has the number 0."""
    shape = x[0]
    return Plan(dropout.KEPT_AND_MASK, "dropout", None, [x, (shape, dense_strides(shape), dropout.DRAWN_DTYPE, 0)])


@caches.kept
def _plan_of_part(x: TensorLayout, whole: Shape, start: int) -> Plan:
    """The plan for a part of a tensor of a shape, of whose draw the part's first element has a number, modulo 16."""
    drawn = x[0], dense_strides(whole), dropout.DRAWN_DTYPE, start
    return Plan(dropout.KEPT, "dropout", None, [x, drawn])
