"""GroupNormOperations: group and instance norm on the CPU engine, from images as they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.arguments import Shape
from alpha.composed.group_norm import blend
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import group_norm as kernels
from alpha.cpu.kernels.group_norm import GroupSizes
from alpha.engine import RunningStatistics
from alpha.tensor import Tensor

NARROW = 16
"""Channels below which rows are too short for vectors: the composed operations take all samples' channels as a row."""

ROW = 1024
"""Channels of a row at most, where several samples make one."""


class GroupNormOperations(HostEngine):
    """Positions of a sample lie after each other, or the samples of a position; what lies otherwise is copied."""

    def group_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: int,
        eps: float,
        running: RunningStatistics | None,
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        if x.shape[-1] < NARROW:
            return super().group_norm(x, weight, bias, groups, eps, running)
        x = self.dense(x, _order(x))
        sizes, y = _sizes(x, groups), self.empty_like(x)
        statistics = self.empty((len(x), groups, 3), np.dtype(np.float64))
        factor, shift = (self._per_channel_array(part, x, sizes, fill) for part, fill in ((weight, 1), (bias, 0)))
        rows = [self._channel_rows(t, sizes) for t in (x, y)]
        self.launch(
            kernels.group_norm, rows[0], sizes, factor, shift, eps, _per_task(self.array(statistics), sizes), rows[1],
            tasks=sizes.samples,
        )  # fmt: skip
        if running is not None:
            self._blend_groups(running, self.array(statistics), x, sizes)
        return y, (x, weight, statistics)

    def group_norm_grad(
        self, dy: Tensor, kept: Sequence[Any], groups: int, eps: float, needs: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        if dy.shape[-1] < NARROW:
            return super().group_norm_grad(dy, kept, groups, eps, needs)
        x, weight, statistics = kept
        dy, sizes, dx = self.dense(dy, x.memory_order()), _sizes(x, groups), self.empty_like(x)
        parts = np.empty((2, sizes.samples, sizes.groups * sizes.size))
        factor = self._per_channel_array(weight, x, sizes, 1)
        rows = [self._channel_rows(t, sizes) for t in (dy, x, dx)]
        self.launch(
            kernels.group_norm_grad, *rows[:2], sizes, factor, _per_task(self.array(statistics), sizes), parts, rows[2],
            tasks=sizes.samples,
        )  # fmt: skip
        gradients: list[Tensor | None] = [dx]
        for part, needed in zip(parts.reshape(2, len(x), -1), needs[1:], strict=False):
            gradient = self.empty(x.shape[-1:], x.dtype) if needed else None
            if gradient is not None:
                with np.errstate(all="ignore"):
                    self.array(gradient)[...] = part.sum(0)
            gradients.append(gradient)
        return tuple(gradients)

    def _blend_groups(self, running: RunningStatistics, statistics: Array, x: Tensor, sizes: GroupSizes) -> None:
        """Blends the samples' means and unbiased variances into the running ones."""
        mean, var = [self.empty((sizes.samples * sizes.groups,), x.dtype) for _ in range(2)]
        self.array(mean)[...] = statistics[..., 0].reshape(-1)
        count = sizes.positions * sizes.size
        self.array(var)[...] = statistics[..., 1].reshape(-1) * (count / (count - 1))
        blend(running, mean, var)

    def _per_channel_array(self, part: Tensor | None, x: Tensor, sizes: GroupSizes, fill: int) -> Array:
        """A number for each channel of a task's samples; where there is none, the one that changes nothing."""
        channels = sizes.groups * sizes.size
        if part is None:
            return np.full(channels, fill, x.dtype)
        array = self.array(self.dense(part, (0,)))
        return array if len(array) == channels else np.tile(array, channels // len(array))

    def _channel_rows(self, x: Tensor, sizes: GroupSizes) -> Array:
        """A dense tensor as rows of the channels of a task's samples."""
        channels = sizes.groups * sizes.size
        return self.array(x.view(x.offset, (x.numel() // channels, channels), (channels, 1)))


def _per_task(statistics: Array, sizes: GroupSizes) -> Array:
    """The statistics of samples' groups as those of tasks' groups."""
    return statistics.reshape(sizes.samples, sizes.groups, 3)


def _order(x: Tensor) -> Shape:
    """The memory order in which x is normalised: its own where positions and samples lie dense, else row-major."""
    order = x.memory_order()
    long = _long_axes(x)
    serves = long[-1] == x.ndim - 1 and (0 not in long or 0 in (long[0], long[-2]))
    return order if serves else tuple(range(x.ndim))


def _long_axes(x: Tensor) -> list[int]:
    """The axes with several entries from outermost to innermost in memory; channels are among them."""
    return [axis for axis in x.memory_order() if x.shape[axis] > 1]


def _sizes(x: Tensor, groups: int) -> GroupSizes:
    """How the rows of x, which is dense in ``_order``, form samples and groups.

    Where the samples of a position lie side by side, some neighbours count as one sample of more groups: a sample's own
    rows lie so far apart that they share few sets of the caches.
    """
    samples, positions, channels = len(x), math.prod(x.shape[1:-1]), x.shape[-1]
    size = channels // groups
    if samples == 1 or _long_axes(x)[0] == 0:
        return GroupSizes(samples, positions, groups, size, positions, 1)
    together = max(n for n in range(1, max(1, ROW // channels) + 1) if samples % n == 0)
    return GroupSizes(samples // together, positions, groups * together, size, 1, samples // together)
