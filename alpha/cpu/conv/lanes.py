"""lanes: images in the lanes of the vectors, for few result channels: bands of result rows, chunks of images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters, images
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.blocking import SCRATCH
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import pairs_of, table
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import lanes as kernels
from alpha.cpu.kernels.lanes import HEIGHTS, VECTORS, Band, LaneSizes
from alpha.cpu.kernels.tables import AxisTable
from alpha.geometry import Pairs

Array = np.ndarray[Any, Any]

DEPTH = 16
"""About how many source channels are summed at a time: those of neighbouring positions' taps stay in the L1 cache."""

COPY = 256 << 10
"""About how many bytes the source's copy takes: it stays in the L2 cache."""


@dataclass(frozen=True)
class LanePlan:
    """Tables and sizes; ``bands`` is a table of ``Band``."""

    bands: Array
    rows: AxisTable
    columns: AxisTable
    heights: Array
    sizes: LaneSizes
    packed_shape: tuple[int, ...]
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Bands times chunks of images times groups."""
        return len(self.bands) * math.ceil(self.sizes.images / self.sizes.chunk) * self.sizes.groups


def serves(problem: Problem) -> bool:
    """Whether the result has fewer channels than a panel, and a row of images as lanes is not too wide."""
    source, target = problem.sides
    numbers = source.size[1] * min(source.channels, 2 * DEPTH) + target.size[1] * target.channels
    row = numbers * VECTORS * ISA.lanes(problem.item) * problem.item
    return target.channels < ISA.panel(problem.item) and row <= SCRATCH


def heights(channels: int) -> list[int]:
    """Channels divided into tiles of about equal height."""
    tiles = math.ceil(channels / HEIGHTS[0])
    return [channels // tiles + (i < channels % tiles) for i in range(tiles)]


@caches.kept
def plan(problem: Problem) -> LanePlan:
    """The plan of a problem that it serves."""
    g, item = problem.geometry, problem.item
    by_images = images.plan(problem)  # it has checked the offsets
    (size, depth, source), (result, channels, target) = problem.sides
    pairs = pairs_of(g.rows, problem.by_output), pairs_of(g.columns, problem.by_output)
    chunk = VECTORS * ISA.lanes(item)
    deep = math.ceil(depth / max(1, round(depth / DEPTH)))
    row_bytes = size[1] * deep * chunk * item
    bands = _bands(pairs[0], max(1, COPY // row_bytes))
    taps = g.rows.filter * g.columns.filter
    most = int((bands[:, 1] - bands[:, 0]).max())
    sizes = LaneSizes(
        images=problem.images,
        chunk=chunk,
        lanes=ISA.lanes(item),
        columns=result[1],
        source_columns=size[1],
        groups=problem.groups,
        depth=depth,
        depth_block=deep,
        channels=channels,
        most_taps=taps,
        item=item,
        source_image=source[0] * item,
        source_row=source[1] * item,
        source_column=source[2] * item,
        target_image=target[0] * item,
        target_row=target[1] * item,
        target_column=target[2] * item,
        packed_tap=depth * channels * item,
        copy_bytes=int((bands[:, 3] - bands[:, 2]).max()) * row_bytes + 64,
        sums_bytes=most * result[1] * channels * chunk * item + 64,
    )
    rows = table(pairs[0], 1, g.columns.filter)
    columns = table(pairs[1], 1, 1)
    shape = (problem.groups, 1, taps, depth, channels)
    return LanePlan(bands, rows, columns, np.array(heights(channels), np.int64), sizes, shape, by_images.macs)


def _bands(rows: Pairs, most: int) -> Array:
    """Result rows in about equal bands, which read at most ``most`` source rows, or have one result row."""
    total = len(rows.count)
    read = np.flatnonzero(rows.count)
    table = np.zeros((1, len(Band._fields)), np.int64)
    table[0, 1] = total
    if not read.size:
        return table
    first, last = np.minimum(rows.first, rows.last)[read], np.maximum(rows.first, rows.last)[read]
    if int((last - first).max()) >= most:
        return _cut(total, total, read, first, last)
    # At least so many bands: together they read all rows. If there are many, a few more do no harm.
    count = min(total, max(1, math.ceil((int(last.max()) + 1 - int(first.min())) / most)))
    while True:
        table = _cut(count, total, read, first, last)
        if count == total or int((table[:, 3] - table[:, 2]).max()) <= most:
            return table
        count = min(total, count + max(1, count // 64))


def _cut(count: int, total: int, read: Array, first: Array, last: Array) -> Array:
    """The table of ``count`` bands; result rows ``read`` read source rows ``first`` to ``last``, the others none."""
    cuts = total * np.arange(count + 1, dtype=np.int64) // count
    table = np.zeros((count, len(Band._fields)), np.int64)
    table[:, 0], table[:, 1] = cuts[:-1], cuts[1:]
    low, high = np.searchsorted(read, cuts[:-1]), np.searchsorted(read, cuts[1:])
    some = np.flatnonzero(low < high)
    if some.size:  # a band between them that reads nothing is left empty
        table[some, 2] = np.minimum.reduceat(first, low[some])
        table[some, 3] = np.maximum.reduceat(last, low[some]) + 1
    return table


class Lanes(Algorithm):
    """Sums of a band of result rows, each vector over as many images as it has lanes."""

    name = "lanes"

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def plan(self, problem: Problem) -> LanePlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = plan(problem)
        s, bands = planned.sizes, planned.bands
        chunks, blocks = s.groups * math.ceil(s.images / s.chunk), math.ceil(s.depth / s.depth_block)
        rows = planned.heights.tolist()
        latency = costs.FMA_LATENCY_CYCLES
        term = sum(max(n * VECTORS / figures.fmas_per_cycle, latency * (1 if n < 4 else 2)) for n in rows)
        tiles = planned.rows.pairs.shape[1] * s.columns * blocks * len(rows)
        turned = int((bands[:, 3] - bands[:, 2]).sum()) * s.source_columns * s.depth * VECTORS
        written = planned.rows.pairs.shape[1] * s.columns * s.channels * s.chunk
        cycles = term * problem.geometry.useful * s.depth + tiles * figures.tile_cycles
        cycles += turned * figures.transpose_cycles_per_vector + written * figures.scatter_cycles_per_number
        nbytes = math.prod(planned.packed_shape) * s.item
        return float(chunks * cycles) + costs.packing(nbytes, s.item, packs, figures)

    def describe(self, problem: Problem) -> str:
        planned = plan(problem)
        return f"images as lanes, {planned.sizes.chunk} per task, {len(planned.bands)} bands"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem)
        packed = filters.packed(engine, call.other, planned.packed_shape, problem.by_output, call.reused)
        macs: int = engine.launch(
            kernels.lanes, call.tag, planned.bands, planned.rows, planned.columns, planned.heights,
            planned.sizes, call.source.address, packed.address, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs
