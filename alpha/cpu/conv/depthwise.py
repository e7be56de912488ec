"""depthwise: channels as lanes where each has one filter of its own, in chunks whose lines the caches hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alpha import caches
from alpha.conv.problem import OPERATORS, WEIGHT_GRAD
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import filters, images
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.blocking import SCRATCH
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import pairs_of
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import depthwise as kernels
from alpha.cpu.kernels.depthwise import JOINED, PAIR, RATIOS, TILE, DepthwiseSizes, Runs
from alpha.geometry import Pairs, stretches

Array = np.ndarray[Any, Any]

CHUNK_BYTES = 384 << 10
"""Of the lines that a task's results share, about: the second cache holds them."""

COPY_BYTES = 256 << 10
"""Of the lines that a worker of the filter gradient copies, about."""

FEW_IMAGES = 4
"""Up to so many, a sum of the filter gradient runs over all rows of a small map; more are enough to run over."""

LEAST_BYTES = 256
"""Of a position in a chunk, so that memory is read by more than single lines of the caches."""

TASKS = 8
"""Tasks of a convolution that is worth more than one thread, at least; and parts of a filter's sums, at most.

Never by thread count, so that the order of sums is the same.
"""

SMALL_CYCLES = 60_000
"""A convolution of so few cycles is computed by one thread sooner than it wakes another."""

STREAMED = 16 << 20
"""Bytes of a result from which on it goes to memory past the caches, which do not keep it for its reader."""

CYCLES_PER_PRODUCT, CYCLES_PER_ELEMENT = 0.65, 3.0
"""Of a product of vectors, and of a vector read or written, by which a plan counts its cycles.

Never by what this machine was measured to take: plans decide the order of sums, which is the same on any machine.
"""

LINE = 64
"""Bytes of a line of the caches."""


@dataclass(frozen=True)
class DepthwisePlan:
    """Tables and sizes; a task takes the runs of rows between two ``starts``."""

    starts: Array
    rows: Runs
    columns: Runs
    sizes: DepthwiseSizes

    @property
    def chunks(self) -> tuple[int, int]:
        """Chunks of images and of channels."""
        s = self.sizes
        return math.ceil(s.images / s.chunk_images), math.ceil(s.channels / s.chunk_channels)

    @cached_property
    def tasks(self) -> int:
        """Chunks times parts of the rows."""
        return math.prod(self.chunks) * (len(self.starts) - 1)

    @property
    def parts(self) -> int:
        """Sums of their own of the filter gradient."""
        return self.chunks[0] * (len(self.starts) - 1)


def serves(problem: Problem) -> bool:
    """Whether each channel has one filter, and its own; and a filter gradient's worker copies not too much."""
    if not problem.groups == problem.in_channels == problem.out_channels or problem.groups == 1:
        return False
    return problem.operator != WEIGHT_GRAD or _copies(plan(problem).sizes) <= SCRATCH


def _copies(sizes: DepthwiseSizes) -> int:
    lines = sizes.source_held * sizes.source_columns + sizes.target_held * sizes.target_columns
    return lines * sizes.pitch


def _cycles(problem: Problem, per_product: float, per_element: float) -> float:
    """Cycles of one core, about, for any of the three operators: products, and what the L3 cache gives and takes."""
    g = problem.geometry
    vectors = problem.images * math.ceil(problem.groups / ISA.lanes(problem.item))
    return vectors * (per_product * g.useful + per_element * (math.prod(g.input) + math.prod(g.output)))


@caches.kept
def plan(problem: Problem) -> DepthwisePlan:
    """The plan of a problem that it serves; a filter's gradient are sums of its convolution."""
    _ = images.plan(problem)  # checks the offsets
    g, item, by_output, summed = problem.geometry, problem.item, problem.by_output, problem.operator == WEIGHT_GRAD
    source, target = (side.strides for side in problem.sides)
    widths = problem.sides[0].size[1], problem.sides[1].size[1]
    down, across = pairs_of(g.rows, by_output), pairs_of(g.columns, by_output)
    height, steps = len(down.count), (1, 1) if by_output else (g.rows.stride, g.columns.stride)
    held = (int(np.abs(down.last - down.first).max()) + 1, 1)
    elements = math.prod(g.input) + math.prod(g.output)
    whole = summed and problem.images <= FEW_IMAGES and elements * LEAST_BYTES <= COPY_BYTES
    if whole:
        held = g.rows.input, g.rows.output
    if summed:
        some, channels = _copied(problem, COPY_BYTES // (held[0] * widths[0] + held[1] * widths[1]))
    else:
        some, channels = _chunk(problem, CHUNK_BYTES // (held[0] * widths[0]))
    chunks = math.ceil(problem.images / some) * math.ceil(problem.groups / channels)
    small = _cycles(problem, CYCLES_PER_PRODUCT, CYCLES_PER_ELEMENT) < SMALL_CYCLES
    parts = 1 if small else min(math.ceil(TASKS / chunks), math.ceil(height / 4))
    rows = runs_of(down, steps[0], math.ceil(height / parts) if whole else 1, 0)
    pitch = some * channels * item
    if pitch // LINE % 2 == 0:  # an odd number of lines from column to column fills all sets of the caches
        pitch += LINE
    sizes = DepthwiseSizes(
        images=problem.images,
        channels=problem.groups,
        taps=g.rows.filter * g.columns.filter,
        filter_columns=g.columns.filter,
        chunk_images=some,
        chunk_channels=channels,
        source_columns=widths[0],
        target_columns=widths[1],
        source_held=held[0],
        target_held=held[1],
        pitch=pitch,
        item=item,
        source_image=source[0] * item,
        source_row=source[1] * item,
        source_column=source[2] * item,
        target_image=target[0] * item,
        target_row=target[1] * item,
        target_column=target[2] * item,
        streamed=int(_streamed(problem, target, widths[1] * height)),
    )
    # Of many images the last column of a run is better alone than in a tile of its own.
    split = TILE if some > 1 and not summed else 0
    return DepthwisePlan(_starts(rows.count, parts), rows, runs_of(across, steps[1], len(across.count), split), sizes)


def _starts(counts: Array, parts: int) -> Array:
    """Where parts of about as many rows begin among the runs, and the last one's end."""
    ends = np.cumsum(counts)
    inner = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts)
    return np.unique(np.array([0, *inner, len(counts)], np.int64))


def _streamed(problem: Problem, strides: tuple[int, int, int], positions: int) -> bool:
    """Whether a result is large, and its vectors may lie on whole ones."""
    nbytes = problem.images * problem.groups * positions * problem.item
    return nbytes >= STREAMED and all(step * problem.item % ISA.bytes == 0 for step in strides)


def _chunk(problem: Problem, nbytes: int) -> tuple[int, int]:
    """Images and channels whose position has about so many bytes: all channels of some images, else some channels."""
    wanted = max(LEAST_BYTES, nbytes) // problem.item
    channels = _equal_channels(problem, wanted)
    images = min(problem.images, max(1, wanted // channels)) if channels >= problem.groups else 1
    return math.ceil(problem.images / math.ceil(problem.images / images)), channels


def _copied(problem: Problem, nbytes: int) -> tuple[int, int]:
    """Likewise few channels of many images first, over which a sum runs in registers."""
    wanted = max(LEAST_BYTES, nbytes) // problem.item
    images = min(problem.images, wanted // min(wanted, LEAST_BYTES // problem.item))
    images = math.ceil(problem.images / math.ceil(problem.images / images))
    return images, _equal_channels(problem, wanted // images)


def _equal_channels(problem: Problem, wanted: int) -> int:
    """Channels a chunk, whole pairs of vectors: about so many, or all."""
    pair = PAIR * ISA.lanes(problem.item)
    pieces = math.ceil(problem.groups / max(pair, wanted))
    return math.ceil(problem.groups / pieces / pair) * pair


def runs_of(pairs: Pairs, step: int, most: int, split: int) -> Runs:
    """Positions a step apart, and at most so many, that have the same taps at sources a step apart.

    A single one that tiles of ``split`` would leave over is a run of its own. ``step``: 1 by output, the stride by
    input.
    """
    alike = stretches(pairs, step)
    size = np.minimum(alike.number, most)
    if split:
        size = np.where((size > 1) & (size % split == 1), size - 1, size)
    pieces = -(-alike.number // size)
    of = np.repeat(np.arange(len(pieces)), pieces)
    first = (np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * size[of]
    count = np.minimum(size[of], alike.number[of] - first)
    target = alike.index[of] + first * alike.step[of]
    order = np.argsort(target, kind="stable")
    of, count, target = of[order], count[order], target[order]
    several = count > 1
    target_step, source_step = (np.where(several, steps[of], 0) for steps in (alike.step, alike.source_step))
    # Taps by their sources, which run against them where outputs meet an input.
    back = pairs.step < 0
    each_source, each_filter = (-pairs.step, -pairs.other_step) if back else (pairs.step, pairs.other_step)
    taps = pairs.count[target]
    behind = np.maximum(taps - 1, 0) if back else np.zeros_like(taps)
    source = pairs.first[target] - behind * each_source
    tap = pairs.other[target] - behind * each_filter
    shared = _joined(taps, source_step, each_source, each_filter)
    return Runs(taps, source, tap, count, source_step, target, target_step, *shared, each_source, each_filter)


def _joined(taps: Array, source_step: Array, tap_step: int, filter_step: int) -> tuple[Array, Array, Array, Array]:
    """(taps together, ratio, step of the taps' sources, step in the filter) of each run."""
    ratio = np.where(source_step != 0, source_step // tap_step, 1)  # a single target shares with none
    evenly = np.isin(ratio, RATIOS) & ((source_step == 0) | (ratio * tap_step == source_step))
    one, few = taps < 2, (taps <= JOINED) & evenly
    return (
        np.where(~one & few, taps, 1),
        np.where(one, 1, np.where(evenly, ratio, 0)),
        np.where(one, source_step, tap_step),
        np.where(one, 0, filter_step),
    )


class Depthwise(Algorithm):
    """Vectors of channels, each with its own filter; no products of matrices."""

    name = "depthwise"
    operators = OPERATORS
    always = True

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def plan(self, problem: Problem) -> DepthwisePlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        return _cycles(problem, 1 / figures.fmas_per_cycle, figures.copy_cycles_per_vector)

    def describe(self, problem: Problem) -> str:
        if problem.operator == WEIGHT_GRAD:
            return "channels as lanes"
        return f"channels as lanes, chunks of {plan(problem).sizes.chunk_channels} channels"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem)
        if problem.operator == WEIGHT_GRAD:
            return _sum(engine, planned, call)
        taps = filters.dense_array(engine, engine.array(call.other)).reshape(problem.groups, -1)
        macs: int = engine.launch(
            kernels.depthwise, call.tag, planned.starts, planned.rows, planned.columns, planned.sizes,
            call.source.address, taps, *call.ends, tasks=planned.tasks,
        )  # fmt: skip
        return macs


def _sum(engine: HostEngine, plan: DepthwisePlan, call: Call) -> int:
    """A filter's gradient."""
    parts = filters.parts_of(engine, call.out, plan.parts)
    macs: int = engine.launch(
        kernels.depthwise_weight, call.tag, plan.starts, plan.rows, plan.columns, plan.sizes, call.source.address,
        call.other.address, engine.array(parts).reshape(plan.parts, plan.sizes.channels, -1), tasks=plan.tasks,
    )  # fmt: skip
    filters.sum_parts(engine, parts, call.out)
    return macs
