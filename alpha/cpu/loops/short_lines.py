"""Short lines: of a few neighbouring numbers each, which the kernels for columns serve.

Most lanes of a vector would be empty, or its lanes be merged for a few numbers. So some lines are copied to the stack,
transposed: there the numbers of each place are side by side, and a line is a column. Results come back the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpha.cpu.loops import axis
from alpha.cpu.loops.axis import AxisPlan
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import Run

ROOM = 1 << 12
"""Numbers of the lines that are copied at a time: they stay in the first cache."""

READ, WRITTEN, OF_LINES = "read", "written", "of lines"
"""What a field of a job is the address of: lines that are read or written, or a result that has a number for each."""


def together(code: Code, run: Run, length: Value) -> Value:
    """How many lines of so many numbers are copied at a time: whole vectors of them, at most ``axis.STRIP``."""
    lines = code.quotient(ROOM, whole(code, run, length))
    return code.smaller(code.mul(code.quotient(lines, run.count), run.count), axis.STRIP)


def whole(code: Code, run: Run, count: Value) -> Value:
    """The lanes of the vectors that so many numbers take."""
    return code.mul(code.quotient(code.add(count, run.count - 1), run.count), run.count)


def functions(bits: int) -> list[Code]:
    """``to_columns`` and ``to_lines``."""
    return [_to_columns(bits), _to_lines(bits)]


def module_of(bits: int, columns: Sequence[Code], job: Sequence[str], more: int = 0) -> str:
    """A module with "alone" and "shared", of an ``AxisPlan`` of lines, made of a kernel for columns.

    Args:
        columns: that kernel's functions; its task is ``strip_task(job, plan, task)``.
        job: what the job's fields behind the plan are.
        more: fields of the plan behind the ``AxisPlan``.
    """
    known = len(AxisPlan._fields)

    def lines(code: Code, first: Value, end: Value) -> None:
        run = Run(bits, code)
        most, size = together(code, run, "%rows"), code.mul("%rows", run.item)
        rooms = ["" if kind == OF_LINES else code.room(run.scalar, ROOM) for kind in job]
        plan, strip_job = code.room("i64", known + more), code.room("i64", 1 + len(job))
        for k in range(known, known + more):
            code.store("i64", code.field("%plan", k), code.add(plan, 8 * k), 8)

        def some(start: Value, _: list[Value]) -> None:
            count = code.smaller(most, code.sub(end, start))
            width = whole(code, run, count)
            step = code.mul(width, run.item)
            for place, value in enumerate(("1", "1", "%rows", width, count, "1")):  # an AxisPlan
                code.store("i64", value, code.add(plan, 8 * place), 8)
            code.store("i64", plan, strip_job, 8)
            places = []
            for k, kind in enumerate(job):
                skipped = code.mul(start, run.item if kind == OF_LINES else size)
                places.append(code.add(code.field("%job", 1 + k), skipped))
                code.store("i64", rooms[k] or places[k], code.add(strip_job, 8 * (1 + k)), 8)
                if kind == READ:
                    code.call("void", "to_columns", places[k], size, count, "%rows", rooms[k], step)
            code.call("void", "strip_task", strip_job, plan, 0)
            for k, kind in enumerate(job):
                if kind == WRITTEN:
                    code.call("void", "to_lines", rooms[k], step, places[k], size, count, "%rows")

        code.loop(first, end, some, (), most)

    return module([*functions(bits), *columns, axis.bunches_task(lines)], shared(), alone())


def _transposed(run: Run, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors: halves are exchanged at each power of two."""
    found, count = list(rows), run.count
    step = count // 2
    while step:
        low = [lane if not lane & step else count + lane - step for lane in range(count)]
        high = [lane + step if not lane & step else count + lane for lane in range(count)]
        for i in [i for i in range(count) if not i & step]:
            pair = f"{run.floats} {found[i]}, {run.floats} {found[i + step]}"
            for place, lanes in ((i, low), (i + step, high)):
                order = f"<{count} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
                found[place] = run.write(f"shufflevector {pair}, {order}")
        step //= 2
    return found


def _to_columns(bits: int) -> Code:
    """``to_columns(x, size, lines, length, room, step)``: lines as columns; ``size``, ``step``: from line to line, and
    from row to row. Beside the last line it stands again; below the rows some are written that mean nothing.
    """
    code = Code("to_columns", "x", "size", "lines", "length", "room", "step")
    run, last = Run(bits, code), code.sub("%lines", 1)

    def some(first: Value, _: list[Value]) -> None:
        numbers = [code.smaller(code.add(first, k), last) for k in range(run.count)]
        starts = [code.add("%x", code.mul(number, "%size")) for number in numbers]
        target = code.add("%room", code.mul(first, run.item))

        def square(at: Value, left: Value | None) -> None:
            below = code.add(target, code.mul(code.quotient(at, run.item), "%step"))
            rows = [run.read(code.add(start, at), left) for start in starts]
            for row in _transposed(run, rows):
                run.put(row, below)
                below = code.add(below, "%step")

        run.map("%length", 1, square)

    code.loop(0, "%lines", some, (), run.count)
    code.give()
    return code


def _to_lines(bits: int) -> Code:
    """``to_lines(room, step, y, size, lines, length)``: the reverse of ``to_columns``."""
    code = Code("to_lines", "room", "step", "y", "size", "lines", "length")
    run = Run(bits, code)

    def some(first: Value, _: list[Value]) -> None:
        source, left_over = code.add("%room", code.mul(first, run.item)), code.sub("%lines", first)

        def square(at: Value, left: Value | None) -> None:
            above = code.add(source, code.mul(code.quotient(at, run.item), "%step"))
            rows = [run.read(code.add(above, code.mul(k, "%step"))) for k in range(run.count)]
            for k, line in enumerate(_transposed(run, rows)):
                target = code.add(code.add("%y", code.mul(code.add(first, k), "%size")), at)
                put = lambda line=line, target=target: run.put(line, target, left)  # noqa: E731
                code.when(code.less(k, left_over), put)

        run.map("%length", 1, square)

    code.loop(0, "%lines", some, (), run.count)
    code.give()
    return code
