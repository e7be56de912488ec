"""RandomOperations: random numbers on the CPU, drawn by loops of vectors (``alpha.cpu.loops.random``)."""

from __future__ import annotations

import struct
from functools import cache

from alpha import caches, random
from alpha.cpu import tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.loops import machine
from alpha.cpu.loops import random as loops
from alpha.cpu.tasks import Record
from alpha.random import Draw
from alpha.tensor import Tensor

_UNIFORM, _NORMAL = struct.Struct("qqQQddd").pack, struct.Struct("qqQQdd").pack


class RandomOperations(HostEngine):
    """The same numbers for any number of threads: each is a function of its place in the sequence."""

    def random(self, draw: Draw) -> Tensor:
        out = self.empty(draw.shape, draw.dtype)
        elements, item = out.numel(), draw.dtype.itemsize
        if not elements:
            return out
        plan, drawn = _plan(elements, item), (out.storage.address, draw.seed, draw.offset)
        if draw.distribution == "uniform":
            job = _UNIFORM(plan.record.address, *drawn, *random.uniform_bounds(draw))
        else:
            job = _NORMAL(plan.record.address, *drawn, draw.second, draw.first)
        tasks.run(_loop(draw.distribution, 8 * item), job, plan.tasks, self.threads)
        return out


class _Plan:
    """So many numbers, as tasks of the loops."""

    def __init__(self, elements: int, item: int) -> None:
        self.tasks = -(-elements * item // (16 * loops.TASK))  # a counter makes 16 bytes
        self.record = Record((self.tasks, elements))


@caches.kept
def _plan(elements: int, item: int) -> _Plan:
    return _Plan(elements, item)


@cache
def _loop(distribution: str, bits: int) -> machine.Loop:
    """The loop of a distribution, for floats of so many bits."""
    return machine.loop(loops.ir_of(distribution, bits))
