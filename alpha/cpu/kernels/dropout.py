"""Kernel of dropout: Philox4x32-10 by element, equal to ``alpha.random.words`` to the bit."""

from __future__ import annotations

import numpy as np

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled, inlined

CHUNK = 16384
"""Elements per task; a multiple of the 4 words that one counter value gives."""

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


@inlined
def fill_words(words, seed, counter, blocks):  # type: ignore[no-untyped-def]
    """Fills words[:4 * blocks], from a counter value on; computes with 32-bit words in 64 bits."""
    for block in range(blocks):
        index = counter + np.uint64(block)
        c0, c1, c2, c3 = index & _LOW, index >> _SHIFT, np.uint64(0), np.uint64(0)
        k0, k1 = seed & _LOW, seed >> _SHIFT
        for _ in range(10):
            first, second = c0 * _M0, c2 * _M1
            c0, c1, c2, c3 = (second >> _SHIFT) ^ c1 ^ k0, second & _LOW, (first >> _SHIFT) ^ c3 ^ k1, first & _LOW
            k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
        words[4 * block] = np.uint32(c0)
        words[4 * block + 1] = np.uint32(c1)
        words[4 * block + 2] = np.uint32(c2)
        words[4 * block + 3] = np.uint32(c3)


@inlined
def _row_offset(row, shape, strides):  # type: ignore[no-untyped-def]
    """The offset in memory of a row: an index over all axes but the last, row-major."""
    offset = 0
    for axis in range(len(shape) - 2, -1, -1):
        offset += row % shape[axis] * strides[axis]
        row //= shape[axis]
    return offset


@inlined
def _apply(x, y, mask, step, words, threshold, scale):  # type: ignore[no-untyped-def]
    """Keeps or zeroes elements that lie a step apart, one per word."""
    for i in range(len(words)):
        keep = (words[i] >> np.uint32(8)) >= threshold
        mask[i * step] = keep
        y[i * step] = x[i * step] * scale if keep else x.dtype.type(0)


@compiled
def dropout(counter, x, y, mask, shape, strides, seed, offset, threshold, scale):  # type: ignore[no-untyped-def]
    """y = x * scale where the top 24 bits of an element's word reach the threshold, else 0.

    x, y and mask are flat and share their strides; elements are counted row-major in ``shape``.
    """
    size, width, step = len(x), shape[-1], strides[-1]
    words = np.empty(CHUNK, np.uint32)
    while True:
        start = take_task(counter) * CHUNK
        if start >= size:
            break
        stop = min(start + CHUNK, size)
        fill_words(words, seed, offset + np.uint64(start // 4), (stop - start + 3) // 4)
        element = start
        while element < stop:
            column = element % width
            run = min(width - column, stop - element)
            base = _row_offset(element // width, shape, strides) + column * step
            drawn = words[element - start : element - start + run]
            # A literal step of 1 lets the compiler use vectors.
            if step == 1:
                _apply(x[base:], y[base:], mask[base:], 1, drawn, threshold, scale)
            else:
                _apply(x[base:], y[base:], mask[base:], step, drawn, threshold, scale)
            element += run
