"""Resampling: each pixel of images a sum of weighted rows of weighted pixels, or one pixel moved.

A plan is a ``PixelPlan`` and the tables of ``Resampling``: for rows and for columns where each position's pairs begin,
and each pair's source and weight. A job is a record of 8-byte fields: plan, images, result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from alpha.cpu.loops import pixels
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.pixels import VECTORS, PixelPlan, Row
from alpha.cpu.loops.runs import Run

_SHORT = ((2, 2), (4, 4), (1, 1), (1, 2), (2, 1))
"""Rows and columns of pairs that have functions of their own: those of interpolation and of its gradients."""


class Resampling(NamedTuple):
    """The fields of a plan behind a ``PixelPlan``."""

    row_starts: int
    """Addresses of the pairs' tables: where each position's begin; sources; weights, of the numbers' type."""
    row_sources: int
    row_weights: int
    column_starts: int
    column_sources: int
    column_weights: int


_PLACE = places(PixelPlan._fields, Resampling._fields)


def ir_of(bits: int, moves: bool, streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    Args:
        moves: whether each pixel is one of the images', with weight 1.
        streams: whether it writes past the caches; then each pixel begins at a whole vector.
    """
    writer = _Writer(bits, streams)
    functions = [writer.move()] if moves else [*[writer.short_sums(*counts) for counts in _SHORT], writer.sums()]
    task = pixels.rows_task(bits // 8, writer.moved if moves else writer.summed)
    return module([*functions, task], shared(), alone(), pixels.STREAMS)


class _Writer:
    """Writes the functions of one kernel."""

    def __init__(self, bits: int, streams: bool) -> None:
        self.bits, self.item, self.streams = bits, bits // 8, streams
        self.scalar = "float" if bits == 32 else "double"

    # -- one pixel -------------------------------------------------------------------------------------------------

    def move(self) -> Code:
        """``move(x, out, count)``: a pixel's numbers as they are."""
        code = Code("move", "x", "out", "count")
        run = Run(self.bits, code)
        value = lambda offset, left: run.read(code.add("%x", offset), left)  # noqa: E731
        pixels.put_run(run, "%count", VECTORS, value, "%out", self.streams)
        code.give()
        return code

    def short_sums(self, rows: int, columns: int) -> Code:
        """``sums{rows}{columns}(plan, x, top, first, out, count)``: ``sums`` of so many rows and columns of pairs."""
        code = Code(f"sums{rows}{columns}", "plan", "x", "top", "first", "out", "count")
        run = Run(self.bits, code)
        steps, weights = [], []
        for axis, first, count in (("row", "%top", rows), ("column", "%first", columns)):
            places = [code.add(first, k) for k in range(count)]
            step = self._field(code, f"from_{axis}")
            steps.append([code.mul(self._source(code, axis, place), step) for place in places])
            weights.append([self._weight(run, self._field(code, f"{axis}_weights"), place) for place in places])
        down, across = weights
        starts = [[code.add(code.add("%x", line), side) for side in steps[1]] for line in steps[0]]

        def total(values: list[Value], factors: list[Value]) -> Value:
            found = run.mul(factors[0], values[0])
            for value, factor in zip(values[1:], factors[1:], strict=True):
                found = run.fma(factor, value, found)
            return found

        def value(offset: Value, left: Value | None) -> Value:
            read = [[run.read(code.add(pixel, offset), left) for pixel in line] for line in starts]
            return total([total(line, across) for line in read], down)

        pixels.put_run(run, "%count", VECTORS if rows * columns == 1 else 2, value, "%out", self.streams)
        code.give()
        return code

    def sums(self) -> Code:
        """``sums(plan, x, rows, top, columns, first, out, count)``: so many rows and columns of pairs.

        ``top``, ``first``: the places of their first pairs in the tables.
        """
        code = Code("sums", "plan", "x", "rows", "top", "columns", "first", "out", "count")
        run = Run(self.bits, code)
        zero, minus = run.number(0.0), run.number(-0.0)
        # Nothing is added to -0 but what is there: a single pixel keeps its sign.
        some = code.write(f"icmp sgt i64 {code.smaller('%rows', '%columns')}, 0")
        start = code.write(f"select i1 {some}, {run.floats} {minus}, {run.floats} {zero}")

        def row(number: Value) -> tuple[Value, pixels.Merge]:
            place = code.add("%top", number)

            def merge(sums: list[Value], totals: list[Value]) -> list[Value]:
                weight = self._weight(run, self._field(code, "row_weights"), place)
                return [run.fma(weight, one, total) for one, total in zip(sums, totals, strict=True)]

            return code.add("%x", code.mul(self._source(code, "row", place), self._field(code, "from_row"))), merge

        def pixel(line: Value, number: Value) -> tuple[Value, Value]:
            place = code.add("%first", number)
            source = self._source(code, "column", place)
            at = code.add(line, code.mul(source, self._field(code, "from_column")))
            return at, self._weight(run, self._field(code, "column_weights"), place)

        pixels.put_sums(run, (minus, start), row, pixel, self.streams)
        code.give()
        return code

    # -- tables ----------------------------------------------------------------------------------------------------

    def _field(self, code: Code, name: str) -> Value:
        return code.field("%plan", _PLACE[name])

    def _entry(self, code: Code, table: str, place: Value) -> Value:
        """An int64 of a table."""
        return code.load("i64", code.add(self._field(code, table), code.mul(place, 8)), 8)

    def _source(self, code: Code, axis: str, place: Value) -> Value:
        return self._entry(code, f"{axis}_sources", place)

    def _weight(self, run: Run, weights: Value, place: Value | int) -> Value:
        """A pair's weight in every lane."""
        address = run.code.add(weights, run.code.mul(place, self.item))
        return run.spread(run.code.load(self.scalar, address, self.item))

    def _pairs(self, code: Code, axis: str, place: Value) -> tuple[Value, Value]:
        """The first of a position's pairs, and their number."""
        first = self._entry(code, f"{axis}_starts", place)
        return first, code.sub(self._entry(code, f"{axis}_starts", code.add(place, 1)), first)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def moved(self, code: Code, row: Row) -> None:
        """A part of a row, each pixel moved."""
        line = code.add(row.x, code.mul(self._source(code, "row", row.number), self._field(code, "from_row")))

        def pixel(column: Value, _: list[Value]) -> None:
            source = code.mul(self._source(code, "column", column), self._field(code, "from_column"))
            out = code.add(row.out, code.mul(column, self._field(code, "to_column")))
            code.call("void", "move", code.add(line, source), out, row.numbers)

        code.loop(row.left, row.right, pixel)

    def summed(self, code: Code, row: Row) -> None:
        """A part of a row, each pixel a sum."""
        top, rows = self._pairs(code, "row", row.number)

        def pixel(column: Value, _: list[Value]) -> None:
            first, columns = self._pairs(code, "column", column)
            out = code.add(row.out, code.mul(column, self._field(code, "to_column")))

            def several(short: Sequence[tuple[int, int]] = _SHORT) -> None:
                if not short:
                    code.call("void", "sums", "%plan", row.x, rows, top, columns, first, out, row.numbers)
                    return
                (high, wide), others = short[0], short[1:]
                is_so = code.write(f"and i1 {code.equal(rows, high)}, {code.equal(columns, wide)}")
                arguments = ("%plan", row.x, top, first, out, row.numbers)

                def found() -> None:
                    code.call("void", f"sums{high}{wide}", *arguments)

                code.choose(is_so, found, lambda: several(others))

            several()

        code.loop(row.left, row.right, pixel)
