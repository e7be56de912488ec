"""Resampling: each pixel of images a sum of weighted rows of weighted pixels, or one pixel moved.

A plan has, for rows and for columns, where each position's pairs begin, and each pair's source and weight. The numbers
of a pixel are runs, as in pooling. A job is a record of 8-byte fields: plan, images, result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from alpha.cpu.loops import pixels
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.pixels import Row
from alpha.cpu.loops.runs import Run

_VECTORS = 4
"""Vectors of a pixel that are worked on at once."""

_SHORT = ((2, 2), (4, 4), (1, 1), (1, 2), (2, 1))
"""Rows and columns of pairs that have functions of their own: those of interpolation and of its gradients."""


class Resampling(NamedTuple):
    """The fields of a plan; steps are in bytes."""

    tasks: int
    positions: int
    """Pixels per task."""
    blocks: int
    """Tasks of a piece."""
    pieces: int
    """Pieces of a run."""
    piece: int
    """Numbers of a piece, the last of which may have fewer."""
    length: int
    """Numbers of a run."""
    height: int
    width: int
    row_starts: int
    """Addresses of the pairs' tables: where each position's begin; sources; weights, of the numbers' type."""
    row_sources: int
    row_weights: int
    column_starts: int
    column_sources: int
    column_weights: int
    from_row: int
    from_column: int
    from_run: int
    to_row: int
    to_column: int
    to_run: int


_PLACE = {name: place for place, name in enumerate(Resampling._fields)}


def ir_of(bits: int, moves: bool, streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    Args:
        moves: whether each pixel is one of the images', with weight 1.
        streams: whether it writes past the caches; then each pixel begins at a whole vector.
    """
    writer = _Writer(bits, streams)
    functions = [writer.move()] if moves else [*[writer.short_sums(*counts) for counts in _SHORT], writer.sums()]
    task = pixels.rows_task(bits // 8, _PLACE, writer.moved if moves else writer.summed)
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

        def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> list[Value]:
            values = [run.read(code.add("%x", offset), left) for offset in offsets]
            pixels.put(run, values, "%out", offsets, left, self.streams)
            return []

        run.fold("%count", (_VECTORS, 1), visit)
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

        def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> list[Value]:
            found = []
            for offset in offsets:
                read = [[run.read(code.add(pixel, offset), left) for pixel in line] for line in starts]
                found.append(total([total(line, across) for line in read], down))
            pixels.put(run, found, "%out", offsets, left, self.streams)
            return []

        run.fold("%count", (_VECTORS if rows * columns == 1 else 2, 1), visit)
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

        def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> list[Value]:
            def row(number: Value, totals: list[Value]) -> list[Value]:
                place = code.add("%top", number)
                line = code.add("%x", code.mul(self._source(code, "row", place), self._field(code, "from_row")))

                def column(number: Value, lines: list[Value]) -> list[Value]:
                    place = code.add("%first", number)
                    source = self._source(code, "column", place)
                    pixel = code.add(line, code.mul(source, self._field(code, "from_column")))
                    weight = self._weight(run, self._field(code, "column_weights"), place)
                    values = [run.read(code.add(pixel, offset), left) for offset in offsets]
                    return [run.fma(weight, value, line) for value, line in zip(values, lines, strict=True)]

                lines = code.loop(0, "%columns", column, [(run.floats, minus)] * len(offsets))[1:]
                weight = self._weight(run, self._field(code, "row_weights"), place)
                return [run.fma(weight, line, total) for line, total in zip(lines, totals, strict=True)]

            totals = code.loop(0, "%rows", row, [(run.floats, start)] * len(offsets))[1:]
            pixels.put(run, totals, "%out", offsets, left, self.streams)
            return []

        run.fold("%count", (_VECTORS, 1), visit)
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
