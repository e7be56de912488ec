"""Sk-dilated-V2 for few input channels (stems): the taps of a filter row, with their channels, are a product's rows.

Tap by tap, as ``leap`` works, three channels would fill three lanes of a panel. Here output channels fill the lanes,
and the rows are neighbouring numbers of x: all taps of a filter row that lie inside x at a position, ConvV2's trim.
Positions of one trim along the row are summed together. No zero is multiplied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.board import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.kernels.microkernel import ADD, ROWS, copy_panels, copy_vectors, outer_product

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class TapRows(NamedTuple):
    """Filter rows, and classes of output columns by their trim."""

    first: Int64s
    """A filter row's first output row; its others follow."""
    end: Int64s
    column: Int64s
    """A class's first output column; its others follow."""
    columns: Int64s
    tap: Int64s
    """Its first tap."""
    height_start: Int64s
    """Its products' rows are cut into heights[height_start[c]..height_start[c + 1]]."""
    heights: Int64s


class TapRowsSizes(NamedTuple):
    """Sizes and byte steps of a problem; channels are those of a group."""

    images: int
    part: int
    """Images a part; each part sums into a filter of its own."""
    chunk: int
    """Images that are copied at a time."""
    row_chunk: int
    """Output rows likewise."""
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
    dy_bytes: int


@compiled
def tap_rows(tag, counter, tables, sizes, x, dy, dw):  # type: ignore[no-untyped-def]
    """The filter gradient; ``dw`` is an array (parts, groups, FH, FW * IC, OC). A task is a part and a group.

    Returns the multiply-adds that it computed.
    """
    parts, groups = dw.shape[0], dw.shape[1]
    done = 0
    pixel = sizes.in_channels * sizes.item
    panel_row = sizes.panel * sizes.item
    dw_row = sizes.out_channels * sizes.item
    most = sizes.row_chunk * max(sizes.column_chunk, sizes.chunk)
    x_copy = np.empty(sizes.x_bytes, np.uint8)
    dy_copy = np.empty(sizes.dy_bytes, np.uint8)
    from_x = np.empty(most, np.int64)
    from_dy = np.empty(most, np.int64)
    while True:
        task = take_task(counter.ctypes.data)
        if task >= parts * groups:
            break
        # Taken anew for each task: Numba frees an array after its last use, and does not know of addresses.
        x_base = (x_copy.ctypes.data + 63) // 64 * 64
        dy_base = (dy_copy.ctypes.data + 63) // 64 * 64
        part = task // groups
        group = task - part * groups
        filters = dw[part, group]
        filters[:] = 0
        end = min((part + 1) * sizes.part, sizes.images)
        for image in range(part * sizes.part, end, sizes.chunk):
            count = min(sizes.chunk, end - image)
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
                for panel in range(0, sizes.out_channels, sizes.panel):
                    for o in range(low, high):
                        for q in range(sizes.output_columns):
                            copy_panels(
                                tag,
                                dy_at + o * sizes.dy_row + q * sizes.dy_column + panel * sizes.item,
                                sizes.dy_image,
                                dy_base + ((o - low) * sizes.output_columns + q) * count * panel_row,
                                panel_row,
                                count,
                            )
                    for row in range(tables.first.size):
                        first, last = max(low, tables.first[row]), min(high, tables.end[row])
                        if first >= last:
                            continue
                        for c in range(tables.column.size):
                            left, right = tables.column[c], tables.column[c] + tables.columns[c]
                            taps_from = tables.tap[c]
                            for q in range(left, right, sizes.column_chunk):
                                across = min(sizes.column_chunk, right - q)
                                by_image = count >= across
                                taps = 0
                                for o in range(first, last):
                                    above = (
                                        o * sizes.stride_rows - sizes.padding_rows + row * sizes.dilation_rows - row_low
                                    ) * count
                                    beside = q * sizes.stride_columns - sizes.padding_columns + taps_from
                                    x_row = above * sizes.copy_row + beside * pixel
                                    dy_row = ((o - low) * sizes.output_columns + q) * count * panel_row
                                    if by_image:
                                        for k in range(across):
                                            from_x[taps] = x_row + k * sizes.stride_columns * pixel
                                            from_dy[taps] = dy_row + k * count * panel_row
                                            taps += 1
                                    else:
                                        for k in range(count):
                                            from_x[taps] = x_row + k * sizes.copy_row
                                            from_dy[taps] = dy_row + k * panel_row
                                            taps += 1
                                done_rows = 0
                                into = filters[row].ctypes.data + panel * sizes.item
                                for h in range(tables.height_start[c], tables.height_start[c + 1]):
                                    outer_product(
                                        tag,
                                        sizes.item,
                                        tables.heights[h],
                                        x_base + done_rows * sizes.item,
                                        ROWS * sizes.item,
                                        from_x.ctypes.data,
                                        dy_base,
                                        from_dy.ctypes.data,
                                        taps,
                                        sizes.copy_row if by_image else sizes.stride_columns * pixel,
                                        panel_row if by_image else count * panel_row,
                                        count if by_image else across,
                                        into + (taps_from * sizes.in_channels + done_rows) * dw_row,
                                        dw_row,
                                        ADD,
                                        sizes.out_channels - panel,
                                    )
                                    done_rows += tables.heights[h]
                                done += (
                                    done_rows
                                    * (last - first)
                                    * across
                                    * count
                                    * min(sizes.panel, sizes.out_channels - panel)
                                )
    return done
