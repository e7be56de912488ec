"""Kernels of the negative log likelihood: one number of each row is picked by the row's label."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.cpu.compile import alone, inlined
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels.records import get, put
from alpha.cpu.kernels.vectors import read_number, rounded, write_number

NONE, SUM, MEAN = 0, 1, 2
"""What is done with the rows' losses."""


TAG, TAG_BYTES = np.float32(0), 4
"""A 0 of the numbers' size, and their bytes: each kernel has its own."""


@inlined
def _added(total, error, part):  # type: ignore[no-untyped-def]
    """A sum, its rounding error, and a part more."""
    new = total + part
    back = new - total
    return new, error + ((total - (new - back)) + (part - back))


@inlined
def _corrected(total, error):  # type: ignore[no-untyped-def]
    """The sum with its rounding error, which is none where the sum is not finite."""
    return total + error if math.isfinite(error) else total


def _nll(share, job):  # type: ignore[no-untyped-def]
    """Losses -x[row, label], or their sum or mean over the rows that count.

    The job's words: x, its steps in bytes from row to row and along one, rows, classes, labels, where these are copied
    to, the label of rows to ignore, whether to check, what is done with the losses, where they go, and where a 1 goes
    if a label is out of range. Of the copies, for which each label is read once, that of a row to ignore is -1, of one
    out of range 0. Behind them is written how many rows count; where labels are checked, the first out of range ends
    all: then it is -1 - its row.
    """
    x, row_step, step, rows, classes = get(job, 0), get(job, 1), get(job, 2), get(job, 3), get(job, 4)
    source, followed, ignore, checking = get(job, 5), get(job, 6), get(job, 7), get(job, 8)
    reduction, out, tag, item = get(job, 9), get(job, 10), TAG, TAG_BYTES
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
                put(get(job, 11), 0, 1)
                put(followed, rows, -1 - row)
                return
            label = 0
        put(followed, row, label)
        kept += 1
        loss = -read_number(tag, x + row * row_step + label * step)
        if reduction == NONE:
            write_number(tag, out + row * item, loss)
        else:
            total, error = _added(total, error, float(loss))
    if reduction != NONE:
        total = _corrected(total, error)
        write_number(tag, out, rounded(tag, total / kept if reduction == MEAN else total))
    put(followed, rows, kept)


def _by_size(function: Any) -> dict[int, JobKernel]:
    """The kernel for numbers of 4 and of 8 bytes."""
    return {
        tag.itemsize: JobKernel(function, f"{function.__name__[1:]}_{tag.itemsize}", TAG=tag, TAG_BYTES=tag.itemsize)
        for tag in (np.float32(0), np.float64(0))
    }


nll = _by_size(_nll)


@alone
def nll_grad(tag, item, grad, grad_step, factor, rows, classes, followed, out):  # type: ignore[no-untyped-def]
    """out[row, label] = -grad[row] * factor; all else of ``out`` is 0 already."""
    for row in range(rows):
        label = get(followed, row)
        if 0 <= label < classes:
            value = -read_number(tag, grad + row * grad_step) * factor
            write_number(tag, out + (row * classes + label) * item, rounded(tag, value))
    return 0
