"""Plans of convolutions and input gradients of few images: positions in classes by their pattern of taps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu import plans
from alpha.cpu.kernels.positions import Patterns, PositionSizes
from alpha.cpu.plans import Problem
from alpha.geometry import Groups

Array = np.ndarray[Any, Any]

FEW_IMAGES = 16
"""Below so many, images alone do not fill the micro-tiles."""

ROWS = 48
"""Of a task: their sources stay in the second cache while they meet every filter."""

FILTER_BYTES = 128 << 10
"""Of the panels that a task meets, about: they stay in the second cache."""


@dataclass(frozen=True)
class PositionPlan:
    """Tables and sizes. ``blocks``: (row pattern, column pattern, first row, number of rows) each."""

    blocks: Array
    rows: Patterns
    columns: Patterns
    sizes: PositionSizes
    packed_shape: tuple[int, ...]
    macs: int

    @property
    def tasks(self) -> int:
        """Blocks times chunks of panels."""
        panels = self.packed_shape[0] * self.packed_shape[1]
        return len(self.blocks) * math.ceil(panels / self.sizes.panels)


def serves(problem: Problem) -> bool:
    """Whether a problem has so few images that positions must be rows too."""
    return problem.images < FEW_IMAGES


@lru_cache(maxsize=1024)
def plan(problem: Problem, by_output: bool) -> PositionPlan:
    """The plan of a convolution (``by_output``) or an input gradient."""
    gather = plans.forward(problem) if by_output else plans.input_grad(problem)  # it has checked the offsets
    g, item = problem.geometry, problem.item
    source, target = (problem.x_strides, problem.y_strides)
    if not by_output:
        source, target = target, source
    groups = (g.rows.by_output, g.columns.by_output) if by_output else (g.rows.by_input, g.columns.by_input)
    tap = gather.packed_shape[3] * gather.packed_shape[4] * item
    rows = _patterns(groups[0], source[1] * item, g.columns.filter * tap, target[1] * item, joined=False)
    joined = by_output and plans.contiguous_runs(problem)
    columns = _patterns(groups[1], source[2] * item, tap, target[2] * item, joined)
    sizes = PositionSizes(
        images=problem.images,
        groups=problem.groups,
        depth=gather.sizes.depth,
        channels=gather.sizes.channels,
        panel=gather.sizes.panel,
        panels=max(1, FILTER_BYTES // gather.sizes.panel_bytes),
        rows=ROWS,
        most_taps=g.rows.filter * g.columns.filter,
        tap_block=gather.sizes.tap_block,
        depth_block=gather.sizes.depth_block,
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
        panel_bytes=gather.sizes.panel_bytes,
    )
    return PositionPlan(_blocks(rows, columns, problem.images), rows, columns, sizes, gather.packed_shape, gather.macs)


def _patterns(groups: Groups, source: int, other: int, target: int, joined: bool) -> Patterns:
    """Positions that have the same taps, at sources that lie alike; each index times its step."""
    found: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for position, pairs in enumerate(groups):
        first = pairs[0][0] if pairs else 0
        found.setdefault(tuple((index - first, tap) for index, tap in pairs), []).append(position)
    taps = [pattern[:1] if joined else pattern for pattern in found]
    runs = [len(pattern) if joined else 1 for pattern in found]
    placed = [position for positions in found.values() for position in positions]
    firsts = [groups[position][0][0] if groups[position] else 0 for position in placed]
    return Patterns(
        _starts([len(pattern) for pattern in taps]),
        np.array([index * source for pattern in taps for index, _ in pattern], np.int64),
        np.array([tap * other for pattern in taps for _, tap in pattern], np.int64),
        np.array(runs, np.int64),
        _starts([len(positions) for positions in found.values()]),
        np.array(firsts, np.int64) * source,
        np.array(placed, np.int64) * target,
    )


def _starts(lengths: list[int]) -> Array:
    return np.cumsum([0, *lengths], dtype=np.int64)


def _blocks(rows: Patterns, columns: Patterns, images: int) -> Array:
    """Equal blocks of each pair of patterns' rows, those with the most taps first."""
    blocks = []
    for r, c in np.ndindex(len(rows.runs), len(columns.runs)):
        total = int(np.diff(rows.start)[r] * np.diff(columns.start)[c]) * images
        size = math.ceil(total / math.ceil(total / ROWS))
        cost = int(np.diff(rows.tap_start)[r] * np.diff(columns.tap_start)[c] * columns.runs[c])
        blocks += [(-cost, r, c, first, min(size, total - first)) for first in range(0, total, size)]
    return np.array([block[1:] for block in sorted(blocks)], np.int64)
