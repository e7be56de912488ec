"""Plans of the filter gradient of few input channels and more output channels: filter rows, trims of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import TALL_HEIGHTS, WIDE_HEIGHTS
from alpha.cpu.kernels.tap_rows import TapRows, TapRowsSizes
from alpha.cpu.plans import RUN_CHANNELS, SCRATCH, Problem, check_offsets, extent, image_part
from alpha.geometry import Axis, stretches

Array = np.ndarray[Any, Any]

IMAGES = 64
"""Most images whose x is copied at a time: those of a pixel of dy are a run that the processor reads ahead in."""

PIXELS = 4096
"""Positions times images whose x is copied at a time, about, where an output row has no more."""

SUMMED = 512
"""Positions times images that a product sums at a time, about: all filter rows and panels read their dy again."""

MOST_CLASSES = 16
"""Trims of the columns: more, where a filter is about as wide as its input, make short sums."""

LATENCY = 4
"""Rows of a tile that a multiply-add's latency hides: fewer take as long."""

MOST_CUT = 256
"""Rows that are cut with care."""

TILE = 8
"""A tile's beginning and end, as so many rows of it."""


@dataclass(frozen=True)
class TapRowsPlan:
    """Tables and sizes."""

    tables: TapRows
    sizes: TapRowsSizes
    parts: int
    macs: int


def serves(problem: Problem) -> bool:
    """Whether a problem has few input channels, and columns of few trims whose taps are neighbours."""
    columns, rows = problem.geometry.columns, problem.geometry.rows
    copy = min(rows.input, rows.extent) * min(problem.images, IMAGES) * columns.input * problem.group_in * problem.item
    if copy > SCRATCH:
        return False
    return problem.group_in < RUN_CHANNELS and columns.dilation == 1 and len(_classes(columns).taps) <= MOST_CLASSES


@caches.kept
def plan(problem: Problem) -> TapRowsPlan:
    """The plan of a problem that ``serves`` accepts."""
    g, item = problem.geometry, problem.item
    pixel = problem.group_in * item
    part = image_part(problem, problem.out_channels * g.rows.filter * g.columns.filter * pixel)
    chunk = min(part, IMAGES)
    row_chunk = max(1, min(g.rows.output, PIXELS // (chunk * g.columns.output)))
    # An odd number of lines: images' rows that lie a power of two apart fall into few sets of the first cache.
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
    macs = g.macs(problem.images, problem.in_channels, problem.out_channels, problem.groups)
    return TapRowsPlan(_tables(problem), sizes, math.ceil(problem.images / part), macs)


def heights(rows: int) -> list[int]:
    """The rows of a product, cut into the tiles that take the least time."""
    if rows in TALL_HEIGHTS:
        return [rows]
    if rows > MOST_CUT:  # of so many nearly all are of the largest height, whatever the rest
        largest = max(WIDE_HEIGHTS)
        whole = (rows - MOST_CUT) // largest + 1
        return [largest] * whole + heights(rows - whole * largest)
    best: list[tuple[int, list[int]]] = [(0, [])]
    for count in range(1, rows + 1):
        cuts = (
            (best[count - h][0] + max(h, LATENCY) + TILE, [h, *best[count - h][1]]) for h in WIDE_HEIGHTS if h <= count
        )
        best.append(min(cuts, key=lambda cut: cut[0]))
    return best[rows][1]


class _Classes(NamedTuple):
    """The trims of an axis that are not empty, each with its positions, which are neighbours."""

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


def _tables(problem: Problem) -> TapRows:
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
    return TapRows(*(np.array(table, np.int64) for table in tables))


def _check(problem: Problem) -> None:
    """Copies read whole rows of x and of dy; products address the copies by index."""
    g, item = problem.geometry, problem.item
    sides = (
        ("x", g.input, problem.in_channels, problem.x_strides),
        ("dy", g.output, problem.out_channels, problem.y_strides),
    )
    for what, size, channels, strides in sides:
        tail = ((problem.images - 1) * strides[0] + channels) * item
        ends = tuple(np.array([0, (n - 1) * step * item]) for n, step in zip(size, strides[1:], strict=True))
        check_offsets(what, (ends[0], ends[1]), tail, extent((problem.images, *size), channels, strides, item))
