"""Folds: what is made of the numbers of a line or of a column: their sum, product, norm, largest or smallest.

A ``Fold`` says how numbers are taken, merged and finished; ``fold_lines`` and ``fold_columns`` write its kernels. A job
of theirs is plan, result, numbers, and for several threads the address of a counter, which begins with 0, before room
for parts: long lines and columns are cut into some, whose number follows from the sizes alone. The thread that ends the
last merges them in their order, so the bits do not depend on the number of threads, and one thread needs no memory for
parts.
"""

from __future__ import annotations

import math

from alpha.cpu.loops.code import Code, returned
from alpha.cpu.loops.lanes import Value, scalar
from alpha.cpu.loops.runs import LONG, Run, State

SUM, PRODUCT, NORM, MAX, MIN = "sum", "prod", "norm", "max", "min"

OUT, X, PARTS = 1, 2, 3
"""Places in a job."""


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
        """What a fold gives; of a mean the sum is divided by ``divisor``, which is empty of others."""
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
        return run.code.several(self.kinds, "total", at, count)

    def functions(self) -> list[Code]:
        code = Code("total", "at", "count", result=returned(self.kinds))
        run = Run(self.bits, code)

        def term(offset: Value, left: Value | None) -> list[Value]:
            x = run.read(code.add("%at", offset), left)
            return [run.mul(x, x) if self.op == NORM else x]

        (state,) = run.totals("%count", 1, term, LONG)
        if not self.is_checked:
            code.give_several(self.kinds, state)
            return [code]
        again = Code("wide_total", "at", "count", result="double")
        wide = Run(32, again)

        def take(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
            return self._widely(wide, wide.read(again.add("%at", offsets[0]), left), now)

        last = wide.fold("%count", (1,), take, [(wide.wide, "zeroinitializer")] * 2)
        again.give("double", wide.state(last)[0])
        call = "call double @wide_total(i64 %at, i64 %count)"
        serves = self.serves(run, "double", state, "%count")
        code.give("double", *code.choose(serves, lambda: state, lambda: [code.do(call)], ["double"]))
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
        if self.op == NORM:
            return run.wide_call(kind, "sqrt", total)
        return run.write(f"fdiv {kind} {total}, {divisor}") if divisor else total


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
