"""Folds of columns: blocks of rows, the numbers of a row side by side, a strip of columns at a time.

Short lines are folded so too, some at a time, once they are transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops import axis, short_lines
from alpha.cpu.loops.axis import AxisPlan
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.folds import OUT, PARTS, SUM, Fold, X
from alpha.cpu.loops.lanes import Value, scalar
from alpha.cpu.loops.runs import DEEP, Run, State

STRIP = 1024
"""Columns of a task at most: their results stay in the first cache."""

ROWS = (2 * DEEP, 8, 2, 1)
"""Rows that are taken at a time where the caches hold them: of columns a tree has a level more."""

FAR_ROWS = 8
"""Rows that are taken at a time where they come from memory, and are prefetched: each is a stream of its own."""

AHEAD_ROWS, AHEAD_BYTES = 2 * FAR_ROWS, 1 << 12
"""How far ahead they are prefetched at least: the processor does so itself only within a page, which a strip leaves."""

FAR_BYTES = 1 << 23
"""Bytes of a tensor from which on it is taken from memory."""

FEW_SETS = 1 << 11
"""Rows that are whole multiples of so many bytes apart share too few sets of the first cache to be taken as many."""

NARROW_BYTES = 64
"""Bytes of rows that are a stream together, which the processor prefetches."""


class ColumnPlan(NamedTuple):
    """Blocks of columns to fold, a row's numbers side by side; steps in bytes."""

    tasks: int
    divisor: float
    """What the sums are divided by."""
    blocks: int
    step: int
    rows: int
    row_step: int
    columns: int
    bunch: int
    """Rows of a part."""
    strip: int
    """Columns of a task."""
    strips: int
    """Tasks of a part."""
    parts: int
    """Parts of a block."""
    ahead: int
    """Rows by which they are prefetched from memory; 0 where the caches hold them."""


_PLACE = places(ColumnPlan._fields)


def ir_of(fold: Fold) -> str:
    """A module with the functions "alone" and "shared", of a ``ColumnPlan``."""
    return _Columns(fold).module()


def words(fold: Fold, plan: ColumnPlan) -> int:
    """8-byte words for the counter and the parts of several threads."""
    return 1 if plan.parts == 1 else (1 + plan.tasks * _Columns(fold).vectors) * ISA.bytes // 8


def ahead(nbytes: int, step: int) -> int:
    """The rows by which those of a tensor of so many bytes are prefetched, ``step`` bytes apart, or 0."""
    is_far = step > NARROW_BYTES if nbytes >= FAR_BYTES else step % FEW_SETS == 0
    return max(AHEAD_ROWS, AHEAD_BYTES // step) if is_far else 0


def short_lines_ir(fold: Fold) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` of lines, the bytes between them, and the
    divisor."""
    return _ShortLines(fold).module()


class _Columns:
    """Writes the functions of a fold of columns.

    What a strip's columns go on with lies in a room: for each vector of columns some vectors one after the other.
    """

    def __init__(self, fold: Fold) -> None:
        run = Run(fold.bits, Code("none"))
        self._fold, self._item = fold, run.item
        self._kinds = [run.floats] if fold.kind != "double" else [run.wide] * (run.halves * fold.planes)
        self._pieces = len(self._kinds)
        self.vectors = -(-STRIP // run.count) * self._pieces  # of a room

    def module(self) -> str:
        """The module's text."""
        functions = [*self.strips(), self._join(), self._task()]
        return module(functions, shared(self._finish), alone(self._alone))

    def strips(self) -> list[Code]:
        """The functions that fold a strip, and store its results."""
        return [*[self._take(rows) for rows in ROWS], self._take_far(), self._rows(), self._strip(), self._put()]

    def _field(self, code: Code, name: str) -> Value:
        return code.field("%plan", _PLACE[name], "double" if name == "divisor" else "i64")

    # -- what a strip goes on with -------------------------------------------------------------------------------

    def _states(self, code: Code, run: Run, body: Callable[[Value, Value, Value | None], None]) -> None:
        """``body(offset, at, left)`` for each vector of ``%columns``: its bytes from a row's start, and in a room."""
        run.map("%columns", 1, lambda offset, left: body(offset, code.mul(offset, self._pieces), left))

    def _load(self, code: Code, room: Value, at: Value) -> list[Value]:
        start = code.add(room, at)
        return [code.load(kind, code.add(start, k * ISA.bytes), 8) for k, kind in enumerate(self._kinds)]

    def _store(self, code: Code, state: list[Value], room: Value, at: Value) -> None:
        start = code.add(room, at)
        for k, (kind, value) in enumerate(zip(self._kinds, state, strict=True)):
            code.store(kind, value, code.add(start, k * ISA.bytes), 8)

    def _by_half(self, values: list[Value]) -> list[State]:
        """The states of the lanes' halves."""
        return [values[k : k + self._fold.planes] for k in range(0, self._pieces, self._fold.planes)]

    def _take(self, rows: int) -> Code:
        """``take{rows}(x, step, columns, room)``: so many rows, ``step`` bytes apart, taken into the room."""
        code = Code(f"take{rows}", "x", "step", "columns", "room")
        self._taken(code, rows)
        return code

    def _take_far(self) -> Code:
        """``take_far(x, step, columns, room, ahead)``: FAR_ROWS of them; ``ahead``: bytes to what is prefetched."""
        code = Code("take_far", "x", "step", "columns", "room", "ahead")
        self._taken(code, FAR_ROWS, "%ahead")
        return code

    def _taken(self, code: Code, rows: int, ahead: Value | None = None) -> None:
        """Writes ``_take`` and ``_take_far``."""
        run, starts = Run(self._fold.bits, code), ["%x"]
        for _ in range(1, rows):
            starts.append(code.add(starts[-1], "%step"))

        def visit(offset: Value, at: Value, left: Value | None) -> None:
            places = [code.add(start, offset) for start in starts]
            if ahead is not None:
                for place in places:
                    code.prefetch(code.add(place, ahead))
            vectors = [run.read(place, left, self._fold.fill) for place in places]
            self._store(code, self._fold.rows(run, vectors, self._load(code, "%room", at)), "%room", at)

        self._states(code, run, visit)
        code.give()

    def _rows(self) -> Code:
        """``rows(x, step, rows, columns, room, deep, ahead)``: the fold of rows; ``deep``: several at a time."""
        fold, code = self._fold, Code("rows", "x", "step", "rows", "columns", "room", "deep", "ahead")
        run = Run(fold.bits, code)
        start = run.number(fold.start) if fold.kind != "double" else run.constant(run.wide, fold.start)
        empty = [start, "zeroinitializer"][: fold.planes] * (self._pieces // fold.planes)
        self._states(code, run, lambda _, at, left: self._store(code, empty, "%room", at))
        is_far = code.write(f"zext i1 {code.less(0, '%ahead')} to i64")

        def far(number: Value, _: list[Value]) -> None:
            at = code.add("%x", code.mul(number, "%step"))
            code.call("void", "take_far", at, "%step", "%columns", "%room", code.mul("%ahead", "%step"))

        # Rows beyond the last are another part's.
        end = code.mul(code.sub(code.sub("%rows", "%ahead"), FAR_ROWS - 1), code.mul("%deep", is_far))
        (row,) = code.loop(0, end, far, (), FAR_ROWS)
        for rows in ROWS:
            end = code.mul(code.sub("%rows", rows - 1), "%deep") if rows > 1 else "%rows"
            if rows > FAR_ROWS:
                end = code.mul(end, code.sub(1, is_far))

            def take(number: Value, _: list[Value], rows: int = rows) -> None:
                at = code.add("%x", code.mul(number, "%step"))
                code.call("void", f"take{rows}", at, "%step", "%columns", "%room")

            (row,) = code.loop(row, end, take, (), rows)
        code.give()
        return code

    def _strip(self) -> Code:
        """``strip(job, plan, block, piece, first, room)``: the fold of a part of some columns; gives their number."""
        code = Code("strip", "job", "plan", "block", "piece", "first", "room", result="i64")
        run, bunch, step = Run(self._fold.bits, code), self._field(code, "bunch"), self._field(code, "row_step")
        code.act(f"%columns = {self._width(code, '%first')}")
        row = code.mul("%piece", bunch)
        count = code.smaller(bunch, code.sub(self._field(code, "rows"), row))
        at = code.add(code.field("%job", X), code.mul("%block", self._field(code, "step")))
        at = code.add(at, code.add(code.mul(row, step), code.mul("%first", self._item)))
        given = (at, step, count, "%columns", "%room")
        code.call("void", "rows", *given, 1, self._field(code, "ahead"))
        if self._fold.is_checked:

            def singly() -> None:
                code.call("void", "rows", *given, 0, 0)

            code.when(self._fails(code, run, count), singly)
        code.give("i64", "%columns")
        return code

    def _width(self, code: Code, first: Value) -> str:
        """An instruction for the columns of a strip."""
        strip, left = self._field(code, "strip"), code.sub(self._field(code, "columns"), first)
        return f"select i1 {code.less(strip, left)}, i64 {strip}, i64 {left}"

    def _fails(self, code: Code, run: Run, count: Value) -> Value:
        """Whether the fold of some column does not serve."""
        every = ", ".join(["i1 true"] * run.wide_count)
        masks = f"<{run.wide_count} x i1>"

        def visit(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
            found = now[0]
            for state in self._by_half(self._load(code, "%room", code.mul(offsets[0], self._pieces))):
                found = run.write(f"and {masks} {found}, {self._fold.serves(run, run.wide, state, count)}")
            return [found]

        (serves,) = run.fold("%columns", (1,), visit, [(masks, f"<{every}>")])
        bits = run.write(f"bitcast {masks} {serves} to i{run.wide_count}")
        return run.write(f"icmp ne i{run.wide_count} {bits}, -1")

    def _put(self) -> Code:
        """``put(plan, room, columns, out)``: stores the results of a strip."""
        fold, code = self._fold, Code("put", "plan", "room", "columns", "out")
        run = Run(fold.bits, code)
        divisor = self._field(code, "divisor")

        def put(divisor: Value) -> None:
            def visit(offset: Value, at: Value, left: Value | None) -> None:
                states = self._by_half(self._load(code, "%room", at))
                values = [fold.finished(run, self._kinds[0], state, divisor) for state in states]
                value = run.joined(values) if fold.kind == "double" else values[0]
                run.put(value, code.add("%out", offset), left)

            self._states(code, run, visit)

        if fold.op == SUM:  # a division takes long
            is_sum = code.do(f"fcmp oeq double {divisor}, {scalar(1.0, 64)}")
            code.choose(is_sum, lambda: put(""), lambda: put(run.wide_spread(divisor)))
        else:
            put("")
        code.give()
        return code

    def _join(self) -> Code:
        """``join(room, other, columns)``: merges another fold of the same columns into a room."""
        code = Code("join", "room", "other", "columns")
        run = Run(self._fold.bits, code)

        def visit(_: Value, at: Value, left: Value | None) -> None:
            ours, others = (self._by_half(self._load(code, room, at)) for room in ("%room", "%other"))
            pairs = zip(ours, others, strict=True)
            merged = [self._fold.merged(run, self._kinds[0], one, other) for one, other in pairs]
            self._store(code, [value for state in merged for value in state], "%room", at)

        self._states(code, run, visit)
        code.give()
        return code

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _out(self, code: Code, block: Value, first: Value) -> Value:
        place = code.add(code.mul(block, self._field(code, "columns")), first)
        return code.add(code.field("%job", OUT), code.mul(place, self._item))

    def _part_at(self, code: Code, block: Value, strip: Value, part: Value) -> Value:
        """Where a part of a strip is kept: a room."""
        strips, parts = self._field(code, "strips"), self._field(code, "parts")
        place = code.add(code.mul(code.add(code.mul(block, strips), strip), parts), part)
        start = code.add(code.field("%job", PARTS), ISA.bytes)
        return code.add(start, code.mul(place, self.vectors * ISA.bytes))

    def _task(self) -> Code:
        """``task(job, plan, task)``: a part of a strip of columns; the counter's address."""
        code = Code("task", "job", "plan", "task", result="i64")
        room = code.room(self._kinds[0], self.vectors)
        strips, parts = self._field(code, "strips"), self._field(code, "parts")
        strip, above = code.rest("%task", strips), code.quotient("%task", strips)
        part, block = code.rest(above, parts), code.quotient(above, parts)
        first = code.mul(strip, self._field(code, "strip"))

        def whole() -> None:
            columns = code.call("i64", "strip", "%job", "%plan", block, part, first, room)
            code.call("void", "put", "%plan", room, columns, self._out(code, block, first))

        def piece() -> None:
            at = self._part_at(code, block, strip, part)
            code.call("i64", "strip", "%job", "%plan", block, part, first, at)

        code.choose(code.equal(parts, 1), whole, piece)
        code.give("i64", code.field("%job", PARTS))
        return code

    def _each_strip(self, code: Code, body: Callable[[Value, Value, Value], None]) -> None:
        """``body(block, strip, first)`` for each strip of columns."""

        def row(block: Value, _: list[Value]) -> None:
            def one(strip: Value, _: list[Value]) -> None:
                body(block, strip, code.mul(strip, self._field(code, "strip")))

            code.loop(0, self._field(code, "strips"), one)

        code.loop(0, self._field(code, "blocks"), row)

    def _finish(self, code: Code) -> None:
        """What the thread does that ends the last task: it merges the parts into the first ones."""

        def strip(block: Value, strip: Value, first: Value) -> None:
            room, columns = self._part_at(code, block, strip, "0"), code.do(self._width(code, first))

            def more(part: Value, _: list[Value]) -> None:
                code.call("void", "join", room, self._part_at(code, block, strip, part), columns)

            code.loop(1, self._field(code, "parts"), more)
            code.call("void", "put", "%plan", room, columns, self._out(code, block, first))

        cut = code.less(1, self._field(code, "parts"))
        code.when(cut, lambda: self._each_strip(code, strip))

    def _alone(self, code: Code) -> None:
        """What a thread does that has no others beside it."""
        room, other = (code.room(self._kinds[0], self.vectors) for _ in range(2))

        def strip(block: Value, strip: Value, first: Value) -> None:
            columns = code.call("i64", "strip", "%job", "%plan", block, "0", first, room)

            def more(part: Value, _: list[Value]) -> None:
                code.call("i64", "strip", "%job", "%plan", block, part, first, other)
                code.call("void", "join", room, other, columns)

            code.loop(1, self._field(code, "parts"), more)
            code.call("void", "put", "%plan", room, columns, self._out(code, block, first))

        self._each_strip(code, strip)


LINE_STEP, DIVISOR = len(AxisPlan._fields), len(AxisPlan._fields) + 1
"""Places of a short line's bytes to the next, and of the divisor, behind an ``AxisPlan``."""


class _ShortLines(_Columns):
    """Writes the functions of a fold of short lines: some of them, transposed, are one strip of columns."""

    def module(self) -> str:
        functions = [*self.strips(), *short_lines.functions(self._fold.bits), axis.bunches_task(self._lines)]
        return module(functions, shared(), alone())

    def _lines(self, code: Code, first: Value, end: Value) -> None:
        run = Run(self._fold.bits, code)
        most, step = short_lines.together(code, run, "%rows"), code.field("%plan", LINE_STEP)
        columns, state = code.room(run.scalar, short_lines.ROOM), code.room(self._kinds[0], self.vectors)
        plan, job = code.room("i64", len(ColumnPlan._fields)), code.room("i64", PARTS)
        row = code.mul(most, run.item)
        known = {
            "divisor": code.field("%plan", DIVISOR),
            "rows": "%rows",
            "bunch": "%rows",
            "row_step": row,
            "ahead": "0",
        }
        for place, name in enumerate(ColumnPlan._fields):
            code.store("i64", known.get(name, "1"), code.add(plan, 8 * place), 8)
        code.store("i64", columns, code.add(job, 8 * X), 8)

        def some(start: Value, _: list[Value]) -> None:
            count = code.smaller(most, code.sub(end, start))
            for name in ("columns", "strip"):
                code.store("i64", count, code.add(plan, 8 * _PLACE[name]), 8)
            at = code.add(code.field("%job", X), code.mul(start, step))
            code.call("void", "to_columns", at, step, count, "%rows", columns, row)
            code.call("i64", "strip", job, plan, 0, 0, 0, state)
            out = code.add(code.field("%job", OUT), code.mul(start, run.item))
            code.call("void", "put", plan, state, count, out)

        code.loop(first, end, some, (), most)
