"""FillOperations: tensors of one number on the CPU, written by a loop of vectors (``alpha.cpu.loops.fill``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from alpha import caches
from alpha.cpu import tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.loops import fill, machine
from alpha.cpu.tasks import Record
from alpha.records import Scalar
from alpha.tensor import Tensor

STREAMED_BYTES = 20 << 20
"""Bytes from which a tensor is written past the caches, which would not keep it."""

SHARED_BYTES = 1 << 20
"""Bytes from which workers are woken."""

_JOB = struct.Struct("qq8s").pack


class FillOperations(HostEngine):
    """New tensors of one number; a tensor that is there is filled by a copy of the number."""

    def full(
        self, shape: Sequence[int], value: Scalar, dtype: np.dtype[Any], order: Sequence[int] | None = None
    ) -> Tensor:
        out = self.empty(shape, dtype, order)
        storage = out.storage
        if not storage.nbytes:
            return out
        number = np.empty(8 // dtype.itemsize, dtype)
        with np.errstate(all="ignore"):  # what does not fit becomes what NumPy makes of it
            number.fill(value)
        plan = _plan(storage.nbytes)
        job = _JOB(plan.record.address, storage.address, number.tobytes())
        loop = _loop(storage.nbytes >= STREAMED_BYTES and storage.address % ISA.bytes == 0)
        tasks.run(loop, job, plan.tasks, self.threads if storage.nbytes >= SHARED_BYTES else 1)
        return out


class _Plan:
    """So many bytes, as tasks of the loop."""

    def __init__(self, nbytes: int) -> None:
        self.tasks = -(-nbytes // fill.TASK_BYTES)
        self.record = Record((self.tasks, nbytes))


@caches.kept
def _plan(nbytes: int) -> _Plan:
    return _Plan(nbytes)


@cache
def _loop(streams: bool) -> machine.Loop:
    """The loop, which may write past the caches."""
    return machine.loop(fill.ir_of(streams))
