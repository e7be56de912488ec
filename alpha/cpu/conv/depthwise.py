"""depthwise: channels as lanes, where each channel has one filter, in chunks whose lines the caches hold."""

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
"""About how many bytes of lines a task's results share: the L2 cache holds them."""

COPY_BYTES = 256 << 10
"""About how many bytes of lines a thread that computes the filter gradient copies."""

MAX_WHOLE_IMAGES = 4
"""With no more images, a sum of the filter gradient runs over all rows of a small map; more images are long enough."""

MIN_POSITION_BYTES = 256
"""Fewest bytes per position in a chunk, so that memory is read in runs of several cache lines."""

TASKS = 8
"""Fewest tasks of a convolution that is worth more than one thread, and most parts of a filter's sums.

This never depends on the number of threads, so that the order of sums is the same.
"""

SMALL_CYCLES = 60_000
"""A convolution of fewer cycles than this is done before a second thread would have woken."""

STREAMED = 16 << 20
"""A result of so many bytes or more is written past the caches, which would not keep it until it is read."""

CYCLES_PER_PRODUCT, CYCLES_PER_ELEMENT = 0.65, 3.0
"""Cycles per product of vectors, and per vector read or written, by which a plan chooses its tasks.

Not measured on this machine: plans decide the order of sums, which must be the same on any machine.
"""

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class DepthwisePlan:
    """Tables and sizes; a task computes the runs of rows between two ``starts``."""

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
        """How many separate sums of the filter gradient there are."""
        return self.chunks[0] * (len(self.starts) - 1)


def serves(problem: Problem) -> bool:
    """Whether each channel has one separate filter, and a filter gradient's copies are not too large."""
    if not problem.groups == problem.in_channels == problem.out_channels or problem.groups == 1:
        return False
    return problem.operator != WEIGHT_GRAD or _copies(plan(problem).sizes) <= SCRATCH


def _copies(sizes: DepthwiseSizes) -> int:
    lines = sizes.source_held * sizes.source_columns + sizes.target_held * sizes.target_columns
    return lines * sizes.pitch


def _cycles(problem: Problem, per_product: float, per_element: float) -> float:
    """About how many cycles of one core any of the three operators takes: products, and access to the L3 cache."""
    g = problem.geometry
    vectors = problem.images * math.ceil(problem.groups / ISA.lanes(problem.item))
    return vectors * (per_product * g.useful + per_element * (math.prod(g.input) + math.prod(g.output)))


@caches.kept
def plan(problem: Problem) -> DepthwisePlan:
    """The plan of a problem that it serves; a filter gradient's plan is made of its convolution's pairs."""
    _ = images.plan(problem)  # checks the offsets
    g, item, by_output, summed = problem.geometry, problem.item, problem.by_output, problem.operator == WEIGHT_GRAD
    source, target = (side.strides for side in problem.sides)
    widths = problem.sides[0].size[1], problem.sides[1].size[1]
    down, across = pairs_of(g.rows, by_output), pairs_of(g.columns, by_output)
    height, steps = len(down.count), (1, 1) if by_output else (g.rows.stride, g.columns.stride)
    held = (int(np.abs(down.last - down.first).max()) + 1, 1)
    elements = math.prod(g.input) + math.prod(g.output)
    whole = summed and problem.images <= MAX_WHOLE_IMAGES and elements * MIN_POSITION_BYTES <= COPY_BYTES
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
    if pitch // LINE % 2 == 0:  # an odd number of cache lines per column uses all sets of the caches
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
    # With several images, a run's last column is better as a run by itself than as a tile of one column.
    split = TILE if some > 1 and not summed else 0
    return DepthwisePlan(_starts(rows.count, parts), rows, runs_of(across, steps[1], len(across.count), split), sizes)


def _starts(counts: Array, parts: int) -> Array:
    """The runs at which parts of about equally many rows begin, and the end of the last part."""
    row_ends = np.cumsum(counts)
    inner = np.searchsorted(row_ends, row_ends[-1] * np.arange(1, parts) / parts)
    return np.unique(np.array([0, *inner, len(counts)], np.int64))


def _streamed(problem: Problem, strides: tuple[int, int, int], positions: int) -> bool:
    """Whether a result is large, and its strides are multiples of a vector's size."""
    nbytes = problem.images * problem.groups * positions * problem.item
    return nbytes >= STREAMED and all(step * problem.item % ISA.bytes == 0 for step in strides)


def _chunk(problem: Problem, nbytes: int) -> tuple[int, int]:
    """Images and channels with about ``nbytes`` bytes per position: all channels of some images, or some channels."""
    wanted = max(MIN_POSITION_BYTES, nbytes) // problem.item
    channels = _equal_channels(problem, wanted)
    images = min(problem.images, max(1, wanted // channels)) if channels >= problem.groups else 1
    return math.ceil(problem.images / math.ceil(problem.images / images)), channels


def _copied(problem: Problem, nbytes: int) -> tuple[int, int]:
    """Images and channels per copy: rather many images of few channels, over which a sum runs in registers."""
    wanted = max(MIN_POSITION_BYTES, nbytes) // problem.item
    images = min(problem.images, wanted // min(wanted, MIN_POSITION_BYTES // problem.item))
    images = math.ceil(problem.images / math.ceil(problem.images / images))
    return images, _equal_channels(problem, wanted // images)


def _equal_channels(problem: Problem, wanted: int) -> int:
    """Channels per chunk, whole pairs of vectors: about ``wanted``, or all."""
    pair = PAIR * ISA.lanes(problem.item)
    pieces = math.ceil(problem.groups / max(pair, wanted))
    return math.ceil(problem.groups / pieces / pair) * pair


def runs_of(pairs: Pairs, step: int, most: int, split: int) -> Runs:
    """Runs of at most ``most`` positions, a step apart, that have the same taps at sources a step apart.

    A single position that tiles of ``split`` positions would leave is a separate run. ``step``: 1 by output, the stride
    by input.
    """
    stretches_found = stretches(pairs, step)
    size = np.minimum(stretches_found.number, most)
    if split:
        size = np.where((size > 1) & (size % split == 1), size - 1, size)
    pieces = -(-stretches_found.number // size)
    parent = np.repeat(np.arange(len(pieces)), pieces)
    first = (np.arange(len(parent)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * size[parent]
    count = np.minimum(size[parent], stretches_found.number[parent] - first)
    target = stretches_found.index[parent] + first * stretches_found.step[parent]
    order = np.argsort(target, kind="stable")
    parent, count, target = parent[order], count[order], target[order]
    several = count > 1
    target_step, source_step = (
        np.where(several, steps[parent], 0) for steps in (stretches_found.step, stretches_found.source_step)
    )
    # Taps in the order of their sources, which is the reverse order of taps if grouped by input.
    back = pairs.step < 0
    source_stride, filter_stride = (-pairs.step, -pairs.other_step) if back else (pairs.step, pairs.other_step)
    taps = pairs.count[target]
    behind = np.maximum(taps - 1, 0) if back else np.zeros_like(taps)
    source = pairs.first[target] - behind * source_stride
    tap = pairs.other[target] - behind * filter_stride
    shared = _joined(taps, source_step, source_stride, filter_stride)
    return Runs(taps, source, tap, count, source_step, target, target_step, *shared, source_stride, filter_stride)


def _joined(taps: Array, source_step: Array, tap_step: int, filter_step: int) -> tuple[Array, Array, Array, Array]:
    """(taps together, ratio, step of the taps' sources, step in the filter) of each run."""
    ratio = np.where(source_step != 0, source_step // tap_step, 1)  # a single target shares no sources
    evenly = np.isin(ratio, RATIOS) & ((source_step == 0) | (ratio * tap_step == source_step))
    single, joins_all = taps < 2, (taps <= JOINED) & evenly
    return (
        np.where(~single & joins_all, taps, 1),
        np.where(single, 1, np.where(evenly, ratio, 0)),
        np.where(single, source_step, tap_step),
        np.where(single, 0, filter_step),
    )


class Depthwise(Algorithm):
    """Vectors of channels, one filter per channel; no products of matrices."""

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
        taps = filters.dense_array(engine, call.other).reshape(problem.groups, -1)
        macs: int = engine.launch(
            kernels.depthwise, call.tag, planned.starts, planned.rows, planned.columns, planned.sizes,
            call.source.address, taps, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs


def _sum(engine: HostEngine, plan: DepthwisePlan, call: Call) -> int:
    """A filter's gradient."""
    parts = filters.parts_of(engine, call.out, plan.parts)
    macs: int = engine.launch(
        kernels.depthwise_weight, call.tag, plan.starts, plan.rows, plan.columns, plan.sizes, call.source.address,
        call.other.address, engine.operand(parts).reshape(plan.parts, plan.sizes.channels, -1), tasks=plan.tasks,
    )  # fmt: skip
    filters.sum_parts(engine, parts, call.out)
    return macs
