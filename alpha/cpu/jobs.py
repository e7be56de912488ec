"""Kernels that are called with a record: one call of a C function, without Numba's look at each argument.

A plan packs what a call needs, addresses above all, into bytes. ``kernel(slot, job)`` gets their address, and draws its
tasks from the slot, or does all of them where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu import workers
from alpha.cpu.compile import Entry, alone, called, entry
from alpha.cpu.forks import compilation_lock
from alpha.cpu.sharing import share
from alpha.cpu.signatures import COMPILERS

_compiling = compilation_lock()


class JobKernel:
    """A kernel that is compiled when it first runs; see ``alpha.cpu.kernels.records``."""

    def __init__(self, function: Callable[..., Any], name: str, **names: Any) -> None:
        """
        Args:
            function: the kernel; what it draws its tasks with is ``next_task``.
            name: tells it from others made of the same function; ``names`` are globals that it has besides.
        """
        self._function, self._name, self._names = function, name, names
        self._made: tuple[Any, Any] | None = None  # the compiled function, and what calls it
        COMPILERS[f"{function.__module__}.{name}"] = lambda _signature: self._make()

    def run(self, job: bytes, tasks: int, threads: int) -> None:
        """Runs a job of so many tasks on up to so many threads."""
        compiled, alone = self._made or self._make()
        if threads == 1 or tasks <= 1:
            alone(0, job)
        else:
            record = np.frombuffer(job, np.uint8)
            workers.WORKERS.enter(_launcher(), min(threads, tasks), (compiled.address, record.ctypes.data))

    @property
    def address(self) -> int:
        """The compiled function's address, to be called with the slot and the job's address."""
        compiled, _ = self._made or self._make()
        found: int = compiled.address
        return found

    def _make(self) -> tuple[Any, Any]:
        """Compiles the kernel, one thread at a time: two would get one address each, and one function is freed."""
        with _compiling:
            if self._made is None:
                made = called(self._function, "void(int64, int64)", self._name, **self._names)
                self._made = made, ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_char_p)(made.address)
            return self._made


@alone
def _launch(slot, threads, *job):  # type: ignore[no-untyped-def]
    """Runs a job on several threads: the kernel's address, and the record's."""
    return share(slot, threads, job[0], job[1])


@lru_cache(maxsize=1)
def _launcher() -> Entry:
    from numba import types

    return entry(_launch, types.int64, types.int64)
