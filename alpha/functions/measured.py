"""A convolution that measures its result for the BatchNorm behind it, where the engine can do so on the way."""

from __future__ import annotations

import math
from typing import Any

from alpha.arguments import whole
from alpha.functions.autocasting import lowered
from alpha.functions.conv import Conv2dFunction, Given, conv2d, convolution_steps, named
from alpha.functions.images import of_images
from alpha.geometry import Geometry
from alpha.records import Measurement
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
    stride, padding, dilation, number = steps
    groups = number if type(number) is int else whole("conv2d", "groups", number)
    geometry = named(
        "conv2d",
        Geometry.make,
        input.shape[1:3],
        weight.shape[1:3],
        *convolution_steps(Given("conv2d", 2, input, weight, bias, groups), stride, padding, dilation),
    )
    result: Tensor
    shape = (input.shape[0], *geometry.output, weight.shape[0])
    measures = math.prod(shape[:-1]) > 1 and input.storage.engine.measures_convolutions(input)
    if measures and measurement.fits(shape, input):
        result = MeasuredConv2dFunction.apply(input, weight, bias, None, geometry, groups, measurement)
    else:
        result = conv2d(input, weight, bias, stride, padding, dilation, groups, layout="NHWC")
    return result
