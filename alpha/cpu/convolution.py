"""ConvolutionOperations: the CPU engine's three operators of C-K-S, from tensors to plans to kernels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from alpha import bands
from alpha.composed import stored
from alpha.composed.arrays import cast
from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from alpha.cpu import pairs, planner
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.conv.algorithm import Call
from alpha.cpu.conv.problem import RUN_CHANNELS, Problem, problem_of
from alpha.cpu.isa import ISA, L1_SET_STRIDE, L1_WAYS
from alpha.cpu.kernels import filters as kernels
from alpha.dtypes import computed_in, is_stored
from alpha.engine import IMAGE_ORDER
from alpha.errors import ShapeError
from alpha.geometry import Geometry
from alpha.tensor import Tensor

MACS = {"conv2d": 0, "conv2d_input_grad": 0, "conv2d_weight_grad": 0}
"""Multiply-adds that the last call of each operator issued, as counted by its kernel."""

IMAGE_GAP_BYTES = 5 * 64
"""Bytes between copies of images, so that a tile's images use sets all over the cache, as its panel of filters does."""

SPREAD_WORK = 1000
"""Fewest operations per number of x that are worth a copy of it."""


def _activate(values: Array, slope: float) -> None:
    np.multiply(values, values.dtype.type(slope), out=values, where=~(values > 0))


class ConvolutionOperations(HostEngine):
    """Convolutions over images with any strides whose channels are contiguous; other images are copied first."""

    @stored.takes_stored_dtypes
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
        if is_stored(x.dtype):
            if not pairs.are_read(x, w) or geometry.long_output or geometry.reached is not geometry:
                return self._converted("conv2d", x, w, bias, geometry, groups, residual, slope, accumulate)
            bias = _wide(bias)
        return self._conv2d(x, w, geometry, groups, slope, bias, residual, accumulate)

    def _conv2d(
        self,
        x: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        slope: float | None,
        bias: Tensor | None,
        residual: Tensor | None,
        accumulate: Tensor | None,
    ) -> Tensor:
        x, w = pairs.factors(self, x, w)
        x = self._image(x)
        if groups == 1 and not is_stored(x.dtype) and not pairs.are_wanted(x.dtype.itemsize):
            x = self._spread(x, geometry, w.shape[0])
        shape = (x.shape[0], *geometry.output, w.shape[0])
        plain = residual is None and slope is None
        out, added = self._target(shape, x.dtype, accumulate if plain else None)
        added = residual if added is None else added
        if geometry.long_output:
            MACS["conv2d"] = self._in_bands(FORWARD, groups, Call(x, w, out, geometry, bias, added, slope))
            return self._accumulated(out, accumulate)
        w, geometry = _reaching(w, geometry), geometry.reached
        problem = problem_of(FORWARD, x, out, geometry, groups)
        MACS["conv2d"] = self._convolve(problem, Call(x, w, out, geometry, bias, added, slope))
        return self._accumulated(out, accumulate)

    @stored.takes_stored_dtypes
    def conv2d_input_grad(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        bias: Tensor | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        if is_stored(dy.dtype):
            if not pairs.are_read(dy, w) or geometry.long_input or geometry.reached is not geometry:
                return self._converted("conv2d_input_grad", dy, w, geometry, groups, bias, accumulate)
            bias = _wide(bias)
        return self._input_grad(dy, w, geometry, groups, bias, accumulate)

    def _input_grad(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        bias: Tensor | None,
        accumulate: Tensor | None,
    ) -> Tensor:
        dy, w = pairs.factors(self, dy, w)
        dy = self._image(dy)
        shape = (dy.shape[0], *geometry.input, w.shape[3] * groups)
        out, added = self._target(shape, dy.dtype, accumulate)
        if geometry.long_input:
            MACS["conv2d_input_grad"] = self._in_bands(INPUT_GRAD, groups, Call(dy, w, out, geometry, bias, added))
            return self._accumulated(out, accumulate)
        w, geometry = _reaching(w, geometry), geometry.reached
        problem = problem_of(INPUT_GRAD, out, dy, geometry, groups)
        MACS["conv2d_input_grad"] = self._convolve(problem, Call(dy, w, out, geometry, bias, added))
        return self._accumulated(out, accumulate)

    @stored.takes_stored_dtypes
    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        if x.dtype != dy.dtype:  # the kernels read both by x's
            raise ShapeError(f"[convolution] expected dy of x's {x.dtype}, got {dy.dtype}: convert one of them")
        far = geometry.columns.extent > bands.MAX_SPAN and geometry.columns.dilation > 1
        if is_stored(x.dtype):
            if not pairs.are_read(x, dy) or far or geometry.long_output or geometry.reached is not geometry:
                return self._converted("conv2d_weight_grad", x, dy, geometry, groups)
            return cast(self, self._weight_grad(x, dy, geometry, groups), x.dtype)
        if geometry.reached is not geometry:  # taps that reach x nowhere have a gradient of zero
            dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
            rows, columns = (
                slice(axis.reaching.start, axis.reaching.stop) for axis in (geometry.rows, geometry.columns)
            )
            reached = self.conv2d_weight_grad(x, dy, geometry.reached, groups)
            self.fill(dw, 0)
            self.act(np.copyto, self.operand(dw)[:, rows, columns], self.operand(reached))
            return dw
        x, dy = pairs.factors(self, x, dy)
        x, dy = self._image(x), self._image(dy)
        if far:
            return self._weight_grad_by_taps(x, dy, geometry, groups)
        if geometry.long_output:
            return self._weight_grad_in_bands(x, dy, geometry, groups)
        return self._weight_grad(x, dy, geometry, groups)

    def _weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """``conv2d_weight_grad`` of a geometry that is computed at once."""
        x, dy = self._image(x), self._image(dy)
        problem = problem_of(WEIGHT_GRAD, x, dy, geometry, groups)
        dw = self.empty((dy.shape[3], *geometry.filter, problem.group_in), computed_in(x.dtype))
        MACS["conv2d_weight_grad"] = pairs.run(self, *self._arranged(problem, Call(x, dy, dw, geometry)))
        return dw

    def _converted(self, name: str, source: Tensor, other: Tensor, *others: Any) -> Tensor:
        """An operator of factors that are stored in another dtype than they are computed in."""
        found: Tensor = stored.converted(self, name, source, other, *others)
        return found

    def _in_bands(self, operator: str, groups: int, call: Call) -> int:
        """``_convolve``, a band of the result after the other."""
        x, w, out, geometry, bias, residual, slope, _ = call
        by_output = operator == FORWARD
        parts, all_positions = bands.parts(geometry, by_output)
        if residual is not None and residual is not out:
            residual = self.dense(residual, IMAGE_ORDER)
        if not all_positions:
            self._between_bands(out, bias, residual, slope)
        macs = 0
        for part in parts:
            source, target = (part.of_inputs, part.of_outputs)[:: 1 if by_output else -1]
            from_x, to = source(x), target(out)
            added = to if residual is out else None if residual is None else target(residual)
            cut, reached = _reaching(w, part.geometry), part.geometry.reached
            source_and_target = (from_x, to) if by_output else (to, from_x)
            problem = problem_of(operator, *source_and_target, reached, groups)
            macs += self._convolve(problem, Call(from_x, cut, to, reached, bias, added, slope))
        return macs

    def _between_bands(self, out: Tensor, bias: Tensor | None, residual: Tensor | None, slope: float | None) -> None:
        """What no product is added to: the bias, the residual, and the activation of both."""
        if residual is out:
            if bias is not None:
                self.elementwise("add", out, bias, out=out)
            return
        if bias is None:
            self.fill(out, 0)
        else:
            self.copy(bias, out)
        if residual is not None:
            self.elementwise("add", out, residual, out=out)
        if slope is not None:
            for row, first in itertools.product(range(out.shape[1]), range(0, out.shape[2], bands.MIN_EMPTY)):
                self.act(_activate, self.operand(out)[:, row, first : first + bands.MIN_EMPTY], slope)

    def _weight_grad_in_bands(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """The sum of the filter gradients of all bands of outputs."""
        dw, macs = None, 0
        for part in bands.parts(geometry, True)[0]:
            part_dw = self.conv2d_weight_grad(part.of_inputs(x), part.of_outputs(dy), part.geometry, groups)
            macs += MACS["conv2d_weight_grad"]
            dw = part_dw if dw is None else self.elementwise("add", dw, part_dw, out=dw)
        MACS["conv2d_weight_grad"] = macs
        if dw is None:
            dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
            self.fill(dw, 0)
        return dw

    def _weight_grad_by_taps(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """Taps of the columns one by one, where they lie so far apart that little between them is ever met."""
        dw, macs = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype), 0
        self.fill(dw, 0)
        for tap, part in bands.taps(geometry):
            part_dw = self.conv2d_weight_grad(part.of_inputs(x), part.of_outputs(dy), part.geometry, groups)
            macs += MACS["conv2d_weight_grad"]
            to = (dw.shape[0], dw.shape[1], 1, dw.shape[3])
            self.copy(part_dw, dw.strided(dw.offset + tap * dw.strides[2], to, dw.strides))
        MACS["conv2d_weight_grad"] = macs
        return dw

    def _convolve(self, problem: Problem, call: Call) -> int:
        """A convolution or an input gradient, by the planner's algorithm; the multiply-adds.

        The bias and the residual may lie in any way.
        """
        x, w, out, geometry, bias, residual, slope, _ = call
        wanted = (problem.out_channels, *problem.geometry.filter, problem.group_in)
        if w.shape != wanted or w.dtype != x.dtype:  # what the plans' offsets trust
            raise ShapeError(f"[convolution] expected filters {wanted} of {x.dtype}, got {w.shape} of {w.dtype}")
        expected = (("bias", bias, out.shape[3:], computed_in(out.dtype)), ("residual", residual, out.shape, out.dtype))
        for name, tensor, shape, dtype in expected:
            if tensor is not None and (tensor.shape != shape or tensor.dtype != dtype):
                raise ShapeError(
                    f"[convolution] expected a {name} {shape} of {dtype}, got {tensor.shape} of {tensor.dtype}"
                )
        bias = None if bias is None else self.dense(bias, (0,))
        if residual is not None and not _lies_as(residual, out):
            residual = self.dense(residual, IMAGE_ORDER)
        if bias is not call.bias or residual is not call.residual:
            call = Call(x, w, out, geometry, bias, residual, slope)
        return pairs.run(self, *self._arranged(problem, call))

    def _arranged(self, problem: Problem, call: Call) -> tuple[Problem, Call]:
        """A problem and its call, with copies of the images where the planner finds these worth it."""
        found = planner.arranged(problem)
        if found is problem:
            return problem, call
        other = self.dense(call.other, IMAGE_ORDER) if problem.operator == WEIGHT_GRAD else call.other
        return found, call._replace(source=self.dense(call.source, IMAGE_ORDER), other=other)

    def _target(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], accumulate: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Where a result is written, and what is added to it: both are ``accumulate`` where the kernels can do that."""
        if accumulate is not None and (accumulate.shape, accumulate.dtype) == (shape, dtype):
            lies_right = accumulate.is_contiguous(IMAGE_ORDER) if is_stored(dtype) else _is_image(accumulate)
            if lies_right:
                return accumulate, accumulate
        return self.empty(shape, dtype, IMAGE_ORDER), None

    def _accumulated(self, out: Tensor, accumulate: Tensor | None) -> Tensor:
        """The result, added into ``accumulate`` unless it was written there."""
        if accumulate is None or accumulate is out:
            return out
        return self.elementwise("add", accumulate, out, out=accumulate)

    def _image(self, x: Tensor) -> Tensor:
        """x as the kernels read it; a copy in image order where it is not so, or might get gaps as it is converted."""
        return x if _is_image(x) and not is_stored(x.dtype) else self.dense(x, IMAGE_ORDER)

    def _spread(self, x: Tensor, geometry: Geometry, channels: int) -> Tensor:
        """x, or a copy with room after each image, where a tile's images would lie in one set of the first cache."""
        pixel, item = x.shape[3], x.dtype.itemsize
        apart = x.strides[0] * item % L1_SET_STRIDE or min(x.shape[0], ISA.rows) <= L1_WAYS
        if pixel >= RUN_CHANNELS or apart:
            return x
        if 2 * channels * geometry.useful < SPREAD_WORK * math.prod(geometry.input):
            return x
        row = x.shape[2] * pixel
        image = x.shape[1] * row + IMAGE_GAP_BYTES // item
        out = self.empty((x.shape[0] * image,), x.dtype).strided(0, x.shape, (image, row, pixel, 1))
        if x.strides[1:] != out.strides[1:]:
            self.copy(x, out)
            return out
        self.launch(
            kernels.spread, x.dtype.type(0), x.shape[0], x.address, x.strides[0] * item, out.address, image * item,
            x.shape[1] * row * item,
        )  # fmt: skip
        return out


def _wide(bias: Tensor | None) -> Tensor | None:
    """A bias in the dtype in which results are computed."""
    return None if bias is None else cast(bias.engine, bias, computed_in(bias.dtype))


def _lies_as(x: Tensor, other: Tensor) -> bool:
    """Whether elements of the same index lie equally far apart; of one shape."""
    return x.strides == other.strides or all(
        a == b for a, b, size in zip(x.strides, other.strides, x.shape, strict=True) if size > 1
    )


def _is_image(x: Tensor) -> bool:
    """Whether channels are contiguous, and each pixel a run of memory of its own."""
    image, row, column, step = x.strides
    channels = x.shape[3]
    return (step == 1 or channels == 1) and image >= channels and row >= channels and column >= channels


def _reaching(w: Tensor, geometry: Geometry) -> Tensor:
    """The view of filters' taps that ``geometry.reached`` has."""
    if geometry.reached is geometry or w.shape[1:3] != geometry.filter:
        return w
    rows, columns = geometry.rows.reaching, geometry.columns.reaching
    offset = w.offset + rows.start * w.strides[1] + columns.start * w.strides[2]
    return w.strided(offset, (w.shape[0], len(rows), len(columns), w.shape[3]), w.strides)
