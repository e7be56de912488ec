"""Sk-dilated-V2 for few input channels (first layers): all taps of a position are the columns of one matrix product.

Tap by tap, as ``taps`` works, three channels would fill three lanes of a panel. Here positions are put in classes
by their trim, the part of the filter that lies inside x: a class has one list of columns, taps times channels, its x is
copied to lie in that order, and its sum goes to the filter's elements that the trim names. No zero is multiplied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ADD, ROWS, STORE, copy_vectors, outer_product

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class Trims(NamedTuple):
    """The distinct trims of an axis; positions of trim i are start[i]..start[i + 1]. Offsets in bytes."""

    first: Int64s
    """The trim's first tap."""
    taps: Int64s
    start: Int64s
    source: Int64s
    """Offset in x of what the trim's first tap reads, per position."""
    other: Int64s
    """Offset in dy, per position."""


class FewChannelsSizes(NamedTuple):
    """Sizes and byte steps of a problem; channels are those of a group."""

    images: int
    part: int
    """Images per part; each part sums into a filter gradient that no other part writes."""
    chunk: int
    """Images whose products are summed at a time."""
    together: int
    """Positions of a row whose products are summed at a time."""
    in_channels: int
    out_channels: int
    panel: int
    item: int
    x_image: int
    x_tap_row: int
    """Bytes from one tap row's row of x to the next tap row's."""
    x_tap_column: int
    dy_image: int
    joined: bool
    """Whether the taps of a row and their channels are one run of memory in x."""
    copy_row: int
    """Bytes of a copy's row: its numbers, and a vector for what copying writes beyond them."""
    sums: int
    """How many numbers all trims' sums have."""


@inlined
def _copy(tag, rows, columns, r, c, i, j, x, target, count, sizes):  # type: ignore[no-untyped-def]
    """Copies the numbers of x that position (i, j) reads, in the filter's order, one row per image."""
    run = columns.taps[c] if sizes.joined else 1
    width = run * sizes.in_channels * sizes.item
    for tap_row in range(rows.taps[r]):
        for tap in range(0, columns.taps[c], run):
            source = x + rows.source[i] + tap_row * sizes.x_tap_row + columns.source[j] + tap * sizes.x_tap_column
            copy_vectors(tag, source, sizes.x_image, target, sizes.copy_row, count, width)
            target += width


@compiled
def few_channels(share, tag, rows, columns, sizes, x, dy, dw):  # type: ignore[no-untyped-def]
    """Computes the filter gradient ``dw``, an array (parts, groups, OC, FH, FW * IC). A task is a part and a group.

    Returns how many multiply-adds it computed.
    """
    parts, groups = dw.shape[0], dw.shape[1]
    done = 0
    row_bytes = ROWS * sizes.item
    sums = np.empty(sizes.sums, dw.dtype)
    copy = np.empty(sizes.chunk * sizes.together * sizes.copy_row + 128, np.uint8)
    from_x = np.empty(sizes.together, np.int64)
    from_dy = np.empty(sizes.together, np.int64)
    while True:
        task = draw_task(share, parts * groups)
        if task >= parts * groups:
            break
        part = task // groups
        group = task - part * groups
        base = (copy.ctypes.data + 63) // 64 * 64
        for image in range(part * sizes.part, min((part + 1) * sizes.part, sizes.images), sizes.chunk):
            count = min(sizes.chunk, min((part + 1) * sizes.part, sizes.images) - image)
            x_at = x + image * sizes.x_image + group * sizes.in_channels * sizes.item
            dy_at = dy + image * sizes.dy_image + group * sizes.out_channels * sizes.item
            sum_at = sums.ctypes.data
            for r in range(rows.taps.size):
                for c in range(columns.taps.size):
                    width = rows.taps[r] * columns.taps[c] * sizes.in_channels
                    mode = STORE if image == part * sizes.part else ADD
                    positions_per_row = columns.start[c + 1] - columns.start[c]
                    held = (rows.start[r + 1] - rows.start[r]) * positions_per_row
                    for first in range(0, held, sizes.together):
                        positions = min(sizes.together, held - first)
                        for p in range(positions):
                            i = rows.start[r] + (first + p) // positions_per_row
                            j = columns.start[c] + (first + p) % positions_per_row
                            from_x[p] = p * count * sizes.copy_row
                            from_dy[p] = rows.other[i] + columns.other[j]
                            _copy(tag, rows, columns, r, c, i, j, x_at, base + from_x[p], count, sizes)
                        for panel in range(0, width, sizes.panel):
                            outer_product(
                                tag,
                                sizes.out_channels,
                                row_bytes,
                                dy_at,
                                from_dy.ctypes.data,
                                base + panel * sizes.item,
                                from_x.ctypes.data,
                                positions,
                                sizes.dy_image,
                                sizes.copy_row,
                                count,
                                sum_at + panel * sizes.item,
                                width * sizes.item,
                                mode,
                                0,
                                0,
                                width - panel,
                            )
                        mode = ADD
                        done += positions * count * sizes.out_channels * width
                    sum_at += sizes.out_channels * width * sizes.item
        _add_trims(rows, columns, sizes.in_channels, sums, dw[part, group])
    return done


@inlined
def _add_trims(rows, columns, channels, sums, dw):  # type: ignore[no-untyped-def]
    """Sets dw (OC, FH, FW * IC) to the trims' sums, each added where its taps are."""
    dw[:] = 0
    at = 0
    for r in range(rows.taps.size):
        for c in range(columns.taps.size):
            run, first = columns.taps[c] * channels, columns.first[c] * channels
            for channel in range(dw.shape[0]):
                for i in range(rows.taps[r]):
                    for k in range(run):
                        dw[channel, rows.first[r] + i, first + k] += sums[at + k]
                    at += run
