"""ConvV2 and KS-deconv-V2 for few images and large filters: a task applies a panel of the filters to all rows.

``positions`` reads a filter's taps anew for each pattern of them, from memory where the caches do not hold the filters,
and where a map is small few positions have the same pattern. Here each tap meets all positions that it reaches at once,
and adds to their results: a filter is read once, and tiles are full (the untangling of HUGE2, arXiv 1907.11210).
Where filters are not packed yet, a task packs a block of its channels into a buffer that stays in the L2 cache, instead
of writing packed filters to memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, copy_panels, scattered_product, scattered_rows
from alpha.cpu.kernels.positions import addresses, residual_addresses, tap_offsets
from alpha.cpu.kernels.vectors import transpose

ISA_BYTES = ISA.bytes

BY_INPUT, BY_OUTPUT, PACKED = range(3)
"""Layout of the filters: unpacked, for the kernel to pack for an input gradient or a convolution; or packed already."""


class PanelSizes(NamedTuple):
    """Sizes and byte steps of a problem whose panels and vectors are all whole."""

    groups: int
    depth: int
    """Channels summed per tap and group."""
    channels: int
    """Channels of the result per group."""
    panel: int
    """Channels per filter panel; a panel is a task."""
    rows: int
    """Most rows per block."""
    taps: int
    """Taps of the filter."""
    depth_block: int
    """Channels whose filters the kernel packs at a time; their products are summed, then added to the result."""
    chunk: int
    """Channels whose products are summed at a time where the filters are packed already."""
    item: int
    source_image: int
    target_image: int


@inlined
def pack_by_output(tag, sizes, w, channel, k, depth, target):  # type: ignore[no-untyped-def]
    """Packs a panel of output channels: for each tap a matrix (depth, panel) of the input channels from k on."""
    lanes = ISA_BYTES // sizes.item
    filter_bytes = sizes.taps * sizes.depth * sizes.item
    panel_row = sizes.panel * sizes.item
    for tap in range(sizes.taps):
        for first in range(0, sizes.panel, lanes):
            source = w + (channel + first) * filter_bytes + (tap * sizes.depth + k) * sizes.item
            to = target + tap * sizes.depth_block * panel_row + first * sizes.item
            for i in range(0, depth, lanes):
                transpose(tag, source + i * sizes.item, filter_bytes, to + i * panel_row, panel_row, lanes)


@inlined
def pack_by_input(tag, sizes, w, row, channel, depth, target):  # type: ignore[no-untyped-def]
    """Packs a panel of input channels: for each tap a matrix (depth, panel) of the output channels from ``row`` on."""
    tap_row = sizes.channels * sizes.item
    panel_row = sizes.panel * sizes.item
    for tap in range(sizes.taps):
        source = w + (row * sizes.taps + tap) * tap_row + channel * sizes.item
        to = target + tap * sizes.depth_block * panel_row
        copy_panels(tag, source, sizes.taps * tap_row, to, panel_row, depth)


@compiled
def panels(  # type: ignore[no-untyped-def]
    share, tag, kind, blocks, rows, columns, sizes, x, w, y, mode, bias, residual
):
    """Adds the products of all taps to the result. A task is a panel.

    ``blocks`` is a table of ``Block``; w are the filters, (OC, T, IC) unpacked, or packed. Offsets of taps are counted
    in taps; a block without taps sets its positions' results to the bias, the residual or zero. Returns the
    multiply-adds that it computed.
    """
    per_group = sizes.channels // sizes.panel
    tile = scattered_rows(sizes.panel * sizes.item)
    panel_row = sizes.panel * sizes.item
    together, chunk = (sizes.depth, sizes.chunk) if kind == PACKED else (sizes.depth_block, sizes.depth_block)
    done = 0
    packed = np.empty(64 if kind == PACKED else sizes.taps * together * panel_row + 64, np.uint8)
    sources = np.empty(sizes.rows + tile, np.int64)
    targets = np.empty(sizes.rows + tile, np.int64)
    residuals = np.empty(sizes.rows + tile, np.int64)
    from_x = np.empty(2, np.int64)
    from_w = np.empty(2, np.int64)
    nowhere = np.zeros(sizes.groups * sizes.channels * sizes.item, np.uint8)
    while True:
        panel = draw_task(share, sizes.groups * per_group)
        if panel >= sizes.groups * per_group:
            break
        # Taken again for each task: Numba frees an array after its last use, and does not count uses of its address.
        filters = (packed.ctypes.data + 63) // 64 * 64
        group = panel // per_group
        channel = (panel - group * per_group) * sizes.panel
        at = (group * sizes.channels + channel) * sizes.item
        for first in range(0, sizes.depth, together):
            depth = min(together, sizes.depth - first)
            if kind == PACKED:
                filters = w + panel * sizes.taps * together * panel_row
            elif kind == BY_OUTPUT:
                pack_by_output(tag, sizes, w, group * sizes.channels + channel, first, depth, filters)
            else:
                pack_by_input(tag, sizes, w, group * sizes.depth + first, channel, depth, filters)
            activates = first + depth == sizes.depth and mode & ACTIVATE != 0
            # Blocks without taps begin the results; after the last channels a second pass over them activates.
            for index in range(blocks.shape[0] + (blocks.shape[0] if activates else 0)):
                closing = index >= blocks.shape[0]
                block = blocks[index - blocks.shape[0] if closing else index]
                opening = block[0] == 0
                if (opening and first > 0 and not closing) or (closing and not opening):
                    continue
                count = block[3]
                addresses(rows, columns, block, tile, sizes, x, y, sources, targets, nowhere.ctypes.data)
                taps = tap_offsets(rows, columns, block, from_x, from_w)
                from_w[0] *= together * panel_row
                added, how = targets.ctypes.data, ADD
                if closing:
                    how = ADD | ACTIVATE
                elif opening:
                    residual_addresses(targets, residual, count, tile, residuals)
                    added, how = residuals.ctypes.data, mode & ~ACTIVATE
                for k in range(0, 1 if opening else depth, chunk):
                    for m in range(0, count, tile):
                        scattered_product(
                            tag,
                            (group * sizes.depth + first + k) * sizes.item,
                            from_x.ctypes.data,
                            filters + k * panel_row,
                            from_w.ctypes.data,
                            taps,
                            sources.ctypes.data + 8 * m,
                            panel_row,
                            min(chunk, depth - k),
                            at,
                            targets.ctypes.data + 8 * m,
                            how,
                            bias + at,
                            added + 8 * m,
                            sizes.panel,
                        )
                done += taps * depth * count * sizes.panel
    return done
