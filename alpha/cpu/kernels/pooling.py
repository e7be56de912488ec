"""Kernels of pooling: positions x (images * channels) matrices, combined by tables of pairs.

``starts[p]..starts[p + 1]`` are the pairs of position p: the other side's positions in ``sources``, with a tap or a
weight each. Padding has no pairs, so it is never read. A task is one position and a run of its columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.board import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.vectors import I64, Vectors, integer

VECTORS = 2
"""Of columns whose maxima are held in registers."""

POSITIONS = 16
"""A task of ``maxima``."""

ISA_BYTES = ISA.bytes

COLUMNS = 4096
"""Columns a task: what it reads and writes stays in the first-level cache."""


@compiled
def max_forward(counter, x, starts, sources, taps, out, chosen):  # type: ignore[no-untyped-def]
    """Maxima and their taps; first on ties, the last NaN wins; -inf and tap -1 where a window holds nothing."""
    columns = x.shape[1]
    pieces = (columns + COLUMNS - 1) // COLUMNS
    lowest = x.dtype.type(-np.inf)
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        best = out[position, low : low + COLUMNS]
        winner = chosen[position, low : low + COLUMNS]
        first = starts[position]
        if first == starts[position + 1]:
            best[:] = lowest
            winner[:] = -1
            continue
        best[:] = x[sources[first], low : low + COLUMNS]
        winner[:] = taps[first]
        for pair in range(first + 1, starts[position + 1]):
            tap = taps[pair]
            values = x[sources[pair], low : low + COLUMNS]
            for i in range(len(best)):
                value = values[i]
                # A NaN enters, and then only another one passes it.
                better = value > best[i] or value != value  # noqa: PLR0124
                best[i] = value if better else best[i]
                winner[i] = tap if better else winner[i]


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _maxima(_typing: Any, tag: Any, x: Any, row: Any, sources: Any, count: Any, out: Any, columns: Any) -> Any:
    """VECTORS vectors of the maxima over ``count`` rows of x, whose numbers are at ``sources``; ``row`` bytes each."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, x, row, sources, count, out, columns = arguments
        best = [cgutils.alloca_once_value(builder, vectors.constant(float("-inf"))) for _ in range(VECTORS)]
        with cgutils.for_range(builder, count, intp=I64) as loop:
            number = vectors.load_address(builder.add(sources, builder.mul(loop.index, integer(8))), 0)
            start = builder.add(x, builder.mul(number, row))
            for v, slot in enumerate(best):
                value, old = vectors.load(builder.add(start, integer(v * ISA.bytes))), builder.load(slot)
                # NaN is neither above nor below: it enters, and stays.
                enters = builder.and_(builder.fcmp_unordered(">", value, old), builder.fcmp_ordered("ord", old, old))
                builder.store(builder.select(enters, value, old), slot)
        for v, slot in enumerate(best):
            left = builder.sub(columns, integer(v * vectors.lanes))
            vectors.store_first(builder.load(slot), builder.add(out, integer(v * ISA.bytes)), left)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 6), codegen


@compiled
def maxima(counter, tag, positions, columns, item, starts, sources, x, out):  # type: ignore[no-untyped-def]
    """As ``max_forward``, without the taps. The matrices lie at addresses, ``columns`` numbers of ``item`` bytes a row.

    Reads up to VECTORS vectors over a row's end.
    """
    width = VECTORS * ISA_BYTES // item
    while True:
        task = take_task(counter)
        if task * POSITIONS >= positions:
            break
        for position in range(task * POSITIONS, min((task + 1) * POSITIONS, positions)):
            first = starts[position]
            for column in range(0, columns, width):
                _maxima(
                    tag,
                    x + column * item,
                    columns * item,
                    sources.ctypes.data + 8 * first,
                    starts[position + 1] - first,
                    out + (position * columns + column) * item,
                    columns - column,
                )
    return 0


@compiled
def max_backward(counter, dy, chosen, starts, sources, taps, out):  # type: ignore[no-untyped-def]
    """Each input position gathers the gradients of the windows that chose it."""
    columns = dy.shape[1]
    pieces = (columns + COLUMNS - 1) // COLUMNS
    zero = dy.dtype.type(0)
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        total = out[position, low : low + COLUMNS]
        total[:] = zero
        for pair in range(starts[position], starts[position + 1]):
            tap = taps[pair]
            grads = dy[sources[pair], low : low + COLUMNS]
            winner = chosen[sources[pair], low : low + COLUMNS]
            for i in range(len(total)):
                total[i] += grads[i] if winner[i] == tap else zero


@compiled
def weighted_sum(counter, x, starts, sources, weights, out):  # type: ignore[no-untyped-def]
    """out[p] = sum of weights * x[sources] over p's pairs: average pooling and its gradient."""
    columns = x.shape[1]
    pieces = (columns + COLUMNS - 1) // COLUMNS
    while True:
        task = take_task(counter)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        total = out[position, low : low + COLUMNS]
        total[:] = x.dtype.type(0)
        for pair in range(starts[position], starts[position + 1]):
            weight = weights[pair]
            values = x[sources[pair], low : low + COLUMNS]
            for i in range(len(total)):
                total[i] += weight * values[i]


@compiled
def combine(counter, x, starts, sources, weights, out, block):  # type: ignore[no-untyped-def]
    """out[i, p] = sum of weights * x[i, sources] over p's pairs, of x (count, length, values).

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
