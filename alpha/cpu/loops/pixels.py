"""What kernels of images share: how their tasks are divided, and how a pixel's numbers are written.

The numbers behind a pixel are runs: all images' channels as one where they lie beside each other, else each image's.
A run is worked on in pieces, and a task is some positions of the result for one piece, row after row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from alpha.arguments import Shape
from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, places
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.machine import pointer_to
from alpha.cpu.loops.parts import equal_parts
from alpha.cpu.loops.runs import Run

PIECE_BYTES = 4096
"""Bytes of a piece of a run: for positions that share rows of an image, those stay in the second cache."""

LONG_PIECE_BYTES = 1 << 16
"""Bytes of a piece where no two positions share more than a pixel: nothing is read again from a cache, and memory is
read and written faster in long runs. To double 32 MB takes 25 % less than in pieces of 4 KB."""

TASK_BYTES = 1 << 16
"""Bytes that a task writes, about."""

X, OUT = 1, 2
"""Places in a job: of what is read, and of what is written."""

VECTORS = 4
"""Vectors of a pixel that are worked on at once."""


class PixelPlan(NamedTuple):
    """How the result's positions are divided into tasks; ``from`` and ``to``: steps of what is read and written, in
    bytes. Behind it stands what else a kernel needs."""

    tasks: int
    positions: int
    """Positions per task."""
    blocks: int
    """Tasks of a piece."""
    pieces: int
    """Pieces of a run."""
    piece: int
    """Numbers of a piece, the last of which may have fewer."""
    length: int
    """Numbers of a run."""
    height: int
    """Rows of the result; width: its columns."""
    width: int
    from_row: int
    from_column: int
    from_run: int
    to_row: int
    to_column: int
    to_run: int


PLACES = places(PixelPlan._fields)


def plan(
    shape: Shape, strides: Shape, size: tuple[int, int], to: Shape, item: int, read_once: bool = False
) -> PixelPlan:
    """The plan for images of a shape and strides, whose results have a size and the strides ``to``.

    Args:
        item: bytes of a number.
        read_once: whether no two positions share more than a pixel.
    """
    runs, length, from_run = runs_of(shape, strides)
    if read_once:
        piece = equal_parts(length, LONG_PIECE_BYTES // item, ISA.lanes(item))
    else:
        piece = min(length, PIECE_BYTES // item)
    pieces = -(-length // max(1, piece))
    positions = max(1, TASK_BYTES // max(1, piece * item))
    blocks = -(-size[0] * size[1] // positions)
    steps = [step * item for step in (strides[1], strides[2], from_run, to[1], to[2], to[0])]
    return PixelPlan(runs * pieces * blocks, positions, blocks, pieces, piece, length, *size, *steps)


def runs_of(shape: Shape, strides: Shape) -> tuple[int, int, int]:
    """The runs behind a pixel, their numbers, and the step from one to the next."""
    images, _, _, channels = shape
    if images == 1 or strides[0] == channels:
        return 1, images * channels, 0
    return images, channels, strides[0]


class Row(NamedTuple):
    """A part of a row of the result that belongs to a task."""

    number: Value
    left: Value
    """Its first column; right: the one behind its last."""
    right: Value
    x: Value
    """Where what is read begins, and the row."""
    out: Value
    numbers: Value
    """How many a piece has."""


def rows_task(item: int, body: Callable[[Code, Row], None]) -> Code:
    """``task(job, plan, task)``: ``body`` for each row of some positions."""
    code = Code("task", "job", "plan", "task")
    code.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")
    positions, blocks, height, width = code.fields("%plan", PLACES, "positions", "blocks", "height", "width")
    part = code.quotient("%task", blocks)
    first = code.mul(code.sub("%task", code.mul(part, blocks)), positions)
    last = code.smaller(code.add(first, positions), code.mul(height, width))
    pieces, piece, length = code.fields("%plan", PLACES, "pieces", "piece", "length")
    run = code.quotient(part, pieces)
    low = code.mul(code.sub(part, code.mul(run, pieces)), piece)
    count = code.smaller(piece, code.sub(length, low))
    skipped = code.mul(low, item)
    from_run, to_run, to_row = code.fields("%plan", PLACES, "from_run", "to_run", "to_row")
    x, out = (
        code.add(code.add(code.field("%job", place), code.mul(run, step)), skipped)
        for place, step in ((X, from_run), (OUT, to_run))
    )

    def row(number: Value, _: list[Value]) -> None:
        start = code.mul(number, width)
        left = code.write(f"call i64 @llvm.smax.i64(i64 {code.sub(first, start)}, i64 0)")
        right = code.smaller(width, code.sub(last, start))
        body(code, Row(number, left, right, x, code.add(out, code.mul(number, to_row)), count))

    code.loop(code.quotient(first, width), code.quotient(code.add(last, code.sub(width, 1)), width), row)
    code.give()
    return code


def put_sums(
    run: Run,
    starts: tuple[Value, Value],
    row: Callable[[Value], tuple[Value, Merge]],
    pixel: Callable[[Value, Value], tuple[Value, Value]],
    streams: bool,
) -> None:
    """Writes ``%count`` numbers of a pixel at ``%out``: sums over ``%rows`` of sums over ``%columns`` of pixels.

    Args:
        starts: what the sum of a row's pixels begins with, and the sum of the rows.
        row: for the number of a row where it begins, and what makes the new totals from its sums and the totals.
        pixel: for where a row begins, and the number of a pixel, where that is, and its weight in every lane.
        streams: whether whole vectors are written past the caches.
    """
    code, (start, first_total) = run.code, starts

    def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> list[Value]:
        def add_row(number: Value, totals: list[Value]) -> list[Value]:
            line, merge = row(number)

            def add_pixel(number: Value, sums: list[Value]) -> list[Value]:
                at, weight = pixel(line, number)
                values = [run.read(code.add(at, offset), left) for offset in offsets]
                return [run.fma(weight, value, total) for value, total in zip(values, sums, strict=True)]

            sums = code.loop(0, "%columns", add_pixel, [(run.floats, start)] * len(offsets))[1:]
            return merge(sums, totals)

        totals = code.loop(0, "%rows", add_row, [(run.floats, first_total)] * len(offsets))[1:]
        put(run, totals, "%out", offsets, left, streams)
        return []

    run.fold("%count", (VECTORS, 1), visit)


Merge = Callable[[list[Value], list[Value]], list[Value]]


def put_run(
    run: Run, count: Value, together: int, value: Callable[[Value, Value | None], Value], out: Value, streams: bool
) -> None:
    """Writes so many numbers at an address, ``value(offset, left)`` each vector, several of them together."""

    def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> list[Value]:
        put(run, [value(offset, left) for offset in offsets], out, offsets, left, streams)
        return []

    run.fold(count, (together, 1), visit)


def put(
    run: Run, values: Sequence[Value], out: Value, offsets: Sequence[Value], left: Value | None, streams: bool
) -> None:
    """Stores vectors at some bytes from an address; whole ones past the caches if asked."""
    for value, offset in zip(values, offsets, strict=True):
        address = run.code.add(out, offset)
        if streams and left is None:
            pointer = f"{pointer_to(run.floats)} {run.code.pointer(run.floats, address)}"
            run.code.act(f"store {run.floats} {value}, {pointer}, align {ISA.bytes}, !nontemporal !0")
        else:
            run.put(value, address, left)


STREAMS = "!0 = !{ i32 1 }"
"""What a module needs in which something is stored past the caches."""
