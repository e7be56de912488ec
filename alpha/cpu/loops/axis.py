"""What kernels along one axis share: how its lines lie, and how they are divided into tasks.

A dense tensor is blocks of rows of columns, the axis being the rows. Where there is one column, a block is a line of
neighbouring numbers, and a task some lines; else a task is a strip of a block's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, places
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.parts import equal_parts
from alpha.cpu.loops.runs import Run

STRIP = 256
"""Columns of a task at most: what is kept for them stays in the first cache."""

VECTORS = STRIP * 8 // ISA.bytes
"""Vectors that hold a number for each column of a strip, at most."""


SHORT = 48
"""Numbers of a short line at most."""

MOST_ALONE = 8
"""Lines at most that are not worth transposing."""

LINES, SHORT_LINES, COLUMNS = "lines", "short lines", "columns"
"""How a kernel sees the numbers along an axis; short lines become columns (``alpha.cpu.loops.short_lines``)."""


class AxisPlan(NamedTuple):
    """The sizes of a tensor along an axis."""

    tasks: int
    blocks: int
    rows: int
    columns: int
    bunch: int
    """Lines of a task, or columns of a strip."""
    strips: int
    """Strips of a block."""


_PLACE = places(AxisPlan._fields)


def plan(blocks: int, rows: int, columns: int, task: int) -> AxisPlan:
    """The plan of a tensor; ``task``: elements of a task of lines, about."""
    if columns == 1:
        bunch = equal_parts(blocks, task // max(rows, 1))
        return AxisPlan(-(-blocks // bunch), blocks, rows, columns, bunch, 1)
    strip = min(columns, STRIP)
    strips = -(-columns // strip)
    return AxisPlan(blocks * strips, blocks, rows, columns, strip, strips)


def plan_and_kind(blocks: int, rows: int, columns: int, task: int, bits: int) -> tuple[AxisPlan, str]:
    """The plan of a tensor, and how a kernel sees it. Lines of one number are a row of columns."""
    if rows == 1:
        blocks, columns = 1, blocks * columns
    kind = COLUMNS if columns > 1 else SHORT_LINES if are_short(blocks, rows, bits) else LINES
    return plan(blocks, rows, columns, task), kind


def are_short(lines: int, length: int, bits: int) -> bool:
    """Whether lines are transposed, by the sizes alone; float64 has few lanes to fill."""
    return bits == 32 and length <= SHORT and lines > MOST_ALONE


def bunches_task(body: Callable[[Code, Value, Value], None]) -> Code:
    """``task(job, plan, task)``: ``body(code, first, end)`` of a task's lines; it finds ``%rows``, a line's numbers."""
    code = Code("task", "job", "plan", "task")
    blocks, rows, bunch = code.fields("%plan", _PLACE, "blocks", "rows", "bunch")
    code.act(f"%rows = add i64 {rows}, 0")
    first = code.mul("%task", bunch)
    body(code, first, code.smaller(code.add(first, bunch), blocks))
    code.give()
    return code


def lines_task(item: int, line: Callable[[Code, Value], None]) -> Code:
    """``task(job, plan, task)``: ``line(code, offset)`` for each line, by the bytes before it, as ``bunches_task``."""

    def lines(code: Code, first: Value, end: Value) -> None:
        size = code.mul("%rows", item)
        code.loop(first, end, lambda number, _: line(code, code.mul(number, size)))

    return bunches_task(lines)


def strips_task(item: int, strip: Callable[[Code, Value, Value], None], name: str = "task") -> Code:
    """``task(job, plan, task)``, or another name: ``strip(code, offset, place)`` of a strip, by the bytes before it,
    and before its columns in a tensor without the axis.

    It finds ``%rows``, ``%step`` (a row's bytes) and ``%columns`` (of the strip).
    """
    code = Code(name, "job", "plan", "task")
    rows, columns, bunch, strips = code.fields("%plan", _PLACE, "rows", "columns", "bunch", "strips")
    code.act(f"%rows = add i64 {rows}, 0")
    code.act(f"%step = mul i64 {columns}, {item}")
    first = code.mul(code.rest("%task", strips), bunch)
    left = code.sub(columns, first)
    code.act(f"%columns = select i1 {code.less(bunch, left)}, i64 {bunch}, i64 {left}")
    block, skipped = code.quotient("%task", strips), code.mul(first, item)
    offset = code.add(code.mul(block, code.mul(rows, "%step")), skipped)
    strip(code, offset, code.add(code.mul(block, "%step"), skipped))
    code.give()
    return code


# -- columns -------------------------------------------------------------------------------------------------------


def each_row(run: Run, together: Sequence[int], body: Callable[..., None], *steps: Value) -> None:
    """``body(rows, at, left)`` for each vector of ``%columns``, so many of ``%rows`` at a time, then fewer.

    ``rows``: the bytes from the strip's first number to the vector in each of them, by ``%step``; with other steps a
    list for each of these. ``at``: those in one row.
    """
    code, row, steps = run.code, "0", steps or ("%step",)
    for count in together:

        def turn(number: Value, _: list[Value], count: int = count) -> None:
            starts = [[code.mul(code.add(number, k), step) for k in range(count)] for step in steps]

            def vector(at: Value, left: Value | None) -> None:
                body(*[[code.add(start, at) for start in one] for one in starts], at, left)

            run.map("%columns", 1, vector)

        (row,) = code.loop(row, code.sub("%rows", count - 1), turn, (), count)
