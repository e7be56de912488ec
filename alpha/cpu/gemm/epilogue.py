"""Epilogue: a point-wise function of a product's result, computed while the caches still hold it.

Its loop is that of any point-wise function (``alpha.cpu.loops.loop``), for rows of a matrix, with one function more:
``part(job, first row, end row, first, end)``, which a product's kernel calls for the block that it has completed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.cpu.base import HostEngine
from alpha.cpu.isa import FUSED
from alpha.cpu.loops import loop as loops
from alpha.cpu.loops import machine
from alpha.cpu.loops.elements import FLOAT, Element
from alpha.expressions.program import Program
from alpha.records import PointwiseStep
from alpha.tensor import Tensor


class Job(NamedTuple):
    """An epilogue as the kernel runs it.

    Attributes:
        part: the address of the loop's function.
        record: the loop's job.
        held: what must live as long as it runs.
    """

    part: int
    record: np.ndarray[Any, Any]
    held: Any


class Epilogue(NamedTuple):
    """A program of one tensor, the product's result.

    Attributes:
        step: the program, with its numbers.
        out: where it goes, a dense tensor like the product's result, or that result itself.
    """

    step: PointwiseStep
    out: Tensor

    def run(self, engine: HostEngine, result: Tensor) -> None:
        """Computes all of it in one pass over memory."""
        step = self.step
        engine.pointwise(step.function, step.program, (result,), step.numbers, self.out)

    def job(self, result: Tensor) -> Job:
        """What a product's kernel runs it by, for a dense matrix."""
        rows, columns = result.shape
        item = result.dtype.itemsize
        program, numbers = self.step.program, self.step.numbers
        loop, plan = _loop(_Wanted(program.text, 8 * item, program)), _plan(rows, columns, item)
        packed = struct.pack(f"3q{len(numbers)}d", plan.ctypes.data, self.out.address, result.address, *numbers)
        return Job(loop.address("part"), np.frombuffer(packed, np.uint8), (loop, plan))


@caches.kept
def _plan(rows: int, columns: int, item: int) -> np.ndarray[Any, Any]:
    """The loop's plan for a dense matrix; see ``alpha.cpu.loops.loop``."""
    step = columns * item
    return np.array([1, rows, columns, rows, columns, 1, item, item, rows, step, step], np.int64)


@dataclass(frozen=True)
class _Wanted:
    """A loop that is wanted: for programs of one text it is the same."""

    text: str
    bits: int
    program: Program = field(compare=False)


@caches.kept
def _loop(wanted: _Wanted) -> machine.Functions:
    """The compiled loop."""
    element = Element(FLOAT, wanted.bits)
    layout = loops.Layout(element, ((element, loops.DENSE),), is_flat=False, streams=False)
    written = _Writer(wanted.program, layout, FUSED).module()
    return machine.functions(written, lambda: written)


class _Writer(loops.Writer):
    """Writes a loop that runs over parts of rows."""

    def _entries(self) -> list[str]:
        names = "i64 %job, i64 %first_row, i64 %end_row, i64 %first, i64 %end"
        return [f"define void @part({names}) #0 {{\nentry:\n  call void @range({names})\n  ret void\n}}"]
