"""Rows normalised by their own statistics: layer and RMS norm, and their gradients, a row in the caches at a time.

A row's mean is taken in float64 and kept in two numbers of x's dtype, so that ``x - mean`` loses nothing where the mean
is far from 0. Rows are cut into tasks by their number alone, and the tasks' sums merged in order: the threads do not
change a bit. Sums are those of ``alpha.cpu.loops.runs``, the weight's gradient a tree over BLOCK rows at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.folds import SUM, fold_of
from alpha.cpu.loops.lanes import Value, scalar
from alpha.cpu.loops.runs import LONG, Run

BLOCK = 8
"""Rows whose shares of a weight's gradient are added in the dtype of x."""

FAR = 16.0
"""Deviations that a row's mean is from 0 at most where its sum by trees is exact enough."""

ROW_BYTES = 16
"""Bytes of a row's statistics: its mean, and 1 / sqrt(var + eps), in float64."""


class RowPlan(NamedTuple):
    """Rows to normalise."""

    tasks: int
    rows: int
    columns: int


class Variant(NamedTuple):
    """What a kernel is made for."""

    bits: int
    centered: bool
    """Whether the mean is subtracted; else it counts as 0."""
    weight: bool
    """Whether there is a weight."""
    second: bool
    """Whether there is a bias; of a gradient, whether those of weight or bias are asked for."""


TASKS, ROWS, COLUMNS = range(3)

Y, KEPT, X, WEIGHT, BIAS, EPS = range(1, 7)
"""Places in a job of ``ir_of``."""

DX, DWEIGHT, DBIAS, DY, OF, FACTOR, STATISTICS, PARTS = range(1, 9)
"""Places in a job of ``grad_ir``; the last is of a counter, which begins with 0, before room for parts."""


def ir_of(variant: Variant) -> str:
    """A module with "alone" and "shared": y = (x - mean) / sqrt(var + eps) * weight + bias, and the statistics."""
    return module([*moments_functions(variant.bits), _row(variant), _task()], shared(), alone())


def grad_ir(variant: Variant) -> str:
    """A module with "alone" and "shared": the gradients."""
    if not variant.second:
        return module([_grad_row(variant), _grad_task(variant)], shared(), alone())
    return gradients_module(variant.bits, [_grad_row(variant), _shares(variant), _grad_task(variant)])


def gradients_module(bits: int, functions: Sequence[Code]) -> str:
    """A module of functions whose task gathers the sums of ``sums_of_task`` and returns the counter's address."""

    def every(code: Code) -> None:
        code.loop(0, code.field("%plan", TASKS), lambda task, _: code.act(f"call i64 {_CALL.format(task)}"))
        finish(code, bits)

    return module(functions, shared(lambda code: finish(code, bits)), alone(every))


_CALL = "@task(i64 %job, i64 %plan, i64 {})"


def words(columns: int, tasks: int) -> int:
    """8-byte words for the counter and the parts: two sums for each column, of whole vectors, in two places each."""
    return ISA.lanes(8) + tasks * 2 * _room_bytes(columns) // 8


def _room_bytes(columns: int) -> int:
    """Bytes for the sums of each column, as ``Run.taken`` has them, of the dtype that takes more."""
    return (2 * columns + 4 * ISA.lanes(8)) * 8


# -- forward -------------------------------------------------------------------------------------------------------


def _deviations(bits: int) -> Code:
    """``deviations(x, count, high, low)``: the sum of x - high - low."""
    kind = "float" if bits == 32 else "double"
    code = Code("deviations", "x", "count", "high", "low", result="double", high=kind, low=kind)
    run = Run(bits, code)
    high, low = run.spread("%high"), run.spread("%low")

    def apart(at: Value, left: Value | None) -> list[Value]:
        return [run.sub(run.sub(run.read(code.add("%x", at), left), high), low)]

    (state,) = run.totals("%count", 1, apart, LONG)
    code.give("double", run.total("double", state))
    return code


def _squares(bits: int, short: bool) -> Code:
    """``squares(x, count, high, low)``: the sum of (x - high - low) ** 2.

    Of float32, where that is not finite or so small that squares have lost digits, it is that of ``wide_squares``.
    """
    kind, name = "float" if bits == 32 else "double", "squares" if short else "wide_squares"
    code = Code(name, "x", "count", "high", "low", result="double", high=kind, low=kind)
    run = Run(bits, code)
    high, low = run.spread("%high"), run.spread("%low")

    def apart(at: Value, left: Value | None) -> Value:
        return run.kept(run.sub(run.sub(run.read(code.add("%x", at), left), high), low), left)

    def square(at: Value, left: Value | None) -> list[Value]:
        value = apart(at, left)
        return [run.mul(value, value)]

    def wide(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
        parts = zip(now, run.widened(apart(offsets[0], left)), strict=True)
        return [run.write(f"fadd {run.wide} {one}, {run.write(f'fmul {run.wide} {x}, {x}')}") for one, x in parts]

    if not short:
        last = run.fold("%count", (1,), wide, [(run.wide, "zeroinitializer")] * 2)
        code.give("double", run.state(last)[0])
        return code
    (state,) = run.totals("%count", 1, square, LONG)
    total = run.total("double", state)
    if bits == 32:
        count = code.write("sitofp i64 %count to double")
        least = code.write(f"fmul double {count}, {scalar(2.0**-100, 64)}")
        enough = code.write(f"fcmp ogt double {total}, {least}")
        serves = code.write(f"and i1 {run.finite('double', total)}, {enough}")
        call = "call double @wide_squares(i64 %x, i64 %count, float %high, float %low)"
        (total,) = code.choose(serves, lambda: [total], lambda: [code.do(call)], ["double"])
    code.give("double", total)
    return code


def parts_of(run: Run, value: Value) -> tuple[Value, Value]:
    """A float64 number as the sum of two of the run's dtype; the second is 0 where the first is not finite."""
    high = run.narrowed(value)
    low = run.write(f"fsub double {value}, {run.double(high)}")
    low = run.write(f"select i1 {run.finite('double', low)}, double {low}, double 0.0")
    return high, run.narrowed(low)


def moments_functions(bits: int) -> list[Code]:
    """The functions that ``moments`` calls."""
    found = [*fold_of(SUM, bits).functions(), _deviations(bits), _squares(bits, True)]
    return [*found, _squares(bits, False)] if bits == 32 else found


def moments(run: Run, x: Value, count: Value, centered: bool) -> list[Value]:
    """Mean, 0 unless ``centered``, and the sum of squared deviations from it, in float64, of so many numbers.

    What is left of the deviations from a mean that is far from 0 says by how much it is off (Chan, Golub and LeVeque,
    1983): so equal numbers are their mean.
    """
    code = run.code
    size = code.write(f"sitofp i64 {count} to double")
    kinds = {"a2": run.scalar, "a3": run.scalar}
    if not centered:
        zero = scalar(0.0, 64)
        return [zero, code.call("double", "squares", x, count, zero, zero, **kinds)]
    total = run.total("double", fold_of(SUM, run.bits).line(run, x, count))
    mean = code.do(f"fdiv double {total}, {size}")
    high, low = parts_of(run, mean)
    squares = code.call("double", "squares", x, count, high, low, **kinds)
    square = code.do(f"fmul double {mean}, {mean}")
    limit = code.do(f"fmul double {code.do(f'fdiv double {squares}, {size}')}, {scalar(FAR**2, 64)}")

    def again() -> list[Value]:
        rest = code.do(f"fdiv double {code.call('double', 'deviations', x, count, high, low, **kinds)}, {size}")
        nearer = code.do(f"fadd double {mean}, {rest}")
        parts = parts_of(run, nearer)
        return [nearer, code.call("double", "squares", x, count, *parts, **kinds)]

    is_far = code.do(f"fcmp ogt double {square}, {limit}")
    return code.choose(is_far, again, lambda: [mean, squares], ["double"] * 2)


def _row(variant: Variant) -> Code:
    """``row(job, row, count)``: a row."""
    code = Code("row", "job", "row", "count")
    run = Run(variant.bits, code)
    offset = code.mul(code.mul("%row", "%count"), run.item)
    x, y = (code.add(code.field("%job", place), offset) for place in (X, Y))
    mean, squares = moments(run, x, "%count", variant.centered)
    var = code.write(f"fdiv double {squares}, {code.write('sitofp i64 %count to double')}")
    high, low = parts_of(run, mean)
    sum_of = code.write(f"fadd double {var}, {code.field('%job', EPS, 'double')}")
    inverse = code.write(f"fdiv double 1.0, {run.wide_call('double', 'sqrt', sum_of)}")
    kept = code.add(code.field("%job", KEPT), code.mul("%row", ROW_BYTES))
    code.store("double", mean, kept, 8)
    code.store("double", inverse, code.add(kept, 8), 8)
    high, low, scale = (run.spread(value) for value in (high, low, run.narrowed(inverse)))
    weight, bias = code.field("%job", WEIGHT), code.field("%job", BIAS)

    def put(at: Value, left: Value | None) -> None:
        value = run.mul(run.sub(run.sub(run.read(code.add(x, at), left), high), low), scale)
        if variant.weight:
            factor = run.read(code.add(weight, at), left)
            if variant.second:
                value = run.fma(value, factor, run.read(code.add(bias, at), left))
            else:
                value = run.mul(value, factor)
        elif variant.second:
            value = run.add(value, run.read(code.add(bias, at), left))
        run.put(value, code.add(y, at), left)

    run.map("%count", 2, put)
    code.give()
    return code


def rows_of_task(code: Code) -> tuple[Value, Value]:
    """The rows of ``%task``."""
    tasks, rows = code.field("%plan", TASKS), code.field("%plan", ROWS)
    first = code.quotient(code.mul(rows, "%task"), tasks)
    return first, code.quotient(code.mul(rows, code.add("%task", 1)), tasks)


def _task() -> Code:
    code = Code("task", "job", "plan", "task")
    columns = code.field("%plan", COLUMNS)
    code.loop(*rows_of_task(code), lambda row, _: code.act(f"call void @row(i64 %job, i64 {row}, i64 {columns})"))
    code.give()
    return code


# -- gradients -----------------------------------------------------------------------------------------------------


def _normal(run: Run, x: Value, numbers: tuple[Value, Value, Value], centered: bool) -> Value:
    """(x - high - low) * scale, with vectors of the numbers."""
    high, low, scale = numbers
    return run.mul(run.sub(run.sub(x, high), low) if centered else x, scale)


def _grad_row(variant: Variant) -> Code:
    """``grad_row(job, row, count, numbers)``: dx of a row; ``numbers`` takes mean and scale, as for ``_normal``."""
    code = Code("grad_row", "job", "row", "count", "numbers")
    run = Run(variant.bits, code)
    offset = code.mul(code.mul("%row", "%count"), run.item)
    dx, dy, x = (code.add(code.field("%job", place), offset) for place in (DX, DY, OF))
    weight = code.field("%job", FACTOR)
    kept = code.add(code.field("%job", STATISTICS), code.mul("%row", ROW_BYTES))
    high, low = parts_of(run, code.load("double", kept, 8))
    factor = run.narrowed(code.load("double", code.add(kept, 8), 8))
    for k, value in enumerate((high, low, factor)):
        code.store(run.scalar, value, code.add("%numbers", k * run.item), run.item)
    numbers = run.spread(high), run.spread(low), run.spread(factor)

    def slopes(at: Value, left: Value | None) -> tuple[Value, Value]:
        g = run.read(code.add(dy, at), left)
        if variant.weight:
            g = run.mul(g, run.read(code.add(weight, at), left))
        return g, _normal(run, run.read(code.add(x, at), left), numbers, variant.centered)

    def terms(at: Value, left: Value | None) -> list[Value]:
        g, n = slopes(at, left)
        return [g, run.mul(g, n)] if variant.centered else [run.mul(g, n)]

    totals = [run.total("double", state) for state in run.totals("%count", 1 + variant.centered, terms)]
    count = code.write("sitofp i64 %count to double")
    means = [run.spread(run.narrowed(code.write(f"fdiv double {total}, {count}"))) for total in totals]

    def put(at: Value, left: Value | None) -> None:
        g, n = slopes(at, left)
        if variant.centered:
            g = run.sub(g, means[0])
        value = run.mul(run.sub(g, run.mul(n, means[-1])), numbers[2])
        run.put(value, code.add(dx, at), left)

    run.map("%count", 2, put)
    code.give()
    return code


def _shares(variant: Variant) -> Code:
    """``shares(dy, x, rows, count, numbers, room, other)``: rows' shares of the gradients of weight and bias."""
    code = Code("shares", "dy", "x", "rows", "count", "numbers", "room", "other")
    run = Run(variant.bits, code)
    size, row = code.mul("%count", run.item), "0"
    for rows in (BLOCK, 1):

        def turn(first: Value, _: list[Value], rows: int = rows) -> None:
            starts = [code.mul(code.add(first, k), size) for k in range(rows)]
            places = [code.add("%numbers", code.mul(code.add(first, k), 3 * run.item)) for k in range(rows)]

            def visit(at: Value, left: Value | None) -> None:
                grads, products = [], []
                for start, place in zip(starts, places, strict=True):
                    offset = code.add(start, at)
                    grads.append(run.read(code.add("%dy", offset), left))
                    values = [code.load(run.scalar, code.add(place, k * run.item), run.item) for k in range(3)]
                    high, low, factor = map(run.spread, values)
                    x = run.read(code.add("%x", offset), left)
                    products.append(run.mul(grads[-1], _normal(run, x, (high, low, factor), variant.centered)))
                run.add_to("%room", at, run.tree(products))
                run.add_to("%other", at, run.tree(grads))

            run.map("%count", 1, visit)

        (row,) = code.loop(row, code.sub("%rows", rows - 1), turn, (), rows)
    code.give()
    return code


def sums_of_task(code: Code, task: Value) -> tuple[Value, Value]:
    """Where a task's sums for weight and bias lie."""
    columns = code.field("%plan", COLUMNS)
    size = code.mul(code.add(code.mul(columns, 2), 4 * ISA.lanes(8)), 8)
    start = code.add(code.field("%job", PARTS), ISA.bytes)
    first = code.add(start, code.mul(code.mul(task, 2), size))
    return first, code.add(first, size)


def _grad_task(variant: Variant) -> Code:
    """``task(job, plan, task)``: some rows; where there are shares of weight and bias, the counter's address."""
    code = Code("task", "job", "plan", "task", result="i64" if variant.second else "void")
    run, columns = Run(variant.bits, code), code.field("%plan", COLUMNS)
    numbers = code.room(run.scalar, 3 * BLOCK)
    first, last = rows_of_task(code)
    rooms = sums_of_task(code, "%task") if variant.second else None
    if rooms is not None:
        code.act(f"%columns = add i64 {columns}, 0")
        for room in rooms:
            run.map("%columns", 1, lambda at, _, room=room: run.clear(room, at))  # type: ignore[misc]

    def block(start: Value, _: list[Value]) -> None:
        count = code.smaller(BLOCK, code.sub(last, start))

        def row(k: Value, _: list[Value]) -> None:
            at = code.add(numbers, code.mul(k, 3 * run.item))
            code.call("void", "grad_row", "%job", code.add(start, k), columns, at)

        code.loop(0, count, row)
        if rooms is not None:
            offset = code.mul(code.mul(start, columns), run.item)
            dy, x = (code.add(code.field("%job", place), offset) for place in (DY, OF))
            code.call("void", "shares", dy, x, count, columns, numbers, *rooms)

    code.loop(first, last, block, (), BLOCK)
    if variant.second:
        code.give("i64", code.field("%job", PARTS))
    else:
        code.give()
    return code


def finish(code: Code, bits: int) -> None:
    """Merges the tasks' sums in their order, and stores the gradients of weight and bias."""
    run, columns = Run(bits, code), code.field("%plan", COLUMNS)
    firsts = sums_of_task(code, "0")
    targets = [code.field("%job", place) for place in (DWEIGHT, DBIAS)]

    def merge(task: Value, _: list[Value]) -> None:
        for first, room in zip(firsts, sums_of_task(code, task), strict=True):
            run.map(columns, 1, lambda at, _, one=first, other=room: run.join_sums(one, other, at))  # type: ignore[misc]

    code.loop(1, code.field("%plan", TASKS), merge)
    for first, target in zip(firsts, targets, strict=True):

        def put(at: Value, left: Value | None, first: Value = first, target: Value = target) -> None:
            run.put(run.joined(run.totals_of(first, at)), code.add(target, at), left)

        code.when(code.less(0, target), lambda put=put: run.map(columns, 1, put))  # type: ignore[misc]
