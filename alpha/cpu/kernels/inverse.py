"""Kernels of the BatchNorm whose backward recovers its input from its result, over (rows, channels).

Rows are cut and summed as in ``normalisation``: results are the same to the bit with any thread count.
"""

from __future__ import annotations

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels import row_sums
from alpha.cpu.kernels.normalisation import BLOCK


@compiled
def apply_measured(share, x, scale, shift, residual, slope, y, partial):  # type: ignore[no-untyped-def]
    """y = act(x * scale + shift + residual); partial[t] = each channel's sum of residual ** 2 over task t's rows."""
    rows, channels = x.shape
    tasks = partial.shape[0]
    zero = x.dtype.type(0)
    q = np.empty(channels, x.dtype)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        partial[task] = 0
        for start in range(first, last, BLOCK):
            q[:] = 0
            for r in range(start, min(start + BLOCK, last)):
                for c in range(channels):
                    added = residual[r, c]
                    v = x[r, c] * scale[c] + shift[c] + added
                    y[r, c] = v if v > zero else v * slope
                    q[c] += added * added
            for c in range(channels):
                partial[task, c] += q[c]


@compiled
def inverse_sums(share, dy, y, residual, has_residual, offset, slope, unslope, masked, partial):  # type: ignore[no-untyped-def]
    """partial[t] = each channel's (sum of g, sum of g * t) over task t's rows; g is dy past the activation, whose
    inverse gives t = act^-1(y) - residual - offset, the input less its mean times the scale.

    With a residual, g is also written to ``masked``: it is the residual's gradient.
    """
    rows, channels = y.shape
    tasks, row = partial.shape[0], channels * y.itemsize
    of_channels = offset.ctypes.data, 0, 0
    s = np.empty(channels, y.dtype)
    q = np.empty(channels, y.dtype)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        total = partial[task]
        total[:] = 0
        for start in range(first, last, BLOCK):
            at, count = start * row, min(BLOCK, last - start)
            read = dy.ctypes.data + at, y.ctypes.data + at, residual.ctypes.data + at
            past, sums, products = masked.ctypes.data + at, s.ctypes.data, q.ctypes.data
            if has_residual:
                row_sums.inverse_sums_past_residual(
                    slope, unslope, count, channels, read, past, of_channels, sums, products
                )
            else:
                row_sums.inverse_sums(slope, unslope, count, channels, read, past, of_channels, sums, products)
            for c in range(channels):
                total[0, c] += s[c]
                total[1, c] += q[c]


@compiled
def inverse_apply(share, dy, y, residual, has_residual, offset, slope, unslope, a, b, d, dx):  # type: ignore[no-untyped-def]
    """dx = a * g + b * t + d, g and t as for ``inverse_sums``."""
    rows, channels = y.shape
    tasks = (rows + BLOCK - 1) // BLOCK
    zero, one = y.dtype.type(0), y.dtype.type(1)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        for r in range(task * BLOCK, min((task + 1) * BLOCK, rows)):
            if has_residual:
                for c in range(channels):
                    v = y[r, c]
                    t = v * (one if v > zero else unslope) - residual[r, c] - offset[c]
                    dx[r, c] = a[c] * (dy[r, c] * (one if v > zero else slope)) + b[c] * t + d[c]
            else:
                for c in range(channels):
                    v = y[r, c]
                    t = v * (one if v > zero else unslope) - offset[c]
                    dx[r, c] = a[c] * (dy[r, c] * (one if v > zero else slope)) + b[c] * t + d[c]
