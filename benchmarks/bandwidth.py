"""How many bytes per second all threads together move, by the size of the memory that they read again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np

SIZES = tuple(1 << shift for shift in (22, 23, 24, 25, 26, 28))
"""Working sets, in bytes: from what caches hold to what memory alone does."""

_MOVED = 1 << 28
"""Bytes of one try, at least: 5 to 20 ms."""


def _copy(part: np.ndarray[Any, Any]) -> None:
    half = len(part) // 2
    np.copyto(part[:half], part[half:])


KINDS: dict[str, tuple[Callable[[np.ndarray[Any, Any]], object], int]] = {
    "reading": (np.max, 1),
    "copying": (_copy, 1),
    "updating": (lambda part: np.negative(part, out=part), 2),
}
"""What is done with a working set, and how often each of its bytes is read or written then."""


def bandwidths(threads: int, kind: str = "copying", tries: int = 5) -> dict[int, float]:
    """GB/s, reads and writes counted, the best of some tries for each size of working set; ``kind`` as in KINDS."""
    return {size: max(_rate(threads, *KINDS[kind], size) for _ in range(tries)) for size in SIZES}


def at(measured: Mapping[int, float], size: float) -> float:
    """The figure for a working set: the best of those not smaller, as less is never slower but by noise."""
    return max((rate for one, rate in measured.items() if one >= size), default=measured[max(measured)])


def _rate(threads: int, work: Callable[[np.ndarray[Any, Any]], object], times: int, size: int) -> float:
    """GB/s of one try; each thread has a part of its own."""
    count = max(1, _MOVED // size)
    parts = [np.ones(size // (4 * threads), np.float32) for _ in range(threads)]
    together = Barrier(threads)

    def run(part: np.ndarray[Any, Any]) -> float:
        together.wait()
        start = time.perf_counter()
        for _ in range(count):
            work(part)
        return time.perf_counter() - start

    with ThreadPoolExecutor(threads) as pool:
        return 1e-9 * times * size * count / max(pool.map(run, parts))
