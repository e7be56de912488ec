"""Softmax and cross entropy of rows, and its gradient: each row is read and written once."""

from __future__ import annotations

import math

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled

ROWS = 256
"""Rows per task."""


@compiled
def cross_entropy(counter, x, labels, smoothing, losses, p):  # type: ignore[no-untyped-def]
    """p = softmax(x) and losses = -log p[label], smoothed, of x (rows, classes); sums are taken in float64.

    Infinite logits give NaN, and so does a label out of range, which is not followed.
    """
    rows, classes = x.shape
    while True:
        first = take_task(counter) * ROWS
        if first >= rows:
            break
        for row in range(first, min(first + ROWS, rows)):
            largest = x[row, 0]
            for c in range(1, classes):
                largest = max(largest, x[row, c])
            total = 0.0
            distance = 0.0
            for c in range(classes):
                below = x[row, c] - largest
                distance += below
                power = math.exp(below)
                total += power
                p[row, c] = power
            label = labels[row]
            target = float(x[row, label] - largest) if 0 <= label < classes else math.nan
            if smoothing != 0:
                target = (1 - smoothing) * target + smoothing * (distance / classes)
            losses[row] = math.log(total) - target
            share = x.dtype.type(1 / total)
            for c in range(classes):
                p[row, c] *= share
    return 0


@compiled
def cross_entropy_grad(counter, p, labels, scale, smoothing, dx):  # type: ignore[no-untyped-def]
    """dx = (p - target distribution) * scale[row]; a label out of range is no class.

    An infinite scale is inf - inf at the label, as PyTorch's, which scales each term by itself.
    """
    rows, classes = p.shape
    even = p.dtype.type(smoothing / classes)
    sure = p.dtype.type(1 - smoothing)
    while True:
        first = take_task(counter) * ROWS
        if first >= rows:
            break
        for row in range(first, min(first + ROWS, rows)):
            label = labels[row]
            factor = scale[row]
            for c in range(classes):
                dx[row, c] = (p[row, c] - even) * factor
            if 0 <= label < classes:
                dx[row, label] = (p[row, label] - even - sure) * factor + (factor - factor)
    return 0
