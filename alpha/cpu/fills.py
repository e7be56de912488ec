"""FillOperations: tensors of one number on the CPU, written by a loop of vectors (``alpha.cpu.loops.fill``)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from alpha.cpu import tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.loops import fill, machine
from alpha.dtypes import FLOATS
from alpha.records import Scalar
from alpha.tensor import Tensor

STREAMED_BYTES = 20 << 20
"""Bytes from which a tensor is written past the caches, which would not keep it."""

SHARED_BYTES = 1 << 20
"""Bytes from which workers are woken."""

_pack = struct.Struct("qqq8s").pack


class FillOperations(HostEngine):
    """New tensors of one number; a tensor that is there is filled by a copy of the number."""

    def full(
        self, shape: Sequence[int], value: Scalar, dtype: np.dtype[Any], order: Sequence[int] | None = None
    ) -> Tensor:
        out = self.empty(shape, dtype, order)
        storage = out.storage
        if not storage.nbytes:
            return out
        count = -(-storage.nbytes // fill.TASK_BYTES)
        job = _pack(storage.address, storage.nbytes, count, _eight_bytes(value, dtype))
        loop = _loop(storage.nbytes >= STREAMED_BYTES and storage.address % ISA.bytes == 0)
        tasks.run(loop, job, count if storage.nbytes >= SHARED_BYTES else 1, self.threads)
        return out


_C_FLOATS: dict[Any, Any] = {4: ctypes.c_float, 8: ctypes.c_double}


def _eight_bytes(value: Scalar, dtype: np.dtype[Any]) -> bytes:
    """A number in a dtype as often as eight bytes hold it; what does not fit becomes what NumPy makes of it."""
    if type(value) is float and dtype in FLOATS:
        return bytes(_C_FLOATS[dtype.itemsize](value)) * (8 // dtype.itemsize)  # C rounds as NumPy does, and faster
    number = np.empty(8 // dtype.itemsize, dtype)
    with np.errstate(all="ignore"):
        number.fill(value)
    return number.tobytes()


@cache
def _loop(streams: bool) -> machine.Loop:
    """The loop, which may write past the caches."""
    return machine.loop(fill.ir_of(streams))
