"""Lookups of columns: the numbers of each row of a table that one list of indices names, taken, or added to.

The indices are checked and turned into bytes from a row's start some at a time, for all rows of a task. A job is a
record of 8-byte fields: plan, indices, table, values, where a 1 is written if an index is out of range (or 0), and
whether indices below 0 count from the end. For one out of range stands entry 0 where numbers are taken; where they are
added it is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.loops import blocks
from alpha.cpu.loops.blocks import BlockPlan
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value

_INDEX, _TABLE, _VALUES, _WRONG, _FROM_END = range(1, 6)
"""Places in a job."""

CHUNK = 512
"""Indices that are turned into offsets at a time: they stay in the first cache."""

ROWS, _NUMBERS = 4, 4
"""Rows, and numbers of each, that a turn of the loop moves."""


class Columns(NamedTuple):
    """The fields of a plan behind a ``BlockPlan`` of the table's rows."""

    length: int
    """How many indices there are: the numbers of a row of values, which are dense."""
    entries: int
    """Numbers of a row of the table."""
    row_step: int
    """Bytes of the table from a row to the next, and from a number to the next."""
    step: int


_PLACE = places(BlockPlan._fields, Columns._fields)


def ir_of(bits: int, adds: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared"; ``adds``: whether values are added to the table."""
    writer = _Writer(bits, adds)
    functions = [writer.offsets(), *[writer.rows(count) for count in (ROWS, 1)], writer.task()]
    return module(functions, shared(), alone())


class _Writer:
    """Writes the functions of one kernel."""

    def __init__(self, bits: int, adds: bool) -> None:
        self.item, self.adds = bits // 8, adds
        self.kind = "float" if bits == 32 else "double"

    def offsets(self) -> Code:
        """``offsets(plan, job, first, count, room)``: those of some indices, -1 for one that is left out."""
        code = Code("offsets", "plan", "job", "first", "count", "room")
        entries, step = code.fields("%plan", _PLACE, "entries", "step")
        indices = code.add(code.field("%job", _INDEX), code.mul("%first", 8))
        from_end = code.field("%job", _FROM_END)

        def one(number: Value, now: list[Value]) -> list[Value]:
            skipped = code.mul(number, 8)
            given = code.load("i64", code.add(indices, skipped), 8)
            is_below = code.write(f"and i1 {code.less(given, 0)}, {code.write(f'icmp ne i64 {from_end}, 0')}")
            index = code.write(f"select i1 {is_below}, i64 {code.add(given, entries)}, i64 {given}")
            is_within = code.write(f"icmp ult i64 {index}, {entries}")
            missing = -1 if self.adds else 0
            offset = code.write(f"select i1 {is_within}, i64 {code.mul(index, step)}, i64 {missing}")
            code.store("i64", offset, code.add("%room", skipped), 8)
            return [code.write(f"select i1 {is_within}, i64 {now[0]}, i64 1")]

        _, wrong = code.loop(0, "%count", one, [("i64", "0")])
        place = code.field("%job", _WRONG)
        told = code.write(f"icmp ne i64 {code.mul(place, wrong)}, 0")
        code.when(told, lambda: code.store("i64", wrong, place, 8))
        code.give()
        return code

    def rows(self, count: int) -> Code:
        """``rows{count}(table, row_step, values, value_step, length, room)``: so many rows by the same offsets."""
        code = Code(f"rows{count}", "table", "row_step", "values", "value_step", "length", "room")
        tables, values = ["%table"], ["%values"]
        for _ in range(1, count):
            tables.append(code.add(tables[-1], "%row_step"))
            values.append(code.add(values[-1], "%value_step"))

        at: Value = "0"
        for numbers in (_NUMBERS, 1):

            def turn(first: Value, _: list[Value], numbers: int = numbers) -> None:
                places = [code.add(first, k) for k in range(numbers)]
                offsets = [code.load("i64", code.add("%room", code.mul(place, 8)), 8) for place in places]
                skipped = [code.mul(place, self.item) for place in places]
                if not self.adds:
                    for table, value in zip(tables, values, strict=True):
                        self._take(code, [code.add(table, offset) for offset in offsets], code.add(value, skipped[0]))
                    return
                for offset, passed in zip(offsets, skipped, strict=True):
                    self._add(code, offset, tables, [code.add(value, passed) for value in values])

            (at,) = code.loop(at, code.sub("%length", numbers - 1), turn, (), numbers)
        code.give()
        return code

    def _take(self, code: Code, entries: list[Value], value: Value) -> None:
        """Stores the numbers at some addresses side by side, in one store: a processor makes one or two per cycle."""
        kind, vector = f"<{len(entries)} x {self.kind}>", "undef"
        for place, entry in enumerate(entries):
            number = code.load(self.kind, entry, self.item)
            vector = code.write(f"insertelement {kind} {vector}, {self.kind} {number}, i32 {place}")
        code.store(kind, vector, value, self.item)

    def _add(self, code: Code, offset: Value, tables: list[Value], values: list[Value]) -> None:
        """Adds a number of each row of values to the one at an offset from each table, unless it is left out."""

        def numbers() -> None:
            for table, value in zip(tables, values, strict=True):
                entry = code.add(table, offset)
                number = code.load(self.kind, value, self.item)
                added = code.do(f"fadd {self.kind} {code.load(self.kind, entry, self.item)}, {number}")
                code.store(self.kind, added, entry, self.item)

        code.when(code.less(-1, offset), numbers)

    def task(self) -> Code:
        """``task(job, plan, task)``: a block of rows."""
        return blocks.task(self._block)

    def _block(self, code: Code, first: Value, end: Value) -> None:
        room = code.room("i64", CHUNK)
        length, row_step = code.fields("%plan", _PLACE, "length", "row_step")
        table, values, value_step = code.field("%job", _TABLE), code.field("%job", _VALUES), code.mul(length, self.item)

        def chunk(start: Value, _: list[Value]) -> None:
            count = code.smaller(CHUNK, code.sub(length, start))
            code.call("void", "offsets", "%plan", "%job", start, count, room)
            row: Value = first
            for many in (ROWS, 1):

                def move(number: Value, _: list[Value], many: int = many) -> None:
                    at = code.add(table, code.mul(number, row_step))
                    written = code.add(values, code.mul(code.add(code.mul(number, length), start), self.item))
                    code.call("void", f"rows{many}", at, row_step, written, value_step, count, room)

                (row,) = code.loop(row, code.sub(end, many - 1), move, (), many)

        code.loop(0, length, chunk, (), CHUNK)
