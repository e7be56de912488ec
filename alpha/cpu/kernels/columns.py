"""ConvV2 and KS-deconv-V2 for few result channels: a filter row's taps and channels are the columns of a product.

Tap by tap, three result channels would fill three lanes of a panel. Here a source row is multiplied with all taps of a
filter row at once: each of its pixels gets its product with each tap's channels, summed over source channels and over
the filter's rows that reach the result row; no zero takes part. Then a result pixel adds the products of its taps with
their sources; products that fall outside the result are dropped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, STORE, panel_product
from alpha.cpu.kernels.tables import COUNT, OTHER, SOURCE
from alpha.cpu.kernels.vectors import read_number, write_number


class ColumnsSizes(NamedTuple):
    """Sizes and byte steps of a problem; channels are those of a group."""

    images: int
    chunk: int
    """Images per task."""
    rows: int
    """Rows of the result."""
    band: int
    """Result rows per task."""
    columns: int
    source_columns: int
    groups: int
    depth: int
    """Channels of the source."""
    channels: int
    """Channels of the result."""
    panels: int
    """Panels of a filter row's taps and channels."""
    panel: int
    item: int
    source_image: int
    source_column: int
    target_image: int
    target_row: int
    target_column: int
    most_taps: int
    """Filter rows that reach a result row."""
    panel_bytes: int


@compiled
def columns(  # type: ignore[no-untyped-def]
    share, tag, rows, columns, sizes, x, w, y, mode, bias, residual
):
    """Computes the result. A task is some result rows, a chunk of images and a group.

    ``rows`` holds offsets in x and in the packed filter, ``columns`` source columns and first numbers of taps. Returns
    how many multiply-adds it computed.
    """
    bands = (sizes.rows + sizes.band - 1) // sizes.band
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    pixel = sizes.panels * sizes.panel * sizes.item
    products = np.empty(sizes.source_columns * sizes.chunk * pixel + 64, np.uint8)
    from_x = np.empty(sizes.most_taps + 1, np.int64)
    from_w = np.empty(sizes.most_taps + 1, np.int64)
    done = 0
    while True:
        task = draw_task(share, bands * chunks * sizes.groups)
        if task >= bands * chunks * sizes.groups:
            break
        at = (products.ctypes.data + 63) // 64 * 64
        group = task // (bands * chunks)
        first = task // bands % chunks * sizes.chunk
        count = min(sizes.chunk, sizes.images - first)
        source = x + first * sizes.source_image + group * sizes.depth * sizes.item
        channel = group * sizes.channels * sizes.item
        # Where a task takes all images, those of all columns are one run of rows.
        runs = 1 if count == sizes.images else sizes.source_columns
        first_row = task % bands * sizes.band
        for row in range(first_row, min(first_row + sizes.band, sizes.rows)):
            taps = rows.pairs[COUNT, row]
            for t in range(taps):
                from_x[t] = rows.pairs[SOURCE, row] + t * rows.source_step
                from_w[t] = rows.pairs[OTHER, row] + t * rows.other_step
            for panel in range(sizes.panels):
                for run in range(runs):
                    panel_product(
                        tag,
                        sizes.source_columns * count // runs,
                        source + run * sizes.source_column,
                        from_x.ctypes.data,
                        w + (group * sizes.panels + panel) * sizes.panel_bytes,
                        from_w.ctypes.data,
                        taps,
                        sizes.source_image,
                        sizes.panel * sizes.item,
                        sizes.depth,
                        at + run * count * pixel + panel * sizes.panel * sizes.item,
                        pixel,
                        STORE,
                        0,
                        0,
                        sizes.panel,
                    )
            target = y + row * sizes.target_row + first * sizes.target_image + channel
            for column in range(sizes.columns):
                _finish(
                    tag,
                    columns,
                    column,
                    at,
                    pixel,
                    target + column * sizes.target_column,
                    sizes.target_image,
                    count,
                    sizes.channels,
                    sizes.item,
                    mode,
                    bias + channel,
                    residual,
                )
            done += taps * sizes.depth * sizes.source_columns * count * sizes.panels * sizes.panel
    return done


@inlined
def _finish(  # type: ignore[no-untyped-def]
    tag, columns, column, products, pixel, target, target_step, count, channels, item, mode, bias, residual
):
    """Writes a result column's pixels of some images from their taps' products; ``mode`` as in the micro-kernel."""
    taps, first, other = columns.pairs[COUNT, column], columns.pairs[SOURCE, column], columns.pairs[OTHER, column]
    for n in range(count):
        to = target + n * target_step
        for c in range(channels):
            value = read_number(tag, bias + c * item) if mode & BIAS else tag * 0
            for k in range(taps):
                source = first + k * columns.source_step
                at = products + (source * count + n) * pixel + other + k * columns.other_step + c * item
                value += read_number(tag, at)
            if mode & ADD:
                value += read_number(tag, to + c * item + residual)
            if mode & ACTIVATE and not value > 0:
                value *= tag
            write_number(tag, to + c * item, value)
