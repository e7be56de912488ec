"""positions: positions and images as the rows of the products, for few images; it serves every problem.

Positions are put in classes by their pattern of taps.
"""

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
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import pairs_of
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import positions as kernels
from alpha.cpu.kernels.microkernel import NARROW_SCATTERED_ROWS, SCATTERED_ROWS
from alpha.cpu.kernels.positions import COUNT, RUNS, TAPS, Block, Patterns, PositionSizes
from alpha.geometry import Axis, stretches

Array = np.ndarray[Any, Any]

MANY_IMAGES = 64
"""From so many on, images alone fill the micro-tiles."""

ROWS = 48
"""Of a block: their sources stay in the second cache while they meet every filter."""

FILTER_BYTES = 128 << 10
"""Of the panels that a task meets, about: they stay in the second cache."""

SOURCE_BYTES = 256 << 10
"""Of all sources: up to so many stay in the second cache, and each core reads only its own share of the filters."""

TASKS = 8
"""By panels, at least, for threads to share."""

SHARES = 32
"""By blocks, at least, where a task takes several of them."""


@dataclass(frozen=True)
class PositionPlan:
    """Tables and sizes; ``blocks`` is a table of ``Block``."""

    blocks: Array
    rows: Patterns
    columns: Patterns
    sizes: PositionSizes
    packed_shape: tuple[int, ...]
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Groups of blocks times chunks of panels."""
        panels = self.packed_shape[0] * self.packed_shape[1]
        return math.ceil(len(self.blocks) / self.sizes.blocks) * math.ceil(panels / self.sizes.panels)


@caches.kept
def plan(problem: Problem) -> PositionPlan:
    """The plan of any problem."""
    gather = images.plan(problem)  # it has checked the offsets
    tap = gather.packed_shape[3] * gather.packed_shape[4] * problem.item
    g, item = problem.geometry, problem.item
    by_output, (source, target) = problem.by_output, (side.strides for side in problem.sides)
    rows = patterns_of(g.rows, by_output, source[1] * item, g.columns.filter * tap, target[1] * item, joined=False)
    joined = by_output and problem.contiguous_runs
    columns = patterns_of(g.columns, by_output, source[2] * item, tap, target[2] * item, joined)
    blocks = blocks_of(rows, columns, problem.images, problem.images, ROWS)
    together, panels, most = _tasks(problem, gather, len(blocks))
    sizes = PositionSizes(
        images=problem.images,
        groups=problem.groups,
        depth=gather.sizes.depth,
        channels=gather.sizes.channels,
        panel=gather.sizes.panel,
        panels=panels,
        together=most,
        blocks=together,
        rows=ROWS,
        most_taps=g.rows.filter * g.columns.filter,
        tap_block=gather.sizes.tap_block,
        depth_block=gather.sizes.depth_block,
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
        panel_bytes=gather.sizes.panel_bytes,
    )
    return PositionPlan(blocks, rows, columns, sizes, gather.packed_shape, gather.macs)


def _tasks(problem: Problem, gather: images.GatherPlan, blocks: int) -> tuple[int, int, int]:
    """Blocks and panels a task, and panels of it that meet all its blocks before the next ones do.

    All blocks where panels are enough to share and the second cache holds the sources; else all panels, and blocks as
    far as the second cache holds what they read.
    """
    panels = gather.packed_shape[0] * gather.packed_shape[1]
    source = problem.sides[0]
    channels = source.channels * problem.groups
    nbytes = math.prod(source.size) * problem.images * channels * problem.item
    most = max(1, FILTER_BYTES // gather.sizes.panel_bytes)
    if nbytes <= SOURCE_BYTES and panels >= TASKS:
        return blocks, min(most, panels // TASKS), most
    passes = math.ceil(panels / most)
    together = min(blocks // SHARES, SOURCE_BYTES // (ROWS * channels * problem.item)) if passes > 1 else 1
    return max(1, together), panels, math.ceil(panels / passes)


def patterns_of(axis: Axis, by_output: bool, source: int, other: int, target: int, joined: bool) -> Patterns:
    """Positions that have the same taps, at sources that lie alike; each index times its step."""
    pairs = pairs_of(axis, by_output)
    alike = stretches(pairs, 1 if by_output else axis.stride)
    taps = pairs.count[alike.index]
    columns = (
        np.minimum(taps, 1) if joined else taps,
        taps if joined else np.ones_like(taps),
        pairs.other[alike.index] * other,
        alike.number,
        pairs.first[alike.index] * source,
        alike.source_step * source,
        alike.index * target,
        alike.step * target,
    )
    return Patterns(np.stack(columns), pairs.step * source, pairs.other_step * other)


def blocks_of(rows: Patterns, columns: Patterns, images: int, chunk: int, most: int) -> Array:
    """The table of blocks: for each chunk of images, at most so many rows of each pair of patterns.

    Pairs take turns, most taps first, as far as they are through their places: what they read and write lies together.
    """
    taps = np.multiply.outer(rows.table[TAPS], columns.table[TAPS] * columns.table[RUNS]).ravel()
    order = np.argsort(-taps, kind="stable")
    places = np.multiply.outer(rows.table[COUNT], columns.table[COUNT]).ravel()[order]
    r, c = np.divmod(order, columns.table.shape[1])
    tables, through = [], []
    for image in range(0, images, chunk):
        count = min(chunk, images - image)
        total = places * count
        pieces = -(-total // most)
        size = -(-total // pieces)
        pieces = -(-total // size)
        pair = np.repeat(np.arange(len(total)), pieces)
        first = (np.arange(len(pair)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * size[pair]
        table = np.empty((len(first), len(Block._fields)), np.int64)
        table[:, 0], table[:, 1], table[:, 2] = r[pair], c[pair], first
        table[:, 3] = np.minimum(size[pair], total[pair] - first)
        table[:, 4], table[:, 5] = image, count
        tables.append(table)
        through.append(image + first / total[pair] * count)
    return np.concatenate(tables)[np.argsort(np.concatenate(through), kind="stable")]


class Positions(Algorithm):
    """One product for each block of positions and images that have the same taps."""

    name = "positions"

    def suits(self, problem: Problem) -> bool:
        return problem.images < MANY_IMAGES

    def plan(self, problem: Problem) -> PositionPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = plan(problem)
        s, rows, columns = planned.sizes, planned.rows, planned.columns
        taps = rows.table[TAPS, planned.blocks[:, 0]] * columns.table[TAPS, planned.blocks[:, 1]]
        taps = taps * columns.table[RUNS, planned.blocks[:, 1]]
        vectors = s.panel // ISA.lanes(s.item)
        tile = SCATTERED_ROWS if vectors > 1 else NARROW_SCATTERED_ROWS
        tiles = -(-planned.blocks[:, 3] // tile)
        panels, blocks = s.groups * math.ceil(s.channels / s.panel), math.ceil(s.depth / s.depth_block)
        terms = float((tiles * taps).sum()) * s.depth * costs.step(tile, figures.scattered_fmas_per_cycle, vectors)
        finding = float(planned.blocks[:, 3].sum()) * figures.scattered_row_cycles * math.ceil(panels / s.together)
        computing = panels * (terms + float(tiles.sum()) * blocks * figures.tile_cycles) + finding
        nbytes = math.prod(planned.packed_shape) * s.item
        reading = costs.with_reading(computing, float(taps.sum()) / s.most_taps, nbytes, figures)
        return reading + costs.packing(nbytes, s.item, packs, figures)

    def describe(self, problem: Problem) -> str:
        return f"positions and images as rows, {len(plan(problem).blocks)} blocks"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem)
        packed = filters.packed(engine, call.other, planned.packed_shape, problem.by_output)
        macs: int = engine.launch(
            kernels.positions, call.tag, planned.blocks, planned.rows, planned.columns, planned.sizes,
            call.source.address, packed.address, *call.ends, tasks=planned.tasks,
        )  # fmt: skip
        return macs
