"""Winograd's algorithm for convolutions and input gradients of float32: fewer products, after additions.

A tile of inputs d and a filter g give results A' [(G g G') * (B d B')] A; for the matrices see ``winograd_forms``.
Summed over channels, the products at each of a tile's places are one matrix product.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import call, called, compiled
from alpha.cpu.forks import compilation_lock
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, STORE, has, panel_product
from alpha.cpu.kernels.vectors import I64, Vectors, integer, transpose
from alpha.cpu.kernels.winograd_forms import FORMS, Form, Matrix, transposed
from alpha.cpu.signatures import COMPILERS

ISA_BYTES = ISA.bytes

_compiling = compilation_lock()

CHANNELS, ROWS = 32, 8
"""Input channels, and output channels, per task that transforms filters: whole cache lines next to each other."""

DEPTH = 128
"""Channels that a product sums one after another: float32's error grows with their number, most of all for F(4, 3)."""

LINES = 32
"""Numbers in two cache lines: room to align a buffer, and for a vector beyond its end."""

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class WinogradSizes(NamedTuple):
    """Sizes and byte steps of a problem; ``source`` is the tensor that is read, ``target`` the one that is written."""

    images: int
    chunk: int
    """Images per task."""
    tiles: int
    """Tiles per task."""
    tile_columns: int
    groups: int
    depth: int
    """Channels of the source per group."""
    channels: int
    """Channels of the target per group."""
    panel: int
    """Channels per filter panel."""
    source_image: int
    target_image: int


# -- transforms, emitted as vector code -----------------------------------------------------------------------------


def _sum(vectors: Vectors, total: Any, factor: float, value: Any) -> Any:
    """Emits total + factor * value; a total of None is 0."""
    builder = vectors.builder
    term = value if abs(factor) == 1 else builder.fmul(vectors.constant(abs(factor)), value)
    if total is None:
        return term if factor > 0 else builder.fneg(term)
    return (builder.fadd if factor > 0 else builder.fsub)(total, term)


def _combination(vectors: Vectors, factors: Sequence[float], values: Sequence[Any]) -> Any:
    """Emits the sum of factors times values, positive factors first."""
    total = None
    for factor, value in sorted(zip(factors, values, strict=True), key=lambda pair: pair[0] < 0):
        if factor:
            total = _sum(vectors, total, factor, value)
    return total


def _mirrored(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two rows have the same magnitudes, and some but not all of the same signs."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a or b]
    return all(abs(a) == abs(b) for a, b in pairs) and 0 < sum(a == b for a, b in pairs) < len(pairs)


def grouped(rows: Sequence[Sequence[float]]) -> list[tuple[int, ...]]:
    """The rows' indices, alone or, where neighbours are mirrored, in pairs."""
    groups: list[tuple[int, ...]] = []
    i = 0
    while i < len(rows):
        size = 2 if i + 1 < len(rows) and _mirrored(rows[i], rows[i + 1]) else 1
        groups.append(tuple(range(i, i + size)))
        i += size
    return groups


def _halves(first: Sequence[float], second: Sequence[float]) -> tuple[list[float], list[float]]:
    """The first of two mirrored rows, split: where the signs agree, and where they differ."""
    pairs = list(zip(first, second, strict=True))
    return [a if a == b else 0 for a, b in pairs], [a if a != b else 0 for a, b in pairs]


def product(vectors: Vectors, matrix: Matrix, values: Sequence[Any]) -> list[Any]:
    """Emits matrix * values; of mirrored rows or columns it computes two halves, and their sum and difference."""
    builder = vectors.builder
    columns, wholes = [], []
    turned = transposed(matrix)
    for group in grouped(turned):
        if len(group) == 1:
            columns.append(list(turned[group[0]]))
            wholes.append(values[group[0]])
        else:
            first, second = (values[i] for i in group)
            columns += _halves(*(turned[i] for i in group))
            wholes += [builder.fadd(first, second), builder.fsub(first, second)]
    rows, results = list(zip(*columns, strict=True)), []
    for group in grouped(rows):
        if len(group) == 1:
            results.append(_combination(vectors, rows[group[0]], wholes))
        else:
            even, odd = (_combination(vectors, half, wholes) for half in _halves(*(rows[i] for i in group)))
            results += [builder.fadd(even, odd), builder.fsub(even, odd)]
    return results


class _Counting:
    """Stands in for ``Vectors`` and its builder, and counts the operations that they would emit."""

    def __init__(self) -> None:
        self.builder, self.operations = self, 0

    def constant(self, value: float) -> float:
        """Counts nothing."""
        return value

    def fadd(self, *_: Any) -> int:
        """Counts one operation; what it returns stands for a vector."""
        self.operations += 1
        return self.operations

    fsub = fmul = fneg = fadd


@lru_cache
def operations(matrix: Matrix) -> int:
    """How many operations on vectors the transform of a tile by a matrix takes, with its loads and stores."""
    size, made, counting = len(matrix[0]), len(matrix), _Counting()
    product(counting, matrix, [0] * size)  # type: ignore[arg-type]
    return size**2 + counting.operations * (size + made) + made**2


def transformed_places(vectors: Vectors, matrix: Matrix, values: list[list[Any]]) -> Iterator[tuple[int, Any]]:
    """Emits the matrix times each row, then times each column; yields places and values, column after column."""
    rows = [product(vectors, matrix, row) for row in values]
    for j in range(len(matrix)):
        for i, value in enumerate(product(vectors, matrix, [row[j] for row in rows])):
            yield i * len(matrix) + j, value


def _input_transform(form: Form) -> Any:
    """Makes a function for B d B' for ``count`` vectors: from a table of addresses to places ``step`` bytes apart."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def transform(_typing: Any, tag: Any, sources: Any, target: Any, step: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors, side = Vectors(builder, tag), form.inputs
            _, sources, target, step, count = arguments
            starts = [vectors.load_address(sources, place) for place in range(side * side)]
            with cgutils.for_range(builder, count, intp=I64) as loop:
                at = builder.mul(loop.index, integer(ISA.bytes))
                d = [[vectors.load(builder.add(starts[side * i + j], at)) for j in range(side)] for i in range(side)]
                out = builder.add(target, at)
                for place, value in transformed_places(vectors, form.b, d):
                    vectors.store(value, builder.add(out, builder.mul(step, integer(place))))
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 4), codegen

    return transform


def _result_transform(form: Form) -> Any:
    """A function that computes A' m A for ``count`` panels, from places ``step`` bytes apart to a table of addresses.

    What belongs to an address of 0 is not written. Panels follow each other at the source, and lie ``target_step``
    bytes apart at the targets. ``mode``, ``bias`` and ``residual`` are as in the micro-kernel; ``columns`` says how
    many numbers of a panel may be written.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def transform(
        _typing: Any, tag: Any, source: Any, step: Any, targets: Any, target_step: Any, count: Any, mode: Any,
        bias: Any, residual: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(builder, tag)
            slope, source, step, targets, target_step, count, mode, bias, residual, columns = arguments
            starts = [vectors.load_address(targets, i) for i in range(form.results**2)]
            with cgutils.for_range(builder, count, intp=I64) as loop:
                moved = builder.mul(loop.index, target_step)
                for v in range(ISA.vectors):
                    offset = integer(v * ISA.bytes)
                    at = builder.add(builder.mul(loop.index, integer(ISA.vectors * ISA.bytes)), offset)
                    results = _results(vectors, form.a, builder.add(source, at), step)
                    left = builder.sub(columns, integer(v * vectors.lanes))
                    for start, value in zip(starts, results, strict=True):
                        with builder.if_then(builder.icmp_signed("!=", start, integer(0))):
                            out = builder.add(builder.add(start, moved), offset)
                            total = _finished(
                                vectors, value, mode, builder.add(bias, offset), builder.add(out, residual), slope, left
                            )
                            vectors.store_first(total, out, left)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 9), codegen

    return transform


def _results(vectors: Vectors, matrix: Matrix, place: Any, step: Any) -> list[Any]:
    """Emits A' m A for the places from an address on, row by row of m, so that few values are live at a time."""
    builder, side = vectors.builder, len(matrix)
    columns = transposed(matrix)
    totals: list[Any] = [None] * (side * side)
    for group in grouped(columns):
        lines = []
        for _ in group:
            row = []
            for _ in columns:
                row.append(vectors.load(place))
                place = builder.add(place, step)
            lines.append(product(vectors, matrix, row))
        parts: list[Sequence[float]] = [columns[group[0]]]
        if len(lines) == 2:
            parts = list(_halves(*(columns[i] for i in group)))
            lines = [[add(a, b) for a, b in zip(*lines, strict=True)] for add in (builder.fadd, builder.fsub)]
        for line, factors in zip(lines, parts, strict=True):
            for k, factor in enumerate(factors):
                for n in range(side) if factor else ():
                    totals[side * k + n] = _sum(vectors, totals[side * k + n], factor, line[n])
    return totals


def _finished(vectors: Vectors, value: Any, mode: Any, bias: Any, added: Any, slope: Any, left: Any) -> Any:
    """Emits what the mode does to a value; its operands are at ``bias`` and ``added``, ``left`` numbers of each."""
    builder = vectors.builder
    total = cgutils.alloca_once_value(builder, value)
    for flag, address in ((BIAS, bias), (ADD, added)):
        with builder.if_then(has(builder, mode, flag)):
            builder.store(builder.fadd(builder.load(total), vectors.load_first(address, left)), total)
    with builder.if_then(has(builder, mode, ACTIVATE)):
        builder.store(vectors.leaky_relu(builder.load(total), vectors.spread(slope)), total)
    return builder.load(total)


def _filter_transform(form: Form) -> Any:
    """A function that computes G g G' for ``count`` vectors: from taps ``tap`` to places ``step`` bytes apart."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def transform(_typing: Any, tag: Any, source: Any, tap: Any, target: Any, step: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(builder, tag)
            _, source, tap, target, step, count = arguments
            with cgutils.for_range(builder, count, intp=I64) as loop:
                at = builder.mul(loop.index, integer(ISA.bytes))
                place = builder.add(source, at)
                g: list[list[Any]] = []
                for _ in range(form.taps):
                    g.append([])
                    for _ in range(form.taps):
                        g[-1].append(vectors.load(place))
                        place = builder.add(place, tap)
                out = builder.add(target, at)
                for index, value in transformed_places(vectors, form.g, g):
                    vectors.store(value, builder.add(out, builder.mul(step, integer(index))))
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return transform


# -- a form's functions ----------------------------------------------------------------------------------------------


class Transforms(NamedTuple):
    """A form as the kernels take it: its sizes, and the addresses of its compiled functions."""

    inputs: int
    results: int
    places: int
    taps: int
    """Taps along each of the filter's two axes."""
    of_input: int
    of_result: int
    of_filters: int


def _of_input(sources, target, step, count):  # type: ignore[no-untyped-def]
    transform(np.float32(0), sources, target, step, count)  # type: ignore[name-defined]  # noqa: F821


def _of_result(  # type: ignore[no-untyped-def]
    slope, source, step, targets, target_step, count, mode, bias, residual, columns
):
    transform(  # type: ignore[name-defined]  # noqa: F821
        slope, source, step, targets, target_step, count, mode, bias, residual, columns
    )


def _of_filters(source, tap, target, step, count):  # type: ignore[no-untyped-def]
    transform(np.float32(0), source, tap, target, step, count)  # type: ignore[name-defined]  # noqa: F821


@lru_cache
def _compiled(form: Form) -> tuple[Transforms, list[Any]]:
    """A form's ``Transforms``, and the functions, which must live as long as their addresses are used."""
    parts = (
        (_of_input, 4 * ["int64"], _input_transform),
        (_of_result, ["float32", *9 * ["int64"]], _result_transform),
        (_of_filters, 5 * ["int64"], _filter_transform),
    )
    functions = [
        called(function, f"void({', '.join(kinds)})", f"{function.__name__}_{form.name}", transform=make(form))
        for function, kinds, make in parts
    ]
    addresses = [function.address for function in functions]
    return Transforms(form.inputs, form.results, len(form.b), form.taps, *addresses), functions


def transforms(form: Form) -> Transforms:
    """A form's ``Transforms``; the first call compiles its functions.

    One thread at a time: if two compiled them at once, one would get addresses of functions that are then freed.
    """
    with _compiling:
        return _compiled(form)[0]


def _compiler(form: Form) -> Callable[[Any], object]:
    """What compiles each of a form's functions, whatever their signatures."""
    return lambda _signature: transforms(form)


for _form in (form for forms in FORMS.values() for form in forms.values()):
    for _function in (_of_input, _of_result, _of_filters):
        COMPILERS[f"{__name__}.{_function.__name__}_{_form.name}"] = _compiler(_form)


# -- kernels ---------------------------------------------------------------------------------------------------------


@compiled
def winograd(  # type: ignore[no-untyped-def]
    share, tag, form, rows_from, rows_to, columns_from, columns_to, sizes, x, w, y, mode, bias, residual
):
    """Computes a convolution or an input gradient by a form's matrices.

    A task is some tiles and a chunk of images, whose pixels must follow each other in memory. ``rows_from[t]`` are the
    offsets of tile row t's source rows, ``rows_to[t]`` of its target rows; -1 where there is none. Returns how many
    products it computed.
    """
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    tiles = rows_to.shape[0] * sizes.tile_columns
    tasks = (tiles + sizes.tiles - 1) // sizes.tiles * chunks
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    most = sizes.tiles * sizes.chunk
    pixel = sizes.groups * sizes.depth * 4
    panel_row = sizes.panel * 4
    place_bytes = sizes.depth * panel_row
    places = form.places * form.places
    done = 0
    transformed = np.empty(places * (most * pixel // 4 + LINES) + LINES, np.float32)
    products = np.empty(places * most * sizes.panel + LINES, np.float32)
    nothing = np.zeros(sizes.chunk * pixel // 4 + sizes.panel, np.float32)
    sources = np.empty(form.inputs * form.inputs, np.int64)
    targets = np.empty(form.results * form.results, np.int64)
    no_offset = np.zeros(1, np.int64)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first_tile = task // chunks * sizes.tiles
        last_tile = min(first_tile + sizes.tiles, tiles)
        first = task % chunks * sizes.chunk
        count = min(sizes.chunk, sizes.images - first)
        rows = (last_tile - first_tile) * count
        # A cache line between places keeps them in different sets of the L1 cache.
        step = (rows * pixel + 63) // 64 * 64 + 64
        values = (transformed.ctypes.data + 63) // 64 * 64
        results = (products.ctypes.data + 63) // 64 * 64
        vectors = (count * pixel + ISA_BYTES - 1) // ISA_BYTES
        # A tile's last vector may write into the next tile's values, which are written after it.
        for tile in range(first_tile, last_tile):
            tile_row = tile // sizes.tile_columns
            tile_column = tile - tile_row * sizes.tile_columns
            for i in range(form.inputs):
                for j in range(form.inputs):
                    row, column = rows_from[tile_row, i], columns_from[tile_column, j]
                    inside = row >= 0 and column >= 0
                    sources[form.inputs * i + j] = (
                        x + first * sizes.source_image + row + column if inside else nothing.ctypes.data
                    )
            at = values + (tile - first_tile) * count * pixel
            call(form.of_input, (sources.ctypes.data, at, step, vectors))
        for panel in range(sizes.groups * panels):
            group = panel // panels
            channel = (panel - group * panels) * sizes.panel
            at = (group * sizes.channels + channel) * 4
            for place in range(places):
                for k in range(0, sizes.depth, DEPTH):
                    panel_product(
                        tag,
                        rows,
                        values + place * step + (group * sizes.depth + k) * 4,
                        no_offset.ctypes.data,
                        w + (panel * places + place) * place_bytes + k * panel_row,
                        no_offset.ctypes.data,
                        1,
                        pixel,
                        panel_row,
                        min(DEPTH, sizes.depth - k),
                        results + place * rows * panel_row,
                        panel_row,
                        ADD if k else STORE,
                        0,
                        0,
                        sizes.panel,
                    )
            for tile in range(first_tile, last_tile):
                tile_row = tile // sizes.tile_columns
                tile_column = tile - tile_row * sizes.tile_columns
                for i in range(form.results):
                    for j in range(form.results):
                        row, column = rows_to[tile_row, i], columns_to[tile_column, j]
                        inside = row >= 0 and column >= 0
                        target = y + first * sizes.target_image + row + column + at
                        targets[form.results * i + j] = target if inside else 0
                made = results + (tile - first_tile) * count * panel_row
                call(
                    form.of_result,
                    (
                        tag,
                        made,
                        rows * panel_row,
                        targets.ctypes.data,
                        sizes.target_image,
                        count,
                        mode,
                        bias + at,
                        residual,
                        sizes.channels - channel,
                    ),
                )
        done += places * rows * sizes.depth * sizes.channels * sizes.groups
    return done


@compiled
def pack_by_output(share, tag, form, w, sizes, target):  # type: ignore[no-untyped-def]
    """Transforms filters (OC, taps, IC) for a convolution, to panels of output channels.

    The result is (groups * panels, places, IC per group, panel). A task is a panel and some input channels, a vector at
    a time: first transformed, then transposed, so that whole cache lines of each place are written.
    """
    lanes = ISA_BYTES // 4
    blocks = (sizes.depth + CHANNELS - 1) // CHANNELS
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    panel_row = sizes.panel * 4
    places, taps = form.places * form.places, form.taps * form.taps
    square = places * lanes * ISA_BYTES
    squares = np.zeros(square // ISA_BYTES * sizes.panel + lanes, np.float32)
    while True:
        task = draw_task(share, sizes.groups * panels * blocks)
        if task >= sizes.groups * panels * blocks:
            break
        panel = task // blocks
        group = panel // panels
        at = (squares.ctypes.data + 63) // 64 * 64
        from_channel = (panel - group * panels) * sizes.panel
        width = min(sizes.panel, sizes.channels - from_channel)
        begin = task % blocks * CHANNELS
        for first in range(begin, min(begin + CHANNELS, sizes.depth), lanes):
            for c in range(width):
                source = w + ((group * sizes.channels + from_channel + c) * taps * sizes.depth + first) * 4
                place_at = at + c // lanes * square + c % lanes * ISA_BYTES
                call(form.of_filters, (source, sizes.depth * 4, place_at, lanes * ISA_BYTES, 1))
            for place in range(places):
                for half in range(0, sizes.panel, lanes):
                    transpose(
                        tag,
                        at + half // lanes * square + place * lanes * ISA_BYTES,
                        ISA_BYTES,
                        target + ((panel * places + place) * sizes.depth + first) * panel_row + half * 4,
                        panel_row,
                        sizes.depth - first,
                    )


@compiled
def pack_by_input(share, tag, form, w, sizes, target):  # type: ignore[no-untyped-def]
    """Transforms filters (OC, taps, IC) for an input gradient, to panels of input channels.

    The result is (groups * panels, places, OC per group, panel). A task is some output channels, whose rows are
    neighbours in each place.
    """
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    panel_row = sizes.panel * 4
    place_bytes = sizes.depth * panel_row
    places, taps = form.places * form.places, form.taps * form.taps
    blocks = (sizes.depth + ROWS - 1) // ROWS
    while True:
        task = draw_task(share, sizes.groups * blocks)
        if task >= sizes.groups * blocks:
            break
        group = task // blocks
        first = task % blocks * ROWS
        for panel in range(panels):
            for k in range(first, min(first + ROWS, sizes.depth)):
                source = w + ((group * sizes.depth + k) * taps * sizes.channels + panel * sizes.panel) * 4
                row = (group * panels + panel) * places * place_bytes + k * panel_row
                call(form.of_filters, (source, sizes.channels * 4, target + row, place_bytes, panel_row // ISA_BYTES))
