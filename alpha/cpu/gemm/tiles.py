"""tiles: products on the convolutions' micro-kernel, in blocks that threads share; serves every problem."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import launches, tapes, workers
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs
from alpha.cpu.figures import Figures
from alpha.cpu.gemm import kernel
from alpha.cpu.gemm.algorithm import ALONE_MACS, LAUNCH_CYCLES, LAUNCHED_CYCLES, Algorithm, Call, finished
from alpha.cpu.gemm.kernel import COPY_GAP_BYTES, Addresses, Cut, Kind
from alpha.cpu.gemm.problem import Product
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import BIAS, STORE
from alpha.cpu.launches import call_of, constant, of_result, of_tensor
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

DEPTH_BLOCK = 384
"""About how many terms are summed before they are added to the result, which most often lies beyond the L2 cache."""

BLOCK_BYTES = 640 << 10
"""Most bytes of the left matrix that a task multiplies with one panel after the other: they stay in the L2 cache."""

EPILOGUE_BYTES = 256 << 10
"""About how many bytes of the result the epilogue gets at a time: they are in the L2 cache yet."""

SUM_BYTES = 4
"""Bytes of a sum of products of bfloat16, and of a word of two of them."""

LAUNCHED_MACS = 1 << 23
"""Most multiply-adds of what launches know: with more, what Python does is no matter."""

MACS_PER_ELEMENT = 32
"""Multiply-adds that take as long as a point-wise loop's element, about."""

MOST_PARTS = 32
"""Most tasks that one product's rows, or its columns, are divided among for the sake of threads."""

SPARE = 0.25
"""What the last task's length counts in addition: threads rarely end together."""

TASK_CYCLES = 200
"""To draw a task that threads share, and begin it."""

BEGIN_CYCLES = 30
"""To begin a task of one thread's; measured on Zen 4 by 2,000 products of 4 x 4 matrices."""

COPY_CYCLES_PER_VECTOR = 3.0
"""To pack a vector that lies as it is packed, in the L2 cache."""

FAR_LEFT_CYCLES_PER_VECTOR, FAR_RIGHT_CYCLES_PER_VECTOR = 20.0, 8.0
"""The same of a left matrix that the L2 cache does not hold, and of such a right one, whose panels are prefetched while
the one before is multiplied; measured on Zen 4."""

NEAR_BYTES = 1 << 20
"""Most bytes of a matrix that the L2 cache holds, about."""

COPIED_PANELS = 4
"""Fewest panels of a task that are worth a copy of the left matrix's rows."""


@dataclass(frozen=True)
class TilesPlan:
    """How a problem is cut, for so many threads."""

    kind: Kind
    row_tasks: int
    column_tasks: int
    task_rows: int
    task_columns: int
    depth_block: int
    tasks: int
    scratch_bytes: int
    """Per thread."""
    told: bytes
    """What the kernel is told of it, a ``Cut``."""


@caches.kept
def plan(problem: Product, threads: int) -> TilesPlan:
    """The plan of any problem that is not empty."""
    threads = _threads(problem, threads)
    kind, depth_block = _kind(problem), _depth_block(problem)
    most_rows = max(kind.tile, BLOCK_BYTES // (depth_block * problem.item) // kind.tile * kind.tile)
    candidates = {
        _cut(problem, kind, row_tasks, column_tasks)
        for row_tasks in _divisions(problem.rows, most_rows, kind.tile)
        for column_tasks in _divisions(problem.columns, problem.columns, kind.panel)
    }
    rows, columns = min(sorted(candidates), key=lambda cut: _duration(problem, kind, cut, threads))
    row_tasks, column_tasks = -(-problem.rows // rows), -(-problem.columns // columns)
    panel_bytes = kind.panel_bytes(depth_block)
    copies = problem.x_rows_collide and columns >= COPIED_PANELS * kind.panel
    copy_row = -(-depth_block * problem.item // 64) * 64 + COPY_GAP_BYTES if copies else 0
    scratch = -(-(panel_bytes + kind.packed_bytes(rows, depth_block, copy_row)) // 64) * 64
    tasks = problem.batch * row_tasks * column_tasks
    told = Cut(
        scratches_taken=0,
        tasks=tasks,
        scratch_bytes=scratch,
        panel_bytes=panel_bytes,
        row_tasks=row_tasks,
        column_tasks=column_tasks,
        rows=problem.rows,
        depth=problem.depth,
        columns=problem.columns,
        task_rows=rows,
        task_columns=columns,
        depth_block=depth_block,
        x_copy_row=copy_row,
        y_is_by_columns=int(problem.y_is_by_columns),
        epilogue_panels=max(1, EPILOGUE_BYTES // (rows * kind.panel * problem.item)),
    )
    packed = struct.pack(f"{len(told)}q", *told)
    return TilesPlan(kind, row_tasks, column_tasks, rows, columns, depth_block, tasks, scratch, packed)


def _threads(problem: Product, threads: int) -> int:
    """How many of so many threads are worth waking."""
    return threads if problem.batch * problem.macs > ALONE_MACS else 1


def _kind(problem: Product) -> Kind:
    """Panels of one vector where the result has no more columns."""
    vectors = 1 if problem.columns <= ISA.lanes(problem.item) else ISA.vectors
    return Kind(8 * problem.item, problem.x_is_by_columns, vectors, problem.are_pairs, problem.are_halves)


def _depth_block(problem: Product) -> int:
    """Terms that are summed at a time, equal blocks; it decides the bits, so it depends on sizes alone."""
    return math.ceil(problem.depth / max(1, round(problem.depth / DEPTH_BLOCK)))


def _divisions(length: int, most: int, unit: int) -> list[int]:
    """Into how many tasks a length may be cut, none longer than ``most``."""
    least = -(-length // most)
    return list(range(least, max(least, min(MOST_PARTS + least, -(-length // unit))) + 1))


def _cut(problem: Product, kind: Kind, row_tasks: int, column_tasks: int) -> tuple[int, int]:
    """Rows and columns per task: whole tiles, whole panels."""
    rows = math.ceil(math.ceil(problem.rows / row_tasks) / kind.tile) * kind.tile
    columns = math.ceil(math.ceil(problem.columns / column_tasks) / kind.panel) * kind.panel
    return rows, columns


def _duration(problem: Product, kind: Kind, cut: tuple[int, int], threads: int) -> float:
    """About how long it takes, in cycles, on a processor that multiplies and adds a vector per cycle."""
    rows, columns = cut
    tasks = problem.batch * -(-problem.rows // rows) * -(-problem.columns // columns)
    vectors = -(-columns // kind.panel) * kind.vectors
    per_term = rows * vectors + _copy_cycles(problem, problem.columns, FAR_RIGHT_CYCLES_PER_VECTOR) * vectors
    if problem.y_is_by_columns:
        per_term += COPY_CYCLES_PER_VECTOR * vectors
    if kind.is_packed:
        per_term += _copy_cycles(problem, problem.rows, FAR_LEFT_CYCLES_PER_VECTOR) * rows / kind.tile
    else:  # the left matrix comes from memory for each task
        per_term += COPY_CYCLES_PER_VECTOR * rows / ISA.lanes(problem.item)
    turns = tasks if threads == 1 else -(-tasks // threads) + SPARE
    return turns * (TASK_CYCLES + per_term * problem.depth)


def _copy_cycles(problem: Product, length: int, far: float) -> float:
    """Cycles to pack a vector of a matrix of so many rows or columns; ``far``: where the L2 cache does not hold it."""
    return COPY_CYCLES_PER_VECTOR if length * problem.depth * problem.item <= NEAR_BYTES else far


class Tiles(Algorithm):
    """Blocks of rows and columns, on the project's own micro-kernel."""

    name = "tiles"
    title = "blocks on the micro-kernel"

    def serves(self, problem: Product) -> bool:
        return problem.macs > 0

    def cycles(self, problem: Product, figures: Figures) -> float:
        planned, kind = plan(problem, 1), _kind(problem)
        fmas = figures.outer_fmas_per_cycle if kind.is_packed else figures.fmas_per_cycle
        terms, tiles = costs.in_chunks(problem.rows, planned.task_rows, fmas, kind.vectors)
        panels, blocks = math.ceil(problem.columns / kind.panel), math.ceil(problem.depth / planned.depth_block)
        computing = panels * (terms * problem.depth + tiles * blocks * figures.tile_cycles)
        per_vector = figures.transpose_cycles_per_vector if problem.y_is_by_columns else 0
        packed = planned.row_tasks * panels * kind.vectors * problem.depth * (COPY_CYCLES_PER_VECTOR + per_vector)
        if kind.is_packed:
            packed += planned.column_tasks * problem.rows / kind.tile * problem.depth * COPY_CYCLES_PER_VECTOR
        begun = LAUNCHED_CYCLES if problem.batch * problem.macs <= LAUNCHED_MACS else LAUNCH_CYCLES
        return begun + problem.batch * (planned.row_tasks * planned.column_tasks * BEGIN_CYCLES + computing + packed)

    def tasks(self, problem: Product, threads: int) -> int:
        return plan(problem, threads).tasks

    def describe(self, problem: Product, threads: int) -> str:
        planned = plan(problem, threads)
        return (
            f"{planned.tasks} tasks of {planned.task_rows} x {planned.task_columns} results on "
            f"{min(threads, planned.tasks)} threads, {planned.depth_block} terms at a time"
        )

    def run(self, engine: HostEngine, problem: Product, call: Call) -> Tensor:
        planned, out = plan(problem, engine.threads), call.target(engine)
        threads = min(_threads(problem, engine.threads), planned.tasks)
        bias, epilogue, rounded = call.bias, call.epilogue, call.rounded
        scratch = engine.allocate(threads * planned.scratch_bytes)
        is_fused = epilogue is not None and len(out.shape) == 2
        behind = epilogue.job(out) if epilogue is not None and is_fused else None
        steps, table = _steps(call.x, call.y, out), None
        if steps is None:
            table, steps = _matrices(call.x, call.y, out), (0, 0, 0)
        added = 0 if bias is None else bias.address
        addresses = _lies(call.x, call.y, out, steps)._replace(
            scratch=scratch.address,
            mode=BIAS if added and rounded is None else STORE,
            bias=added if rounded is None else 0,
            rounded=0 if rounded is None else rounded.address,
            rounded_bias=0 if rounded is None else added,
            epilogue=0 if behind is None else behind.part,
            epilogue_job=0 if behind is None else behind.record.ctypes.data,
            matrices=0 if table is None else table.ctypes.data,
            x=call.x.address,
            y=call.y.address,
            out=out.address,
        )
        job, code = planned.told + _PACKED.pack(*addresses), kernel.compiled(planned.kind)
        tape = tapes.tape()
        if tape is None:
            workers.WORKERS.share(code.entries.shared, job, threads)
        else:
            tape.keep(behind, table)
            tape.share(code, code.entries.shared, job, threads)
        if rounded is not None:
            return rounded
        return out if epilogue is None or is_fused else finished(engine, call._replace(bias=None), out)

    def launch(self, problem: Product, call: Call, out: Tensor) -> launches.Call | None:
        steps = _steps(call.x, call.y, out)
        if steps is None or problem.batch * problem.macs > LAUNCHED_MACS:
            return None
        is_rounded = call.rounded is not None
        planned = plan(problem, _threads(problem, 2))  # for one thread, or as good for several as for two
        told = [constant(value) for value in struct.unpack(f"{len(Cut._fields)}q", planned.told)]
        lies = {name: constant(value) for name, value in _lies(call.x, call.y, out, steps)._asdict().items()}
        lies |= {"x": of_tensor(0), "y": of_tensor(1), "out": of_result(), "scratch": of_result(1)}
        if is_rounded:
            lies |= {"out": of_result(2), "rounded": of_result()}
            if call.bias is not None:
                lies["rounded_bias"] = of_tensor(2)
        elif call.bias is not None:
            lies |= {"mode": constant(BIAS), "bias": of_tensor(2)}
        tasks = 1 if _threads(problem, 2) == 1 else planned.tasks
        sums = (problem.batch * problem.rows * problem.columns * problem.item,) if is_rounded else ()
        return call_of(
            kernel.compiled(planned.kind),
            [*told, *lies.values()],
            (out,),
            problem.batch * problem.macs // MACS_PER_ELEMENT,
            tasks,
            None,
            scratch=(tasks * planned.scratch_bytes, *sums),  # a thread that takes part has one task at least
        )


_PACKED = struct.Struct(f"{len(Addresses._fields)}q")


def _lies(x: Tensor, y: Tensor, out: Tensor, steps: tuple[int, int, int]) -> Addresses:
    """How the matrices lie, without addresses, to be stored; ``steps``: from each product's to the next's.

    The sums lie as the result, in numbers of ``SUM_BYTES`` where the matrices' are shorter.
    """
    item = x.dtype.itemsize
    term, summed = (2 * item, SUM_BYTES) if item < SUM_BYTES else (item, item)  # two terms of halves to a word
    x_next, y_next, out_next = steps
    return Addresses(*[0] * len(Addresses._fields))._replace(
        x_row=x.strides[-2] * item,
        x_term=x.strides[-1] * term,
        y_term=y.strides[-2] * term,
        y_column=y.strides[-1] * item,
        out_row=out.strides[-2] * summed,
        mode=STORE,
        x_next=x_next * item,
        y_next=y_next * item,
        out_next=out_next * summed,
    )


def _steps(*tensors: Tensor) -> tuple[int, int, int] | None:
    """Elements from one product's matrices to the next's, the last ones being the results; None where they differ."""
    batch, found = tensors[-1].shape[:-2], []
    for x in tensors:
        lengths, strides = x.shape[:-2], x.strides[:-2]
        steps = [0 if n == 1 else step for n, step in zip(lengths, strides, strict=True)]
        steps = [*[0] * (len(batch) - len(steps)), *steps]
        long = [(n, step) for n, step in zip(batch, steps, strict=True) if n > 1]
        if any(outer != n * inner for (_, outer), (n, inner) in pairwise(long)):
            return None
        found.append(long[-1][1] if long else 0)
    return found[0], found[1], found[2]


def _matrices(*tensors: Tensor) -> Array:
    """The table of addresses of the left matrix, the right one and the result, for each product of a batch."""
    batch = tensors[-1].shape[:-2]
    table = np.empty((*batch, len(tensors)), np.int64)
    for k, x in enumerate(tensors):
        missing = len(batch) + 2 - len(x.shape)
        addresses = np.full((1,) * len(batch), x.address)
        for axis, (length, step) in enumerate(zip(x.shape[:-2], x.strides[:-2], strict=True)):
            along = np.arange(length) * (step * x.dtype.itemsize)
            addresses = addresses + along.reshape((-1,) + (1,) * (len(batch) - 1 - missing - axis))
        table[..., k] = addresses
    return table
