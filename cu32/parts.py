"""The parts of a split sum, added: compensated, in a fixed order, so that a result is the same each time.

The kernels of convolutions by tiles do so themselves, in the blocks that come last (kernels/join.cuh). For others a
kernel of its own does (kernels/parts.cu).
"""

from __future__ import annotations

import math
from typing import NamedTuple

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


MOST_TOGETHER = 6
"""Parts that one block of a kernel which joins its parts adds at most; more are added in groups, as many as large."""


def together(parts: int) -> int:
    """The parts of a group."""
    return parts if parts <= MOST_TOGETHER else math.isqrt(parts - 1) + 1


def groups(parts: int) -> int:
    """The groups, whose sums are added at last."""
    return -(-parts // together(parts))


def read_together(parts: int) -> int:
    """The parts and groups that the last block of a tile waits for, as one of a group and as that of all."""
    return together(parts) + (groups(parts) if groups(parts) > 1 else 0)


class Joining(NamedTuple):
    """What a kernel that joins its parts is handed.

    Attributes:
        tensors: memory for the parts, and counters.
        counters: how many of them it uses.
    """

    tensors: tuple[Storage | None, Tensor | None]
    counters: int


WHOLE = Joining((None, None), 0)
"""What a kernel is handed for sums in one part."""


def joining(engine: DeviceEngine, parts: int, out: Tensor, tiles: int) -> Joining:
    """What a kernel is handed for sums in so many parts, whose result so many tiles cover."""
    if parts == 1:
        return WHOLE
    room = tiles * (groups(parts) + 1)
    return Joining((engine.scratch(parts * out.nbytes), engine.counters(room)), room)


def joined_bytes(parts: int, result: int) -> int:
    """Bytes of parts that are written and read where a result has so many."""
    number = groups(parts)
    return 2 * result * (parts + (number if number > 1 else 0))


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
