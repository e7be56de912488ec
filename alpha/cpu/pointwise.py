"""PointwiseOperations: point-wise programs on the CPU, each as one loop over memory (``alpha.cpu.loops``)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import Shape, broadcast_shapes
from alpha.composed import stored
from alpha.cpu import launches, streaming, tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.isa import FUSED, ISA
from alpha.cpu.loops import loop as loops
from alpha.cpu.loops import machine
from alpha.cpu.loops.elements import BOOLS, converts, element_of, has_loops
from alpha.cpu.loops.parts import equal_parts
from alpha.dtypes import bool_, computed_in, default_int, limits
from alpha.expressions.dropout import DRAWN_DTYPE
from alpha.expressions.program import Conversion, Program
from alpha.random import WORDS
from alpha.records import RowCall, RowPass
from alpha.tensor import Tensor, dense_strides, memory_order

TASK = 1 << 14
"""Elements of a task, about: a thread is done with them in some microseconds, and few are left at the end."""

UNIT = 64
"""Elements of which parts of a row have whole multiples: whole vectors, and what is drawn at once."""

FOUND = 1 << 15
"""Elements from which workers are woken."""

ALIGNED_BYTES = 2 << 10
"""Bytes of a row from which its results go past the caches where rows are not aligned.

The ends of rows share cache lines, which have to be read first: with rows of 800 bytes that takes what streaming saves.
"""

TensorLayout = tuple[Shape, Shape, Any]
"""Shape, strides and dtype of a tensor."""


class PointwiseOperations(HostEngine):
    """Programs as loops that are compiled at their first use for each way in which tensors lie."""

    def pointwise(
        self,
        function: str,
        program: Program,
        tensors: Sequence[Tensor],
        numbers: Sequence[float],
        out: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        in_place = out is not None and tensors[0] is out
        if out is None or in_place:
            found = (program.launches_in_place if in_place else program.launches).launch(*tensors, *numbers)
            if found is not None:
                return found if len(program.results) > 1 else (found,)
        if out is not None:
            tensors = [self._apart(x, out) for x in tensors]
        wanted = None if out is None else ((out.shape, out.strides, out.dtype),)
        plan = _plan(program, function, wanted, *[(x.shape, x.strides, x.dtype) for x in tensors])
        if plan.is_stored:
            return stored.pointwise(self, function, program, tensors, numbers, out)
        if out is None:
            results = tuple([Tensor(self.allocate(n), 0, plan.shape, plan.strides, dtype) for n, dtype in plan.results])
        elif plan.fits:
            results = (out,)
        else:
            self.copy(self.pointwise(function, program, tensors, numbers)[0], out)
            return (out,)
        if not plan.elements:
            return results
        job = plan.pack(
            plan.address,
            *[x.storage.address + x.offset * x.dtype.itemsize for x in results],
            *[x.storage.address + x.offset * x.dtype.itemsize for x in tensors],
            *numbers,
        )
        tasks.run(plan.loop, job, plan.tasks, self.threads)
        if out is None:
            launches.learn(program.launches, self, lambda: plan.call(results), *tensors, *numbers)
        elif in_place:
            launches.learn(program.launches_in_place, self, lambda: plan.call(()), *tensors, *numbers)
        return results

    def row_pass(self, wanted: RowPass) -> RowCall:
        return _RowCall(self, wanted, super().row_pass(wanted))

    def _apart(self, x: Tensor, out: Tensor) -> Tensor:
        """A tensor that a loop may read while it writes another: a copy where they share memory in another order."""
        if x.storage is not out.storage or (
            x.offset == out.offset and x.shape == out.shape and x.strides == out.strides and x.dtype == out.dtype
        ):
            return x
        if not np.may_share_memory(self.operand(x), self.operand(out)):
            return x
        copied = self.empty_like(x)
        self.copy(x, copied)
        return copied


class _RowCall:
    """Computes a row pass: what each operand's address is made of is known before the calls."""

    def __init__(self, engine: HostEngine, wanted: RowPass, composed: RowCall) -> None:
        """``composed``: computes calls whose results the loop cannot write where they go."""
        self._engine, self._wanted, self._composed = engine, wanted, composed
        self._plans: dict[tuple[int, Shape], Plan] = {}
        self._fixed = [
            (0, 0) if isinstance(x, int) else (x.address, x.strides[0] * x.dtype.itemsize * wanted.moves(x))
            for x in (*wanted.outs, *wanted.tensors)
        ]
        places = enumerate(wanted.tensors, len(wanted.outs))
        self._given = [(place, part) for place, part in places if isinstance(part, int)]

    def __call__(self, start: int, count: int, given: Tensor) -> None:
        plan = self._plans.get((count, given.strides))
        if plan is None:
            plan = self._plans[count, given.strides] = self._planned(count, given)
        if not plan.fits:
            self._composed(start, count, given)
            return
        places = [address + start * row for address, row in self._fixed]
        first, width = given.address, given.shape[1] // self._wanted.parts
        step = width * given.strides[1] * given.dtype.itemsize
        for place, number in self._given:
            places[place] = first + number * step
        tasks.run(plan.loop, plan.pack(plan.address, *places), plan.tasks, self._engine.threads)

    def _planned(self, count: int, given: Tensor) -> Plan:
        wanted = self._wanted
        part = (count, given.shape[1] // wanted.parts), given.strides, given.dtype
        layouts = [part if isinstance(x, int) else wanted.layout(x, count) for x in wanted.tensors]
        outs = tuple([wanted.layout(x, count) for x in wanted.outs])
        return _plan(wanted.program, wanted.function, outs, *layouts)


class Plan:
    """What a call with these shapes, strides and dtypes needs beside addresses and numbers.

    Attributes:
        shape, strides: of the results.
        results: bytes and dtype of each.
        elements: how many a result has.
        is_stored: whether a tensor or a result is of a dtype that there are no loops of.
        fits: whether the loop can write into the tensors that were given for its results.
        tasks: into how many parts the loop is divided.
        loop: the compiled loop.
        pack: makes the record of a job: see ``alpha.cpu.loops.loop``.
        limits: the least and the largest of the numbers where these are integers, else None.
        address: of the plan's own record.
    """

    def __init__(
        self, program: Program, function: str, outs: Sequence[TensorLayout] | None, layouts: Sequence[TensorLayout]
    ) -> None:
        """``function``: who asks, for messages. ``outs``: of the tensors that the results are written into."""
        self._program = program
        self.shape = broadcast_shapes(function, [shape for shape, _, _ in layouts])
        dtype = program.dtype([(shape, kind) for shape, _, kind in layouts])
        kinds = [bool_ if is_bool else dtype for is_bool in program.bools]
        if isinstance(program, Conversion):
            self.is_stored = not converts(layouts[0][2], kinds[0])
        else:
            self.is_stored = not all(map(has_loops, (dtype, *kinds, *[kind for _, _, kind in layouts])))
        self.elements = math.prod(self.shape)
        self.strides = result_strides(self.shape, layouts) if outs is None else outs[0][1]
        self.results = tuple([(self.elements * kind.itemsize, kind) for kind in kinds])
        self.tasks = 0
        self.fits = not self.is_stored and (
            outs is None
            or all(
                out[0] == self.shape and out[2] == kind and _is_dense_within(*out[:2])
                for out, kind in zip(outs, kinds, strict=True)
            )
        )
        if not self.fits:
            return
        if not self.elements:
            return
        results = [self.strides] * len(kinds) if outs is None else [out[1] for out in outs]
        operands = [tuple([n * kind.itemsize for n in strides]) for strides, kind in zip(results, kinds, strict=True)]
        operands += [strides_to(self.shape, one) for one in layouts]
        sizes = tuple([kind.itemsize for kind in (*kinds, *[kind for _, _, kind in layouts])])
        axes = merged(self.shape, operands, self.strides) or [(1, sizes)]
        self.fits = all(axes[-1][1][k] == kind.itemsize for k, kind in enumerate(kinds))
        if not self.fits:
            return
        places = enumerate([dtype for _, _, dtype in layouts], len(kinds))
        tensors = [(element_of(dtype), spacing_in_rows(axes, place, dtype)) for place, dtype in places]
        is_logical = all(one.operation.startswith("logical_") for one in program.instructions)
        computed = BOOLS if is_logical and all(program.conditions) else element_of(computed_in(dtype))
        half = element_of(dtype) if element_of(dtype).is_half else None
        written, read = sum(nbytes for nbytes, _ in self.results), sum(_bytes_read(*one) for one in layouts)
        row_bytes = axes[-1][0] * dtype.itemsize
        aligns = row_bytes % ISA.bytes != 0 and len(axes) > 1
        can_stream = not aligns or (row_bytes >= ALIGNED_BYTES and not program.bools[0] and not _draws(layouts))
        streams = outs is None and can_stream and streaming.streams(written, read)
        layout = loops.Layout(computed, tuple(tensors), len(axes) == 1, streams, streams and aligns, half)
        self.loop = compiled_loop(Wanted(program.text, layout, program))
        self._record = np.array(self._plan(axes), np.int64)
        self.address = self._record.ctypes.data
        number = "q" if computed.is_integer else "d"
        self.pack = struct.Struct(f"{1 + len(operands)}q{program.count_of_numbers}{number}").pack
        self.limits = numbers_of(program, dtype) if computed.is_integer else None

    def call(self, results: Sequence[Tensor]) -> launches.Call:
        """How a launch calls it, which gave these results, or none where the first tensor was written into."""
        written = [launches.of_result(k) for k in range(len(results))] or [launches.of_tensor(0)]
        tensors = [launches.of_tensor(k) for k in range(self._program.tensors)]
        numbers = [launches.of_number(k) for k in range(self._program.count_of_numbers)]
        job = (launches.constant(self.address), *written, *tensors, *numbers)
        made = launches.call_of(self.loop, job, results, self.elements, self.tasks, self)
        return made._replace(limits=self.limits)

    def _plan(self, axes: list[tuple[int, tuple[int, ...]]]) -> list[int]:
        """The plan's record."""
        elements, steps = axes[-1]
        rows = self.elements // elements
        task_rows = equal_parts(rows, TASK // elements)
        task_elements = equal_parts(elements, TASK, UNIT) if elements >= 2 * TASK else elements
        self.tasks = -(-rows // task_rows) * -(-elements // task_elements) if self.elements >= FOUND else 1
        record = [self.tasks, rows, elements, task_rows, task_elements, len(axes) - 1, *steps]
        for length, strides in reversed(axes[:-1]):
            record += [length, *strides]
        return record


@caches.kept
def _plan(program: Program, function: str, outs: tuple[TensorLayout, ...] | None, *layouts: TensorLayout) -> Plan:
    return Plan(program, function, outs, layouts)


def numbers_of(program: Program, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the largest number that a program of integers of a dtype takes.

    Numbers that are compared with must be the dtype's own; others wrap around.
    """
    least, most = limits(dtype if all(program.bools) else default_int)
    return int(least), int(most)


def _bytes_read(shape: Shape, strides: Shape, dtype: Any) -> int:
    """Bytes of memory that a tensor's elements lie in, where axes of stride 0 repeat the same."""
    return math.prod([size for size, stride in zip(shape, strides, strict=True) if stride]) * int(dtype.itemsize)


def _draws(layouts: Sequence[TensorLayout]) -> bool:
    """Whether elements of a tensor are drawn, by counters that begin with whole vectors."""
    return any(dtype == DRAWN_DTYPE for _, _, dtype in layouts)


def _is_dense_within(shape: Shape, strides: Shape) -> bool:
    """Whether elements lie one after the other along the innermost axis."""
    steps = [abs(stride) for n, stride in zip(shape, strides, strict=True) if n > 1]
    return not steps or 1 in [s for n, s in zip(shape, strides, strict=True) if n > 1 and abs(s) == min(steps)]


def result_strides(shape: Shape, layouts: Sequence[TensorLayout]) -> Shape:
    """Strides of dense results in the memory order of the largest tensor."""
    largest_shape, strides, _ = max(layouts, key=lambda layout: math.prod(layout[0]))
    return dense_strides(shape, memory_order(largest_shape, strides) if len(largest_shape) == len(shape) else None)


@dataclass(frozen=True)
class Wanted:
    """A loop that is wanted: for programs of one text and tensors that lie alike it is the same."""

    text: str
    layout: loops.Layout
    program: Program = field(compare=False)


@caches.kept
def compiled_loop(wanted: Wanted) -> machine.Loop:
    """The loop of a program, for tensors that lie so."""
    return machine.loop(loops.ir_of(wanted.program, wanted.layout, FUSED))


def spacing_of(step: int, dtype: np.dtype[Any]) -> str:
    """How the elements of a row lie, by the bytes from one to the next."""
    return loops.SAME if step == 0 else loops.DENSE if step == dtype.itemsize else loops.STRIDED


def spacing_in_rows(axes: Sequence[tuple[int, tuple[int, ...]]], place: int, dtype: np.dtype[Any]) -> str:
    """How the elements of rows lie in the operand of a place; drawn ones are DENSE where rows begin at a counter."""
    whole = dtype != DRAWN_DTYPE or all(steps[place] % WORDS == 0 for _, steps in axes[:-1])
    return spacing_of(axes[-1][1][place], dtype) if whole else loops.STRIDED


def strides_to(shape: Shape, layout: TensorLayout) -> tuple[int, ...]:
    """A tensor's strides in bytes along the axes that it is broadcast to."""
    tensor_shape, strides, dtype = layout
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
