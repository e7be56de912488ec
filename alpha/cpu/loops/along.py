"""Lookups by an index of its own for each number: along an axis of a table, taken, or added to.

Numbers come in lines, each in a line of the table. Indices that are taken by are checked some at a time, and kept as
int32: for backward, if asked, which then has half of their bytes to read, or on the stack. A job is a record of 8-byte
fields: plan, indices, table, numbers, where a 1 is written if an index is out of range (or 0), whether indices below 0
count from the end, and where the int32 indices are kept (or 0). For an index out of range stands entry 0 where numbers
are taken; where they are added it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value, spread

_INDEX, _TABLE, _NUMBERS, _WRONG, _FROM_END, _KEPT = range(1, 7)
"""Places in a job."""

CHUNK = 512
"""Indices that are checked at a time: they stay in the first cache."""

_TURN = 8
"""Numbers that a turn of the loop moves."""


class Along(NamedTuple):
    """The fields of a plan. Indices and numbers are dense: lines follow each other."""

    tasks: int
    lines: int
    block: int
    """Lines of a task."""
    numbers: int
    """Numbers of a line."""
    piece: int
    """Numbers of a line that a task moves."""
    pieces: int
    """Pieces of a line; one for sums, which are added in their order."""
    group: int
    """Lines of numbers for a line of the table."""
    entries: int
    """Entries of the table along the axis."""
    outer: int
    """Bytes of the table from a line to the next, from an entry to the next, and from where a number of a line looks
    to where the next one does."""
    step: int
    move: int
    clears: int = 0
    """Whether a line of the table is zeroed before anything is added; then its entries have no gaps."""


_PLACE = places(Along._fields)


def take_ir(bits: int, is_dense: bool) -> str:
    """A module of LLVM IR with "alone" and "shared", which take numbers of so many bits.

    ``is_dense``: whether entries of the table have no gaps, and all numbers of a line look in the same ones.
    """
    return module([_checked(), _taken(bits, is_dense), _task(bits, False, 64)], shared(), alone())


def add_ir(bits: int, index_bits: int) -> str:
    """A module of LLVM IR with "alone" and "shared", which add floats by indices of so many bits."""
    return module([_cleared(), _added(bits, index_bits), _task(bits, True, index_bits)], shared(), alone())


def _field(code: Code, name: str) -> Value:
    return code.field("%plan", _PLACE[name])


def _checked() -> Code:
    """``checked(plan, job, indices, count, kept)``: as int32; returns whether one was out of range."""
    code = Code("checked", "plan", "job", "indices", "count", "kept", result="i64")
    at: Value = "0"
    wrong: Value = "0"
    for count in (ISA.lanes(8), 1):
        turn = _check(code, count)
        at, wrong = code.loop(at, code.sub("%count", count - 1), turn, [("i64", wrong)], count)
    code.give("i64", wrong)
    return code


def _check(code: Code, count: int) -> Callable[[Value, Sequence[Value]], list[Value]]:
    """What a turn of ``checked`` does with so many indices."""
    limit = _field(code, "entries")
    behind = code.mul(limit, code.field("%job", _FROM_END))
    kind, narrow, masks, zero = "i64", "i32", "i1", "0"
    if count > 1:
        kind, narrow, masks = (f"<{count} x {one}>" for one in (kind, narrow, masks))
        zero = "zeroinitializer"
        limit, behind = spread(code, limit, "i64", count), spread(code, behind, "i64", count)

    def turn(place: Value, now: Sequence[Value]) -> list[Value]:
        given = code.load(kind, code.add("%indices", code.mul(place, 8)), 8)
        is_below = code.write(f"icmp slt {kind} {given}, {zero}")
        counted = code.write(f"add {kind} {given}, {behind}")
        index = code.write(f"select {masks} {is_below}, {kind} {counted}, {kind} {given}")
        is_within = code.write(f"icmp ult {kind} {index}, {limit}")
        index = code.write(f"select {masks} {is_within}, {kind} {index}, {kind} {zero}")
        index = code.write(f"trunc {kind} {index} to {narrow}")
        code.store(narrow, index, code.add("%kept", code.mul(place, 4)), 4)
        if count > 1:
            is_within = code.write(f"bitcast {masks} {is_within} to i{count}")
        bits = code.write(f"zext i{count} {code.write(f'xor i{count} {is_within}, -1')} to i64")
        return [code.write(f"or i64 {now[0]}, {bits}")]

    return turn


def _taken(bits: int, is_dense: bool) -> Code:
    """``taken(plan, table, kept, numbers, count)``: numbers that checked indices name, several in one store."""
    code, item = Code("taken", "plan", "table", "kept", "numbers", "count"), bits // 8
    step, move = (item, 0) if is_dense else (_field(code, "step"), _field(code, "move"))
    kind = f"i{bits}"
    at: Value = "0"
    for count in (_TURN, 1):

        def turn(place: Value, _: list[Value], count: int = count) -> None:
            table = "%table" if is_dense else code.add("%table", code.mul(place, move))
            found = "undef"
            for k in range(count):
                index = code.load("i32", code.add("%kept", code.mul(code.add(place, k), 4)), 4)
                entry = code.mul(code.write(f"zext i32 {index} to i64"), step)
                start = table if is_dense or not k else code.add(table, code.mul(move, k))
                number = code.load(kind, code.add(start, entry), item)
                if count == 1:
                    found = number
                else:
                    found = code.write(f"insertelement <{count} x {kind}> {found}, {kind} {number}, i32 {k}")
            stored = kind if count == 1 else f"<{count} x {kind}>"
            code.store(stored, found, code.add("%numbers", code.mul(place, item)), item)

        (at,) = code.loop(at, code.sub("%count", count - 1), turn, (), count)
    code.give()
    return code


def _cleared() -> Code:
    """``cleared(table, nbytes)``: zeros."""
    code = Code("cleared", "table", "nbytes")
    at: Value = "0"
    for count in (ISA.bytes, 4):

        def turn(place: Value, _: list[Value], count: int = count) -> None:
            code.store(f"<{count} x i8>", "zeroinitializer", code.add("%table", place), 4)

        (at,) = code.loop(at, code.sub("%nbytes", count - 1), turn, (), count)
    code.give()
    return code


def _added(bits: int, index_bits: int) -> Code:
    """``added(plan, table, indices, numbers, count)``: each number in turn, but for indices out of range."""
    code, item = Code("added", "plan", "table", "indices", "numbers", "count"), bits // 8
    kind = "float" if bits == 32 else "double"
    entries, step = _field(code, "entries"), _field(code, "step")
    at: Value = "0"
    for count in (4, 1):

        def turn(place: Value, _: list[Value], count: int = count) -> None:
            for k in range(count):
                now = code.add(place, k)
                index = code.load(
                    f"i{index_bits}", code.add("%indices", code.mul(now, index_bits // 8)), index_bits // 8
                )
                if index_bits == 32:
                    index = code.write(f"zext i32 {index} to i64")
                number = code.load(kind, code.add("%numbers", code.mul(now, item)), item)

                def add(index: Value = index, number: Value = number) -> None:
                    entry = code.add("%table", code.mul(index, step))
                    added = code.do(f"fadd {kind} {code.load(kind, entry, item)}, {number}")
                    code.store(kind, added, entry, item)

                code.when(code.write(f"icmp ult i64 {index}, {entries}"), add)

        (at,) = code.loop(at, code.sub("%count", count - 1), turn, (), count)
    code.give()
    return code


def _task(bits: int, adds: bool, index_bits: int) -> Code:
    """``task(job, plan, task)``: a block of lines, or a piece of one."""
    code, item = Code("task", "job", "plan", "task"), bits // 8
    room = "" if adds else code.room("i32", CHUNK)
    pieces, block, piece, length = (_field(code, name) for name in ("pieces", "block", "piece", "numbers"))
    part = code.quotient("%task", pieces)
    start = code.mul(code.sub("%task", code.mul(part, pieces)), piece)
    end = code.smaller(code.add(start, piece), length)
    first = code.mul(part, block)
    last = code.smaller(code.add(first, block), _field(code, "lines"))
    indices, tables, numbers = (code.field("%job", place) for place in (_INDEX, _TABLE, _NUMBERS))
    outer, move, group = (_field(code, name) for name in ("outer", "move", "group"))

    def table_of(line: Value) -> Value:
        return code.add(tables, code.mul(code.quotient(line, group), outer))

    def added(line: Value, _: list[Value]) -> None:
        table, before = table_of(line), code.mul(line, length)

        def clear() -> None:
            code.call("void", "cleared", table, code.mul(_field(code, "entries"), item))

        code.when(code.write(f"icmp ne i64 {_field(code, 'clears')}, 0"), clear)
        at = code.add(indices, code.mul(before, index_bits // 8))
        code.call("void", "added", "%plan", table, at, code.add(numbers, code.mul(before, item)), length)

    def taken(line: Value, now: list[Value]) -> list[Value]:
        table, before, kept = table_of(line), code.mul(line, length), code.field("%job", _KEPT)

        def chunk(at: Value, now: list[Value]) -> list[Value]:
            count, place = code.smaller(CHUNK, code.sub(end, at)), code.add(before, at)
            is_kept = code.write(f"icmp ne i64 {kept}, 0")
            checked = code.write(f"select i1 {is_kept}, i64 {code.add(kept, code.mul(place, 4))}, i64 {room}")
            wrong = code.call("i64", "checked", "%plan", "%job", code.add(indices, code.mul(place, 8)), count, checked)
            there, target = code.add(table, code.mul(at, move)), code.add(numbers, code.mul(place, item))
            code.call("void", "taken", "%plan", there, checked, target, count)
            return [code.write(f"or i64 {now[0]}, {wrong}")]

        return code.loop(start, end, chunk, [("i64", now[0])], CHUNK)[1:]

    if adds:
        code.loop(first, last, added)
    else:
        _, wrong = code.loop(first, last, taken, [("i64", "0")])
        place = code.field("%job", _WRONG)
        told = code.write(f"and i1 {code.write(f'icmp ne i64 {wrong}, 0')}, {code.write(f'icmp ne i64 {place}, 0')}")
        code.when(told, lambda: code.store("i64", "1", place, 8))
    code.give()
    return code
