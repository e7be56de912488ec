"""RandomOperations: random numbers on the CPU, drawn by loops of vectors (``alpha.cpu.loops.random``)."""

from __future__ import annotations

import struct
from functools import cache

from alpha import random
from alpha.cpu import tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.loops import machine
from alpha.cpu.loops import random as loops
from alpha.random import Draw
from alpha.tensor import Tensor

_UNIFORM, _NORMAL = struct.Struct("qqQQqddd").pack, struct.Struct("qqQQqdd").pack


class RandomOperations(HostEngine):
    """The same numbers for any number of threads: each is a function of its place in the sequence."""

    def random(self, draw: Draw) -> Tensor:
        out = self.empty(draw.shape, draw.dtype)
        elements, item = out.numel(), draw.dtype.itemsize
        if not elements:
            return out
        count = -(-elements * item // (16 * loops.TASK))  # a counter makes 16 bytes
        place = out.storage.address, elements, draw.seed, draw.offset, count
        if draw.distribution == "uniform":
            job = _UNIFORM(*place, *random.uniform_bounds(draw))
        else:
            job = _NORMAL(*place, draw.second, draw.first)
        loop = _loop(draw.distribution, 8 * item)
        tasks.run(loop, job, count, self.threads)
        return out


@cache
def _loop(distribution: str, bits: int) -> machine.Loop:
    """The loop of a distribution, for floats of so many bits."""
    return machine.loop(loops.ir_of(distribution, bits))
