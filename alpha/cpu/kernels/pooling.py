"""Kernels of pooling: positions x (images * channels) matrices, combined by tables of pairs.

``starts[p]..starts[p + 1]`` are the pairs of position p: the other side's positions in ``sources``, with a tap or a
weight each. Padding has no pairs, so it is never read. A task is one position and a run of its columns.
"""

from __future__ import annotations

import numpy as np

from alpha.cpu.board import take_task
from alpha.cpu.compile import compiled

COLUMNS = 4096
"""Columns a task: what it reads and writes stays in the first-level cache."""


@compiled
def max_forward(counter, x, starts, sources, taps, out, chosen):  # type: ignore[no-untyped-def]
    """Maxima and their taps; first on ties, NaN wins; -inf and tap -1 where a window holds nothing."""
    columns = x.shape[1]
    pieces = (columns + COLUMNS - 1) // COLUMNS
    place = counter.ctypes.data
    lowest = x.dtype.type(-np.inf)
    while True:
        task = take_task(place)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        best = out[position, low : low + COLUMNS]
        winner = chosen[position, low : low + COLUMNS]
        first = starts[position]
        if first == starts[position + 1]:
            best[:] = lowest
            winner[:] = -1
            continue
        best[:] = x[sources[first], low : low + COLUMNS]
        winner[:] = taps[first]
        for pair in range(first + 1, starts[position + 1]):
            tap = taps[pair]
            values = x[sources[pair], low : low + COLUMNS]
            for i in range(len(best)):
                value = values[i]
                # A NaN compares false with anything: it enters as "not <=", and then no other value passes.
                better = not (value <= best[i]) and best[i] == best[i]
                best[i] = value if better else best[i]
                winner[i] = tap if better else winner[i]


@compiled
def max_backward(counter, dy, chosen, starts, sources, taps, out):  # type: ignore[no-untyped-def]
    """Each input position gathers the gradients of the windows that chose it."""
    columns = dy.shape[1]
    pieces = (columns + COLUMNS - 1) // COLUMNS
    place = counter.ctypes.data
    zero = dy.dtype.type(0)
    while True:
        task = take_task(place)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        total = out[position, low : low + COLUMNS]
        total[:] = zero
        for pair in range(starts[position], starts[position + 1]):
            tap = taps[pair]
            grads = dy[sources[pair], low : low + COLUMNS]
            winner = chosen[sources[pair], low : low + COLUMNS]
            for i in range(len(total)):
                total[i] += grads[i] if winner[i] == tap else zero


@compiled
def weighted_sum(counter, x, starts, sources, weights, out):  # type: ignore[no-untyped-def]
    """out[p] = sum of weights * x[sources] over p's pairs: average pooling and its gradient."""
    columns = x.shape[1]
    pieces = (columns + COLUMNS - 1) // COLUMNS
    place = counter.ctypes.data
    while True:
        task = take_task(place)
        if task >= out.shape[0] * pieces:
            break
        position, low = task // pieces, task % pieces * COLUMNS
        total = out[position, low : low + COLUMNS]
        total[:] = x.dtype.type(0)
        for pair in range(starts[position], starts[position + 1]):
            weight = weights[pair]
            values = x[sources[pair], low : low + COLUMNS]
            for i in range(len(total)):
                total[i] += weight * values[i]
