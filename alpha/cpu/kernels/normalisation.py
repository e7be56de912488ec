"""BatchNorm and LeakyReLU over (rows, channels): statistics, application and gradients, each one pass over memory.

Rows are cut into a number of tasks that does not depend on the threads, and each task's sums are merged in order, so
results are the same to the bit with any thread count. Within a task float32 is summed over BLOCK rows at most before
it goes into float64: the error of a sum stays that of BLOCK additions. Halves are bits (``vectors.Images``): they are
computed in float32, and so are the numbers of channels.

ReLU, a slope of 0, has loops of its own: its products would make NaN of infinities, and lose the gradient of NaN.
"""

from __future__ import annotations

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels import channel_passes

BLOCK = 64
"""Rows summed in the array's own dtype."""

PLAIN, MASK_X, MASK_Y = 0, 1, 2
"""Where the activation's mask comes from: there is none, from scale * x + shift, or from the result y."""


@compiled
def statistics(share, x, zero, partial):  # type: ignore[no-untyped-def]
    """partial[t] = each channel's (mean, sum of squared deviations) over task t's rows; zero: of what sums are in."""
    rows, channels = x.shape
    tasks, row, image = partial.shape[0], channels * x.itemsize, x.dtype.type(0)
    s = np.full(channels, zero)
    q = np.full(channels, zero)
    shift = np.full(channels, zero)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        total = partial[task]
        total[:] = 0
        # Deviations from the first row, not from zero: squares of values near their mean do not cancel.
        channel_passes.numbers(
            zero, zero, image, 1, channels, (x.ctypes.data + first * row, 0, 0), 0, (0, 0, 0), shift.ctypes.data,
            q.ctypes.data,
        )  # fmt: skip
        for start in range(first, last, BLOCK):
            channel_passes.deviation_sums(
                zero, zero, image, min(BLOCK, last - start), channels, (x.ctypes.data + start * row, 0, 0), 0,
                (shift.ctypes.data, 0, 0), s.ctypes.data, q.ctypes.data,
            )  # fmt: skip
            for c in range(channels):
                total[0, c] += s[c]
                total[1, c] += q[c]
        n = last - first
        for c in range(channels):
            deviation = total[0, c] / n
            total[1, c] = max(total[1, c] - total[0, c] * deviation, 0.0)
            total[0, c] = shift[c] + deviation


@compiled
def apply(share, x, scale, shift, residual, has_residual, slope, has_slope, y):  # type: ignore[no-untyped-def]
    """y = act(x * scale + shift + residual)."""
    rows, channels = x.shape
    tasks, row, image = (rows + BLOCK - 1) // BLOCK, channels * x.itemsize, x.dtype.type(0)
    flat = slope == 0
    of_channels = scale.ctypes.data, shift.ctypes.data
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        at, count = task * BLOCK * row, min(BLOCK, rows - task * BLOCK)
        read, to = (x.ctypes.data + at, residual.ctypes.data + at), y.ctypes.data + at
        if has_residual and has_slope and flat:
            channel_passes.relu_residual(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        elif has_residual and has_slope:
            channel_passes.leaky_relu_residual(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        elif has_residual:
            channel_passes.normalised_residual(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        elif has_slope and flat:
            channel_passes.relu(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        elif has_slope:
            channel_passes.leaky_relu(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        else:
            channel_passes.normalised(slope, slope, image, count, channels, read, to, of_channels, 0, 0)


@compiled
def grad_sums(share, dy, x, y, mean, scale, shift, slope, mask, masked, partial):  # type: ignore[no-untyped-def]
    """partial[t] = each channel's (sum of g, sum of g * (x - mean)) over task t's rows; g is dy past the activation.

    With MASK_Y, g is also written to ``masked``: it is the residual's gradient.
    """
    rows, channels = x.shape
    tasks, row, image = partial.shape[0], channels * x.itemsize, x.dtype.type(0)
    flat = slope == 0
    of_channels = mean.ctypes.data, scale.ctypes.data, shift.ctypes.data
    s = np.full(channels, slope)
    q = np.full(channels, slope)
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        total = partial[task]
        total[:] = 0
        for start in range(first, last, BLOCK):
            at, count = start * row, min(BLOCK, last - start)
            read = dy.ctypes.data + at, x.ctypes.data + at, y.ctypes.data + at
            past, sums, products = masked.ctypes.data + at, s.ctypes.data, q.ctypes.data
            if mask == MASK_Y and flat:
                channel_passes.relu_sums_by_y(
                    slope, slope, image, count, channels, read, past, of_channels, sums, products
                )
            elif mask == MASK_Y:
                channel_passes.slope_sums_by_y(
                    slope, slope, image, count, channels, read, past, of_channels, sums, products
                )
            elif mask == MASK_X and flat:
                channel_passes.relu_sums_by_x(
                    slope, slope, image, count, channels, read, past, of_channels, sums, products
                )
            elif mask == MASK_X:
                channel_passes.slope_sums_by_x(
                    slope, slope, image, count, channels, read, past, of_channels, sums, products
                )
            else:
                channel_passes.gradient_sums(
                    slope, slope, image, count, channels, read, past, of_channels, sums, products
                )
            for c in range(channels):
                total[0, c] += s[c]
                total[1, c] += q[c]


@compiled
def grad_apply(share, g, x, mean, scale, shift, slope, masked, a, b, d, dx):  # type: ignore[no-untyped-def]
    """dx = a * g + b * (x - mean) + d, g past the activation's mask from scale * x + shift where ``masked``."""
    rows, channels = x.shape
    tasks, row, image = (rows + BLOCK - 1) // BLOCK, channels * x.itemsize, x.dtype.type(0)
    flat = slope == 0
    of_channels = (
        mean.ctypes.data, scale.ctypes.data, shift.ctypes.data, a.ctypes.data, b.ctypes.data, d.ctypes.data
    )  # fmt: skip
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        at, count = task * BLOCK * row, min(BLOCK, rows - task * BLOCK)
        read, to = (g.ctypes.data + at, x.ctypes.data + at), dx.ctypes.data + at
        if masked and flat:
            channel_passes.relu_gradient(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        elif masked:
            channel_passes.leaky_relu_gradient(slope, slope, image, count, channels, read, to, of_channels, 0, 0)
        else:
            channel_passes.gradient(slope, slope, image, count, channels, read, to, of_channels, 0, 0)


@compiled
def grad_scaled(share, g, x, scale, shift, slope, masked, a, dx):  # type: ignore[no-untyped-def]
    """dx = a * g of constant statistics, g as for ``grad_apply``: an x that is not finite leaves the gradient alone."""
    rows, channels = x.shape
    tasks = (rows + BLOCK - 1) // BLOCK
    zero, one = x.dtype.type(0), x.dtype.type(1)
    flat = slope == zero
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        for r in range(task * BLOCK, min((task + 1) * BLOCK, rows)):
            if masked and flat:
                for c in range(channels):
                    grad = g[r, c]
                    dx[r, c] = a[c] * (zero if x[r, c] * scale[c] + shift[c] <= zero else grad)
            elif masked:
                for c in range(channels):
                    dx[r, c] = a[c] * (g[r, c] * (one if x[r, c] * scale[c] + shift[c] > zero else slope))
            else:
                for c in range(channels):
                    dx[r, c] = a[c] * g[r, c]
