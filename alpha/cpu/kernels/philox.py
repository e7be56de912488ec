"""Philox4x32-10 for kernels, equal to ``alpha.random.words`` to the bit."""

from __future__ import annotations

import numpy as np

from alpha.cpu.compile import inlined

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
