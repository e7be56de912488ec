"""Plans of the CPU's convolutions: a geometry made into tables of byte offsets, and the choice of blocking.

A plan depends on shapes, strides and dtype alone; it is made once and cached. Making one checks that every offset that
its tables can produce lies inside the tensors it will be used with: the kernels follow raw pointers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.convolution import COUNT, GAP, OTHER, SOURCE, AxisTable, GatherSizes, LeapSizes, PackSizes
from alpha.cpu.kernels.microkernel import NARROW_WIDE_ROWS
from alpha.errors import EngineError
from alpha.geometry import Axis, Geometry, Pairs

Array = np.ndarray[Any, Any]

RUN_CHANNELS = 16
"""Below so many channels a row of taps whose channels are contiguous is read as one long tap (3-channel stems)."""

CHUNK_ROWS = 64
"""Images a task of the gather, about: its rows of A stay in the second-level cache beside a panel of filters."""

PARTS = 8
"""Tasks of a weight gradient, about: parts of the images, slices of the output channels, or panels of the input's."""

PART_BYTES = 8 << 20
"""Most bytes of filters that parts of the images may sum into."""

PART_TERMS = 32
"""Least products that a part sums into an element of its filter, in the mean: fewer repay no sum of their own."""

PANEL_TAPS = 8
"""Least panels times taps a task: fewer repay no copy of dy."""

SLICE = 96
"""Least output channels a slice."""

FEW_TASKS, LEAST_SLICE = 4, 24
"""Fewer tasks leave threads without one: then so few channels make a slice."""

PIXEL = 2 << 10
"""Bytes of one pixel's images to be read together, about: the processor asks for a page's next lines ahead."""

X_COPY = 64 << 10
"""Bytes of a panel's copy of x in the weight gradient, about."""

DY_COPY = 128 << 10
"""Bytes of a slice's copy of dy, about: the second cache, of which another thread may take half, holds both."""

SCRATCH = 16 << 20
"""Bytes of its own that a thread takes for an algorithm, at most: one that needs more does not serve."""

SORTED = 1 << 16
"""Most positions that are computed in an order of their own."""

BLOCK = 32 << 10
"""Bytes of a panel that meet every row before the next ones do: the first cache holds about so many."""


@dataclass(frozen=True)
class Problem:
    """What a plan is made for. Strides in elements over (N, H, W); channels have stride 1."""

    geometry: Geometry
    images: int
    in_channels: int
    out_channels: int
    groups: int
    item: int
    x_strides: tuple[int, int, int]
    y_strides: tuple[int, int, int]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Kept: plans are looked up by it in every call."""
        sizes = self.images, self.in_channels, self.out_channels, self.groups, self.item
        return hash((self.geometry, sizes, self.x_strides, self.y_strides))

    @property
    def group_in(self) -> int:
        """Input channels a group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels a group."""
        return self.out_channels // self.groups


def dense_problem(geometry: Geometry, images: int, in_channels: int, out_channels: int, groups: int) -> Problem:
    """Of float32 images without gaps in the engine's order: (H, W, N, C) in memory."""
    strides = [
        (channels, width * images * channels, images * channels)
        for width, channels in ((geometry.columns.input, in_channels), (geometry.columns.output, out_channels))
    ]
    return Problem(geometry, images, in_channels, out_channels, groups, 4, strides[0], strides[1])


POINT = Geometry.make((1, 1), (1, 1))


def flattened(problem: Problem) -> Problem:
    """A 1 x 1 convolution's pixels as images of one pixel, where x and y lie without gaps in the same order."""
    g = problem.geometry
    if not g.pointwise or g is POINT or problem.group_in == 1:  # depthwise: no products of matrices
        return problem
    axes = sorted(zip(problem.x_strides, problem.y_strides, (problem.images, *g.input), strict=True))
    x_step, y_step = problem.in_channels, problem.out_channels
    for x_stride, y_stride, length in axes:
        if length > 1 and (x_stride, y_stride) != (x_step, y_step):
            return problem
        x_step, y_step = x_step * length, y_step * length
    images, x_step, y_step = problem.images * math.prod(g.input), problem.in_channels, problem.out_channels
    return replace(problem, geometry=POINT, images=images, x_strides=(x_step,) * 3, y_strides=(y_step,) * 3)


@lru_cache(maxsize=4096)
def called(
    geometry: Geometry,
    images: int,
    in_channels: int,
    out_channels: int,
    groups: int,
    item: int,
    x_strides: tuple[int, ...],
    y_strides: tuple[int, ...],
) -> Problem:
    """The problem of a call, flattened: the same object for the same call, which plans are found by fast."""
    x, y = ((strides[0], strides[1], strides[2]) for strides in (x_strides, y_strides))
    return flattened(Problem(geometry, images, in_channels, out_channels, groups, item, x, y))


@dataclass(frozen=True)
class GatherPlan:
    """Tables and sizes of a forward convolution or an input gradient."""

    order: Array
    rows: AxisTable
    columns: AxisTable
    runs: Array
    sizes: GatherSizes
    packed_shape: tuple[int, ...]
    macs: int

    @property
    def tasks(self) -> int:
        """Positions times chunks of images."""
        return self.order.size * -(-self.sizes.images // self.sizes.chunk)


@dataclass(frozen=True)
class LeapPlan:
    """Tables and sizes of a weight gradient."""

    rows: AxisTable
    columns: AxisTable
    sizes: LeapSizes
    pack: PackSizes
    clear: bool
    """Whether the filters must be zero before: some tap meets no element."""
    parts: int
    macs: int

    @property
    def tasks(self) -> int:
        """Parts of the images times slices of the output channels times chunks of the input's panels."""
        chunks = -(-self.sizes.in_channels // (self.sizes.panels * self.sizes.panel))
        return self.parts * self.sizes.groups * -(-self.sizes.out_channels // self.sizes.slice) * chunks


def table(pairs: Pairs, source: int, other: int) -> AxisTable:
    """Index pairs, each index times its step in bytes."""
    table = np.stack([pairs.count, pairs.first * source, pairs.other * other])
    return AxisTable(table, pairs.step * source, pairs.other_step * other)


def pairs_of(axis: Axis, by_output: bool) -> Pairs:
    """What meets at each position of a result: of a convolution (``by_output``) or an input gradient."""
    return axis.pairs_by_output if by_output else axis.pairs_by_input


def joined(pairs: Pairs) -> tuple[Pairs, Array]:
    """Each column's pairs, which lie side by side, as its first pair and their number."""
    return replace(pairs, count=np.minimum(pairs.count, 1)), pairs.count


def _order(rows: AxisTable, columns: AxisTable, runs: Array) -> Array:
    """Positions with the most taps first, otherwise as they lie: what is left at the end is small.

    Of very many positions the last are a small part whatever they cost.
    """
    lines, taps = rows.pairs[COUNT], columns.pairs[COUNT] * runs
    if len(lines) * len(taps) > SORTED:
        return np.arange(len(lines) * len(taps), dtype=np.int32)
    cost = np.multiply.outer(lines, taps).ravel()
    return np.argsort(-cost, kind="stable").astype(np.int32)


def _chunk(images: int) -> int:
    """Images a task: equal chunks, whole tiles."""
    chunks = max(1, round(images / CHUNK_ROWS))
    return math.ceil(math.ceil(images / chunks) / ISA.rows) * ISA.rows


def _block_rows(item: int) -> int:
    """Rows of a panel in a block."""
    return BLOCK // (ISA.panel(item) * item)


def _depth_block(depth: int, item: int) -> int:
    """Channels summed at a time: all, or equal blocks."""
    return max(1, math.ceil(depth / max(1, round(depth / _block_rows(item)))))


def check_offsets(what: str, offsets: tuple[Array, Array], tail: int, limit: int) -> None:
    """EngineError unless every sum of a row's and a column's offset, and ``tail`` bytes on, lies in 0..limit."""
    rows, columns = offsets
    low = int(rows.min(initial=0)) + int(columns.min(initial=0))
    high = int(rows.max(initial=0)) + int(columns.max(initial=0)) + tail
    if low < 0 or high > limit:
        raise EngineError(
            f"[plan] expected offsets within the {limit} bytes of {what}, got {low}..{high}: a fault of the planner, "
            "please report the shapes"
        )


def sources(table: AxisTable) -> Array:
    """The least and the greatest offset of what a table reads, and 0."""
    return _ends(table.pairs[COUNT], table.pairs[SOURCE], table.source_step)


def others(table: AxisTable) -> Array:
    """Likewise of the filter, or of dy."""
    return _ends(table.pairs[COUNT], table.pairs[OTHER], table.other_step)


def _ends(count: Array, first: Array, step: int) -> Array:
    last = first + np.maximum(count - 1, 0) * step
    return np.array([min(first.min(), last.min()), max(first.max(), last.max())])


def extent(shape: tuple[int, int, int], channels: int, strides: tuple[int, int, int], item: int) -> int:
    """Bytes from the first element of an image tensor to the end of its last."""
    return (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + channels) * item


def contiguous_runs(problem: Problem) -> bool:
    """Whether a row of taps is one run of memory in x, and short enough a depth each for that to matter."""
    return (
        problem.group_in < RUN_CHANNELS
        and problem.groups == 1
        and problem.geometry.columns.dilation == 1
        and problem.x_strides[2] == problem.in_channels
    )


@caches.kept
def forward(problem: Problem) -> GatherPlan:
    """ConvV2: pairs grouped by output position."""
    g, item = problem.geometry, problem.item
    width = ISA.panel_of(problem.group_out, item)
    depth = problem.group_in
    panels = math.ceil(problem.group_out / width)
    image, row, column = (s * item for s in problem.x_strides)
    tap = depth * width * item
    by_column, runs = g.columns.pairs_by_output, np.ones(g.columns.output, np.int64)
    if contiguous_runs(problem):
        by_column, runs = joined(by_column)
    rows = table(g.rows.pairs_by_output, row, g.columns.filter * tap)
    columns = table(by_column, column, tap)
    taps = g.rows.filter * g.columns.filter
    sizes = GatherSizes(
        images=problem.images,
        chunk=_chunk(problem.images),
        columns=g.columns.output,
        groups=problem.groups,
        depth=depth,
        channels=problem.group_out,
        panel=width,
        tap_block=max(1, _block_rows(item) // depth),
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
    macs = g.macs(problem.images, problem.in_channels, problem.out_channels, problem.groups)
    shape = (problem.groups, panels, taps, depth, width)
    return GatherPlan(_order(rows, columns, runs), rows, columns, runs, sizes, shape, macs)


def _longest(last: Array, runs: Array, first: Array, unit: int) -> Array:
    """Where each column's reads begin and end, relative to its row: at its first pair, and a run beyond its last."""
    return np.concatenate([first, np.maximum(first, last + runs * unit)])


@caches.kept
def input_grad(problem: Problem) -> GatherPlan:
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
    sizes = GatherSizes(
        images=problem.images,
        chunk=_chunk(problem.images),
        columns=g.columns.input,
        groups=problem.groups,
        depth=depth,
        channels=problem.group_in,
        panel=width,
        tap_block=max(1, _block_rows(item) // depth),
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
    macs = g.macs(problem.images, problem.in_channels, problem.out_channels, problem.groups)
    shape = (problem.groups, panels, taps, depth, width)
    return GatherPlan(_order(rows, columns, runs), rows, columns, runs, sizes, shape, macs)


@caches.kept
def weight_grad(problem: Problem) -> LeapPlan:
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
    chunk, row_chunk, column_chunk = _leap_blocking(problem, part, channels)
    sizes = LeapSizes(
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
    macs = g.macs(problem.images, problem.in_channels, problem.out_channels, problem.groups)
    parts = math.ceil(problem.images / part)
    # The copies are addressed by index.
    rows, columns = table(g.rows.pairs_by_tap, 1, 1), table(g.columns.pairs_by_tap, 1, 1)
    clear = not (rows.pairs[COUNT].all() and columns.pairs[COUNT].all())
    pack = _pack_sizes(problem, sizes)
    return LeapPlan(rows, columns, sizes, pack, clear, parts, macs)


def _reads(axis: Axis, outputs: int) -> int:
    """Elements of x along an axis that so many outputs side by side read, at most."""
    return min(axis.input, (outputs - 1) * axis.stride + axis.extent)


def _row_bands(axis: Axis, outputs: int) -> tuple[int, int]:
    """Bands of input rows that so many output rows side by side read, and the rows of each.

    One band of all, or one for each tap where that is less: a dilated filter reads few of the rows that it spans.
    """
    together, apart = _reads(axis, outputs), min(axis.input, (outputs - 1) * axis.stride + 1)
    return (axis.filter, apart) if axis.filter * apart < together else (1, together)


def _x_copy(problem: Problem, rows: int, columns: int, images: int) -> int:
    """Bytes of a panel's copy of x for so many output rows and columns: columns by their remainder of the stride."""
    g, panel = problem.geometry, ISA.panel_of(problem.group_in, problem.item)
    stride = g.columns.stride
    slots = math.ceil(_reads(g.columns, columns) / stride)
    bands, height = _row_bands(g.rows, rows)
    return bands * height * slots * stride * images * panel * problem.item


def _pack_sizes(problem: Problem, sizes: LeapSizes) -> PackSizes:
    g, item = problem.geometry, problem.item
    tiles = math.ceil(sizes.slice / sizes.tile)
    dy_pixels = sizes.row_chunk * sizes.column_chunk * sizes.chunk
    bands, band_rows = _row_bands(g.rows, sizes.row_chunk)
    room = 2 * ISA.bytes + 64  # alignment, and the vector that copies write over a piece's end
    return PackSizes(
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
        dy_bytes=tiles * (dy_pixels * sizes.tile * item + GAP) + room,
    )


def image_part(problem: Problem, filter_bytes: int) -> int:
    """Images a part. Each part has a filter of its own to sum into: up to PARTS of them within PART_BYTES.

    Never by thread count, so that the order of sums is the same on any machine.
    """
    g = problem.geometry
    terms = problem.images * g.useful // (g.rows.filter * g.columns.filter)
    parts = max(1, min(PARTS, PART_BYTES // filter_bytes, terms // PART_TERMS, problem.images // 8))
    return math.ceil(problem.images / parts)


def _tile_rows(problem: Problem) -> int:
    """Output channels of a whole micro-tile of the weight gradient: more where its panels are of one vector."""
    narrow = ISA.panel_of(problem.group_in, problem.item) < ISA.panel(problem.item)
    return NARROW_WIDE_ROWS if narrow else ISA.rows


def _tasks(problem: Problem, parts: int) -> tuple[int, int]:
    """Output channels and panels of input channels a task, so that there are about PARTS tasks.

    Fewer channels than SLICE repay no copy of x, unless there would be few tasks.
    """
    slices = max(1, min(math.ceil(PARTS / parts), problem.group_out // SLICE))
    panels = math.ceil(problem.group_in / ISA.panel_of(problem.group_in, problem.item))
    taps = problem.geometry.rows.filter * problem.geometry.columns.filter
    chunks = max(1, min(math.ceil(PARTS / (parts * slices * problem.groups)), panels * taps // PANEL_TAPS, panels))
    others = parts * problem.groups * chunks
    if others * slices < FEW_TASKS:
        slices = max(slices, min(math.ceil(FEW_TASKS / others), problem.group_out // LEAST_SLICE))
    tile = _tile_rows(problem)
    return math.ceil(problem.group_out / slices / tile) * tile, math.ceil(panels / chunks)


def _leap_blocking(problem: Problem, part: int, channels: int) -> tuple[int, int, int]:
    """Images, output rows and output columns summed at a time.

    A panel's copy of x for a row of outputs is to stay within X_COPY bytes, a slice's of dy within DY_COPY, and the
    pairs of one call within a block (which stays in the first cache while it meets every tile of dy). Where so few
    images fit that memory is read in pieces far from each other, a part of the columns is taken instead.
    """
    g = problem.geometry
    terms = max(1, min(_block_rows(problem.item), DY_COPY // (channels * problem.item)))
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
    """Output columns of which a panel's copy of x stays within twice X_COPY bytes, in equal chunks."""
    while most > 1 and _x_copy(problem, 1, most, images) > 2 * X_COPY:
        most -= 1
    columns = problem.geometry.columns.output
    return math.ceil(columns / math.ceil(columns / most))
