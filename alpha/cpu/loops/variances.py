"""Variances and means of lines of neighbouring numbers, or of columns, a line or a strip in the caches at a time."""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.loops import axis, short_lines
from alpha.cpu.loops.axis import AxisPlan
from alpha.cpu.loops.code import Code, alone, module, returned, shared
from alpha.cpu.loops.cut_lines import CutLines
from alpha.cpu.loops.group_norms import apart, sums
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.row_norms import moments, moments_functions
from alpha.cpu.loops.runs import Run
from alpha.cpu.loops.short_lines import OF_LINES, READ


class VariancePlan(NamedTuple):
    """Lines of numbers."""

    tasks: int
    lines: int
    length: int
    bunch: int
    """Lines of a task."""
    parts: int
    """Parts of a line, each a task; 1 where lines are not cut."""
    divisor: float
    """The divisor of a line's squared deviations; NaN where there is none."""


_VAR, _MEAN, _X, _PARTS = 1, 2, 3, 4
"""Places in a job; the last is of a counter, which begins with 0, before room for two numbers of each part."""

DIVISOR = len(AxisPlan._fields)
"""The place of the divisor behind an ``AxisPlan``."""


def lines_ir(bits: int) -> str:
    """A module with the functions "alone" and "shared", of a ``VariancePlan``."""
    return _Lines(bits).module(moments_functions(bits))


def columns_ir(bits: int, are_lines: bool) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` and a divisor; also for short lines."""
    functions = [
        sums(bits),
        sums(bits, "wide_sums", (1,)),
        apart(bits),
        _strip(bits, "strip_task" if are_lines else "task"),
    ]
    if are_lines:
        return short_lines.module_of(bits, functions, (OF_LINES, OF_LINES, READ), 1)
    return module(functions, shared(), alone())


class _Lines(CutLines):
    """Writes the functions for lines. The parts of a line are merged in their order (Chan, Golub and LeVeque, 1983)."""

    def __init__(self, bits: int) -> None:
        super().__init__(VariancePlan._fields, _PARTS, ["double"] * 2)
        self._bits = bits

    def put(self, code: Code, line: Value, values: list[Value]) -> None:
        run, (mean, squares) = Run(self._bits, code), values
        var = code.do(f"fdiv double {squares}, {self.field(code, 'divisor')}")
        for place, value in ((_VAR, var), (_MEAN, mean)):
            at = code.add(code.field("%job", place), code.mul(line, run.item))
            code.store(run.scalar, run.narrowed(value), at, run.item)

    def whole(self) -> Code:
        code = Code("whole", "job", "plan", "first", "end")
        run, length = Run(self._bits, code), self.field(code, "length")

        def line(number: Value, _: list[Value]) -> None:
            x = code.add(code.field("%job", _X), code.mul(number, code.mul(length, run.item)))
            self.put(code, number, moments(run, x, length, True))

        code.loop("%first", "%end", line)
        code.give()
        return code

    def _edge(self, code: Code, piece: Value) -> Value:
        """Where a part of a line begins, in numbers."""
        return code.quotient(code.mul(self.field(code, "length"), piece), self.field(code, "parts"))

    def piece(self) -> Code:
        code = Code("piece", "job", "plan", "line", "piece", result=returned(self.kinds))
        run, first = Run(self._bits, code), self._edge(code, "%piece")
        count = code.sub(self._edge(code, code.add("%piece", 1)), first)
        place = code.add(code.mul("%line", self.field(code, "length")), first)
        x = code.add(code.field("%job", _X), code.mul(place, run.item))
        code.give_several(self.kinds, moments(run, x, count, True))
        return code

    def merged(self, code: Code, piece: Value, now: list[Value], other: list[Value]) -> list[Value]:
        (mean, squares), (other_mean, other_squares) = now, other
        before, total = self._edge(code, piece), self._edge(code, code.add(piece, 1))
        ours, others, all_ = (
            code.do(f"sitofp i64 {count} to double") for count in (before, code.sub(total, before), total)
        )
        apart = code.do(f"fsub double {other_mean}, {mean}")
        share = code.do(f"fmul double {apart}, {code.do(f'fdiv double {others}, {all_}')}")
        between = code.do(f"fmul double {code.do(f'fmul double {apart}, {share}')}, {ours}")
        inside = code.do(f"fadd double {squares}, {other_squares}")
        return [code.do(f"fadd double {mean}, {share}"), code.do(f"fadd double {inside}, {between}")]


def _some_are_not_finite(run: Run, sums: Value) -> Value:
    """Whether the sum of some column is no number, or infinite."""
    masks, every = f"<{run.wide_count} x i1>", ", ".join(["i1 true"] * run.wide_count)

    def visit(offsets: list[Value], _: Value | None, now: list[Value]) -> list[Value]:
        found = [run.finite(run.wide, total) for total in run.totals_of(sums, offsets[0])]
        return [run.tree([*now, *found], lambda one, other: run.write(f"and {masks} {one}, {other}"))]

    (are_finite,) = run.fold("%columns", (1,), visit, [(masks, f"<{every}>")])
    word = run.write(f"bitcast {masks} {are_finite} to i{run.wide_count}")
    return run.write(f"icmp ne i{run.wide_count} {word}, -1")


def _strip(bits: int, name: str) -> Code:
    """The mean first, then what is left of the deviations from it, and their squares."""

    def strip(code: Code, offset: Value, place: Value) -> None:
        run = Run(bits, code)
        rooms = [code.room(run.floats, 2 * axis.VECTORS) for _ in range(2)]
        high, low = (code.room(run.floats, axis.VECTORS) for _ in range(2))
        x, rows = code.add(code.field("%job", _X), offset), ("%rows", "%step", "%columns")
        var, kept = (code.add(code.field("%job", target), place) for target in (_VAR, _MEAN))
        count = run.wide_spread(code.write("sitofp i64 %rows to double"))
        divisor = run.wide_spread(code.field("%plan", DIVISOR, "double"))

        def mean(at: Value, _: Value | None) -> None:
            means = [run.wide_do("fdiv", total, count) for total in run.totals_of(rooms[0], at)]
            rounded = run.joined(means)
            rests = [
                run.wide_finite(run.wide_do("fsub", one, other))
                for one, other in zip(means, run.widened(rounded), strict=True)
            ]
            run.put(rounded, code.add(high, at))
            run.put(run.joined(rests), code.add(low, at))

        def result(at: Value, left: Value | None) -> None:
            starts = [run.widened(run.read(code.add(part, at))) for part in (high, low)]
            means, found = [], []
            parts = zip(*starts, run.totals_of(rooms[0], at), run.totals_of(rooms[1], at), strict=True)
            for first, second, deviations, squares in parts:
                rest = run.wide_finite(run.wide_do("fdiv", deviations, count))
                means.append(run.wide_do("fadd", run.wide_do("fadd", first, second), rest))
                lost = run.wide_do("fmul", run.wide_do("fmul", rest, rest), count)
                left_over = run.wide_do("fsub", squares, lost)
                zero, masks = run.constant(run.wide, 0.0), f"<{run.wide_count} x i1>"
                negative = run.write(f"fcmp olt {run.wide} {left_over}, {zero}")
                left_over = run.write(f"select {masks} {negative}, {run.wide} {zero}, {run.wide} {left_over}")
                found.append(run.wide_do("fdiv", left_over, divisor))
            run.put(run.joined(found), code.add(var, at), left)
            run.put(run.joined(means), code.add(kept, at), left)

        def again() -> None:
            code.call("void", "wide_sums", x, *rows, rooms[0])

        code.call("void", "sums", x, *rows, rooms[0])
        if bits == 32:  # on the way there may be what float32 has no number for
            code.when(_some_are_not_finite(run, rooms[0]), again)
        run.map("%columns", 1, mean)
        code.call("void", "apart", x, *rows, high, low, *rooms)
        run.map("%columns", 1, result)

    return axis.strips_task(bits // 8, strip, name)
