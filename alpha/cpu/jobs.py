"""Kernels that are called with a record: one call of a C function, without Numba's look at each argument.

A plan packs what a call needs, addresses above all, into bytes. ``kernel(slot, job)`` gets their address, and draws its
tasks from the slot, or does all of them where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from alpha.cpu import workers
from alpha.cpu.compile import called
from alpha.cpu.forks import compilation_lock
from alpha.cpu.loops.machine import Entries
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
            workers.WORKERS.share(compiled.address, job, min(threads, tasks))

    @property
    def entries(self) -> Entries:
        """How launches call the compiled function."""
        compiled, _ = self._made or self._make()
        return Entries(compiled.address, compiled.address, takes_slot=True)

    def _make(self) -> tuple[Any, Any]:
        """Compiles the kernel, one thread at a time: two would get one address each, and one function is freed."""
        with _compiling:
            if self._made is None:
                made = called(self._function, "void(int64, int64)", self._name, **self._names)
                self._made = made, ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_char_p)(made.address)
            return self._made
