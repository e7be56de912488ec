"""ConvV2 and KS-deconv-V2 for few images and large filters: a task meets all rows with the filters it alone reads.

``positions`` reads a filter's taps anew for each pattern of them, from memory where the caches do not hold the filters.
Here a task takes a panel's block of channels, as much as the second cache holds, to all rows before the next block.
Where filters are not packed yet it packs the block into room of its own, in that cache, and not through memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.board import take_task
from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, copy_panels, scattered_product, scattered_rows
from alpha.cpu.kernels.positions import addresses, residuals_beside, tap_offsets
from alpha.cpu.kernels.vectors import transpose

ISA_BYTES = ISA.bytes

BY_INPUT, BY_OUTPUT, PACKED = range(3)
"""What the filters are: as they lie, to be packed for an input gradient or for a convolution; or packed before."""


class PanelSizes(NamedTuple):
    """Sizes and byte steps of a problem whose panels and vectors are all whole."""

    groups: int
    depth: int
    """Channels summed a tap and group."""
    channels: int
    """Channels of the result a group."""
    panel: int
    """Channels a filter panel: of one task."""
    rows: int
    """Rows a block, at most."""
    taps: int
    """Of the filter."""
    tap_block: int
    """Taps whose products are summed before the result is stored."""
    depth_block: int
    """Channels of them, and of the packed filters."""
    item: int
    source_image: int
    target_image: int


@inlined
def pack_by_output(tag, sizes, w, channel, k, depth, target):  # type: ignore[no-untyped-def]
    """Each tap's (depth, panel) of a panel of output channels, of input channels from k on."""
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
    """Each tap's (depth, panel) of a panel of input channels, of output channels from ``row`` on."""
    tap_row = sizes.channels * sizes.item
    panel_row = sizes.panel * sizes.item
    for tap in range(sizes.taps):
        source = w + (row * sizes.taps + tap) * tap_row + channel * sizes.item
        to = target + tap * sizes.depth_block * panel_row
        copy_panels(tag, source, sizes.taps * tap_row, to, panel_row, depth)


@compiled
def panels(  # type: ignore[no-untyped-def]
    counter, tag, kind, blocks, rows, columns, sizes, x, w, y, mode, bias, residual
):
    """``blocks`` is a table of ``Block``; w are the filters, (OC, T, IC) as they lie or packed. A task is a panel.

    Offsets of taps are counted in taps. Returns the multiply-adds that it computed.
    """
    per_group = sizes.channels // sizes.panel
    tile = scattered_rows(sizes.panel * sizes.item)
    panel_row = sizes.panel * sizes.item
    tap_bytes = (sizes.depth if kind == PACKED else sizes.depth_block) * panel_row
    done = 0
    packed = np.empty(64 if kind == PACKED else sizes.taps * tap_bytes + 64, np.uint8)
    sources = np.empty(sizes.rows + tile, np.int64)
    targets = np.empty(sizes.rows + tile, np.int64)
    residuals = np.empty(sizes.rows + tile, np.int64)
    from_x = np.empty(sizes.taps + 1, np.int64)
    from_w = np.empty(sizes.taps + 1, np.int64)
    nowhere = np.zeros(sizes.groups * sizes.channels * sizes.item, np.uint8)
    while True:
        panel = take_task(counter)
        if panel >= sizes.groups * per_group:
            break
        # Taken anew for each task: Numba frees an array after its last use, and does not know of addresses.
        filters = (packed.ctypes.data + 63) // 64 * 64
        group = panel // per_group
        channel = (panel - group * per_group) * sizes.panel
        at = (group * sizes.channels + channel) * sizes.item
        for k in range(0, sizes.depth, sizes.depth_block):
            depth = min(sizes.depth_block, sizes.depth - k)
            if kind == PACKED:
                filters = w + panel * sizes.taps * tap_bytes + k * panel_row
            elif kind == BY_OUTPUT:
                pack_by_output(tag, sizes, w, group * sizes.channels + channel, k, depth, filters)
            else:
                pack_by_input(tag, sizes, w, group * sizes.depth + k, channel, depth, filters)
            for index in range(blocks.shape[0]):
                block = blocks[index]
                count = block[3]
                addresses(rows, columns, block, tile, sizes, x, y, sources, targets, nowhere.ctypes.data)
                residuals_beside(targets, residual, count, tile, residuals)
                taps = tap_offsets(rows, columns, block, from_x, from_w)
                for i in range(taps):
                    from_w[i] *= tap_bytes
                # A position without taps has one empty block: its result is zero, or the bias.
                for tap in range(0, max(taps, 1), sizes.tap_block):
                    begins = k == 0 and tap == 0
                    ends = k + depth == sizes.depth and tap + sizes.tap_block >= taps
                    added = residuals.ctypes.data if begins else targets.ctypes.data
                    for m in range(0, count, tile):
                        scattered_product(
                            tag,
                            (group * sizes.depth + k) * sizes.item,
                            from_x.ctypes.data + 8 * tap,
                            filters,
                            from_w.ctypes.data + 8 * tap,
                            min(sizes.tap_block, taps - tap),
                            sources.ctypes.data + 8 * m,
                            panel_row,
                            depth,
                            at,
                            targets.ctypes.data + 8 * m,
                            (mode & ~ACTIVATE if begins else ADD) | (mode & ACTIVATE if ends else 0),
                            bias + at,
                            added + 8 * m,
                            sizes.panel,
                        )
                done += taps * depth * count * sizes.panel
    return done
