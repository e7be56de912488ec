"""Winograd's algorithm for the filter's gradient: the transposed one, by the same matrices as the convolution.

A tile of a convolution is A' [(G g G') * (B d B')] A, for inputs d and a filter g. With the result's gradient y, the
filter's gradient is G' [(A y A') * (B d B')] G. The brackets, summed over tiles and images for each pair of channels,
are a matrix product at each of a tile's places; G' and G are applied once, at the end. Images of bfloat16 are float32
from the transforms on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import call, called, compiled, inlined
from alpha.cpu.forks import compilation_lock
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ADD, NARROW_WIDE_ROWS, ROWS, STORE, narrow_outer_product, outer_product
from alpha.cpu.kernels.vectors import I64, Vectors, integer
from alpha.cpu.kernels.winograd import LINES, grouped, images_in_memory, product, transformed_places
from alpha.cpu.kernels.winograd_forms import FORMS, Form, Matrix, transposed
from alpha.cpu.signatures import COMPILERS

ISA_BYTES = ISA.bytes
VECTORS = ISA.vectors
LANES = ISA.lanes(4)
PANEL_BYTES = ISA_BYTES * VECTORS
TILE_BYTES, NARROW_TILE_BYTES = ROWS * 4, NARROW_WIDE_ROWS * 4

_compiling = compilation_lock()


class GradientSizes(NamedTuple):
    """Sizes and byte steps of a problem."""

    images: int
    chunk: int
    """Images whose products are summed at a time."""
    tiles: int
    """Tiles whose products are summed at a time: several where the images are few."""
    tile_columns: int
    groups: int
    in_channels: int
    """Channels of x per group."""
    out_channels: int
    """Channels of dy per group."""
    in_block: int
    """Channels of x per task: whole panels."""
    out_block: int
    """Channels of dy per task."""
    parts: int
    """Parts of the tiles and images; each sums into products that no other part writes."""
    x_image: int
    dy_image: int


def _tile_transform(matrix: Matrix, rows_of_places: tuple[int, ...], are_halves: bool) -> Any:
    """A function that multiplies tiles by the matrix from both sides, for ``rows`` images and ``vectors`` of channels.

    It computes some rows of places alone, one after another. ``sources`` is a table of a tile's addresses; images lie
    ``source_row`` bytes apart. Results go to ``target``, with ``place_step`` bytes per place, ``row_step`` per image
    and ``panel_step`` per panel.
    """
    some = tuple(matrix[row] for row in rows_of_places)
    read = [any(factors) for factors in transposed(some)]

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def transform(
        _typing: Any, tag: Any, sources: Any, source_row: Any, target: Any, place_step: Any, row_step: Any,
        panel_step: Any, rows: Any, vectors: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit, side = Vectors(builder, tag), len(matrix[0])
            images = images_in_memory(emit, are_halves)
            _, sources, source_row, target, place_step, row_step, panel_step, rows, vectors = arguments
            starts = [
                [emit.load_address(sources, side * i + j) if read[i] else None for i in range(side)]
                for j in range(side)
            ]
            with cgutils.for_range(builder, rows, intp=I64) as row:
                from_row = builder.mul(row.index, source_row)
                to_row = builder.add(target, builder.mul(row.index, row_step))
                with cgutils.for_range(builder, vectors, intp=I64) as column:
                    at = builder.add(from_row, builder.mul(column.index, integer(LANES * images.item)))
                    panel = builder.sdiv(column.index, integer(VECTORS))
                    inside = builder.sub(column.index, builder.mul(panel, integer(VECTORS)))
                    out = builder.add(to_row, builder.mul(panel, panel_step))
                    out = builder.add(out, builder.mul(inside, integer(ISA_BYTES)))
                    d = [[start and images.load(builder.add(start, at)) for start in one] for one in starts]
                    lines = [product(emit, some, values) for values in d]
                    for line in zip(*lines, strict=True):
                        for value in product(emit, matrix, line):
                            emit.store(value, out)
                            out = builder.add(out, place_step)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 8), codegen

    return transform


def _gradient_transform(matrix: Matrix) -> Any:
    """A function that multiplies a panel's sums, ``place`` bytes apart, by the matrix from both sides.

    The results are taps ``tap`` bytes apart; ``columns`` says how many numbers of the panel there are.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def transform(_typing: Any, tag: Any, source: Any, place: Any, target: Any, tap: Any, columns: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            emit, side = Vectors(builder, tag), len(matrix[0])
            _, source, place, target, tap, columns = arguments
            with cgutils.for_range(builder, integer(VECTORS), intp=I64) as loop:
                at = builder.mul(loop.index, integer(ISA_BYTES))
                left = builder.sub(columns, builder.mul(loop.index, integer(emit.lanes)))
                with builder.if_then(builder.icmp_signed(">", left, integer(0))):
                    address = builder.add(source, at)
                    m: list[list[Any]] = []
                    for _ in range(side):
                        m.append([])
                        for _ in range(side):
                            m[-1].append(emit.load(address))
                            address = builder.add(address, place)
                    out = builder.add(target, at)
                    for index, value in transformed_places(emit, matrix, m):
                        emit.store_first(value, builder.add(out, builder.mul(tap, integer(index))), left)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return transform


SLICE_ROWS = 4
"""Most rows of places per slice."""


@lru_cache
def slices_of(form: Form) -> tuple[tuple[int, ...], ...]:
    """The rows of a tile's places in as few slices of about equal size as ``SLICE_ROWS`` allows.

    Rows whose sums are computed together stay together.
    """
    most = math.ceil(len(form.b) / math.ceil(len(form.b) / SLICE_ROWS))
    slices: list[tuple[int, ...]] = [()]
    for group in grouped(form.b):
        if len(slices[-1]) + len(group) > most:
            slices.append(())
        slices[-1] += group
    return tuple(slices)


class GradientTransforms(NamedTuple):
    """A form as the kernels take it: its sizes, and the addresses of its compiled functions."""

    inputs: int
    results: int
    places: int
    taps: int
    """Taps along each of the filter's two axes."""
    item: int
    """Bytes of an image's number in memory."""
    of_sums: int
    slice_rows: int
    """Rows of places of the largest slice."""
    slices: Any
    """A row for some rows of places: addresses of the functions for x and for dy, the rows' number, and the rows."""


def _of_tiles(  # type: ignore[no-untyped-def]
    sources, source_row, target, place_step, row_step, panel_step, rows, vectors
):
    transform(  # type: ignore[name-defined]  # noqa: F821
        np.float32(0), sources, source_row, target, place_step, row_step, panel_step, rows, vectors
    )


def _of_sums(source, place, target, tap, columns):  # type: ignore[no-untyped-def]
    transform(np.float32(0), source, place, target, tap, columns)  # type: ignore[name-defined]  # noqa: F821


@lru_cache
def _compiled(form: Form, are_halves: bool) -> tuple[GradientTransforms, list[Any]]:
    """A form's ``GradientTransforms``, and the functions, which must live as long as their addresses are used."""
    slices = slices_of(form)
    parts: list[tuple[Callable[..., Any], int, str, Any]] = [
        (_of_sums, 5, "of_sums", _gradient_transform(transposed(form.g)))
    ]
    for number, rows in enumerate(slices):
        for side, matrix in (("of_input", form.b), ("of_gradient", transposed(form.a))):
            parts.append((_of_tiles, 8, f"{side}_{number}", _tile_transform(matrix, rows, are_halves)))
    functions = [
        called(
            function, f"void({', '.join(count * ['int64'])})", _full_name(name, form, are_halves), transform=transform
        )
        for function, count, name, transform in parts
    ]
    of_sums, *of_tiles = [function.address for function in functions]
    most, item = max(map(len, slices)), 2 if are_halves else 4
    table = np.zeros((len(slices), most + 3), np.int64)
    for number, rows in enumerate(slices):
        table[number, : len(rows) + 3] = *of_tiles[2 * number : 2 * number + 2], len(rows), *rows
    made = GradientTransforms(form.inputs, form.results, len(form.b), form.taps, item, of_sums, most, table)
    return made, functions


def _full_name(name: str, form: Form, are_halves: bool) -> str:
    return f"{name}_{form.name}{'_s' * are_halves}"


def transforms(form: Form, are_halves: bool = False) -> GradientTransforms:
    """A form's ``GradientTransforms``; the first call compiles its functions, in one thread at a time.

    ``are_halves``: whether images are bfloat16 in memory.
    """
    with _compiling:
        return _compiled(form, are_halves)[0]


def _compiler(form: Form, are_halves: bool) -> Callable[[Any], object]:
    """What compiles each of a form's functions, whatever their signatures."""
    return lambda _signature: transforms(form, are_halves)


for _form in (form for forms in FORMS.values() for form in forms.values()):
    _numbers = range(len(slices_of(_form)))
    for _are_halves in (False, True):
        for _name in ("of_sums", *(f"{_side}_{_n}" for _side in ("of_input", "of_gradient") for _n in _numbers)):
            COMPILERS[f"{__name__}.{_full_name(_name, _form, _are_halves)}"] = _compiler(_form, _are_halves)


@inlined
def _filter_row(form, sizes, source, to, first):  # type: ignore[no-untyped-def]
    """Writes an output channel's filter at ``to``, for a block of input channels from ``first`` on, from its sums."""
    sum_panel = sizes.out_block * PANEL_BYTES
    panels = sizes.in_block * 4 // PANEL_BYTES
    for panel in range(panels):
        channel = first + panel * LANES * VECTORS
        call(
            form.of_sums,
            (
                source + panel * sum_panel,
                panels * sum_panel,
                to + channel * 4,
                sizes.in_channels * 4,
                sizes.in_channels - channel,
            ),
        )


@compiled
def sums(  # type: ignore[no-untyped-def]
    share, tag, form, rows_from, rows_to, columns_from, columns_to, sizes, x, dy, target, dw
):
    """Sums the products of transformed x and dy over each part's tiles and images.

    The result is (parts, groups, blocks of dy's channels, blocks of x's, places, panels, ``out_block``, panel). A task
    is a part of a pair of blocks. It transforms tiles, and adds their products to the sums, a slice of places after the
    other, so that a slice's transformed tiles and sums stay in the L2 cache. Tables are those of ``winograd``:
    ``rows_from`` of x, ``rows_to`` of dy. If there is one part, nothing is written to ``target``: a task's sums stay in
    the caches, and become filters (OC, taps, IC) at ``dw``. Returns the products computed.
    """
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    tiles = rows_to.shape[0] * sizes.tile_columns
    units = (tiles + sizes.tiles - 1) // sizes.tiles * chunks
    out_blocks = (sizes.out_channels + sizes.out_block - 1) // sizes.out_block
    in_blocks = (sizes.in_channels + sizes.in_block - 1) // sizes.in_block
    blocks = sizes.groups * out_blocks * in_blocks
    places = form.places * form.places
    panels = sizes.in_block * 4 // PANEL_BYTES
    most = sizes.tiles * sizes.chunk
    dy_row = (sizes.out_block + LANES - 1) // LANES * ISA_BYTES
    # A cache line between places, and between panels, keeps them in different sets of the L1 cache.
    panel_step = most * PANEL_BYTES + 64
    x_step = panels * panel_step
    dy_step = most * dy_row + 64
    sum_panel = sizes.out_block * PANEL_BYTES
    slices, slice_places = form.slices.shape[0], form.slice_rows * form.places
    x_values = np.empty(slice_places * x_step // 4 + LINES, np.float32)
    dy_values = np.empty(slice_places * dy_step // 4 + LINES, np.float32)
    block_bytes = places * panels * sum_panel
    whole = sizes.parts == 1
    block_sums = np.empty(block_bytes // 4 + LINES if whole else 1, np.float32)
    nothing = np.zeros(sizes.chunk * max(sizes.x_image, sizes.dy_image) // 4 + LINES + LANES, np.float32)
    x_sources = np.empty(form.inputs * form.inputs, np.int64)
    dy_sources = np.empty(form.results * form.results, np.int64)
    no_offset = np.zeros(1, np.int64)
    done = 0
    while True:
        task = draw_task(share, sizes.parts * blocks)
        if task >= sizes.parts * blocks:
            break
        part = task // blocks
        group = task // (out_blocks * in_blocks) % sizes.groups
        first_out = task // in_blocks % out_blocks * sizes.out_block
        first_in = task % in_blocks * sizes.in_block
        height = min(sizes.out_block, sizes.out_channels - first_out)
        width = min(sizes.in_block, sizes.in_channels - first_in)
        used_panels = (width * 4 + PANEL_BYTES - 1) // PANEL_BYTES
        whole_panels = (width * 4 + PANEL_BYTES - ISA_BYTES - 1) // PANEL_BYTES  # except a last one of one vector
        x_at = x + (group * sizes.in_channels + first_in) * form.item
        dy_at = dy + (group * sizes.out_channels + first_out) * form.item
        sums_at = (block_sums.ctypes.data + 63) // 64 * 64 if whole else target + task * block_bytes
        x_to = (x_values.ctypes.data + 63) // 64 * 64
        dy_to = (dy_values.ctypes.data + 63) // 64 * 64
        begin, end = part * units // sizes.parts, (part + 1) * units // sizes.parts
        for step in range(slices * begin, slices * end):
            unit, number = step // slices, step % slices
            first_tile = unit // chunks * sizes.tiles
            last_tile = min(first_tile + sizes.tiles, tiles)
            first = unit % chunks * sizes.chunk
            count = min(sizes.chunk, sizes.images - first)
            rows = (last_tile - first_tile) * count
            for tile in range(first_tile, last_tile):
                tile_row = tile // sizes.tile_columns
                tile_column = tile - tile_row * sizes.tile_columns
                for i in range(form.inputs):
                    for j in range(form.inputs):
                        row, column = rows_from[tile_row, i], columns_from[tile_column, j]
                        inside = row >= 0 and column >= 0
                        x_sources[form.inputs * i + j] = (
                            x_at + first * sizes.x_image + row + column if inside else nothing.ctypes.data
                        )
                for i in range(form.results):
                    for j in range(form.results):
                        row, column = rows_to[tile_row, i], columns_to[tile_column, j]
                        inside = row >= 0 and column >= 0
                        dy_sources[form.results * i + j] = (
                            dy_at + first * sizes.dy_image + row + column if inside else nothing.ctypes.data
                        )
                done_rows = (tile - first_tile) * count
                call(
                    form.slices[number, 0],
                    (
                        x_sources.ctypes.data,
                        sizes.x_image,
                        x_to + done_rows * PANEL_BYTES,
                        x_step,
                        PANEL_BYTES,
                        panel_step,
                        count,
                        (width + LANES - 1) // LANES,
                    ),
                )
                call(
                    form.slices[number, 1],
                    (
                        dy_sources.ctypes.data,
                        sizes.dy_image,
                        dy_to + done_rows * dy_row,
                        dy_step,
                        dy_row,
                        PANEL_BYTES,
                        count,
                        (height + LANES - 1) // LANES,
                    ),
                )
            mode = STORE if unit == begin else ADD
            for index in range(form.slices[number, 2] * form.places):
                place = form.slices[number, 3 + index // form.places] * form.places + index % form.places
                for panel in range(whole_panels):
                    outer_product(
                        tag, height, TILE_BYTES, dy_to + index * dy_step, no_offset.ctypes.data,
                        x_to + index * x_step + panel * panel_step, no_offset.ctypes.data, 1, dy_row, PANEL_BYTES,
                        rows, sums_at + (place * panels + panel) * sum_panel, PANEL_BYTES, mode, 0, 0, LANES * VECTORS,
                    )  # fmt: skip
                if whole_panels < used_panels:
                    narrow_outer_product(
                        tag, height, NARROW_TILE_BYTES, dy_to + index * dy_step, no_offset.ctypes.data,
                        x_to + index * x_step + whole_panels * panel_step, no_offset.ctypes.data, 1, dy_row,
                        PANEL_BYTES, rows, sums_at + (place * panels + whole_panels) * sum_panel, PANEL_BYTES, mode,
                        0, 0, LANES,
                    )  # fmt: skip
            done += form.slices[number, 2] * form.places * rows * height * width
        for row in range(height if whole else 0):
            to = dw + (group * sizes.out_channels + first_out + row) * form.taps * form.taps * sizes.in_channels * 4
            _filter_row(form, sizes, sums_at + row * PANEL_BYTES, to, first_in)
    return done


@compiled
def filters(share, tag, form, sizes, source, dw):  # type: ignore[no-untyped-def]
    """Computes the filter's gradient (OC, taps, IC) from the parts' total. A task is an output channel."""
    out_blocks = (sizes.out_channels + sizes.out_block - 1) // sizes.out_block
    in_blocks = (sizes.in_channels + sizes.in_block - 1) // sizes.in_block
    block_bytes = form.places * form.places * sizes.in_block * 4 * sizes.out_block
    while True:
        task = draw_task(share, sizes.groups * sizes.out_channels)
        if task >= sizes.groups * sizes.out_channels:
            break
        group = task // sizes.out_channels
        out_block = task % sizes.out_channels // sizes.out_block
        row = task % sizes.out_channels - out_block * sizes.out_block
        to = dw + task * form.taps * form.taps * sizes.in_channels * 4
        for in_block in range(in_blocks):
            block = (group * out_blocks + out_block) * in_blocks + in_block
            at = source + block * block_bytes + row * PANEL_BYTES
            _filter_row(form, sizes, at, to, in_block * sizes.in_block)
    return 0
