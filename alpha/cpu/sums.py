"""SumOperations: sums and means of point-wise programs, each as one loop over memory (``alpha.cpu.loops.sums``)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from alpha import caches
from alpha.arguments import broadcast_shapes
from alpha.cpu import pointwise, tapes, tasks
from alpha.cpu.isa import FUSED
from alpha.cpu.loops import loop as loops
from alpha.cpu.loops import machine, sums
from alpha.cpu.loops.elements import element_of
from alpha.cpu.pointwise import (
    PointwiseOperations,
    TensorLayout,
    Wanted,
    merged,
    result_strides,
    spacing_of,
    strides_to,
)
from alpha.expressions.program import Program
from alpha.tensor import Tensor


class SumOperations(PointwiseOperations):
    """Sums whose bits do not depend on the number of threads."""

    def pointwise_sum(
        self, function: str, program: Program, tensors: Sequence[Tensor], numbers: Sequence[float], mean: bool
    ) -> Tensor:
        plan = _plan(program, function, *[(x.shape, x.strides, x.dtype) for x in tensors])
        out = Tensor(self.allocate(plan.dtype.itemsize), 0, (), (), plan.dtype)
        if not plan.elements:
            self.fill(out, math.nan if mean else 0)
            return out
        places = [x.storage.address + x.offset * x.dtype.itemsize for x in tensors]
        divisor = float(plan.elements) if mean else 1.0
        parts = tapes.zeros(1 + plan.tasks if plan.tasks > 1 and self.threads > 1 else 0)
        job = plan.pack(plan.address, out.storage.address, *places, *numbers, parts.ctypes.data, divisor)
        tasks.run(plan.loop, job, plan.tasks, self.threads)
        return out


class Plan:
    """What a sum over these shapes, strides and dtypes needs beside addresses and numbers.

    Attributes:
        dtype: of the result.
        elements: how many are added.
        tasks: into how many parts the loop is divided.
        loop: the compiled loop.
        pack: makes the record of a job: see ``alpha.cpu.loops.sums``.
        address: of the plan's own record.
    """

    def __init__(self, program: Program, function: str, layouts: Sequence[TensorLayout]) -> None:
        """``function``: who asks, for messages."""
        shape = broadcast_shapes(function, [shape for shape, _, _ in layouts])
        self.dtype = program.dtype([(shape, kind) for shape, _, kind in layouts])
        self.elements = math.prod(shape)
        if not self.elements:
            return
        # The order of the additions is that of dense results in memory.
        strides = result_strides(shape, layouts)
        axes = merged(shape, [strides_to(shape, one) for one in layouts], strides)
        axes = axes or [(1, tuple([kind.itemsize for _, _, kind in layouts]))]
        length, steps = axes[-1]
        tensors = [
            (element_of(kind), spacing_of(step, kind)) for (_, _, kind), step in zip(layouts, steps, strict=True)
        ]
        layout = loops.Layout(element_of(self.dtype), tuple(tensors), len(axes) == 1, streams=False)
        self.loop = _loop(Wanted(program.text, layout, program))
        rows = self.elements // length
        task_rows, task_elements, self.tasks = _divided(rows, length)
        record = [self.tasks, rows, length, task_rows, task_elements, len(axes) - 1, 0, *steps]
        for outer_length, outer_steps in reversed(axes[:-1]):
            record += [outer_length, 0, *outer_steps]  # the result does not step
        self._record = np.array(record, np.int64)
        self.address = self._record.ctypes.data
        self.pack = struct.Struct(f"{2 + len(layouts)}q{program.count_of_numbers}dqd").pack


@caches.kept
def _plan(program: Program, function: str, *layouts: TensorLayout) -> Plan:
    return Plan(program, function, layouts)


def _divided(rows: int, length: int) -> tuple[int, int, int]:
    """Rows of a task, elements of one of its rows, and the number of tasks, by the sizes alone."""
    elements = rows * length
    if elements < pointwise.FOUND:
        return rows, length, 1
    task = max(pointwise.TASK, -(-elements // sums.MOST_TASKS))
    while True:
        task_rows = max(1, task // length)
        task_elements = task if length >= 2 * task else length
        count = -(-rows // task_rows) * -(-length // task_elements)
        if count <= sums.MOST_TASKS:
            return task_rows, task_elements, count
        task *= 2


@caches.kept
def _loop(wanted: Wanted) -> machine.Loop:
    """The loop of a program's sum, for tensors that lie so."""
    return machine.loop(sums.ir_of(wanted.program, wanted.layout, FUSED))
