"""Kernels that are called with a record: one call of a C function, without Numba's look at each argument.

A plan packs what a call needs, addresses above all, into bytes. ``kernel(slot, job)`` gets their address, and draws its
tasks from the slot, or does all of them where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from alpha.cpu import workers
from alpha.cpu.compile import Entry, alone, called, entry
from alpha.cpu.sharing import share


class JobKernel:
    """A kernel that is compiled when it first runs; see ``alpha.cpu.kernels.records``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """``function``: the kernel; what it draws its tasks with is ``next_task``."""
        self._function = function
        self.__doc__ = function.__doc__

    def run(self, job: bytes, tasks: int, threads: int) -> None:
        """Runs a job of so many tasks on up to so many threads."""
        if threads == 1 or tasks <= 1:
            self._alone(0, job)
        else:
            record = np.frombuffer(job, np.uint8)
            workers.WORKERS.enter(_launcher(), min(threads, tasks), (self._compiled.address, record.ctypes.data))

    @cached_property
    def _compiled(self) -> Any:
        return called(self._function, "void(int64, int64)", self._function.__name__)

    @cached_property
    def _alone(self) -> Any:
        return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_char_p)(self._compiled.address)


@alone
def _launch(slot, threads, *job):  # type: ignore[no-untyped-def]
    """Runs a job on several threads: the kernel's address, and the record's."""
    return share(slot, threads, job[0], job[1])


@lru_cache(maxsize=1)
def _launcher() -> Entry:
    from numba import types

    return entry(_launch, types.int64, types.int64)
