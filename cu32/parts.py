"""The parts of a split sum, added: compensated, in a fixed order, so that a result is the same each time."""

from __future__ import annotations

from alpha import caches
from alpha.cu32.base import DeviceEngine, Launch, c_type, of_reals
from alpha.cu32.compiler import Source
from alpha.dtypes import DType
from alpha.tensor import Storage, Tensor

SOURCES = of_reals("parts")

THREADS = 256
LANES, MORE_LANES = 8, 32
"""Threads that share an element's parts where there are too few elements to fill the device."""

MANY = 256
"""From so many parts on, more of them do."""


def sum_parts(engine: DeviceEngine, parts: Storage, number: int, out: Tensor) -> None:
    """out[i] = the sum over p < number of element p * out.numel() + i of ``parts``; out is dense, the order its own."""
    whole = parts.address % 16 == out.address % 16 == 0
    launch, lanes = _launch(out.numel(), out.dtype, number, whole, engine.device.multiprocessors)
    engine.run(launch, (parts, out), lanes)


@caches.kept
def _launch(count: int, dtype: DType, number: int, aligned: bool, multiprocessors: int) -> tuple[Launch, int]:
    """The launch that adds so many parts, and the threads that share an element's."""
    wide = 16 // dtype.itemsize
    kernel, together = ("sum_parts_wide", wide) if aligned and count % wide == 0 else ("sum_parts", 1)
    groups = -(-count // together)
    leaves_idle = number >= LANES and groups < THREADS * 4 * multiprocessors
    lanes = (MORE_LANES if number >= MANY else LANES) if leaves_idle else 1
    grid = -(-groups // (THREADS // lanes))
    return Launch(Source("parts", REAL=c_type(dtype)), kernel, grid, THREADS, 2, (count, number), "i"), lanes
