"""Workers: this process's native threads, which wait for launches and share them."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from alpha.cpu.board import BOARD, LINE, join, pause
from alpha.cpu.compile import alone

PATIENCE = 1e-3
"""Seconds that a worker watches the board before it goes to sleep: to wake it takes about a tenth of that."""

_ALONE = 64
"""Looks at the board between two offers of the core to other threads, from the _TURNS-th on."""

_TURNS = 1024

_POSIX = os.name == "posix"
_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if _POSIX else None


@alone
def _watch(board, worker, last, turns):  # type: ignore[no-untyped-def]
    """Takes part in jobs until none has come for so many looks at the board; the last job's number."""
    turn = 0
    while turn < turns:
        done = join(board, worker, last)
        if done != last:
            last = done
            turn = 0
            continue
        turn += 1
        pause()
        if _POSIX and turn > _TURNS and turn % _ALONE == 0:
            _yield()
    return last


class _OwnBoard(threading.local):
    """A board for each Python thread, on which it launches what it runs alone."""

    def __init__(self) -> None:
        self._memory, self.address = _new_board()


def _new_board() -> tuple[Any, int]:
    """An empty board: what keeps its memory, and its address."""
    memory = np.zeros(BOARD + LINE, np.uint8)
    return memory, -(-memory.ctypes.data // LINE) * LINE


class Workers:
    """Threads that share one launch at a time. They start when first wanted, and sleep while nothing is launched.

    The launching thread computes too and waits only for workers that have joined: one that is asleep, or whose core is
    taken by another process, makes a launch no slower than it would be without it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory, self._board = _new_board()
        self._own = _OwnBoard()
        self._threads: list[threading.Thread] = []
        self._gates: list[threading.Lock] = []  # a worker sleeps at its own, which a launch opens
        self._asleep: list[bool] = []
        self._stopping = False
        self._turns = 0

    def run(self, kernel: Callable[..., Any], threads: int, arguments: tuple[Any, ...]) -> Any:
        """Runs a compiled kernel on up to so many threads, this one among them; the sum of their results."""
        if threads == 1:
            return kernel(self._own.address, 1, *arguments)
        with self._lock:
            for worker in range(threads - 1):
                if worker == len(self._threads):
                    self._start()
                if self._asleep[worker]:
                    self._asleep[worker] = False
                    self._gates[worker].release()
            return kernel(self._board, threads, *arguments)

    def _start(self) -> None:
        if not self._turns:
            self._turns = _turns(self._board)
        worker = len(self._threads)
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        self._asleep.append(False)
        thread = threading.Thread(target=self._work, args=(worker,), name=f"alpha-cpu-{worker + 1}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, worker: int) -> None:
        last = 0
        while not self._stopping:
            last = _watch(self._board, worker + 1, last, self._turns)
            self._asleep[worker] = True
            self._gates[worker].acquire()

    def stop(self) -> None:
        """Ends the threads, before the interpreter takes down what they stand on."""
        with self._lock:
            self._stopping = True
            for gate, asleep in zip(self._gates, self._asleep, strict=True):
                if asleep:
                    gate.release()
        for thread in self._threads:
            thread.join(1)


def _turns(board: int) -> int:
    """Looks at an empty board that take about ``PATIENCE``."""
    tried = 20_000
    _watch(board, 0, 0, 1)  # compiled
    start = time.perf_counter()
    _watch(board, 0, 0, tried)
    return max(1, int(tried * PATIENCE / (time.perf_counter() - start)))


WORKERS = Workers()
"""This process's."""


def _at_exit() -> None:
    WORKERS.stop()


def _after_fork() -> None:
    """A child has none of its parent's threads, and may find a lock held by one."""
    global WORKERS
    WORKERS = Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
