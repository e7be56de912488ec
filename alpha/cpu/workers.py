"""Workers: this process's native threads, which wait for launches and share them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.compiler_lock import global_compiler_lock

from alpha.cpu import forks, sleep
from alpha.cpu.board import BEDS, BOARD, LINE, STOP, pause, stopping, store
from alpha.cpu.compile import Entry, alone
from alpha.cpu.sharing import join
from alpha.locks import RobustLock

_log = logging.getLogger(__name__)

PATIENCE = 1e-3
"""Seconds that a worker watches the board before it goes to sleep: to wake it takes a small part of that."""

_ALONE = 64
"""Looks at the board between two offers of the core to other threads, from the _TURNS-th on."""

_TURNS = 1024

_POSIX = os.name == "posix"
_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if _POSIX else None


@alone
def _watch(board, bed, worker, last, turns):  # type: ignore[no-untyped-def]
    """Takes part in jobs until the workers are to end, asleep after so many looks at the board in vain; -1.

    Without a bed it returns after so many looks, with the last job's number.
    """
    turn = 0
    while not stopping(board):
        done = join(board, worker, last)
        if done != last:
            last = done
            turn = 0
            continue
        turn += 1
        pause()
        if _POSIX and turn > _TURNS and turn % _ALONE == 0:
            _yield()
        if turn >= turns:
            if bed == 0:
                return last
            if sleep.SLEEPS:
                sleep.rest(board, bed, last)
            turn = 0
    return -1


@alone
def _make_bed(bed):  # type: ignore[no-untyped-def]
    return sleep.make(bed)


@alone
def _write(address, value):  # type: ignore[no-untyped-def]
    store(address, value)


@alone
def _stop(board, workers):  # type: ignore[no-untyped-def]
    """Has the workers end, the sleeping ones too."""
    store(board + STOP, 1)
    if sleep.SLEEPS:
        sleep.wake(board, workers)


class _OwnBoard(threading.local):
    """A board for each Python thread, on which it launches what it runs alone."""

    def __init__(self) -> None:
        self._memory, self.address = _lines(BOARD)


def _lines(nbytes: int) -> tuple[Any, int]:
    """Zeroed memory that begins with a cache line: what keeps it, and its address."""
    memory = np.zeros(nbytes + LINE, np.uint8)
    return memory, -(-memory.ctypes.data // LINE) * LINE


class Workers:
    """Threads that share one launch at a time. They start when first wanted, and sleep while nothing is launched.

    The launching thread computes too and waits only for workers that have joined: one that is asleep, or whose core is
    taken by another process, makes a launch no slower than it would be without it. Where the system gives no more
    threads, launches do with those that there are.
    """

    def __init__(self) -> None:
        self._lock = RobustLock(Workers.run, Workers.enter)
        self._memory, self._board = _lines(BOARD)
        self._own = _OwnBoard()
        self._threads: list[threading.Thread] = []
        self._beds: list[tuple[Any, int]] = []
        self._enlisting = threading.Lock()  # taken by workers alone, which no signal handler interrupts
        self._turns = 0
        self._most: int | None = None  # workers that the system gives, once it has refused one

    def run(self, kernel: Callable[..., Any], threads: int, arguments: tuple[Any, ...]) -> Any:
        """Runs a compiled kernel on up to so many threads, this one among them; the sum of their results."""
        if threads == 1:
            return kernel(self._own.address, 1, *arguments)
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return kernel(self._own.address, 1, *arguments)
        try:
            return kernel(self._shared_board(threads), threads, *arguments)
        finally:
            mutex.release()

    def enter(self, entry: Entry, threads: int, arguments: tuple[Any, ...]) -> Any:
        """As ``run``, by a kernel's entry for the types of these arguments (``alpha.cpu.compile.entry``)."""
        if threads == 1:
            return entry(self._own.address, 1, arguments)
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return entry(self._own.address, 1, arguments)
        try:
            return entry(self._shared_board(threads), threads, arguments)
        finally:
            mutex.release()

    def _shared_board(self, threads: int) -> int:
        """The board that so many threads look at; the lock is held."""
        while len(self._threads) < threads - 1 and self._most is None:
            self._start(threads)
        return self._board

    def _start(self, wanted: int) -> None:
        """Starts a worker of the threads that are wanted, and waits until it has enlisted."""
        if not self._turns:
            self._turns = _turns()
        enlisted, before = threading.Lock(), len(self._threads)
        enlisted.acquire()
        # What the worker writes to is kept by what it calls: this object may be gone before it ends.
        arguments = (self._threads, self._beds, self._enlisting, self._memory, self._board, self._turns, enlisted)
        try:
            threading.Thread(target=_work, args=arguments, name="alpha-cpu", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # "can't start new thread"
            self._do_without(wanted, error)
            return
        enlisted.acquire()
        if len(self._threads) == before:
            self._do_without(wanted, "no memory for a worker")

    def _do_without(self, wanted: int, cause: object) -> None:
        """Notes that the system gives no more workers, and says so."""
        self._most = len(self._threads)
        _log.warning(
            "[cpu] expected %d threads to compute with, got %d (%s): results are the same, only slower; raise the "
            "limit on threads, or ask for fewer with alpha.engine('cpu', threads=...)",
            wanted,
            self._most + 1,
            cause,
        )

    def stop(self) -> None:
        """Ends the threads, before the interpreter takes down what they stand on."""
        if not self._threads:
            return
        _stop(self._board, len(self._threads))
        for thread in self._threads:
            thread.join(1)


def _work(
    threads: list[threading.Thread],
    beds: list[tuple[Any, int]],
    enlisting: threading.Lock,
    _board_memory: Any,
    board: int,
    turns: int,
    enlisted: threading.Lock,
) -> None:
    """A worker's life. It enlists by itself: an interrupt of the launching thread leaves no half of a worker."""
    try:
        memory, bed = _lines(sleep.BED)
        sleeps = sleep.SLEEPS and _make_bed(bed) == 0
        with enlisting:
            _write(bed + sleep.THREAD, threading.get_native_id())
            _write(beds[-1][1] + sleep.NEXT if beds else board + BEDS, bed)
            beds.append((memory, bed))
            threads.append(threading.current_thread())
            worker = len(threads)
    except MemoryError:
        return
    finally:
        enlisted.release()  # enlisted or not: the launching thread waits for this
    last = 0
    while last >= 0:
        last = _watch(board, bed if sleeps else 0, worker, last, turns)
        if not sleeps:
            time.sleep(PATIENCE)


def _turns() -> int:
    """Looks at an empty board that take about ``PATIENCE``."""
    _memory, board = _lines(BOARD)
    tried = 20_000
    _watch(board, 0, 0, 0, 1)  # compiled
    start = time.perf_counter()
    _watch(board, 0, 0, 0, tried)
    elapsed = time.perf_counter() - start
    _stop(board, 0)  # compiled now, not while the interpreter ends
    return max(1, int(tried * PATIENCE / elapsed))


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
forks.hold_while_forking(global_compiler_lock)
atexit.register(_at_exit)
