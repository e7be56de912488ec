"""Sk-dilated-V2 for few input channels (first layers): a filter row's taps and channels are the rows of a product.

Tap by tap, as ``taps`` works, three channels would fill three lanes of a panel. Here output channels fill the lanes,
and the rows are neighbouring numbers of x: all taps of a filter row that lie inside x at a position, ConvV2's trim.
Positions of one trim along the row are summed together. No zero is multiplied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ADD, ROWS, TALL, copy_vectors, outer_product, tall_product

MIN_LOOP_IMAGES = 4
"""With fewer images than this, the inner loop is over columns."""

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class TapRows(NamedTuple):
    """Filter rows, and classes of output columns with the same trim."""

    first: Int64s
    """First output row that each filter row reaches."""
    end: Int64s
    """One past the last such row."""
    column: Int64s
    """First output column of each class."""
    columns: Int64s
    """Number of its output columns, which follow each other."""
    tap: Int64s
    """First tap of each class's trim."""
    height_start: Int64s
    """The product's rows of class c are cut into tiles of heights[height_start[c]..height_start[c + 1]] rows."""
    heights: Int64s
    tall: Int64s
    """Whether these rows are a single tile, with panels of one vector."""


class TapRowsSizes(NamedTuple):
    """Sizes and byte steps of a problem; channels are those of a group."""

    images: int
    part: int
    """Images per part; each part sums into a filter gradient that no other part writes."""
    chunk: int
    """Images that are copied at a time."""
    row_chunk: int
    """Output rows whose x is copied at a time."""
    column_chunk: int
    """Output columns that are summed at a time."""
    input_rows: int
    input_columns: int
    output_rows: int
    output_columns: int
    stride_rows: int
    stride_columns: int
    padding_rows: int
    padding_columns: int
    extent_rows: int
    dilation_rows: int
    in_channels: int
    out_channels: int
    panel: int
    vector: int
    item: int
    x_image: int
    x_row: int
    x_column: int
    dy_image: int
    dy_row: int
    dy_column: int
    joined: bool
    """Whether a row of x is one run of memory."""
    copy_row: int
    """Bytes from an image's copy of a row of x to the next image's."""
    x_bytes: int


@compiled
def tap_rows(share, tag, tables, sizes, x, dy, dw):  # type: ignore[no-untyped-def]
    """Computes the filter gradient ``dw``, an array (parts, groups, FH, FW * IC, OC). A task is a part and a group.

    Returns how many multiply-adds it computed.
    """
    parts, groups = dw.shape[0], dw.shape[1]
    done = 0
    pixel = sizes.in_channels * sizes.item
    x_column = sizes.stride_columns * pixel
    dw_row = sizes.out_channels * sizes.item
    most = sizes.row_chunk * max(sizes.column_chunk, sizes.chunk)
    x_copy = np.empty(sizes.x_bytes, np.uint8)
    from_x = np.empty(most, np.int64)
    from_dy = np.empty(most, np.int64)
    while True:
        task = draw_task(share, parts * groups)
        if task >= parts * groups:
            break
        # Taken again for each task: Numba frees an array after its last use, and does not count uses of its address.
        x_base = (x_copy.ctypes.data + 63) // 64 * 64
        part = task // groups
        group = task - part * groups
        filters = dw[part, group]
        filters[:] = 0
        end = min((part + 1) * sizes.part, sizes.images)
        for image in range(part * sizes.part, end, sizes.chunk):
            count = min(sizes.chunk, end - image)
            by_image = count >= MIN_LOOP_IMAGES
            a_step = sizes.copy_row if by_image else x_column
            b_step = sizes.dy_image if by_image else sizes.dy_column
            x_at = x + image * sizes.x_image + group * pixel
            dy_at = dy + image * sizes.dy_image + group * dw_row
            for low in range(0, sizes.output_rows, sizes.row_chunk):
                high = min(low + sizes.row_chunk, sizes.output_rows)
                row_low = max(0, low * sizes.stride_rows - sizes.padding_rows)
                row_high = min(
                    sizes.input_rows, (high - 1) * sizes.stride_rows - sizes.padding_rows + sizes.extent_rows
                )
                for i in range(row_low, row_high):
                    source = x_at + i * sizes.x_row
                    target = x_base + (i - row_low) * count * sizes.copy_row
                    if sizes.joined:
                        width = sizes.input_columns * pixel
                        copy_vectors(tag, source, sizes.x_image, target, sizes.copy_row, count, width)
                    else:
                        for j in range(sizes.input_columns):
                            copy_vectors(
                                tag,
                                source + j * sizes.x_column,
                                sizes.x_image,
                                target + j * pixel,
                                sizes.copy_row,
                                count,
                                pixel,
                            )
                for c in range(tables.column.size):
                    left, right = tables.column[c], tables.column[c] + tables.columns[c]
                    start, stop = tables.height_start[c], tables.height_start[c + 1]
                    tall = TALL and tables.tall[c]
                    panel_width = sizes.vector if tall else sizes.panel
                    together = max(1, sizes.column_chunk // (right - left))
                    first_offset = tables.tap[c] - sizes.padding_columns
                    for block in range(low, high, together):
                        for q in range(left, right, sizes.column_chunk):
                            block_columns = min(sizes.column_chunk, right - q)
                            depth = count if by_image else block_columns
                            # All filter rows read a block's dy while it is in the caches.
                            for row in range(tables.first.size):
                                top = max(block, tables.first[row])
                                bottom = min(block + together, high, tables.end[row])
                                taps = 0
                                for o in range(top, bottom):
                                    above = o * sizes.stride_rows - sizes.padding_rows + row * sizes.dilation_rows
                                    x_from = (above - row_low) * count * sizes.copy_row
                                    x_from += (q * sizes.stride_columns + first_offset) * pixel
                                    dy_from = o * sizes.dy_row + q * sizes.dy_column
                                    for k in range(block_columns if by_image else count):
                                        from_x[taps] = x_from + k * (x_column if by_image else sizes.copy_row)
                                        from_dy[taps] = dy_from + k * (sizes.dy_column if by_image else sizes.dy_image)
                                        taps += 1
                                if taps == 0:
                                    continue
                                for panel in range(0, sizes.out_channels, panel_width):
                                    b = dy_at + panel * sizes.item
                                    into = filters[row].ctypes.data + panel * sizes.item
                                    into += tables.tap[c] * sizes.in_channels * dw_row
                                    channels = sizes.out_channels - panel
                                    heights = 0
                                    for h in range(start, stop):
                                        height = tables.heights[h]
                                        a = x_base + heights * sizes.item
                                        c_at = into + heights * dw_row
                                        if tall:
                                            tall_product(
                                                tag, height, 0, a, from_x.ctypes.data, b, from_dy.ctypes.data, taps,
                                                a_step, b_step, depth, c_at, dw_row, ADD, 0, 0, channels,
                                            )  # fmt: skip
                                        else:
                                            outer_product(
                                                tag, height, ROWS * sizes.item, a, from_x.ctypes.data, b,
                                                from_dy.ctypes.data, taps, a_step, b_step, depth, c_at, dw_row, ADD, 0,
                                                0, channels,
                                            )  # fmt: skip
                                        heights += height
                                    done += heights * taps * depth * min(panel_width, channels)
    return done
