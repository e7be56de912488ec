"""Running sums of floats in float64, along lines of numbers that lie side by side and down columns of rows that do.

A vector's running sums are made in log2(lanes) steps, and the total of all before them is added: so a sum's error is
that of the vectors before it, not of the numbers.
"""

from __future__ import annotations

from alpha.cpu.loops import axis, short_lines
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import Run
from alpha.cpu.loops.short_lines import READ, WRITTEN

_Y, _X = 1, 2
"""Places in a job."""


def ir_of(bits: int, kind: str) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan``."""
    if kind == axis.SHORT_LINES:
        return short_lines.module_of(bits, [_strips(bits, "strip_task")], (WRITTEN, READ))
    return module([_lines(bits) if kind == axis.LINES else _strips(bits, "task")], shared(), alone())


def _moved(run: Run, value: Value, lanes: int) -> Value:
    """A vector of float64 whose lanes are so much further on; the first are 0."""
    count = run.wide_count
    places = [count + lane if lane < lanes else lane - lanes for lane in range(count)]
    order = f"<{count} x i32> <{', '.join(f'i32 {place}' for place in places)}>"
    return run.write(f"shufflevector {run.wide} {value}, {run.wide} zeroinitializer, {order}")


def _lines(bits: int) -> Code:
    def line(code: Code, offset: Value) -> None:
        run = Run(bits, code)
        x, y = (code.add(code.field("%job", place), offset) for place in (_X, _Y))
        last = f"<{run.wide_count} x i32> <{', '.join([f'i32 {run.wide_count - 1}'] * run.wide_count)}>"

        def put(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
            before = now[0]
            for at in offsets:
                found = []
                for part in run.widened(run.read(code.add(x, at), left)):
                    sums, step = part, 1
                    while step < run.wide_count:
                        sums, step = run.wide_do("fadd", sums, _moved(run, sums, step)), 2 * step
                    found.append(run.wide_do("fadd", sums, before))
                    total = run.write(f"shufflevector {run.wide} {sums}, {run.wide} undef, {last}")
                    before = run.wide_do("fadd", total, before)
                run.put(run.joined(found), code.add(y, at), left)
            return [before]

        run.fold("%rows", (2, 1), put, [(run.wide, "zeroinitializer")])

    return axis.lines_task(bits // 8, line)


def _strips(bits: int, name: str) -> Code:
    def strip(code: Code, offset: Value, _: Value) -> None:
        run = Run(bits, code)
        x, y = (code.add(code.field("%job", place), offset) for place in (_X, _Y))
        sums = code.room(run.floats, 2 * axis.VECTORS)

        def put(rows: list[Value], at: Value, left: Value | None) -> None:
            for row in rows:
                run.add_to(sums, at, run.read(code.add(x, row), left))
                run.put(run.joined(run.totals_of(sums, at)), code.add(y, row), left)

        run.map("%columns", 1, lambda at, _: run.clear(sums, at))
        axis.each_row(run, (4, 1), put)

    return axis.strips_task(bits // 8, strip, name)
