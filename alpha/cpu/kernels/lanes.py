"""ConvV2 and KS-deconv-V2 for few result channels: images fill the lanes, result channels are the rows of a product.

Other kernels fill lanes with result channels: three of them would leave most of a panel empty. Here the source is
transposed, some channels at a time, so that a vector holds one channel of several images; only the last images'
vectors may have empty lanes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS
from alpha.cpu.kernels.tables import COUNT, OTHER, SOURCE
from alpha.cpu.kernels.vectors import I64, Vectors, integer, read_number, transpose, write_number

VECTORS = 4
"""Vectors of images per task."""

HEIGHTS = (6, 5, 4, 3, 2, 1)
"""Heights of tiles."""


class Band(NamedTuple):
    """Columns of a table of bands: a range of result rows, and the range of source rows that they read."""

    first: int
    end: int
    source_first: int
    source_end: int


class LaneSizes(NamedTuple):
    """Sizes and byte steps of a problem; channels are those of a group."""

    images: int
    chunk: int
    """Images that fill VECTORS vectors."""
    lanes: int
    columns: int
    """Columns of the result."""
    source_columns: int
    groups: int
    depth: int
    """Channels of the source."""
    depth_block: int
    """Channels of the source that are transposed and summed at a time."""
    channels: int
    """Channels of the result."""
    most_taps: int
    item: int
    source_image: int
    source_row: int
    source_column: int
    target_image: int
    target_row: int
    target_column: int
    packed_tap: int
    """Bytes of a tap's packed filter."""
    copy_bytes: int
    sums_bytes: int


def _tile(rows: int, vectors: int) -> Any:
    """A kernel for a tile of ``rows`` channels by ``vectors`` vectors of images.

    It computes c[m, v] (+)= sum over taps and k of a[k, m] * b[k, v].

    Arguments, all int64 but the first, whose type chooses float32 or float64: tag; a, a_taps, b, b_taps: base addresses
    and addresses of the taps' byte offsets; taps: their number; a_step, line: bytes from k to k of a and of b; depth:
    number of k; c: the sums, whose rows are a line apart; add: whether they are added to.
    """

    def multiply(builder: Any, emit: Vectors, a: Any, b: Any, tile: Any) -> None:
        """Emits the products of one k. The shorter side stays in registers."""

        def factor(m: int) -> Any:
            return emit.broadcast(builder.add(a, integer(m * emit.item)))

        def images(v: int) -> Any:
            return emit.load(builder.add(b, integer(v * ISA.bytes)))

        def add(m: int, v: int, left: Any, right: Any) -> None:
            builder.store(emit.fma(left, right, builder.load(tile[m][v])), tile[m][v])

        if rows < vectors:
            factors = [factor(m) for m in range(rows)]
            for v in range(vectors):
                vector = images(v)
                for m in range(rows):
                    add(m, v, factors[m], vector)
        else:
            held = [images(v) for v in range(vectors)]
            for m in range(rows):
                value = factor(m)
                for v in range(vectors):
                    add(m, v, value, held[v])

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def kernel(
        _typing: Any, tag: Any, a: Any, a_taps: Any, b: Any, b_taps: Any, taps: Any, a_step: Any, line: Any, depth: Any,
        c: Any, add: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, a, a_taps, b, b_taps, taps, a_step, line, depth, c, add = arguments
            emit = Vectors(builder, tag)
            places = [
                [
                    builder.add(builder.add(c, builder.mul(line, integer(m))), integer(v * ISA.bytes))
                    for v in range(vectors)
                ]
                for m in range(rows)
            ]
            tile = [[cgutils.alloca_once(builder, emit.vector) for _ in range(vectors)] for _ in range(rows)]
            for row in tile:
                for accumulator in row:
                    builder.store(emit.zero, accumulator)
            with builder.if_then(builder.icmp_signed("!=", add, integer(0))):
                for row, at in zip(tile, places, strict=True):
                    for accumulator, place in zip(row, at, strict=True):
                        builder.store(emit.load(place), accumulator)
            with cgutils.for_range(builder, taps, intp=I64) as tap:
                at = builder.mul(tap.index, integer(8))
                a_at = cgutils.alloca_once_value(builder, builder.add(a, emit.load_address(builder.add(a_taps, at), 0)))
                b_at = cgutils.alloca_once_value(builder, builder.add(b, emit.load_address(builder.add(b_taps, at), 0)))
                with cgutils.for_range(builder, depth, intp=I64):
                    multiply(builder, emit, builder.load(a_at), builder.load(b_at), tile)
                    builder.store(builder.add(builder.load(a_at), a_step), a_at)
                    builder.store(builder.add(builder.load(b_at), line), b_at)
            for row, at in zip(tile, places, strict=True):
                for accumulator, place in zip(row, at, strict=True):
                    emit.store(builder.load(accumulator), place)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 10), codegen

    return kernel


# Four rows or more hide a multiply-add's latency with two vectors, and leave no registers for a third.
_6, _5, _4 = (_tile(rows, VECTORS // 2) for rows in (6, 5, 4))
_3, _2, _1 = (_tile(rows, VECTORS) for rows in (3, 2, 1))


@inlined
def _product(tag, rows, half, a, a_taps, b, b_taps, taps, a_step, line, depth, c, add):  # type: ignore[no-untyped-def]
    """Computes a tile of ``rows`` rows, or two tiles of half the images."""
    if rows == 3:
        _3(tag, a, a_taps, b, b_taps, taps, a_step, line, depth, c, add)
    elif rows == 2:
        _2(tag, a, a_taps, b, b_taps, taps, a_step, line, depth, c, add)
    elif rows == 1:
        _1(tag, a, a_taps, b, b_taps, taps, a_step, line, depth, c, add)
    else:
        for side in range(2):
            left = side * half
            if rows == 6:
                _6(tag, a, a_taps, b + left, b_taps, taps, a_step, line, depth, c + left, add)
            elif rows == 5:
                _5(tag, a, a_taps, b + left, b_taps, taps, a_step, line, depth, c + left, add)
            else:
                _4(tag, a, a_taps, b + left, b_taps, taps, a_step, line, depth, c + left, add)


@inlined
def _transpose_pixel(tag, source, source_step, target, line, count, channels, lanes, item):  # type: ignore[no-untyped-def]
    """Copies a pixel's channels of ``count`` images so that each channel is a line of images."""
    whole = count // lanes * lanes
    for k in range(0, channels, lanes):
        for n in range(0, whole, lanes):
            transpose(
                tag,
                source + n * source_step + k * item,
                source_step,
                target + k * line + n * item,
                line,
                min(lanes, channels - k),
            )
    for n in range(whole, count):
        for k in range(channels):
            write_number(tag, target + k * line + n * item, read_number(tag, source + n * source_step + k * item))


@inlined
def _finish(tag, sums, line, target, target_step, count, channels, item, mode, bias, residual):  # type: ignore[no-untyped-def]
    """Writes a position's sums, one line per channel, to the result's images; ``mode`` as in the micro-kernel."""
    for c in range(channels):
        at, to = sums + c * line, target + c * item
        shift = read_number(tag, bias + c * item) if mode & BIAS else tag * 0
        for n in range(count):
            value = read_number(tag, at + n * item) + shift
            if mode & ADD:
                value += read_number(tag, to + n * target_step + residual)
            if mode & ACTIVATE and not value > 0:
                value *= tag
            write_number(tag, to + n * target_step, value)


@compiled
def lanes(  # type: ignore[no-untyped-def]
    share, tag, bands, rows, columns, heights, sizes, x, w, y, mode, bias, residual
):
    """Computes the result. A task is a band, a chunk of images and a group.

    ``bands`` is a table of ``Band``; ``rows`` and ``columns`` hold indices.

    Returns how many multiply-adds it computed.
    """
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    tasks = bands.shape[0] * chunks * sizes.groups
    line = sizes.chunk * sizes.item
    position_bytes = sizes.channels * line
    row_bytes = sizes.columns * position_bytes
    done = 0
    copy = np.zeros(sizes.copy_bytes, np.uint8)
    sums = np.empty(sizes.sums_bytes, np.uint8)
    from_x = np.empty(sizes.most_taps + 1, np.int64)
    from_w = np.empty(sizes.most_taps + 1, np.int64)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        # Taken again for each task: Numba frees an array after its last use, and does not count uses of its address.
        copy_at = (copy.ctypes.data + 63) // 64 * 64
        sums_at = (sums.ctypes.data + 63) // 64 * 64
        band = bands[task % bands.shape[0]]
        chunk = task // bands.shape[0] % chunks
        group = task // bands.shape[0] // chunks
        count = min(sizes.chunk, sizes.images - chunk * sizes.chunk)
        source = x + chunk * sizes.chunk * sizes.source_image + group * sizes.depth * sizes.item
        filters = w + group * sizes.most_taps * sizes.packed_tap
        for k in range(0, sizes.depth, sizes.depth_block):
            deep = min(sizes.depth_block, sizes.depth - k)
            pixel = deep * line
            for r in range(band[2], band[3]):
                for q in range(sizes.source_columns):
                    _transpose_pixel(
                        tag,
                        source + r * sizes.source_row + q * sizes.source_column + k * sizes.item,
                        sizes.source_image,
                        copy_at + ((r - band[2]) * sizes.source_columns + q) * pixel,
                        line,
                        count,
                        deep,
                        sizes.lanes,
                        sizes.item,
                    )
            for row in range(band[0], band[1]):
                for column in range(sizes.columns):
                    taps = 0
                    for i in range(rows.pairs[COUNT, row]):
                        above = rows.pairs[SOURCE, row] + i * rows.source_step - band[2]
                        above = above * sizes.source_columns + columns.pairs[SOURCE, column]
                        tap = rows.pairs[OTHER, row] + i * rows.other_step + columns.pairs[OTHER, column]
                        for j in range(columns.pairs[COUNT, column]):
                            from_x[taps] = (above + j * columns.source_step) * pixel
                            from_w[taps] = (tap + j * columns.other_step) * sizes.packed_tap
                            taps += 1
                    at = sums_at + (row - band[0]) * row_bytes + column * position_bytes
                    channel = 0
                    for h in range(heights.size):
                        _product(
                            tag,
                            heights[h],
                            line // 2,
                            filters + (k * sizes.channels + channel) * sizes.item,
                            from_w.ctypes.data,
                            copy_at,
                            from_x.ctypes.data,
                            taps,
                            sizes.channels * sizes.item,
                            line,
                            deep,
                            at + channel * line,
                            k,
                        )
                        channel += heights[h]
                    done += taps * deep * count * sizes.channels
        channel = group * sizes.channels * sizes.item
        target = y + chunk * sizes.chunk * sizes.target_image + channel
        for row in range(band[0], band[1]):
            for column in range(sizes.columns):
                _finish(
                    tag,
                    sums_at + (row - band[0]) * row_bytes + column * position_bytes,
                    line,
                    target + row * sizes.target_row + column * sizes.target_column,
                    sizes.target_image,
                    count,
                    sizes.channels,
                    sizes.item,
                    mode,
                    bias + channel,
                    residual,
                )
    return done
