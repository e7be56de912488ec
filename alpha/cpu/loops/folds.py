"""Folds: what is made of the numbers of a line or of a column: their sum, product, norm, largest or smallest.

``lines_ir`` is for lines of neighbouring numbers, ``columns_ir`` for blocks of rows whose columns are folded. Long ones
are cut into parts, whose number follows from the sizes alone; the thread that ends the last merges them in their order.
So the bits do not depend on the number of threads, and one thread needs no memory for parts.

A job is plan, result, numbers, and for several threads the address of a counter, which begins with 0, before room for
the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value, scalar
from alpha.cpu.loops.runs import DEEP, Run, State

SUM, PRODUCT, NORM, MAX, MIN = "sum", "prod", "norm", "max", "min"

STRIP = 1024
"""Columns of a task at most: their results stay in the first cache."""

ROWS = (2 * DEEP, 8, 2, 1)
"""Rows that are taken at a time: of columns a tree has a level more."""

OUT, X, PARTS = 1, 2, 3
"""Places in a job."""


class LinePlan(NamedTuple):
    """Lines to fold, each in segments of neighbouring numbers; steps in bytes."""

    tasks: int
    divisor: float
    """What the sums are divided by."""
    lines: int
    step: int
    segments: int
    """Segments per line."""
    segment_step: int
    length: int
    """Numbers of a segment."""
    bunch: int
    """Lines of a task, or segments of a part where a line is cut."""
    cuts: int
    """Parts of a segment, or of a bunch of them; 0 where a line is not cut."""
    parts: int
    """Parts of a line."""


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


_LINE = {name: place for place, name in enumerate(LinePlan._fields)}
_COLUMN = {name: place for place, name in enumerate(ColumnPlan._fields)}


def lines_ir(fold: Fold) -> str:
    """A module with the functions "alone" and "shared", of a ``LinePlan``."""
    return _Lines(fold).module()


def columns_ir(fold: Fold) -> str:
    """A module with the functions "alone" and "shared", of a ``ColumnPlan``."""
    return _Columns(fold).module()


def words(fold: Fold, plan: LinePlan | ColumnPlan) -> int:
    """8-byte words for the counter and the parts of several threads."""
    if plan.parts == 1:
        return 1
    if isinstance(plan, LinePlan):
        return 1 + plan.tasks * fold.planes
    return (1 + plan.tasks * _Columns(fold).vectors) * ISA.bytes // 8


# -- what a fold does ----------------------------------------------------------------------------------------------


class Fold:
    """How numbers of a dtype are folded. What a fold goes on with is a state: one value, or two.

    Attributes:
        kind: LLVM's type of each value.
        start: with what the first begins; a second one begins with 0.
        planes: how many values there are.
        is_checked: whether a fold may have to be taken again: see ``serves``.
    """

    kind = "double"
    start = 0.0
    planes = 1
    is_checked = False

    def __init__(self, op: str, bits: int) -> None:
        self.op, self.bits = op, bits

    def line(self, run: Run, at: Value, count: Value) -> State:
        """The fold of a run of numbers."""
        raise NotImplementedError

    def rows(self, run: Run, vectors: list[Value], state: list[Value]) -> list[Value]:
        """Vectors of some rows taken into the columns' states: vectors too, for each half of the lanes one state."""
        raise NotImplementedError

    def merged(self, run: Run, kind: str, state: State, other: State) -> State:
        """Two folds as one; their values are of ``kind``, maybe vectors."""
        raise NotImplementedError

    def finished(self, run: Run, kind: str, state: State, divisor: Value) -> Value:
        """What a fold gives."""
        raise NotImplementedError

    def functions(self) -> list[Code]:
        """What ``line`` calls."""
        return []

    def serves(self, run: Run, kind: str, state: State, count: Value) -> Value:
        """Whether a fold of so many numbers is as exact as it is to be."""
        raise NotImplementedError

    @property
    def fill(self) -> float:
        """What stands beyond the last column."""
        return 0.0

    @property
    def kinds(self) -> list[str]:
        """LLVM's types of a state's values."""
        return [self.kind] * self.planes

    @property
    def returned(self) -> str:
        """LLVM's type of a state that a function returns."""
        return self.kind if self.planes == 1 else f"{{ {self.kind}, {self.kind} }}"

    def give(self, code: Code, state: State) -> None:
        """Returns a state from a function."""
        if self.planes == 1:
            code.give(self.kind, state[0])
            return
        pair = code.write(f"insertvalue {self.returned} undef, {self.kind} {state[0]}, 0")
        code.give(self.returned, code.write(f"insertvalue {self.returned} {pair}, {self.kind} {state[1]}, 1"))

    def given(self, code: Code, function: str, *arguments: Value | int) -> State:
        """A state that a function returns."""
        found = code.call(self.returned, function, *arguments)
        if self.planes == 1:
            return [found]
        return [code.write(f"extractvalue {self.returned} {found}, {k}") for k in range(2)]


class Sums(Fold):
    """Sums, and norms: the roots of sums of squares.

    A float32 sum that is not finite, and a norm whose squares may be too large or too small for float32, are taken
    again in float64 throughout.
    """

    def __init__(self, op: str, bits: int) -> None:
        super().__init__(op, bits)
        self.planes = 1 if bits == 32 else 2
        self.is_checked = bits == 32

    @property
    def fill(self) -> float:
        return float(self.op == NORM)  # so that what stands there serves

    def line(self, run: Run, at: Value, count: Value) -> State:
        return self.given(run.code, "total", at, count)

    def functions(self) -> list[Code]:
        code = Code("total", "at", "count", result=self.returned)
        run = Run(self.bits, code)

        def term(offset: Value, left: Value | None) -> list[Value]:
            x = run.read(code.add("%at", offset), left)
            return [run.mul(x, x) if self.op == NORM else x]

        (state,) = run.totals("%count", DEEP, 1, term)
        if not self.is_checked:
            self.give(code, state)
            return [code]
        again = Code("wide_total", "at", "count", result="double")
        wide = Run(32, again)

        def take(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
            return self._widely(wide, wide.read(again.add("%at", offsets[0]), left), now)

        last = wide.fold("%count", (1,), take, [(wide.wide, "zeroinitializer")] * 2)
        again.give("double", wide.state(last)[0])
        call = "call double @wide_total(i64 %at, i64 %count)"
        serves = self.serves(run, "double", state, "%count")
        self.give(code, code.choose(serves, lambda: state, lambda: [code.do(call)], ["double"]))
        return [code, again]

    def serves(self, run: Run, kind: str, state: State, count: Value) -> Value:
        finite = run.finite(kind, state[0])
        if self.op != NORM:
            return finite
        # Squares below 2 ** -126 lose digits: of so many, less than an ulp of a sum that is as large as this.
        least = run.write(f"fmul double {run.write(f'sitofp i64 {count} to double')}, {scalar(2.0**-100, 64)}")
        least = run.wide_spread(least) if kind == run.wide else least
        masks = kind.replace("double", "i1")
        return run.write(f"and {masks} {finite}, {run.write(f'fcmp ogt {kind} {state[0]}, {least}')}")

    def _widely(self, run: Run, vector: Value, state: list[Value]) -> list[Value]:
        """A vector of float32 taken in float64."""
        parts = run.widened(vector)
        if self.op == NORM:
            parts = [run.write(f"fmul {run.wide} {part}, {part}") for part in parts]
        return [run.write(f"fadd {run.wide} {one}, {part}") for one, part in zip(state, parts, strict=True)]

    def rows(self, run: Run, vectors: list[Value], state: list[Value]) -> list[Value]:
        if len(vectors) == 1 and self.bits == 32:
            return self._widely(run, vectors[0], state)
        if self.op == NORM:
            vectors = [run.mul(one, one) for one in vectors]
        return run.taken(state, run.tree(vectors))

    def merged(self, run: Run, kind: str, state: State, other: State) -> State:
        return run.merged(kind, state, other)

    def finished(self, run: Run, kind: str, state: State, divisor: Value) -> Value:
        total = run.total(kind, state)
        return run.wide_call(kind, "sqrt", total) if self.op == NORM else run.write(f"fdiv {kind} {total}, {divisor}")


class Products(Fold):
    """Products, in float64."""

    start = 1.0

    @property
    def fill(self) -> float:
        return 1.0

    def line(self, run: Run, at: Value, count: Value) -> State:
        code = run.code

        def take(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
            after = list(now)
            parts = [part for o in offsets for part in run.widened(run.read(code.add(at, o), left, 1.0))]
            for k, part in enumerate(parts):
                after[k % len(after)] = self._times(run, run.wide, after[k % len(after)], part)
            return after

        last = run.fold(count, (8, 2, 1), take, [(run.wide, run.constant(run.wide, 1.0))] * 8)
        value = run.tree(last, lambda x, y: self._times(run, run.wide, x, y))
        return [run.across("double", value, run.wide_count, lambda kind, x, y: self._times(run, kind, x, y))]

    def _times(self, run: Run, kind: str, x: Value, y: Value) -> Value:
        return run.write(f"fmul {kind} {x}, {y}")

    def rows(self, run: Run, vectors: list[Value], state: list[Value]) -> list[Value]:
        for vector in vectors:
            parts = run.widened(vector)
            state = [self._times(run, run.wide, one, part) for one, part in zip(state, parts, strict=True)]
        return state

    def merged(self, run: Run, kind: str, state: State, other: State) -> State:
        return [self._times(run, kind, state[0], other[0])]

    def finished(self, run: Run, kind: str, state: State, divisor: Value) -> Value:
        return state[0]


class Extremes(Fold):
    """The largest or the smallest numbers; NaN where there is one."""

    def __init__(self, op: str, bits: int) -> None:
        super().__init__(op, bits)
        self.kind = "float" if bits == 32 else "double"
        self.start = -math.inf if op == MAX else math.inf

    def line(self, run: Run, at: Value, count: Value) -> State:
        code, start = run.code, run.number(self.start)

        def take(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
            *best, nans = now
            for k, offset in enumerate(offsets):
                x = run.read(code.add(at, offset), left, self.start)
                best[k] = self._further(run, run.floats, best[k], x)
                nans = run.logical("or", nans, run.compare("uno", x, x))
            return [*best, nans]

        *found, nans = run.fold(count, (4, 1), take, [*[(run.floats, start)] * 4, (run.masks, "zeroinitializer")])
        best = run.tree(found, lambda x, y: self._further(run, run.floats, x, y))
        number = run.across(run.scalar, best, run.count, lambda kind, x, y: self._further(run, kind, x, y))
        bits = run.write(f"bitcast {run.masks} {nans} to i{run.count}")
        some = run.write(f"icmp ne i{run.count} {bits}, 0")
        return [run.write(f"select i1 {some}, {run.scalar} {scalar(math.nan, 64)}, {run.scalar} {number}")]

    def _further(self, run: Run, kind: str, x: Value, y: Value) -> Value:
        """The one of x and y that is further out; x where one is NaN."""
        mask = run.write(f"fcmp {'ogt' if self.op == MAX else 'olt'} {kind} {y}, {x}")
        return run.write(f"select {kind.replace(run.scalar, 'i1')} {mask}, {kind} {y}, {kind} {x}")

    def _kept(self, run: Run, kind: str, x: Value, y: Value) -> Value:
        """The one of x and y that is further out, or NaN."""
        nan, best = run.write(f"fcmp uno {kind} {y}, {y}"), self._further(run, kind, x, y)
        return run.write(f"select {kind.replace(run.scalar, 'i1')} {nan}, {kind} {y}, {kind} {best}")

    def rows(self, run: Run, vectors: list[Value], state: list[Value]) -> list[Value]:
        return [run.tree([*state, *vectors], lambda x, y: self._kept(run, run.floats, x, y))]

    def merged(self, run: Run, kind: str, state: State, other: State) -> State:
        return [self._kept(run, kind, state[0], other[0])]

    def finished(self, run: Run, kind: str, state: State, divisor: Value) -> Value:
        return state[0]


def fold_of(op: str, bits: int) -> Fold:
    """The fold of a name."""
    if op in (SUM, NORM):
        return Sums(op, bits)
    return Products(op, bits) if op == PRODUCT else Extremes(op, bits)


# -- lines ---------------------------------------------------------------------------------------------------------


class _Lines:
    """Writes the functions of a fold of lines."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._item = fold.bits // 8

    def module(self) -> str:
        functions = [*self._fold.functions(), self._whole(), self._piece(), self._task()]
        return module(functions, shared(self._finish), alone(self._alone))

    def _field(self, code: Code, name: str) -> Value:
        return code.field("%plan", _LINE[name], "double" if name == "divisor" else "i64")

    def _folded(self, code: Code, run: Run, at: Value, segments: Value, length: Value) -> State:
        """The fold of segments."""
        fold, step = self._fold, self._field(code, "segment_step")

        def more(segment: Value, state: list[Value]) -> State:
            return fold.merged(run, fold.kind, state, fold.line(run, code.add(at, code.mul(segment, step)), length))

        first = fold.line(run, at, length)
        _, *state = code.loop(1, segments, more, list(zip(fold.kinds, first, strict=True)))
        return state

    def _put(self, code: Code, run: Run, line: Value, state: State) -> None:
        """Stores a line's result."""
        fold, at = self._fold, code.add(code.field("%job", OUT), code.mul(line, self._item))
        value = fold.finished(run, fold.kind, state, self._field(code, "divisor"))
        code.store(run.scalar, run.narrowed(value) if fold.kind == "double" else value, at, self._item)

    def _whole(self) -> Code:
        """``whole(job, plan, first, end)``: lines that are not cut."""
        code = Code("whole", "job", "plan", "first", "end")
        run, x = Run(self._fold.bits, code), code.field("%job", X)
        step, segments, length = (self._field(code, name) for name in ("step", "segments", "length"))

        def line(number: Value, _: list[Value]) -> None:
            state = self._folded(code, run, code.add(x, code.mul(number, step)), segments, length)
            self._put(code, run, number, state)

        code.loop("%first", "%end", line)
        code.give()
        return code

    def _piece(self) -> Code:
        """``piece(job, plan, line, piece)``: the fold of a part of a line."""
        code = Code("piece", "job", "plan", "line", "piece", result=self._fold.returned)
        run = Run(self._fold.bits, code)
        cuts, bunch, length = (self._field(code, name) for name in ("cuts", "bunch", "length"))
        first, cut = code.mul(code.quotient("%piece", cuts), bunch), code.rest("%piece", cuts)
        start = code.quotient(code.mul(length, cut), cuts)
        stop = code.quotient(code.mul(length, code.add(cut, 1)), cuts)
        at = code.add(code.field("%job", X), code.mul("%line", self._field(code, "step")))
        at = code.add(at, code.add(code.mul(first, self._field(code, "segment_step")), code.mul(start, self._item)))
        segments = code.smaller(bunch, code.sub(self._field(code, "segments"), first))
        self._fold.give(code, self._folded(code, run, at, segments, code.sub(stop, start)))
        return code

    def _part_at(self, code: Code, task: Value) -> Value:
        """Where the values of a task's part are kept."""
        size = 8 * self._fold.planes
        return code.add(code.add(code.field("%job", PARTS), 8), code.mul(task, size))

    def _task(self) -> Code:
        """``task(job, plan, task)``: lines, or a part of one; the counter's address."""
        code = Code("task", "job", "plan", "task", result="i64")
        lines, bunch, parts = (self._field(code, name) for name in ("lines", "bunch", "parts"))

        def whole() -> None:
            first = code.mul("%task", bunch)
            code.call("void", "whole", "%job", "%plan", first, code.smaller(code.add(first, bunch), lines))

        def piece() -> None:
            line, part = code.quotient("%task", parts), code.rest("%task", parts)
            at = self._part_at(code, "%task")
            for k, value in enumerate(self._fold.given(code, "piece", "%job", "%plan", line, part)):
                code.store(self._fold.kind, value, code.add(at, 8 * k), 8)

        code.choose(code.equal(self._field(code, "cuts"), 0), whole, piece)
        code.give("i64", code.field("%job", PARTS))
        return code

    def _merge(self, code: Code, part: Callable[[Value, Value], State]) -> None:
        """Merges the parts of all lines, ``part(line, piece)`` each, and stores the results."""
        fold, run, parts = self._fold, Run(self._fold.bits, code), self._field(code, "parts")

        def line(number: Value, _: list[Value]) -> None:
            def more(piece: Value, state: list[Value]) -> State:
                return fold.merged(run, fold.kind, state, part(number, piece))

            first = list(zip(fold.kinds, part(number, "0"), strict=True))
            self._put(code, run, number, code.loop(1, parts, more, first)[1:])

        code.loop(0, self._field(code, "lines"), line)

    def _finish(self, code: Code) -> None:
        """What the thread does that ends the last task."""
        parts, fold = self._field(code, "parts"), self._fold

        def part(line: Value, piece: Value) -> State:
            at = self._part_at(code, code.add(code.mul(line, parts), piece))
            return [code.load(fold.kind, code.add(at, 8 * k), 8) for k in range(fold.planes)]

        cut = code.less(0, self._field(code, "cuts"))
        code.when(cut, lambda: self._merge(code, part))

    def _alone(self, code: Code) -> None:
        """What a thread does that has no others beside it."""

        def part(line: Value, piece: Value) -> State:
            return self._fold.given(code, "piece", "%job", "%plan", line, piece)

        code.choose(
            code.equal(self._field(code, "cuts"), 0),
            lambda: code.call("void", "whole", "%job", "%plan", 0, self._field(code, "lines")) and None,
            lambda: self._merge(code, part),
        )


# -- columns -------------------------------------------------------------------------------------------------------


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
        functions = [*[self._take(rows) for rows in ROWS], self._rows(), self._strip(), self._put()]
        functions += [self._join(), self._task()]
        return module(functions, shared(self._finish), alone(self._alone))

    def _field(self, code: Code, name: str) -> Value:
        return code.field("%plan", _COLUMN[name], "double" if name == "divisor" else "i64")

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
        run, starts = Run(self._fold.bits, code), ["%x"]
        for _ in range(1, rows):
            starts.append(code.add(starts[-1], "%step"))

        def visit(offset: Value, at: Value, left: Value | None) -> None:
            vectors = [run.read(code.add(start, offset), left, self._fold.fill) for start in starts]
            self._store(code, self._fold.rows(run, vectors, self._load(code, "%room", at)), "%room", at)

        self._states(code, run, visit)
        code.give()
        return code

    def _rows(self) -> Code:
        """``rows(x, step, rows, columns, room, deep)``: the fold of rows; ``deep``: whether several at a time."""
        fold, code = self._fold, Code("rows", "x", "step", "rows", "columns", "room", "deep")
        run = Run(fold.bits, code)
        start = run.number(fold.start) if fold.kind != "double" else run.constant(run.wide, fold.start)
        empty = [start, "zeroinitializer"][: fold.planes] * (self._pieces // fold.planes)
        self._states(code, run, lambda _, at, left: self._store(code, empty, "%room", at))
        row: Value = "0"
        for rows in ROWS:
            end = code.sub("%rows", rows - 1)

            def take(number: Value, _: list[Value], rows: int = rows) -> None:
                at = code.add("%x", code.mul(number, "%step"))
                code.call("void", f"take{rows}", at, "%step", "%columns", "%room")

            (row,) = code.loop(row, code.mul(end, "%deep") if rows > 1 else end, take, (), rows)
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
        code.call("void", "rows", at, step, count, "%columns", "%room", 1)
        if self._fold.is_checked:
            code.when(
                self._fails(code, run, count),
                lambda: code.act(f"call void @rows(i64 {at}, i64 {step}, i64 {count}, i64 %columns, i64 %room, i64 0)"),
            )
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
        divisor = run.wide_spread(self._field(code, "divisor"))

        def visit(offset: Value, at: Value, left: Value | None) -> None:
            states = self._by_half(self._load(code, "%room", at))
            values = [fold.finished(run, self._kinds[0], state, divisor) for state in states]
            value = run.joined(values) if fold.kind == "double" else values[0]
            run.put(value, code.add("%out", offset), left)

        self._states(code, run, visit)
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
