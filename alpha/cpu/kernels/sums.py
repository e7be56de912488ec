"""Sums, products and Euclidean norms over axes, taken in float64, with the same bits for any number of threads.

A float32 sum is that of float64 additions. A float64 sum is taken in blocks of BLOCK numbers, each of whose running
sums adds 16; the blocks' sums are added with their rounding errors carried along (Neumaier, 1974): its error is at most
``22 u sum(|x|)`` for any number of elements, where a pairwise sum's grows with their logarithm.

Where the axes to sum are innermost in memory, numbers lie in lines (``reduce_lines``), else in columns
(``reduce_columns``). Large ones are cut into parts, whose number follows from the sizes alone; the thread that ends
the last of them merges them by halves.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from alpha.cpu.atomics import add, take_task
from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.vectors import integer, write_number

SUM, PRODUCT, NORM = 0, 1, 2
"""What is done with the numbers; a norm is the root of a sum of squares."""

BLOCK = 16 * 8 * ISA.lanes(8)
"""Numbers of a float64 sum that are added without their rounding errors: 16 a lane of 8 vectors."""

ROWS = 8
"""Rows that are added to the columns' sums in one turn."""

PADDING = 16
"""Numbers behind a strip's results, which whole vectors write."""


class LineSizes(NamedTuple):
    """Lines of numbers to reduce, each in segments of neighbouring numbers; steps in bytes."""

    lines: int
    step: int
    segments: int
    """Segments per line."""
    segment_step: int
    length: int
    """Numbers of a segment."""
    bunch: int
    """Lines of a task, or segments where a line is cut."""
    cuts: int
    """Tasks of a segment, or of a bunch of them; 0 where a line is not cut."""


class ColumnSizes(NamedTuple):
    """Blocks of columns to reduce, a row's numbers side by side; steps in bytes."""

    blocks: int
    step: int
    rows: int
    row_step: int
    columns: int
    bunch: int
    """Rows of a task."""
    strip: int
    """Its columns."""


def _run_of(op: int) -> Any:
    """``run(tag, address, count)``: the float64 sum of numbers side by side, or of their squares, or their product."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def run(_typing: Any, tag: Any, address: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, address, count = arguments
            runs, merge = Runs(builder, tag), builder.fmul if op == PRODUCT else builder.fadd
            # As many as hide an addition's latency: a wide vector of float32 takes two registers.
            together = 4 if runs.item == 4 else 8
            results = runs.variables(runs.wide_constant(float(op == PRODUCT)), together)
            fill = runs.constant(float(op == PRODUCT))

            def take(offset: Any, index: int, left: Any) -> None:
                value = runs.widened(runs.load_part(builder.add(address, offset), left, fill))
                old = builder.load(results[index])
                builder.store(runs.wide_fma(value, value, old) if op == NORM else merge(old, value), results[index])

            runs.for_each_vector(count, together, take)
            return runs.across(runs.merged([builder.load(result) for result in results], merge), merge)

        return types.float64(tag, types.int64, types.int64), codegen

    return run


def _rows_of(rows: int, op: int) -> Any:
    """``rows(tag, x, step, columns, results, errors)``: takes so many rows, ``step`` bytes apart, into the results.

    A column has a float64 result, and for sums of float64 numbers another for its rounding error; all are in whole
    vectors.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def take_rows(_typing: Any, tag: Any, x: Any, step: Any, columns: Any, results: Any, errors: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, x, step, columns, results, errors = arguments
            runs, merge = Runs(builder, tag), builder.fmul if op == PRODUCT else builder.fadd
            starts = [x]
            for _ in range(1, rows):
                starts.append(builder.add(starts[-1], step))
            starts = [runs.opaque(start) for start in starts]
            widening = 8 // runs.item

            def take(offset: Any, index: int, left: Any) -> None:
                parts = [runs.widened(runs.load_part(builder.add(start, offset), left)) for start in starts]
                if op == NORM:
                    parts = [builder.fmul(part, part) for part in parts]
                part = runs.merged(parts, merge)
                to = builder.mul(offset, integer(widening))
                at = builder.add(results, to)
                old = runs.load_wide(at)
                new = merge(old, part)
                runs.store_wide(new, at)
                if op == PRODUCT or runs.item == 4:
                    return
                back = builder.fsub(new, old)
                lost = builder.fadd(builder.fsub(old, builder.fsub(new, back)), builder.fsub(part, back))
                at = builder.add(errors, to)
                runs.store_wide(builder.fadd(runs.load_wide(at), lost), at)

            runs.for_each_vector(columns, 1, take)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return take_rows


_sum_run, _product_run, _square_run = _run_of(SUM), _run_of(PRODUCT), _run_of(NORM)
_sum_rows_8, add_row = _rows_of(ROWS, SUM), _rows_of(1, SUM)
_product_rows_8, _product_rows_1 = _rows_of(ROWS, PRODUCT), _rows_of(1, PRODUCT)
_square_rows_8, _square_rows_1 = _rows_of(ROWS, NORM), _rows_of(1, NORM)


@inlined
def _line(tag, op, item, address, length):  # type: ignore[no-untyped-def]
    """The sum or product of numbers side by side, and a sum's rounding error."""
    if op == PRODUCT:
        return _product_run(tag, address, length), 0.0
    total, error = 0.0, 0.0
    step = max(length, 1) if item == 4 else BLOCK
    for first in range(0, length, step):
        at, count = address + first * item, min(step, length - first)
        part = _square_run(tag, at, count) if op == NORM else _sum_run(tag, at, count)
        total, error = added(total, error, part)
    return total, error


@inlined
def added(total, error, part):  # type: ignore[no-untyped-def]
    """A sum, its rounding error, and a part more."""
    new = total + part
    back = new - total
    return new, error + ((total - (new - back)) + (part - back))


@inlined
def corrected(total, error):  # type: ignore[no-untyped-def]
    """The sum with its rounding error, which is none where the sum is not finite."""
    return total + error if math.isfinite(error) else total


@inlined
def _finished(op, total, divisor):  # type: ignore[no-untyped-def]
    """The result that a sum or product gives."""
    return math.sqrt(total) if op == NORM else total / divisor


@inlined
def merge_parts(op, parts, first, count, width):  # type: ignore[no-untyped-def]
    """Merges ``count`` rows of ``width`` parts into the first of them: halves are merged until one is left."""
    while count > 1:
        half = (count + 1) // 2
        for i in range(first, first + (count - half) * width):
            if op == PRODUCT:
                parts[i] *= parts[i + half * width]
            else:
                parts[i] += parts[i + half * width]
        count = half


@inlined
def step_of(item, count):  # type: ignore[no-untyped-def]
    """How many of so many numbers to add in one running sum a lane: in float64, some whose parts ``added`` joins."""
    return max(count, 1) if item == 4 else 256


@inlined
def sum_of(tag, item, address, length):  # type: ignore[no-untyped-def]
    """The sum of numbers side by side."""
    total, error = _line(tag, SUM, item, address, length)
    return corrected(total, error)


@inlined
def _segments(tag, op, item, address, segments, step, length):  # type: ignore[no-untyped-def]
    """The sum or product of segments of numbers side by side."""
    total, error = _line(tag, op, item, address, length)
    for segment in range(1, segments):
        part, lost = _line(tag, op, item, address + segment * step, length)
        if op == PRODUCT:
            total *= part
        else:
            total, error = added(total, error + lost, part)
    return corrected(total, error)


@compiled
def reduce_lines(counter, tag, divisor, op, item, x, sizes, out, parts):  # type: ignore[no-untyped-def]
    """A number for each line: the sum or product of its segments, over the divisor.

    Where there are several tasks per line, ``parts`` holds a number for each after a zero, which counts those done.
    """
    lines, step, segments, segment_step, length, bunch, cuts = sizes
    pieces = 0 if cuts == 0 else (segments + bunch - 1) // bunch * cuts
    while True:
        task = take_task(counter)
        if cuts == 0:
            if task * bunch >= lines:
                break
            for line in range(task * bunch, min((task + 1) * bunch, lines)):
                total = _segments(tag, op, item, x + line * step, segments, segment_step, length)
                write_number(tag, out + line * item, _finished(op, total, divisor))
            continue
        if task >= lines * pieces:
            break
        line, piece = task // pieces, task % pieces
        first, cut = piece // cuts * bunch, piece % cuts
        start, stop = length * cut // cuts, length * (cut + 1) // cuts
        at = x + line * step + first * segment_step + start * item
        parts[1 + task] = _segments(tag, op, item, at, min(bunch, segments - first), segment_step, stop - start)
        if add(parts.ctypes.data, 1) == lines * pieces - 1:
            for line in range(lines):
                merge_parts(op, parts, 1 + line * pieces, pieces, 1)
                write_number(tag, out + line * item, _finished(op, parts[1 + line * pieces], divisor))
    return 0


@inlined
def _add_rows(tag, op, x, step, rows, columns, results, errors):  # type: ignore[no-untyped-def]
    """Adds rows to the columns' results, or multiplies them into these."""
    row = 0
    while row + ROWS <= rows:
        if op == PRODUCT:
            _product_rows_8(tag, x + row * step, step, columns, results, errors)
        elif op == NORM:
            _square_rows_8(tag, x + row * step, step, columns, results, errors)
        else:
            _sum_rows_8(tag, x + row * step, step, columns, results, errors)
        row += ROWS
    while row < rows:
        if op == PRODUCT:
            _product_rows_1(tag, x + row * step, step, columns, results, errors)
        elif op == NORM:
            _square_rows_1(tag, x + row * step, step, columns, results, errors)
        else:
            add_row(tag, x + row * step, step, columns, results, errors)
        row += 1


@compiled
def reduce_columns(counter, tag, divisor, op, item, x, sizes, out, parts):  # type: ignore[no-untyped-def]
    """A number for each column of each block: the sum or product of its rows, over the divisor.

    Where there are several bunches of rows, ``parts`` holds a row of numbers for each bunch of each block after a zero,
    which counts the tasks done.
    """
    blocks, step, rows, row_step, columns, bunch, strip = sizes
    pieces, strips = (rows + bunch - 1) // bunch, (columns + strip - 1) // strip
    results, errors = np.empty(strip + PADDING), np.zeros(strip + PADDING)
    while True:
        task = take_task(counter)
        if task >= blocks * pieces * strips:
            break
        block, first = task // (pieces * strips), task % strips * strip
        piece = task // strips % pieces
        width = min(strip, columns - first)
        results[:] = 1.0 if op == PRODUCT else 0.0
        errors[:] = 0.0
        start = x + block * step + piece * bunch * row_step + first * item
        _add_rows(
            tag, op, start, row_step, min(bunch, rows - piece * bunch), width, results.ctypes.data, errors.ctypes.data
        )
        if pieces == 1:
            for i in range(width):
                total = corrected(results[i], errors[i])
                write_number(tag, out + (block * columns + first + i) * item, _finished(op, total, divisor))
            continue
        row = 1 + (block * pieces + piece) * columns
        for i in range(width):
            parts[row + first + i] = corrected(results[i], errors[i])
        if add(parts.ctypes.data, 1) == blocks * pieces * strips - 1:
            for block in range(blocks):
                row = 1 + block * pieces * columns
                merge_parts(op, parts, row, pieces, columns)
                for i in range(columns):
                    write_number(tag, out + (block * columns + i) * item, _finished(op, parts[row + i], divisor))
    return 0
