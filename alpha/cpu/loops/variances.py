"""Variances and means of lines of neighbouring numbers, or of columns, a line or a strip in the caches at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alpha.cpu.loops import axis
from alpha.cpu.loops.axis import AxisPlan
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.group_norms import apart, sums
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.row_norms import moments, moments_functions
from alpha.cpu.loops.runs import Run


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


_PLACE = {name: place for place, name in enumerate(VariancePlan._fields)}

_VAR, _MEAN, _X, _PARTS = 1, 2, 3, 4
"""Places in a job; the last is of a counter, which begins with 0, before room for two numbers of each part."""

DIVISOR = len(AxisPlan._fields)
"""The place of the divisor behind an ``AxisPlan``."""


def lines_ir(bits: int) -> str:
    """A module with the functions "alone" and "shared", of a ``VariancePlan``."""
    writer = _Lines(bits)
    functions = [*moments_functions(bits), writer.whole(), writer.piece(), writer.task()]
    return module(functions, shared(writer.finish), alone(writer.alone))


def columns_ir(bits: int) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` and a divisor."""
    return module([sums(bits), apart(bits), _strip(bits)], shared(), alone())


class _Lines:
    """Writes the functions for lines. The parts of a line are merged in their order (Chan, Golub and LeVeque, 1983)."""

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def _field(self, code: Code, name: str) -> Value:
        return code.field("%plan", _PLACE[name], "double" if name == "divisor" else "i64")

    def _put(self, code: Code, line: Value, mean: Value, squares: Value) -> None:
        """Stores a line's results."""
        run = Run(self._bits, code)
        var = code.do(f"fdiv double {squares}, {self._field(code, 'divisor')}")
        for place, value in ((_VAR, var), (_MEAN, mean)):
            at = code.add(code.field("%job", place), code.mul(line, run.item))
            code.store(run.scalar, run.narrowed(value), at, run.item)

    def whole(self) -> Code:
        """``whole(job, plan, first, end)``: lines that are not cut."""
        code = Code("whole", "job", "plan", "first", "end")
        run, length = Run(self._bits, code), self._field(code, "length")

        def line(number: Value, _: list[Value]) -> None:
            x = code.add(code.field("%job", _X), code.mul(number, code.mul(length, run.item)))
            self._put(code, number, *moments(run, x, length, True))

        code.loop("%first", "%end", line)
        code.give()
        return code

    def _edge(self, code: Code, piece: Value) -> Value:
        """Where a part of a line begins, in numbers."""
        return code.quotient(code.mul(self._field(code, "length"), piece), self._field(code, "parts"))

    def piece(self) -> Code:
        """``piece(job, plan, line, piece, kept)``: mean and squared deviations of a part of a line."""
        code = Code("piece", "job", "plan", "line", "piece", "kept")
        run, first = Run(self._bits, code), self._edge(code, "%piece")
        count = code.sub(self._edge(code, code.add("%piece", 1)), first)
        place = code.add(code.mul("%line", self._field(code, "length")), first)
        x = code.add(code.field("%job", _X), code.mul(place, run.item))
        for k, value in enumerate(moments(run, x, count, True)):
            code.store("double", value, code.add("%kept", 8 * k), 8)
        code.give()
        return code

    def _kept(self, code: Code, task: Value) -> Value:
        return code.add(code.add(code.field("%job", _PARTS), 8), code.mul(task, 16))

    def task(self) -> Code:
        """``task(job, plan, task)``: lines, or a part of one; the counter's address."""
        code = Code("task", "job", "plan", "task", result="i64")
        lines, bunch, parts = (self._field(code, name) for name in ("lines", "bunch", "parts"))

        def whole() -> None:
            first = code.mul("%task", bunch)
            code.call("void", "whole", "%job", "%plan", first, code.smaller(code.add(first, bunch), lines))

        def piece() -> None:
            line, part = code.quotient("%task", parts), code.rest("%task", parts)
            code.call("void", "piece", "%job", "%plan", line, part, self._kept(code, "%task"))

        code.choose(code.equal(parts, 1), whole, piece)
        code.give("i64", code.field("%job", _PARTS))
        return code

    def _merge(self, code: Code, part: Callable[[Value, Value], Value]) -> None:
        """Merges the parts of all lines; ``part(line, piece)``: where a part's numbers are."""

        def line(number: Value, _: list[Value]) -> None:
            def more(piece: Value, now: list[Value]) -> list[Value]:
                mean, squares = now
                at, before = part(number, piece), self._edge(code, piece)
                total = self._edge(code, code.add(piece, 1))
                ours, others, all_ = (
                    code.do(f"sitofp i64 {count} to double") for count in (before, code.sub(total, before), total)
                )
                apart = code.do(f"fsub double {code.load('double', at, 8)}, {mean}")
                share = code.do(f"fmul double {apart}, {code.do(f'fdiv double {others}, {all_}')}")
                between = code.do(f"fmul double {code.do(f'fmul double {apart}, {share}')}, {ours}")
                inside = code.do(f"fadd double {squares}, {code.load('double', code.add(at, 8), 8)}")
                return [code.do(f"fadd double {mean}, {share}"), code.do(f"fadd double {inside}, {between}")]

            at = part(number, "0")
            first = [("double", code.load("double", code.add(at, 8 * k), 8)) for k in range(2)]
            results = code.loop(1, self._field(code, "parts"), more, first)
            self._put(code, number, *results[1:])

        code.loop(0, self._field(code, "lines"), line)

    def finish(self, code: Code) -> None:
        """What the thread does that ends the last task."""
        parts = self._field(code, "parts")

        def part(line: Value, piece: Value) -> Value:
            return self._kept(code, code.add(code.mul(line, parts), piece))

        code.when(code.less(1, parts), lambda: self._merge(code, part))

    def alone(self, code: Code) -> None:
        """What a thread does that has no others beside it."""
        room, lines = code.room("double", 2), self._field(code, "lines")

        def part(line: Value, piece: Value) -> Value:
            code.call("void", "piece", "%job", "%plan", line, piece, room)
            return room

        code.choose(
            code.equal(self._field(code, "parts"), 1),
            lambda: code.act(f"call void @whole(i64 %job, i64 %plan, i64 0, i64 {lines})"),
            lambda: self._merge(code, part),
        )


def _strip(bits: int) -> Code:
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

        code.call("void", "sums", x, *rows, rooms[0])
        run.map("%columns", 1, mean)
        code.call("void", "apart", x, *rows, high, low, *rooms)
        run.map("%columns", 1, result)

    return axis.strips_task(bits // 8, strip)
