"""panels: one panel of filters per task, for few images and large filters."""

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
from alpha.cpu.conv.positions import ROWS
from alpha.cpu.conv.problem import Problem
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import panels as kernels
from alpha.cpu.kernels.microkernel import SCATTERED_ROWS
from alpha.cpu.kernels.panels import PanelSizes
from alpha.cpu.kernels.positions import COUNT, TAPS, Block, Patterns
from alpha.geometry import Axis
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

PACKED_BYTES = (512 if ISA.bytes == 64 else 256) << 10
"""About how many bytes of filters a task works on at a time: they stay in the L2 cache while all rows use them.

Nearly all processors with AVX-512 have L2 caches of 1 MiB or more, others half or a quarter of that.
"""

MIN_PANELS = 8
"""With fewer panels than this, and so tasks, threads would have none."""

MAX_ROWS = 1 << 22
"""Most rows of all taps together: every 48 of them are a block, and all blocks are in a table."""

MIN_FILTER_BYTES = 1 << 20
"""Fewest bytes of filters: smaller ones stay in the L2 cache once they are packed, whichever algorithm packs them."""


@dataclass(frozen=True)
class PanelPlan:
    """Tables and sizes; ``blocks`` is a table of ``Block``: of all positions without taps, then of each tap's."""

    blocks: Array
    rows: Patterns
    columns: Patterns
    sizes: PanelSizes
    packed_shape: tuple[int, ...]
    """Shape of the filters where they are packed beforehand."""
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Number of panels."""
        return self.sizes.groups * self.sizes.channels // self.sizes.panel


def serves(problem: Problem) -> bool:
    """Whether panels and vectors are whole, panels enough for threads to share, and filters large."""
    depth, channels = (side.channels for side in problem.sides)
    panel = ISA.panel(problem.item)
    whole = depth % ISA.lanes(problem.item) == 0 and channels % panel == 0
    nbytes = math.prod(problem.geometry.filter) * problem.groups * depth * channels * problem.item
    rows_fit = problem.geometry.useful * problem.images <= MAX_ROWS
    return whole and rows_fit and problem.groups * channels // panel >= MIN_PANELS and nbytes >= MIN_FILTER_BYTES


@caches.kept
def plan(problem: Problem) -> PanelPlan:
    """The plan of a problem that it serves."""
    by_images = images.plan(problem)  # it has checked the offsets
    g, item, panel = problem.geometry, problem.item, by_images.sizes.panel
    by_output, (source, target) = problem.by_output, (side.strides for side in problem.sides)
    rows = _by_tap(g.rows, by_output, source[1] * item, g.columns.filter, target[1] * item)
    columns = _by_tap(g.columns, by_output, source[2] * item, 1, target[2] * item)
    taps, lanes, depth = g.rows.filter * g.columns.filter, ISA.lanes(item), by_images.sizes.depth
    parts = math.ceil(depth / max(lanes, PACKED_BYTES // (taps * panel * item)))
    depth_block = math.ceil(depth / parts / lanes) * lanes
    sizes = PanelSizes(
        groups=problem.groups,
        depth=depth,
        channels=by_images.sizes.channels,
        panel=panel,
        rows=ROWS,
        taps=taps,
        depth_block=depth_block,
        chunk=max(lanes, PACKED_BYTES // (panel * item)),
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
    )
    return PanelPlan(
        _blocks(rows, columns, problem.images), rows, columns, sizes, by_images.packed_shape, by_images.macs
    )


def _by_tap(axis: Axis, by_output: bool, source: int, other: int, target: int) -> Patterns:
    """A pattern of all positions without taps, then one per tap of the positions that have it; indices times steps."""
    pairs = axis.pairs_by_tap
    taps = np.flatnonzero(pairs.count)
    inputs, outputs = (pairs.first[taps], pairs.step), (pairs.other[taps], pairs.other_step)
    (first, step), (place, apart) = (inputs, outputs) if by_output else (outputs, inputs)
    positions = axis.output if by_output else axis.input

    def column(of_all: int, of_taps: Array | int) -> Array:
        found = np.full(len(taps) + 1, of_taps, np.int64) if isinstance(of_taps, int) else np.append(0, of_taps)
        found[0] = of_all
        return found

    columns = (
        column(0, 1),
        column(1, 1),
        column(0, taps * other),
        column(positions, pairs.count[taps]),
        column(0, first * source),
        column(0, step * source),
        column(0, place * target),
        column(target, apart * target),
    )
    return Patterns(np.stack(columns), 0, 0)


def _blocks(rows: Patterns, columns: Patterns, images: int) -> Array:
    """The table of blocks, of at most ``ROWS`` rows each, in the order of the filters in memory."""
    down, across = (np.arange(1, axis.table.shape[1]) for axis in (rows, columns))
    r = np.append(0, np.repeat(down, len(across)))
    c = np.append(0, np.tile(across, len(down)))
    total = rows.table[COUNT, r] * columns.table[COUNT, c] * images
    pieces = -(-total // ROWS)
    pair = np.repeat(np.arange(len(total)), pieces)
    table = np.empty((len(pair), len(Block._fields)), np.int64)
    table[:, 0], table[:, 1] = r[pair], c[pair]
    table[:, 2] = (np.arange(len(pair)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * ROWS
    table[:, 3] = np.minimum(ROWS, total[pair] - table[:, 2])
    table[:, 4], table[:, 5] = 0, images
    return table


class Panels(Algorithm):
    """A task multiplies each tap of its panel with all positions at once."""

    name = "panels"
    of_pairs = True

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def plan(self, problem: Problem) -> PanelPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = plan(problem)
        s, rows, columns = planned.sizes, planned.rows, planned.columns
        taps = rows.table[TAPS, planned.blocks[:, 0]] * columns.table[TAPS, planned.blocks[:, 1]]
        tiles = -(-planned.blocks[:, 3] // SCATTERED_ROWS)
        parts = math.ceil(s.depth / s.depth_block)
        terms = float((tiles * taps).sum()) * s.depth * costs.step(SCATTERED_ROWS, figures.scattered_fmas_per_cycle)
        summed = SCATTERED_ROWS * ISA.vectors * figures.sum_cycles_per_vector
        begun = float(tiles.sum()) * parts * (figures.tile_cycles + summed)
        finding = float(planned.blocks[:, 3].sum()) * parts * figures.scattered_row_cycles
        packing = figures.pack_cycles_per_number * s.taps * s.depth * s.panel if packs else 0
        computing = planned.tasks * (terms + begun + finding + packing)
        return costs.with_reading(computing, 1, math.prod(planned.packed_shape) * s.item, figures)

    def describe(self, problem: Problem) -> str:
        return f"one panel of filters per task, {plan(problem).sizes.depth_block} channels at a time"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem)
        kind, packed = _filters(engine, call, planned.packed_shape, problem.by_output)
        macs: int = engine.launch(
            kernels.panels, call.tag, kind, planned.blocks, planned.rows, planned.columns, planned.sizes,
            call.source.address, packed.address, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs


def _filters(engine: HostEngine, call: Call, shape: tuple[int, ...], by_output: bool) -> tuple[int, Tensor]:
    """The filters and their layout: packed beforehand only if they will be used again."""
    w = call.other
    if call.reused and filters.serve_again(w):
        return kernels.PACKED, filters.packed(engine, w, shape, by_output)
    return kernels.BY_OUTPUT if by_output else kernels.BY_INPUT, engine.dense(w, range(4))
