"""Kernels of the negative log likelihood: one number of each row is picked by the row's label."""

from __future__ import annotations

from alpha.cpu.compile import alone
from alpha.cpu.kernels.records import get, put
from alpha.cpu.kernels.sums import added, corrected
from alpha.cpu.kernels.vectors import read_number, rounded, write_number

NONE, SUM, MEAN = 0, 1, 2
"""What is done with the rows' losses."""


@alone
def nll(tag, item, x, row_step, step, rows, classes, source, followed, ignore, checking, reduction, out):  # type: ignore[no-untyped-def]
    """Losses -x[row, label], or their sum or mean over the rows that count; how many these are.

    Steps in bytes. Labels are copied to ``followed``, each is read once: -1 for a row that is to be ignored, 0 for one
    out of range. Where ``checking``, the first label out of range ends all: the result is -1 - its row.
    """
    total, error, kept = 0.0, 0.0, 0
    for row in range(rows):
        label = get(source, row)
        if label == ignore:
            put(followed, row, -1)
            if reduction == NONE:
                write_number(tag, out + row * item, rounded(tag, 0.0))
            continue
        if label < 0 or label >= classes:
            if checking:
                return -1 - row
            label = 0
        put(followed, row, label)
        kept += 1
        loss = -read_number(tag, x + row * row_step + label * step)
        if reduction == NONE:
            write_number(tag, out + row * item, loss)
        else:
            total, error = added(total, error, float(loss))
    if reduction != NONE:
        total = corrected(total, error)
        write_number(tag, out, rounded(tag, total / kept if reduction == MEAN else total))
    return kept


@alone
def nll_grad(tag, item, grad, grad_step, factor, rows, classes, followed, out):  # type: ignore[no-untyped-def]
    """out[row, label] = -grad[row] * factor; all else of ``out`` is 0 already."""
    for row in range(rows):
        label = get(followed, row)
        if 0 <= label < classes:
            value = -read_number(tag, grad + row * grad_step) * factor
            write_number(tag, out + (row * classes + label) * item, rounded(tag, value))
    return 0
