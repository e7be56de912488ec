"""The CUDA engine's dropout: the mask is drawn by the kernel that applies it, the same whatever the memory order."""

from __future__ import annotations

from alpha import caches
from alpha.cu32.pointwise import Plan, PointwiseOperations, TensorLayout, layout_of
from alpha.cu32.random import place_of_draw
from alpha.expressions import dropout
from alpha.tensor import Tensor, dense_strides


class DropoutOperations(PointwiseOperations):
    """Element i, counted in logical row-major order, uses the same random word in every memory order."""

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        plan = _plan(layout_of(x))
        y, mask = self.results_of(plan)
        if x.numel():
            given, live = place_of_draw(self, seed, offset, x.numel())
            if self.capture is not None:
                self.capture.keep(x, y, mask, *([] if live is None else [live]))
            draw = given, 0 if live is None else live.address, dropout.threshold(p)
            self.launch_plan(plan, (y.address, mask.address, x.address, 0), dropout.scale(p), *draw)
        return y, mask


@caches.kept
def _plan(x: TensorLayout) -> Plan:
    """The plan for a tensor that lies so, of whose draw the first element has the number 0."""
    shape = x[0]
    return Plan(dropout.KEPT_AND_MASK, "dropout", None, [x, (shape, dense_strides(shape), dropout.DRAWN_DTYPE, 0)])
