"""Resampling: each pixel of images a sum of weighted rows of weighted pixels, or one pixel moved.

A plan has, for rows and for columns, where each position's pairs begin, and each pair's source and weight. The numbers
of a pixel are runs, as in pooling. A job is a record of 8-byte fields: plan, images, result.
"""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.loops import pixels
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.pixels import Row
from alpha.cpu.loops.runs import Run

_VECTORS = 4
"""Vectors of a pixel that are worked on at once."""


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
    functions = [writer.move()] if moves else [writer.four(), writer.sums()]
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

    def four(self) -> Code:
        """``four(first, second, right, down, across, out, count)``: two pixels of each of two rows.

        ``first``, ``second``: the rows' left pixels; ``right``: bytes to the pixels on the right; ``down``, ``across``:
        addresses of the rows' and of the columns' weights.
        """
        code = Code("four", "first", "second", "right", "down", "across", "out", "count")
        run = Run(self.bits, code)
        down, across = ([self._weight(run, at, k) for k in range(2)] for at in ("%down", "%across"))
        starts = [(row, code.add(row, "%right")) for row in ("%first", "%second")]

        def visit(offsets: list[Value], left: Value | None, _: list[Value]) -> list[Value]:
            sums = []
            for offset in offsets:
                lines = []
                for pair in starts:
                    one, other = (run.read(code.add(pixel, offset), left) for pixel in pair)
                    lines.append(run.fma(across[1], other, run.mul(across[0], one)))
                sums.append(run.fma(down[1], lines[1], run.mul(down[0], lines[0])))
            pixels.put(run, sums, "%out", offsets, left, self.streams)
            return []

        run.fold("%count", (2, 1), visit)
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
        is_two = code.equal(rows, 2)

        def pixel(column: Value, _: list[Value]) -> None:
            first, columns = self._pairs(code, "column", column)
            out = code.add(row.out, code.mul(column, self._field(code, "to_column")))

            def four() -> None:
                from_row, from_column = self._field(code, "from_row"), self._field(code, "from_column")
                left, right = (
                    code.mul(self._source(code, "column", place), from_column) for place in (first, code.add(first, 1))
                )
                lines = [
                    code.add(code.add(row.x, code.mul(self._source(code, "row", place), from_row)), left)
                    for place in (top, code.add(top, 1))
                ]
                weights = [
                    code.add(self._field(code, f"{axis}_weights"), code.mul(place, self.item))
                    for axis, place in (("row", top), ("column", first))
                ]
                code.call("void", "four", *lines, code.sub(right, left), *weights, out, row.numbers)

            def several() -> None:
                code.call("void", "sums", "%plan", row.x, rows, top, columns, first, out, row.numbers)

            code.choose(code.write(f"and i1 {is_two}, {code.equal(columns, 2)}"), four, several)

        code.loop(row.left, row.right, pixel)
