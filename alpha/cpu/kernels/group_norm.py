"""Group norm: the channels of a sample's groups, over all its positions, and the gradients, a sample in the caches at a
time.

Numbers lie as rows of channels; ``row_of_sample`` and ``row_of_position`` say how many rows lie between two samples and
between two positions. A task is a sample, so no sum depends on the threads. Sums are taken over BLOCK rows in the
numbers' own dtype, and go on in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled

BLOCK = 64
"""Rows summed in the array's own dtype."""


class GroupSizes(NamedTuple):
    """How rows of channels form samples and groups."""

    samples: int
    """Several neighbours may count as one, of so many times the groups."""
    positions: int
    groups: int
    size: int
    """Channels of a group."""
    row_of_sample: int
    row_of_position: int


@compiled
def group_norm(counter, x, sizes, weight, bias, eps, statistics, y):  # type: ignore[no-untyped-def]
    """y = (x - mean) / sqrt(var + eps) * weight + bias; statistics (samples, groups, 3): mean, var and 1 / sqrt."""
    samples, positions, groups, size, row_of_sample, row_of_position = sizes
    channels = groups * size
    s, q, shift = np.empty(channels, x.dtype), np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    scale, offset = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    sums, squares = np.empty(channels), np.empty(channels)
    while True:
        sample = take_task(counter)
        if sample >= samples:
            break
        start = sample * row_of_sample
        # Deviations from the first position, not from zero: squares of values near their mean do not cancel.
        for c in range(channels):
            shift[c] = x[start, c]
        sums[:] = 0
        squares[:] = 0
        for block in range(0, positions, BLOCK):
            s[:] = 0
            q[:] = 0
            for p in range(block, min(block + BLOCK, positions)):
                row = start + p * row_of_position
                for c in range(channels):
                    d = x[row, c] - shift[c]
                    s[c] += d
                    q[c] += d * d
            for c in range(channels):
                sums[c] += s[c]
                squares[c] += q[c]
        for group in range(groups):
            begin, end = group * size, (group + 1) * size
            mean = 0.0
            for c in range(begin, end):
                mean += shift[c] + sums[c] / positions
            mean /= size
            total = 0.0
            for c in range(begin, end):
                deviation = sums[c] / positions
                left = squares[c] - sums[c] * deviation
                apart = (shift[c] - mean) + deviation
                total += (0.0 if left < 0 else left) + positions * apart * apart
            var = total / (positions * size)
            inverse_std = 1.0 / np.sqrt(var + eps)
            line = statistics[sample, group]
            line[0], line[1], line[2] = mean, var, inverse_std
            for c in range(begin, end):
                shift[c] = mean
                factor = inverse_std * weight[c]
                scale[c] = factor
                offset[c] = bias[c] + (shift[c] - mean) * factor
        for p in range(positions):
            row = start + p * row_of_position
            for c in range(channels):
                y[row, c] = (x[row, c] - shift[c]) * scale[c] + offset[c]


@compiled
def group_norm_grad(counter, dy, x, sizes, weight, statistics, parts, dx):  # type: ignore[no-untyped-def]
    """dx = (g - mean(g) - n * mean(g * n)) / std, with g = dy * weight and n the normalised x.

    ``parts`` (2, samples, channels) takes each sample's share of the gradients of weight and bias.
    """
    samples, positions, groups, size, row_of_sample, row_of_position = sizes
    channels = groups * size
    s, q, near = np.empty(channels, x.dtype), np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    a, b, d = np.empty(channels, x.dtype), np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    sums, products = np.empty(channels), np.empty(channels)
    while True:
        sample = take_task(counter)
        if sample >= samples:
            break
        start = sample * row_of_sample
        for c in range(channels):
            near[c] = statistics[sample, c // size, 0]
        sums[:] = 0
        products[:] = 0
        for block in range(0, positions, BLOCK):
            s[:] = 0
            q[:] = 0
            for p in range(block, min(block + BLOCK, positions)):
                row = start + p * row_of_position
                for c in range(channels):
                    g = dy[row, c]
                    s[c] += g
                    q[c] += g * (x[row, c] - near[c])
            for c in range(channels):
                sums[c] += s[c]
                products[c] += q[c]
        for group in range(groups):
            begin, end = group * size, (group + 1) * size
            line = statistics[sample, group]
            mean, inverse_std = line[0], line[2]
            of_g, of_gn = 0.0, 0.0
            for c in range(begin, end):
                product = (products[c] + (near[c] - mean) * sums[c]) * inverse_std
                parts[0, sample, c] = product
                parts[1, sample, c] = sums[c]
                of_g += sums[c] * weight[c]
                of_gn += product * weight[c]
            slope = -of_gn / (positions * size) * inverse_std * inverse_std
            for c in range(begin, end):
                a[c] = inverse_std * weight[c]
                b[c] = slope
                d[c] = slope * (near[c] - mean) - of_g / (positions * size) * inverse_std
        for p in range(positions):
            row = start + p * row_of_position
            for c in range(channels):
                dx[row, c] = a[c] * dy[row, c] + b[c] * (x[row, c] - near[c]) + d[c]
