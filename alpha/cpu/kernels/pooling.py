"""Kernels of pooling, over matrices (positions, images * channels).

``rows`` and ``columns`` are tables of an axis' pairs: how many each position has, and for the first pair its index on
the other side and its tap. Padding has no pairs, so it is never read. A task is one position and a run of its columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.vectors import I64, Vectors, integer

VECTORS = 2
"""Vectors of columns whose maxima are kept in registers."""

POSITIONS = 16
"""Positions per task of ``maxima``."""

ISA_BYTES = ISA.bytes

COLUMNS = 4096
"""Columns per task: what it reads and writes stays in the L1 cache."""

COUNT, SOURCE, TAP = range(3)
"""Rows of an axis' table."""


class PoolSizes(NamedTuple):
    """Sizes of a problem, and steps from one pair of an axis to the next."""

    width: int
    """Columns of the side that is read."""
    window_columns: int
    """Columns of a window."""
    max_pairs: int
    """Most pairs that a position has."""
    row_step: int
    row_tap_step: int
    column_step: int
    column_tap_step: int


@compiled
def max_forward(counter, x, rows, columns, sizes, out, chosen):  # type: ignore[no-untyped-def]
    """Writes maxima and their taps: the first of equal ones, but the last NaN; -inf and tap -1 for an empty window."""
    numbers = x.shape[1]
    pieces = (numbers + COLUMNS - 1) // COLUMNS
    lowest = x.dtype.type(-np.inf)
    wide = columns.shape[1]
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        row = position // wide
        column = position - row * wide
        best = out[position, low : low + COLUMNS]
        winner = chosen[position, low : low + COLUMNS]
        if rows[COUNT, row] == 0 or columns[COUNT, column] == 0:
            best[:] = lowest
            winner[:] = -1
            continue
        first = rows[SOURCE, row] * sizes.width + columns[SOURCE, column]
        best[:] = x[first, low : low + COLUMNS]
        winner[:] = rows[TAP, row] * sizes.window_columns + columns[TAP, column]
        for i in range(rows[COUNT, row]):
            line = (rows[SOURCE, row] + i * sizes.row_step) * sizes.width + columns[SOURCE, column]
            taps = (rows[TAP, row] + i * sizes.row_tap_step) * sizes.window_columns + columns[TAP, column]
            for j in range(1 if i == 0 else 0, columns[COUNT, column]):
                tap = np.int32(taps + j * sizes.column_tap_step)
                values = x[line + j * sizes.column_step, low : low + COLUMNS]
                for k in range(len(best)):
                    value = values[k]
                    # A NaN is taken, and then only another NaN replaces it.
                    better = value > best[k] or value != value  # noqa: PLR0124
                    best[k] = value if better else best[k]
                    winner[k] = tap if better else winner[k]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _maxima(_typing: Any, tag: Any, x: Any, row: Any, sources: Any, count: Any, out: Any, columns: Any) -> Any:
    """Writes VECTORS vectors of maxima over ``count`` rows of x, whose indices are at ``sources``; ``row``: bytes."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, x, row, sources, count, out, columns = arguments
        best = [cgutils.alloca_once_value(builder, vectors.constant(float("-inf"))) for _ in range(VECTORS)]
        with cgutils.for_range(builder, count, intp=I64) as loop:
            number = vectors.load_address(builder.add(sources, builder.mul(loop.index, integer(8))), 0)
            start = builder.add(x, builder.mul(number, row))
            for v, slot in enumerate(best):
                value, old = vectors.load(builder.add(start, integer(v * ISA.bytes))), builder.load(slot)
                # An unordered comparison takes a NaN; once the maximum is NaN, it stays.
                enters = builder.and_(builder.fcmp_unordered(">", value, old), builder.fcmp_ordered("ord", old, old))
                builder.store(builder.select(enters, value, old), slot)
        for v, slot in enumerate(best):
            left = builder.sub(columns, integer(v * vectors.lanes))
            vectors.store_first(builder.load(slot), builder.add(out, integer(v * ISA.bytes)), left)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 6), codegen


@compiled
def maxima(counter, tag, numbers, item, rows, columns, sizes, x, out):  # type: ignore[no-untyped-def]
    """Writes maxima without their taps, of matrices given by address: rows of ``numbers`` numbers of ``item`` bytes.

    Reads up to VECTORS vectors beyond a row's end.
    """
    lanes = VECTORS * ISA_BYTES // item
    wide = columns.shape[1]
    positions = rows.shape[1] * wide
    sources = np.empty(sizes.max_pairs, np.int64)
    while True:
        task = take_task(counter)
        if task * POSITIONS >= positions:
            break
        for position in range(task * POSITIONS, min((task + 1) * POSITIONS, positions)):
            row = position // wide
            column = position - row * wide
            held = 0
            for i in range(rows[COUNT, row]):
                line = (rows[SOURCE, row] + i * sizes.row_step) * sizes.width + columns[SOURCE, column]
                for j in range(columns[COUNT, column]):
                    sources[held] = line + j * sizes.column_step
                    held += 1
            for number in range(0, numbers, lanes):
                _maxima(
                    tag,
                    x + number * item,
                    numbers * item,
                    sources.ctypes.data,
                    held,
                    out + (position * numbers + number) * item,
                    numbers - number,
                )
    return 0


@compiled
def max_backward(counter, dy, chosen, rows, columns, sizes, out):  # type: ignore[no-untyped-def]
    """Sums, for each input position, the gradients of the windows that chose it."""
    numbers = dy.shape[1]
    pieces = (numbers + COLUMNS - 1) // COLUMNS
    zero = dy.dtype.type(0)
    wide = columns.shape[1]
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        row = position // wide
        column = position - row * wide
        total = out[position, low : low + COLUMNS]
        total[:] = zero
        for i in range(rows[COUNT, row]):
            line = (rows[SOURCE, row] + i * sizes.row_step) * sizes.width + columns[SOURCE, column]
            taps = (rows[TAP, row] + i * sizes.row_tap_step) * sizes.window_columns + columns[TAP, column]
            for j in range(columns[COUNT, column]):
                tap = taps + j * sizes.column_tap_step
                source = line + j * sizes.column_step
                grads = dy[source, low : low + COLUMNS]
                winner = chosen[source, low : low + COLUMNS]
                for k in range(len(total)):
                    total[k] += grads[k] if winner[k] == tap else zero


@compiled
def means(counter, x, rows, columns, sizes, full, out):  # type: ignore[no-untyped-def]
    """Writes each window's sum divided by ``full``, or, if that is 0, by the number of elements in the window."""
    numbers = x.shape[1]
    pieces = (numbers + COLUMNS - 1) // COLUMNS
    wide = columns.shape[1]
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        row = position // wide
        column = position - row * wide
        total = out[position, low : low + COLUMNS]
        total[:] = x.dtype.type(0)
        held = full if full > 0 else max(1, rows[COUNT, row] * columns[COUNT, column])
        weight = x.dtype.type(1.0 / held)
        for i in range(rows[COUNT, row]):
            line = (rows[SOURCE, row] + i * sizes.row_step) * sizes.width + columns[SOURCE, column]
            for j in range(columns[COUNT, column]):
                values = x[line + j * sizes.column_step, low : low + COLUMNS]
                for k in range(len(total)):
                    total[k] += weight * values[k]


@compiled
def means_backward(  # type: ignore[no-untyped-def]
    counter, dy, rows, columns, sizes, full, inside_rows, inside_columns, out
):
    """Sums, for each input position, its share of the windows that hold it; ``inside``: windows' sizes, by axis."""
    numbers = dy.shape[1]
    pieces = (numbers + COLUMNS - 1) // COLUMNS
    wide = columns.shape[1]
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        row = position // wide
        column = position - row * wide
        total = out[position, low : low + COLUMNS]
        total[:] = dy.dtype.type(0)
        for i in range(rows[COUNT, row]):
            line = rows[SOURCE, row] + i * sizes.row_step
            for j in range(columns[COUNT, column]):
                place = columns[SOURCE, column] + j * sizes.column_step
                held = full if full > 0 else inside_rows[line] * inside_columns[place]
                weight = dy.dtype.type(1.0 / held)
                values = dy[line * sizes.width + place, low : low + COLUMNS]
                for k in range(len(total)):
                    total[k] += weight * values[k]


@compiled
def combine(counter, x, starts, sources, weights, out, block):  # type: ignore[no-untyped-def]
    """out[i, p] = sum of weights * x[i, sources] over the pairs of p; x is (count, length, values).

    A task is a block of positions of one i, and a run of values.
    """
    count, positions, values = out.shape
    blocks = (positions + block - 1) // block
    pieces = (values + COLUMNS - 1) // COLUMNS
    while True:
        task = take_task(counter)
        if task >= count * blocks * pieces:
            break
        i, rest = task // (blocks * pieces), task % (blocks * pieces)
        low = rest % pieces * COLUMNS
        high = min(low + COLUMNS, values)
        for position in range(rest // pieces * block, min((rest // pieces + 1) * block, positions)):
            total = out[i, position, low:high]
            first, last = starts[position], starts[position + 1]
            if last - first == 2:
                a, b = weights[first], weights[first + 1]
                left, right = x[i, sources[first], low:high], x[i, sources[first + 1], low:high]
                for v in range(len(total)):
                    total[v] = a * left[v] + b * right[v]
                continue
            total[:] = x.dtype.type(0)
            for pair in range(first, last):
                weight = weights[pair]
                read = x[i, sources[pair], low:high]
                for v in range(len(total)):
                    total[v] += weight * read[v]
