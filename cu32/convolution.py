"""ConvolutionOperations: the CUDA engine's three operators of C-K-S, from tensors to plans to launches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha import bands
from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from alpha.cu32 import planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.endings import ActivatedEnding
from alpha.cu32.conv.problem import Call, problem_of
from alpha.cu32.normalisation import is_aligned
from alpha.engine import FILTER_ORDER, IMAGE_ORDER, Epilogue
from alpha.errors import EngineError
from alpha.geometry import Geometry
from alpha.records import Normalised
from alpha.tensor import Tensor

MACS = {"conv2d": 0, "conv2d_input_grad": 0, "conv2d_weight_grad": 0}
"""Multiply-adds that the last call of each operator asked for: rows x taps x channels over its list of tiles."""

TERMS_LIMIT = 2**30
"""Terms (output row, output column, image) of a filter gradient's sums: conv_weight*.cu count them in 32 bits, those of
a panel beyond the end included."""


class ConvolutionOperations(DeviceEngine):
    """Convolutions over images with any strides whose channels are contiguous; other images are copied first."""

    def conv2d(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        residual: Tensor | None = None,
        slope: float | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        x, w = self._image(x), self.dense(w, FILTER_ORDER)
        shape = (x.shape[0], *geometry.output, w.shape[0])
        plain = residual is None and slope is None
        out, adds = self._target(shape, x.dtype, accumulate if plain else None)
        part, ending = bands.middle(geometry, True), None
        if not plain and part is None and lie_alike(out, residual):
            ending = ActivatedEnding(residual, slope)
        if part is None:
            call = Call(x, w, out, dense_bias(self, bias), ending)
            MACS["conv2d"] = self._compute(FORWARD, call, geometry, groups, adds)
        else:
            found = self.conv2d(part.of_inputs(x), w, bias, part.geometry, groups)
            self._put(found, part.of_outputs(out), out, bias, adds)
        if not plain and (ending is None or not ending.taken):
            out = self._activated(out, residual, slope)
        return self._accumulated(out, accumulate)

    def _activated(self, out: Tensor, residual: Tensor | None, slope: float | None) -> Tensor:
        """act(out + residual)."""
        # BatchNorm's kernel, which adds and activates in one pass, with statistics that change nothing.
        channels = out.shape[3]
        mean = self.constant(("zeros", channels, out.dtype), lambda: np.zeros(channels, out.dtype))
        var = self.constant(("ones", channels, out.dtype), lambda: np.ones(channels, out.dtype))
        return self.batch_norm_inference(out, mean, var, 0.0, Epilogue(slope=slope), residual)[0]

    def conv2d_input_grad(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        bias: Tensor | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        dy, w = self._image(dy), self.dense(w, FILTER_ORDER)
        out, adds = self._target((dy.shape[0], *geometry.input, w.shape[3] * groups), dy.dtype, accumulate)
        part = bands.middle(geometry, False)
        if part is None:
            call = Call(dy, w, out, dense_bias(self, bias))
            MACS["conv2d_input_grad"] = self._compute(INPUT_GRAD, call, geometry, groups, adds)
        else:
            found = self.conv2d_input_grad(part.of_outputs(dy), w, part.geometry, groups, bias)
            self._put(found, part.of_inputs(out), out, bias, adds)
        return self._accumulated(out, accumulate)

    def _put(self, found: Tensor, place: Tensor, out: Tensor, bias: Tensor | None, adds: bool) -> None:
        """The results of a part of all positions where they belong, the bias alone beside them; or added there."""
        if adds and bias is None:
            self.elementwise("add", place, found, out=place)
            return
        if adds:
            total = self.empty_like(out)
            self._put(found, total.strided(place.offset - out.offset, place.shape, place.strides), total, bias, False)
            self.elementwise("add", out, total, out=out)
            return
        if bias is None:
            self.fill(out, 0)
        else:
            self.copy(bias, out)
        self.copy(found, place)

    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        return self._weight_grad(x, dy, geometry, groups, None)

    def _weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int, before: Normalised | None) -> Tensor:
        """The gradient of filters, of images that are still to be normalised if ``before`` says so."""
        x, dy = self._image(x), self._image(dy)
        dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
        if x.shape[0] * math.prod(geometry.output) >= TERMS_LIMIT:
            x = x if before is None else self.batch_norm_again(*before, None)
            return self._weight_grad_of_pieces(x, dy, geometry, groups)
        call = Call(x, dy, dw, before=before)
        MACS["conv2d_weight_grad"] = self._compute(WEIGHT_GRAD, call, geometry, groups)
        return dw

    def _weight_grad_of_pieces(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """The sum of the gradients of so few images each that no sum has too many terms."""
        positions = math.prod(geometry.output)
        most = (TERMS_LIMIT - 1) // positions
        if most == 0:
            raise EngineError(
                f"[conv2d_weight_grad] expected fewer than {TERMS_LIMIT} positions of an output image, got "
                f"{positions}: use smaller images"
            )
        total = self.conv2d_weight_grad(_images(x, 0, most), _images(dy, 0, most), geometry, groups)
        products = MACS["conv2d_weight_grad"]
        for first in range(most, x.shape[0], most):
            found = self.conv2d_weight_grad(_images(x, first, most), _images(dy, first, most), geometry, groups)
            self.elementwise("add", total, found, out=total)
            products += MACS["conv2d_weight_grad"]
        MACS["conv2d_weight_grad"] = products
        return total

    def _compute(self, operator: str, call: Call, geometry: Geometry, groups: int, adds: bool = False) -> int:
        """An operator by the planner's choice, added to what ``call.out`` holds if asked; the multiply-adds."""
        high, split = tf32.allowed(self)
        problem = problem_of(operator, call, geometry, groups, high, adds, split)
        plan = planner.chosen(
            self,
            problem,
            lambda plan: planner.algorithm_of(plan).run(
                self, plan, call._replace(out=self.empty_like(call.out), ending=None, before=None)
            ),
        )
        algorithm = planner.algorithm_of(plan)
        if call.before is not None and not algorithm.normalises(self, plan):
            call = call._replace(source=self._image(self.batch_norm_again(*call.before, None)), before=None)
        return algorithm.run(self, plan, call)

    def _target(self, shape: tuple[int, ...], dtype: np.dtype[Any], accumulate: Tensor | None) -> tuple[Tensor, bool]:
        """Where a result is written, and whether by adding to what is there: ``accumulate`` where it lies dense."""
        if accumulate is not None and accumulate.shape == shape and accumulate.is_contiguous(IMAGE_ORDER):
            return accumulate, True
        return self.empty(shape, dtype, IMAGE_ORDER), False

    def _accumulated(self, out: Tensor, accumulate: Tensor | None) -> Tensor:
        """The result, added into ``accumulate`` unless it was written there."""
        if accumulate is None or accumulate is out:
            return out
        return self.elementwise("add", accumulate, out, out=accumulate)

    def _image(self, x: Tensor) -> Tensor:
        """x with contiguous channels, each pixel a run of memory; a copy in image order where it is not so."""
        (across, row, column, step), channels = x.strides, x.shape[3]
        if (step == 1 or channels == 1) and across >= channels and row >= channels and column >= channels:
            return x
        return self.dense(x, IMAGE_ORDER)


def dense_bias(engine: DeviceEngine, bias: Tensor | None) -> Tensor | None:
    """A bias as kernels read it."""
    return None if bias is None else engine.dense(bias, (0,))


def lie_alike(x: Tensor, *others: Tensor | None) -> bool:
    """Whether images, those that there are, lie as a result is written: dense, and where packs may be read."""
    return all(
        one is None or (one.shape == x.shape and one.is_contiguous(IMAGE_ORDER) and is_aligned(one))
        for one in (x, *others)
    )


def _images(x: Tensor, first: int, most: int) -> Tensor:
    """So many of a batch's images from the first on, or what is left of them."""
    shape = (min(most, x.shape[0] - first), *x.shape[1:])
    return x.strided(x.offset + first * x.strides[0], shape, x.strides)
