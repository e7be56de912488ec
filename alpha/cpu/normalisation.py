"""NormalisationOperations: BatchNorm with its fused activation and residual on the CPU engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.autograd import is_recorded
from alpha.composed import stored
from alpha.cpu import group_norm as group_norms
from alpha.cpu import tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import channels as per_channel
from alpha.cpu.kernels import inverse
from alpha.cpu.kernels import normalisation as kernels
from alpha.cpu.kernels.normalisation import MASK_X, MASK_Y, PLAIN
from alpha.cpu.loops.elements import has_loops
from alpha.cpu.loops.group_norms import GroupPlan, Variant
from alpha.cpu.tasks import Record, address_of
from alpha.dtypes import DType, computed_in, default_int, float64, is_brain, is_half, is_stored, scalar
from alpha.engine import BatchNormState, Epilogue, RunningStatistics
from alpha.tensor import Tensor

TASKS = 32
"""Tasks that a reduction over rows is cut into, whatever the threads."""

SMALL = 1 << 17
"""Elements up to which a tensor stays in the caches, and a call costs as much as the work."""

CONDITION = 28.0
"""Most of (|mean * scale| + |bias| + RMS of the residual) / (deviation of x * scale) for x to be recovered from y.

With u = eps / 2, n = x * scale + shift and v = n + residual, the forward rounds x * scale, n, v and act(v), the
inverse act^-1(y), less the residual, less the offset: each time by u times the value at most, which is below the sum
of |x - mean| * scale and the numerator's parts that it holds. So the recovered x is off by at most
u * (8 |x - mean| + 6 CONDITION * deviation) / deviation deviations: in dweight, sum(g * normalised x), the second part
is no more than 6 u CONDITION = 1e-5 of the product of the vectors' lengths even if all roundings conspired, and about
u CONDITION = 2e-6 as they do not; in dx it is multiplied by scale, and less. The first part is x's own rounding.
What rounding does to mean, scale and shift is the same in every row, and taken out in float64.
"""


class NormalisationOperations(HostEngine):
    """Tensors are seen as (rows, channels): all axes but the last in whatever order they lie in memory."""

    @stored.takes_stored_dtypes
    def batch_norm(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        is_small = _is_small(x, residual, running)
        if is_stored(x.dtype) and (is_small or not _reads(x, (*epilogue[:2], *running[:2]), residual)):
            found: tuple[Tensor, BatchNormState] = stored.converted(
                self, "batch_norm", x, running, eps, epilogue, residual
            )
            return found
        if is_small:
            return self._small(x, running, eps, epilogue)
        return self._large(x, running, eps, epilogue, residual)

    def _large(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        """``batch_norm`` by all threads, for which x is read twice."""
        x = self._channels_dense(x)
        rows, wide = self._rows(x), self._wide(2, x.shape[-1])
        count, channels = rows.shape
        parts = self._parts(rows, (2, channels))
        self.launch(kernels.statistics, rows, scalar(computed_in(x.dtype), 0), parts, tasks=len(parts))
        self.launch(per_channel.whole_statistics, parts, count, wide[0], wide[1], tasks=1)
        for part, values, factor in (
            (running.mean, wide[0], 1.0),
            (running.var, wide[1], count / max(count - 1, 1)),
        ):
            if part is not None:
                self.overwriting(part)
                momentum = float(running.momentum)
                self.launch(per_channel.blended, self.operand(part), values, factor, momentum, tasks=1)
                part.storage.touch()
        self._count_batch(running)
        return self._normalise(x, wide, eps, epilogue, residual, True)

    def batch_norm_inference(
        self, x: Tensor, mean: Tensor, var: Tensor, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        x = self._channels_dense(x)
        wide = self._wide(2, x.shape[-1])
        given = self.operand(self.dense(mean, (0,))), self.operand(self.dense(var, (0,)))
        self.launch(per_channel.given_statistics, *given, wide[0], wide[1], tasks=1)
        return self._normalise(x, wide, eps, epilogue, residual, False)

    @stored.takes_stored_dtypes
    def batch_norm_grad(
        self, dy: Tensor, x: Tensor, y: Tensor | None, epilogue: Epilogue, state: BatchNormState, need_residual: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        slope = epilogue.slope
        is_small = state.training and not need_residual and y is None and _is_small(x)
        if is_stored(x.dtype) and (is_small or not (state.training and _reads(x, (*epilogue[:2], *state[:2]), dy))):
            found: tuple[Tensor, Tensor, Tensor, Tensor | None] = stored.converted(
                self, "batch_norm_grad", dy, x, y, epilogue, state, need_residual
            )
            return found
        if is_small:
            return self._small_grad(dy, x, epilogue, state)
        x = self._channels_dense(x)
        dy = self._ordered_as(dy, x)
        rows = self._rows(x)
        count, channels = rows.shape
        mean, inverse_std = self.operand(state.mean), self.operand(state.inverse_std)
        typed = self._scale_shift(epilogue, state)
        mask = PLAIN if slope is None else MASK_X if y is None else MASK_Y
        dtype = computed_in(x.dtype)
        factor = scalar(dtype, 1 if slope is None else slope)
        past = self.empty_like(x) if mask == MASK_Y else dy
        parts = self._parts(rows, (2, channels))
        y_rows = rows if y is None else self._rows(self._ordered_as(y, x))
        self.launch(
            kernels.grad_sums, self._rows(dy), rows, y_rows, mean, *typed, factor, mask, self._rows(past), parts,
            tasks=len(parts),
        )  # fmt: skip
        dweight, dbias, *coefficients = (self.empty((channels,), dtype) for _ in range(5))
        a, b, d = (self.operand(one) for one in coefficients)
        weight, has_weight = self._weight(epilogue.weight, inverse_std)
        self.launch(
            per_channel.slopes, parts, count, state.training, inverse_std, weight, has_weight, self.operand(dweight),
            self.operand(dbias), a, b, d, tasks=1,
        )  # fmt: skip
        # Nobody needs the masked gradient again unless it is the residual's: then dx may take its place.
        dx = past if mask == MASK_Y and not need_residual else self.empty_like(x)
        blocks = _blocks(count, kernels.BLOCK)
        if state.training:
            self.launch(
                kernels.grad_apply, self._rows(past), rows, mean, *typed, factor, mask == MASK_X, a, b, d,
                self._rows(dx), tasks=blocks,
            )  # fmt: skip
        else:
            self.launch(
                kernels.grad_scaled, self._rows(past), rows, *typed, factor, mask == MASK_X, a, self._rows(dx),
                tasks=blocks,
            )  # fmt: skip
        return dx, dweight, dbias, past if need_residual else None

    def batch_norm_inverse_grad(
        self,
        dy: Tensor,
        y: Tensor,
        residual: Tensor | None,
        epilogue: Epilogue,
        state: BatchNormState,
        need_residual: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        y = self._channels_dense(y)
        rows, g_rows = self._rows(y), self._rows(self._ordered_as(dy, y))
        count, channels = rows.shape
        mean, inverse_std = self.operand(state.mean), self.operand(state.inverse_std)
        # The forward's numbers as they were rounded: t = act^-1(y) - residual - exact is (x - mean) * scale.
        scale, shift = self._scale_shift(epilogue, state)
        dweight, dbias, *others = (self.empty((channels,), y.dtype) for _ in range(6))
        offset, a, b, d = (self.operand(one) for one in others)
        self.launch(per_channel.offsets, mean, scale, shift, offset, tasks=1)
        factor = scalar(y.dtype, 1 if epilogue.slope is None else epilogue.slope)
        activation = (offset, factor, scalar(y.dtype, 1 / float(factor)))
        dx = self.empty_like(y)
        past = self.empty_like(y) if need_residual else dx
        added = rows if residual is None else self._rows(self._ordered_as(residual, y))
        parts = self._parts(rows, (2, channels))
        self.launch(
            inverse.inverse_sums, g_rows, rows, added, residual is not None, *activation, self._rows(past),
            parts, tasks=len(parts),
        )  # fmt: skip
        self.launch(
            per_channel.inverse_slopes, parts, count, state.training, mean, inverse_std, scale, shift, offset,
            self.operand(dweight), self.operand(dbias), a, b, d, tasks=1,
        )  # fmt: skip
        self.launch(
            inverse.inverse_apply, g_rows, rows, added, residual is not None, *activation, a, b, d,
            self._rows(dx), tasks=_blocks(count, kernels.BLOCK),
        )  # fmt: skip
        return dx, dweight, dbias, past if need_residual else None

    def _small(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue
    ) -> tuple[Tensor, BatchNormState]:
        """``batch_norm`` by one thread in one call, in which x stays in the caches."""
        x, dtype = self._channels_dense(x), x.dtype
        y = self.empty_like(x)
        mean, inverse_std = (self.empty(x.shape[-1:], dtype) for _ in range(2))
        weight, bias = self.parameter(epilogue.weight), self.parameter(epilogue.bias)
        # Held by name until the loop is through: of two threads that make the same plan at once the cache keeps one's.
        plan = _small_plan(x.numel() // x.shape[-1], x.shape[-1], dtype.itemsize)
        job = group_norms.JOB(
            plan.address, y.storage.address,
            mean.storage.address, inverse_std.storage.address, x.address, address_of(weight), address_of(bias),
            address_of(running.mean), address_of(running.var), eps, running.momentum, _factor(epilogue),
        )  # fmt: skip
        for part in (running.mean, running.var):
            if part is not None:
                self.overwriting(part)
                part.storage.touch()
        tasks.run(group_norms.loop(_variant(dtype, epilogue)), job, 1, 1)
        self._count_batch(running)
        return y, BatchNormState(mean, inverse_std, True)

    def _small_grad(
        self, dy: Tensor, x: Tensor, epilogue: Epilogue, state: BatchNormState
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """``batch_norm_grad`` of ``_small``."""
        x, dtype = self._channels_dense(x), x.dtype
        dy, dx = self._ordered_as(dy, x), self.empty_like(x)
        dweight, dbias = (self.empty(x.shape[-1:], dtype) for _ in range(2))
        weight, bias = self.parameter(epilogue.weight), self.parameter(epilogue.bias)
        plan = _small_plan(x.numel() // x.shape[-1], x.shape[-1], dtype.itemsize)
        job = group_norms.GRADIENT_JOB(
            plan.address, dx.storage.address,
            dweight.storage.address, dbias.storage.address, dy.address, x.address, address_of(weight),
            state.mean.address, state.inverse_std.address, address_of(bias), _factor(epilogue),
        )  # fmt: skip
        tasks.run(group_norms.gradient_loop(_variant(dtype, epilogue)), job, 1, 1)
        return dx, dweight, dbias, None

    def _normalise(
        self,
        x: Tensor,
        wide: Array,
        eps: float,
        epilogue: Epilogue,
        residual: Tensor | None,
        training: bool,
    ) -> tuple[Tensor, BatchNormState]:
        """The result and the state; ``wide``: mean and variance in float64."""
        slope, channels, dtype = epilogue.slope, x.shape[-1], computed_in(x.dtype)
        state = BatchNormState(self.empty((channels,), dtype), self.empty((channels,), dtype), training)
        mean, inverse_std = self.operand(state.mean), self.operand(state.inverse_std)
        self.launch(per_channel.state, wide[0], wide[1], float(eps), mean, inverse_std, tasks=1)
        factor = scalar(dtype, 1 if slope is None else slope)
        # A result that is rounded to a half has too little left of x.
        recovers = is_recorded() and factor > 0 and (residual is None or slope is not None) and dtype == x.dtype
        rows, squares = self._rows(x), wide[:0]  # of the residual
        if recovers and residual is not None:
            typed, out = self._scale_shift(epilogue, state), self.empty_like(x)
            added, squares = self._rows(self._ordered_as(residual, x)), self._parts(rows, (channels,))
            self.launch(
                inverse.apply_measured, rows, *typed, added, factor, self._rows(out), squares, tasks=len(squares)
            )
        else:
            out = self._applied(x, epilogue, state, residual)
        if not recovers:
            return out, state
        found = self.empty((1,), default_int)
        weights = self._weight(epilogue.weight, inverse_std), self._weight(epilogue.bias, inverse_std)
        least = _least_spread(x.dtype) / min(float(factor), 1.0)
        self.launch(
            per_channel.is_invertible, wide[0], wide[1], inverse_std, *weights[0], *weights[1], squares, len(rows),
            CONDITION, least, self.operand(found), tasks=1,
        )  # fmt: skip
        return out, BatchNormState(state.mean, state.inverse_std, training, self.decided(found))

    def _applied(self, x: Tensor, epilogue: Epilogue, state: BatchNormState, residual: Tensor | None) -> Tensor:
        """The result, of its state; x has dense channels."""
        typed, out, rows, slope = self._scale_shift(epilogue, state), self.empty_like(x), self._rows(x), epilogue.slope
        added = rows if residual is None else self._rows(self._ordered_as(residual, x))
        factor = scalar(computed_in(x.dtype), 1 if slope is None else slope)
        self.launch(
            kernels.apply, rows, *typed, added, residual is not None, factor, slope is not None, self._rows(out),
            tasks=_blocks(len(rows), kernels.BLOCK),
        )  # fmt: skip
        return out

    def remakes_batch_norm(self, x: Tensor) -> bool:
        return is_half(x.dtype) and x.numel() > SMALL

    @stored.takes_stored_dtypes
    def batch_norm_again(self, x: Tensor, epilogue: Epilogue, state: BatchNormState, residual: Tensor | None) -> Tensor:
        if is_stored(x.dtype) and not _reads(x, (*epilogue[:2], *state[:2]), residual):
            found: Tensor = stored.converted(self, "batch_norm_again", x, epilogue, state, residual)
            return found
        return self._applied(self._channels_dense(x), epilogue, state, residual)

    def _scale_shift(self, epilogue: Epilogue, state: BatchNormState) -> tuple[Array, Array]:
        """BatchNorm as x * scale + shift."""
        kept = self.operand(state.mean), self.operand(state.inverse_std)
        found = [self.operand(self.empty(state.mean.shape, state.mean.dtype)) for _ in range(2)]
        weight, bias = (self._weight(one, kept[1]) for one in (epilogue.weight, epilogue.bias))
        self.launch(per_channel.scaling, *kept, *weight, *bias, *found, tasks=1)
        return found[0], found[1]

    def _weight(self, weight: Tensor | None, other: Array) -> tuple[Array, bool]:
        """A weight or bias as kernels take it: an array, any other where there is none, and whether there is one."""
        return (other, False) if weight is None else (self.operand(self.dense(weight, (0,))), True)

    def _wide(self, *shape: int) -> Array:
        """Room for numbers in float64."""
        return self.operand(self.empty(shape, float64))

    def _parts(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """Room for the sums of a pass over rows, a task each."""
        return self._wide(_tasks(rows), *shape)

    def _count_batch(self, running: RunningStatistics) -> None:
        if running.batches is not None:
            self.overwriting(running.batches)
            self.elementwise("add", running.batches, 1, out=running.batches)
            running.batches.storage.touch()

    def _channels_dense(self, x: Tensor) -> Tensor:
        """x, or a copy, without gaps and with the last axis innermost."""
        innermost = x.strides[-1] == 1 or x.shape[-1] == 1
        return self.dense(x, None if innermost else tuple(range(x.ndim)))

    def _ordered_as(self, x: Tensor, like: Tensor) -> Tensor:
        """x, or a copy, in the memory order of ``like``, which is dense."""
        return self.dense(x, like.memory_order())

    def _rows(self, x: Tensor) -> Array:
        """A dense tensor as (rows, channels); halves as their bits."""
        channels = x.shape[-1]
        found = self.operand(x.strided(x.offset, (x.numel() // channels, channels), (channels, 1)))
        return found.view(_bits(x.dtype)) if is_half(x.dtype) else found


def _bits(dtype: DType) -> DType:
    """What arrays of halves are for kernels, which tell them apart by it: see ``alpha.cpu.kernels.vectors.Images``."""
    return np.dtype(np.uint16 if is_brain(dtype) else np.int16)


def _reads(x: Tensor, vectors: Sequence[Tensor | None], other: Tensor | None) -> bool:
    """Whether kernels read x and others of its kind, halves, beside vectors of what they are computed in."""
    dtype = computed_in(x.dtype)
    return (
        is_half(x.dtype)
        and has_loops(x.dtype)
        and all(one is None or one.dtype == dtype for one in vectors)
        and (other is None or other.dtype == x.dtype)
    )


def _is_small(x: Tensor, residual: Tensor | None = None, running: RunningStatistics | None = None) -> bool:
    """Whether batch norm of a tensor is one call of a loop, which takes no residual."""
    if residual is not None or x.numel() > SMALL or x.shape[-1] > group_norms.MOST_CHANNELS:
        return False
    kept = (running.mean, running.var) if running is not None else ()
    return all(part is None or part.strides == (1,) for part in kept)


def _variant(dtype: np.dtype[Any], epilogue: Epilogue) -> Variant:
    return Variant(8 * dtype.itemsize, epilogue.weight is not None, epilogue.bias is not None, True)


def _factor(epilogue: Epilogue) -> float:
    """The activation's slope below 0."""
    return 1.0 if epilogue.slope is None else float(epilogue.slope)


@caches.kept
def _small_plan(rows: int, channels: int, item: int) -> Record:
    """Rows of channels as one sample, whose groups are the channels."""
    return Record(GroupPlan(1, rows, channels, 1, channels, channels, 0, channels * item))


@cache
def _least_spread(dtype: np.dtype[Any]) -> float:
    """Far enough above the least normal number that nothing is rounded by more than a share of itself."""
    limits = np.finfo(dtype)
    return float(limits.tiny / limits.eps)


def _blocks(count: int, size: int) -> int:
    return -(-count // size)


def _tasks(rows: Array) -> int:
    return max(1, min(TASKS, len(rows) // kernels.BLOCK))
