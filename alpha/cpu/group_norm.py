"""GroupNormOperations: group and instance norm on the CPU engine, from images as they lie in memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.composed.group_norm import blend
from alpha.cpu import tapes, tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.launches import call_of, constant, learn, of_number, of_result, of_tensor
from alpha.cpu.loops import group_norms as loops
from alpha.cpu.loops import machine
from alpha.cpu.loops.group_norms import GroupPlan, Variant
from alpha.cpu.loops.machine import Loop
from alpha.cpu.tasks import Record, address_of
from alpha.engine import RunningStatistics
from alpha.launches import GROUP_NORM
from alpha.tensor import Tensor, memory_order

MOST_CHANNELS = 1 << 12
"""Channels up to which the loops keep their numbers on the stack; the composed operations have no limit."""

ROW = 1024
"""Channels of a row at most, where several samples make one."""

TASKS = 8
"""Tasks at least, if there are as many samples."""

STREAMED_BYTES = 10 << 20
"""Bytes of images from which on what is written goes past the caches."""


JOB, GRADIENT_JOB = struct.Struct("9q3d").pack, struct.Struct("10qd").pack
"""The jobs of the loops: see ``alpha.cpu.loops.group_norms``."""


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
        found = GROUP_NORM.launch(x, weight, bias, groups, eps) if running is None else None
        if found is not None:
            return found[0], (x, weight, found[1])
        if x.shape[-1] > MOST_CHANNELS:
            return super().group_norm(x, weight, bias, groups, eps, running)
        plan = _plan(x.shape, x.strides, x.dtype, groups)
        x, weight, bias = self.dense(x, plan.order), self.parameter(weight), self.parameter(bias)
        y, statistics = self.empty_like(x), self.empty((len(x), groups, loops.STATISTICS), _FLOAT64)
        made = loop(Variant(8 * x.dtype.itemsize, weight is not None, bias is not None, False, plan.streams))
        job = JOB(
            plan.record.address, y.storage.address, statistics.storage.address, 0, x.address, address_of(weight),
            address_of(bias), 0, 0, eps, 0.0, 1.0,
        )  # fmt: skip
        tasks.run(made, job, plan.tasks, self.threads)
        if running is None:
            words = (
                constant(plan.record.address), of_result(), of_result(1), constant(0),
                *[of_tensor(k) for k in range(3)], constant(0), constant(0), of_number(0), constant(0), constant(0),
            )  # fmt: skip
            learn(
                GROUP_NORM, self, lambda: call_of(made, words, (y, statistics), x.numel(), plan.tasks, plan),
                x, weight, bias, groups, eps,
            )  # fmt: skip
        if running is not None:
            self._blend_groups(running, self.operand(statistics), x, math.prod(x.shape[1:]) // groups)
        return y, (x, weight, statistics)

    def group_norm_grad(
        self, dy: Tensor, kept: Sequence[Any], groups: int, eps: float, needs: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        if dy.shape[-1] > MOST_CHANNELS:
            return super().group_norm_grad(dy, kept, groups, eps, needs)
        x, weight, statistics = kept
        plan = _plan(x.shape, x.strides, x.dtype, groups)
        dy, dx, weight = self.dense(dy, x.memory_order()), self.empty_like(x), self.parameter(weight)
        parts = np.empty((2, len(x), x.shape[-1]))
        tapes.kept(parts)
        made = gradient_loop(Variant(8 * x.dtype.itemsize, weight is not None, False, False, plan.streams))
        job = GRADIENT_JOB(
            plan.record.address, dx.storage.address, parts.ctypes.data, 0, dy.address, x.address, address_of(weight),
            statistics.address, 0, 0, 1.0,
        )  # fmt: skip
        tasks.run(made, job, plan.tasks, self.threads)
        gradients: list[Tensor | None] = [dx]
        for part, needed in zip(parts, needs[1:], strict=False):
            gradient = self.empty(x.shape[-1:], x.dtype) if needed else None
            if gradient is not None:
                self.act(_sum_samples, part, self.operand(gradient))
            gradients.append(gradient)
        return tuple(gradients)

    def _blend_groups(self, running: RunningStatistics, statistics: Array, x: Tensor, count: int) -> None:
        """Blends the samples' means and unbiased variances, of so many numbers each, into the running ones."""
        mean, var = [self.empty((statistics.shape[0] * statistics.shape[1],), x.dtype) for _ in range(2)]
        self.act(_take_statistics, statistics, count, self.operand(mean), self.operand(var))
        blend(running, mean, var)


def _take_statistics(statistics: Array, count: int, mean: Array, var: Array) -> None:
    """Means, and unbiased variances, of so many numbers each."""
    mean[...] = statistics[..., 0].reshape(-1)
    var[...] = statistics[..., 1].reshape(-1) * (count / (count - 1))


def _sum_samples(parts: Array, gradient: Array) -> None:
    gradient[...] = parts.sum(0)


_FLOAT64 = np.dtype(np.float64)


class _Plan:
    """How images of some shape and strides are normalised.

    Attributes:
        order: the memory order in which they are.
        record, tasks: of the loops.
        streams: whether what is written goes past the caches.
    """

    def __init__(self, shape: Shape, strides: Shape, dtype: np.dtype[Any], groups: int) -> None:
        self.order = _order(shape, strides)
        sizes = _sizes(shape, self.order, groups, dtype.itemsize)
        are_aligned = sizes.position_step % ISA.bytes == 0 == sizes.sample_step % ISA.bytes
        self.streams = are_aligned and math.prod(shape) * dtype.itemsize >= STREAMED_BYTES
        self.record, self.tasks = Record(sizes), sizes.tasks


@caches.kept
def _plan(shape: Shape, strides: Shape, dtype: np.dtype[Any], groups: int) -> _Plan:
    return _Plan(shape, strides, dtype, groups)


@cache
def loop(variant: Variant) -> Loop:
    """The compiled loop of the forward."""
    return machine.loop(loops.ir_of(variant))


@cache
def gradient_loop(variant: Variant) -> Loop:
    """The compiled loop of the gradients."""
    return machine.loop(loops.grad_ir(variant))


def _order(shape: Shape, strides: Shape) -> Shape:
    """The memory order of images: their own where positions and samples lie dense, else row-major."""
    order = memory_order(shape, strides)
    long = _long_axes(shape, order)
    last = len(shape) - 1
    serves = not long or (long[-1] == last and (0 not in long or 0 in (long[0], long[-2])))
    if long and shape[last] == 1:  # one channel: what is innermost are positions or samples
        serves = 0 not in long or 0 in (long[0], long[-1])
    return order if serves else tuple(range(len(shape)))


def _long_axes(shape: Shape, order: Shape) -> list[int]:
    """The axes with several entries from outermost to innermost in memory."""
    return [axis for axis in order if shape[axis] > 1]


def _sizes(shape: Shape, order: Shape, groups: int, item: int) -> GroupPlan:
    """How the rows of dense images form samples and groups.

    Where the samples of a position lie side by side, some neighbours count as one sample of more groups: a sample's own
    rows are short runs of memory.
    """
    samples, positions, channels = shape[0], math.prod(shape[1:-1]), shape[-1]
    size, row, long = channels // groups, channels * item, _long_axes(shape, order)
    if samples == 1 or long[0] == 0:
        return GroupPlan(samples, positions, groups, size, channels, channels, positions * row, row)
    most = max(1, min(ROW // channels, samples // TASKS))
    together = max(n for n in range(1, most + 1) if samples % n == 0)
    row, count = row * together, samples // together
    return GroupPlan(count, positions, groups * together, size, channels * together, channels, row, count * row)
