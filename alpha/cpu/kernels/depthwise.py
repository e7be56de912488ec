"""Depthwise convolutions: a filter for each channel, so that channels are the lanes and nothing is summed over them.

Rows are positions of one trim and images, wherever they lie, as in ``positions``; a product of a tap is a vector of
channels of x times the tap's vector of filters. Memory is the limit: each element is read about once and written once.
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
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, has
from alpha.cpu.kernels.positions import addresses, residuals_beside, tap_offsets
from alpha.cpu.kernels.vectors import I64, Vectors, integer

ISA_BYTES = ISA.bytes

TILE = 8
"""Rows whose sums are held in registers, with one vector of channels each."""

TAPS = 5
"""Taps of the filter gradient whose sums are held in registers, with two vectors of channels each."""


class DepthwiseSizes(NamedTuple):
    """Sizes and byte steps of a problem."""

    channels: int
    taps: int
    """Of the whole filter."""
    rows: int
    """Rows of a block, at most."""
    item: int
    source_image: int
    target_image: int


def _kept(vectors: Vectors, count: int) -> list[Any]:
    """Variables for so many vectors, which LLVM keeps in registers."""
    return [cgutils.alloca_once(vectors.builder, vectors.vector) for _ in range(count)]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _products(
    _typing: Any, tag: Any, sources: Any, targets: Any, offset: Any, taps: Any, from_x: Any, w: Any, from_w: Any,
    mode: Any, bias: Any, residuals: Any, channels: Any,
) -> Any:  # fmt: skip
    """One vector of channels of TILE rows: the sum over taps of x times w, to the targets; ``mode`` as in the others.

    Rows are read and written at ``sources`` and ``targets`` plus ``offset``, and those that ADD adds read at
    ``residuals``; ``channels`` of the vector are written.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        slope, sources, targets, offset, taps, from_x, w, from_w, mode, bias, residuals, channels = arguments
        rows = [vectors.load_address(sources, m) for m in range(TILE)]
        sums = _kept(vectors, TILE)
        for total in sums:
            builder.store(vectors.zero, total)
        with builder.if_then(has(builder, mode, BIAS)):
            start = vectors.load_masked(bias, channels)
            for total in sums:
                builder.store(start, total)
        with cgutils.for_range(builder, taps, intp=I64) as loop:
            at = builder.mul(loop.index, integer(8))
            moved = builder.add(offset, vectors.load_address(builder.add(from_x, at), 0))
            factor = vectors.load(builder.add(w, vectors.load_address(builder.add(from_w, at), 0)))
            for row, total in zip(rows, sums, strict=True):
                value = vectors.load(builder.add(row, moved))
                builder.store(vectors.fma(value, factor, builder.load(total)), total)
        adds, activates = (has(builder, mode, flag) for flag in (ADD, ACTIVATE))
        for m, total in enumerate(sums):
            out = builder.add(vectors.load_address(targets, m), offset)
            with builder.if_then(adds):
                added = vectors.load_masked(builder.add(vectors.load_address(residuals, m), offset), channels)
                builder.store(builder.fadd(builder.load(total), added), total)
            with builder.if_then(activates):
                builder.store(vectors.leaky_relu(builder.load(total), vectors.spread(slope)), total)
            vectors.store_first(builder.load(total), out, channels)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 11), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _sums(_typing: Any, tag: Any, sources: Any, targets: Any, offset: Any, rows: Any, from_x: Any, to_w: Any) -> Any:
    """Two vectors of channels of TAPS taps: the sum over rows of x times dy is added to what is at ``to_w``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, sources, targets, offset, rows, from_x, to_w = arguments
        moved = [builder.add(offset, vectors.load_address(from_x, t)) for t in range(TAPS)]
        sums = _kept(vectors, 2 * TAPS)
        for total in sums:
            builder.store(vectors.zero, total)
        with cgutils.for_range(builder, rows, intp=I64) as loop:
            at = builder.mul(loop.index, integer(8))
            source = vectors.load_address(builder.add(sources, at), 0)
            target = builder.add(vectors.load_address(builder.add(targets, at), 0), offset)
            for half in range(2):
                factor = vectors.load(builder.add(target, integer(half * ISA.bytes)))
                for t in range(TAPS):
                    address = builder.add(builder.add(source, moved[t]), integer(half * ISA.bytes))
                    total = sums[half * TAPS + t]
                    builder.store(vectors.fma(vectors.load(address), factor, builder.load(total)), total)
        for t in range(TAPS):
            for half in range(2):
                out = builder.add(vectors.load_address(to_w, t), integer(half * ISA.bytes))
                vectors.store(builder.fadd(builder.load(sums[half * TAPS + t]), vectors.load(out)), out)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 6), codegen


@compiled
def depthwise(  # type: ignore[no-untyped-def]
    tag, counter, blocks, rows, columns, sizes, x, w, y, mode, bias, residual
):
    """The convolution or its input gradient; ``w`` is packed (vectors of channels, taps, lanes). A task is a block.

    Returns the products that it computed.
    """
    done = 0
    lanes = ISA_BYTES // sizes.item
    sources = np.empty(sizes.rows + TILE, np.int64)
    targets = np.empty(sizes.rows + TILE, np.int64)
    residuals = np.empty(sizes.rows + TILE, np.int64)
    from_x = np.empty(sizes.taps + 1, np.int64)
    from_w = np.empty(sizes.taps + 1, np.int64)
    nowhere = np.zeros((sizes.channels + lanes) * sizes.item, np.uint8)
    while True:
        task = take_task(counter.ctypes.data)
        if task >= blocks.shape[0]:
            break
        block = blocks[task]
        addresses(rows, columns, block, TILE, sizes, x, y, sources, targets, nowhere.ctypes.data)
        residuals_beside(targets, residual, block[3], TILE, residuals)
        taps = tap_offsets(rows, columns, block, from_x, from_w)
        for m in range(0, block[3], TILE):
            for channel in range(0, sizes.channels, lanes):
                _products(
                    tag,
                    sources.ctypes.data + 8 * m,
                    targets.ctypes.data + 8 * m,
                    channel * sizes.item,
                    taps,
                    from_x.ctypes.data,
                    w + channel * sizes.taps * sizes.item,
                    from_w.ctypes.data,
                    mode,
                    bias + channel * sizes.item,
                    residuals.ctypes.data + 8 * m,
                    sizes.channels - channel,
                )
        done += taps * block[3] * sizes.channels
    return done


@compiled
def depthwise_weight(tag, counter, blocks, rows, columns, sizes, x, dy, dw):  # type: ignore[no-untyped-def]
    """The filter gradient: ``dw`` is (parts, taps, channels up to whole pairs of vectors). A task is a part.

    Sums run over a block in registers, over a part's blocks in memory. Returns the products that it computed.
    """
    parts = dw.shape[0]
    row_bytes = dw.shape[2] * sizes.item
    done = 0
    lanes = 2 * ISA_BYTES // sizes.item
    sources = np.empty(sizes.rows + 1, np.int64)
    targets = np.empty(sizes.rows + 1, np.int64)
    from_x = np.empty(sizes.taps + TAPS, np.int64)
    from_w = np.empty(sizes.taps + TAPS, np.int64)
    to_w = np.empty(TAPS, np.int64)
    nothing = np.zeros(lanes, dw.dtype)
    while True:
        part = take_task(counter.ctypes.data)
        if part >= parts:
            break
        dw[part] = 0
        for task in range(blocks.shape[0] * part // parts, blocks.shape[0] * (part + 1) // parts):
            block = blocks[task]
            addresses(rows, columns, block, 1, sizes, x, dy, sources, targets, 0)
            taps = tap_offsets(rows, columns, block, from_x, from_w)
            for t in range(taps, taps + TAPS - 1):  # what the last group of taps has over goes nowhere
                from_x[t] = from_x[0]
            for channel in range(0, sizes.channels, lanes):
                for tap in range(0, taps, TAPS):
                    for t in range(TAPS):
                        to_w[t] = nothing.ctypes.data
                        if tap + t < taps:
                            row = part * sizes.taps + from_w[tap + t]
                            to_w[t] = dw.ctypes.data + row * row_bytes + channel * sizes.item
                    _sums(
                        tag,
                        sources.ctypes.data,
                        targets.ctypes.data,
                        channel * sizes.item,
                        block[3],
                        from_x.ctypes.data + 8 * tap,
                        to_w.ctypes.data,
                    )
            done += taps * block[3] * sizes.channels
    return done
