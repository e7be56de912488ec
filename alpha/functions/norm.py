"""BatchNorm, fused with the activation and the residual add that follow it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from alpha.arguments import flag, number
from alpha.autograd import Function, is_recorded
from alpha.autograd.composing import by_formula
from alpha.autograd.kept import Remade, value_of
from alpha.dtypes import FLOATS, computed_in, default_int, is_float, is_stored
from alpha.engine import BatchNormState, Epilogue, RunningStatistics
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.autocasting import like_input
from alpha.functions.conv import slope_of
from alpha.functions.elementwise import where
from alpha.functions.images import of_images
from alpha.functions.nothing import nothing
from alpha.functions.operands import check_tensor
from alpha.records import Normalised, ToNormalise, are_alike
from alpha.tensor import Tensor

__all__ = ["batch_norm"]


class BatchNormFunction(Function):
    """act(weight * (x - mean) / sqrt(var + eps) + bias + residual) over all axes but the last."""

    passes_on = True
    _remakes = _passes_in_convolutions = False

    def forward(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
        running: RunningStatistics,
        eps: float,
        slope: float | None,
        training: bool,
    ) -> Tensor:
        engine, epilogue = x.engine, Epilogue(weight, bias, slope)
        if training or running.mean is None or running.var is None:
            y, state = engine.batch_norm(x, running, eps, epilogue, residual)
        else:
            y, state = engine.batch_norm_inference(x, running.mean, running.var, eps, epilogue, residual)
        self._keep((x, weight, bias, residual), y, state, (eps, slope))
        return y

    def _keep(
        self,
        given: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None],
        y: Tensor,
        state: BatchNormState,
        settings: tuple[float, float | None],
    ) -> None:
        """Keeps what backward needs: of the tensors x, weight, bias and residual, and of the result."""
        (x, weight, bias, residual), (eps, slope) = given, settings
        self._training, self._slope, self._eps = state.training, slope, eps
        # Where the residual is all of dy, it is handed through and no longer ours alone.
        self.fresh = not (residual is not None and slope is None)
        kept = (weight, bias, state.mean, state.inverse_std)
        self._masked = masked = residual is not None and slope is not None
        if is_stored(x.dtype):  # recovered, x would be rounded twice
            self.save(x, y if masked else None, None, *kept)
            if residual is None and is_recorded() and x.engine.remakes_batch_norm(x):
                self.offer(y)
        elif state.invertible and masked:
            # y is saved as the mask already, and the residual by the block that it went into.
            self.save(None, y, residual, *kept)
        elif is_recorded() and x.engine.remakes_batch_norm(x):
            self._remakes = True
            self._passes_in_convolutions = x.engine.measures_convolutions(x)
            self.save(x, None, residual if masked else None, *kept)
            if masked or residual is None:
                self.offer(y)
        else:
            self.save(x, y if masked else None, None, *kept)
            if state.invertible:
                self.exchange(0, 1, y)

    def remake(self) -> Tensor:
        return _made_again(self)

    def terms(self) -> tuple[list[Normalised], Tensor | Remade | None]:
        """What the result is made again of: terms of ``Engine.batch_norm_chain_again``, and the last one's residual."""
        x, _, residual, *others = self.kept_or_remade()
        weight, bias, mean, inverse_std = others
        state = BatchNormState(mean, inverse_std, self._training)
        return [Normalised(value_of(x), Epilogue(weight, bias, self._slope), state)], residual

    def normalised_result(self) -> tuple[Normalised, Tensor | None] | None:
        if not self._remakes or not self._passes_in_convolutions:
            return None
        x, _, residual, weight, bias, mean, inverse_std = self.kept()
        state = BatchNormState(mean, inverse_std, self._training)
        return Normalised(x, Epilogue(weight, bias, self._slope), state), residual

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, residual, weight, bias, mean, inverse_std = self.saved
        state = BatchNormState(mean, inverse_std, self._training)
        found = self.handed_over()
        if found is not None:  # dy is the gradient past the activation
            over_x = self.may_overwrite(0)
            dx = dy.engine.batch_norm_summed_grad(dy, x, Epilogue(weight, bias, self._slope), state, found, over_x)
            return dx, found.weight, found.bias, dy if self.needs[3] else None
        others = (Epilogue(weight, bias, self._slope), state, self.needs[3])
        if x is None:
            return dy.engine.batch_norm_inverse_grad(dy, y, residual, *others)
        if self._remakes:
            overwrites = (self.may_overwrite_gradient(), self.may_overwrite(0))
            return dy.engine.batch_norm_remade_grad(dy, x, residual, *others, overwrites)
        return dy.engine.batch_norm_grad(dy, x, y, *others)

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, residual, weight, bias, mean, inverse_std = self.saved
        slope = self._slope
        if x is None:
            x = self.argument_in_graph(0, self._inverted(y.detach(), residual, weight, bias, mean, inverse_std))
        elif self._masked and y is None:
            y = self.remake()

        def formula(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
            shifted = normalised(x, weight, bias, BatchNormState(mean, inverse_std, self._training), self._eps)
            return shifted if slope is None or y is not None else where(shifted > 0, shifted, shifted * slope)

        if slope is not None and y is not None:
            dy = where(y.detach() > 0, dy, dy * slope)
        return (*by_formula(formula, (x, weight, bias), dy), dy if self.needs[3] else None)

    def _inverted(self, y: Tensor, residual: Tensor | None, *others: Any) -> Tensor:
        """The argument, found again from the result."""
        weight, bias, mean, inverse_std = [None if one is None else one.detach() for one in others]
        slope = self._slope
        z = y if slope is None else where(y > 0, y, y / slope)
        z = z if residual is None else z - residual.detach()
        z = z if bias is None else z - bias
        z = z if weight is None else z / weight
        return z / inverse_std + mean


def normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None, state: BatchNormState, eps: float) -> Tensor:
    """BatchNorm by functions that have gradients; in training the statistics are x's own."""
    center, scale, axes = state.mean, state.inverse_std, tuple(range(x.ndim - 1))
    if state.training:
        center = x.mean(axes)
        scale = ((x - center) * (x - center)).mean(axes).add(eps).rsqrt()
    normal = (x - center) * scale
    scaled = normal if weight is None else normal * weight
    return scaled if bias is None else scaled + bias


class MeasuredBatchNormFunction(BatchNormFunction):
    """The same of a tensor whose statistics are known."""

    def forward(  # type: ignore[override]  # it is called by its own arguments
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
        state: BatchNormState,
        eps: float,
        slope: float | None,
    ) -> Tensor:
        y: Tensor = x.engine.batch_norm_again(x, Epilogue(weight, bias, slope), state, residual)
        self._keep((x, weight, bias, residual), y, state, (eps, slope))
        return y


class BatchNormSumFunction(Function):
    """act(BatchNorm(x) + BatchNorm(other)), both in training: what neither of the two makes is never in memory."""

    passes_on = True
    fresh = True

    def forward(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        other: Tensor,
        other_weight: Tensor | None,
        other_bias: Tensor | None,
        settings: tuple[tuple[Any, ...], tuple[Any, ...]],
        slope: float | None,
    ) -> Tensor:
        first = ToNormalise(x, weight, bias, *settings[0])
        second = ToNormalise(other, other_weight, other_bias, *settings[1])
        y, state, other_state = x.engine.batch_norm_sum(first, second, slope)
        self._slope, self._eps = slope, (first.eps, second.eps)
        self.save(x, weight, bias, *state[:2], other, other_weight, other_bias, *other_state[:2])
        if is_recorded():
            self.offer(y)
        return y

    def _both(self, saved: tuple[Any, ...]) -> tuple[Normalised, Normalised]:
        """The tensors and what they are normalised by."""
        first, second = [
            Normalised(x, Epilogue(weight, bias, self._slope), BatchNormState(mean, inverse_std, True))
            for x, weight, bias, mean, inverse_std in (saved[:5], saved[5:])
        ]
        return first, second

    def remake(self) -> Tensor:
        first, second = self._both(self.kept())
        again: Tensor = first.x.engine.batch_norm_sum_again(first, second)
        return again

    def terms(self) -> tuple[list[Normalised], None]:
        """As BatchNormFunction's: the second has no activation of its own."""
        first, (x, epilogue, state) = self._both(self.kept())
        return [first, Normalised(x, epilogue._replace(slope=None), state)], None

    def normalised_result(self) -> tuple[Normalised, Normalised] | None:
        first, second = self._both(self.kept())
        return (first, second) if first.x.engine.measures_convolutions(first.x) else None

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        first, second = self._both(self.saved)
        overwrites = self.may_overwrite(0), self.may_overwrite(5)
        found = self.handed_over()
        if found is not None:  # dy is the gradient past the activation
            dx, other_dx = dy.engine.batch_norm_sum_summed_grad(dy, first, second, found, overwrites)
            return dx, found.weight, found.bias, other_dx, found.other_weight, found.other_bias
        over_dy = self.may_overwrite_gradient()
        gradients: tuple[Tensor | None, ...] = dy.engine.batch_norm_sum_grad(dy, first, second, (over_dy, *overwrites))
        return gradients

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        first, second = self._both(self.saved)
        if self._slope is not None:
            dy = where(self.remake() > 0, dy, dy * self._slope)
        gradients: list[Tensor | None] = []
        for (x, epilogue, state), eps in zip((first, second), self._eps, strict=True):
            formula = partial(normalised, state=state, eps=eps)
            gradients += by_formula(formula, (x, epilogue.weight, epilogue.bias), dy)
        return tuple(gradients)


def _made_again(function: BatchNormFunction) -> Tensor:
    """A result that was offered. Residuals that are made again themselves are so in the same pass, and not kept.

    What would take more than one pass is made for itself, and kept for those who need it later.
    """
    terms, residual = function.terms()
    engine = terms[0].x.engine
    while isinstance(residual, Remade) and residual.value is None:
        below = residual.function
        if not isinstance(below, (BatchNormFunction, BatchNormSumFunction)):
            break
        more, under = below.terms()
        if len(terms) + len(more) > engine.most_chained_norms:
            break
        terms, residual = terms + more, under
    made: Tensor = engine.batch_norm_chain_again(terms, value_of(residual))
    return made


def batch_norm_of(given: ToNormalise, residual: Tensor | None, slope: float | None) -> Tensor:
    """act(BatchNorm(x) + residual) in training, of an x whose statistics are known.

    ``slope``: of the leaky ReLU, 0 for ReLU, None for no activation.
    """
    x, weight, bias, _, eps, state = given
    check_batch(x, {"weight": weight, "bias": bias}, residual)
    result: Tensor = MeasuredBatchNormFunction.apply(x, weight, bias, residual, state, eps, slope)
    return result


def batch_norm_sum(first: ToNormalise, second: ToNormalise, slope: float | None) -> Tensor | None:
    """act(BatchNorm(first) + BatchNorm(second)) in training, of one pass; None where it takes more than that.

    ``slope``: of the leaky ReLU, 0 for ReLU, None for no activation.
    """
    x, other = first.x, second.x
    if x.shape != other.shape or x.dtype != other.dtype or is_stored(x.dtype):
        return None
    if x.storage.engine is not other.storage.engine or not x.storage.engine.sums_batch_norms(x):
        return None
    for one in (first, second):
        vectors = {"weight": one.weight, "bias": one.bias, "running_mean": one.running.mean}
        check_batch(one.x, {**vectors, "running_var": one.running.var}, None)
        _check_count(one.x, one.running.batches)
    result: Tensor = BatchNormSumFunction.apply(*first[:3], *second[:3], settings=(first[3:], second[3:]), slope=slope)
    return result


@of_images("input", "residual")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    residual: Tensor | None = None,
    activation: str | None = None,
    negative_slope: float = 0.01,
    *,
    num_batches_tracked: Tensor | None = None,
    layout: str | None = None,
) -> Tensor:
    """Batch normalisation over all axes but the last, then ``+ residual``, then the activation, in one pass.

    It is computed in float32 where the input is of 16 bits, whose vectors may be float32 or of its own dtype.

    Args:
        input: (..., C).
        running_mean, running_var: (C,), updated in place in training (the variance unbiased), used otherwise.
        weight, bias: (C,), or None for 1 and 0.
        training: normalise with the batch's own statistics.
        momentum: weight of the batch in the running statistics.
        residual: added before the activation; shaped as input.
        activation: None, ``"relu"`` or ``"leaky_relu"`` (with ``negative_slope``).
        num_batches_tracked: (), int64, which counts one more batch in training.

    Source: Ioffe & Szegedy, arXiv 1502.03167.
    """
    slope = slope_of("batch_norm", activation, negative_slope)
    vectors = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    residual = like_input(input, residual)
    check_batch(input, vectors, residual)
    _check_count(input, num_batches_tracked)
    momentum, eps = number("batch_norm", "momentum", momentum), number("batch_norm", "eps", eps)
    training = flag("batch_norm", "training", training)
    rows = math.prod(input.shape[:-1])
    if training and rows == 1:
        raise ShapeError(f"[batch_norm] expected more than one value per channel when training, got x: {input.shape}")
    if not training and (running_mean is None or running_var is None):
        raise ArgumentError("[batch_norm] expected running statistics outside training, got none: pass training=True")
    if not input.numel():
        return nothing(input.shape, input, weight, bias, residual)
    running = RunningStatistics(running_mean, running_var, momentum, num_batches_tracked)
    settings = {"running": running, "eps": eps, "slope": slope, "training": training}
    result: Tensor = BatchNormFunction.apply(input, weight, bias, residual, **settings)
    return result


def _check_count(input: Tensor, count: Tensor | None) -> None:
    """An error unless a count of batches is one: () of int64, on the input's engine."""
    if count is None:
        return
    check_tensor("batch_norm", count)
    if count.shape != () or count.dtype != default_int:
        raise ShapeError(
            f"[batch_norm] expected num_batches_tracked of shape () and int64, got {count.shape} of {count.dtype}"
        )
    input.engine.check_owner("batch_norm", count)


def check_batch(input: Tensor, vectors: Mapping[str, Tensor | None], residual: Tensor | None) -> None:
    """An error unless BatchNorm takes these together: input (..., C), vectors by name (C,), a residual as input."""
    if (
        isinstance(input, Tensor)
        and len(input.shape) > 1
        and input.dtype in FLOATS
        and are_alike(input.shape, input, vectors.values(), residual)
    ):
        return
    given = [t for t in (*vectors.values(), residual) if t is not None]
    check_tensor("batch_norm", input, *given)
    if input.ndim < 2 or not is_float(input.dtype):
        raise ShapeError(f"[batch_norm] expected floats of at least 2 axes, got shape {input.shape} of {input.dtype}")
    channels = input.shape[-1]
    for name, vector in vectors.items():
        if vector is not None and vector.shape != (channels,):
            raise ShapeError(
                f"[batch_norm] expected {name} of shape ({channels},) for x: {input.shape}, got {vector.shape}"
            )
    if residual is not None and residual.shape != input.shape:
        raise ShapeError(f"[batch_norm] expected a residual shaped as x: {input.shape}, got {residual.shape}")
    input.engine.check_owner("batch_norm", *given)
    first = next((one for one in vectors.values() if one is not None), input)
    wanted = first.dtype if first.dtype == computed_in(input.dtype) else input.dtype
    for other in given:
        if other.dtype != (input.dtype if other is residual else wanted):
            raise DtypeError(f"[batch_norm] expected tensors of {input.dtype} as input, got {other.dtype}: cast one")
