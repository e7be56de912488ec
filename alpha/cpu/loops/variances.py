"""Variances and means of lines of neighbouring numbers, or of columns, a line or a strip in the caches at a time."""

from __future__ import annotations

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
    divisor: float
    """Of a line's squared deviations; NaN where there is none."""


_PLACE = {name: place for place, name in enumerate(VariancePlan._fields)}

_VAR, _MEAN, _X = 1, 2, 3
"""Places in a job."""


DIVISOR = len(AxisPlan._fields)
"""The place of the divisor behind an ``AxisPlan``."""


def lines_ir(bits: int) -> str:
    """A module with the functions "alone" and "shared", of a ``VariancePlan``."""
    return module([*moments_functions(bits), _task(bits)], shared(), alone())


def columns_ir(bits: int) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` and a divisor."""
    return module([sums(bits), apart(bits), _strip(bits)], shared(), alone())


def _task(bits: int) -> Code:
    code = Code("task", "job", "plan", "task")
    run = Run(bits, code)
    lines, length, bunch = (code.field("%plan", _PLACE[name]) for name in ("lines", "length", "bunch"))
    divisor = code.field("%plan", _PLACE["divisor"], "double")
    size, first = code.mul(length, run.item), code.mul("%task", bunch)
    count = code.write(f"sitofp i64 {length} to double")

    def line(number: Value, _: list[Value]) -> None:
        x = code.add(code.field("%job", _X), code.mul(number, size))
        mean, var = moments(run, x, length, True)
        squares = code.do(f"fmul double {var}, {count}")
        var = code.do(f"fdiv double {squares}, {divisor}")
        for place, value in ((_VAR, var), (_MEAN, mean)):
            at = code.add(code.field("%job", place), code.mul(number, run.item))
            code.store(run.scalar, run.narrowed(value), at, run.item)

    code.loop(first, code.smaller(code.add(first, bunch), lines), line)
    code.give()
    return code


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
