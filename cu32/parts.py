"""The parts of a split sum, added: compensated, in a fixed order, so that a result is the same each time."""

from __future__ import annotations

import numpy as np

from alpha.cu32.base import DeviceEngine, c_type, of_reals
from alpha.cu32.compiler import Source
from alpha.tensor import Storage, Tensor

SOURCES = of_reals("parts")

THREADS = 256
LANES, MORE_LANES = 8, 32
"""Threads that share an element's parts where there are too few elements to fill the device."""

MANY = 256
"""From so many parts on, more of them do."""


def sum_parts(engine: DeviceEngine, parts: Storage, number: int, out: Tensor) -> None:
    """out[i] = the sum over p < number of element p * out.numel() + i of ``parts``; out is dense, the order its own."""
    count, wide = out.numel(), 16 // out.dtype.itemsize
    whole = count % wide == 0 and parts.address % 16 == out.address % 16 == 0
    kernel, together = ("sum_parts_wide", wide) if whole else ("sum_parts", 1)
    groups = -(-count // together)
    leaves_idle = number >= LANES and groups < THREADS * 4 * engine.device.multiprocessors
    lanes = (MORE_LANES if number >= MANY else LANES) if leaves_idle else 1
    grid = -(-groups // (THREADS // lanes))
    source = Source("parts", REAL=c_type(out.dtype))
    engine.launch(source, kernel, grid, THREADS, parts, out, count, number, np.int32(lanes))
