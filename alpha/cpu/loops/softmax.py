"""Softmax and log-softmax along an axis, and their gradients, a line or a strip of columns in the caches at a time.

Sums are those of ``alpha.cpu.loops.runs``. NaN among a line's numbers, infinity, and minus infinity alone make NaN of
the whole line.
"""

from __future__ import annotations

import math

from alpha.cpu.isa import FUSED
from alpha.cpu.loops import axis, short_lines
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Lanes, Value
from alpha.cpu.loops.runs import DEEP, SHALLOW, Run
from alpha.cpu.loops.short_lines import READ, WRITTEN
from alpha.expressions import elementary

Y, X = 1, 2
"""Places in a job of ``ir_of``."""

SHORT = 2048
"""Numbers below which lines are short: some of them stay in the caches."""

_SCALARS = {32: "float", 64: "double"}

DX, DY, OF = 1, 2, 3
"""Places in a job of ``grad_ir``: the results, their gradient, and what the forward gave."""


def ir_of(bits: int, log: bool, kind: str) -> str:
    """A module with the functions "alone" and "shared" of an ``AxisPlan``: y = softmax(x), or its logarithm."""
    if kind == axis.LINES:
        functions = [largest(bits), powers(bits, not log), _log_lines(bits) if log else _lines(bits)]
        return module(functions, shared(), alone())
    name = "task" if kind == axis.COLUMNS else "strip_task"
    functions = [_tops(bits), _column_powers(bits, not log), _column_ends(bits, log), _strips(bits, name)]
    if kind == axis.COLUMNS:
        return module(functions, shared(), alone())
    return short_lines.module_of(bits, functions, (WRITTEN, READ))


def grad_ir(bits: int, log: bool, kind: str) -> str:
    """A module with the functions "alone" and "shared" of an ``AxisPlan``: the gradient."""
    if kind == axis.SHORT_LINES:
        return short_lines.module_of(bits, _column_grad(bits, log, "strip_task"), (WRITTEN, READ, READ))
    functions = [_line_grad(bits, log)] if kind == axis.LINES else _column_grad(bits, log, "task")
    return module(functions, shared(), alone())


# -- lines ---------------------------------------------------------------------------------------------------------


def _larger(run: Run, kind: str, x: Value, y: Value) -> Value:
    """The larger of both, x where one is NaN."""
    mask = run.write(f"fcmp ogt {kind} {y}, {x}")
    return run.write(f"select {kind.replace(run.scalar, 'i1')} {mask}, {kind} {y}, {kind} {x}")


def largest(bits: int) -> Code:
    """``largest(x, count)``: the largest of a run of numbers, NaN left out."""
    code = Code("largest", "x", "count", result=_SCALARS[bits])
    run = Run(bits, code)

    def take(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
        after = list(now)
        for k, offset in enumerate(offsets):
            after[k] = _larger(run, run.floats, after[k], run.read(code.add("%x", offset), left, -math.inf))
        return after

    found = run.fold("%count", (4, 1), take, [(run.floats, run.number(-math.inf))] * 4)
    best = run.tree(found, lambda x, y: _larger(run, run.floats, x, y))
    number = run.across(run.scalar, best, run.count, lambda kind, x, y: _larger(run, kind, x, y))
    code.give(run.scalar, number)
    return code


def powers(bits: int, stored: bool) -> Code:
    """``powers(x, y, count, top)``: the sum of exp(x - top), which y takes if ``stored``."""
    code = Code("powers", "x", "y", "count", "top", result="double", top=_SCALARS[bits])
    run = Run(bits, code)
    top = run.spread("%top")

    def term(offset: Value, left: Value | None) -> list[Value]:
        power = elementary.exp(run, run.sub(run.read(code.add("%x", offset), left), top))
        if stored:
            run.put(power, code.add("%y", offset), left)
        return [power]

    (state,) = run.totals("%count", 1, term)
    code.give("double", run.total("double", state))
    return code


def _lines(bits: int) -> Code:
    scalar = _SCALARS[bits]

    def line(code: Code, offset: Value) -> None:
        run = Run(bits, code)
        x, y = (code.add(code.field("%job", place), offset) for place in (X, Y))
        top = code.call(scalar, "largest", x, "%rows")
        total = code.call("double", "powers", x, y, "%rows", top, a3=scalar)
        share = run.spread(run.narrowed(code.write(f"fdiv double 1.0, {total}")))

        def put(at: Value, left: Value | None) -> None:
            place = code.add(y, at)
            run.put(run.mul(run.read(place, left), share), place, left)

        run.map("%rows", 4, put)

    return axis.lines_task(bits // 8, line)


def _log_lines(bits: int) -> Code:
    """A logarithm takes as long as some vectors of numbers: those of several lines are computed at once."""

    def lines(code: Code, first: Value, end: Value) -> None:
        run, size = Run(bits, code), code.mul("%rows", bits // 8)
        room, tops = code.room(run.wide, 1), code.room(run.floats, 1)
        x, y = (code.field("%job", place) for place in (X, Y))
        is_short = code.less("%rows", SHORT)
        together = code.write(f"select i1 {is_short}, i64 {run.wide_count}, i64 1")

        def some(start: Value, _: list[Value]) -> None:
            count = code.smaller(together, code.sub(end, start))

            def gather(k: Value, _: list[Value]) -> None:
                at = code.add(x, code.mul(code.add(start, k), size))
                top = code.call(run.scalar, "largest", at, "%rows")
                total = code.call("double", "powers", at, at, "%rows", top, a3=run.scalar)
                code.store(run.scalar, top, code.add(tops, code.mul(k, run.item)), run.item)
                code.store("double", total, code.add(room, code.mul(k, 8)), 8)

            def put(k: Value, _: list[Value]) -> None:
                offset = code.mul(code.add(start, k), size)
                top = run.spread(code.load(run.scalar, code.add(tops, code.mul(k, run.item)), run.item))
                less = run.spread(run.narrowed(code.load("double", code.add(room, code.mul(k, 8)), 8)))

                def one(at: Value, left: Value | None) -> None:
                    value = run.read(code.add(code.add(x, offset), at), left)
                    run.put(run.sub(run.sub(value, top), less), code.add(code.add(y, offset), at), left)

                run.map("%rows", 4, one)

            code.loop(0, count, gather)
            totals = code.load(run.wide, room, 8)
            code.store(run.wide, elementary.log(Lanes(64, run.wide_count, FUSED, code), totals), room, 8)
            code.loop(0, count, put)

        code.loop(first, end, some, (), together)

    return axis.bunches_task(lines)


def _line_grad(bits: int, log: bool) -> Code:
    """dx = (dy - sum(dy * y)) * y of softmax, dy - exp(y) * sum(dy) of its logarithm."""

    def line(code: Code, offset: Value) -> None:
        run = Run(bits, code)
        dx, dy, y = (code.add(code.field("%job", place), offset) for place in (DX, DY, OF))

        def term(at: Value, left: Value | None) -> list[Value]:
            grad = run.read(code.add(dy, at), left)
            return [grad if log else run.mul(grad, run.read(code.add(y, at), left))]

        (state,) = run.totals("%rows", 1, term)
        total = run.spread(run.narrowed(run.total("double", state)))

        def put(at: Value, left: Value | None) -> None:
            grad, value = (run.read(code.add(start, at), left) for start in (dy, y))
            run.put(_slope(run, log, grad, value, total), code.add(dx, at), left)

        run.map("%rows", 1 if log else 4, put)

    return axis.lines_task(bits // 8, line)


def _slope(run: Run, log: bool, grad: Value, y: Value, total: Value) -> Value:
    if log:
        return run.sub(grad, run.mul(elementary.exp(run, y), total))
    return run.mul(run.sub(grad, total), y)


# -- columns -------------------------------------------------------------------------------------------------------


def _tops(bits: int) -> Code:
    """``tops(x, rows, step, columns, tops)``: the largest number of each column, NaN left out."""
    code = Code("tops", "x", "rows", "step", "columns", "tops")
    run = Run(bits, code)
    run.map("%columns", 1, lambda at, _: run.put(run.number(-math.inf), code.add("%tops", at)))

    def take(rows: list[Value], at: Value, left: Value | None) -> None:
        place = code.add("%tops", at)
        best = run.read(place)
        for row in rows:
            best = _larger(run, run.floats, best, run.read(code.add("%x", row), left))
        run.put(best, place)

    axis.each_row(run, (8, 1), take)
    code.give()
    return code


def _column_powers(bits: int, stored: bool) -> Code:
    """``powers(x, y, rows, step, columns, tops, sums)``: sums of exp(x - top), which y takes if ``stored``."""
    code = Code("powers", "x", "y", "rows", "step", "columns", "tops", "sums")
    run = Run(bits, code)

    def take(rows: list[Value], at: Value, left: Value | None) -> None:
        top, found = run.read(code.add("%tops", at)), []
        for row in rows:
            found.append(elementary.exp(run, run.sub(run.read(code.add("%x", row), left), top)))
            if stored:
                run.put(found[-1], code.add("%y", row), left)
        run.add_to("%sums", at, run.tree(found))

    run.map("%columns", 1, lambda at, _: run.clear("%sums", at))
    axis.each_row(run, (SHALLOW, 1), take)
    code.give()
    return code


def _column_ends(bits: int, log: bool) -> Code:
    """``ends(x, y, rows, step, columns, tops, sums)``: y / sum, or (x - top) - log(sum); ``sums`` are overwritten."""
    code = Code("ends", "x", "y", "rows", "step", "columns", "tops", "sums")
    run = Run(bits, code)

    def prepare(at: Value, _: Value | None) -> None:
        totals = run.totals_of("%sums", at)
        if log:
            found = [elementary.log(Lanes(64, run.wide_count, FUSED, code), total) for total in totals]
        else:
            found = [run.write(f"fdiv {run.wide} {run.constant(run.wide, 1.0)}, {total}") for total in totals]
        run.put(run.joined(found), code.add("%sums", code.mul(at, 2)))

    def put(rows: list[Value], at: Value, left: Value | None) -> None:
        end = run.read(code.add("%sums", code.mul(at, 2)))
        top = run.read(code.add("%tops", at)) if log else ""
        for row in rows:
            value = run.read(code.add("%x" if log else "%y", row), left)
            value = run.sub(run.sub(value, top), end) if log else run.mul(value, end)
            run.put(value, code.add("%y", row), left)

    run.map("%columns", 1, prepare)
    axis.each_row(run, (4, 1), put)
    code.give()
    return code


def _strips(bits: int, name: str) -> Code:
    def strip(code: Code, offset: Value, _: Value) -> None:
        run = Run(bits, code)
        x, y = (code.add(code.field("%job", place), offset) for place in (X, Y))
        tops, sums = code.room(run.floats, axis.VECTORS), code.room(run.floats, 2 * axis.VECTORS)
        code.call("void", "tops", x, "%rows", "%step", "%columns", tops)
        for function in ("powers", "ends"):
            code.call("void", function, x, y, "%rows", "%step", "%columns", tops, sums)

    return axis.strips_task(bits // 8, strip, name)


def _column_grad(bits: int, log: bool, name: str) -> list[Code]:
    code = Code("grad", "dx", "dy", "y", "rows", "step", "columns", "sums")
    run = Run(bits, code)

    def take(rows: list[Value], at: Value, left: Value | None) -> None:
        grads = [run.read(code.add("%dy", row), left) for row in rows]
        if not log:
            values = [run.read(code.add("%y", row), left) for row in rows]
            grads = [run.mul(grad, value) for grad, value in zip(grads, values, strict=True)]
        run.add_to("%sums", at, run.tree(grads))

    def put(rows: list[Value], at: Value, left: Value | None) -> None:
        total = run.joined(run.totals_of("%sums", at))
        for row in rows:
            grad, value = (run.read(code.add(start, row), left) for start in ("%dy", "%y"))
            run.put(_slope(run, log, grad, value, total), code.add("%dx", row), left)

    run.map("%columns", 1, lambda at, _: run.clear("%sums", at))
    axis.each_row(run, (DEEP, 4, 1), take)
    axis.each_row(run, (4, 1), put)
    code.give()

    def strip(task: Code, offset: Value, _: Value) -> None:
        starts = [task.add(task.field("%job", place), offset) for place in (DX, DY, OF)]
        sums = task.room(run.floats, 2 * axis.VECTORS)
        task.call("void", "grad", *starts, "%rows", "%step", "%columns", sums)

    return [code, axis.strips_task(bits // 8, strip, name)]
