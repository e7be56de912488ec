"""NormalisationOperations: BatchNorm with its fused activation and residual on the CUDA engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.cu32.base import DeviceEngine, c_type, in_vectors
from alpha.cu32.compiler import Source
from alpha.dtypes import float64, info, scalar
from alpha.engine import BatchNormState, Epilogue, RunningStatistics
from alpha.tensor import Tensor

SOURCES = in_vectors("normalisation")

THREADS = 256
"""Threads per block, as the kernels are compiled for."""

SUM_ROWS = 4
"""Rows that a thread of a sum has at least to itself: fewer, and its block's tree costs more than its additions."""

SUM_WAVES = {"statistics": 3, "grad_sums": 2, "channel_sums": 4}
"""Blocks per multiprocessor of the kernels that sum: as many as their registers admit at once."""

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


class NormalisationOperations(DeviceEngine):
    """Tensors are seen as (rows, channels): all axes but the last in whatever order they lie in memory."""

    def channel_sum(self, x: Tensor) -> Tensor:
        x = self._channels_dense(x)
        out = self.empty((x.shape[-1],), x.dtype)
        if out.numel():
            source, vec = _source(x)
            self._sum_rows(source, "channel_sums", x, vec, 1, x, out)
        return out

    def batch_norm(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        x = self._channels_dense(x)
        state = self._empty_state(x, True)
        if state.mean.numel():
            source, vec = _source(x)
            strides = [1 if t is None else t.strides[0] for t in (running.mean, running.var)]
            self._sum_rows(
                source, "statistics", x, vec, 2, x, running.mean, running.var, running.batches, state.mean,
                state.inverse_std,
                after=(*strides, np.float64(running.momentum), np.float64(eps)),
            )  # fmt: skip
        for kept in (running.mean, running.var, running.batches):
            if kept is not None:
                kept.storage.touch()
        return self._normalise(x, state, epilogue, residual), state

    def batch_norm_inference(
        self, x: Tensor, mean: Tensor, var: Tensor, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        x = self._channels_dense(x)
        state = self._empty_state(x, False)
        channels = x.shape[-1]
        if channels:
            self.launch(
                _source(x)[0], "given_statistics", -(-channels // THREADS), THREADS, self.dense(mean), self.dense(var),
                state.mean, state.inverse_std, channels, np.float64(eps),
            )  # fmt: skip
        return self._normalise(x, state, epilogue, residual), state

    def remakes_batch_norm(self, x: Tensor) -> bool:
        return x.numel() * x.dtype.itemsize >= REMADE_FROM

    def batch_norm_again(self, x: Tensor, epilogue: Epilogue, state: BatchNormState, residual: Tensor | None) -> Tensor:
        return self._normalise(self._channels_dense(x), state, epilogue, residual)

    def batch_norm_grad(
        self, dy: Tensor, x: Tensor, y: Tensor | None, epilogue: Epilogue, state: BatchNormState, need_residual: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        x = self._channels_dense(x)
        y = None if y is None or epilogue.slope is None else self._ordered_as(y, x)
        # Past the activation dy is a new tensor, which the residual's gradient wants; without one it is dy itself.
        masked = self.empty_like(x) if need_residual and y is not None else None
        return self._gradients(dy, x, y, False, masked, epilogue, state, need_residual)

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
        return self._gradients(dy, dense, residual, residual is not None, masked, epilogue, state, need_residual, out)

    def _gradients(
        self,
        dy: Tensor,
        x: Tensor,
        other: Tensor | None,
        is_residual: bool,
        masked: Tensor | None,
        epilogue: Epilogue,
        state: BatchNormState,
        need_residual: bool,
        out: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """``batch_norm_grad`` with what the mask is made of: the result or the residual; None for x alone.

        The gradient past the activation is written into ``masked``, if there is any, and dx into ``out``. These may be
        dy and x: each thread writes what it alone has read, and after that.
        """
        dy = self._ordered_as(dy, x)
        weight, bias = self._optional(epilogue.weight), self._optional(epilogue.bias)
        channels = x.shape[-1]
        dweight, dbias = self.empty((channels,), x.dtype), self.empty((channels,), x.dtype)
        sums = self.empty((2, channels), float64)
        constants = (state.mean, state.inverse_std, weight, bias)
        factor = scalar(x.dtype, 1 if epilogue.slope is None else epilogue.slope)
        if channels:
            source, vec = _source(x, dy, other)
            self._sum_rows(
                source, "grad_sums", x, vec, 2, dy, x, other, *constants, masked, sums, dweight, dbias,
                after=(factor, int(is_residual)),
            )  # fmt: skip
        dx = self.empty_like(x) if out is None else out
        g, mask, factor = (dy, other, factor) if masked is None else (masked, None, x.dtype.type(1))
        self._apply_rows(
            "grad_apply", x, _source(x, g, mask), g, x, mask, *constants, sums if state.training else None, dx,
            after=(factor,),
        )  # fmt: skip
        return dx, dweight, dbias, (dy if masked is None else masked) if need_residual else None

    def _normalise(self, x: Tensor, state: BatchNormState, epilogue: Epilogue, residual: Tensor | None) -> Tensor:
        weight, bias, slope = epilogue
        out = self.empty_like(x)
        added = None if residual is None else self._ordered_as(residual, x)
        self._apply_rows(
            "apply", x, _source(x, added), x, state.mean, state.inverse_std, self._optional(weight),
            self._optional(bias), added, out, after=(scalar(x.dtype, 1 if slope is None else slope),),
        )  # fmt: skip
        return out

    def _sum_rows(
        self,
        source: Source,
        kernel: str,
        x: Tensor,
        vec: int,
        sums: int,
        *arguments: Any,
        after: tuple[Any, ...] = (),
    ) -> None:
        """Launches a kernel that sums over rows: its tile's last block finishes, which the counters tell."""
        channels = x.shape[-1]
        rows = x.numel() // channels
        tiling = self._tiling(rows, channels, vec, SUM_WIDTHS[vec], SUM_ROWS, SUM_WAVES[kernel])
        tiles, parts = tiling.grid
        partial = self.scratch(sums * parts * channels * 8)
        self.launch(
            source, kernel, tiling.grid, THREADS, *arguments, partial, self._counters(tiles), rows, channels,
            tiling.width, *after,
        )  # fmt: skip

    def _apply_rows(
        self, kernel: str, x: Tensor, variant: tuple[Source, int], *arguments: Any, after: tuple[Any, ...]
    ) -> None:
        """Launches an element-wise kernel over rows, unless there is nothing to do."""
        if x.numel() == 0:
            return
        source, vec = variant
        channels = x.shape[-1]
        rows = x.numel() // channels
        tiling = self._tiling(rows, channels, vec, APPLY_WIDTH, 1, APPLY_WAVES)
        self.launch(source, kernel, tiling.grid, THREADS, *arguments, rows, channels, tiling.width, *after)

    def _tiling(self, rows: int, channels: int, vec: int, widest: int, least_rows: int, waves: int) -> Tiling:
        """Tiles of nearly equal width; rows split so that about ``waves`` blocks per multiprocessor have some each."""
        packs = channels // vec
        tiles = -(-packs // widest)
        width = -(-packs // tiles)
        tiles = -(-packs // width)
        most = -(-rows // (THREADS // width * least_rows))
        parts = max(1, min(waves * self.device.multiprocessors // tiles, most))
        return Tiling(width, (tiles, parts))

    def _counters(self, tiles: int) -> Tensor:
        """At least so many counters, 0 between launches: every kernel that counts with them sets them back.

        They are of one stream, whose kernels run one after another; two at once would count together.
        """
        room = max(256, 1 << (tiles - 1).bit_length())
        return self.constant(("normalisation.counters", self.device.stream, room), lambda: np.zeros(room, np.int32))

    def _empty_state(self, x: Tensor, training: bool) -> BatchNormState:
        """In float64: the mean's rounding alone would show where it is large beside the deviation."""
        channels = (x.shape[-1],)
        return BatchNormState(self.empty(channels, float64), self.empty(channels, float64), training)

    def _optional(self, vector: Tensor | None) -> Tensor | None:
        return None if vector is None else self.dense(vector)

    def _channels_dense(self, x: Tensor) -> Tensor:
        """x, or a copy, without gaps and with the last axis innermost."""
        innermost = x.strides[-1] == 1 or x.shape[-1] == 1
        return self.dense(x, None if innermost else tuple(range(x.ndim)))

    def _ordered_as(self, x: Tensor, like: Tensor) -> Tensor:
        """x, or a copy, in the memory order of ``like``, which is dense."""
        return self.dense(x, like.memory_order())


def _aligned(*tensors: Tensor | None) -> bool:
    return all(tensor is None or tensor.address % ALIGNMENT == 0 for tensor in tensors)


def _source(x: Tensor, *others: Tensor | None) -> tuple[Source, int]:
    """The kernels for x's dtype and channels, and their VEC: packs where the tensors lie so that they can be."""
    vector = info(x.dtype).vector
    vec = vector if x.shape[-1] % vector == 0 and _aligned(x, *others) else 1
    return Source("normalisation", REAL=c_type(x.dtype), VEC=vec), vec
