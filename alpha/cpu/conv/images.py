"""images: C-K-S with images as the rows of matrix products, one position after another; serves every problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.blocking import block_rows
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import check_offsets, extent, joined, others, sources, table
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import images as kernels
from alpha.cpu.kernels.images import ImagesSizes
from alpha.cpu.kernels.tables import COUNT, AxisTable

Array = np.ndarray[Any, Any]

CHUNK_ROWS = 64
"""About how many images a task has: their rows stay in the L2 cache together with a panel of filters."""

MAX_SORTED = 1 << 16
"""Most positions that are sorted by their work."""


@dataclass(frozen=True)
class ImagesPlan:
    """Tables and sizes of a forward convolution or an input gradient."""

    order: Array
    rows: AxisTable
    columns: AxisTable
    runs: Array
    sizes: ImagesSizes
    packed_shape: tuple[int, ...]
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Positions times chunks of images."""
        return self.order.size * -(-self.sizes.images // self.sizes.chunk)


@caches.kept
def plan(problem: Problem) -> ImagesPlan:
    """The plan of any problem; for a filter gradient the plan of its convolution."""
    return _by_output(problem) if problem.by_output else _by_input(problem)


def _by_output(problem: Problem) -> ImagesPlan:
    """ConvV2: pairs grouped by output position."""
    g, item = problem.geometry, problem.item
    width = ISA.panel_of(problem.group_out, item)
    depth = problem.group_in
    panels = math.ceil(problem.group_out / width)
    image, row, column = (s * item for s in problem.x_strides)
    tap = depth * width * item
    by_column, runs = g.columns.pairs_by_output, np.ones(g.columns.output, np.int64)
    if problem.contiguous_runs:
        by_column, runs = joined(by_column)
    rows = table(g.rows.pairs_by_output, row, g.columns.filter * tap)
    columns = table(by_column, column, tap)
    taps = g.rows.filter * g.columns.filter
    sizes = ImagesSizes(
        images=problem.images,
        chunk=_chunk(problem.images),
        columns=g.columns.output,
        groups=problem.groups,
        depth=depth,
        channels=problem.group_out,
        panel=width,
        tap_block=max(1, block_rows(item) // depth),
        depth_block=_depth_block(depth * int(runs.max()), item),
        item=item,
        source_image=image,
        target_image=problem.y_strides[0] * item,
        target_row=problem.y_strides[1] * item,
        target_column=problem.y_strides[2] * item,
        panel_bytes=taps * tap,
    )
    last = (problem.images - 1) * image + (problem.in_channels - depth) * item
    x_limit = extent((problem.images, *g.input), problem.in_channels, problem.x_strides, item)
    count, first, tap_first = columns.pairs
    longest = _longest(first + (count - 1) * columns.source_step, runs, first, depth * item)
    check_offsets("x", (sources(rows), longest), last, x_limit)
    reached = _longest(tap_first + (count - 1) * columns.other_step, runs, tap_first, tap)
    check_offsets("the filter", (others(rows), reached), 0, taps * tap)
    shape = (problem.groups, panels, taps, depth, width)
    return ImagesPlan(_order(rows, columns, runs), rows, columns, runs, sizes, shape, problem.macs)


def _longest(last: Array, runs: Array, first: Array, unit: int) -> Array:
    """Where each column's reads begin and end, relative to its row: at its first pair, and a run after its last."""
    return np.concatenate([first, np.maximum(first, last + runs * unit)])


def _by_input(problem: Problem) -> ImagesPlan:
    """KS-deconv-V2: pairs grouped by input position."""
    g, item = problem.geometry, problem.item
    width = ISA.panel_of(problem.group_in, item)
    depth = problem.group_out
    panels = math.ceil(problem.group_in / width)
    image, row, column = (s * item for s in problem.y_strides)
    tap = depth * width * item
    taps = g.rows.filter * g.columns.filter
    rows = table(g.rows.pairs_by_input, row, g.columns.filter * tap)
    columns = table(g.columns.pairs_by_input, column, tap)
    runs = np.ones(g.columns.input, np.int64)
    sizes = ImagesSizes(
        images=problem.images,
        chunk=_chunk(problem.images),
        columns=g.columns.input,
        groups=problem.groups,
        depth=depth,
        channels=problem.group_in,
        panel=width,
        tap_block=max(1, block_rows(item) // depth),
        depth_block=_depth_block(depth, item),
        item=item,
        source_image=image,
        target_image=problem.x_strides[0] * item,
        target_row=problem.x_strides[1] * item,
        target_column=problem.x_strides[2] * item,
        panel_bytes=taps * tap,
    )
    last = (problem.images - 1) * image + problem.out_channels * item
    limit = extent((problem.images, *g.output), problem.out_channels, problem.y_strides, item)
    check_offsets("dy", (sources(rows), sources(columns)), last, limit)
    check_offsets("the filter", (others(rows), others(columns)), tap, taps * tap)
    shape = (problem.groups, panels, taps, depth, width)
    return ImagesPlan(_order(rows, columns, runs), rows, columns, runs, sizes, shape, problem.macs)


def _order(rows: AxisTable, columns: AxisTable, runs: Array) -> Array:
    """Positions with the most taps first, otherwise in order, so that threads end at about the same time.

    Among very many positions the last ones are a small part, whatever they cost.
    """
    lines, taps = rows.pairs[COUNT], columns.pairs[COUNT] * runs
    if len(lines) * len(taps) > MAX_SORTED:
        return np.arange(len(lines) * len(taps), dtype=np.int32)
    cost = np.multiply.outer(lines, taps).ravel()
    return np.argsort(-cost, kind="stable").astype(np.int32)


def _chunk(images: int) -> int:
    """Images per task: equal chunks of whole tiles."""
    chunks = max(1, round(images / CHUNK_ROWS))
    return math.ceil(math.ceil(images / chunks) / ISA.rows) * ISA.rows


def _depth_block(depth: int, item: int) -> int:
    """Channels that are summed at a time: all, or equal blocks."""
    return max(1, math.ceil(depth / max(1, round(depth / block_rows(item)))))


class Images(Algorithm):
    """One product for each position and chunk of images."""

    name = "images"
    of_pairs = True

    def plan(self, problem: Problem) -> ImagesPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned, g = plan(problem), problem.geometry
        s = planned.sizes
        vectors, chunks = s.panel // ISA.lanes(s.item), math.ceil(s.images / s.chunk)
        terms, tiles = costs.in_chunks(s.images, s.chunk, figures.fmas_per_cycle, vectors)
        panels = s.groups * math.ceil(s.channels / s.panel)
        places, blocks = planned.order.size, math.ceil(s.depth / s.depth_block)
        computing = panels * (terms * g.useful * s.depth + tiles * places * blocks * figures.tile_cycles)
        passes = chunks * g.useful / (g.rows.filter * g.columns.filter)
        nbytes = math.prod(planned.packed_shape) * s.item
        reading = costs.with_reading(computing, passes, nbytes, figures)
        return reading + costs.packing(nbytes, s.item, packs, figures)

    def describe(self, problem: Problem) -> str:
        return f"images as rows, {plan(problem).sizes.chunk} per task"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem)
        packed = filters.packed(engine, call.other, planned.packed_shape, problem.by_output, call.reused)
        macs: int = engine.launch(
            kernels.images, call.tag, planned.order, planned.rows, planned.columns, planned.runs, planned.sizes,
            call.source.address, packed.address, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs
