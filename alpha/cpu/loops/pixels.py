"""What kernels of images share: how their tasks are divided, and how a pixel's numbers are written.

The numbers behind a pixel are runs: all images' channels as one where they lie beside each other, else each image's.
A run is worked on in pieces, and a task is some positions of the result for one piece, row after row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.machine import pointer_to
from alpha.cpu.loops.runs import Run

PIECE_BYTES = 4096
"""Bytes of a piece of a run: for positions that share rows of an image, those stay in the second cache."""

TASK_BYTES = 1 << 16
"""Bytes that a task writes, about."""

X, OUT = 1, 2
"""Places in a job: of what is read, and of what is written."""

FIELDS = (
    "positions", "blocks", "pieces", "piece", "length", "height", "width", "from_run", "to_run", "to_row", "to_column",
)  # fmt: skip
"""What each plan has: positions per task, tasks of a piece, pieces of a run, numbers of a piece and of a run, rows and
columns of the result, and steps in bytes."""


class Row(NamedTuple):
    """A part of a row of the result that belongs to a task."""

    number: Value
    left: Value
    """Its first column; right: the one behind its last."""
    right: Value
    x: Value
    """Where what is read begins, and the row."""
    out: Value
    numbers: Value
    """How many a piece has."""


def rows_task(item: int, places: Mapping[str, int], body: Callable[[Code, Row], None]) -> Code:
    """``task(job, plan, task)``: ``body`` for each row of some positions; ``places``: of a plan's fields."""
    code = Code("task", "job", "plan", "task")
    code.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")
    plan = {name: code.field("%plan", places[name]) for name in FIELDS}
    part = code.quotient("%task", plan["blocks"])
    first = code.mul(code.sub("%task", code.mul(part, plan["blocks"])), plan["positions"])
    width = plan["width"]
    last = code.smaller(code.add(first, plan["positions"]), code.mul(plan["height"], width))
    run = code.quotient(part, plan["pieces"])
    low = code.mul(code.sub(part, code.mul(run, plan["pieces"])), plan["piece"])
    count = code.smaller(plan["piece"], code.sub(plan["length"], low))
    skipped = code.mul(low, item)
    x, out = (
        code.add(code.add(code.field("%job", place), code.mul(run, plan[step])), skipped)
        for place, step in ((X, "from_run"), (OUT, "to_run"))
    )

    def row(number: Value, _: list[Value]) -> None:
        start = code.mul(number, width)
        left = code.write(f"call i64 @llvm.smax.i64(i64 {code.sub(first, start)}, i64 0)")
        right = code.smaller(width, code.sub(last, start))
        body(code, Row(number, left, right, x, code.add(out, code.mul(number, plan["to_row"])), count))

    code.loop(code.quotient(first, width), code.quotient(code.add(last, code.sub(width, 1)), width), row)
    code.give()
    return code


def put(
    run: Run, values: Sequence[Value], out: Value, offsets: Sequence[Value], left: Value | None, streams: bool
) -> None:
    """Stores vectors at some bytes from an address; whole ones past the caches if asked."""
    for value, offset in zip(values, offsets, strict=True):
        address = run.code.add(out, offset)
        if streams and left is None:
            pointer = f"{pointer_to(run.floats)} {run.code.pointer(run.floats, address)}"
            run.code.act(f"store {run.floats} {value}, {pointer}, align {ISA.bytes}, !nontemporal !0")
        else:
            run.put(value, address, left)


STREAMS = "!0 = !{ i32 1 }"
"""What a module needs in which something is stored past the caches."""
