"""NormSumOperations: BatchNorms whose results are added to each other on the CUDA engine, in one pass each way."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.cu32.normalisation import MOST_TERMS, NormalisationOperations, is_aligned
from alpha.dtypes import float64, is_stored
from alpha.engine import BatchNormState, Epilogue
from alpha.records import Normalised, PairGradients, ToNormalise
from alpha.tensor import Tensor


class NormSumOperations(NormalisationOperations):
    """All terms are seen as (rows, channels) in the first one's memory order."""

    most_chained_norms = MOST_TERMS

    def sums_batch_norms(self, x: Tensor) -> bool:
        return self.remakes_batch_norm(x)

    def batch_norm_sum(
        self, first: ToNormalise, second: ToNormalise, slope: float | None
    ) -> tuple[Tensor, BatchNormState, BatchNormState]:
        x = self._channels_dense(first.x)
        other = self._ordered_as(second.x, x)
        state = first.state or self.batch_norm_state(x, first.running, first.eps)
        other_state = second.state or self.batch_norm_state(other, second.running, second.eps)
        terms = (
            Normalised(x, Epilogue(first.weight, first.bias, slope), state),
            Normalised(other, Epilogue(second.weight, second.bias, slope), other_state),
        )
        return self.batch_norm_sum_again(*terms), state, other_state

    def batch_norm_sum_again(self, first: Normalised, second: Normalised) -> Tensor:
        x = self._channels_dense(first.x)
        other = self._ordered_as(second.x, x)
        out = self._like(x)
        tensors = (x, *self._affine(first), other, *self._affine(second), out)
        self._apply_rows("apply_sum", x, is_aligned(x) and is_aligned(other), tensors, _factor(first))
        return out

    def batch_norm_chain_again(self, terms: Sequence[Normalised], residual: Tensor | None) -> Tensor:
        if not 1 < len(terms) <= MOST_TERMS or is_stored(terms[0].x.dtype):  # each of these results is rounded
            return super().batch_norm_chain_again(terms, residual)
        x = self._channels_dense(terms[0].x)
        values = [x, *(self._ordered_as(term.x, x) for term in terms[1:])]
        below = None if residual is None else self._ordered_as(residual, x)
        out = self._like(x)
        tensors: list[Tensor | None] = []
        for value, term in zip(values, terms, strict=True):
            tensors += [value, *self._affine(term)]
        tensors += [None] * (5 * (MOST_TERMS - len(terms)))
        slopes = [*map(_factor, terms), *[1.0] * (MOST_TERMS - len(terms))]
        aligned = all(is_aligned(one) for one in (*values, *([] if below is None else [below])))
        self._apply_rows("apply_chain", x, aligned, (*tensors, below, out), *slopes)
        return out

    def batch_norm_sum_grad(
        self,
        dy: Tensor,
        first: Normalised,
        second: Normalised,
        overwrites: tuple[bool, bool, bool] = (False, False, False),
    ) -> tuple[Tensor, ...]:
        x = self._channels_dense(first.x)
        other, g = self._ordered_as(second.x, x), self._ordered_as(dy, x)
        found = self._empty_pair_gradients(x)
        masked = None
        if first.epilogue.slope is not None:
            masked = g if overwrites[0] or g is not dy else self.empty_like(x)
        aligned = is_aligned(x) and is_aligned(other) and is_aligned(g)
        sums, weight, bias, *of_other = found
        terms = (*self._affine(first), other, *self._affine(second), *of_other)
        self._sum_rows("grad_sums_sum", x, aligned, (g, x, *terms, masked, sums, weight, bias), _factor(first))
        past = g if masked is None else masked
        dx, other_dx = self.batch_norm_sum_summed_grad(past, first, second, found, overwrites[1:])
        return dx, weight, bias, other_dx, *of_other

    def batch_norm_sum_summed_grad(
        self,
        g: Tensor,
        first: Normalised,
        second: Normalised,
        found: PairGradients,
        overwrites: tuple[bool, bool] = (False, False),
    ) -> tuple[Tensor, Tensor]:
        x = self._channels_dense(first.x)
        other, g = self._ordered_as(second.x, x), self._ordered_as(g, x)
        dx, other_dx = [
            self._over(given, seen, overwritten)
            for given, seen, overwritten in zip((first.x, second.x), (x, other), overwrites, strict=True)
        ]
        norm, other_norm = self._affine(first)[:3], self._affine(second)[:3]
        tensors = (g, x, *norm, other, *other_norm, found.sums, dx, other_dx)
        self._apply_rows("grad_apply_sum", x, is_aligned(x) and is_aligned(other) and is_aligned(g), tensors)
        return dx, other_dx

    def _empty_pair_gradients(self, x: Tensor) -> PairGradients:
        """Those of two BatchNorms of tensors as x, to be filled in."""
        channels = x.shape[-1]
        vectors = [self.empty((channels,), x.dtype) for _ in range(4)]
        return PairGradients(self.empty((3, channels), float64), *vectors)

    def _over(self, given: Tensor, seen: Tensor, overwritten: bool) -> Tensor:
        """Where a term's gradient goes: over the term, or to a new tensor."""
        if not (overwritten and seen is given):
            return self._like(seen)
        given.storage.touch()
        return given

    def _affine(self, term: Normalised) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """What kernels normalise by."""
        weight, bias = self._optional(term.epilogue.weight), self._optional(term.epilogue.bias)
        return term.state.mean, term.state.inverse_std, weight, bias


def _factor(term: Normalised) -> float:
    """The activation's slope; 1 is no activation."""
    return 1.0 if term.epilogue.slope is None else term.epilogue.slope
