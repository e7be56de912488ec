"""PointwiseOperations: point-wise programs on the CPU, each as one loop over memory (``alpha.cpu.loops``)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape, broadcast_shapes
from alpha.cpu import workers
from alpha.cpu.base import HostEngine
from alpha.cpu.compile import Entry, alone, entry
from alpha.cpu.isa import FUSED
from alpha.cpu.loops import loop as loops
from alpha.cpu.loops import machine
from alpha.cpu.sharing import share
from alpha.dtypes import bool_, of_tensors
from alpha.expressions.graph import Graph
from alpha.expressions.program import Program
from alpha.tensor import Tensor, dense_strides, memory_order

TASK = 1 << 14
"""Elements of a task, about: a thread is done with them in some microseconds, and few are left at the end."""

FOUND = 1 << 15
"""Elements from which workers are woken."""

Lie = tuple[Shape, Shape, Any]
"""Shape, strides and dtype of a tensor."""


class PointwiseOperations(HostEngine):
    """Programs as loops that are compiled at their first use for each way in which tensors lie."""

    def pointwise(
        self, function: str, program: Program, tensors: Sequence[Tensor], numbers: Sequence[float]
    ) -> tuple[Tensor, ...]:
        plan = _plan(program, function, *[(x.shape, x.strides, x.dtype) for x in tensors])
        results = tuple([Tensor(self.allocate(n), 0, plan.shape, plan.strides, dtype) for n, dtype in plan.results])
        if not plan.elements:
            return results
        job = plan.pack(
            plan.address,
            *[x.storage.address for x in results],
            *[x.storage.address + x.offset * x.dtype.itemsize for x in tensors],
            *numbers,
        )
        if plan.tasks == 1 or self.threads == 1:
            plan.loop.alone(job)
        else:
            record = np.frombuffer(job, np.uint8)
            threads = min(self.threads, plan.tasks)
            workers.WORKERS.enter(launcher(), threads, (plan.loop.shared, record.ctypes.data))
        return results

    def leaky_relu(self, x: Tensor, slope: float) -> Tensor:
        return self.pointwise("leaky_relu", _RELU if slope == 0 else _LEAKY_RELU, (x,), (slope,) if slope else ())[0]

    def leaky_relu_grad(self, dy: Tensor, y: Tensor, slope: float) -> Tensor:
        program, numbers = (_RELU_GRADIENT, ()) if slope == 0 else (_LEAKY_RELU_GRADIENT, (slope,))
        return self.pointwise("leaky_relu", program, (y, dy), numbers)[0]


def _rectifier(loses: str, leaks: bool, of_gradient: bool) -> Program:
    """LeakyReLU of x, or its gradient from y and dy: the last operand where the first is positive, else times a slope.

    Without a slope nothing is multiplied: -inf * 0 would be NaN.
    """
    graph = Graph()
    inputs = [graph.input(place) for place in range(2 if of_gradient else 1)]
    decides, passes = inputs[0], inputs[-1]
    if leaks:
        kept = graph.apply("gt", decides, 0.0)
        result = graph.apply("where", kept, passes, graph.apply("mul", passes, graph.argument(0)))
    else:
        result = graph.apply("where", graph.apply(loses, decides, 0.0), 0.0, passes)
    return Program(graph, [result], inputs)


_RELU = _rectifier("lt", leaks=False, of_gradient=False)  # of -0 it is -0
_RELU_GRADIENT = _rectifier("le", leaks=False, of_gradient=True)
_LEAKY_RELU = _rectifier("", leaks=True, of_gradient=False)
_LEAKY_RELU_GRADIENT = _rectifier("", leaks=True, of_gradient=True)


@alone
def _launch(slot, threads, *job):  # type: ignore[no-untyped-def]
    """Runs a loop on several threads: its address, and the job's."""
    return share(slot, threads, job[0], job[1])


@lru_cache(maxsize=1)
def launcher() -> Entry:
    """The kernel that runs a loop's ``shared`` on several threads."""
    from numba import types

    return entry(_launch, types.int64, types.int64)


class Plan:
    """What a call with these shapes, strides and dtypes needs beside addresses and numbers.

    Attributes:
        shape, strides: of the results.
        results: bytes and dtype of each.
        elements: how many a result has.
        tasks: into how many parts the loop is divided.
        loop: the compiled loop.
        pack: makes the record of a job: see ``alpha.cpu.loops.loop``.
        address: of the plan's own record.
    """

    def __init__(self, program: Program, function: str, lies: Sequence[Lie]) -> None:
        """``function``: who asks, for messages."""
        self.shape = broadcast_shapes(function, [shape for shape, _, _ in lies])
        dtype = of_tensors((shape, kind) for shape, _, kind in lies)
        kinds = [bool_ if is_bool else dtype for is_bool in program.bools]
        self.elements = math.prod(self.shape)
        self.strides = result_strides(self.shape, lies)
        self.results = tuple([(self.elements * kind.itemsize, kind) for kind in kinds])
        self.tasks = 0
        if not self.elements:
            return
        operands = [tuple([stride * kind.itemsize for stride in self.strides]) for kind in kinds]
        operands += [strides_to(self.shape, lie) for lie in lies]
        sizes = tuple([kind.itemsize for kind in (*kinds, *[kind for _, _, kind in lies])])
        axes = merged(self.shape, operands, self.strides) or [(1, sizes)]
        _, steps = axes[-1]
        layout = loops.Layout(
            8 * dtype.itemsize,
            tuple(
                [
                    (8 * kind.itemsize, lie_of(step, kind))
                    for (_, _, kind), step in zip(lies, steps[len(kinds) :], strict=True)
                ]
            ),
            len(axes) == 1,
        )
        self.loop = _loop(program.text, layout, program)
        self._record = np.array(self._plan(axes), np.int64)
        self.address = self._record.ctypes.data
        self.pack = struct.Struct(f"{1 + len(operands)}q{program.count_of_numbers}d").pack

    def _plan(self, axes: list[tuple[int, tuple[int, ...]]]) -> list[int]:
        """The plan's record."""
        elements, steps = axes[-1]
        rows = self.elements // elements
        task_rows = max(1, TASK // elements)
        task_elements = TASK if elements >= 2 * TASK else elements
        self.tasks = -(-rows // task_rows) * -(-elements // task_elements) if self.elements >= FOUND else 1
        record = [rows, elements, task_rows, task_elements, self.tasks, len(axes) - 1, *steps]
        for length, strides in reversed(axes[:-1]):
            record += [length, *strides]
        return record


@caches.kept
def _plan(program: Program, function: str, *lies: Lie) -> Plan:
    return Plan(program, function, lies)


def result_strides(shape: Shape, lies: Sequence[Lie]) -> Shape:
    """Strides of dense results in the memory order of the largest tensor."""
    largest_shape, strides, _ = max(lies, key=lambda lie: math.prod(lie[0]))
    return dense_strides(shape, memory_order(largest_shape, strides) if len(largest_shape) == len(shape) else None)


_loops: dict[tuple[str, loops.Layout], machine.Loop] = {}


def _loop(text: str, layout: loops.Layout, program: Program) -> machine.Loop:
    """The loop of a program, for tensors that lie so."""
    found = _loops.get((text, layout))
    if found is None:
        found = _loops[text, layout] = machine.loop(loops.ir_of(program, layout, FUSED))
    return found


def lie_of(step: int, dtype: np.dtype[Any]) -> str:
    """How the elements of a row lie, by the bytes from one to the next."""
    return loops.SAME if step == 0 else loops.DENSE if step == dtype.itemsize else loops.STRIDED


def strides_to(shape: Shape, lie: Lie) -> tuple[int, ...]:
    """A tensor's strides in bytes along the axes that it is broadcast to."""
    tensor_shape, strides, dtype = lie
    missing = (0,) * (len(shape) - len(tensor_shape))
    return missing + tuple(
        [0 if n == 1 else stride * dtype.itemsize for n, stride in zip(tensor_shape, strides, strict=True)]
    )


def merged(shape: Shape, operands: list[tuple[int, ...]], strides: Shape) -> list[tuple[int, tuple[int, ...]]]:
    """The axes from outermost to innermost in the results' memory, with each operand's stride; as few as can be.

    Two are one where every operand steps from the end of the inner one to the next of the outer.
    """
    order = sorted([axis for axis, n in enumerate(shape) if n > 1], key=lambda axis: -strides[axis])
    found: list[tuple[int, tuple[int, ...]]] = []
    for axis in order:
        length, steps = shape[axis], tuple([operand[axis] for operand in operands])
        if found:
            outer_length, outer = found[-1]
            if all(o == length * s for o, s in zip(outer, steps, strict=True)):
                found[-1] = outer_length * length, steps
                continue
        found.append((length, steps))
    return found
