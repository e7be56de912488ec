"""Plans of convolutions and input gradients of few images: positions in classes by their pattern of taps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu import plans
from alpha.cpu.kernels.positions import Block, Patterns, PositionSizes
from alpha.cpu.plans import Problem
from alpha.geometry import Groups

Array = np.ndarray[Any, Any]

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

    @property
    def tasks(self) -> int:
        """Groups of blocks times chunks of panels."""
        panels = self.packed_shape[0] * self.packed_shape[1]
        return math.ceil(len(self.blocks) / self.sizes.blocks) * math.ceil(panels / self.sizes.panels)


@lru_cache(maxsize=1024)
def plan(problem: Problem, by_output: bool) -> PositionPlan:
    """The plan of a convolution (``by_output``) or an input gradient."""
    gather = plans.forward(problem) if by_output else plans.input_grad(problem)  # it has checked the offsets
    tap = gather.packed_shape[3] * gather.packed_shape[4] * problem.item
    g, item = problem.geometry, problem.item
    source, target = (problem.x_strides, problem.y_strides)
    if not by_output:
        source, target = target, source
    groups = (g.rows.by_output, g.columns.by_output) if by_output else (g.rows.by_input, g.columns.by_input)
    rows = patterns_of(groups[0], source[1] * item, g.columns.filter * tap, target[1] * item, joined=False)
    joined = by_output and plans.contiguous_runs(problem)
    columns = patterns_of(groups[1], source[2] * item, tap, target[2] * item, joined)
    blocks = blocks_of(rows, columns, problem.images, problem.images, ROWS)
    together, panels, most = _tasks(problem, gather, len(blocks), by_output)
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


def _tasks(problem: Problem, gather: plans.GatherPlan, blocks: int, by_output: bool) -> tuple[int, int, int]:
    """Blocks and panels a task, and panels of it that meet all its blocks before the next ones do.

    All blocks where panels are enough to share and the second cache holds the sources; else all panels, and blocks as
    far as the second cache holds what they read.
    """
    panels = gather.packed_shape[0] * gather.packed_shape[1]
    size = problem.geometry.input if by_output else problem.geometry.output
    channels = problem.in_channels if by_output else problem.out_channels
    nbytes = math.prod(size) * problem.images * channels * problem.item
    most = max(1, FILTER_BYTES // gather.sizes.panel_bytes)
    if nbytes <= SOURCE_BYTES and panels >= TASKS:
        return blocks, min(most, panels // TASKS), most
    passes = math.ceil(panels / most)
    together = min(blocks // SHARES, SOURCE_BYTES // (ROWS * channels * problem.item)) if passes > 1 else 1
    return max(1, together), panels, math.ceil(panels / passes)


def patterns_of(groups: Groups, source: int, other: int, target: int, joined: bool) -> Patterns:
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


def blocks_of(rows: Patterns, columns: Patterns, images: int, chunk: int, most: int) -> Array:
    """The table of blocks: for each chunk of images, at most so many rows of each pair of patterns.

    Pairs take turns, most taps first, as far as they are through their places: what they read and write lies together.
    """
    pairs = [(r, c) for r in range(len(rows.runs)) for c in range(len(columns.runs))]
    taps = [np.diff(axis.tap_start) for axis in (rows, columns)]
    places = [np.diff(axis.start) for axis in (rows, columns)]
    pairs.sort(key=lambda pair: -int(taps[0][pair[0]] * taps[1][pair[1]] * columns.runs[pair[1]]))
    tables, through = [], []
    for image in range(0, images, chunk):
        count = min(chunk, images - image)
        for r, c in pairs:
            total = int(places[0][r] * places[1][c]) * count
            size = math.ceil(total / math.ceil(total / most))
            first = np.arange(0, total, size, dtype=np.int64)
            table = np.empty((len(first), len(Block._fields)), np.int64)
            table[:] = (r, c, 0, size, image, count)
            table[:, 2] = first
            table[-1, 3] = total - first[-1]
            tables.append(table)
            through.append(image + first / total * count)
    return np.concatenate(tables)[np.argsort(np.concatenate(through), kind="stable")]
