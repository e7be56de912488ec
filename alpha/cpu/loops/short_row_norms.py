"""Layer and RMS norm of short rows, and their gradients: some rows are transposed, and a lane of a vector is a row.

Plans, jobs and statistics are those of ``alpha.cpu.loops.row_norms``. Sums over a row are taken in float64 throughout,
and so are the shares of its numbers in the gradients of weight and bias.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.loops import row_norms, short_lines
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.row_norms import ROW_BYTES, Variant, rows_of_task, sums_of_task
from alpha.cpu.loops.runs import Run


def ir_of(variant: Variant) -> str:
    """A module with "alone" and "shared", as ``row_norms.ir_of``, of float32."""
    functions = [*short_lines.functions(variant.bits), _normalise(variant), _task(variant)]
    return module(functions, shared(), alone())


def grad_ir(variant: Variant) -> str:
    """A module with "alone" and "shared", as ``row_norms.grad_ir``, of float32."""
    functions = [*short_lines.functions(variant.bits), _gradients(variant), _grad_task(variant)]
    if variant.second:
        return row_norms.gradients_module(variant.bits, functions)
    return module(functions, shared(), alone())


def _added(run: Run, sums: list[Value], value: Value) -> list[Value]:
    """Sums in float64 and a vector more."""
    return [run.wide_do("fadd", one, part) for one, part in zip(sums, run.widened(value), strict=True)]


def _zeros(run: Run, sums: int) -> list[tuple[str, Value]]:
    """With what so many sums of a vector's lanes begin."""
    return [(run.wide, "zeroinitializer")] * (sums * run.halves)


def _parts(run: Run, means: list[Value]) -> tuple[Value, Value]:
    """Numbers in float64 as sums of two of the run's dtype."""
    high = run.joined(means)
    rests = [run.wide_do("fsub", mean, part) for mean, part in zip(means, run.widened(high), strict=True)]
    return high, run.joined([run.wide_finite(rest) for rest in rests])


def _factor(run: Run, weights: Value, place: Value) -> Value:
    """A number of weight or bias in every lane."""
    code = run.code
    return run.spread(code.load(run.scalar, code.add(weights, code.mul(place, run.item)), run.item))


# -- forward -------------------------------------------------------------------------------------------------------


def _normalise(variant: Variant) -> Code:
    """``normalise(x, step, rows, count, kept, weight, bias, eps)``: rows as columns, in place; ``kept``: statistics."""
    names = ("x", "step", "rows", "count", "kept", "weight", "bias", "eps")
    code = Code("normalise", *names, eps="double")
    run = Run(variant.bits, code)
    rooms = [code.room("double", run.count) for _ in range(2)]
    size, eps = run.wide_spread(code.write("sitofp i64 %count to double")), run.wide_spread("%eps")

    def some(at: Value, left: Value | None) -> None:
        start = code.add("%x", at)

        def number(place: Value) -> Value:
            return run.read(code.add(start, code.mul(place, "%step")))

        means = ["zeroinitializer"] * run.halves
        if variant.centered:
            sums = code.loop(0, "%count", lambda j, now: _added(run, now, number(j)), _zeros(run, 1))
            means = [run.wide_do("fdiv", total, size) for total in sums[1:]]

        def square(place: Value, now: list[Value]) -> list[Value]:
            found = []
            for one, part, mean in zip(now, run.widened(number(place)), means, strict=True):
                apart = run.wide_do("fsub", part, mean)
                found.append(run.wide_do("fadd", one, run.wide_do("fmul", apart, apart)))
            return found

        inverse = []
        for squares in code.loop(0, "%count", square, _zeros(run, 1))[1:]:
            var = run.wide_do("fadd", run.wide_do("fdiv", squares, size), eps)
            root = run.wide_call(run.wide, "sqrt", var)
            inverse.append(run.wide_do("fdiv", run.constant(run.wide, 1.0), root))
        for room, vectors in zip(rooms, (means, inverse), strict=True):
            for k, vector in enumerate(vectors):
                code.store(run.wide, vector, code.add(room, k * ISA.bytes), 8)
        first = code.quotient(at, run.item)
        lanes = str(run.count) if left is None else left
        code.loop(0, lanes, lambda lane, _: _keep(code, rooms, lane, code.add(first, lane)))
        (high, low), scale = _parts(run, means), run.joined(inverse)

        def put(place: Value, _: list[Value]) -> None:
            value = run.mul(run.sub(run.sub(number(place), high), low), scale)
            if variant.weight and variant.second:
                value = run.fma(value, _factor(run, "%weight", place), _factor(run, "%bias", place))
            elif variant.weight:
                value = run.mul(value, _factor(run, "%weight", place))
            elif variant.second:
                value = run.add(value, _factor(run, "%bias", place))
            run.put(value, code.add(start, code.mul(place, "%step")))

        code.loop(0, "%count", put)

    run.map("%rows", 1, some)
    code.give()
    return code


def _keep(code: Code, rooms: list[Value], lane: Value, row: Value) -> None:
    """Stores a lane's mean and 1 / sqrt as a row's statistics."""
    kept = code.add("%kept", code.mul(row, ROW_BYTES))
    for k, room in enumerate(rooms):
        code.store("double", code.load("double", code.add(room, code.mul(lane, 8)), 8), code.add(kept, 8 * k), 8)


def _task(variant: Variant) -> Code:
    """``task(job, plan, task)``: some rows."""
    code = Code("task", "job", "plan", "task")
    run, columns = Run(variant.bits, code), code.field("%plan", row_norms.COLUMNS)
    first, end = rows_of_task(code)
    most, size = short_lines.together(code, run, columns), code.mul(columns, run.item)
    room = code.room(run.scalar, short_lines.ROOM)
    step = code.mul(most, run.item)
    weight, bias = (code.field("%job", place) for place in (row_norms.WEIGHT, row_norms.BIAS))
    eps = code.field("%job", row_norms.EPS, "double")

    def some(start: Value, _: list[Value]) -> None:
        count, skipped = code.smaller(most, code.sub(end, start)), code.mul(start, size)
        x, y = (code.add(code.field("%job", place), skipped) for place in (row_norms.X, row_norms.Y))
        kept = code.add(code.field("%job", row_norms.KEPT), code.mul(start, ROW_BYTES))
        code.call("void", "to_columns", x, size, count, columns, room, step)
        code.call("void", "normalise", room, step, count, columns, kept, weight, bias, eps, a7="double")
        code.call("void", "to_lines", room, step, y, size, count, columns)

    code.loop(first, end, some, (), most)
    code.give()
    return code


# -- gradients -----------------------------------------------------------------------------------------------------


def _kept(run: Run, rooms: list[Value], first: Value, left: Value | None) -> list[list[Value]]:
    """The means and 1 / sqrt of some rows, a row in each lane; in lanes beyond the last row that one's again."""
    code = run.code

    def fetch(lane: Value, _: list[Value]) -> None:
        row = lane if left is None else code.smaller(lane, code.sub(left, 1))
        kept = code.add("%kept", code.mul(code.add(first, row), ROW_BYTES))
        for k, room in enumerate(rooms):
            value = code.load("double", code.add(kept, 8 * k), 8)
            code.store("double", value, code.add(room, code.mul(lane, 8)), 8)

    code.loop(0, run.count, fetch)
    return [[code.load(run.wide, code.add(room, k * ISA.bytes), 8) for k in range(run.halves)] for room in rooms]


def _gradients(variant: Variant) -> Code:
    """``gradients(dy, x, step, rows, count, kept, weight, shares, others)``: dx of rows as columns takes x's place.

    ``shares``, ``others``: for each number of a row the sums, over its lanes, of its shares in the gradients of weight
    and bias.
    """
    names = ("dy", "x", "step", "rows", "count", "kept", "weight", "shares", "others")
    code = Code("gradients", *names)
    run = Run(variant.bits, code)
    rooms = [code.room("double", run.count) for _ in range(2)]
    size = run.wide_spread(code.write("sitofp i64 %count to double"))

    def some(at: Value, left: Value | None) -> None:
        dy, x = code.add("%dy", at), code.add("%x", at)
        means, inverse = _kept(run, rooms, code.quotient(at, run.item), left)
        (high, low), scale = _parts(run, means), run.joined(inverse)

        def slopes(place: Value) -> tuple[Value, Value, Value]:
            """dy, dy * weight, and the normalised number."""
            skipped = code.mul(place, "%step")
            grad, value = run.read(code.add(dy, skipped)), run.read(code.add(x, skipped))
            if variant.centered:
                value = run.sub(run.sub(value, high), low)
            g = run.mul(grad, _factor(run, "%weight", place)) if variant.weight else grad
            return grad, g, run.mul(value, scale)

        def take(place: Value, now: list[Value]) -> list[Value]:
            grad, g, n = slopes(place)
            if variant.second:
                kept = code.mul(place, ISA.bytes)
                run.add_to("%shares", kept, run.kept(run.mul(grad, n), left))
                run.add_to("%others", kept, run.kept(grad, left))
            after = _added(run, now[: run.halves], run.mul(g, n))
            return [*after, *_added(run, now[run.halves :], g)] if variant.centered else after

        sums = code.loop(0, "%count", take, _zeros(run, 1 + variant.centered))[1:]
        shares = [run.wide_do("fdiv", total, size) for total in sums]
        of_products, of_slopes = run.joined(shares[: run.halves]), shares[run.halves :]

        def put(place: Value, _: list[Value]) -> None:
            g, n = slopes(place)[1:]
            if variant.centered:
                g = run.sub(g, run.joined(of_slopes))
            value = run.mul(run.sub(g, run.mul(n, of_products)), scale)
            run.put(value, code.add(x, code.mul(place, "%step")))

        code.loop(0, "%count", put)

    run.map("%rows", 1, some)
    code.give()
    return code


def _grad_task(variant: Variant) -> Code:
    """``task(job, plan, task)``: some rows; where there are shares of weight and bias, the counter's address."""
    code = Code("task", "job", "plan", "task", result="i64" if variant.second else "void")
    run, columns = Run(variant.bits, code), code.field("%plan", row_norms.COLUMNS)
    first, end = rows_of_task(code)
    most, size = short_lines.together(code, run, columns), code.mul(columns, run.item)
    of_dy, of_x = (code.room(run.scalar, short_lines.ROOM) for _ in range(2))
    sums = [code.room(run.wide, code.mul(columns, 2)) for _ in range(2)] if variant.second else ["0", "0"]
    step, weight = code.mul(most, run.item), code.field("%job", row_norms.FACTOR)
    if variant.second:

        def clear(j: Value, _: list[Value]) -> None:
            for room in sums:
                run.clear(room, code.mul(j, ISA.bytes))

        code.loop(0, columns, clear)

    def some(start: Value, _: list[Value]) -> None:
        count, skipped = code.smaller(most, code.sub(end, start)), code.mul(start, size)
        places = (row_norms.DY, row_norms.OF, row_norms.DX)
        dy, x, dx = (code.add(code.field("%job", place), skipped) for place in places)
        kept = code.add(code.field("%job", row_norms.STATISTICS), code.mul(start, ROW_BYTES))
        for source, room in ((dy, of_dy), (x, of_x)):
            code.call("void", "to_columns", source, size, count, columns, room, step)
        code.call("void", "gradients", of_dy, of_x, step, count, columns, kept, weight, *sums)
        code.call("void", "to_lines", of_x, step, dx, size, count, columns)

    code.loop(first, end, some, (), most)
    if not variant.second:
        code.give()
        return code
    for room, target in zip(sums, sums_of_task(code, "%task"), strict=True):

        def total(j: Value, _: list[Value], room: Value = room, target: Value = target) -> None:
            at = code.mul(j, ISA.bytes)
            (found,) = run.state(run.totals_of(room, at))
            code.store("double", found, code.add(target, code.mul(j, 8)), 8)  # as ``Run.taken`` has it of float32

        code.loop(0, columns, total)
    code.give("i64", code.field("%job", row_norms.PARTS))
    return code
