"""Running sums of floats in float64, along lines of numbers that lie side by side and down columns of rows that do.

A vector's running sums are made in log2(lanes) steps, and the total of all before them is added: so a sum's error is
that of the vectors before it, not of the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.sums import PADDING
from alpha.cpu.kernels.vectors import integer


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _line(_typing: Any, tag: Any, x: Any, y: Any, count: Any) -> Any:
    """y = the running sums of x."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, y, count = arguments
        runs = Runs(builder, tag)
        (before,) = runs.variables(runs.wide_constant(0.0), 1)

        def put(offset: Any, index: int, left: Any) -> None:
            sums = runs.running(runs.widened(runs.load_part(builder.add(x, offset), left)))
            old = builder.load(before)
            runs.store_part(runs.narrowed(builder.fadd(sums, old)), builder.add(y, offset), left)
            builder.store(builder.fadd(runs.last_in_all(sums), old), before)

        runs.for_each_vector(count, 2, put)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _row(_typing: Any, tag: Any, x: Any, y: Any, count: Any, sums: Any) -> Any:
    """sums += x, and y = sums."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, y, count, sums = arguments
        runs = Runs(builder, tag)

        def put(offset: Any, index: int, left: Any) -> None:
            at = builder.add(sums, builder.mul(offset, integer(8 // runs.item)))
            value = builder.fadd(runs.load_wide(at), runs.widened(runs.load_part(builder.add(x, offset), left)))
            runs.store_wide(value, at)
            runs.store_part(runs.narrowed(value), builder.add(y, offset), left)

        runs.for_each_vector(count, 2, put)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 4), codegen


@compiled
def cumsum(counter, tag, item, blocks, rows, columns, strip, x, y):  # type: ignore[no-untyped-def]
    """y = the running sums of x (blocks, rows, columns) over its rows.

    A task is a strip of a block's columns; where there is one column, ``strip`` blocks.
    """
    strips = (columns + strip - 1) // strip
    sums = np.empty(strip + PADDING if columns > 1 else 1)
    while True:
        task = take_task(counter)
        if columns == 1:
            if task * strip >= blocks:
                break
            for block in range(task * strip, min((task + 1) * strip, blocks)):
                at = block * rows * item
                _line(tag, x + at, y + at, rows)
            continue
        if task >= blocks * strips:
            break
        block, first = task // strips, task % strips * strip
        width = min(strip, columns - first)
        sums[:] = 0
        for row in range(rows):
            at = ((block * rows + row) * columns + first) * item
            _row(tag, x + at, y + at, width, sums.ctypes.data)
    return 0
