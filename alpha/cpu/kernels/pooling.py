"""Kernels of pooling, but for means (``alpha.cpu.loops.windows``, which tells what a plan has).

The images may lie in any order as long as their channels are dense. Those of bfloat16 are float32 in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels.records import get, next_task
from alpha.cpu.kernels.vectors import I32, I64, Images, Vectors, integer
from alpha.cpu.loops.pixels import PixelPlan
from alpha.cpu.loops.windows import COUNT, SOURCE, TAP, Windows

VECTORS = 4
"""Vectors of numbers that are worked on at once."""

TAG, TAG_BYTES, LANES = np.float32(0), 4, ISA.lanes(4)
"""A 0 of the numbers' type, or a uint16 for bfloat16, its bytes, and a vector's numbers: each kernel has its own."""


WORD = PixelPlan(*range(len(PixelPlan._fields)))
WINDOW = Windows(*range(len(PixelPlan._fields), len(PixelPlan._fields) + len(Windows._fields)))
"""The places of a plan's words."""


class _Window:
    """Emits what becomes of a window's elements, for some vectors of numbers."""

    def __init__(self, builder: Any, tag: Any, count: int, arguments: Any) -> None:
        """``count``: of vectors."""
        self.builder, self.count = builder, count
        self.vectors = Vectors(builder, types.float32 if isinstance(tag, types.Integer) else tag)
        self.images = Images(self.vectors, tag)
        self.step = self.vectors.lanes * self.images.item
        self.chosen = ir.VectorType(I32, self.vectors.lanes)
        (_, self.read, self.rows, self.row_step, self.columns, self.column_step, self.write, self.left, self.tap,
         self.row_tap, self.column_tap, self.taps, self.taps_row, self.taps_column) = arguments  # fmt: skip

    def variables(self, value: Any) -> list[Any]:
        """A variable per vector."""
        return [cgutils.alloca_once_value(self.builder, value) for _ in range(self.count)]

    def place(self, start: Any, steps: tuple[Any, Any], indices: tuple[Any, Any]) -> Any:
        """Where a pair's numbers are."""
        builder = self.builder
        for step, index in zip(steps, indices, strict=True):
            start = builder.add(start, builder.mul(step, index))
        return start

    def over_pairs(self, visit: Callable[[Any, Any, Any], None]) -> None:
        """Loops over the pairs: ``visit(row, column, address of the element)``."""
        with cgutils.for_range(self.builder, self.rows, intp=I64) as row:
            line = self.builder.add(self.read, self.builder.mul(self.row_step, row.index))
            with cgutils.for_range(self.builder, self.columns, intp=I64) as column:
                at = self.builder.add(line, self.builder.mul(self.column_step, column.index))
                visit(row.index, column.index, at)

    def load(self, address: Any, v: int) -> Any:
        """The element's numbers of a vector."""
        return self.images.load(self.builder.add(address, integer(v * self.step)))

    def store(self, values: list[Any]) -> None:
        """Writes the results, of the last vector as many as are left."""
        for v, slot in enumerate(values):
            at = self.builder.add(self.write, integer(v * self.step))
            value = self.builder.load(slot)
            if self.count > 1:
                self.images.store(value, at)
            else:
                self.images.store_first(value, at, self.left)

    def spread_tap(self, row: Any, column: Any) -> Any:
        """A vector of the tap of a pair."""
        tap = self.builder.trunc(self.place(self.tap, (self.row_tap, self.column_tap), (row, column)), I32)
        undefined = ir.Constant(self.chosen, ir.Undefined)
        first = self.builder.insert_element(undefined, tap, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, self.lanes([0] * self.vectors.lanes))

    def lanes(self, values: list[int]) -> ir.Constant:
        """A constant vector of int32."""
        return ir.Constant(self.chosen, [ir.Constant(I32, value) for value in values])

    # -- what becomes of them --------------------------------------------------------------------------------------

    def shares(self) -> None:
        """Adds up the windows' numbers, each divided by the window's size: the product of its height and width.

        Their addresses are in the places of the taps.
        """
        totals, builder, vectors = self.variables(self.vectors.zero), self.builder, self.vectors

        def visit(row: Any, column: Any, at: Any) -> None:
            height = vectors.load_address(builder.add(self.taps, builder.mul(self.row_tap, row)), 0)
            width = vectors.load_address(builder.add(self.tap, builder.mul(self.column_tap, column)), 0)
            size = builder.sitofp(builder.mul(height, width), ir.DoubleType())
            share = builder.fdiv(ir.Constant(ir.DoubleType(), 1.0), size)
            if vectors.item == 4:
                share = builder.fptrunc(share, vectors.scalar)
            weight = vectors.spread(share)
            for v, total in enumerate(totals):
                builder.store(vectors.fma(weight, self.load(at, v), builder.load(total)), total)

        self.over_pairs(visit)
        self.store(totals)

    def maxima(self) -> None:
        """The largest elements; a NaN is larger than any number."""
        builder, best = self.builder, self.variables(self.vectors.constant(float("-inf")))

        def visit(_row: Any, _column: Any, at: Any) -> None:
            for v, slot in enumerate(best):
                value, old = self.load(at, v), builder.load(slot)
                # An unordered comparison takes a NaN; once the maximum is NaN, it stays.
                enters = builder.and_(builder.fcmp_unordered(">", value, old), builder.fcmp_ordered("ord", old, old))
                builder.store(builder.select(enters, value, old), slot)

        self.over_pairs(visit)
        self.store(best)

    def choices(self) -> None:
        """The largest elements and their taps: the first of equal ones, but the last NaN; -1 where there is none."""
        builder, best = self.builder, self.variables(self.vectors.constant(float("-inf")))
        empty = builder.or_(*[builder.icmp_signed("==", n, integer(0)) for n in (self.rows, self.columns)])
        nothing = self.lanes([-1] * self.vectors.lanes)
        taps = self.variables(builder.select(empty, nothing, self.spread_tap(integer(0), integer(0))))

        def visit(row: Any, column: Any, at: Any) -> None:
            tap = self.spread_tap(row, column)
            for v, (slot, held) in enumerate(zip(best, taps, strict=True)):
                value, old = self.load(at, v), builder.load(slot)
                larger, is_nan = builder.fcmp_ordered(">", value, old), builder.fcmp_unordered("uno", value, value)
                better = builder.or_(larger, is_nan)
                builder.store(builder.select(better, value, old), slot)
                builder.store(builder.select(better, tap, builder.load(held)), held)

        self.over_pairs(visit)
        self.store(best)
        for v, held in enumerate(taps):
            at = builder.add(self.taps, integer(v * 4 * self.vectors.lanes))
            self._store_taps(builder.load(held), at)

    def _store_taps(self, value: Any, at: Any) -> None:
        if self.count > 1:
            self.builder.store(value, self.vectors.pointer(at, self.chosen)).align = 4
            return
        for lane in range(self.vectors.lanes):
            with self.builder.if_then(self.builder.icmp_signed(">", self.left, integer(lane))):
                number = self.builder.extract_element(value, ir.Constant(I32, lane))
                place = self.builder.add(at, integer(4 * lane))
                self.builder.store(number, self.vectors.pointer(place, I32)).align = 4

    def gradients(self) -> None:
        """Adds up the gradients of the windows that chose this element's tap."""
        builder, totals = self.builder, self.variables(self.vectors.zero)

        def visit(row: Any, column: Any, at: Any) -> None:
            tap = self.spread_tap(row, column)
            taps = self.place(self.taps, (self.taps_row, self.taps_column), (row, column))
            for v, total in enumerate(totals):
                place = builder.add(taps, integer(v * 4 * self.vectors.lanes))
                chosen = builder.load(self.vectors.pointer(place, self.chosen))
                chosen.align = 4
                mine = builder.select(builder.icmp_signed("==", chosen, tap), self.load(at, v), self.vectors.zero)
                builder.store(builder.fadd(builder.load(total), mine), total)

        self.over_pairs(visit)
        self.store(totals)


def _emitter(name: str, count: int) -> Any:
    """A function of kernels that does with a window what a method of ``_Window`` says, for ``count`` vectors."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def emit(
        _typing: Any, tag: Any, read: Any, rows: Any, row_step: Any, columns: Any, column_step: Any, write: Any,
        left: Any, tap: Any, row_tap: Any, column_tap: Any, taps: Any, taps_row: Any, taps_column: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            getattr(_Window(builder, tag, count, arguments), name)()
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 13), codegen

    return emit


WIDE, ONE = _emitter("maxima", VECTORS), _emitter("maxima", 1)
"""What a kernel does with VECTORS vectors, and with one: each has its own."""
IS_CHOICE, OF_SIZES = False, False
"""Whether the kernel writes taps; whether it divides by the windows' sizes."""


def _pool(share, job):  # type: ignore[no-untyped-def]
    """Computes the result of a plan. The job's words: the plan, what is read, what is written, the taps."""
    plan, x, out, chosen = get(job, 0), get(job, 1), get(job, 2), get(job, 3)
    item, lanes = TAG_BYTES, LANES
    height, width, length = get(plan, WORD.height), get(plan, WORD.width), get(plan, WORD.length)
    rows, columns, piece = get(plan, WINDOW.rows), get(plan, WINDOW.columns), get(plan, WORD.piece)
    row_pair, column_pair = get(plan, WINDOW.row_pair), get(plan, WINDOW.column_pair)
    from_row, from_column = get(plan, WORD.from_row), get(plan, WORD.from_column)
    taps_row, taps_column = get(plan, WINDOW.taps_row), get(plan, WINDOW.taps_column)
    row_tap, column_tap = get(plan, WINDOW.row_tap), get(plan, WINDOW.column_tap)
    window_columns = get(plan, WINDOW.window_columns)
    tasks = get(plan, WORD.tasks)
    task = next_task(share, -1, tasks)
    while task < tasks:
        part = task // get(plan, WORD.blocks)
        block = task - part * get(plan, WORD.blocks)
        run = part // get(plan, WORD.pieces)
        low = (part - run * get(plan, WORD.pieces)) * piece
        count = min(piece, length - low)
        first = block * get(plan, WORD.positions)
        for position in range(first, min(first + get(plan, WORD.positions), height * width)):
            row = position // width
            column = position - row * width
            high, wide = get(rows, COUNT * height + row), get(columns, COUNT * width + column)
            source_row, source_column = get(rows, SOURCE * height + row), get(columns, SOURCE * width + column)
            read = x + run * get(plan, WORD.from_run) + source_row * from_row + source_column * from_column + low * item
            write = out + run * get(plan, WORD.to_run) + low * item
            write += row * get(plan, WORD.to_row) + column * get(plan, WORD.to_column)
            taps = chosen + run * get(plan, WINDOW.taps_run) + low * 4
            if OF_SIZES:
                taps = get(plan, WINDOW.sizes_rows) + 8 * source_row
                tap = get(plan, WINDOW.sizes_columns) + 8 * source_column
                tap_row, tap_column = 8 * row_pair, 8 * column_pair
            else:
                if IS_CHOICE:
                    taps += row * taps_row + column * taps_column
                else:
                    taps += source_row * taps_row + source_column * taps_column
                tap = get(rows, TAP * height + row) * window_columns + get(columns, TAP * width + column)
                tap_row, tap_column = row_tap * window_columns, column_tap
            done = 0
            while done < count:
                many = count - done >= VECTORS * lanes
                if many:
                    WIDE(
                        TAG, read, high, row_pair * from_row, wide, column_pair * from_column, write, count - done,
                        tap, tap_row, tap_column, taps, row_pair * taps_row, column_pair * taps_column,
                    )  # fmt: skip
                else:
                    ONE(
                        TAG, read, high, row_pair * from_row, wide, column_pair * from_column, write, count - done,
                        tap, tap_row, tap_column, taps, row_pair * taps_row, column_pair * taps_column,
                    )  # fmt: skip
                step = VECTORS * lanes if many else lanes
                done += step
                read += step * item
                write += step * item
                if not OF_SIZES:
                    taps += step * 4
        task = next_task(share, task, tasks)


def _kernels(name: str, of_halves: bool = False, **names: bool) -> dict[int, JobKernel]:
    """The kernel for float32, for float64 and, if asked, for bfloat16, by their bytes."""
    wide, one = _emitter(name, VECTORS), _emitter(name, 1)
    tags: list[Any] = [np.float32(0), np.float64(0), *([np.uint16(0)] if of_halves else [])]
    kernels = {}
    for tag in tags:
        item, title = tag.itemsize, f"pool_{name}_{tag.itemsize}"
        constants = {"TAG": tag, "TAG_BYTES": item, "LANES": ISA.lanes(max(4, item)), "WIDE": wide, "ONE": one}
        kernels[item] = JobKernel(_pool, title, **constants, **names)
    return kernels


means_of_sizes = _kernels("shares", OF_SIZES=True)
maxima = _kernels("maxima", of_halves=True)
choices = _kernels("choices", of_halves=True, IS_CHOICE=True)
gradients = _kernels("gradients", of_halves=True)
