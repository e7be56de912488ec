"""Rows added into a table by their numbers: the gradient of rows that were looked up."""

from __future__ import annotations

from alpha.cpu.board import take_task
from alpha.cpu.compile import compiled

COLUMNS = 64
"""Columns a task: whoever owns them adds all rows, in order, so that sums are the same with any number of threads."""


@compiled
def add_rows(counter, index, source, target):  # type: ignore[no-untyped-def]
    """target[index[i]] += source[i]; indices are in range."""
    columns = source.shape[1]
    while True:
        first = take_task(counter) * COLUMNS
        if first >= columns:
            break
        last = min(first + COLUMNS, columns)
        for i in range(index.size):
            row = index[i]
            for c in range(first, last):
                target[row, c] += source[i, c]
    return 0
