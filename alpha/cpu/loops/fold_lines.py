"""Folds of lines of numbers: each in segments of neighbours, of which long ones are cut into parts."""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.loops.code import Code, returned
from alpha.cpu.loops.cut_lines import CutLines
from alpha.cpu.loops.folds import OUT, PARTS, Fold, X
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import Run, State


class LinePlan(NamedTuple):
    """Lines to fold; steps in bytes."""

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
    """Parts of a segment, or of a bunch of them, where a line is cut."""
    parts: int
    """Parts of a line; 1 where it is not cut."""


def ir_of(fold: Fold) -> str:
    """A module with the functions "alone" and "shared", of a ``LinePlan``."""
    return _Lines(fold).module(fold.functions())


def words(fold: Fold, plan: LinePlan) -> int:
    """8-byte words for the counter and the parts of several threads."""
    return 1 if plan.parts == 1 else 1 + plan.tasks * fold.planes


class _Lines(CutLines):
    """Writes the functions of a fold."""

    def __init__(self, fold: Fold) -> None:
        super().__init__(LinePlan._fields, PARTS, fold.kinds)
        self._fold = fold

    def _folded(self, code: Code, run: Run, at: Value, segments: Value, length: Value) -> State:
        """The fold of segments."""
        fold, step = self._fold, self.field(code, "segment_step")

        def more(segment: Value, state: list[Value]) -> State:
            return fold.merged(run, fold.kind, state, fold.line(run, code.add(at, code.mul(segment, step)), length))

        first = fold.line(run, at, length)
        _, *state = code.loop(1, segments, more, list(zip(fold.kinds, first, strict=True)))
        return state

    def put(self, code: Code, line: Value, state: State) -> None:
        fold, run = self._fold, Run(self._fold.bits, code)
        value = fold.finished(run, fold.kind, state, self.field(code, "divisor"))
        at = code.add(code.field("%job", OUT), code.mul(line, run.item))
        code.store(run.scalar, run.narrowed(value) if fold.kind == "double" else value, at, run.item)

    def whole(self) -> Code:
        code = Code("whole", "job", "plan", "first", "end")
        run, x = Run(self._fold.bits, code), code.field("%job", X)
        step, segments, length = (self.field(code, name) for name in ("step", "segments", "length"))

        def line(number: Value, _: list[Value]) -> None:
            self.put(code, number, self._folded(code, run, code.add(x, code.mul(number, step)), segments, length))

        code.loop("%first", "%end", line)
        code.give()
        return code

    def piece(self) -> Code:
        code = Code("piece", "job", "plan", "line", "piece", result=returned(self.kinds))
        run = Run(self._fold.bits, code)
        cuts, bunch, length = (self.field(code, name) for name in ("cuts", "bunch", "length"))
        first, cut = code.mul(code.quotient("%piece", cuts), bunch), code.rest("%piece", cuts)
        start = code.quotient(code.mul(length, cut), cuts)
        stop = code.quotient(code.mul(length, code.add(cut, 1)), cuts)
        at = code.add(code.field("%job", X), code.mul("%line", self.field(code, "step")))
        at = code.add(at, code.add(code.mul(first, self.field(code, "segment_step")), code.mul(start, run.item)))
        segments = code.smaller(bunch, code.sub(self.field(code, "segments"), first))
        code.give_several(self.kinds, self._folded(code, run, at, segments, code.sub(stop, start)))
        return code

    def merged(self, code: Code, piece: Value, state: State, other: State) -> State:
        return self._fold.merged(Run(self._fold.bits, code), self._fold.kind, state, other)
