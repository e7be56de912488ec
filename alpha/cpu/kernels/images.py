"""ConvV2 and KS-deconv-V2 by result positions: the images at a position are the rows of a matrix product.

Addresses arrive as integers: the plans of ``alpha/cpu/conv/`` have checked that every offset stays inside its tensor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, panel_product
from alpha.cpu.kernels.tables import COUNT, OTHER, SOURCE


class ImagesSizes(NamedTuple):
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
def images(  # type: ignore[no-untyped-def]
    share, tag, order, rows, columns, runs, sizes, x, w, y, mode, bias, residual
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
        task = draw_task(share, tasks)
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
