"""Winograd's algorithm in three launches, for filters that are larger than the images: first all inputs are
transformed, then multiplied place by place, so that a core reads only its share of the filters, then all results are
transformed. ``winograd`` describes the algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.compile import call, compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ADD, STORE, panel_product
from alpha.cpu.kernels.winograd import DEPTH, LANES


class StageSizes(NamedTuple):
    """Sizes that the stages need in addition to ``WinogradSizes``."""

    first: int
    """The first image: the three stages run for some images at a time."""
    images: int
    tiles: int
    rows: int
    """Tiles times images: rows of each place's matrix of inputs, and of results."""
    chunk: int
    """Rows per task of the products."""
    panels: int
    """Panels per task of the products."""
    step: int
    """Bytes from place to place of the transformed inputs."""


@compiled
def inputs(share, form, rows_from, columns_from, sizes, stages, x, values):  # type: ignore[no-untyped-def]
    """Transforms inputs, to a matrix (rows, depth) for each place. A task is a tile of all images."""
    numbers = stages.images * sizes.depth
    start = x + stages.first * sizes.source_image
    nothing = np.zeros(stages.images * sizes.depth + sizes.panel, np.float32)
    sources = np.empty(form.inputs * form.inputs, np.int64)
    while True:
        tile = draw_task(share, stages.tiles)
        if tile >= stages.tiles:
            break
        tile_row = tile // sizes.tile_columns
        tile_column = tile - tile_row * sizes.tile_columns
        for i in range(form.inputs):
            for j in range(form.inputs):
                row, column = rows_from[tile_row, i], columns_from[tile_column, j]
                sources[form.inputs * i + j] = start + row + column if row >= 0 and column >= 0 else nothing.ctypes.data
        to = values + tile * numbers * form.factor
        call(form.of_input, (sources.ctypes.data, to, stages.step, numbers // LANES))
    return 0


@compiled
def products(share, tag, form, sizes, stages, values, w, results):  # type: ignore[no-untyped-def]
    """Computes a matrix (rows, panel) for each panel and place. Returns how many products it computed.

    The type of ``tag`` is the factors', as for ``winograd``. A task is a place, some panels and some rows. Tasks of the
    same panels follow each other, so that the panels stay in the L2 cache while one chunk of rows after another is
    multiplied with them.
    """
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    groups = (panels + stages.panels - 1) // stages.panels
    chunks = (stages.rows + stages.chunk - 1) // stages.chunk
    panel_row = sizes.panel * 4
    places, terms = form.places * form.places, sizes.depth * form.factor // 4
    place_bytes = terms * panel_row
    no_offset = np.zeros(1, np.int64)
    done = 0
    while True:
        task = draw_task(share, places * groups * chunks)
        if task >= places * groups * chunks:
            break
        place = task // (groups * chunks)
        first_panel = task // chunks % groups * stages.panels
        first = task % chunks * stages.chunk
        count = min(stages.chunk, stages.rows - first)
        for panel in range(first_panel, min(first_panel + stages.panels, panels)):
            for k in range(0, terms, DEPTH):
                panel_product(
                    tag,
                    count,
                    values + place * stages.step + (first * terms + k) * 4,
                    no_offset.ctypes.data,
                    w + (panel * places + place) * place_bytes + k * panel_row,
                    no_offset.ctypes.data,
                    1,
                    terms * 4,
                    panel_row,
                    min(DEPTH, terms - k),
                    results + ((panel * places + place) * stages.rows + first) * panel_row,
                    panel_row,
                    ADD if k else STORE,
                    0,
                    0,
                    sizes.panel,
                )
            done += count * sizes.depth * min(sizes.panel, sizes.channels - panel * sizes.panel)
    return done


@compiled
def results(  # type: ignore[no-untyped-def]
    share, slope, form, rows_to, columns_to, sizes, stages, products, y, mode, bias, residual
):
    """Transforms and finishes the results. A task is a tile of all images."""
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    panel_row = sizes.panel * 4
    start = y + stages.first * sizes.target_image
    places = form.places * form.places
    targets = np.empty(form.results * form.results, np.int64)
    while True:
        tile = draw_task(share, stages.tiles)
        if tile >= stages.tiles:
            break
        tile_row = tile // sizes.tile_columns
        tile_column = tile - tile_row * sizes.tile_columns
        for panel in range(panels):
            channel = panel * sizes.panel
            for i in range(form.results):
                for j in range(form.results):
                    row, column = rows_to[tile_row, i], columns_to[tile_column, j]
                    target = start + row + column + channel * form.item
                    targets[form.results * i + j] = target if row >= 0 and column >= 0 else 0
            made = products + (panel * places * stages.rows + tile * stages.images) * panel_row
            call(
                form.of_result,
                (
                    slope,
                    made,
                    stages.rows * panel_row,
                    targets.ctypes.data,
                    sizes.target_image,
                    stages.images,
                    mode,
                    bias + channel * 4,
                    residual,
                    sizes.channels - channel,
                ),
            )
    return 0
