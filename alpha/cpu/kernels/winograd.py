"""Winograd's algorithm for convolutions and input gradients: fewer products, after additions.

Images and results are float32 or bfloat16; sums are float32. The products' factors are float32, or bfloat16 in words of
two (see ``pairs``): then channels come in pairs, whose number must be even.

A tile of inputs d and a filter g give results A' [(G g G') * (B d B')] A; for the matrices see ``winograd_forms``.
Summed over channels, the products at each of a tile's places are one matrix product.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308.
"""

from __future__ import annotations

import itertools
import math
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
from alpha.cpu.kernels.vectors import I64, Images, Vectors, integer, transpose
from alpha.cpu.kernels.winograd_forms import FEEDBACK_OF_TWO, FORMS, Form, Matrix, transposed
from alpha.cpu.signatures import COMPILERS

ISA_BYTES = ISA.bytes

_compiling = compilation_lock()

CHANNELS, ROWS = 32, 8
"""Input channels, and output channels, per task that transforms filters: whole cache lines next to each other."""

DEPTH = 128
"""Channels that a product sums one after another: float32's error grows with their number, most of all for F(4, 3)."""

LINES = 32
"""Numbers in two cache lines: room to align a buffer, and for a vector beyond its end."""

LANES = ISA.lanes(4)

Int64s = Any  # np.ndarray of int64; Numba types it by the value


class Halves(NamedTuple):
    """Which numbers are bfloat16 in memory; the others are float32.

    Attributes:
        source: the images that are read.
        factors: transformed inputs and filters, whose neighbouring channels are then words.
        target: the images that are written, and the residual.
    """

    source: bool = False
    factors: bool = False
    target: bool = False


PLAIN = Halves()


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


def images_in_memory(vectors: Vectors, are_halves: bool) -> Images:
    """Loads and stores of images of float32, or of bfloat16."""
    return Images(vectors, types.uint16 if are_halves else types.float32)


def _input_transform(form: Form, halves: Halves) -> Any:
    """Makes a function for B d B' for ``count`` vectors: from a table of addresses to places ``step`` bytes apart."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def transform(_typing: Any, tag: Any, sources: Any, target: Any, step: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors, side = Vectors(builder, tag), form.inputs
            images = images_in_memory(vectors, halves.source)
            _, sources, target, step, count = arguments
            starts = [vectors.load_address(sources, place) for place in range(side * side)]
            with cgutils.for_range(builder, count, intp=I64) as loop:
                at = builder.mul(loop.index, integer(LANES * images.item))
                d = [[images.load(builder.add(starts[side * i + j], at)) for j in range(side)] for i in range(side)]
                out = builder.add(target, builder.mul(loop.index, integer(LANES * (2 if halves.factors else 4))))
                values = transformed_places(vectors, form.b, d)
                if halves.factors:
                    values = ((place, bits) for place, bits, _ in _factors(vectors, FEEDBACK_OF_TWO.of_inputs, values))
                for place, value in values:
                    at = vectors.pointer(builder.add(out, builder.mul(step, integer(place))), value.type)
                    builder.store(value, at).align = 2 if halves.factors else 4
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 4), codegen

    return transform


def _result_transform(form: Form, halves: Halves) -> Any:
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
            images = images_in_memory(vectors, halves.target)
            slope, source, step, targets, target_step, count, mode, bias, residual, columns = arguments
            starts = [vectors.load_address(targets, i) for i in range(form.results**2)]
            with cgutils.for_range(builder, count, intp=I64) as loop:
                moved = builder.mul(loop.index, target_step)
                for v in range(ISA.vectors):
                    offset = integer(v * ISA.bytes)
                    at = builder.add(builder.mul(loop.index, integer(ISA.vectors * ISA.bytes)), offset)
                    results = _results(vectors, form.a, builder.add(source, at), step)
                    left, before = builder.sub(columns, integer(v * LANES)), integer(v * LANES * images.item)
                    finish = _Finish(vectors, images, mode, slope, left)
                    for start, value in zip(starts, results, strict=True):
                        with builder.if_then(builder.icmp_signed("!=", start, integer(0))):
                            out = builder.add(builder.add(start, moved), before)
                            total = finish.of(value, builder.add(bias, offset), builder.add(out, residual))
                            images.store_first(total, out, left)
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


class _Finish(NamedTuple):
    """Emits what the mode does to results, of which ``left`` numbers are written; ``images``: a residual's loads."""

    vectors: Vectors
    images: Images
    mode: Any
    slope: Any
    left: Any

    def of(self, value: Any, bias: Any, added: Any) -> Any:
        """A result, for which the operands are at ``bias`` and ``added``."""
        vectors, builder = self.vectors, self.vectors.builder
        total = cgutils.alloca_once_value(builder, value)
        for flag, load, address in ((BIAS, vectors.load_first, bias), (ADD, self.images.load_first, added)):
            with builder.if_then(has(builder, self.mode, flag)):
                builder.store(builder.fadd(builder.load(total), load(address, self.left)), total)
        with builder.if_then(has(builder, self.mode, ACTIVATE)):
            builder.store(vectors.leaky_relu(builder.load(total), vectors.spread(self.slope)), total)
        return builder.load(total)


def _filter_transform(form: Form, halves: Halves) -> Any:
    """A function that computes G g G' for ``count`` vectors: from taps ``tap`` to places ``step`` bytes apart.

    Factors of bfloat16 are rounded, and written as float32.
    """

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
                values = transformed_places(vectors, form.g, g)
                if halves.factors:
                    rounded = _factors(vectors, FEEDBACK_OF_TWO.of_filters, values)
                    values = ((place, value) for place, _, value in rounded)
                for index, value in values:
                    vectors.store(value, builder.add(out, builder.mul(step, integer(index))))
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return transform


def _factors(vectors: Vectors, shares: Matrix, values: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any, Any]]:
    """Emits the rounding of a tile's places to bfloat16, with feedback; yields places, bits, and float32 numbers.

    ``shares``: those of ``Feedback`` along both axes. A place's errors are what it is off by in the end.
    """
    builder, side = vectors.builder, len(shares)
    exact, errors = dict(values), dict[int, Any]()
    takes = [[k for k, share in enumerate(row) if share] for row in shares]
    for i, j in sorted(
        itertools.product(range(side), repeat=2), key=lambda at: bool(takes[at[0]]) + bool(takes[at[1]])
    ):
        shifts = [(shares[i][k], errors[side * k + j]) for k in takes[i]]
        shifts += [(shares[j][k], errors[side * i + k]) for k in takes[j]]
        shifts += [(-shares[i][k] * shares[j][n], errors[side * k + n]) for k in takes[i] for n in takes[j]]
        value = wanted = exact[side * i + j]
        for size in sorted({abs(share) for share, _ in shifts}):  # one product for all errors of equal shares
            some = [(math.copysign(1, share), error) for share, error in shifts if abs(share) == size]
            total = _combination(vectors, [sign for sign, _ in some], [error for _, error in some])
            wanted = builder.fadd(wanted, builder.fmul(vectors.constant(size), total))
        bits = vectors.factor(wanted)
        rounded = vectors.of_factor(bits)
        errors[side * i + j] = builder.fsub(rounded, value)
        yield side * i + j, bits, rounded


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
    factor: int
    """Bytes of a transformed number that is multiplied."""
    item: int
    """Bytes of a number that is written."""


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
def _of_form(name: str, form: Form, halves: Halves) -> Any:
    """A form's function of a name; it must live as long as its address is used."""
    function, kinds, make = _FUNCTIONS[name]
    signature = f"void({', '.join(kinds)})"
    return called(function, signature, _full_name(name, form, halves), transform=make(form, halves))


_FUNCTIONS: dict[str, tuple[Callable[..., None], list[str], Callable[[Form, Halves], Any]]] = {
    "_of_input": (_of_input, 4 * ["int64"], _input_transform),
    "_of_result": (_of_result, ["float32", *9 * ["int64"]], _result_transform),
    "_of_filters": (_of_filters, 5 * ["int64"], _filter_transform),
}
_FIELDS = {"_of_input": (True, True, False), "_of_result": (False, False, True), "_of_filters": (False, True, False)}
"""Which of the fields of ``Halves`` a function is made for."""


def _full_name(name: str, form: Form, halves: Halves) -> str:
    """The name of a form's function, as the cache of kernels has it."""
    marks = "".join([field[0] for field, is_half in halves._asdict().items() if is_half])
    return "_".join([name, form.name, *([marks] if marks else [])])


def _for(name: str, halves: Halves) -> Halves:
    """What of it a function is made for."""
    return Halves(*[used and one for used, one in zip(_FIELDS[name], halves, strict=True)])


@lru_cache
def _compiled(form: Form, halves: Halves) -> Transforms:
    addresses = [_of_form(name, form, _for(name, halves)).address for name in _FUNCTIONS]
    items = [2 if is_half else 4 for is_half in halves[1:]]
    return Transforms(form.inputs, form.results, len(form.b), form.taps, *addresses, *items)


def transforms(form: Form, halves: Halves = PLAIN) -> Transforms:
    """A form's ``Transforms``; the first call compiles its functions.

    One thread at a time: if two compiled them at once, one would get addresses of functions that are then freed.
    """
    with _compiling:
        return _compiled(form, halves)


def _compiler(name: str, form: Form, halves: Halves) -> Callable[[Any], object]:
    """What compiles one of a form's functions, whatever its signature."""

    def compile_one(_signature: Any) -> object:
        with _compiling:
            return _of_form(name, form, halves)

    return compile_one


for _form in (form for forms in FORMS.values() for form in forms.values()):
    for _name in _FUNCTIONS:
        for _made_for in {_for(_name, Halves(*one)) for one in itertools.product((False, True), repeat=3)}:
            COMPILERS[f"{__name__}.{_full_name(_name, _form, _made_for)}"] = _compiler(_name, _form, _made_for)


# -- kernels ---------------------------------------------------------------------------------------------------------


@compiled
def winograd(  # type: ignore[no-untyped-def]
    share, tag, slope, form, rows_from, rows_to, columns_from, columns_to, sizes, x, w, y, mode, bias, residual
):
    """Computes a convolution or an input gradient by a form's matrices.

    The type of ``tag`` is the factors': float32's, or that of words, int32. A task is some tiles and a chunk of images,
    whose pixels must follow each other in memory. ``rows_from[t]`` are the offsets of tile row t's source rows,
    ``rows_to[t]`` of its target rows; -1 where there is none. Returns how many products it computed.
    """
    chunks = (sizes.images + sizes.chunk - 1) // sizes.chunk
    tiles = rows_to.shape[0] * sizes.tile_columns
    tasks = (tiles + sizes.tiles - 1) // sizes.tiles * chunks
    panels = (sizes.channels + sizes.panel - 1) // sizes.panel
    most = sizes.tiles * sizes.chunk
    numbers = sizes.groups * sizes.depth
    pixel = numbers * form.factor
    terms = sizes.depth * form.factor // 4
    panel_row = sizes.panel * 4
    place_bytes = terms * panel_row
    places = form.places * form.places
    done = 0
    transformed = np.empty(places * (most * pixel // 4 + LINES) + LINES, np.float32)
    products = np.empty(places * most * sizes.panel + LINES, np.float32)
    nothing = np.zeros(sizes.chunk * numbers + sizes.panel, np.float32)
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
        vectors = (count * numbers + LANES - 1) // LANES
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
            at = group * sizes.channels + channel
            for place in range(places):
                for k in range(0, terms, DEPTH):
                    panel_product(
                        tag,
                        rows,
                        values + place * step + (group * terms + k) * 4,
                        no_offset.ctypes.data,
                        w + (panel * places + place) * place_bytes + k * panel_row,
                        no_offset.ctypes.data,
                        1,
                        pixel,
                        panel_row,
                        min(DEPTH, terms - k),
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
                        target = y + first * sizes.target_image + row + column + at * form.item
                        targets[form.results * i + j] = target if inside else 0
                made = results + (tile - first_tile) * count * panel_row
                call(
                    form.of_result,
                    (
                        slope,
                        made,
                        rows * panel_row,
                        targets.ctypes.data,
                        sizes.target_image,
                        count,
                        mode,
                        bias + at * 4,
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
