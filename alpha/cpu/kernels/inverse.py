"""Kernels of the BatchNorm whose backward recovers its input from its result, over (rows, channels).

Rows are cut and summed as in ``normalisation``: results are the same to the bit with any thread count.
"""

from __future__ import annotations

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels import channel_passes
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
    tasks, row, image = partial.shape[0], channels * y.itemsize, y.dtype.type(0)
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
                channel_passes.inverse_sums_past_residual(
                    slope, unslope, image, count, channels, read, past, of_channels, sums, products
                )
            else:
                channel_passes.inverse_sums(
                    slope, unslope, image, count, channels, read, past, of_channels, sums, products
                )
            for c in range(channels):
                total[0, c] += s[c]
                total[1, c] += q[c]


@compiled
def inverse_apply(share, dy, y, residual, has_residual, offset, slope, unslope, a, b, d, dx):  # type: ignore[no-untyped-def]
    """dx = a * g + b * t + d, g and t as for ``inverse_sums``."""
    rows, channels = y.shape
    tasks, row, image = (rows + BLOCK - 1) // BLOCK, channels * y.itemsize, y.dtype.type(0)
    of_channels = offset.ctypes.data, a.ctypes.data, b.ctypes.data, d.ctypes.data
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        at, count = task * BLOCK * row, min(BLOCK, rows - task * BLOCK)
        read, to = (dy.ctypes.data + at, y.ctypes.data + at, residual.ctypes.data + at), dx.ctypes.data + at
        if has_residual:
            channel_passes.inverse_gradient_past_residual(
                slope, unslope, image, count, channels, read, to, of_channels, 0, 0
            )
        else:
            channel_passes.inverse_gradient(slope, unslope, image, count, channels, read, to, of_channels, 0, 0)
