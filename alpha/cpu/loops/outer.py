"""The products of each number of one vector with each of another, as rows of a matrix.

A job is a record of 8-byte fields: plan, result, the vector of the rows, the vector of the columns, and a float64 by
which the rows' numbers are multiplied first.
"""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.isa import ISA
from alpha.cpu.loops import blocks, pixels
from alpha.cpu.loops.blocks import BlockPlan
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import Run

_OUT, _X, _Y, _SCALE = range(1, 5)
"""Places in a job."""


class Outer(NamedTuple):
    """The fields of a plan behind a ``BlockPlan``."""

    columns: int
    step: int
    """Bytes from a row of the result to the next."""


_PLACE = places(BlockPlan._fields, Outer._fields)


def ir_of(bits: int, streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared"; ``streams``: whether it writes past the caches."""
    return module([_row(bits, streams), _task(bits)], shared(), alone(), pixels.STREAMS)


def _row(bits: int, streams: bool) -> Code:
    """``row(job, x, y, out, columns)``: the products with one number, first those before a whole vector's address."""
    code = Code("row", "job", "x", "y", "out", "columns")
    run, item = Run(bits, code), bits // 8
    scale, number = run.narrowed(code.field("%job", _SCALE, "double")), code.load(run.scalar, "%x", item)
    factor = run.spread(code.write(f"fmul {run.scalar} {scale}, {number}"))

    def put(start: Value, count: Value, past: bool) -> None:
        y, out = code.add("%y", start), code.add("%out", start)
        value = lambda offset, left: run.mul(run.read(code.add(y, offset), left), factor)  # noqa: E731
        pixels.put_run(run, count, 4, value, out, past)

    if streams:
        before = code.write(f"and i64 {code.sub(0, '%out')}, {ISA.bytes - 1}")
        first = code.smaller(code.quotient(before, item), "%columns")
        put("0", first, False)
        put(code.mul(first, item), code.sub("%columns", first), True)
    else:
        put("0", "%columns", False)
    code.give()
    return code


def _task(bits: int) -> Code:
    """``task(job, plan, task)``: a block of rows."""

    def block(code: Code, first: Value, end: Value) -> None:
        columns, step = code.fields("%plan", _PLACE, "columns", "step")
        out, x, y = (code.field("%job", place) for place in (_OUT, _X, _Y))

        def row(number: Value, _: list[Value]) -> None:
            at = code.add(out, code.mul(number, step))
            code.call("void", "row", "%job", code.add(x, code.mul(number, bits // 8)), y, at, columns)

        code.loop(first, end, row)

    return blocks.task(block)
