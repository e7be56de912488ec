"""Kernels of indexing: checking indices, looking up rows of a table, adding to rows of a table."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import alone, compiled
from alpha.cpu.kernels.vectors import I64

ROWS = 1024
"""Rows per task of ``take_rows``."""

COLUMNS = 64
"""Columns per task of ``add_rows``: one thread adds all rows of them in order, so threads do not change the sums."""


IN_RANGE, SOME_IGNORED = -1, -2
"""What ``check_range`` returns if no index is out of range: none was equal to ``ignore``, or some were."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _get(_typing: Any, address: Any, position: Any) -> Any:
    """Reads the int64 at a position of an array, by the array's address."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(arguments[0], I64.as_pointer()), [arguments[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _put(_typing: Any, address: Any, position: Any, value: Any) -> Any:
    """Writes an int64 to a position of an array, by the array's address."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, position, value = arguments
        builder.store(value, builder.gep(builder.inttoptr(address, I64.as_pointer()), [position]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@alone
def check_range(source, out, count, low, high, ignore, may_ignore, checking):  # type: ignore[no-untyped-def]
    """Copies int64 indices between two addresses and makes the copies safe to follow.

    Indices below 0 count from ``high``; ignored and wrong ones become 0. Each is read from ``source`` only once:
    another thread may write to it meanwhile. Returns the position of the first index outside low..high-1 if
    ``checking``, and leaves the copies as they were read; else IN_RANGE or SOME_IGNORED.
    """
    wrong = changed = ignored = False
    for i in range(count):
        value = _get(source, i)
        _put(out, i, value)
        is_ignored = may_ignore & (value == ignore)
        ignored |= is_ignored
        changed |= value < 0
        wrong |= (not is_ignored) & ((value < low) | (value >= high))
    if wrong and checking:
        for i in range(count):
            value = _get(out, i)
            if (value < low or value >= high) and not (may_ignore and value == ignore):
                return i
    if wrong or changed or ignored:
        for i in range(count):
            value = _get(out, i)
            if (may_ignore and value == ignore) or value < low or value >= high:
                _put(out, i, 0)
            elif value < 0:
                _put(out, i, value + high)
    return SOME_IGNORED if ignored else IN_RANGE


@compiled
def take_rows(counter, index, table, out):  # type: ignore[no-untyped-def]
    """out[i] = table[index[i]], 0 for a row that the table does not have."""
    rows, columns = table.shape
    while True:
        first = take_task(counter) * ROWS
        if first >= index.size:
            break
        for i in range(first, min(first + ROWS, index.size)):
            row = index[i]
            if 0 <= row < rows:
                for c in range(columns):
                    out[i, c] = table[row, c]
            else:
                out[i, :] = 0
    return 0


@compiled
def add_rows(counter, index, source, target):  # type: ignore[no-untyped-def]
    """target[index[i]] += source[i]; a row that the table does not have is left out."""
    columns, rows = source.shape[1], target.shape[0]
    while True:
        first = take_task(counter) * COLUMNS
        if first >= columns:
            break
        last = min(first + COLUMNS, columns)
        for i in range(index.size):
            row = index[i]
            if row < 0 or row >= rows:
                continue
            for c in range(first, last):
                target[row, c] += source[i, c]
    return 0
