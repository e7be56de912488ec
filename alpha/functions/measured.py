"""A convolution that measures its result for the BatchNorm behind it, where the engine can do so on the way."""

from __future__ import annotations

import math
from typing import Any

from alpha.arguments import whole
from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.engine import BatchNormState, Epilogue
from alpha.functions.autocasting import lowered
from alpha.functions.conv import Conv2dFunction, Given, conv2d, convolution_steps, named
from alpha.functions.elementwise import where
from alpha.functions.images import of_images
from alpha.functions.norm import batch_norm_of, check_batch, normalised
from alpha.geometry import Geometry
from alpha.records import Measurement, Normalised, NormGradients, ToNormalise
from alpha.tensor import Tensor


class MeasuredConv2dFunction(Conv2dFunction):
    """Y = conv(X, W), whose statistics go into a measurement."""

    def forward(  # type: ignore[override]  # it is called by its own arguments
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        residual: None,
        geometry: Geometry,
        groups: int,
        measurement: Measurement,
    ) -> Tensor:
        self._geometry, self._groups, self._slope = geometry, groups, None
        self.fresh = True
        found = x.engine.conv2d_measured(x, w, bias, geometry, groups, measurement.running, measurement.eps)
        y: Tensor
        y, measurement.state = found
        self.save(x if self.needs[1] else None, w if self.needs[0] else None, None)
        return y


class NormalisedConv2dFunction(Function):
    """Y = conv(act(BatchNorm(X)), W), whose statistics go into a measurement; BatchNorm's result is never in memory."""

    fresh = True

    def forward(
        self,
        x: Tensor,
        gamma: Tensor | None,
        beta: Tensor | None,
        w: Tensor,
        normalising: tuple[BatchNormState, float, float | None],
        kind: tuple[Geometry, int],
        measurement: Measurement,
    ) -> Tensor:
        """``normalising``: the statistics of x, what was added to its variance, and the slope of the activation."""
        (state, self._eps, self._slope), self._kind = normalising, kind
        before = Normalised(x, Epilogue(gamma, beta, self._slope), state)
        y: Tensor
        y, measurement.state = x.engine.conv2d_normalised(before, w, *kind, measurement.running, measurement.eps)
        self.save(x, gamma, beta, w, state.mean, state.inverse_std)
        return y

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, beta, w, mean, inverse_std = self.saved
        epilogue, state = Epilogue(gamma, beta, self._slope), BatchNormState(mean, inverse_std, True)
        before, engine = Normalised(x, epilogue, state), dy.engine
        dw = engine.conv2d_weight_grad_normalised(before, dy, *self._kind) if self.needs[3] else None
        if not any(self.needs[:3]):
            return None, None, None, dw
        g, found = engine.conv2d_input_grad_past(dy, w, *self._kind, (before, None))
        over_x = self.may_overwrite(0)
        if not isinstance(found, NormGradients):  # g is the gradient for BatchNorm's result, and nobody else's
            dx, dgamma, dbeta, _ = engine.batch_norm_remade_grad(g, x, None, epilogue, state, False, (True, over_x))
            return dx, dgamma, dbeta, dw
        return engine.batch_norm_summed_grad(g, x, epilogue, state, found, over_x), found.weight, found.bias, dw

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, beta, w, mean, inverse_std = self.saved
        state, slope, eps = BatchNormState(mean, inverse_std, True), self._slope, self._eps

        def formula(x: Tensor, gamma: Tensor | None, beta: Tensor | None, w: Tensor) -> Tensor:
            z = normalised(x, gamma, beta, state, eps)
            z = z if slope is None else where(z > 0, z, z * slope)
            y: Tensor = Conv2dFunction.apply(z, w, None, None, *self._kind, None)
            return y

        return by_formula(formula, (x, gamma, beta, w), dy)


def conv2d_normalised(
    given: ToNormalise, slope: float | None, weight: Tensor, steps: tuple[Any, Any, Any, int], measurement: Measurement
) -> Tensor:
    """``conv2d_measured`` of act(BatchNorm(x)) in training, of an x whose statistics are known, without a bias.

    Args:
        given: x, in the engine's order, and how it is to be normalised.
        slope: of the leaky ReLU, 0 for ReLU, None for no activation.
        weight, steps, measurement: as ``conv2d_measured`` takes them.
    """
    x, gamma, beta, _, eps, state = given
    check_batch(x, {"weight": gamma, "bias": beta}, None)
    geometry, groups = kind = _kind(x, weight, None, steps)
    result: Tensor
    shape = (x.shape[0], *geometry.output, weight.shape[0])
    if math.prod(shape[:-1]) > 1 and measurement.fits(shape, x):
        result = NormalisedConv2dFunction.apply(x, gamma, beta, weight, (state, eps, slope), kind, measurement)
    else:
        y = batch_norm_of(given, None, slope)
        result = conv2d(y, weight, None, *steps[:3], groups, layout="NHWC")
    return result


def _kind(x: Tensor, weight: Tensor, bias: Tensor | None, steps: tuple[Any, Any, Any, int]) -> tuple[Geometry, int]:
    """The geometry of a convolution, and its groups, of arguments that are checked."""
    *others, number = steps
    groups = number if type(number) is int else whole("conv2d", "groups", number)
    checked = convolution_steps(Given("conv2d", 2, x, weight, bias, groups), *others)
    geometry: Geometry = named("conv2d", Geometry.make, x.shape[1:3], weight.shape[1:3], *checked)
    return geometry, groups


@lowered
@of_images("input", "weight", axes=2)
def conv2d_measured(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    steps: tuple[Any, Any, Any, int],
    measurement: Measurement,
    *,
    layout: str | None = None,
) -> Tensor:
    """``conv2d``, which fills in the measurement of its result where that spares a pass over memory.

    Args:
        input, weight, bias: as ``conv2d`` takes them.
        steps: stride, padding, dilation and groups.
        measurement: what is to be measured. Its state stays None where nothing was, the running statistics as they are.
    """
    geometry, groups = _kind(input, weight, bias, steps)
    result: Tensor
    shape = (input.shape[0], *geometry.output, weight.shape[0])
    measures = math.prod(shape[:-1]) > 1 and input.storage.engine.measures_convolutions(input)
    if measures and measurement.fits(shape, input):
        result = MeasuredConv2dFunction.apply(input, weight, bias, None, geometry, groups, measurement)
    else:
        result = conv2d(input, weight, bias, *steps[:3], groups, layout="NHWC")
    return result
