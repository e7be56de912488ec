"""Plans of Winograd's algorithm: which convolutions it serves, and their tiles as tables of byte offsets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.winograd import WinogradSizes
from alpha.cpu.kernels.winograd_forms import FORMS, Form
from alpha.cpu.kernels.winograd_stages import StageSizes
from alpha.cpu.plans import FEW_TASKS, Problem, check_offsets, extent
from alpha.errors import EngineError
from alpha.geometry import Axis

Array = np.ndarray[Any, Any]

VALUES_BYTES = 160 << 10
"""Of a task's transformed inputs, about: they stay in the second cache while they meet every filter."""

MOST_ROWS = 48
"""Tiles times images of a task."""

STAGED_BYTES = 12 << 20
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
        form: the matrices.
        rows_from: offsets of each tile row's source rows, -1 outside.
        rows_to: offsets of its target rows, -1 outside; ``columns_from`` and ``columns_to`` likewise.
        packed_shape: (all groups' panels, places, depth, panel width) of the transformed filters.
        macs: products that it computes.
        stages: where inputs, products and results are stages of their own, their sizes for some images after others.
    """

    form: Form
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
        return (
            self.form.places * math.ceil(stages.rows / stages.chunk) * math.ceil(self.packed_shape[0] / stages.panels)
        )

    @property
    def tasks(self) -> int:
        """Groups of tiles times chunks of images, of an algorithm without stages."""
        tiles = len(self.rows_to) * len(self.columns_to)
        return math.ceil(tiles / self.sizes.tiles) * math.ceil(self.sizes.images / self.sizes.chunk)


RESULTS = {"winograd": 2, "winograd3": 3, "winograd4": 4}
"""Of a run of taps along an axis, by the algorithms' names."""


def serves(problem: Problem, by_output: bool, results: int = 2) -> bool:
    """Whether the algorithm can compute it: there is a form, float32, images side by side in the source."""
    step, channels = (
        (problem.x_strides[0], problem.in_channels) if by_output else (problem.y_strides[0], problem.out_channels)
    )
    fits = problem.item == 4 and (problem.images == 1 or step == channels)
    return fits and form_of(problem, by_output, results) is not None


def form_of(problem: Problem, by_output: bool, results: int) -> Form | None:
    """The form that both axes share, of so many results a run."""
    axes = (problem.geometry.rows, problem.geometry.columns)
    if any(axis.dilation > 1 and axis.stride > 1 for axis in axes):
        return None
    keys = {(by_output, axis.filter, axis.stride, 0 if by_output else axis.padding[0] % axis.stride) for axis in axes}
    key = keys.pop()
    return None if keys else FORMS[results].get(key)


@caches.kept
def plan(problem: Problem, by_output: bool, results: int = 2) -> WinogradPlan:
    """The plan of a problem that it serves."""
    form = form_of(problem, by_output, results)
    if form is None:
        raise EngineError(f"[winograd] expected a problem that has a form, got {problem.geometry}: ask serves first")
    g, item = problem.geometry, problem.item
    x_steps, y_steps = ([s * item for s in strides] for strides in (problem.x_strides, problem.y_strides))
    source, target = (x_steps, y_steps) if by_output else (y_steps, x_steps)
    depth, channels, groups = problem.group_in, problem.group_out, problem.groups
    if not by_output:
        depth, channels = channels, depth
    rows_from, rows_to = tile_offsets(g.rows, form, by_output, source[1], target[1])
    columns_from, columns_to = tile_offsets(g.columns, form, by_output, source[2], target[2])
    tiles = len(rows_to) * len(columns_to)
    chunk, together = _blocking(problem.images, tiles, form.places * groups * depth)
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
    check_offsets("the source", (inside(rows_from), inside(columns_from)), run, x_limit)
    run = (problem.images - 1) * target[0] + groups * channels * item
    check_offsets("the target", (inside(rows_to), inside(columns_to)), run, y_limit)
    shape = (groups * math.ceil(channels / width), form.places, depth, width)
    macs = form.places * tiles * problem.images * groups * depth * channels
    stages = _stages(sizes, tiles, form.places, math.prod(shape) * item)
    return WinogradPlan(form, rows_from, rows_to, columns_from, columns_to, sizes, shape, by_output, macs, stages)


def _stages(sizes: WinogradSizes, tiles: int, places: int, filter_bytes: int) -> tuple[StageSizes, ...]:
    """The stages of a problem that does better with them. A tile's inputs are whole vectors then."""
    row = sizes.depth * 4
    unit = ISA.bytes // math.gcd(ISA.bytes, row)  # images of whole vectors
    if filter_bytes < STAGED_BYTES or sizes.images % unit or sizes.groups > 1:
        return ()
    at_a_time = max(1, STAGED_VALUES // (places * tiles * row * unit)) * unit
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


def tile_offsets(axis: Axis, form: Form, by_output: bool, source_step: int, target_step: int) -> tuple[Array, Array]:
    """Offsets that tiles read and write along an axis, -1 outside.

    Taps ``dilation`` apart combine results that far apart: those of each remainder of it have tiles of their own.
    """
    sizes, first = (axis.input, axis.output), -axis.padding[0]
    if not by_output:
        sizes, first = (axis.output, axis.input), axis.padding[0] // axis.stride
    phases = np.arange(min(axis.dilation, sizes[1]), dtype=np.int64)
    results = -(-(sizes[1] - phases) // axis.dilation)
    tiles = -(-results // form.result_step)
    phase = np.repeat(phases, tiles)[:, None]
    tile = (np.arange(len(phase), dtype=np.int64) - np.repeat(np.cumsum(tiles) - tiles, tiles))[:, None]
    inputs = form.first_input + form.input_step * tile + np.arange(form.inputs)
    read = first + phase + axis.dilation * inputs
    write = phase + axis.dilation * (form.result_step * tile + np.arange(form.results))
    return (
        np.where((read >= 0) & (read < sizes[0]), read * source_step, -1),
        np.where(write < sizes[1], write * target_step, -1),
    )


def inside(offsets: Array) -> Array:
    """Without those outside."""
    return offsets[offsets >= 0]


def _blocking(images: int, tiles: int, numbers: int) -> tuple[int, int]:
    """Images and tiles a task, in equal chunks and whole rows of micro-tiles, of so many numbers a tile and image."""
    rows = VALUES_BYTES // (numbers * 4)
    rows = max(ISA.rows, min(MOST_ROWS, rows) // ISA.rows * ISA.rows)
    if images > rows:
        chunks = math.ceil(images / rows)
        return math.ceil(images / chunks / ISA.rows) * ISA.rows, 1
    return images, max(1, min(rows // images, tiles // FEW_TASKS))
