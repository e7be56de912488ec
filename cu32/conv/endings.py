"""What the kernels of convolutions do at their end for a BatchNorm or an activation: kernels/ending.cuh.

Behind a convolution they take the sums that its statistics are made of, or add a residual and activate, and in an input
gradient they take the mask of its activation and the sums of its gradient, from results that are still in registers:
one pass over memory and one launch less of each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32.base import DeviceEngine
from alpha.engine import BatchNormState, RunningStatistics
from alpha.records import Normalised, NormGradients, PairGradients
from alpha.tensor import Storage, Tensor

LEAST_TOGETHER = 32
"""Tiles whose sums one block adds, at least."""

Tensors = Sequence[Tensor | Storage | None]
Numbers = Sequence[float]

ADDRESSES = {FORWARD: 8, INPUT_GRAD: 17}
"""How many addresses a kernel takes for its end, by what it computes."""

TYPES = {FORWARD: "qqddqqqd", INPUT_GRAD: "dq"}
"""The types of the numbers that follow its sizes."""

NOTHING: dict[str, tuple[Tensors, Numbers]] = {
    operator: ((None,) * ADDRESSES[operator], (0,) * len(TYPES[operator])) for operator in TYPES
}
"""The arguments of a kernel that only writes its results."""


class Ending(ABC):
    """What a call asks for at its end. ``taken`` tells whether a kernel has done it."""

    taken = False

    @abstractmethod
    def arguments(self, engine: DeviceEngine, tiles: int, across: int, counters: int) -> tuple[Tensors, Numbers]:
        """Tensors and numbers for a kernel of so many tiles of rows, and of channels, which uses so many counters."""


class MeasuredEnding(Ending):
    """The statistics of a convolution's result, kept in a state, and the running ones."""

    def __init__(self, running: RunningStatistics, eps: float, state: BatchNormState, rows: int) -> None:
        self._running, self._eps, self._state, self._rows = running, eps, state, rows

    def arguments(self, engine: DeviceEngine, tiles: int, across: int, counters: int) -> tuple[Tensors, Numbers]:
        mean, var, momentum, batches = self._running
        meeting, together = _meeting(engine, (tiles, across, self._state.mean.shape[0], 2), counters)
        steps = 1 if mean is None else mean.strides[0], 1 if var is None else var.strides[0]
        tensors = (self._state.mean, self._state.inverse_std, mean, var, batches, *meeting, None)
        return tensors, (*steps, momentum, self._eps, self._rows, together, 0, 0.0)


class ActivatedEnding(Ending):
    """An activation of a convolution's result, behind a residual that lies as it does, if there is one."""

    def __init__(self, residual: Tensor | None, slope: float | None) -> None:
        self._residual, self._slope = residual, 1.0 if slope is None else slope

    def arguments(self, engine: DeviceEngine, tiles: int, across: int, counters: int) -> tuple[Tensors, Numbers]:
        return (*NOTHING[FORWARD][0][:-1], self._residual), (*NOTHING[FORWARD][1][:-2], 1, self._slope)


class PastEnding(Ending):
    """The gradient past the activation of a BatchNorm, and its sums. All images lie as the gradient does.

    ``residual``: what was added to its result: a tensor, or what another BatchNorm makes, whose sums are taken as well.
    """

    def __init__(
        self, before: Normalised, residual: Tensor | Normalised | None, found: NormGradients | PairGradients
    ) -> None:
        self._before, self._residual, self._found = before, residual, found

    def arguments(self, engine: DeviceEngine, tiles: int, across: int, counters: int) -> tuple[Tensors, Numbers]:
        x, (weight, bias, slope), state = self._before
        sums, *gradients = self._found
        meeting, together = _meeting(engine, (tiles, across, x.shape[-1], sums.shape[0]), counters)
        added = self._residual
        other: Sequence[Tensor | None] = (None,) * 6
        if isinstance(added, Normalised):
            added, epilogue, of_other = added
            other = (of_other.mean, of_other.inverse_std, epilogue.weight, epilogue.bias, *gradients[2:])
        past = (state.mean, state.inverse_std, weight, bias, sums, *gradients[:2])
        return (x, added, *past, *other, *meeting), (1.0 if slope is None else slope, together)


def _meeting(engine: DeviceEngine, sizes: tuple[int, int, int, int], first: int) -> tuple[tuple[Storage, Tensor], int]:
    """Where blocks leave their sums, and how many tiles' are added together before all are.

    ``sizes``: tiles of rows and of channels, channels, and sums of each. ``first``: the first free counter.
    """
    tiles, across, channels, sums = sizes
    together = max(LEAST_TOGETHER, math.isqrt(tiles - 1) + 1)
    groups = -(-tiles // together)
    room = across * (groups + 1)
    counters = engine.counters(first + room)
    if first:
        counters = counters.strided(counters.offset + first, (room,), (1,))
    return (engine.scratch(sums * 8 * tiles * channels), counters), together
