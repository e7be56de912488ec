"""positions: positions and images as the rows of matrix products, for few images; serves every problem.

Positions are grouped by their pattern of taps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import figures
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
"""With so many images or more, images alone fill the register tiles."""

MUCH_FASTER = 1.1
"""Positions compete there too if the micro-kernel for scattered rows is faster by this factor: models err by less."""

MANY_CHANNELS = 16
"""Fewer channels make short sums, whose tiles' beginnings and ends weigh more than the model counts."""

ROWS = 48
"""Rows per block: their sources stay in the L2 cache while they are multiplied with every filter."""

FILTER_BYTES = 128 << 10
"""About how many bytes of panels a task uses at a time: they stay in the L2 cache."""

SOURCE_BYTES = 256 << 10
"""If all sources take no more bytes than this, they stay in the L2 cache, and each core reads a share of the
filters."""

MIN_PANEL_TASKS = 8
"""Fewest tasks when panels are divided among tasks."""

MIN_BLOCK_TASKS = 32
"""Fewest tasks when a task takes several blocks."""


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
    by_images = images.plan(problem)  # it has checked the offsets
    tap = by_images.packed_shape[3] * by_images.packed_shape[4] * problem.item
    g, item = problem.geometry, problem.item
    by_output, (source, target) = problem.by_output, (side.strides for side in problem.sides)
    rows = patterns_of(g.rows, by_output, source[1] * item, g.columns.filter * tap, target[1] * item, joined=False)
    joined = by_output and problem.contiguous_runs
    columns = patterns_of(g.columns, by_output, source[2] * item, tap, target[2] * item, joined)
    blocks = blocks_of(rows, columns, problem.images, problem.images, ROWS)
    together, panels, most = _tasks(problem, by_images, len(blocks))
    sizes = PositionSizes(
        images=problem.images,
        groups=problem.groups,
        depth=by_images.sizes.depth,
        channels=by_images.sizes.channels,
        panel=by_images.sizes.panel,
        panels=panels,
        together=most,
        blocks=together,
        rows=ROWS,
        most_taps=g.rows.filter * g.columns.filter,
        tap_block=by_images.sizes.tap_block,
        depth_block=by_images.sizes.depth_block,
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
        panel_bytes=by_images.sizes.panel_bytes,
    )
    return PositionPlan(blocks, rows, columns, sizes, by_images.packed_shape, by_images.macs)


def _tasks(problem: Problem, by_images: images.ImagesPlan, blocks: int) -> tuple[int, int, int]:
    """Blocks and panels per task, and how many of its panels are multiplied with all its blocks before the next.

    All blocks, if there are enough panels to share and the L2 cache holds the sources; else all panels, and as many
    blocks as the L2 cache holds the sources of.
    """
    panels = by_images.packed_shape[0] * by_images.packed_shape[1]
    source = problem.sides[0]
    channels = source.channels * problem.groups
    nbytes = math.prod(source.size) * problem.images * channels * problem.item
    most = max(1, FILTER_BYTES // by_images.sizes.panel_bytes)
    if nbytes <= SOURCE_BYTES and panels >= MIN_PANEL_TASKS:
        return blocks, min(most, panels // MIN_PANEL_TASKS), most
    passes = math.ceil(panels / most)
    together = min(blocks // MIN_BLOCK_TASKS, SOURCE_BYTES // (ROWS * channels * problem.item)) if passes > 1 else 1
    return max(1, together), panels, math.ceil(panels / passes)


def patterns_of(axis: Axis, by_output: bool, source: int, other: int, target: int, joined: bool) -> Patterns:
    """Patterns of positions with the same taps, whose sources lie evenly; indices times steps."""
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
    """The table of blocks: for each chunk of images, blocks of at most ``most`` rows of each pair of patterns.

    Pairs take turns, those with the most taps first, in proportion to their positions: so blocks that follow each other
    read and write neighbouring memory.
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
    """One product per block of positions and images with the same taps."""

    name = "positions"
    of_pairs = True

    def suits(self, problem: Problem) -> bool:
        measured = figures.known().figures
        faster = measured.scattered_fmas_per_cycle > MUCH_FASTER * measured.fmas_per_cycle
        return problem.images < MANY_IMAGES or (faster and problem.sides[0].channels >= MANY_CHANNELS)

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
        packed = filters.packed(engine, call.other, planned.packed_shape, problem.by_output, call.reused)
        macs: int = engine.launch(
            kernels.positions, call.tag, planned.blocks, planned.rows, planned.columns, planned.sizes,
            call.source.address, packed.address, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs
