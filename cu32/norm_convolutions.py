"""NormConvolutions: convolutions of the CUDA engine that do at their end what a BatchNorm beside them needs.

Where a plan's kernel cannot (its sums are split, or it is of another kind), a pass of its own does it, or nobody does.
"""

from __future__ import annotations

from alpha import bands
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32.conv.endings import MeasuredEnding, PastEnding
from alpha.cu32.conv.problem import Call
from alpha.cu32.convolution import MACS, ConvolutionOperations, dense_bias, lie_alike
from alpha.cu32.norm_sums import NormSumOperations
from alpha.dtypes import is_stored
from alpha.engine import FILTER_ORDER, IMAGE_ORDER, BatchNormState, Epilogue, RunningStatistics
from alpha.geometry import Geometry
from alpha.records import Normalised, NormGradients, PairGradients
from alpha.tensor import Tensor


class NormConvolutions(ConvolutionOperations, NormSumOperations):
    """A BatchNorm behind a convolution, and one before it."""

    def measures_convolutions(self, x: Tensor) -> bool:
        return not is_stored(x.dtype)

    def conv2d_measured(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        running: RunningStatistics,
        eps: float,
    ) -> tuple[Tensor, BatchNormState]:
        return self._measured((x, None), w, bias, geometry, groups, (running, eps))

    def normalises_in_convolutions(self, x: Tensor) -> bool:
        return self.measures_convolutions(x) and self.remakes_batch_norm(x)

    def conv2d_normalised(
        self,
        before: Normalised,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        running: RunningStatistics,
        eps: float,
    ) -> tuple[Tensor, BatchNormState]:
        x = self._image(before.x)
        return self._measured((x, self._dense_before(before, x)), w, None, geometry, groups, (running, eps))

    def conv2d_weight_grad_normalised(self, before: Normalised, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        x = self._image(before.x)
        return self._weight_grad(x, dy, geometry, groups, self._dense_before(before, x))

    def _dense_before(self, before: Normalised, x: Tensor) -> Normalised:
        """The same of x, with vectors as kernels read them."""
        given, epilogue, state = before
        weight, bias = self._optional(epilogue.weight), self._optional(epilogue.bias)
        if x is given and weight is epilogue.weight and bias is epilogue.bias:
            return before
        return Normalised(x, Epilogue(weight, bias, epilogue.slope), state)

    def _measured(
        self,
        images: tuple[Tensor, Normalised | None],
        w: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        measured: tuple[RunningStatistics, float],
    ) -> tuple[Tensor, BatchNormState]:
        """A convolution of images, and of what they are still to be normalised by, and its result's statistics."""
        (x, before), (running, eps) = images, measured
        if bands.middle(geometry, True) is not None:
            x = x if before is None else self.batch_norm_again(*before, None)
            y = self.conv2d(x, w, bias, geometry, groups)
            return y, self.batch_norm_state(y, running, eps)
        x, w = self._image(x), self.dense(w, FILTER_ORDER)
        out = self.empty((x.shape[0], *geometry.output, w.shape[0]), x.dtype, IMAGE_ORDER)
        state = self.empty_state(out.shape[3], True)
        ending = MeasuredEnding(running, eps, state, out.numel() // max(1, out.shape[3]))
        call = Call(x, w, out, dense_bias(self, bias), ending, before)
        MACS["conv2d"] = self._compute(FORWARD, call, geometry, groups)
        if not ending.taken:
            return out, self.batch_norm_state(out, running, eps)
        for kept in running.tensors:
            kept.storage.touch()
        return out, state

    def conv2d_input_grad_past(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        before: tuple[Normalised, Tensor | Normalised | None],
        accumulate: Tensor | None = None,
    ) -> tuple[Tensor, NormGradients | PairGradients | None]:
        norm, residual = before
        x, other = norm.x, residual.x if isinstance(residual, Normalised) else residual
        if bands.middle(geometry, False) is not None or not lie_alike(x, other, accumulate):
            return self.conv2d_input_grad(dy, w, geometry, groups, accumulate=accumulate), None
        dy, w = self._image(dy), self.dense(w, FILTER_ORDER)
        out = self.empty(x.shape, x.dtype, IMAGE_ORDER) if accumulate is None else accumulate
        found: NormGradients | PairGradients
        if isinstance(residual, Normalised):
            found, residual = self._empty_pair_gradients(x), self._dense_before(residual, residual.x)
        else:
            found = self._empty_gradients(x)
        ending = PastEnding(self._dense_before(norm, x), residual, found)
        call = Call(dy, w, out, None, ending)
        MACS["conv2d_input_grad"] = self._compute(INPUT_GRAD, call, geometry, groups, accumulate is not None)
        return out, found if ending.taken else None
