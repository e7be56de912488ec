"""Plans of convolutions and input gradients of few images and large filters, of which each task reads its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import plans
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.panels import PanelSizes
from alpha.cpu.kernels.positions import COUNT, Block, Patterns
from alpha.cpu.plans import Problem
from alpha.cpu.positions import ROWS
from alpha.geometry import Axis

Array = np.ndarray[Any, Any]

PACKED_BYTES = (512 if ISA.bytes == 64 else 256) << 10
"""Of the filters that a task works on at once, about: they stay in the second cache while they meet all rows.

Nearly all processors with AVX-512 have second caches of 1 MiB and more, others half or a quarter of that.
"""

LEAST_PANELS = 8
"""Fewer tasks would leave threads without."""

MOST_ROWS = 1 << 22
"""Of all taps: each 48 of them are a block, of which there is a table."""

LEAST_BYTES = 1 << 20
"""Of the filters: smaller ones stay in the second cache once they are packed, whoever does it."""


@dataclass(frozen=True)
class PanelPlan:
    """Tables and sizes; ``blocks`` is a table of ``Block``: of all positions without taps, then of each tap's."""

    blocks: Array
    rows: Patterns
    columns: Patterns
    sizes: PanelSizes
    packed_shape: tuple[int, ...]
    """Of filters that are packed before."""
    macs: int

    @property
    def tasks(self) -> int:
        """Panels."""
        return self.sizes.groups * self.sizes.channels // self.sizes.panel


def serves(problem: Problem, by_output: bool) -> bool:
    """Whether panels and vectors are whole, panels enough for threads to share, and filters large."""
    depth, channels = problem.group_in, problem.group_out
    if not by_output:
        depth, channels = channels, depth
    panel = ISA.panel(problem.item)
    whole = depth % ISA.lanes(problem.item) == 0 and channels % panel == 0
    nbytes = math.prod(problem.geometry.filter) * problem.groups * depth * channels * problem.item
    few = problem.geometry.useful * problem.images <= MOST_ROWS
    return whole and few and problem.groups * channels // panel >= LEAST_PANELS and nbytes >= LEAST_BYTES


@caches.kept
def plan(problem: Problem, by_output: bool) -> PanelPlan:
    """The plan of a convolution (``by_output``) or an input gradient that it serves."""
    gather = plans.forward(problem) if by_output else plans.input_grad(problem)  # it has checked the offsets
    g, item, panel = problem.geometry, problem.item, gather.sizes.panel
    source, target = (problem.x_strides, problem.y_strides)
    if not by_output:
        source, target = target, source
    rows = _by_tap(g.rows, by_output, source[1] * item, g.columns.filter, target[1] * item)
    columns = _by_tap(g.columns, by_output, source[2] * item, 1, target[2] * item)
    taps, lanes, depth = g.rows.filter * g.columns.filter, ISA.lanes(item), gather.sizes.depth
    parts = math.ceil(depth / max(lanes, PACKED_BYTES // (taps * panel * item)))
    depth_block = math.ceil(depth / parts / lanes) * lanes
    sizes = PanelSizes(
        groups=problem.groups,
        depth=depth,
        channels=gather.sizes.channels,
        panel=panel,
        rows=ROWS,
        taps=taps,
        depth_block=depth_block,
        chunk=max(lanes, PACKED_BYTES // (panel * item)),
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
    )
    return PanelPlan(_blocks(rows, columns, problem.images), rows, columns, sizes, gather.packed_shape, gather.macs)


def _by_tap(axis: Axis, by_output: bool, source: int, other: int, target: int) -> Patterns:
    """All positions, without taps; then for each tap of the axis those that have it. Each index times its step."""
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
    """At most ``ROWS`` rows each, in the order in which the filters lie."""
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
