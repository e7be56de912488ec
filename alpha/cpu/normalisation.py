"""NormalisationOperations: BatchNorm with its fused activation and residual on the CPU engine."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.autograd import is_recorded
from alpha.cpu import group_norm as group_norms
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import inverse
from alpha.cpu.kernels import normalisation as kernels
from alpha.cpu.kernels.normalisation import MASK_X, MASK_Y, PLAIN
from alpha.cpu.loops.group_norms import GroupPlan, Variant
from alpha.cpu.tasks import Record, address_of
from alpha.dtypes import scalar
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
    """Tensors are seen as (rows, channels): all axes but the last in whatever order they lie in memory.

    Infinities and NaN are values here: NumPy is not to warn of them.
    """

    def batch_norm(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        if _is_small(x, residual, running):
            return self._small(x, running, eps, epilogue)
        return self._large(x, running, eps, epilogue, residual)

    @np.errstate(all="ignore")
    def _large(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        """``batch_norm`` by all threads, for which x is read twice."""
        x = self._channels_dense(x)
        mean, var, count = self._statistics(x)
        if running.mean is not None:
            self._blend(running.mean, mean, running.momentum)
        if running.var is not None:
            self._blend(running.var, var * (count / max(count - 1, 1)), running.momentum)
        self._count_batch(running)
        return self._normalise(x, (mean, var), eps, epilogue, residual, True)

    @np.errstate(all="ignore")
    def batch_norm_inference(
        self, x: Tensor, mean: Tensor, var: Tensor, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        x = self._channels_dense(x)
        given = self.array(mean).astype(np.float64), self.array(var).astype(np.float64)
        return self._normalise(x, given, eps, epilogue, residual, False)

    @np.errstate(all="ignore")
    def batch_norm_grad(
        self, dy: Tensor, x: Tensor, y: Tensor | None, epilogue: Epilogue, state: BatchNormState, need_residual: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        slope = epilogue.slope
        if state.training and not need_residual and y is None and _is_small(x):
            return self._small_grad(dy, x, epilogue, state)
        x = self._channels_dense(x)
        dy = self._ordered_as(dy, x)
        rows = self._rows(x)
        scale, shift = self._scale_shift(epilogue, state)
        typed = tuple(v.astype(x.dtype) for v in (scale, shift))
        mask = PLAIN if slope is None else MASK_X if y is None else MASK_Y
        factor = scalar(x.dtype, 1 if slope is None else slope)
        past = self.empty_like(x) if mask == MASK_Y else dy
        partial = np.zeros((_tasks(rows), 2, rows.shape[1]))
        y_rows = rows if y is None else self._rows(self._ordered_as(y, x))
        self.launch(
            kernels.grad_sums, self._rows(dy), rows, y_rows, self.array(state.mean), *typed, factor, mask,
            self._rows(past), partial, tasks=len(partial),
        )  # fmt: skip
        sum_g, sum_gx = partial.sum(0)
        dweight, (a, b, d) = self._slopes(scale, state, sum_g, sum_gx, len(rows))
        # Nobody needs the masked gradient again unless it is the residual's: then dx may take its place.
        dx = past if mask == MASK_Y and not need_residual else self.empty_like(x)
        coefficients = tuple(v.astype(x.dtype) for v in (a, b, d))
        tasks = _blocks(len(rows), kernels.BLOCK)
        if state.training:
            self.launch(
                kernels.grad_apply, self._rows(past), rows, self.array(state.mean), *typed, factor, mask == MASK_X,
                *coefficients, self._rows(dx), tasks=tasks,
            )  # fmt: skip
        else:
            self.launch(
                kernels.grad_scaled, self._rows(past), rows, *typed, factor, mask == MASK_X, coefficients[0],
                self._rows(dx), tasks=tasks,
            )  # fmt: skip
        return dx, self._per_channel(dweight, x), self._per_channel(sum_g, x), past if need_residual else None

    @np.errstate(all="ignore")
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
        scale, shift = (v.astype(y.dtype).astype(np.float64) for v in self._scale_shift(epilogue, state))
        # The forward's numbers as they were rounded: t = act^-1(y) - residual - exact is (x - mean) * scale.
        exact = self.array(state.mean) * scale + shift
        offset = exact.astype(y.dtype)
        factor = scalar(y.dtype, 1 if epilogue.slope is None else epilogue.slope)
        activation = (offset, factor, scalar(y.dtype, 1 / float(factor)))
        dx = self.empty_like(y)
        past = self.empty_like(y) if need_residual else dx
        added = rows if residual is None else self._rows(self._ordered_as(residual, y))
        partial = np.zeros((_tasks(rows), 2, rows.shape[1]))
        self.launch(
            inverse.inverse_sums, g_rows, rows, added, residual is not None, *activation, self._rows(past),
            partial, tasks=len(partial),
        )  # fmt: skip
        sum_g, sum_gt = partial.sum(0)
        error = offset - exact
        sum_gx = (sum_gt + error * sum_g) / scale
        dweight, (a, b, d) = self._slopes(scale, state, sum_g, sum_gx, len(rows))
        coefficients = tuple(v.astype(y.dtype) for v in (a, b / scale, d + b / scale * error))
        self.launch(
            inverse.inverse_apply, g_rows, rows, added, residual is not None, *activation, *coefficients,
            self._rows(dx), tasks=_blocks(len(rows), kernels.BLOCK),
        )  # fmt: skip
        return dx, self._per_channel(dweight, y), self._per_channel(sum_g, y), past if need_residual else None

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
        group_norms.loop(_variant(dtype, epilogue)).alone(job)
        for part in (running.mean, running.var):
            if part is not None:
                part.storage.touch()
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
        group_norms.gradient_loop(_variant(dtype, epilogue)).alone(job)
        return dx, dweight, dbias, None

    def _statistics(self, x: Tensor) -> tuple[Array, Array, int]:
        """Each channel's mean and (biased) variance in float64, and the number of rows. Chan et al., 1979."""
        rows = self._rows(x)
        partial = np.empty((_tasks(rows), 2, rows.shape[1]))
        self.launch(kernels.statistics, rows, partial, tasks=len(partial))
        count, tasks = rows.shape[0], partial.shape[0]
        counts = np.diff(np.arange(tasks + 1) * count // tasks)[:, None]
        mean = (partial[:, 0] * counts).sum(0) / count
        squares = (partial[:, 1] + counts * (partial[:, 0] - mean) ** 2).sum(0)
        return mean, squares / count, count

    def _normalise(
        self,
        x: Tensor,
        statistics: tuple[Array, Array],
        eps: float,
        epilogue: Epilogue,
        residual: Tensor | None,
        training: bool,
    ) -> tuple[Tensor, BatchNormState]:
        (mean, var), (_, bias, slope) = statistics, epilogue
        inverse_std = 1.0 / np.sqrt(var + eps)
        state = BatchNormState(self._per_channel(mean, x), self._per_channel(inverse_std, x), training)
        scale, shift = self._scale_shift(epilogue, state)
        typed = (scale.astype(x.dtype), shift.astype(x.dtype))
        out = self.empty_like(x)
        rows = self._rows(x)
        added = rows if residual is None else self._rows(self._ordered_as(residual, x))
        factor = scalar(x.dtype, 1 if slope is None else slope)
        recovers = is_recorded() and factor > 0 and (residual is None or slope is not None)
        size: Array | float = 0.0  # of the residual
        if recovers and residual is not None:
            partial = np.zeros((_tasks(rows), rows.shape[1]))
            self.launch(
                inverse.apply_measured, rows, *typed, added, factor, self._rows(out), partial,
                tasks=len(partial),
            )  # fmt: skip
            size = np.sqrt(partial.sum(0) / len(rows))
        else:
            self.launch(
                kernels.apply, rows, *typed, added, residual is not None, factor, slope is not None,
                self._rows(out), tasks=_blocks(len(rows), kernels.BLOCK),
            )  # fmt: skip
        if not recovers:
            return out, state
        others = abs(scale * mean) + (0 if bias is None else abs(self.array(bias))) + size
        spread = abs(scale) * np.sqrt(var)
        least = _least_spread(x.dtype) / min(float(factor), 1.0)
        invertible = bool(((others <= CONDITION * spread) & (spread >= least)).all())
        return out, BatchNormState(state.mean, state.inverse_std, training, invertible)

    def _scale_shift(self, epilogue: Epilogue, state: BatchNormState) -> tuple[Array, Array]:
        """BatchNorm as x * scale + shift, in float64."""
        weight, bias, _ = epilogue
        scale = self.array(state.inverse_std).astype(np.float64)
        if weight is not None:
            scale = scale * self.array(weight)
        shift = -self.array(state.mean) * scale
        return scale, shift if bias is None else shift + self.array(bias)

    def _slopes(
        self, scale: Array, state: BatchNormState, sum_g: Array, sum_gx: Array, count: int
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        """dweight, and (a, b, d) with dx = a * g + b * (x - mean) + d, from the sums of g and of g * (x - mean)."""
        inverse_std = self.array(state.inverse_std).astype(np.float64)
        dweight = sum_gx * inverse_std
        if not state.training:
            return dweight, (scale, np.zeros_like(scale), np.zeros_like(scale))
        return dweight, (scale, -scale * inverse_std * dweight / count, -scale * sum_g / count)

    def _blend(self, running: Tensor, value: Array, momentum: float) -> None:
        array = self.array(running)
        array[...] = (1 - momentum) * array.astype(np.float64) + momentum * value
        running.storage.touch()

    def _count_batch(self, running: RunningStatistics) -> None:
        if running.batches is not None:
            count = self.array(running.batches)
            count += 1
            running.batches.storage.touch()

    def _per_channel(self, values: Array, like: Tensor) -> Tensor:
        out = self.empty(values.shape, like.dtype)
        self.array(out)[...] = values
        return out

    def _channels_dense(self, x: Tensor) -> Tensor:
        """x, or a copy, without gaps and with the last axis innermost."""
        innermost = x.strides[-1] == 1 or x.shape[-1] == 1
        return self.dense(x, None if innermost else tuple(range(x.ndim)))

    def _ordered_as(self, x: Tensor, like: Tensor) -> Tensor:
        """x, or a copy, in the memory order of ``like``, which is dense."""
        return self.dense(x, like.memory_order())

    def _rows(self, x: Tensor) -> Array:
        """A dense tensor as (rows, channels)."""
        channels = x.shape[-1]
        return self.array(x.strided(x.offset, (x.numel() // channels, channels), (channels, 1)))


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
