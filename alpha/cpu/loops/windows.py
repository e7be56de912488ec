"""Means over the windows of images, and their gradients: sums of a window's elements, each times one weight.

A plan is a ``PixelPlan`` and the tables of ``Windows``: for rows and for columns how many pairs (window, element) each
position has, and for the first pair its index on the other side and its tap. Padding has no pairs, so it is never read.
The elements of a row are added up first, then the rows. A job is a record of 8-byte fields: plan, what is read, what is
written.
"""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.loops import pixels
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.pixels import PixelPlan, Row
from alpha.cpu.loops.runs import Run

COUNT, SOURCE, TAP = range(3)
"""Rows of an axis' table."""


class Windows(NamedTuple):
    """The fields of a plan behind a ``PixelPlan``. ``taps``: steps of the maxima's taps, in bytes."""

    rows: int
    """Address of the rows' table; a table has as many columns as the axis has positions."""
    columns: int
    window_columns: int
    """Columns of a window: by so much a tap grows from a row of it to the next."""
    row_pair: int
    """From a pair to the next of the same row: steps of its index on the other side, and of its tap."""
    row_tap: int
    column_pair: int
    column_tap: int
    taps_row: int
    taps_column: int
    taps_run: int
    full: int
    """By how many elements a window's sum is divided; 0: by those that it has."""
    sizes_rows: int
    """Address of the windows' heights, without padding."""
    sizes_columns: int


_PLACE = places(PixelPlan._fields, Windows._fields)


def ir_of(bits: int, streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    ``streams``: whether it writes past the caches; then each position begins at a whole vector.
    """
    writer = _Writer(bits, streams)
    functions = [writer.window(), pixels.rows_task(bits // 8, writer.row)]
    return module(functions, shared(), alone(), pixels.STREAMS)


class _Writer:
    """Writes the functions of one kernel."""

    def __init__(self, bits: int, streams: bool) -> None:
        self.bits, self.streams = bits, streams
        self.scalar = "float" if bits == 32 else "double"

    def _field(self, code: Code, name: str) -> Value:
        return code.field("%plan", _PLACE[name])

    def _steps(self, code: Code) -> tuple[Value, Value]:
        """Bytes from a pair to the next of a column, and of a row."""
        down = code.mul(self._field(code, "row_pair"), self._field(code, "from_row"))
        return down, code.mul(self._field(code, "column_pair"), self._field(code, "from_column"))

    def window(self) -> Code:
        """``window(plan, x, rows, columns, weight, out, count)``: some vectors at a time, from all of the window."""
        code = Code("window", "plan", "x", "rows", "columns", "weight", "out", "count", weight=self.scalar)
        run = Run(self.bits, code)
        weight, zero = run.spread("%weight"), run.number(0.0)
        down, across = self._steps(code)

        def merge(sums: list[Value], totals: list[Value]) -> list[Value]:
            return [run.add(total, one) for total, one in zip(totals, sums, strict=True)]

        def row(number: Value) -> tuple[Value, pixels.Merge]:
            return code.add("%x", code.mul(number, down)), merge

        def pixel(line: Value, number: Value) -> tuple[Value, Value]:
            return code.add(line, code.mul(number, across)), weight

        pixels.put_sums(run, (zero, zero), row, pixel, self.streams)
        code.give()
        return code

    # -- tasks -------------------------------------------------------------------------------------------------------

    def row(self, code: Code, row: Row) -> None:
        """The positions of a part of a row."""
        high, top = self._entry(code, "rows", "height", row.number)
        line = code.add(row.x, code.mul(top, self._field(code, "from_row")))
        full = self._field(code, "full")

        def position(column: Value, _: list[Value]) -> None:
            wide, first = self._entry(code, "columns", "width", column)
            at = code.add(line, code.mul(first, self._field(code, "from_column")))
            out = code.add(row.out, code.mul(column, self._field(code, "to_column")))
            elements = code.mul(high, wide)
            some = code.write(f"select i1 {code.less(0, elements)}, i64 {elements}, i64 1")
            divisor = code.write(f"select i1 {code.less(0, full)}, i64 {full}, i64 {some}")
            share = code.write(f"fdiv double 1.0, {code.write(f'sitofp i64 {divisor} to double')}")
            weight = share if self.bits == 64 else code.write(f"fptrunc double {share} to float")
            code.call("void", "window", "%plan", at, high, wide, weight, out, row.numbers, a4=self.scalar)

        code.loop(row.left, row.right, position)

    def _entry(self, code: Code, table: str, length: str, place: Value) -> tuple[Value, Value]:
        """How many pairs a position of an axis has, and the first one's index on the other side."""
        start = self._field(code, table)
        found = []
        for row in (COUNT, SOURCE):
            at = code.add(code.mul(self._field(code, length), row), place)
            found.append(code.load("i64", code.add(start, code.mul(at, 8)), 8))
        return found[0], found[1]
