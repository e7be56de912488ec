"""How many bytes a second all threads together move, by how many bytes they go over again and again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

SIZES = tuple(1 << shift for shift in (22, 24, 26, 28))
"""Working sets, in bytes: from what caches hold to what memory alone does."""

_MOVED = 1 << 28
"""Bytes of one try, at least: 5 to 20 ms."""


def bandwidths(threads: int, tries: int = 5) -> dict[int, float]:
    """GB/s of copying, reads and writes counted, the best of some tries for each size of working set."""
    return {size: max(_copy(threads, size) for _ in range(tries)) for size in SIZES}


def at(measured: Mapping[int, float], size: float) -> float:
    """The figure for a working set: the best of those not smaller, as less is never slower but by noise."""
    return max((rate for one, rate in measured.items() if one >= size), default=measured[max(measured)])


def _copy(threads: int, size: int) -> float:
    """GB/s of one try; each thread copies a part of its own."""
    count, elements = max(1, _MOVED // size), size // (8 * threads)
    parts = [(np.ones(elements, np.float32), np.zeros(elements, np.float32)) for _ in range(threads)]
    together = Barrier(threads)

    def work(part: int) -> float:
        source, target = parts[part]
        together.wait()
        start = time.perf_counter()
        for _ in range(count):
            np.copyto(target, source)
        return time.perf_counter() - start

    with ThreadPoolExecutor(threads) as pool:
        return 1e-9 * size * count / max(pool.map(work, range(threads)))
