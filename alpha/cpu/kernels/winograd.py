"""Winograd's F(2 x 2, 3 x 3) for stride-1 convolutions of float32: four results from sixteen products, not thirty-six.

A tile of 4 x 4 inputs d and a 3 x 3 filter g give 2 x 2 results A' [(G g G') * (B' d B)] A, ' being the transpose:

    B' = 1  0 -1  0     G = 1    0    0      A' = 1  1  1  0
         0  1  1  0         1/2  1/2  1/2         0  1 -1 -1
         0 -1  1  0         1/2 -1/2  1/2
         0  1  0 -1         0    0    1

Summed over channels, the product at each of the tile's sixteen places is a matrix product of its own.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.board import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, STORE, has, panel_product
from alpha.cpu.kernels.vectors import I64, Vectors, integer, transpose

ISA_BYTES = ISA.bytes

LINES = 32
"""Numbers of two cache lines: alignment, and a vector over an end."""

PLACES = 16
"""Of a tile of inputs, and so products a result tile, input and output channel."""

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class WinogradSizes(NamedTuple):
    """Sizes and byte steps of a problem; ``source`` is the tensor that is read, ``target`` the one that is written."""

    images: int
    chunk: int
    """Images a task."""
    tiles: int
    """Tiles a task."""
    tile_columns: int
    groups: int
    depth: int
    """Channels of the source a group."""
    channels: int
    """Channels of the target a group."""
    panel: int
    """Channels a filter panel."""
    source_image: int
    target_image: int


# -- transforms, emitted as vector code -----------------------------------------------------------------------------


def _input_line(vectors: Vectors, d: list[Any]) -> list[Any]:
    """B' times four values."""
    b = vectors.builder
    return [b.fsub(d[0], d[2]), b.fadd(d[1], d[2]), b.fsub(d[2], d[1]), b.fsub(d[1], d[3])]


def _result_line(vectors: Vectors, m: list[Any]) -> list[Any]:
    """A' times four values."""
    b = vectors.builder
    return [b.fadd(b.fadd(m[0], m[1]), m[2]), b.fsub(b.fsub(m[1], m[2]), m[3])]


def _filter_line(vectors: Vectors, g: list[Any]) -> list[Any]:
    """G times three values."""
    b = vectors.builder
    half = vectors.constant(0.5)
    ends = b.fmul(half, b.fadd(g[0], g[2]))
    middle = b.fmul(half, g[1])
    return [g[0], b.fadd(ends, middle), b.fsub(ends, middle), g[2]]


def _both_axes(vectors: Vectors, line: Any, values: list[list[Any]]) -> list[list[Any]]:
    """A transform of each row, then of each column."""
    rows = [line(vectors, row) for row in values]
    columns = [line(vectors, [row[j] for row in rows]) for j in range(len(rows[0]))]
    return [[column[i] for column in columns] for i in range(len(columns[0]))]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def transform_input(_typing: Any, tag: Any, sources: Any, target: Any, step: Any, count: Any) -> Any:
    """B' d B of ``count`` vectors of numbers: from 16 addresses in memory to 16 runs ``step`` bytes apart."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, sources, target, step, count = arguments
        places = [vectors.load_address(sources, place) for place in range(PLACES)]
        with cgutils.for_range(builder, count, intp=I64) as loop:
            at = builder.mul(loop.index, integer(ISA.bytes))
            d = [[vectors.load(builder.add(places[4 * i + j], at)) for j in range(4)] for i in range(4)]
            out = builder.add(target, at)
            for row in _both_axes(vectors, _input_line, d):
                for value in row:
                    vectors.store(value, out)
                    out = builder.add(out, step)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 4), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def transform_result(
    _typing: Any, tag: Any, source: Any, step: Any, targets: Any, target_step: Any, count: Any, mode: Any, bias: Any,
    residual: Any, columns: Any,
) -> Any:  # fmt: skip
    """A' m A of ``count`` panels: from 16 places ``step`` bytes apart to four addresses; those that are 0 are none.

    A panel is followed by the next one at the source, ``target_step`` bytes on at the targets. ``mode``, ``bias`` and
    ``residual`` are as in the micro-kernel; ``columns`` says how many numbers of a panel may be written.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        slope, source, step, targets, target_step, count, mode, bias, residual, columns = arguments
        starts = [vectors.load_address(targets, i) for i in range(4)]
        with cgutils.for_range(builder, count, intp=I64) as loop:
            moved = builder.mul(loop.index, target_step)
            for v in range(ISA.vectors):
                offset = integer(v * ISA.bytes)
                at = builder.add(builder.mul(loop.index, integer(ISA.vectors * ISA.bytes)), offset)
                place = builder.add(source, at)
                m: list[list[Any]] = []
                for _ in range(4):
                    m.append([])
                    for _ in range(4):
                        m[-1].append(vectors.load(place))
                        place = builder.add(place, step)
                results = [value for row in _both_axes(vectors, _result_line, m) for value in row]
                left = builder.sub(columns, integer(v * vectors.lanes))
                for start, value in zip(starts, results, strict=True):
                    with builder.if_then(builder.icmp_signed("!=", start, integer(0))):
                        out = builder.add(builder.add(start, moved), offset)
                        total = _finished(
                            vectors, value, mode, builder.add(bias, offset), builder.add(out, residual), slope, left
                        )
                        vectors.store_first(total, out, left)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 9), codegen


def _finished(vectors: Vectors, value: Any, mode: Any, bias: Any, added: Any, slope: Any, left: Any) -> Any:
    """The value with all that the mode says, whose operands lie at ``bias`` and ``added``, ``left`` numbers of each."""
    builder = vectors.builder
    total = cgutils.alloca_once_value(builder, value)
    for flag, address in ((BIAS, bias), (ADD, added)):
        with builder.if_then(has(builder, mode, flag)):
            builder.store(builder.fadd(builder.load(total), vectors.load_first(address, left)), total)
    with builder.if_then(has(builder, mode, ACTIVATE)):
        builder.store(vectors.leaky_relu(builder.load(total), vectors.spread(slope)), total)
    return builder.load(total)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _transform_filters(
    _typing: Any, tag: Any, source: Any, tap: Any, target: Any, step: Any, flip: Any, count: Any
) -> Any:
    """G g G' of ``count`` vectors of filters: from 9 taps ``tap`` bytes apart to 16 places ``step`` bytes apart.

    Where ``flip`` is not 0, of the filters turned by half a circle.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, source, tap, target, step, flip, count = arguments
        turned = builder.icmp_signed("!=", flip, integer(0))
        first = builder.select(turned, builder.add(source, builder.mul(tap, integer(8))), source)
        tap_step = builder.select(turned, builder.sub(integer(0), tap), tap)
        with cgutils.for_range(builder, count, intp=I64) as loop:
            at = builder.mul(loop.index, integer(ISA.bytes))
            place = builder.add(first, at)
            g: list[list[Any]] = []
            for _ in range(3):
                g.append([])
                for _ in range(3):
                    g[-1].append(vectors.load(place))
                    place = builder.add(place, tap_step)
            out = builder.add(target, at)
            for row in _both_axes(vectors, _filter_line, g):
                for value in row:
                    vectors.store(value, out)
                    out = builder.add(out, step)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 6), codegen


# -- kernels ---------------------------------------------------------------------------------------------------------


@compiled
def winograd(  # type: ignore[no-untyped-def]
    tag, counter, rows_from, rows_to, columns_from, columns_to, sizes, x, w, y, mode, bias, residual
):
    """A stride-1 convolution by a 3 x 3 filter, or its input gradient.

    A task is some tiles and a chunk of images, whose pixels must follow each other in memory. ``rows_from[t]`` are the
    offsets of tile row t's four source rows, ``rows_to[t]`` of its two target rows; -1 where there is none. Returns the
    products it computed.
    """
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    tiles = rows_to.shape[0] * sizes.tile_columns
    tasks = (tiles + sizes.tiles - 1) // sizes.tiles * chunks
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    most = sizes.tiles * sizes.chunk
    pixel = sizes.groups * sizes.depth * 4
    panel_row = sizes.panel * 4
    place_bytes = sizes.depth * panel_row
    done = 0
    transformed = np.empty(PLACES * (most * pixel // 4 + LINES) + LINES, np.float32)
    products = np.empty(PLACES * most * sizes.panel + LINES, np.float32)
    nothing = np.zeros(sizes.chunk * pixel // 4 + sizes.panel, np.float32)
    sources = np.empty(PLACES, np.int64)
    targets = np.empty(4, np.int64)
    no_offset = np.zeros(1, np.int64)
    while True:
        task = take_task(counter.ctypes.data)
        if task >= tasks:
            break
        first_tile = task // chunks * sizes.tiles
        last_tile = min(first_tile + sizes.tiles, tiles)
        first = task % chunks * sizes.chunk
        count = min(sizes.chunk, sizes.images - first)
        rows = (last_tile - first_tile) * count
        # A line between places keeps them out of each other's sets of the first cache.
        step = (rows * pixel + 63) // 64 * 64 + 64
        values = (transformed.ctypes.data + 63) // 64 * 64
        results = (products.ctypes.data + 63) // 64 * 64
        vectors = (count * pixel + ISA_BYTES - 1) // ISA_BYTES
        # A run's last vector may reach into the next tile's run, which is written after it.
        for tile in range(first_tile, last_tile):
            tile_row = tile // sizes.tile_columns
            tile_column = tile - tile_row * sizes.tile_columns
            for i in range(4):
                for j in range(4):
                    row, column = rows_from[tile_row, i], columns_from[tile_column, j]
                    inside = row >= 0 and column >= 0
                    sources[4 * i + j] = (
                        x + first * sizes.source_image + row + column if inside else nothing.ctypes.data
                    )
            transform_input(
                tag,
                sources.ctypes.data,
                values + (tile - first_tile) * count * pixel,
                step,
                vectors,
            )
        for panel in range(sizes.groups * panels):
            group = panel // panels
            channel = (panel - group * panels) * sizes.panel
            at = (group * sizes.channels + channel) * 4
            for place in range(PLACES):
                panel_product(
                    tag,
                    rows,
                    values + place * step + group * sizes.depth * 4,
                    no_offset.ctypes.data,
                    w + (panel * PLACES + place) * place_bytes,
                    no_offset.ctypes.data,
                    1,
                    pixel,
                    panel_row,
                    sizes.depth,
                    results + place * rows * panel_row,
                    panel_row,
                    STORE,
                    0,
                    0,
                    sizes.panel,
                )
            for tile in range(first_tile, last_tile):
                tile_row = tile // sizes.tile_columns
                tile_column = tile - tile_row * sizes.tile_columns
                for i in range(2):
                    for j in range(2):
                        row, column = rows_to[tile_row, i], columns_to[tile_column, j]
                        inside = row >= 0 and column >= 0
                        targets[2 * i + j] = y + first * sizes.target_image + row + column + at if inside else 0
                transform_result(
                    tag,
                    results + (tile - first_tile) * count * panel_row,
                    rows * panel_row,
                    targets.ctypes.data,
                    sizes.target_image,
                    count,
                    mode,
                    bias + at,
                    residual,
                    sizes.channels - channel,
                )
        done += PLACES * rows * sizes.depth * sizes.channels * sizes.groups
    return done


@compiled
def pack_by_output(tag, counter, w, sizes, target):  # type: ignore[no-untyped-def]
    """Transformed filters (OC, 3, 3, IC) for the convolution: each group's panels of output channels, (panels, 16, IC,
    panel).

    A task is a panel and a vector of input channels: transformed as they lie, then transposed.
    """
    lanes = ISA_BYTES // 4
    blocks = (sizes.depth + lanes - 1) // lanes
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    panel_row = sizes.panel * 4
    square = np.zeros(PLACES * lanes * lanes + lanes, np.float32)
    while True:
        task = take_task(counter.ctypes.data)
        if task >= sizes.groups * panels * blocks:
            break
        panel = task // blocks
        group = panel // panels
        first = task % blocks * lanes
        at = (square.ctypes.data + 63) // 64 * 64
        for half in range(0, sizes.panel, lanes):
            channel = (panel - group * panels) * sizes.panel + half
            for lane in range(min(lanes, sizes.channels - channel)):
                source = w + ((group * sizes.channels + channel + lane) * 9 * sizes.depth + first) * 4
                _transform_filters(tag, source, sizes.depth * 4, at + lane * ISA_BYTES, lanes * ISA_BYTES, 0, 1)
            for place in range(PLACES):
                transpose(
                    tag,
                    at + place * lanes * ISA_BYTES,
                    ISA_BYTES,
                    target + ((panel * PLACES + place) * sizes.depth + first) * panel_row + half * 4,
                    panel_row,
                    sizes.depth - first,
                )


@compiled
def pack_by_input(tag, counter, w, sizes, target):  # type: ignore[no-untyped-def]
    """Transformed filters (OC, 3, 3, IC), turned, for the input gradient: panels of input channels.

    The result is (groups times panels, 16, OC a group, panel); a task is an output channel.
    """
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    panel_row = sizes.panel * 4
    place_bytes = sizes.depth * panel_row
    while True:
        task = take_task(counter.ctypes.data)
        if task >= sizes.groups * sizes.depth:
            break
        group = task // sizes.depth
        for panel in range(panels):
            _transform_filters(
                tag,
                w + (task * 9 * sizes.channels + panel * sizes.panel) * 4,
                sizes.channels * 4,
                target + (group * panels + panel) * PLACES * place_bytes + (task - group * sizes.depth) * panel_row,
                place_bytes,
                1,
                panel_row // ISA_BYTES,
            )
