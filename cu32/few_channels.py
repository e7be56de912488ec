"""Convolutions with few channels on one side, as an image's three, where tiles of channels would be nearly empty.

*Few results* (an input gradient to an image, the last layer of a generator, a segmentation's head): all of a position's
channels are one thread's, and eight threads share the sum. Memory has to read the source once, 4 * depth bytes a
position, for taps * WIDTH * depth multiply-adds: 27 a float for 3x3 and three channels, below the 40 or so at which an
H100's FMAs become the bound, so it is bound by memory, by 4x4 filters and on by both.

*Few inputs, or few outputs,* of a filter gradient (a stem; a generator's last layer): columns of a tile are (tap,
channel) pairs of that side, 27 of 32 for 3x3 and three channels, where a tap's own three would fill 3 of 16 columns or
of 64 rows. Memory has to read the other side once, 4 * channels bytes a position.
"""

from __future__ import annotations

import math

import numpy as np

from alpha import dtypes
from alpha.cu32 import patches, selfcheck, tables
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.costs import Tile
from alpha.cu32.parts import sum_parts
from alpha.cu32.patches import Cover
from alpha.cu32.structs import KernelStruct
from alpha.geometry import Geometry
from alpha.tensor import Storage, Tensor

FEW_RESULTS = KernelStruct("few_results.cu", "Few")
FEW_WEIGHT = KernelStruct("few_weight.cu", "FewWeight")

WIDTHS = (1, 2, 3, 4)
"""Channels of a result that few_results.cu computes."""

LEAST_DEPTH = 16
"""Fewest channels to sum over that keep half its lanes busy."""

THREADS, LANES, ACROSS = 256, 8, 8
"""Of few_results.cu: threads a block, threads that share a patch, positions of one; the kernel says the same."""

TILES = {
    "VECTOR": (Tile(64, 32, 8, 4), Tile(64, 64, 8, 4), Tile(128, 32, 8, 4), Tile(64, 16, 8, 4), Tile(32, 32, 4, 4)),
    "SCALAR": (Tile(64, 32, 8, 4),),
}
"""Tiles of few_weight.cu by the way the many channels are read: those by (tap, channel) pairs; of equally useful
ones the first is taken."""

MOST_FEW = 7
"""Most channels whose pairs few_weight.cu gathers: eight fill half a tile of a tap's own, and come in fours."""

RESIDENT = 512
"""Threads that a multiprocessor holds at 128 registers each."""

MOST_PARTS, PARTS_BYTES = 65536, 256 << 20
"""What a launch's second extent stays below, and most bytes that parts may take."""

LEAST_TERMS, MOST_TERMS = 256, 4096
"""Terms of a part of its sum: fewer don't pay for adding parts, more would lose digits of float32."""


def _source(width: int) -> Source:
    return Source("few_results", WIDTH=width)


def _weight_source(tile: Tile, load: str) -> Source:
    return Source("few_weight", LOAD=load, **tile.macros)


SOURCES = (
    *map(_source, WIDTHS),
    *(_weight_source(tile, load) for load, listed in TILES.items() for tile in listed),
)


def serves(source: Tensor, w: Tensor, geometry: Geometry, groups: int, forward: bool) -> bool:
    """Whether few_results.cu computes it, given that four channels of the source may be read at once."""
    width = w.shape[0] if forward else w.shape[3]
    if groups != 1 or width not in WIDTHS or source.shape[3] < LEAST_DEPTH or source.dtype != dtypes.float32:
        return False
    across = patches.classes(geometry, forward)[1]
    near = across.member_step == 1 and bool(abs(across.step_a) == 1 or across.taps.max() <= 1)
    fits = near and patches.steps_fit(source, geometry, forward)
    return fits and selfcheck.sound(source.engine, "few_results")


def convolve(
    engine: DeviceEngine,
    forward: bool,
    source: Tensor,
    w: Tensor,
    out: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    accumulate: bool,
) -> int:
    """ConvV2 or KS-deconv-V2 into ``out``; the products it computed of a pair of channels."""
    # Filters with the summed channels innermost, aligned.
    order = (0, 1, 2, 3) if forward else (3, 1, 2, 0)
    if w.address % 16 or not w.is_contiguous(order):
        turned = engine.empty(w.shape, w.dtype, order)
        engine.copy(w, turned)
        w = turned
    images = source.shape[0]
    width = patches.power_of_two(images, 1, THREADS // LANES)
    cover = Cover(geometry.rows, geometry.columns, forward, 1, ACROSS, THREADS // LANES // width)
    held = cover.tables(engine)
    engine.launch(
        _source(out.shape[3]),
        "few_results",
        -(-images // width) * len(cover.listed.tiles),
        THREADS,
        source,
        w,
        out,
        bias,
        patches.addresses(held),
        FEW_RESULTS.pack(
            patches=cover.pack(source, w, out, accumulate),
            depth=source.shape[3],
            width=width,
            b_column=w.strides[0] if forward else w.strides[3],
        ),
    )
    return cover.listed.products * images


def serves_weight(x: Tensor, dy: Tensor, dw: Tensor, geometry: Geometry, groups: int) -> bool:
    """Whether few_weight.cu computes it, given that offsets fit into 32 bits."""
    if groups != 1 or min(x.shape[3], dy.shape[3]) > MOST_FEW or dw.dtype != dtypes.float32:
        return False
    terms = _class_terms(geometry, x.shape[0], _from_inputs(x, dy))
    parts = sum(-(-n // MOST_TERMS) for n in terms)
    fits = parts < MOST_PARTS and dw.nbytes * parts <= PARTS_BYTES
    return fits and selfcheck.sound(dw.engine, "few_weight")


def weight_grad(engine: DeviceEngine, x: Tensor, dy: Tensor, dw: Tensor, geometry: Geometry, vector: bool) -> None:
    """Sk-dilated-V2 into ``dw``, one result a part and those added.

    ``vector``: whether four channels of the side with many may be read at once.
    """
    inputs = _from_inputs(x, dy)
    few, many = (x, dy) if inputs else (dy, x)
    load = "VECTOR" if vector else "SCALAR"
    columns = math.prod(geometry.filter) * few.shape[3]
    tile = _tile(many.shape[3], columns, load)
    row_tiles, column_tiles = -(-many.shape[3] // tile.rows), -(-columns // tile.columns)
    slots = engine.device.multiprocessors * (RESIDENT // tile.threads) // (row_tiles * column_tiles)
    terms = _part_terms(_class_terms(geometry, x.shape[0], inputs), slots, PARTS_BYTES // dw.nbytes)
    listed = tables.tiles(geometry.rows, geometry.columns, inputs, x.shape[0], terms)
    parts = max(1, int((listed.taps > 0).sum()))  # those with most taps are first; if none has any, one writes zeros
    place = engine.constant(("tiles", geometry, inputs, x.shape[0], terms), lambda: listed.tiles)
    held = patches.gather_tables(engine, place, geometry, inputs)
    target: Tensor | Storage = dw if parts == 1 else engine.scratch(parts * dw.nbytes)
    engine.launch(
        _weight_source(tile, load),
        "few_weight",
        (row_tiles * column_tiles, parts),
        tile.threads,
        few,
        many,
        target,
        patches.addresses(held),
        _weight_sizes(few, many, dw, geometry, inputs, column_tiles),
    )
    if isinstance(target, Storage):
        sum_parts(engine, target, parts, dw)


def _from_inputs(x: Tensor, dy: Tensor) -> bool:
    """Whether it is x that has few channels."""
    return x.shape[3] <= dy.shape[3]


def _tile(rows: int, columns: int, load: str) -> Tile:
    """The tile with the fewest products that are not asked for."""
    return min(TILES[load], key=lambda t: -(-rows // t.rows) * t.rows * -(-columns // t.columns) * t.columns)


def _class_terms(geometry: Geometry, images: int, inputs: bool) -> list[int]:
    """Positions times images of every pair of classes that has taps."""
    rows, columns = patches.classes(geometry, inputs)
    sizes = (classes.size[classes.taps > 0] for classes in (rows, columns))
    return [int(n) * images for n in np.multiply.outer(*sizes).ravel()]


def _part_terms(sizes: list[int], slots: int, most_parts: int) -> int:
    """Terms a part, so that the parts of all classes are resident at once where none gets too long."""
    room = min(max(1, slots - len(sizes)), max(1, most_parts - len(sizes)))
    return min(MOST_TERMS, max(LEAST_TERMS, -(-sum(sizes) // room)))


def _weight_sizes(few: Tensor, many: Tensor, dw: Tensor, g: Geometry, inputs: bool, column_tiles: int) -> bytes:
    """The sizes and strides of a filter gradient; x is the side with few channels, y the one with many."""
    rows, columns = patches.classes(g, inputs)
    channel, tap = math.prod(dw.shape[1:]), dw.shape[3]
    x_image, x_row, x_column = few.strides[:3]
    y_image, y_row, y_column = many.strides[:3]
    return FEW_WEIGHT.pack(
        images=few.shape[0],
        x_channels=few.shape[3],
        y_channels=many.shape[3],
        column_tiles=column_tiles,
        filter_rows=g.filter[0],
        filter_columns=g.filter[1],
        x_image=x_image,
        x_row=x_row,
        x_column=x_column,
        x_step_row=x_row * rows.member_step,
        x_step_column=x_column * columns.member_step,
        x_tap_row=x_row * rows.step_a,
        x_tap_column=x_column * columns.step_a,
        y_image=y_image,
        y_row=y_row,
        y_column=y_column,
        y_step_row=y_row * rows.index_step,
        y_step_column=y_column * columns.index_step,
        tap_row=rows.step_b or 1,
        tap_column=columns.step_b or 1,
        out_row=channel if inputs else 1,
        out_tap=tap,
        out_channel=1 if inputs else channel,
        part_stride=dw.numel(),
    )
