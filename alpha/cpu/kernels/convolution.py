"""Kernels of the three convolution operators: each walks tables of taps and calls the micro-kernel.

Addresses arrive as integers: plans (``alpha/cpu/conv/``) have checked that every offset stays inside its tensor.
Each returns the multiply-adds that it computed, counted where they are issued.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import (
    ACTIVATE,
    ADD,
    STORE,
    copy_panels,
    copy_rows,
    copy_vectors,
    narrow_outer_product,
    outer_product,
    panel_product,
)
from alpha.cpu.kernels.vectors import transpose

VECTOR_BYTES = ISA.bytes
PANEL_BYTES = ISA.vectors * ISA.bytes

Int64s = Any  # np.ndarray of int64; Numba types it by the value


COUNT, SOURCE, OTHER = range(3)
"""Rows of an ``AxisTable``'s pairs."""


class AxisTable(NamedTuple):
    """The pairs of an axis: of index i (source + k * source_step, other + k * other_step), k < count, by column i."""

    pairs: Int64s
    """(3, indices): the number of pairs, and for the first pair the offset of its element in the tensor that is read
    and of its tap in the packed filter, in bytes. For the weight's gradient, instead of offsets, indices in x and
    dy."""
    source_step: int
    other_step: int


class GatherSizes(NamedTuple):
    """Sizes and byte steps of a forward or input-gradient problem."""

    images: int
    chunk: int
    """Images per task."""
    columns: int
    """Positions in a row of the result."""
    groups: int
    depth: int
    """Channels summed per tap and group."""
    channels: int
    """Channels of the result per group."""
    panel: int
    """Channels per filter panel."""
    tap_block: int
    """Taps whose products are summed before the result is stored."""
    depth_block: int
    """Channels whose products are summed before the result is stored."""
    item: int
    source_image: int
    target_image: int
    target_row: int
    target_column: int
    panel_bytes: int


@compiled
def gather(  # type: ignore[no-untyped-def]
    counter, tag, order, rows, columns, runs, sizes, x, w, y, mode, bias, residual
):
    """ConvV2 and KS-deconv-V2: each result position is the sum of its taps' products; no other product is computed.

    A task is a position and a chunk of images; positions are drawn in ``order``. ``runs[c]`` multiplies the depth of
    column c: where a filter's taps along a row and their channels are contiguous, a whole run is one tap.
    """
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    tasks = order.size * chunks
    longest = 0
    for i in range(rows.pairs.shape[1]):
        longest = max(longest, rows.pairs[COUNT, i])
    widest = 0
    for i in range(columns.pairs.shape[1]):
        widest = max(widest, columns.pairs[COUNT, i])
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    done = 0
    from_x = np.empty(longest * widest + 1, np.int64)
    from_w = np.empty(longest * widest + 1, np.int64)
    while True:
        task = take_task(counter)
        if task >= tasks:
            break
        position = order[task // chunks]
        first = (task % chunks) * sizes.chunk
        count = min(sizes.chunk, sizes.images - first)
        row = position // sizes.columns
        column = position - row * sizes.columns
        taps = 0
        for i in range(rows.pairs[COUNT, row]):
            line = rows.pairs[SOURCE, row] + i * rows.source_step + columns.pairs[SOURCE, column]
            tap_line = rows.pairs[OTHER, row] + i * rows.other_step + columns.pairs[OTHER, column]
            for j in range(columns.pairs[COUNT, column]):
                from_x[taps] = line + j * columns.source_step
                from_w[taps] = tap_line + j * columns.other_step
                taps += 1
        depth = sizes.depth * runs[column]
        source = x + first * sizes.source_image
        target = y + row * sizes.target_row + column * sizes.target_column + first * sizes.target_image
        for group in range(sizes.groups):
            for panel in range(panels):
                channel = panel * sizes.panel
                at = (group * sizes.channels + channel) * sizes.item
                filters = w + (group * panels + panel) * sizes.panel_bytes
                # A block of filters that fits into the L1 cache is multiplied with all rows before the next block is.
                # A position without taps has one empty block: its result is zero, or the bias.
                block_mode, added = mode & ~ACTIVATE, residual
                tap = k = 0
                while True:
                    next_k = k + sizes.depth_block
                    next_tap = tap
                    if next_k >= depth:
                        next_k = 0
                        next_tap += sizes.tap_block
                    last = next_k == 0 and next_tap >= taps
                    panel_product(
                        tag,
                        count,
                        source + (group * sizes.depth + k) * sizes.item,
                        from_x.ctypes.data + 8 * tap,
                        filters + k * sizes.panel * sizes.item,
                        from_w.ctypes.data + 8 * tap,
                        min(sizes.tap_block, taps - tap),
                        sizes.source_image,
                        sizes.panel * sizes.item,
                        min(sizes.depth_block, depth - k),
                        target + at,
                        sizes.target_image,
                        block_mode | (mode & ACTIVATE) if last else block_mode,
                        bias + at,
                        added,
                        sizes.channels - channel,
                    )
                    if last:
                        break
                    block_mode, added = ADD, 0
                    k, tap = next_k, next_tap
        done += taps * depth * count * sizes.channels * sizes.groups
    return done


class LeapSizes(NamedTuple):
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


class PackSizes(NamedTuple):
    """What ``leap`` needs to copy a chunk: steps in bytes, arithmetic of rows and columns, sizes of the copies."""

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
def leap(counter, tag, rows, columns, sizes, pack, x, dy, dw):  # type: ignore[no-untyped-def]
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
    stride = pack.column_stride
    row_blocks = (sizes.output_rows + sizes.row_chunk - 1) // sizes.row_chunk
    column_blocks = (pack.output_columns + sizes.column_chunk - 1) // sizes.column_chunk
    x_copy = np.empty(pack.x_bytes, np.uint8)
    dy_copy = np.empty(pack.dy_bytes, np.uint8)
    from_x = np.empty(sizes.row_chunk, np.int64)
    from_dy = np.empty(sizes.row_chunk, np.int64)
    while True:
        task = take_task(counter)
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
                top = output * pack.stride - pack.padding
                band_height = (output_end - output - 1) * pack.stride + pack.band_extent
                left = block % column_blocks * sizes.column_chunk
                right = min(left + sizes.column_chunk, pack.output_columns)
                low_column = max(0, left * stride - pack.column_padding)
                high_column = min(pack.input_columns, (right - 1) * stride - pack.column_padding + pack.column_extent)
                # Copying a tile's row writes up to a vector beyond its end: the gap protects the next tile's copy.
                dy_block = (output_end - output) * (right - left) * count * tile_row + TILE_GAP_BYTES
                for o in range(output, output_end):
                    for c in range(left, right):
                        source = dy_at + o * pack.dy_row + c * pack.dy_column
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
                    for row in range(pack.bands * pack.band_rows):
                        first = top + row // pack.band_rows * pack.band_step
                        i = max(0, first) + row % pack.band_rows
                        if i >= min(pack.input_rows, first + band_height):
                            continue
                        for phase in range(min(stride, high_column - low_column)):
                            source = x_at + i * pack.x_row + (low_column + phase) * pack.x_column + panel * sizes.item
                            target = x_base + (row * stride + phase) * slots * count * panel_row
                            phase_columns = (high_column - low_column - phase + stride - 1) // stride
                            # The longer loop is the inner one, except that pieces of a narrow panel, each of which
                            # writes beyond its end, must be written in order.
                            if count < MIN_LOOP_IMAGES and panel_row == PANEL_BYTES:
                                for n in range(count):
                                    copy_panels(
                                        tag,
                                        source + n * sizes.x_image,
                                        stride * pack.x_column,
                                        target + n * panel_row,
                                        count * panel_row,
                                        phase_columns,
                                    )
                            else:
                                for c in range(phase_columns):
                                    copy_panels(
                                        tag,
                                        source + c * stride * pack.x_column,
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
                        band = min(tap_row, pack.bands - 1)
                        row_shift = band * pack.band_rows - max(0, top + band * pack.band_step)
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


PART_NUMBERS = 16384
"""Numbers per task of ``add_parts``."""


@compiled
def add_parts(counter, parts, total):  # type: ignore[no-untyped-def]
    """total[i] = sum over p of parts[p, i], in the order of p."""
    count = total.size
    tasks = (count + PART_NUMBERS - 1) // PART_NUMBERS
    while True:
        task = take_task(counter)
        if task >= tasks:
            break
        for i in range(task * PART_NUMBERS, min((task + 1) * PART_NUMBERS, count)):
            value = parts[0, i]
            for p in range(1, parts.shape[0]):
                value += parts[p, i]
            total[i] = value


@compiled
def spread(counter, tag, images, x, step, out, out_step, nbytes):  # type: ignore[no-untyped-def]
    """Copies images of ``nbytes`` contiguous bytes to places further apart; writes up to 63 bytes beyond each."""
    while True:
        image = take_task(counter)
        if image >= images:
            break
        copy_vectors(tag, x + image * step, 64, out + image * out_step, 64, (nbytes + 63) // 64, 64)
    return 0


ROW_BLOCK = 8
"""Output channels per task of ``pack_by_input``."""


@compiled
def pack_by_output(counter, w, packed):  # type: ignore[no-untyped-def]
    """Packs filters (G, OC, T, IC) by output channels: (G, panels, T, IC, panel); zeros fill the last panel."""
    groups, panels, taps, depth, width = packed.shape
    channels = w.shape[1]
    tasks = groups * panels * taps
    zero, item = w.dtype.type(0), w.itemsize
    lanes = VECTOR_BYTES // item
    while True:
        task = take_task(counter)
        if task >= tasks:
            break
        group = task // (panels * taps)
        panel = task // taps % panels
        tap = task % taps
        base = panel * width
        full = min(width, channels - base)
        whole_lanes, whole_depth = full // lanes * lanes, depth // lanes * lanes
        for k in range(0, whole_depth, lanes):
            for lane in range(0, whole_lanes, lanes):
                transpose(
                    zero,
                    w.ctypes.data + (((group * channels + base + lane) * taps + tap) * depth + k) * item,
                    taps * depth * item,
                    packed.ctypes.data + ((task * depth + k) * width + lane) * item,
                    width * item,
                    lanes,
                )
        for lane in range(full):
            for k in range(whole_depth if lane < whole_lanes else 0, depth):
                packed[group, panel, tap, k, lane] = w[group, base + lane, tap, k]
        for k in range(depth):
            for lane in range(full, width):
                packed[group, panel, tap, k, lane] = zero


@compiled
def pack_by_input(counter, w, packed):  # type: ignore[no-untyped-def]
    """Packs filters (G, OC, T, IC) by input channels: (G, panels, T, OC, panel); zeros fill the last panel.

    A task takes ROW_BLOCK output channels: it reads that many streams and writes that many rows at a time.
    """
    groups, panels, taps, depth, width = packed.shape
    channels = w.shape[3]
    blocks = (depth + ROW_BLOCK - 1) // ROW_BLOCK
    zero = w.dtype.type(0)
    while True:
        task = take_task(counter)
        if task >= groups * blocks:
            break
        group = task // blocks
        first = task % blocks * ROW_BLOCK
        last = min(first + ROW_BLOCK, depth)
        for tap in range(taps):
            for panel in range(panels):
                base = panel * width
                full = min(width, channels - base)
                for k in range(first, last):
                    if full == width:
                        for lane in range(width):
                            packed[group, panel, tap, k, lane] = w[group, k, tap, base + lane]
                    else:
                        for lane in range(full):
                            packed[group, panel, tap, k, lane] = w[group, k, tap, base + lane]
                        for lane in range(full, width):
                            packed[group, panel, tap, k, lane] = zero
