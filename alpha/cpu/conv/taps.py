"""taps: Sk-dilated-V2, filter gradients tap by tap; channels are the columns of the products. Serves all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from alpha import caches
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.blocking import MIN_TASKS, PARTS, block_rows, image_part
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import check_offsets, extent, others, sources, table
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import taps as kernels
from alpha.cpu.kernels.microkernel import NARROW_WIDE_ROWS
from alpha.cpu.kernels.tables import COUNT, AxisTable
from alpha.cpu.kernels.taps import TILE_GAP_BYTES, CopySizes, TapsSizes
from alpha.geometry import Axis

PANEL_TAPS = 8
"""Fewest panels times taps per task: fewer are not worth a copy of dy."""

SLICE = 96
"""Fewest output channels per slice."""

MIN_SLICE = 24
"""Fewest output channels per slice where there would be fewer than MIN_TASKS tasks."""

PIXEL = 2 << 10
"""About how many bytes of one pixel's images are read together: the processor prefetches a page's next lines."""

X_COPY = 64 << 10
"""About how many bytes a panel's copy of x takes."""

DY_COPY = 128 << 10
"""About how many bytes a slice's copy of dy takes: the L2 cache, half of which another thread may use, holds both."""


@dataclass(frozen=True)
class TapsPlan:
    """Tables and sizes of a weight gradient."""

    rows: AxisTable
    columns: AxisTable
    sizes: TapsSizes
    pack: CopySizes
    clear: bool
    """Whether the filters must be set to zero first: some tap has no pairs."""
    parts: int
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Parts of the images times slices of the output channels times chunks of the input's panels."""
        chunks = -(-self.sizes.in_channels // (self.sizes.panels * self.sizes.panel))
        return self.parts * self.sizes.groups * -(-self.sizes.out_channels // self.sizes.slice) * chunks


@caches.kept
def plan(problem: Problem) -> TapsPlan:
    """Sk-dilated-V2: pairs grouped by tap."""
    g, item = problem.geometry, problem.item
    x_image, x_row, x_column = (s * item for s in problem.x_strides)
    y_image, y_row, y_column = (s * item for s in problem.y_strides)
    rows = table(g.rows.pairs_by_tap, x_row, y_row)
    columns = table(g.columns.pairs_by_tap, x_column, y_column)
    tap_row = g.columns.filter * problem.group_in * item
    filter_bytes = problem.out_channels * g.rows.filter * tap_row
    part = image_part(problem, filter_bytes)
    channels, panels = _tasks(problem, math.ceil(problem.images / part))
    chunk, row_chunk, column_chunk = _blocking(problem, part, channels)
    sizes = TapsSizes(
        images=problem.images,
        part=part,
        chunk=chunk,
        output_rows=g.rows.output,
        row_chunk=row_chunk,
        column_chunk=column_chunk,
        groups=problem.groups,
        in_channels=problem.group_in,
        out_channels=problem.group_out,
        slice=channels,
        panels=panels,
        panel=ISA.panel_of(problem.group_in, item),
        tile=_tile_rows(problem),
        item=item,
        x_image=x_image,
        dy_image=y_image,
        out_channel=g.rows.filter * tap_row,
        tap_row=tap_row,
        filter_bytes=filter_bytes,
    )
    x_limit = extent((problem.images, *g.input), problem.in_channels, problem.x_strides, item)
    x_last = (problem.images - 1) * x_image + problem.in_channels * item
    check_offsets("x", (sources(rows), sources(columns)), x_last, x_limit)
    y_limit = extent((problem.images, *g.output), problem.out_channels, problem.y_strides, item)
    y_last = (problem.images - 1) * y_image + problem.out_channels * item
    check_offsets("dy", (others(rows), others(columns)), y_last, y_limit)
    parts = math.ceil(problem.images / part)
    # The copies are addressed by index.
    rows, columns = table(g.rows.pairs_by_tap, 1, 1), table(g.columns.pairs_by_tap, 1, 1)
    clear = not (rows.pairs[COUNT].all() and columns.pairs[COUNT].all())
    pack = _copy_sizes(problem, sizes)
    return TapsPlan(rows, columns, sizes, pack, clear, parts, problem.macs)


def _reads(axis: Axis, outputs: int) -> int:
    """Most elements of x along an axis that ``outputs`` neighbouring outputs read."""
    return min(axis.input, (outputs - 1) * axis.stride + axis.extent)


def _row_bands(axis: Axis, outputs: int) -> tuple[int, int]:
    """How many bands of input rows ``outputs`` neighbouring output rows read, and the rows per band.

    One band for all taps, or one per tap where that is less: a dilated filter reads few of the rows that it spans.
    """
    together, apart = _reads(axis, outputs), min(axis.input, (outputs - 1) * axis.stride + 1)
    return (axis.filter, apart) if axis.filter * apart < together else (1, together)


def _x_copy(problem: Problem, rows: int, columns: int, images: int) -> int:
    """Bytes of a panel's copy of x for some output rows and columns: columns by their remainder of the stride."""
    g, panel = problem.geometry, ISA.panel_of(problem.group_in, problem.item)
    stride = g.columns.stride
    slots = math.ceil(_reads(g.columns, columns) / stride)
    bands, height = _row_bands(g.rows, rows)
    return bands * height * slots * stride * images * panel * problem.item


def _copy_sizes(problem: Problem, sizes: TapsSizes) -> CopySizes:
    g, item = problem.geometry, problem.item
    tiles = math.ceil(sizes.slice / sizes.tile)
    dy_pixels = sizes.row_chunk * sizes.column_chunk * sizes.chunk
    bands, band_rows = _row_bands(g.rows, sizes.row_chunk)
    room = 2 * ISA.bytes + 64  # alignment, and the vector that copies write beyond a piece's end
    return CopySizes(
        input_rows=g.rows.input,
        input_columns=g.columns.input,
        output_columns=g.columns.output,
        stride=g.rows.stride,
        padding=g.rows.padding[0],
        bands=bands,
        band_rows=band_rows,
        band_extent=g.rows.extent if bands == 1 else 1,
        band_step=g.rows.dilation,
        column_stride=g.columns.stride,
        column_padding=g.columns.padding[0],
        column_extent=g.columns.extent,
        x_row=problem.x_strides[1] * item,
        x_column=problem.x_strides[2] * item,
        dy_row=problem.y_strides[1] * item,
        dy_column=problem.y_strides[2] * item,
        x_bytes=_x_copy(problem, sizes.row_chunk, sizes.column_chunk, sizes.chunk) + room,
        dy_bytes=tiles * (dy_pixels * sizes.tile * item + TILE_GAP_BYTES) + room,
    )


def _tile_rows(problem: Problem) -> int:
    """Output channels per whole register tile of the weight gradient: more if its panels have one vector."""
    narrow = ISA.panel_of(problem.group_in, problem.item) < ISA.panel(problem.item)
    return NARROW_WIDE_ROWS if narrow else ISA.rows


def _tasks(problem: Problem, parts: int) -> tuple[int, int]:
    """Output channels and panels of input channels per task, so that there are about PARTS tasks.

    Fewer channels than SLICE are not worth a copy of x, unless there would be few tasks.
    """
    slices = max(1, min(math.ceil(PARTS / parts), problem.group_out // SLICE))
    panels = math.ceil(problem.group_in / ISA.panel_of(problem.group_in, problem.item))
    taps = problem.geometry.rows.filter * problem.geometry.columns.filter
    chunks = max(1, min(math.ceil(PARTS / (parts * slices * problem.groups)), panels * taps // PANEL_TAPS, panels))
    others = parts * problem.groups * chunks
    if others * slices < MIN_TASKS:
        slices = max(slices, min(math.ceil(MIN_TASKS / others), problem.group_out // MIN_SLICE))
    tile = _tile_rows(problem)
    return math.ceil(problem.group_out / slices / tile) * tile, math.ceil(panels / chunks)


def _blocking(problem: Problem, part: int, channels: int) -> tuple[int, int, int]:
    """Images, output rows and output columns that are summed at a time.

    A panel's copy of x for a row of outputs should stay within X_COPY bytes, a slice's copy of dy within DY_COPY, and
    the pairs of one call within a block (which stays in the L1 cache while it is multiplied with every tile of dy). If
    so few images fit that memory would be read in pieces far from each other, a part of the columns is taken.
    """
    g = problem.geometry
    terms = max(1, min(block_rows(problem.item), DY_COPY // (channels * problem.item)))
    columns = g.columns.output
    chunk = min(part, X_COPY // _x_copy(problem, 1, columns, 1), terms // columns)
    least = min(part, terms, math.ceil(PIXEL / (problem.in_channels * problem.item)))
    if chunk < least:
        return least, 1, _columns_that_fit(problem, min(columns, terms // least), least)
    rows = min(g.rows.output, max(1, terms // (chunk * columns)))
    while rows > 1 and _x_copy(problem, rows, columns, chunk) > 2 * X_COPY:
        rows -= 1
    return chunk, rows, columns


def _columns_that_fit(problem: Problem, most: int, images: int) -> int:
    """Output columns whose copy of x for a panel stays within twice X_COPY bytes, in equal chunks."""
    while most > 1 and _x_copy(problem, 1, most, images) > 2 * X_COPY:
        most -= 1
    columns = problem.geometry.columns.output
    return math.ceil(columns / math.ceil(columns / most))


class Taps(Algorithm):
    """One product per tap, over the pairs of pixels that it multiplies."""

    name = "taps"
    of_pairs = True
    operators = (WEIGHT_GRAD,)

    def plan(self, problem: Problem) -> TapsPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        """Cycles for the terms, the copies, and adding up parts."""
        g, s = problem.geometry, problem
        planned = plan(problem)
        sizes, taps = planned.sizes, g.rows.filter * g.columns.filter
        vectors = sizes.panel // ISA.lanes(s.item)
        panels = math.ceil(s.group_in / sizes.panel)
        term, tiles = costs.terms(s.group_out, figures.outer_fmas_per_cycle, vectors)
        slices, chunks = math.ceil(s.group_out / sizes.slice), math.ceil(panels / sizes.panels)
        x_copies = math.prod(g.input) * panels * vectors * slices
        dy_copies = math.prod(g.output) * math.ceil(s.group_out / ISA.lanes(s.item)) * chunks
        copied = (x_copies + dy_copies) * figures.copy_cycles_per_vector
        computed = s.images * (g.useful * panels * term + copied)
        runs = math.ceil(g.rows.output / sizes.row_chunk) * math.ceil(g.columns.output / sizes.column_chunk)
        runs *= planned.parts * math.ceil(sizes.part / sizes.chunk)
        summed = s.group_out * vectors * figures.sum_cycles_per_vector
        added = runs * taps * panels * (tiles * figures.tile_cycles + summed)
        several = 0.0
        if planned.parts > 1:
            several = planned.parts * sizes.filter_bytes / figures.l3_bytes_per_cycle + figures.launch_cycles
        return s.groups * (computed + added) + several

    def describe(self, problem: Problem) -> str:
        return f"a tap's channels as columns, {plan(problem).parts} parts of the images"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned, dw = plan(problem), call.out
        parts = filters.parts_of(engine, dw, planned.parts)
        if planned.clear:
            engine.fill(parts, 0)
        macs: int = engine.launch(
            kernels.taps, call.tag, planned.rows, planned.columns, planned.sizes, planned.pack, call.source.address,
            call.other.address, parts.address, tasks=planned.tasks,
        )  # fmt: skip
        filters.sum_parts(engine, parts, dw)
        return macs
