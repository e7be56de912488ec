"""Matrix times vector, the transposed matrix times vector, and the update of rank one: each reads a matrix once.

Memory limits their speed, so an iteration works on several rows: a vector that the rows share is loaded once for all of
them, and their streams keep more memory requests in flight than one would.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.vectors import Images, integer, read_number, write_number

DOT_ROWS, SUM_ROWS, UPDATE_ROWS = 4, 8, 2
"""Rows per iteration of each operation."""


class _Rows:
    """Emits what the kernels do with some rows of a matrix, which lie ``step`` bytes apart."""

    def __init__(self, builder: ir.IRBuilder, tag: Any, rows: int) -> None:
        self.builder, self.rows, self.vectors = builder, rows, Runs(builder, tag)

    def starts(self, address: Any, step: Any) -> list[Any]:
        """The addresses at which rows begin."""
        starts = [address]
        for _ in range(1, self.rows):
            starts.append(self.builder.add(starts[-1], step))
        return [self.vectors.opaque(start) for start in starts]

    def scalars(self, address: Any) -> list[Any]:
        """Loads one number per row, from successive memory, each into every lane of a vector."""
        return [
            self.vectors.broadcast(self.builder.add(address, integer(r * self.vectors.item))) for r in range(self.rows)
        ]

    def load(self, start: Any, offset: Any, left: Any) -> Any:
        """Loads a row's vector, or its first ``left`` columns."""
        return self.vectors.load_part(self.builder.add(start, offset), left)

    def store(self, value: Any, start: Any, offset: Any, left: Any, streamed: bool = False) -> None:
        """Stores a row's vector, or its first ``left`` columns; a whole one past the caches if ``streamed``."""
        at = self.builder.add(start, offset)
        if streamed and left is None:
            self.vectors.stream(value, at)
        else:
            self.vectors.store_part(value, at, left)


def _dots(rows: int) -> Any:
    """``dots(tag, a, step, x, columns, y)``: ``rows`` numbers of y, each the dot product of a row of ``a`` and x."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def dots(_typing: Any, tag: Any, a: Any, step: Any, x: Any, columns: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, a, step, x, columns, y = arguments
            emit = _Rows(builder, tag, rows)
            vectors, starts = emit.vectors, emit.starts(a, step)
            sums = [[cgutils.alloca_once_value(builder, vectors.zero) for _ in range(2)] for _ in range(rows)]

            def multiply(offset: Any, index: int, left: Any) -> None:
                shared = emit.load(x, offset, left)
                for start, row in zip(starts, sums, strict=True):
                    value = vectors.fma(emit.load(start, offset, left), shared, builder.load(row[index]))
                    builder.store(value, row[index])

            emit.vectors.for_each_vector(columns, 2, multiply)
            for r, row in enumerate(sums):
                total = vectors.total(builder.fadd(*map(builder.load, row)))
                at = vectors.pointer(builder.add(y, integer(r * vectors.item)), vectors.scalar)
                builder.store(total, at).align = vectors.item
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return dots


def _sums(rows: int, of_halves: bool = False) -> Any:
    """``sums(tag, a, step, x, columns, y)``: adds ``rows`` rows of ``a`` to y, each times its number of x.

    ``of_halves``: rows of bfloat16; x and y are float32.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def sums(_typing: Any, tag: Any, a: Any, step: Any, x: Any, columns: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, a, step, x, columns, y = arguments
            emit = _Rows(builder, tag, rows)
            starts, factors = emit.starts(a, step), emit.scalars(x)
            halves = Images(emit.vectors, types.uint16)

            def add(offset: Any, index: int, left: Any) -> None:
                total, half = emit.load(y, offset, left), builder.ashr(offset, integer(1))
                for start, factor in zip(starts, factors, strict=True):
                    row = halves.load(builder.add(start, half), left) if of_halves else emit.load(start, offset, left)
                    total = emit.vectors.fma(row, factor, total)
                emit.store(total, y, offset, left)

            emit.vectors.for_each_vector(columns, 2, add)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return sums


def _updates(rows: int, streamed: bool = False) -> Any:
    """``updates(tag, a, step, x, columns, y, out, out_step)``: ``rows`` rows of out = a + tag * x * y.

    If ``streamed``, rows of out must begin at multiples of a vector's size.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def updates(
        _typing: Any, tag: Any, a: Any, step: Any, x: Any, columns: Any, y: Any, out: Any, out_step: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            scale, a, step, x, columns, y, out, out_step = arguments
            emit = _Rows(builder, tag, rows)
            vectors = emit.vectors
            scale = vectors.spread(scale)
            factors = [builder.fmul(scale, factor) for factor in emit.scalars(x)]
            starts, targets = emit.starts(a, step), emit.starts(out, out_step)

            def update(offset: Any, index: int, left: Any) -> None:
                shared = emit.load(y, offset, left)
                for start, target, factor in zip(starts, targets, factors, strict=True):
                    value = vectors.fma(shared, factor, emit.load(start, offset, left))
                    emit.store(value, target, offset, left, streamed)

            emit.vectors.for_each_vector(columns, 2, update)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 7), codegen

    return updates


_dots_4, _dots_1 = _dots(DOT_ROWS), _dots(1)
_sums_8, _sums_1 = _sums(SUM_ROWS), _sums(1)
_half_sums_8, _half_sums_1 = _sums(SUM_ROWS, of_halves=True), _sums(1, of_halves=True)
_updates_2, _updates_1 = _updates(UPDATE_ROWS), _updates(1)
_updates_past_2 = _updates(UPDATE_ROWS, streamed=True)


@compiled
def matrix_vector(share, tag, item, rows, columns, task_rows, a, step, x, plus, y):  # type: ignore[no-untyped-def]
    """y = A x, plus the vector at ``plus`` if that is not 0. A task is some rows; steps are in bytes."""
    while True:
        row = draw_task(share, -(-rows // task_rows)) * task_rows
        if row >= rows:
            break
        first, end = row, min(row + task_rows, rows)
        while row + DOT_ROWS <= end:
            _dots_4(tag, a + row * step, step, x, columns, y + row * item)
            row += DOT_ROWS
        while row < end:
            _dots_1(tag, a + row * step, step, x, columns, y + row * item)
            row += 1
        if plus != 0:
            for i in range(first, end):
                value = read_number(tag, y + i * item) + read_number(tag, plus + i * item)
                write_number(tag, y + i * item, value)
    return 0


@compiled
def words_vector(share, tag, rows, words, task_rows, a, step, x, y):  # type: ignore[no-untyped-def]
    """y = A x in float32, of rows and a vector of words of two bfloat16. A task is some rows; steps are in bytes."""
    while True:
        row = draw_task(share, -(-rows // task_rows)) * task_rows
        if row >= rows:
            break
        end = min(row + task_rows, rows)
        while row + DOT_ROWS <= end:
            _dots_4(tag, a + row * step, step, x, words, y + 4 * row)
            row += DOT_ROWS
        while row < end:
            _dots_1(tag, a + row * step, step, x, words, y + 4 * row)
            row += 1
    return 0


@compiled
def vector_matrix(share, tag, item, rows, columns, task_columns, a, step, x, plus, y):  # type: ignore[no-untyped-def]
    """y = x A, plus the vector at ``plus`` if that is not 0. A task is some columns, whose sums stay in the L1
    cache."""
    while True:
        column = draw_task(share, -(-columns // task_columns)) * task_columns
        if column >= columns:
            break
        width = min(task_columns, columns - column)
        at = column * item
        for j in range(width):
            write_number(tag, y + at + j * item, read_number(tag, plus + at + j * item) if plus != 0 else tag * 0)
        row = 0
        while row + SUM_ROWS <= rows:
            _sums_8(tag, a + at + row * step, step, x + row * item, width, y + at)
            row += SUM_ROWS
        while row < rows:
            _sums_1(tag, a + at + row * step, step, x + row * item, width, y + at)
            row += 1
    return 0


@compiled
def vector_halves(share, tag, rows, columns, task_columns, a, step, x, y):  # type: ignore[no-untyped-def]
    """y = x A of a matrix of bfloat16, in float32, as x is. A task is some columns."""
    while True:
        column = draw_task(share, -(-columns // task_columns)) * task_columns
        if column >= columns:
            break
        width, first, to = min(task_columns, columns - column), a + 2 * column, y + 4 * column
        for j in range(width):
            write_number(tag, to + 4 * j, tag * 0)
        row = 0
        while row + SUM_ROWS <= rows:
            _half_sums_8(tag, first + row * step, step, x + 4 * row, width, to)
            row += SUM_ROWS
        while row < rows:
            _half_sums_1(tag, first + row * step, step, x + 4 * row, width, to)
            row += 1
    return 0


@compiled
def rank_one(share, tag, item, rows, columns, task_rows, a, step, x, y, out, out_step, streamed):  # type: ignore[no-untyped-def]
    """out = A + tag * x y'. A task is some rows.

    If ``streamed`` is not 0, out is written past the caches; its rows must begin at multiples of a vector's size.
    """
    while True:
        row = draw_task(share, -(-rows // task_rows)) * task_rows
        if row >= rows:
            break
        end = min(row + task_rows, rows)
        while row + UPDATE_ROWS <= end:
            at, to = a + row * step, out + row * out_step
            if streamed != 0:
                _updates_past_2(tag, at, step, x + row * item, columns, y, to, out_step)
            else:
                _updates_2(tag, at, step, x + row * item, columns, y, to, out_step)
            row += UPDATE_ROWS
        while row < end:
            _updates_1(tag, a + row * step, step, x + row * item, columns, y, out + row * out_step, out_step)
            row += 1
    return 0
