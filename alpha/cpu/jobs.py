"""Kernels that are called with a record: one call of a C function, without Numba's look at each argument.

A plan packs what a call needs, addresses above all, into bytes. ``kernel(share, job)`` gets their address, and draws
its tasks by its share, or does all of them where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from alpha.cpu import tapes, workers
from alpha.cpu.compile import NativeFunction
from alpha.cpu.loops.machine import Entries


class JobKernel(NativeFunction):
    """A kernel that is compiled when it first runs; see ``alpha.cpu.kernels.records``."""

    def __init__(self, function: Callable[..., Any], name: str, **names: Any) -> None:
        """``function``: the kernel, which draws its tasks with ``next_task``; the rest as for ``NativeFunction``."""
        super().__init__(function, name, (ctypes.c_int64, ctypes.c_char_p), **names)

    def run(self, job: bytes, tasks: int, threads: int) -> None:
        """Runs a job of so many tasks on up to so many threads."""
        compiled, alone = self._made or self._make()
        tape = tapes.tape()
        if tape is not None:
            tape.run(self, job, tasks, threads)
        elif threads == 1 or tasks <= 1:
            alone(0, job)
        else:
            workers.WORKERS.share(compiled.address, job, min(threads, tasks))

    @property
    def entries(self) -> Entries:
        """How launches call the compiled function."""
        return Entries(self.address, self.address, takes_share=True)
