"""Depthwise convolutions: one filter per channel, so channels fill the lanes of vectors and are not summed.

Memory is the limit: a task is some channels of some images, few enough for the caches to hold what its lines share.
Neighbouring columns of one trim share what is loaded of x and of the filter.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, has
from alpha.cpu.kernels.vectors import I64, Vectors, integer

ISA_BYTES = ISA.bytes

PAIR = 2
"""Vectors of channels whose sums are kept in registers at a time: about a cache line."""

TILE = 4
"""Columns whose sums are kept in registers at a time."""

JOINED = 3
"""Taps of a row that are computed together, so that what neighbouring columns share is loaded once. In the filter
gradient: rows and columns of taps whose sums are kept in registers at a time."""

RATIOS = (1, 2)
"""Strides at which the taps of neighbouring columns read the same values."""

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class Runs(NamedTuple):
    """Runs of an axis' target indices that lie a step apart and have the same taps.

    Every array has one entry per run.
    """

    taps: Int64s
    """Number of taps. Neighbouring taps' sources lie ``source_stride`` apart, in the filter ``filter_stride``."""
    tap_source: Int64s
    """Source index of the first tap at the first target."""
    tap_filter: Int64s
    """The first tap's index in the filter."""
    count: Int64s
    """Number of targets."""
    source_step: Int64s
    """Step from one target's sources to the next target's."""
    target: Int64s
    """The first target."""
    target_step: Int64s
    joined: Int64s
    """Taps that are computed together, 1 to JOINED: all of them where they lie evenly and targets share them, else
    1."""
    ratio: Int64s
    """``source_step / tap_step`` if it is one of RATIOS; 0 where targets share no sources."""
    tap_step: Int64s
    """Step from one tap's source to the next tap's."""
    filter_step: Int64s
    """The same step in the filter."""
    source_stride: int
    filter_stride: int


class DepthwiseSizes(NamedTuple):
    """Sizes and byte steps of a problem."""

    images: int
    channels: int
    taps: int
    filter_columns: int
    chunk_images: int
    """Images per task."""
    chunk_channels: int
    """Channels per task: whole pairs of vectors."""
    source_columns: int
    target_columns: int
    source_held: int
    """Lines of x of which a thread that computes the filter gradient keeps copies."""
    target_held: int
    """Lines of dy of which it keeps copies."""
    pitch: int
    """Bytes from column to column of a copy."""
    item: int
    source_image: int
    source_row: int
    source_column: int
    target_image: int
    target_row: int
    target_column: int
    streamed: int
    """Whether the result is written past the caches, because they are too small for it."""


def _kept(vectors: Vectors, count: int) -> list[Any]:
    """Variables for ``count`` vectors, which LLVM keeps in registers."""
    return [cgutils.alloca_once(vectors.builder, vectors.vector) for _ in range(count)]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _copy(_typing: Any, tag: Any, source: Any, target: Any, count: Any) -> Any:
    """Copies ``count`` numbers; at the target it writes whole vectors."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, source, target, count = arguments
        whole = builder.sdiv(count, integer(vectors.lanes))
        with cgutils.for_range(builder, whole, intp=I64) as loop:
            at = builder.mul(loop.index, integer(ISA_BYTES))
            vectors.store(vectors.load(builder.add(source, at)), builder.add(target, at))
        rest = builder.sub(count, builder.mul(whole, integer(vectors.lanes)))
        with builder.if_then(builder.icmp_signed(">", rest, integer(0)), likely=False):
            at = builder.mul(whole, integer(ISA_BYTES))
            vectors.store(vectors.load_masked(builder.add(source, at), rest), builder.add(target, at))
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3), codegen


class _Tile:
    """Emits sums over taps for some columns and one pair of vectors of channels."""

    def __init__(self, vectors: Vectors, columns: int) -> None:
        self.vectors, self.builder, self.columns = vectors, vectors.builder, columns
        self.sums = [_kept(vectors, PAIR) for _ in range(columns)]

    def begin(self, mode: Any, bias: Any, channels: Any) -> None:
        """Sets the sums to zero, or to the bias."""
        builder, vectors = self.builder, self.vectors
        for half in range(PAIR):
            for column in self.sums:
                builder.store(vectors.zero, column[half])
        with builder.if_then(has(builder, mode, BIAS), likely=False):
            for half in range(PAIR):
                left = builder.sub(channels, integer(half * vectors.lanes))
                start = vectors.load_masked(builder.add(bias, integer(half * ISA_BYTES)), left)
                for column in self.sums:
                    builder.store(start, column[half])

    def add(self, source: Any, step: Any, filters: Any, filter_step: Any, taps: int, ratio: int) -> None:
        """Adds the products of some neighbouring taps; columns' sources lie ``ratio`` steps apart."""
        builder, vectors = self.builder, self.vectors
        factors = []
        for j in range(taps):
            at = builder.add(filters, builder.mul(filter_step, integer(j)))
            factors.append([vectors.load(builder.add(at, integer(half * ISA_BYTES))) for half in range(PAIR)])
        for i in range((self.columns - 1) * ratio + taps):
            at = builder.add(source, builder.mul(step, integer(i)))
            values = [vectors.load(builder.add(at, integer(half * ISA_BYTES))) for half in range(PAIR)]
            for n, column in enumerate(self.sums):
                if 0 <= i - n * ratio < taps:
                    for value, factor, total in zip(values, factors[i - n * ratio], column, strict=True):
                        builder.store(vectors.fma(value, factor, builder.load(total)), total)

    def end(self, mode: Any, slope: Any, residual: Any, target: Any, step: Any, channels: Any, streamed: Any) -> None:
        """Finishes the sums as the mode says and writes them, whole lines past the caches if ``streamed``."""
        builder, vectors = self.builder, self.vectors
        places = [builder.add(target, builder.mul(step, integer(n))) for n in range(self.columns)]
        with builder.if_then(has(builder, mode, ADD), likely=False):
            for at, half, total, left in self._vectors_of_sums(places, channels):
                there = builder.add(builder.add(at, residual), integer(half * ISA_BYTES))
                builder.store(builder.fadd(builder.load(total), vectors.load_masked(there, left)), total)
        with builder.if_then(has(builder, mode, ACTIVATE), likely=False):
            spread = vectors.spread(slope)
            for _, _, total, _ in self._vectors_of_sums(places, channels):
                builder.store(vectors.leaky_relu(builder.load(total), spread), total)
        whole = builder.icmp_signed(">=", channels, integer(PAIR * vectors.lanes))
        with builder.if_else(whole, likely=True) as (then, otherwise):
            with then, builder.if_else(builder.icmp_signed("!=", streamed, integer(0))) as (past, through):
                for block, store in ((past, Vectors.stream), (through, Vectors.store)):
                    with block:
                        for at, half, total, _ in self._vectors_of_sums(places, channels):
                            store(vectors, builder.load(total), builder.add(at, integer(half * ISA_BYTES)))
            with otherwise:
                for at, half, total, left in self._vectors_of_sums(places, channels):
                    vectors.store_masked(builder.load(total), builder.add(at, integer(half * ISA_BYTES)), left)

    def _vectors_of_sums(self, places: list[Any], channels: Any) -> list[tuple[Any, int, Any, Any]]:
        """Lists (address, half, sum, channels left) of each vector."""
        lefts = [self.builder.sub(channels, integer(half * self.vectors.lanes)) for half in range(PAIR)]
        return [
            (at, half, total, lefts[half])
            for at, column in zip(places, self.sums, strict=True)
            for half, total in enumerate(column)
        ]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _products(
    _typing: Any, tag: Any, columns: Any, joined: Any, ratio: Any, from_x: Any, moved: Any, step: Any, taps: Any,
    w: Any, from_w: Any, filter_step: Any, filter_bytes: Any, target: Any, target_step: Any, channels: Any, mode: Any,
    bias: Any, residual: Any, streamed: Any,
) -> Any:  # fmt: skip
    """Writes the sums over taps of x times w at up to TILE columns, for all channels, to the target.

    The first of ``joined`` taps has its x at ``from_x`` plus ``moved`` and its w at ``w`` plus ``from_w``; the next tap
    lies a step further, the next column's x ``ratio`` steps further, and the filters of the next pair of vectors of
    channels ``filter_bytes`` further. ``mode``, ``bias`` and ``residual`` are as in the micro-kernel.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        slope, columns, joined, ratio, from_x, moved, step, taps, w, from_w, filter_step, *rest = arguments
        filter_bytes, target, target_step, channels, mode, bias, residual, streamed = rest
        lanes = PAIR * vectors.lanes
        pairs = builder.sdiv(builder.add(channels, integer(lanes - 1)), integer(lanes))
        done = builder.append_basic_block("done")
        choice = builder.switch(_variant(builder, columns, joined, ratio), done)
        for count, together, apart in _variants():
            block = builder.append_basic_block(f"columns{count}taps{together}")
            choice.add_case(integer(_number(count, together, apart)), block)
            builder.position_at_end(block)
            tile = _Tile(vectors, count)
            with cgutils.for_range(builder, pairs, intp=I64) as pair:
                offset = builder.mul(pair.index, integer(PAIR * ISA_BYTES))
                left = builder.sub(channels, builder.mul(pair.index, integer(lanes)))
                source = builder.add(moved, offset)
                filters = builder.add(w, builder.mul(pair.index, filter_bytes))
                tile.begin(mode, builder.add(bias, offset), left)
                with cgutils.for_range(builder, taps, intp=I64) as tap:
                    at = builder.mul(tap.index, integer(8))
                    x = builder.add(source, vectors.load_address(builder.add(from_x, at), 0))
                    factors = builder.add(filters, vectors.load_address(builder.add(from_w, at), 0))
                    tile.add(x, step, factors, filter_step, together, apart)
                tile.end(mode, slope, residual, builder.add(target, offset), target_step, left, streamed)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 18), codegen


def _variants() -> list[tuple[int, int, int]]:
    """Lists (columns, taps together, ratio) of all kinds of tiles; a single tap needs only one ratio."""
    shared = [(count, taps, ratio) for count in range(1, TILE + 1) for taps in range(2, JOINED + 1) for ratio in RATIOS]
    return [(count, 1, 1) for count in range(1, TILE + 1)] + shared


def _number(columns: int, joined: int, ratio: int) -> int:
    return (columns * (JOINED + 1) + joined) * (max(RATIOS) + 1) + ratio


def _variant(builder: Any, columns: Any, joined: Any, ratio: Any) -> Any:
    """Emits ``_number``."""
    both = builder.add(builder.mul(columns, integer(JOINED + 1)), joined)
    return builder.add(builder.mul(both, integer(max(RATIOS) + 1)), ratio)


class Walk(NamedTuple):
    """Nested loops over rows, images and columns: how many of each, and the step from one to the next in x and dy."""

    rows: int
    images: int
    columns: int
    x_row: int
    x_image: int
    x_column: int
    dy_row: int
    dy_image: int
    dy_column: int


class _Square:
    """Emits the sums of a square of taps, for one vector of channels."""

    def __init__(self, vectors: Vectors, rows: int, columns: int) -> None:
        self.vectors, self.builder = vectors, vectors.builder
        self.sums = [_kept(vectors, columns) for _ in range(rows)]

    def walk(self, walk: dict[str, Any], x: list[Any], tap_step: Any, dy: Any, ratio: Any) -> None:
        """Sums dy times each tap's x, whose lines begin at ``x``."""
        builder = self.builder
        for row in self.sums:
            for total in row:
                builder.store(self.vectors.zero, total)
        whole = builder.sdiv(walk["columns"], integer(TILE))
        shared = builder.or_(*[builder.icmp_signed("==", ratio, integer(r)) for r in RATIOS])
        tiles = builder.select(shared, whole, integer(0))
        with (
            cgutils.for_range(builder, walk["rows"], intp=I64) as row,
            cgutils.for_range(builder, walk["images"], intp=I64) as image,
        ):
            x = [self._moved(self._moved(line, row, walk["x_row"]), image, walk["x_image"]) for line in x]
            dy = self._moved(self._moved(dy, row, walk["dy_row"]), image, walk["dy_image"])
            for r in RATIOS:
                here = builder.select(builder.icmp_signed("==", ratio, integer(r)), tiles, integer(0))
                with cgutils.for_range(builder, here, intp=I64) as tile:
                    column = builder.mul(tile.index, integer(TILE))
                    self._add(walk, x, tap_step, dy, column, TILE, r)
            first = builder.mul(tiles, integer(TILE))
            with cgutils.for_range(builder, builder.sub(walk["columns"], first), intp=I64) as rest:
                self._add(walk, x, tap_step, dy, builder.add(first, rest.index), 1, 1)

    def _moved(self, address: Any, loop: Any, step: Any) -> Any:
        return self.builder.add(address, self.builder.mul(loop.index, step))

    def _add(
        self, walk: dict[str, Any], x: list[Any], tap_step: Any, dy: Any, column: Any, count: int, ratio: int
    ) -> None:
        """Adds the products of some columns, whose x lie ``ratio`` taps apart."""
        builder, vectors = self.builder, self.vectors
        dy = builder.add(dy, builder.mul(column, walk["dy_column"]))
        factors = [vectors.load(builder.add(dy, builder.mul(walk["dy_column"], integer(n)))) for n in range(count)]
        for line, totals in zip(x, self.sums, strict=True):
            start = builder.add(line, builder.mul(column, walk["x_column"]))
            for i in range((count - 1) * ratio + len(totals)):
                value = vectors.load(builder.add(start, builder.mul(tap_step, integer(i))))
                for n, factor in enumerate(factors):
                    if 0 <= i - n * ratio < len(totals):
                        total = totals[i - n * ratio]
                        builder.store(vectors.fma(value, factor, builder.load(total)), total)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _sums(
    _typing: Any, tag: Any, tap_rows: Any, tap_columns: Any, ratio: Any, lines: Any, offset: Any, tap_step: Any,
    dy: Any, walk: Any, to_w: Any, to_row: Any, count: Any, to_vector: Any,
) -> Any:  # fmt: skip
    """Adds the sum over a walk of x times dy, for up to JOINED x JOINED taps, to what is at ``to_w``, by vectors.

    A tap's x begins ``offset`` after its line of ``lines``, plus ``tap_step`` per column.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, tap_rows, tap_columns, ratio, lines, offset, tap_step, dy, nest, to_w, to_row, count, to_vector = arguments
        walk = dict(zip(Walk._fields, cgutils.unpack_tuple(builder, nest), strict=True))
        done = builder.append_basic_block("done")
        shape = builder.add(builder.mul(tap_rows, integer(JOINED)), tap_columns)
        choice = builder.switch(shape, done)
        for rows, columns in itertools.product(range(1, JOINED + 1), repeat=2):
            block = builder.append_basic_block(f"taps{rows}x{columns}")
            choice.add_case(integer(rows * JOINED + columns), block)
            builder.position_at_end(block)
            square = _Square(vectors, rows, columns)
            with cgutils.for_range(builder, count, intp=I64) as loop:
                moved = builder.mul(loop.index, integer(ISA_BYTES))
                start = builder.add(offset, moved)
                x = [builder.add(vectors.load_address(lines, i), start) for i in range(rows)]
                square.walk(walk, x, tap_step, builder.add(dy, moved), ratio)
                out = builder.add(to_w, builder.mul(loop.index, to_vector))
                for i, totals in enumerate(square.sums):
                    to = builder.add(out, builder.mul(to_row, integer(i)))
                    for j, total in enumerate(totals):
                        at = builder.add(to, integer(j * ISA_BYTES))
                        vectors.store(builder.fadd(builder.load(total), vectors.load(at)), at)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 7, walk, *[types.int64] * 4), codegen


@inlined
def _line(tag, line, held, kept, columns, sizes, start, row, column, image, images, channels):  # type: ignore[no-untyped-def]
    """The address of a line in this thread's copies, of a task's images and channels; copies it if it is not there."""
    slot = line % held.shape[0]
    to = kept.ctypes.data + slot * columns * sizes.pitch
    if held[slot] != line:
        held[slot] = line
        inner = sizes.chunk_channels * sizes.item
        runs, numbers = images, channels
        if inner == image:  # the images follow each other without a gap
            runs, numbers = 1, (images - 1) * sizes.chunk_channels + channels
        for j in range(columns):
            for n in range(runs):
                _copy(tag, start + line * row + j * column + n * image, to + j * sizes.pitch + n * inner, numbers)
    return to


@inlined
def _spread(w, lanes):  # type: ignore[no-untyped-def]
    """Rearranges filters (channels, taps) to (pairs of vectors of channels, taps, lanes)."""
    spread = np.zeros(((w.shape[0] + lanes - 1) // lanes, w.shape[1], lanes), w.dtype)
    for channel in range(w.shape[0]):
        pair = channel // lanes
        for tap in range(w.shape[1]):
            spread[pair, tap, channel - pair * lanes] = w[channel, tap]
    return spread


@compiled
def depthwise(share, tag, starts, rows, columns, sizes, x, w, y, mode, bias, residual):  # type: ignore[no-untyped-def]
    """Computes the convolution or its input gradient; ``w`` is (channels, taps).

    A task is a chunk of images and channels at the runs of rows between two ``starts``.

    Returns how many products it computed.
    """
    lanes = PAIR * ISA_BYTES // sizes.item
    channel_chunks = (sizes.channels + sizes.chunk_channels - 1) // sizes.chunk_channels
    chunks = (sizes.images + sizes.chunk_images - 1) // sizes.chunk_images * channel_chunks
    streamed = int(sizes.streamed != 0 and y % ISA_BYTES == 0)
    done = 0
    filters = _spread(w, lanes)
    pair_bytes = sizes.taps * lanes * sizes.item
    from_x = np.empty(sizes.taps, np.int64)
    from_w = np.empty(sizes.taps, np.int64)
    while True:
        task = draw_task(share, chunks * (starts.shape[0] - 1))
        if task >= chunks * (starts.shape[0] - 1):
            break
        part = task // chunks
        chunk = task - part * chunks
        first_image = chunk // channel_chunks * sizes.chunk_images
        channel = chunk % channel_chunks * sizes.chunk_channels
        images = min(sizes.chunk_images, sizes.images - first_image)
        channels = min(sizes.chunk_channels, sizes.channels - channel)
        start = x + first_image * sizes.source_image + channel * sizes.item
        out = y + first_image * sizes.target_image + channel * sizes.item
        for r in range(starts[part], starts[part + 1]):
            to = out + rows.target[r] * sizes.target_row
            for c in range(columns.count.shape[0]):
                # Where a run has one column, images take the place of columns.
                alone = columns.count[c] == 1 and images > 1
                joined, ratio, count, others = columns.joined[c], columns.ratio[c], columns.count[c], images
                step = columns.source_step[c] * sizes.source_column
                target_step = columns.target_step[c] * sizes.target_column
                other, target_other = sizes.source_image, sizes.target_image
                tap_step = columns.tap_step[c] * sizes.source_column
                if alone:
                    joined, count, others, step, target_step = 1, images, 1, other, target_other
                if joined == 1:
                    ratio, tap_step = 1, step
                taps = 0
                for k in range(rows.taps[r]):
                    line = start + (rows.tap_source[r] + k * rows.source_stride) * sizes.source_row
                    row = (rows.tap_filter[r] + k * rows.filter_stride) * sizes.filter_columns
                    for j in range(0, columns.taps[c], joined):
                        tap = row + columns.tap_filter[c] + j * columns.filter_stride
                        from_x[taps] = line + (columns.tap_source[c] + j * columns.source_stride) * sizes.source_column
                        from_w[taps] = tap * PAIR * ISA_BYTES
                        taps += 1
                for m in range(0, count, TILE):
                    for n in range(others):
                        _products(
                            tag,
                            min(TILE, count - m),
                            joined,
                            ratio,
                            from_x.ctypes.data,
                            m * step + n * other,
                            tap_step,
                            taps,
                            filters.ctypes.data + channel // lanes * pair_bytes,
                            from_w.ctypes.data,
                            columns.filter_step[c] * PAIR * ISA_BYTES,
                            pair_bytes,
                            to + columns.target[c] * sizes.target_column + m * target_step + n * target_other,
                            target_step,
                            channels,
                            mode,
                            bias + channel * sizes.item,
                            residual,
                            streamed,
                        )
                done += taps * joined * columns.count[c] * images * channels
    return done


@compiled
def depthwise_weight(share, tag, starts, rows, columns, sizes, x, dy, dw):  # type: ignore[no-untyped-def]
    """Computes the filter gradient: ``dw`` is (parts, channels, taps), one part per chunk of images and range of rows.

    A range of rows lies between two ``starts``. A task is a part's chunk of channels. Returns the products computed.
    """
    lanes = ISA_BYTES // sizes.item
    channel_chunks = (sizes.channels + sizes.chunk_channels - 1) // sizes.chunk_channels
    done = 0
    kept_x = np.empty(sizes.source_held * sizes.source_columns * sizes.pitch, np.uint8)
    kept_dy = np.empty(sizes.target_held * sizes.target_columns * sizes.pitch, np.uint8)
    held_x = np.empty(sizes.source_held, np.int64)
    held_dy = np.empty(sizes.target_held, np.int64)
    lines = np.empty(sizes.taps, np.int64)
    sums = np.empty((sizes.chunk_channels // lanes, sizes.taps, lanes), dw.dtype)
    inner = sizes.chunk_channels * sizes.item
    x_row, dy_row = sizes.source_columns * sizes.pitch, sizes.target_columns * sizes.pitch
    while True:
        task = draw_task(share, dw.shape[0] * channel_chunks)
        if task >= dw.shape[0] * channel_chunks:
            break
        part = task // channel_chunks
        channel = (task - part * channel_chunks) * sizes.chunk_channels
        image = part // (starts.shape[0] - 1) * sizes.chunk_images
        images = min(sizes.chunk_images, sizes.images - image)
        channels = min(sizes.chunk_channels, sizes.channels - channel)
        start = x + image * sizes.source_image + channel * sizes.item
        start_dy = dy + image * sizes.target_image + channel * sizes.item
        part_rows = part % (starts.shape[0] - 1)
        held_x[:] = -1
        held_dy[:] = -1
        sums[:] = 0
        for r in range(starts[part_rows], starts[part_rows + 1]):
            tap_rows = rows.taps[r]
            line_dy = 0
            for i in range(rows.count[r] - 1, -1, -1):  # last line first: the first lines are then the last copied
                for k in range(tap_rows):
                    line = rows.tap_source[r] + k * rows.source_stride + i * rows.source_step[r]
                    lines[k] = _line(
                        tag, line, held_x, kept_x, sizes.source_columns, sizes, start, sizes.source_row,
                        sizes.source_column, sizes.source_image, images, channels,
                    )  # fmt: skip
                line_dy = _line(
                    tag, rows.target[r] + i * rows.target_step[r], held_dy, kept_dy, sizes.target_columns, sizes,
                    start_dy, sizes.target_row, sizes.target_column, sizes.target_image, images, channels,
                )  # fmt: skip
            for c in range(columns.count.shape[0]):
                tap_columns = columns.taps[c]
                walk = Walk(
                    rows.count[r], images, columns.count[c],
                    rows.source_step[r] * x_row, inner, columns.source_step[c] * sizes.pitch,
                    rows.target_step[r] * dy_row, inner, columns.target_step[c] * sizes.pitch,
                )  # fmt: skip
                for k in range(0, tap_rows, JOINED):
                    row = (rows.tap_filter[r] + k * rows.filter_stride) * sizes.filter_columns
                    for j in range(0, tap_columns, JOINED):
                        tap = row + columns.tap_filter[c] + j * columns.filter_stride
                        _sums(
                            tag,
                            min(JOINED, tap_rows - k),
                            min(JOINED, tap_columns - j),
                            columns.ratio[c],
                            lines.ctypes.data + 8 * k,
                            (columns.tap_source[c] + j * columns.source_stride) * sizes.pitch,
                            columns.tap_step[c] * sizes.pitch,
                            line_dy + columns.target[c] * sizes.pitch,
                            walk,
                            sums.ctypes.data + tap * ISA_BYTES,
                            sizes.filter_columns * ISA_BYTES,
                            (channels + lanes - 1) // lanes,
                            sizes.taps * ISA_BYTES,
                        )
                done += tap_rows * tap_columns * rows.count[r] * columns.count[c] * images * channels
        for i in range(channels):
            for tap in range(sizes.taps):
                dw[part, channel + i, tap] = sums[i // lanes, tap, i % lanes]
    return done
