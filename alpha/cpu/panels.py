"""Plans of convolutions and input gradients of few images and large filters, of which each task reads its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu import plans
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.panels import PanelSizes
from alpha.cpu.kernels.positions import Block, Patterns
from alpha.cpu.plans import Problem
from alpha.cpu.positions import ROWS
from alpha.geometry import Groups

Array = np.ndarray[Any, Any]

PACKED_BYTES = (512 if ISA.bytes == 64 else 256) << 10
"""Of the filters that a task works on at once, about: they stay in the second cache while they meet all rows.

Nearly all processors with AVX-512 have second caches of 1 MiB and more, others half or a quarter of that.
"""

LEAST_PANELS = 8
"""Fewer tasks would leave threads without."""

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
    return whole and problem.groups * channels // panel >= LEAST_PANELS and nbytes >= LEAST_BYTES


@lru_cache(maxsize=1024)
def plan(problem: Problem, by_output: bool) -> PanelPlan:
    """The plan of a convolution (``by_output``) or an input gradient that it serves."""
    gather = plans.forward(problem) if by_output else plans.input_grad(problem)  # it has checked the offsets
    g, item, panel = problem.geometry, problem.item, gather.sizes.panel
    source, target = (problem.x_strides, problem.y_strides)
    groups = (g.rows.by_output, g.columns.by_output)
    if not by_output:
        source, target = target, source
        groups = (g.rows.by_input, g.columns.by_input)
    rows = _by_tap(groups[0], source[1] * item, g.columns.filter, target[1] * item)
    columns = _by_tap(groups[1], source[2] * item, 1, target[2] * item)
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


def _by_tap(groups: Groups, source: int, other: int, target: int) -> Patterns:
    """All positions, without taps; then for each tap of the axis those that have it. Each index times its step."""
    found: dict[int, list[tuple[int, int]]] = {}
    for position, pairs in enumerate(groups):
        for index, tap in pairs:
            found.setdefault(tap, []).append((position, index))
    taps = sorted(found)
    places = [(position, 0) for position in range(len(groups))] + [place for tap in taps for place in found[tap]]
    return Patterns(
        np.array([0, *range(len(taps) + 1)], np.int64),
        np.zeros(len(taps), np.int64),
        np.array(taps, np.int64) * other,
        np.ones(len(taps) + 1, np.int64),
        np.cumsum([0, len(groups), *(len(found[tap]) for tap in taps)], dtype=np.int64),
        np.array([index for _, index in places], np.int64) * source,
        np.array([position for position, _ in places], np.int64) * target,
    )


def _blocks(rows: Patterns, columns: Patterns, images: int) -> Array:
    """At most ``ROWS`` rows each, in the order in which the filters lie."""
    places = [np.diff(axis.start) for axis in (rows, columns)]
    pairs = [(0, 0), *((r, c) for r in range(1, len(rows.runs)) for c in range(1, len(columns.runs)))]
    table = []
    for r, c in pairs:
        total = int(places[0][r] * places[1][c]) * images
        table += [(r, c, first, min(ROWS, total - first), 0, images) for first in range(0, total, ROWS)]
    return np.array(table, np.int64).reshape(-1, len(Block._fields))
