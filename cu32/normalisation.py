"""NormalisationOperations: BatchNorm with its fused activation and residual on the CUDA engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cu32.base import DeviceEngine, Launch, c_type, in_vectors
from alpha.cu32.compiler import Source
from alpha.dtypes import DType, float64, info, is_stored
from alpha.engine import BatchNormState, Epilogue, RunningStatistics
from alpha.records import NormGradients
from alpha.tensor import Tensor

SOURCES = in_vectors("normalisation")

THREADS = 256
"""Threads per block, as the kernels are compiled for."""

SUM_ROWS = 4
"""Rows that a thread of a sum has at least to itself: fewer, and its block's tree costs more than its additions."""

SUM_WAVES = {"statistics": 3, "grad_sums": 2, "channel_sums": 4, "grad_sums_sum": 1}
"""Blocks per multiprocessor of the kernels that sum: as many as their registers admit at once."""

MOST_TERMS = 4
"""BatchNorms that one pass makes again with the sums of their results."""

APPLY_WAVES = 8
"""Blocks per multiprocessor of the kernels that apply: two rounds of those that run at once."""

SUM_WIDTHS = {1: 32, 4: 8}
"""By VEC, the packs side by side of a block that sums: a cache line, so that as many rows as possible share a block."""

APPLY_WIDTH = 32
"""Packs side by side of a block that applies: with VEC 4 the 128 channels that the kernels have room for."""

REMADE_FROM = 1 << 20
"""Bytes of a BatchNorm's result from which it is made again in backward instead of kept: one pass, and half the memory.

A smaller one would save little, and cost a launch.
"""

ALIGNMENT = 16
"""Bytes to which the addresses of packed accesses are aligned."""


class Tiling(NamedTuple):
    """How a launch covers (rows, channels): packs of a tile's width; (tiles, parts that the rows are split into)."""

    width: int
    grid: tuple[int, int]


class _Mask(NamedTuple):
    """What the activation's mask is made of in backward.

    Attributes:
        other: the result, or the residual; None where x alone tells.
        is_residual: whether it is the residual.
        written: where the gradient past the activation is written, if anywhere.
    """

    other: Tensor | None
    is_residual: bool
    written: Tensor | None


class NormalisationOperations(DeviceEngine):
    """Tensors are seen as (rows, channels): all axes but the last in whatever order they lie in memory."""

    def channel_sum(self, x: Tensor) -> Tensor:
        x = self._channels_dense(x)
        out = self.empty((x.shape[-1],), x.dtype)
        if out.numel():
            self._sum_rows("channel_sums", x, is_aligned(x), (x, out))
        return out

    def batch_norm(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        x = self._channels_dense(x)
        state = self.batch_norm_state(x, running, eps)
        return self._normalise(x, state, epilogue, residual), state

    def batch_norm_state(self, x: Tensor, running: RunningStatistics, eps: float) -> BatchNormState:
        """The statistics of x, whose channels are dense; the running ones are updated."""
        state = self.empty_state(x.shape[-1], True)
        if x.shape[-1]:
            mean, var, momentum, batches = running
            steps = 1 if mean is None else mean.strides[0], 1 if var is None else var.strides[0]
            tensors = (x, state.mean, state.inverse_std, mean, var, batches)
            self._sum_rows("statistics", x, is_aligned(x), tensors, *steps, momentum, eps)
        for kept in running.tensors:
            kept.storage.touch()
        return state

    def batch_norm_inference(
        self, x: Tensor, mean: Tensor, var: Tensor, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        x = self._channels_dense(x)
        state = self.empty_state(x.shape[-1], False)
        channels = x.shape[-1]
        if channels:
            source, _ = _source(x.shape, x.dtype, is_aligned(x))
            given = self.dense(mean), self.dense(var), state.mean, state.inverse_std
            self.launch(source, "given_statistics", -(-channels // THREADS), THREADS, *given, channels, np.float64(eps))
        return self._normalise(x, state, epilogue, residual), state

    def remakes_batch_norm(self, x: Tensor) -> bool:
        return not is_stored(x.dtype) and x.numel() * x.dtype.itemsize >= REMADE_FROM

    def batch_norm_again(self, x: Tensor, epilogue: Epilogue, state: BatchNormState, residual: Tensor | None) -> Tensor:
        return self._normalise(self._channels_dense(x), state, epilogue, residual)

    def batch_norm_grad(
        self, dy: Tensor, x: Tensor, y: Tensor | None, epilogue: Epilogue, state: BatchNormState, need_residual: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        x = self._channels_dense(x)
        y = None if y is None or epilogue.slope is None else self._ordered_as(y, x)
        # Past the activation dy is a new tensor, which the residual's gradient wants; without one it is dy itself.
        masked = self.empty_like(x) if need_residual and y is not None else None
        return self._gradients(dy, x, _Mask(y, False, masked), epilogue, state, need_residual)

    def batch_norm_remade_grad(
        self,
        dy: Tensor,
        x: Tensor,
        residual: Tensor | None,
        epilogue: Epilogue,
        state: BatchNormState,
        need_residual: bool,
        overwrites: tuple[bool, bool] = (False, False),
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        given, over_dy, over_x = dy, *overwrites
        dense = self._channels_dense(x)
        dy = self._ordered_as(dy, dense)
        masked = out = None
        if residual is not None:
            residual = self._ordered_as(residual, dense)
            masked = dy if over_dy or dy is not given else self.empty_like(dense)
        if over_x and dense is x and state.training:
            x.storage.touch()
            out = x
        mask = _Mask(residual, residual is not None, masked)
        return self._gradients(dy, dense, mask, epilogue, state, need_residual, out)

    def batch_norm_summed_grad(
        self, g: Tensor, x: Tensor, epilogue: Epilogue, state: BatchNormState, found: NormGradients, over_x: bool
    ) -> Tensor:
        dense = self._channels_dense(x)
        out = None
        if over_x and dense is x and state.training:
            x.storage.touch()
            out = x
        g = self._ordered_as(g, dense)
        dx = self._like(dense) if out is None else out
        constants = state.mean, state.inverse_std, self._optional(epilogue.weight), self._optional(epilogue.bias)
        results = (found.sums if state.training else None, dx)
        aligned = is_aligned(dense) and is_aligned(g)
        self._apply_rows("grad_apply", dense, aligned, (g, dense, None, *constants, *results), 1.0)
        return dx

    def _gradients(
        self,
        dy: Tensor,
        x: Tensor,
        mask: _Mask,
        epilogue: Epilogue,
        state: BatchNormState,
        need_residual: bool,
        out: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """``batch_norm_grad`` with a mask; dx is written into ``out``, if it is given.

        ``mask.written`` and ``out`` may be dy and x: each thread writes what it alone has read, and after that.
        """
        other, is_residual, masked = mask
        dy = self._ordered_as(dy, x)
        weight, bias = self._optional(epilogue.weight), self._optional(epilogue.bias)
        found = self._empty_gradients(x)
        constants = (state.mean, state.inverse_std, weight, bias)
        factor = 1.0 if epilogue.slope is None else epilogue.slope
        aligned = is_aligned(x) and is_aligned(dy) and (other is None or is_aligned(other))
        if x.shape[-1]:
            tensors = (dy, x, other, *constants, masked, *found)
            self._sum_rows("grad_sums", x, aligned, tensors, factor, int(is_residual))
        dx = self._like(x) if out is None else out
        g, sign, factor = (dy, other, factor) if masked is None else (masked, None, 1.0)
        results = (found.sums if state.training else None, dx)
        self._apply_rows("grad_apply", x, aligned, (g, x, sign, *constants, *results), factor)
        return dx, found.weight, found.bias, (dy if masked is None else masked) if need_residual else None

    def _empty_gradients(self, x: Tensor) -> NormGradients:
        """Those of a BatchNorm of x, to be filled in."""
        channels = (x.shape[-1],)
        return NormGradients(self.empty((2, *channels), float64), *[self.empty(channels, x.dtype) for _ in range(2)])

    def _normalise(self, x: Tensor, state: BatchNormState, epilogue: Epilogue, residual: Tensor | None) -> Tensor:
        weight, bias, slope = epilogue
        out = self._like(x)
        added = None if residual is None else self._ordered_as(residual, x)
        aligned = is_aligned(x) and (added is None or is_aligned(added))
        tensors = (x, state.mean, state.inverse_std, self._optional(weight), self._optional(bias), added, out)
        self._apply_rows("apply", x, aligned, tensors, 1.0 if slope is None else slope)
        return out

    def _sum_rows(
        self, kernel: str, x: Tensor, aligned: bool, tensors: Sequence[Tensor | None], *numbers: float
    ) -> None:
        """Launches a kernel that sums over rows: its tile's last block finishes, which the counters tell."""
        launch, scratch, tiles = _summing(kernel, x.shape, x.dtype, aligned, self.device.multiprocessors)
        self.run(launch, (*tensors, self.scratch(scratch), self.counters(tiles)), *numbers)

    def _apply_rows(
        self, kernel: str, x: Tensor, aligned: bool, tensors: Sequence[Tensor | None], *numbers: float
    ) -> None:
        """Launches an element-wise kernel over rows, unless there is nothing to do."""
        if 0 not in x.shape:
            self.run(_applying(kernel, x.shape, x.dtype, aligned, self.device.multiprocessors), tensors, *numbers)

    def _like(self, x: Tensor) -> Tensor:
        """A new tensor that lies as a dense one."""
        return Tensor(self.allocate(x.numel() * x.dtype.itemsize), 0, x.shape, x.strides, x.dtype)

    def empty_state(self, channels: int, training: bool) -> BatchNormState:
        """The statistics of a BatchNorm, to be filled in, in float64: the rounding of a large mean would show."""
        both = self.allocate(2 * channels * float64.itemsize)
        mean, inverse_std = [Tensor(both, place, (channels,), (1,), float64) for place in (0, channels)]
        return BatchNormState(mean, inverse_std, training)

    def _optional(self, vector: Tensor | None) -> Tensor | None:
        return vector if vector is None or vector.strides == (1,) else self.dense(vector)

    def _channels_dense(self, x: Tensor) -> Tensor:
        """x, or a copy, without gaps and with the last axis innermost."""
        innermost = x.strides[-1] == 1 or x.shape[-1] == 1
        return self.dense(x, None if innermost else tuple(range(x.ndim)))

    def _ordered_as(self, x: Tensor, like: Tensor) -> Tensor:
        """x, or a copy, in the memory order of ``like``, which is dense."""
        alike = x.strides == like.strides and x.shape == like.shape
        return x if alike else self.dense(x, like.memory_order())


def is_aligned(x: Tensor) -> bool:
    """Whether packs of a tensor may be read and written at once."""
    return x.address % ALIGNMENT == 0


class _Summing(NamedTuple):
    """How rows are summed: the launch, bytes of partial sums, and tiles of channels."""

    launch: Launch
    scratch: int
    tiles: int


NUMBERS = {
    "statistics": "qqdd",
    "grad_sums": "{real}0qq",
    "channel_sums": "",
    "apply": "{real}",
    "grad_apply": "{real}",
    "grad_sums_sum": "{real}",
    "apply_sum": "{real}",
    "apply_chain": f"{MOST_TERMS}{{real}}",
    "grad_apply_sum": "",
}
"""The types of the kernels' last arguments, which change from call to call."""

ADDRESSES = {
    "statistics": 8,
    "grad_sums": 13,
    "channel_sums": 4,
    "apply": 7,
    "grad_apply": 9,
    "grad_sums_sum": 19,
    "apply_sum": 11,
    "apply_chain": 5 * MOST_TERMS + 2,
    "grad_apply_sum": 12,
}
"""How many tensors the kernels take."""

SUMS = {"statistics": 2, "grad_sums": 2, "channel_sums": 1, "grad_sums_sum": 3}
"""Sums of each channel."""


@caches.kept
def _summing(kernel: str, shape: Shape, dtype: DType, aligned: bool, multiprocessors: int) -> _Summing:
    """How a kernel sums over the rows of a dense tensor."""
    source, vec = _source(shape, dtype, aligned)
    tiling = _tiling(shape, vec, SUM_WIDTHS[vec], SUM_ROWS, SUM_WAVES[kernel] * multiprocessors)
    tiles, parts = tiling.grid
    launch = _launch(kernel, source, tiling, shape, dtype)
    return _Summing(launch, SUMS[kernel] * parts * shape[-1] * 8, tiles)


@caches.kept
def _applying(kernel: str, shape: Shape, dtype: DType, aligned: bool, multiprocessors: int) -> Launch:
    """How an element-wise kernel goes over the rows of a dense tensor."""
    source, vec = _source(shape, dtype, aligned)
    tiling = _tiling(shape, vec, APPLY_WIDTH, 1, APPLY_WAVES * multiprocessors)
    return _launch(kernel, source, tiling, shape, dtype)


def _launch(kernel: str, source: Source, tiling: Tiling, shape: Shape, dtype: DType) -> Launch:
    constants = math.prod(shape[:-1]), shape[-1], tiling.width
    numbers = NUMBERS[kernel].format(real=dtype.char)
    return Launch(source, kernel, tiling.grid, THREADS, ADDRESSES[kernel], constants, numbers)


def _tiling(shape: Shape, vec: int, widest: int, least_rows: int, blocks: int) -> Tiling:
    """Tiles of nearly equal width; rows split so that about so many ``blocks`` in all have some each."""
    packs = shape[-1] // vec
    tiles = -(-packs // widest)
    width = -(-packs // tiles)
    tiles = -(-packs // width)
    most = -(-math.prod(shape[:-1]) // (THREADS // width * least_rows))
    return Tiling(width, (tiles, max(1, min(blocks // tiles, most))))


def _source(shape: Shape, dtype: DType, aligned: bool) -> tuple[Source, int]:
    """The kernels for a dtype and so many channels, and their VEC: packs where the tensors lie so that they can be."""
    vector = info(dtype).vector
    vec = vector if shape[-1] % vector == 0 and aligned else 1
    return Source("normalisation", REAL=c_type(dtype), VEC=vec), vec
