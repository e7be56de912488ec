"""ConvV2 and KS-deconv-V2 for few images: the result positions that share a trim are the rows of a matrix product.

``images`` multiplies one position's images at a time; here the rows are positions and images, wherever they lie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, scattered_product, scattered_rows

Int64s = Any  # np.ndarray of int64; Numba types it by the value


TAPS, RUNS, OTHER, COUNT, SOURCE, SOURCE_STEP, TARGET, TARGET_STEP = range(8)
"""Rows of the table of an axis' ``Patterns``."""


class Patterns(NamedTuple):
    """Sets of an axis' positions that have the same taps and lie a step apart, as their sources do; offsets in bytes.

    Tap k of a pattern lies k * tap_step beyond the first one's source, and at ``OTHER`` + k * other_step in the filter.
    Its position j has its first source at ``SOURCE`` + j * ``SOURCE_STEP`` and its result at ``TARGET`` + j *
    ``TARGET_STEP``.
    """

    table: Int64s
    """(8, patterns). ``RUNS``: how many taps are contiguous with their channels, and count as one; ``COUNT``: how many
    positions a pattern has."""
    tap_step: int
    other_step: int


class PositionSizes(NamedTuple):
    """Sizes and byte steps of a problem."""

    images: int
    groups: int
    depth: int
    """Channels summed per tap and group."""
    channels: int
    """Channels of the result per group."""
    panel: int
    """Channels per filter panel."""
    panels: int
    """Panels per task."""
    together: int
    """Panels of a task that are multiplied with all its blocks before the next ones are."""
    blocks: int
    """Blocks per task."""
    rows: int
    """Most rows per block."""
    most_taps: int
    tap_block: int
    depth_block: int
    item: int
    source_image: int
    target_image: int
    panel_bytes: int


class Block(NamedTuple):
    """Columns of a table of blocks.

    A block's rows are the images of positions that share a row and a column pattern.
    """

    row_pattern: int
    column_pattern: int
    first: int
    """The block's first row, counted over the positions of its two patterns and these images."""
    rows: int
    image: int
    images: int


@inlined
def addresses(rows, columns, block, tile, sizes, x, y, sources, targets, nowhere):  # type: ignore[no-untyped-def]
    """Fills in the addresses of a block's rows in x and y; a last tile's missing rows read the first and write
    nowhere."""
    r, c, count, images = block[0], block[1], block[3], block[5]
    positions_per_row = columns.table[COUNT, c]
    position = block[2] // images
    image = block[2] - position * images
    i = position // positions_per_row
    j = position - i * positions_per_row
    for m in range(count):  # a division per row would take as long as a good part of its products
        source = (
            rows.table[SOURCE, r]
            + i * rows.table[SOURCE_STEP, r]
            + columns.table[SOURCE, c]
            + j * columns.table[SOURCE_STEP, c]
        )
        target = (
            rows.table[TARGET, r]
            + i * rows.table[TARGET_STEP, r]
            + columns.table[TARGET, c]
            + j * columns.table[TARGET_STEP, c]
        )
        sources[m] = x + source + (block[4] + image) * sizes.source_image
        targets[m] = y + target + (block[4] + image) * sizes.target_image
        image += 1
        if image == images:
            image = 0
            j += 1
            if j == positions_per_row:
                j = 0
                i += 1
    for m in range(count, (count + tile - 1) // tile * tile):
        sources[m] = sources[0]
        targets[m] = nowhere


@inlined
def residual_addresses(targets, residual, count, tile, residuals):  # type: ignore[no-untyped-def]
    """Fills in the addresses of what is added to a block's rows: ``residual`` bytes from them."""
    for m in range((count + tile - 1) // tile * tile):
        residuals[m] = targets[m] + residual if m < count else targets[m]


@inlined
def tap_offsets(rows, columns, block, from_x, from_w):  # type: ignore[no-untyped-def]
    """Fills in the offsets of a block's taps in x and in the filter; returns how many there are."""
    r, c = block[0], block[1]
    taps = 0
    for i in range(rows.table[TAPS, r]):
        for j in range(columns.table[TAPS, c]):
            from_x[taps] = i * rows.tap_step + j * columns.tap_step
            from_w[taps] = rows.table[OTHER, r] + i * rows.other_step + columns.table[OTHER, c] + j * columns.other_step
            taps += 1
    return taps


@compiled
def positions(  # type: ignore[no-untyped-def]
    share, tag, blocks, rows, columns, sizes, x, w, y, mode, bias, residual
):
    """Computes the result of all positions. A task is some blocks and some panels; ``blocks`` is a table of ``Block``.

    Tasks that share panels follow each other. Returns how many multiply-adds it computed.
    """
    panels = sizes.groups * ((sizes.channels + sizes.panel - 1) // sizes.panel)
    per_group = panels // sizes.groups
    groups = (blocks.shape[0] + sizes.blocks - 1) // sizes.blocks
    tasks = groups * ((panels + sizes.panels - 1) // sizes.panels)
    tile = scattered_rows(sizes.panel * sizes.item)
    done = 0
    sources = np.empty(sizes.rows + tile, np.int64)
    targets = np.empty(sizes.rows + tile, np.int64)
    residuals = np.empty(sizes.rows + tile, np.int64)
    from_x = np.empty(sizes.most_taps + 1, np.int64)
    from_w = np.empty(sizes.most_taps + 1, np.int64)
    nowhere = np.zeros((sizes.groups * sizes.channels + sizes.panel) * sizes.item, np.uint8)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first_panel = task // groups * sizes.panels
        first_block = task % groups * sizes.blocks
        last_panel = min(first_panel + sizes.panels, panels)
        for first in range(first_panel, last_panel, sizes.together):
            for index in range(first_block, min(first_block + sizes.blocks, blocks.shape[0])):
                block = blocks[index]
                count = block[3]
                addresses(rows, columns, block, tile, sizes, x, y, sources, targets, nowhere.ctypes.data)
                residual_addresses(targets, residual, count, tile, residuals)
                taps = tap_offsets(rows, columns, block, from_x, from_w)
                depth = sizes.depth * columns.table[RUNS, block[1]]
                for panel in range(first, min(first + sizes.together, last_panel)):
                    group = panel // per_group
                    channel = (panel - group * per_group) * sizes.panel
                    at = (group * sizes.channels + channel) * sizes.item
                    filters = w + panel * sizes.panel_bytes
                    block_mode, added = mode & ~ACTIVATE, residuals.ctypes.data
                    tap = k = 0
                    while True:  # a position without taps has one empty block: its result is zero, or the bias
                        next_k = k + sizes.depth_block
                        next_tap = tap
                        if next_k >= depth:
                            next_k = 0
                            next_tap += sizes.tap_block
                        last = next_k == 0 and next_tap >= taps
                        for m in range(0, count, tile):
                            scattered_product(
                                tag,
                                (group * sizes.depth + k) * sizes.item,
                                from_x.ctypes.data + 8 * tap,
                                filters + k * sizes.panel * sizes.item,
                                from_w.ctypes.data + 8 * tap,
                                min(sizes.tap_block, taps - tap),
                                sources.ctypes.data + 8 * m,
                                sizes.panel * sizes.item,
                                min(sizes.depth_block, depth - k),
                                at,
                                targets.ctypes.data + 8 * m,
                                block_mode | (mode & ACTIVATE) if last else block_mode,
                                bias + at,
                                added + 8 * m,
                                sizes.channels - channel,
                            )
                        if last:
                            break
                        block_mode, added = ADD, targets.ctypes.data
                        k, tap = next_k, next_tap
                    done += taps * depth * count * min(sizes.panel, sizes.channels - channel)
    return done
