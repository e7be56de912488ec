"""RandomOperations: random numbers on the CPU, drawn by loops of vectors (``alpha.cpu.loops.random``)."""

from __future__ import annotations

import struct
from functools import cache

from alpha import caches, random
from alpha.cpu import tapes, tasks
from alpha.cpu.base import HostEngine
from alpha.cpu.launches import Call, Word, call_of, constant, learn, of_number, of_result
from alpha.cpu.loops import machine
from alpha.cpu.loops import random as loops
from alpha.cpu.tasks import Record
from alpha.launches import RANDOM
from alpha.random import Draw
from alpha.tensor import Tensor

_SIGN_BIT = 1 << 63


class RandomOperations(HostEngine):
    """The same numbers for any number of threads: each is a function of its place in the sequence."""

    def random(self, draw: Draw) -> Tensor:
        what = draw.distribution, draw.shape, draw.dtype, draw.first, draw.second
        place = _signed(draw.seed), _signed(draw.offset)
        found: Tensor | None = RANDOM.launch(self, *what, *place)
        if found is not None:
            return found
        out = self.empty(draw.shape, draw.dtype)
        elements, item = out.numel(), draw.dtype.itemsize
        if not elements:
            return out
        plan, numbers = _plan(elements, item), _numbers(draw)
        job = struct.pack(f"{4 + len(numbers)}q", plan.record.address, out.storage.address, *place, *numbers)
        refresh = self.redrawn(draw.seed, draw.offset, draw.words)
        live = None if refresh is None else tapes.Live(16, refresh)
        tasks.run(_loop(draw.distribution, 8 * item), job, plan.tasks, self.threads, live)
        learn(RANDOM, self, lambda: _call(draw, out, plan), self, *what, *place)
        return out


def _signed(word: int) -> int:
    """The integer of 64 bits that has the bits of an unsigned one."""
    return (word ^ _SIGN_BIT) - _SIGN_BIT


def _numbers(draw: Draw) -> list[int]:
    """The bits of what a job says of the distribution."""
    is_uniform = draw.distribution == "uniform"
    numbers = random.uniform_bounds(draw) if is_uniform else (draw.second, draw.first)
    return list(struct.unpack(f"{len(numbers)}q", struct.pack(f"{len(numbers)}d", *numbers)))


def _call(draw: Draw, out: Tensor, plan: _Plan) -> Call:
    """How a launch draws such numbers from another place."""
    numbers: list[Word] = [constant(bits) for bits in _numbers(draw)]
    job = (constant(plan.record.address), of_result(), of_number(0), of_number(1), *numbers)
    loop = _loop(draw.distribution, 8 * draw.dtype.itemsize)
    call = call_of(loop, job, (out,), out.numel(), plan.tasks, plan)
    return call._replace(limits=(-_SIGN_BIT, _SIGN_BIT - 1))


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
