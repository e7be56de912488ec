"""Sk-dilated-V2 by taps: each tap's filter element is a product over the positions where the tap lies inside x."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import (
    ADD,
    STORE,
    copy_panels,
    copy_rows,
    narrow_outer_product,
    outer_product,
)
from alpha.cpu.kernels.tables import COUNT, OTHER, SOURCE

VECTOR_BYTES = ISA.bytes
PANEL_BYTES = ISA.vectors * ISA.bytes


class TapsSizes(NamedTuple):
    """Sizes and byte steps of a weight-gradient problem."""

    images: int
    part: int
    """Images per part; each part sums into a filter gradient that no other part writes."""
    chunk: int
    """Images whose taps are summed at a time."""
    output_rows: int
    row_chunk: int
    """Output rows whose taps are summed at a time."""
    column_chunk: int
    """Output columns whose taps are summed at a time: all of them where ``row_chunk`` is several rows."""
    groups: int
    in_channels: int
    out_channels: int
    slice: int
    """Output channels per task."""
    panels: int
    """Panels of input channels per task."""
    panel: int
    tile: int
    """Rows of a whole register tile: output channels."""
    item: int
    x_image: int
    dy_image: int
    out_channel: int
    """Bytes from one output channel's filter to the next."""
    tap_row: int
    """Bytes from one filter row to the next."""
    filter_bytes: int


TILE_GAP_BYTES = 64
"""Bytes between the copies of dy for neighbouring tiles."""


MIN_LOOP_IMAGES = 8
"""Fewer images than this are not worth an inner loop over images."""


class CopySizes(NamedTuple):
    """What ``taps`` needs to copy a chunk: steps in bytes, arithmetic of rows and columns, sizes of the copies."""

    input_rows: int
    input_columns: int
    output_columns: int
    stride: int
    """The stride along rows."""
    padding: int
    bands: int
    """Bands of rows of x that are copied: one band of all that a chunk's taps read, or one band per tap row."""
    band_rows: int
    """Rows of a whole chunk's band."""
    band_extent: int
    """Rows that one output row reads in a band."""
    band_step: int
    """Rows from one band's first row to the next band's."""
    column_stride: int
    column_padding: int
    column_extent: int
    x_row: int
    x_column: int
    dy_row: int
    dy_column: int
    x_bytes: int
    dy_bytes: int


@compiled
def taps(share, tag, rows, columns, sizes, copies, x, dy, dw):  # type: ignore[no-untyped-def]
    """Sk-dilated-V2: each tap's filter element is the sum over the positions where the tap lies inside x.

    A task is a part of the images, a slice of the output channels and some panels of input channels. A tap's pairs lie
    in successive output rows and columns. Filters of taps without pairs must be zero beforehand.

    A chunk's x and dy are copied into the order in which taps and tiles read them: in place, images are a power of two
    bytes apart, so that a panel's lines would share few sets of the L1 cache. Columns of x are grouped by their
    remainder of the stride, so that those of a tap lie next to each other and all pairs of a row are one run.
    """
    parts = (sizes.images + sizes.part - 1) // sizes.part
    slices = (sizes.out_channels + sizes.slice - 1) // sizes.slice
    shared = sizes.panels * sizes.panel
    chunks = (sizes.in_channels + shared - 1) // shared
    tasks = parts * sizes.groups * slices * chunks
    done = 0
    panel_row = sizes.panel * sizes.item
    tile_row = sizes.tile * sizes.item
    stride = copies.column_stride
    row_blocks = (sizes.output_rows + sizes.row_chunk - 1) // sizes.row_chunk
    column_blocks = (copies.output_columns + sizes.column_chunk - 1) // sizes.column_chunk
    x_copy = np.empty(copies.x_bytes, np.uint8)
    dy_copy = np.empty(copies.dy_bytes, np.uint8)
    from_x = np.empty(sizes.row_chunk, np.int64)
    from_dy = np.empty(sizes.row_chunk, np.int64)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        # Taken again for each task: Numba frees an array after its last use, and does not count uses of its address.
        x_base = (x_copy.ctypes.data + 63) // 64 * 64
        dy_base = (dy_copy.ctypes.data + 63) // 64 * 64
        part = task // (sizes.groups * slices * chunks)
        group = task // (slices * chunks) % sizes.groups
        low = task // chunks % slices * sizes.slice
        first_channel = task % chunks * shared
        height = min(low + sizes.slice, sizes.out_channels) - low
        tiles = (height + sizes.tile - 1) // sizes.tile
        channel = group * sizes.out_channels + low
        end = min((part + 1) * sizes.part, sizes.images)
        filters = dw + part * sizes.filter_bytes + channel * sizes.out_channel
        for image in range(part * sizes.part, end, sizes.chunk):
            count = min(sizes.chunk, end - image)
            x_at = x + image * sizes.x_image + group * sizes.in_channels * sizes.item
            dy_at = dy + image * sizes.dy_image + channel * sizes.item
            for block in range(row_blocks * column_blocks):
                output = block // column_blocks * sizes.row_chunk
                output_end = min(output + sizes.row_chunk, sizes.output_rows)
                top = output * copies.stride - copies.padding
                band_height = (output_end - output - 1) * copies.stride + copies.band_extent
                left = block % column_blocks * sizes.column_chunk
                right = min(left + sizes.column_chunk, copies.output_columns)
                low_column = max(0, left * stride - copies.column_padding)
                high_column = min(
                    copies.input_columns, (right - 1) * stride - copies.column_padding + copies.column_extent
                )
                # Copying a tile's row writes up to a vector beyond its end: the gap protects the next tile's copy.
                dy_block = (output_end - output) * (right - left) * count * tile_row + TILE_GAP_BYTES
                for o in range(output, output_end):
                    for c in range(left, right):
                        source = dy_at + o * copies.dy_row + c * copies.dy_column
                        target = dy_base + ((o - output) * (right - left) + c - left) * count * tile_row
                        if tiles < count:
                            for t in range(tiles):
                                copy_rows(
                                    tag, source + t * tile_row, sizes.dy_image, target + t * dy_block, tile_row, count
                                )
                        else:
                            for n in range(count):
                                copy_rows(
                                    tag, source + n * sizes.dy_image, tile_row, target + n * tile_row, dy_block, tiles
                                )
                slots = (high_column - low_column + stride - 1) // stride
                for panel in range(first_channel, min(first_channel + shared, sizes.in_channels), sizes.panel):
                    for row in range(copies.bands * copies.band_rows):
                        first = top + row // copies.band_rows * copies.band_step
                        i = max(0, first) + row % copies.band_rows
                        if i >= min(copies.input_rows, first + band_height):
                            continue
                        for phase in range(min(stride, high_column - low_column)):
                            source = (
                                x_at + i * copies.x_row + (low_column + phase) * copies.x_column + panel * sizes.item
                            )
                            target = x_base + (row * stride + phase) * slots * count * panel_row
                            phase_columns = (high_column - low_column - phase + stride - 1) // stride
                            # The longer loop is the inner one, except that pieces of a narrow panel, each of which
                            # writes beyond its end, must be written in order.
                            if count < MIN_LOOP_IMAGES and panel_row == PANEL_BYTES:
                                for n in range(count):
                                    copy_panels(
                                        tag,
                                        source + n * sizes.x_image,
                                        stride * copies.x_column,
                                        target + n * panel_row,
                                        count * panel_row,
                                        phase_columns,
                                    )
                            else:
                                for c in range(phase_columns):
                                    copy_panels(
                                        tag,
                                        source + c * stride * copies.x_column,
                                        sizes.x_image,
                                        target + c * count * panel_row,
                                        panel_row,
                                        count,
                                    )
                    for tap_row in range(rows.pairs.shape[1]):
                        first_row = rows.pairs[OTHER, tap_row]
                        i0 = max(first_row, output)
                        i1 = min(first_row + rows.pairs[COUNT, tap_row], output_end)
                        if i1 <= i0:
                            continue
                        band = min(tap_row, copies.bands - 1)
                        row_shift = band * copies.band_rows - max(0, top + band * copies.band_step)
                        for q in range(columns.pairs.shape[1]):
                            first_column = columns.pairs[OTHER, q]
                            j0 = max(first_column, left)
                            j1 = min(first_column + columns.pairs[COUNT, q], right)
                            if j1 <= j0:
                                continue
                            column = columns.pairs[SOURCE, q] + (j0 - first_column) * columns.source_step - low_column
                            slot = column % stride * slots + column // stride
                            for i in range(i0, i1):
                                line = rows.pairs[SOURCE, tap_row] + (i - first_row) * rows.source_step
                                x_row = (line + row_shift) * stride * slots
                                dy_row = (i - output) * (right - left)
                                from_x[i - i0] = (x_row + slot) * count * panel_row
                                from_dy[i - i0] = (dy_row + j0 - left) * count * tile_row
                            # A tap's first pairs overwrite whatever its filter element held.
                            fresh = image == part * sizes.part and i0 == first_row and j0 == first_column
                            add = STORE if fresh else ADD
                            at = filters + tap_row * sizes.tap_row + (q * sizes.in_channels + panel) * sizes.item
                            terms, channels = count * (j1 - j0), sizes.in_channels - panel
                            # Constant steps of x's copy: with variable ones the compiler keeps one more pointer per
                            # loop.
                            if panel_row == PANEL_BYTES:
                                outer_product(
                                    tag, height, dy_block, dy_base, from_dy.ctypes.data, x_base, from_x.ctypes.data,
                                    i1 - i0, tile_row, PANEL_BYTES, terms, at, sizes.out_channel, add, 0, 0, channels,
                                )  # fmt: skip
                            else:
                                narrow_outer_product(
                                    tag, height, dy_block, dy_base, from_dy.ctypes.data, x_base, from_x.ctypes.data,
                                    i1 - i0, tile_row, VECTOR_BYTES, terms, at, sizes.out_channel, add, 0, 0, channels,
                                )  # fmt: skip
                            done += (i1 - i0) * terms * height * min(sizes.panel, channels)
    return done
