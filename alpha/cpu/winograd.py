"""Plans of Winograd's F(2 x 2, 3 x 3): which convolutions it serves, and their tiles as tables of byte offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu.isa import ISA
from alpha.cpu.kernels.winograd import PLACES, WinogradSizes
from alpha.cpu.kernels.winograd_stages import StageSizes
from alpha.cpu.plans import Problem, check_offsets, extent
from alpha.geometry import Axis

Array = np.ndarray[Any, Any]

VALUES_BYTES = 320 << 10
"""Of a task's transformed inputs, about: they stay in the second cache while they meet every filter."""

MOST_ROWS = 48
"""Tiles times images of a task."""

LEAST_TASKS = 4
"""For threads to share, where there are so many tiles."""

STAGED_BYTES = 6 << 20
"""From so many bytes of filters on, reading them for each task's few rows costs more than stages do."""

STAGED_VALUES = 24 << 20
"""Most bytes of transformed inputs at a time: the last cache holds them, about."""

CHUNK_BYTES = 256 << 10
"""Of the rows that a task of the staged products takes, about: they stay in the second cache."""

GROUP_BYTES = 128 << 10
"""Of its panels at one place, about: they stay there too."""


@dataclass(frozen=True)
class WinogradPlan:
    """Tables and sizes of a convolution (``by_output``) or an input gradient.

    Attributes:
        rows_from: offsets of each tile row's four source rows, -1 outside.
        rows_to: offsets of its two target rows, -1 outside; ``columns_from`` and ``columns_to`` likewise.
        packed_shape: (all groups' panels, places, depth, panel width) of the transformed filters.
        macs: products that it computes.
        stages: where inputs, products and results are stages of their own, their sizes for some images after others.
    """

    rows_from: Array
    rows_to: Array
    columns_from: Array
    columns_to: Array
    sizes: WinogradSizes
    packed_shape: tuple[int, ...]
    by_output: bool
    macs: int
    stages: tuple[StageSizes, ...]

    def product_tasks(self, stages: StageSizes) -> int:
        """Of the products of some images."""
        return PLACES * math.ceil(stages.rows / stages.chunk) * math.ceil(self.packed_shape[0] / stages.panels)

    @property
    def tasks(self) -> int:
        """Groups of tiles times chunks of images, of an algorithm without stages."""
        tiles = len(self.rows_to) * len(self.columns_to)
        return math.ceil(tiles / self.sizes.tiles) * math.ceil(self.sizes.images / self.sizes.chunk)


def serves(problem: Problem, by_output: bool) -> bool:
    """Whether the algorithm can compute it: 3 x 3, nothing leapt over, float32, images side by side in the source."""
    g = problem.geometry
    plain = all(axis.filter == 3 and axis.stride == 1 and axis.dilation == 1 for axis in (g.rows, g.columns))
    step, channels = (
        (problem.x_strides[0], problem.in_channels) if by_output else (problem.y_strides[0], problem.out_channels)
    )
    return plain and problem.item == 4 and (problem.images == 1 or step == channels)


@lru_cache(maxsize=1024)
def plan(problem: Problem, by_output: bool) -> WinogradPlan:
    """The plan of a problem that it serves."""
    g, item = problem.geometry, problem.item
    x_steps, y_steps = ([s * item for s in strides] for strides in (problem.x_strides, problem.y_strides))
    source, target = (x_steps, y_steps) if by_output else (y_steps, x_steps)
    depth, channels, groups = problem.group_in, problem.group_out, problem.groups
    if not by_output:
        depth, channels = channels, depth
    rows_from, rows_to = _tiles(g.rows, by_output, source[1], target[1])
    columns_from, columns_to = _tiles(g.columns, by_output, source[2], target[2])
    tiles = len(rows_to) * len(columns_to)
    chunk, together = _blocking(problem.images, tiles, groups * depth)
    width = ISA.panel(item)
    sizes = WinogradSizes(
        images=problem.images,
        chunk=chunk,
        tiles=together,
        tile_columns=len(columns_to),
        groups=groups,
        depth=depth,
        channels=channels,
        panel=width,
        source_image=source[0],
        target_image=target[0],
    )
    x_limit = extent((problem.images, *g.input), problem.in_channels, problem.x_strides, item)
    y_limit = extent((problem.images, *g.output), problem.out_channels, problem.y_strides, item)
    if not by_output:
        x_limit, y_limit = y_limit, x_limit
    run = (problem.images - 1) * source[0] + groups * depth * item
    check_offsets("the source", (_inside(rows_from), _inside(columns_from)), run, x_limit)
    run = (problem.images - 1) * target[0] + groups * channels * item
    check_offsets("the target", (_inside(rows_to), _inside(columns_to)), run, y_limit)
    shape = (groups * math.ceil(channels / width), PLACES, depth, width)
    macs = PLACES * tiles * problem.images * groups * depth * channels
    stages = _stages(sizes, tiles, math.prod(shape) * item)
    return WinogradPlan(rows_from, rows_to, columns_from, columns_to, sizes, shape, by_output, macs, stages)


def _stages(sizes: WinogradSizes, tiles: int, filter_bytes: int) -> tuple[StageSizes, ...]:
    """The stages of a problem that does better with them. A tile's inputs are whole vectors then."""
    row = sizes.depth * 4
    unit = ISA.bytes // math.gcd(ISA.bytes, row)  # images of whole vectors
    if filter_bytes < STAGED_BYTES or sizes.images % unit or sizes.groups > 1:
        return ()
    at_a_time = max(1, STAGED_VALUES // (PLACES * tiles * row * unit)) * unit
    parts = math.ceil(sizes.images / at_a_time)
    images = math.ceil(sizes.images / parts / unit) * unit
    return tuple(
        _stage(first, min(images, sizes.images - first), tiles, row, sizes.panel)
        for first in range(0, sizes.images, images)
    )


def _stage(first: int, images: int, tiles: int, row: int, panel: int) -> StageSizes:
    """Of some images, ``row`` bytes of channels a pixel."""
    rows = tiles * images
    most = max(ISA.rows, CHUNK_BYTES // row // ISA.rows * ISA.rows)
    chunk = math.ceil(rows / math.ceil(rows / most) / ISA.rows) * ISA.rows
    # A line between places keeps them out of each other's sets of the caches.
    step = math.ceil(rows * row / 64) * 64 + 64
    return StageSizes(first, images, tiles, rows, chunk, max(1, GROUP_BYTES // (row * panel)), step)


def _tiles(axis: Axis, by_output: bool, source_step: int, target_step: int) -> tuple[Array, Array]:
    """Offsets that tiles read and write along an axis, -1 outside.

    The input gradient is a convolution too, by the filter turned round, with padding 2 - p.
    """
    sizes, padding = ((axis.input, axis.output), axis.padding[0])
    if not by_output:
        sizes, padding = ((axis.output, axis.input), 2 - axis.padding[0])
    first = 2 * np.arange(math.ceil(sizes[1] / 2), dtype=np.int64)[:, None]
    read = first + np.arange(4) - padding
    write = first + np.arange(2)
    return (
        np.where((read >= 0) & (read < sizes[0]), read * source_step, -1),
        np.where(write < sizes[1], write * target_step, -1),
    )


def _inside(offsets: Array) -> Array:
    return offsets[offsets >= 0]


def _blocking(images: int, tiles: int, depth: int) -> tuple[int, int]:
    """Images and tiles a task, in equal chunks and whole rows of micro-tiles."""
    rows = VALUES_BYTES // (PLACES * depth * 4)
    rows = max(ISA.rows, min(MOST_ROWS, rows) // ISA.rows * ISA.rows)
    if images > rows:
        chunks = math.ceil(images / rows)
        return math.ceil(images / chunks / ISA.rows) * ISA.rows, 1
    return images, max(1, min(rows // images, tiles // LEAST_TASKS))
