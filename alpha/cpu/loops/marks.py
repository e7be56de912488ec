"""Marks: rows of zeros, each with one number at the place that its label names.

A job is a record of 8-byte fields: plan, result, labels, where a 1 is written if a label is out of range, and the
number. Each label is read once; one out of range stands for 0.
"""

from __future__ import annotations

from typing import NamedTuple

from alpha.cpu.loops import blocks
from alpha.cpu.loops.blocks import BlockPlan
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import Run

_OUT, _LABELS, _WRONG, _NUMBER = range(1, 5)
"""Places in a job."""


class Marks(NamedTuple):
    """The field of a plan behind a ``BlockPlan``."""

    classes: int
    """Numbers of a row."""


_PLACE = places(BlockPlan._fields, Marks._fields)


def ir_of(bits: int) -> str:
    """A module of LLVM IR with the functions "alone" and "shared", for numbers of so many bits."""
    return module([_row(bits), _task(bits)], shared(), alone())


def _row(bits: int) -> Code:
    """``row(job, label, out, classes)``: the zeros and the number; returns 1 for a label out of range, else 0."""
    code = Code("row", "job", "label", "out", "classes", result="i64")
    run = Run(bits, code)
    zero = run.number(0.0)
    run.map("%classes", 4, lambda at, left: run.put(zero, code.add("%out", at), left))
    is_within = code.write("icmp ult i64 %label, %classes")
    place = code.write(f"select i1 {is_within}, i64 %label, i64 0")
    number = code.field("%job", _NUMBER, f"i{bits}")
    code.store(f"i{bits}", number, code.add("%out", code.mul(place, bits // 8)), bits // 8)
    code.give("i64", code.write(f"select i1 {is_within}, i64 0, i64 1"))
    return code


def _task(bits: int) -> Code:
    """``task(job, plan, task)``: a block of rows."""

    def block(code: Code, first: Value, end: Value) -> None:
        (classes,) = code.fields("%plan", _PLACE, "classes")
        out, labels, wrong = (code.field("%job", place) for place in (_OUT, _LABELS, _WRONG))
        size = code.mul(classes, bits // 8)

        def mark(row: Value, _: list[Value]) -> None:
            label = code.load("i64", code.add(labels, code.mul(row, 8)), 8)
            found = code.call("i64", "row", "%job", label, code.add(out, code.mul(row, size)), classes)
            code.when(code.less(0, found), lambda: code.store("i64", found, wrong, 8))

        code.loop(first, end, mark)

    return blocks.task(block)
