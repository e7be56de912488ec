"""tap_rows: filter gradients with few input channels; a filter row's taps and channels are a product's rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.blocking import SCRATCH, image_part
from alpha.cpu.conv.problem import RUN_CHANNELS, Problem, problem_of
from alpha.cpu.conv.tables import check_offsets, extent
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import tap_rows as kernels
from alpha.cpu.kernels.microkernel import TALL_HEIGHTS, WIDE_HEIGHTS
from alpha.cpu.kernels.tap_rows import TapRowsSizes
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Axis, stretches

Array = np.ndarray[Any, Any]

MAX_IMAGES = 64
"""Most images whose x is copied at a time: a pixel's images of dy are a run that the processor prefetches."""

PIXELS = 4096
"""About how many positions times images are copied from x at a time, unless one output row has more."""

SUMMED = 512
"""About how many positions times images a product sums at a time: all filter rows and panels read their dy."""

MAX_TRIMS = 16
"""Most trims of columns: more (a filter about as wide as its input) would make short sums."""

LATENCY = 4
"""Rows of a tile that hide a multiply-add's latency: fewer rows take as long."""

MAX_OPTIMIZED_ROWS = 256
"""Most rows for which the best division into tiles is searched."""

TILE_OVERHEAD = 8
"""What a tile costs besides its rows, in rows."""


@dataclass(frozen=True)
class TapRowsPlan:
    """Tables and sizes."""

    tables: kernels.TapRows
    sizes: TapRowsSizes
    groups: int
    parts: int
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Parts of the images times groups."""
        return self.parts * self.groups


def serves(problem: Problem) -> bool:
    """Whether a problem has few input channels, and columns of few trims whose taps are neighbours."""
    columns, rows = problem.geometry.columns, problem.geometry.rows
    copy = (
        min(rows.input, rows.extent) * min(problem.images, MAX_IMAGES) * columns.input * problem.group_in * problem.item
    )
    if copy > SCRATCH:
        return False
    return problem.group_in < RUN_CHANNELS and columns.dilation == 1 and len(_classes(columns).taps) <= MAX_TRIMS


@caches.kept
def plan(problem: Problem) -> TapRowsPlan:
    """The plan of a problem that ``serves`` accepts."""
    g, item = problem.geometry, problem.item
    pixel = problem.group_in * item
    part = image_part(problem, problem.out_channels * g.rows.filter * g.columns.filter * pixel)
    chunk = min(part, MAX_IMAGES)
    row_chunk = max(1, min(g.rows.output, PIXELS // (chunk * g.columns.output)))
    # An odd number of cache lines: rows that lie a power of two apart would share few sets of the L1 cache.
    copy_row = (math.ceil((g.columns.input * pixel + ISA.bytes) / 64) | 1) * 64
    rows_read = min(g.rows.input, (row_chunk - 1) * g.rows.stride + g.rows.extent)
    sizes = TapRowsSizes(
        images=problem.images,
        part=part,
        chunk=chunk,
        row_chunk=row_chunk,
        column_chunk=max(1, SUMMED // chunk),
        input_rows=g.rows.input,
        input_columns=g.columns.input,
        output_rows=g.rows.output,
        output_columns=g.columns.output,
        stride_rows=g.rows.stride,
        stride_columns=g.columns.stride,
        padding_rows=g.rows.padding[0],
        padding_columns=g.columns.padding[0],
        extent_rows=g.rows.extent,
        dilation_rows=g.rows.dilation,
        in_channels=problem.group_in,
        out_channels=problem.group_out,
        panel=ISA.panel(item),
        vector=ISA.lanes(item),
        item=item,
        x_image=problem.x_strides[0] * item,
        x_row=problem.x_strides[1] * item,
        x_column=problem.x_strides[2] * item,
        dy_image=problem.y_strides[0] * item,
        dy_row=problem.y_strides[1] * item,
        dy_column=problem.y_strides[2] * item,
        joined=problem.groups == 1 and problem.x_strides[2] == problem.in_channels,
        copy_row=copy_row,
        x_bytes=rows_read * chunk * copy_row + 128,
    )
    _check(problem)
    return TapRowsPlan(_tables(problem), sizes, problem.groups, math.ceil(problem.images / part), problem.macs)


def heights(rows: int) -> list[int]:
    """Heights of the tiles into which a product's rows are divided, for the least time."""
    if rows in TALL_HEIGHTS:
        return [rows]
    if rows > MAX_OPTIMIZED_ROWS:  # nearly all tiles then have the largest height
        largest = max(WIDE_HEIGHTS)
        whole = (rows - MAX_OPTIMIZED_ROWS) // largest + 1
        return [largest] * whole + heights(rows - whole * largest)
    best: list[tuple[int, list[int]]] = [(0, [])]
    for count in range(1, rows + 1):
        cuts = (
            (best[count - h][0] + max(h, LATENCY) + TILE_OVERHEAD, [h, *best[count - h][1]])
            for h in WIDE_HEIGHTS
            if h <= count
        )
        best.append(min(cuts, key=lambda cut: cut[0]))
    return best[rows][1]


class _Classes(NamedTuple):
    """An axis' trims that are not empty, each with its positions, which are neighbours."""

    tap: Array
    taps: Array
    output: Array
    outputs: Array


def _classes(axis: Axis) -> _Classes:
    pairs = axis.pairs_by_output
    alike = stretches(pairs, 1)
    some = pairs.count[alike.index] > 0
    index = alike.index[some]
    return _Classes(pairs.other[index], pairs.count[index], index, alike.number[some])


def _tables(problem: Problem) -> kernels.TapRows:
    g = problem.geometry
    leaps = g.rows.pairs_by_tap
    classes = _classes(g.columns)
    cuts = [heights(taps * problem.group_in) for taps in classes.taps.tolist()]
    tables = (
        leaps.other,
        leaps.other + leaps.count,
        classes.output,
        classes.outputs,
        classes.tap,
        np.cumsum([0, *(len(cut) for cut in cuts)]),
        [height for cut in cuts for height in cut],
        [cut[0] in TALL_HEIGHTS for cut in cuts],
    )
    return kernels.TapRows(*(np.array(table, np.int64) for table in tables))


def _check(problem: Problem) -> None:
    """Checks offsets: copies read whole rows of x and of dy; products address the copies by index."""
    g, item = problem.geometry, problem.item
    sides = (
        ("x", g.input, problem.in_channels, problem.x_strides),
        ("dy", g.output, problem.out_channels, problem.y_strides),
    )
    for what, size, channels, strides in sides:
        tail = ((problem.images - 1) * strides[0] + channels) * item
        bounds = tuple(np.array([0, (n - 1) * step * item]) for n, step in zip(size, strides[1:], strict=True))
        check_offsets(what, (bounds[0], bounds[1]), tail, extent((problem.images, *size), channels, strides, item))


class TapRows(Algorithm):
    """One product per filter row, group and trim of columns."""

    name = "tap_rows"
    operators = (WEIGHT_GRAD,)

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def plan(self, problem: Problem) -> TapRowsPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        """Cycles as if no column were trimmed."""
        g, s = problem.geometry, problem
        rows = g.columns.filter * s.group_in
        vectors = 1 if rows in TALL_HEIGHTS else ISA.vectors
        panels = math.ceil(s.group_out / (vectors * ISA.lanes(s.item)))
        term = sum(costs.step(height, figures.outer_fmas_per_cycle, vectors) for height in heights(rows)) * panels
        pieces = 2 * math.prod(g.input)  # a row's pixels are copied one by one
        terms = term * g.useful / g.columns.filter
        return s.groups * s.images * (terms + pieces * figures.copy_cycles_per_vector)

    def describe(self, problem: Problem) -> str:
        return "a filter row's taps and channels as rows"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        dy, dw, groups = call.other, call.out, problem.groups
        if dy.shape[0] > 1 and dy.strides[0] > dy.strides[2]:  # products read a pixel's images as neighbours
            dy = engine.dense(dy, IMAGE_ORDER)
            problem = problem_of(WEIGHT_GRAD, call.source, dy, call.geometry, groups)
        planned, (height, width) = plan(problem), problem.geometry.filter
        shape = (groups, height, width * problem.group_in, problem.group_out)
        turned = engine.empty(shape, dw.dtype)
        parts = filters.parts_of(engine, turned, planned.parts)
        macs: int = engine.launch(
            kernels.tap_rows, call.tag, planned.tables, planned.sizes, call.source.address, dy.address,
            engine.operand(parts).reshape(planned.parts, *shape), tasks=planned.tasks,
        )  # fmt: skip
        filters.sum_parts(engine, parts, turned)
        row = width * problem.group_in
        steps = (height * row * problem.group_out, 1, row * problem.group_out, problem.group_out)
        order = (groups, problem.group_out, height, row)
        target = dw.strided(dw.offset, order, (problem.group_out * height * row, height * row, row, 1))
        engine.copy(turned.strided(turned.offset, order, steps), target)
        return macs
