"""Depthwise convolutions: a filter for each channel, so that channels are the lanes and nothing is summed over them.

Memory is the limit: a task is some channels of some images, few enough for the caches to hold what its lines share.
Columns of one trim, side by side, share what is loaded of x and of the filter.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, has
from alpha.cpu.kernels.vectors import I64, Vectors, integer

ISA_BYTES = ISA.bytes

PAIR = 2
"""Vectors of channels whose sums are held in registers at a time: a line of the caches, or so."""

TILE = 4
"""Columns whose sums are held in registers at a time."""

JOINED = 3
"""Taps of a row that are computed together, so that what neighbouring columns share is loaded once; and rows and
columns of taps of the filter gradient whose sums are held in registers at a time."""

RATIOS = (1, 2)
"""Strides at which neighbouring columns share what their taps meet."""

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class Runs(NamedTuple):
    """Target indices of an axis a step apart whose taps are alike, run by run; all in indices."""

    taps: Int64s
    """Of a run: how many, by their sources; they are ``each_source`` and ``each_filter`` apart."""
    tap_source: Int64s
    """Of a run: its first tap's source at its first target."""
    tap_filter: Int64s
    """Of a run: its first tap's index in the filter."""
    count: Int64s
    """Of a run: its targets."""
    source_step: Int64s
    """Of a run: from a target's sources to the next one's."""
    target: Int64s
    """Of a run: its first target."""
    target_step: Int64s
    joined: Int64s
    """Of a run: taps that are computed together, 1 to JOINED: all of them where they lie evenly and targets share them,
    else one at a time."""
    ratio: Int64s
    """Of a run: the step of its sources over its taps', up to RATIOS; 0 where they meet no other target's."""
    tap_step: Int64s
    """Of a run: from a tap's source to the next one's."""
    filter_step: Int64s
    """Of a run: likewise in the filter."""
    each_source: int
    each_filter: int


class DepthwiseSizes(NamedTuple):
    """Sizes and byte steps of a problem."""

    images: int
    channels: int
    taps: int
    filter_columns: int
    chunk_images: int
    """Of a task."""
    chunk_channels: int
    """Of a task, whole pairs of vectors."""
    source_columns: int
    target_columns: int
    source_held: int
    """Lines of x that a worker of the filter gradient keeps a copy of."""
    target_held: int
    """Likewise of dy."""
    pitch: int
    """From column to column of a copy."""
    item: int
    source_image: int
    source_row: int
    source_column: int
    target_image: int
    target_row: int
    target_column: int
    streamed: int
    """Whether the result goes to memory past the caches, which are too small for it."""


def _kept(vectors: Vectors, count: int) -> list[Any]:
    """Variables for so many vectors, which LLVM keeps in registers."""
    return [cgutils.alloca_once(vectors.builder, vectors.vector) for _ in range(count)]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _copy(_typing: Any, tag: Any, source: Any, target: Any, count: Any) -> Any:
    """So many numbers, up to whole vectors at the target."""

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
    """Emits the sums over taps of some columns, for one pair of vectors of channels."""

    def __init__(self, vectors: Vectors, columns: int) -> None:
        self.vectors, self.builder, self.columns = vectors, vectors.builder, columns
        self.sums = [_kept(vectors, PAIR) for _ in range(columns)]

    def begin(self, mode: Any, bias: Any, channels: Any) -> None:
        """Zero, or the bias."""
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
        """The products of some taps side by side, whose columns' sources are ``ratio`` steps apart."""
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
        """The sums, finished as the mode says, to the target: whole lines past the caches, or the channels alone."""
        builder, vectors = self.builder, self.vectors
        places = [builder.add(target, builder.mul(step, integer(n))) for n in range(self.columns)]
        with builder.if_then(has(builder, mode, ADD), likely=False):
            for at, half, total, left in self._each(places, channels):
                there = builder.add(builder.add(at, residual), integer(half * ISA_BYTES))
                builder.store(builder.fadd(builder.load(total), vectors.load_masked(there, left)), total)
        with builder.if_then(has(builder, mode, ACTIVATE), likely=False):
            spread = vectors.spread(slope)
            for _, _, total, _ in self._each(places, channels):
                builder.store(vectors.leaky_relu(builder.load(total), spread), total)
        whole = builder.icmp_signed(">=", channels, integer(PAIR * vectors.lanes))
        with builder.if_else(whole, likely=True) as (then, otherwise):
            with then, builder.if_else(builder.icmp_signed("!=", streamed, integer(0))) as (past, through):
                for block, store in ((past, Vectors.stream), (through, Vectors.store)):
                    with block:
                        for at, half, total, _ in self._each(places, channels):
                            store(vectors, builder.load(total), builder.add(at, integer(half * ISA_BYTES)))
            with otherwise:
                for at, half, total, left in self._each(places, channels):
                    vectors.store_masked(builder.load(total), builder.add(at, integer(half * ISA_BYTES)), left)

    def _each(self, places: list[Any], channels: Any) -> list[tuple[Any, int, Any, Any]]:
        """(address, half, sum, channels left) of each vector."""
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
    """The sums over taps of x times w at up to TILE columns, for all channels, to the target.

    The first of ``joined`` taps has its x at ``from_x`` plus ``moved``, its w at ``w`` plus ``from_w``, the next one a
    step on; the next column's x lies ``ratio`` steps on. The next pair of vectors of channels has its filters
    ``filter_bytes`` on. ``mode``, ``bias`` and ``residual`` are as in the micro-kernel.
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
    """(columns, taps together, ratio) of the tiles that there are; single taps share nothing, at any ratio."""
    shared = [(count, taps, ratio) for count in range(1, TILE + 1) for taps in range(2, JOINED + 1) for ratio in RATIOS]
    return [(count, 1, 1) for count in range(1, TILE + 1)] + shared


def _number(columns: int, joined: int, ratio: int) -> int:
    return (columns * (JOINED + 1) + joined) * (max(RATIOS) + 1) + ratio


def _variant(builder: Any, columns: Any, joined: Any, ratio: Any) -> Any:
    """``_number`` of values."""
    both = builder.add(builder.mul(columns, integer(JOINED + 1)), joined)
    return builder.add(builder.mul(both, integer(max(RATIOS) + 1)), ratio)


class Walk(NamedTuple):
    """A nest of loops over rows, images and columns: how often, and how far on in x and dy."""

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
    """Emits the sums of a square of taps for one vector of channels."""

    def __init__(self, vectors: Vectors, rows: int, columns: int) -> None:
        self.vectors, self.builder = vectors, vectors.builder
        self.sums = [_kept(vectors, columns) for _ in range(rows)]

    def walk(self, walk: dict[str, Any], x: list[Any], tap_step: Any, dy: Any, ratio: Any) -> None:
        """Sums from zero on: dy times each tap's x, whose lines begin at ``x``."""
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
        """The products of some columns, whose x are ``ratio`` taps apart."""
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
    """Up to JOINED x JOINED taps: the sum over a walk of x times dy is added to what is at ``to_w``, vector by vector.

    A tap's x begins ``offset`` after its line of ``lines``, plus ``tap_step`` a column.
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
    """Where a line of a task's images and channels lies in the worker's copy, which it enters if it is not there."""
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
    """The filters (channels, taps) as (pairs of vectors of channels, taps, lanes)."""
    spread = np.zeros(((w.shape[0] + lanes - 1) // lanes, w.shape[1], lanes), w.dtype)
    for channel in range(w.shape[0]):
        pair = channel // lanes
        for tap in range(w.shape[1]):
            spread[pair, tap, channel - pair * lanes] = w[channel, tap]
    return spread


@compiled
def depthwise(counter, tag, starts, rows, columns, sizes, x, w, y, mode, bias, residual):  # type: ignore[no-untyped-def]
    """The convolution or its input gradient; ``w`` is (channels, taps). A task is a chunk of images and channels at the
    runs of rows between two ``starts``.

    Returns the products that it computed.
    """
    lanes = PAIR * ISA_BYTES // sizes.item
    across = (sizes.channels + sizes.chunk_channels - 1) // sizes.chunk_channels
    chunks = (sizes.images + sizes.chunk_images - 1) // sizes.chunk_images * across
    streamed = int(sizes.streamed != 0 and y % ISA_BYTES == 0)
    done = 0
    filters = _spread(w, lanes)
    pair_bytes = sizes.taps * lanes * sizes.item
    from_x = np.empty(sizes.taps, np.int64)
    from_w = np.empty(sizes.taps, np.int64)
    while True:
        task = take_task(counter)
        if task >= chunks * (starts.shape[0] - 1):
            break
        part = task // chunks
        chunk = task - part * chunks
        first_image = chunk // across * sizes.chunk_images
        channel = chunk % across * sizes.chunk_channels
        images = min(sizes.chunk_images, sizes.images - first_image)
        channels = min(sizes.chunk_channels, sizes.channels - channel)
        start = x + first_image * sizes.source_image + channel * sizes.item
        out = y + first_image * sizes.target_image + channel * sizes.item
        for r in range(starts[part], starts[part + 1]):
            to = out + rows.target[r] * sizes.target_row
            for c in range(columns.count.shape[0]):
                # One column alone takes its images as columns.
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
                    line = start + (rows.tap_source[r] + k * rows.each_source) * sizes.source_row
                    row = (rows.tap_filter[r] + k * rows.each_filter) * sizes.filter_columns
                    for j in range(0, columns.taps[c], joined):
                        tap = row + columns.tap_filter[c] + j * columns.each_filter
                        from_x[taps] = line + (columns.tap_source[c] + j * columns.each_source) * sizes.source_column
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
def depthwise_weight(counter, tag, starts, rows, columns, sizes, x, dy, dw):  # type: ignore[no-untyped-def]
    """The filter gradient: ``dw`` is (parts, channels, taps), a part for each chunk of images and two ``starts``.

    A task is a part's chunk of channels. Returns the products that it computed.
    """
    lanes = ISA_BYTES // sizes.item
    across = (sizes.channels + sizes.chunk_channels - 1) // sizes.chunk_channels
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
        task = take_task(counter)
        if task >= dw.shape[0] * across:
            break
        part = task // across
        channel = (task - part * across) * sizes.chunk_channels
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
            down = rows.taps[r]
            line_dy = 0
            for i in range(rows.count[r] - 1, -1, -1):  # the run's first lines are asked for last
                for k in range(down):
                    line = rows.tap_source[r] + k * rows.each_source + i * rows.source_step[r]
                    lines[k] = _line(
                        tag, line, held_x, kept_x, sizes.source_columns, sizes, start, sizes.source_row,
                        sizes.source_column, sizes.source_image, images, channels,
                    )  # fmt: skip
                line_dy = _line(
                    tag, rows.target[r] + i * rows.target_step[r], held_dy, kept_dy, sizes.target_columns, sizes,
                    start_dy, sizes.target_row, sizes.target_column, sizes.target_image, images, channels,
                )  # fmt: skip
            for c in range(columns.count.shape[0]):
                across_taps = columns.taps[c]
                walk = Walk(
                    rows.count[r], images, columns.count[c],
                    rows.source_step[r] * x_row, inner, columns.source_step[c] * sizes.pitch,
                    rows.target_step[r] * dy_row, inner, columns.target_step[c] * sizes.pitch,
                )  # fmt: skip
                for k in range(0, down, JOINED):
                    row = (rows.tap_filter[r] + k * rows.each_filter) * sizes.filter_columns
                    for j in range(0, across_taps, JOINED):
                        tap = row + columns.tap_filter[c] + j * columns.each_filter
                        _sums(
                            tag,
                            min(JOINED, down - k),
                            min(JOINED, across_taps - j),
                            columns.ratio[c],
                            lines.ctypes.data + 8 * k,
                            (columns.tap_source[c] + j * columns.each_source) * sizes.pitch,
                            columns.tap_step[c] * sizes.pitch,
                            line_dy + columns.target[c] * sizes.pitch,
                            walk,
                            sums.ctypes.data + tap * ISA_BYTES,
                            sizes.filter_columns * ISA_BYTES,
                            (channels + lanes - 1) // lanes,
                            sizes.taps * ISA_BYTES,
                        )
                done += down * across_taps * rows.count[r] * columns.count[c] * images * channels
        for i in range(channels):
            for tap in range(sizes.taps):
                dw[part, channel + i, tap] = sums[i // lanes, tap, i % lanes]
    return done
