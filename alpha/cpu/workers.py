"""Workers: this process's native threads, which take part in launched jobs and sleep in between."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.changes import Action
from alpha.cpu import sleep
from alpha.cpu.atomics import store
from alpha.cpu.compile import Entry, NativeFunction, alone
from alpha.cpu.job_slot import CACHE_LINE, JOB_SLOT, MAX_SHARES, NO_MORE, SHARE, must_stop
from alpha.cpu.sharing import draw, give_back, join, run, take
from alpha.locks import RobustLock

_log = logging.getLogger(__name__)

SPIN_SECONDS = 1e-3
"""How long a worker looks for a job before it goes to sleep: to wake it takes a small part of that."""


@alone
def _take_part_in_jobs(slot, sleeper, worker, last, max_looks):  # type: ignore[no-untyped-def]
    """Takes part in jobs until the workers must end, and sleeps after ``max_looks`` looks for one in vain; returns -1.

    Without a sleeper (0) it returns after so many looks, with the last job's number.
    """
    looks = 0
    while not must_stop(slot):
        done = join(slot, worker, last)
        if done != last:
            last = done
            looks = 0
            continue
        looks += 1
        sleep.wait_a_moment(looks)
        if looks >= max_looks:
            if sleeper == 0:
                return last
            if sleep.CAN_SLEEP:
                sleep.sleep_until_woken(slot, sleeper, last)
            looks = 0
    return -1


@alone
def _initialize_sleeper(sleeper):  # type: ignore[no-untyped-def]
    return sleep.initialize(sleeper)


@alone
def _write(address, value):  # type: ignore[no-untyped-def]
    store(address, value)


@alone
def _stop(slot, workers):  # type: ignore[no-untyped-def]
    """Makes the workers end, the sleeping ones too."""
    store(slot + JOB_SLOT.stop, 1)
    if sleep.CAN_SLEEP:
        sleep.wake(slot, workers)


def _run_job(slot, threads, function, job, is_taken):  # type: ignore[no-untyped-def]
    """Runs ``function(share, job)``, which draws the job's tasks, on up to so many threads with this one.

    ``is_taken``: whether this thread has the slot already, and so only gives it back.
    """
    if threads > 1 and is_taken == 0:
        take(slot)
    run(slot, threads, function, job)
    if threads > 1:
        give_back(slot)


_number = ctypes.c_int64
_RUN_JOB = NativeFunction(_run_job, "run_job", (_number, _number, _number, ctypes.c_char_p, _number))
_DRAW = NativeFunction(draw, "draw", (_number, _number), result=_number)


class _ThreadSlot(threading.local):
    """A job slot per Python thread, for what the thread runs without workers."""

    address = 0
    """Where it is, once it has been prepared."""

    def __init__(self) -> None:
        self._memories: list[Any] = []

    def prepare(self) -> int:
        """Makes the slot; returns its address. A signal handler may do the same meanwhile: both memories are kept."""
        memory, slot = new_slot()
        _write(slot + JOB_SLOT.draw, _DRAW.address)
        self._memories.append(memory)
        self.address = slot
        return slot


def new_slot(more: int = 0) -> tuple[Any, int]:
    """A job slot: the array that holds it, and its address. The addresses of functions are yet to be written.

    ``more``: bytes of zeros behind it.
    """
    memory, slot = _aligned_zeros(JOB_SLOT.nbytes + more)
    for place in range(MAX_SHARES):
        share = slot + JOB_SLOT.shares + place * SHARE.nbytes
        ctypes.c_int64.from_address(share + SHARE.slot).value = slot
        ctypes.c_int64.from_address(share + SHARE.place).value = place
    return memory, slot


def _aligned_zeros(nbytes: int) -> tuple[Any, int]:
    """Zeroed memory: the array that holds it, and an address in it that begins a cache line."""
    memory = np.zeros(nbytes + CACHE_LINE, np.uint8)
    return memory, -(-memory.ctypes.data // CACHE_LINE) * CACHE_LINE


class Workers:
    """Threads that share one job at a time. They start when first needed, and sleep while there is none.

    The thread that launches a job computes too and waits only for workers that have joined: one that is asleep, or
    whose core is taken by another process, makes a job no slower than it would be without it. Where the system gives no
    more threads, jobs run on those that there are. Jobs of several Python threads come one after the other; those of
    ``alpha.cpu.launches`` run on their thread alone while another job has the workers.
    """

    def __init__(self) -> None:
        self._lock = RobustLock(Workers._start_missing)
        self._memory, self._slot = new_slot()
        self._thread_slot = _ThreadSlot()
        self._threads: list[threading.Thread] = []
        self._sleepers: list[tuple[Any, int]] = []  # the memory of each, and its address
        self._enlisting = threading.Lock()  # taken by workers alone, which no signal handler interrupts
        self._looks_before_sleep = 0
        self._max_workers: int | None = None  # workers that the system gives, once it has refused one

    def run(self, kernel: Callable[..., Any], threads: int, arguments: tuple[Any, ...]) -> Any:
        """Runs a compiled kernel on up to ``threads`` threads with this one; returns the sum of their results."""
        return kernel(self._slot_for(threads), threads, *arguments)

    def enter(self, entry: Entry, threads: int, arguments: tuple[Any, ...]) -> Any:
        """Like ``run``, but calls a kernel's entry for the types of these arguments (``alpha.cpu.compile.entry``)."""
        return entry(self._slot_for(threads), threads, arguments)

    def share(self, function: int, job: bytes, threads: int) -> None:
        """Runs ``function(share, job)``, an address, on up to ``threads`` threads; it draws the job's tasks."""
        call, *arguments = self.sharing(function, job, threads)
        call(*arguments)

    def sharing(self, function: int, job: bytes, threads: int) -> Action:
        """``share`` as an action, with the workers started."""
        return _RUN_JOB.call, self._slot_for(threads), threads, function, job, 0

    def play(self, loop: Callable[..., Any], threads: int, *given: int) -> Any:
        """Runs the native loop of a tape (``alpha.cpu.tapes``), whose calls have up to ``threads`` threads each."""
        return loop(*given, self._slot_for(threads), self._slot_for(1))

    def _slot_for(self, threads: int) -> int:
        """The slot that the workers watch, once ``threads - 1`` of them have started; for one thread its own."""
        if threads == 1:
            return self._thread_slot.address or self._thread_slot.prepare()
        if len(self._threads) < threads - 1 and self._max_workers is None:
            self._start_missing(threads)
        return self._slot

    def _start_missing(self, threads: int) -> None:
        """Starts workers until there are ``threads - 1``, one Python thread at a time."""
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return  # this very thread is starting them, further down its stack
        try:
            while len(self._threads) < threads - 1 and self._max_workers is None:
                self._start(threads)
        finally:
            mutex.release()

    def _start(self, wanted: int) -> None:
        """Starts a worker of the ``wanted`` threads, and waits until it has enlisted."""
        if not self._looks_before_sleep:
            _write(self._slot + JOB_SLOT.run, _RUN_JOB.address)
            _write(self._slot + JOB_SLOT.draw, _DRAW.address)
            self._looks_before_sleep = _looks_in(SPIN_SECONDS)
        enlisted, before = threading.Lock(), len(self._threads)
        enlisted.acquire()
        # The worker holds what it writes to itself: this object may be gone before it ends.
        arguments = (
            self._threads, self._sleepers, self._enlisting, self._memory, self._slot,
            self._looks_before_sleep, enlisted,
        )  # fmt: skip
        try:
            threading.Thread(target=_work, args=arguments, name="alpha-cpu", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # "can't start new thread"
            self._do_without(wanted, error)
            return
        enlisted.acquire()
        if len(self._threads) == before:
            self._do_without(wanted, "no memory for a worker")

    def _do_without(self, wanted: int, cause: object) -> None:
        """Notes that the system gives no more workers, and logs it."""
        _write(self._slot + JOB_SLOT.ready, NO_MORE)
        self._max_workers = len(self._threads)
        _log.warning(
            "[cpu] expected %d threads to compute with, got %d (%s): results are the same, only slower; raise the "
            "limit on threads, or ask for fewer with alpha.engine('cpu', threads=...)",
            wanted,
            self._max_workers + 1,
            cause,
        )

    def stop(self) -> None:
        """Ends the threads, before the interpreter frees what they use."""
        if not self._threads:
            return
        _stop(self._slot, len(self._threads))
        for thread in self._threads:
            thread.join(1)


def _work(
    threads: list[threading.Thread],
    sleepers: list[tuple[Any, int]],
    enlisting: threading.Lock,
    _slot_memory: Any,
    slot: int,
    looks_before_sleep: int,
    enlisted: threading.Lock,
) -> None:
    """What a worker runs. It enlists by itself: an interrupt of the launching thread leaves no half of a worker."""
    try:
        memory, sleeper = _aligned_zeros(sleep.SLEEPER.nbytes)
        can_sleep = sleep.CAN_SLEEP and _initialize_sleeper(sleeper) == 0
        with enlisting:
            _write(sleeper + sleep.SLEEPER.thread, threading.get_native_id())
            _write(sleepers[-1][1] + sleep.SLEEPER.next if sleepers else slot + JOB_SLOT.first_sleeper, sleeper)
            sleepers.append((memory, sleeper))
            threads.append(threading.current_thread())
            worker = len(threads)
            _write(slot + JOB_SLOT.ready, worker + 1)
    except MemoryError:
        return
    finally:
        enlisted.release()  # even if it failed: the launching thread waits for this
    last = 0
    while last >= 0:
        last = _take_part_in_jobs(slot, sleeper if can_sleep else 0, worker, last, looks_before_sleep)
        if not can_sleep:
            time.sleep(SPIN_SECONDS)


def _looks_in(seconds: float) -> int:
    """How often a worker looks at an empty job slot in so many seconds, about."""
    _memory, slot = new_slot()
    tried = 20_000
    _take_part_in_jobs(slot, 0, 0, 0, 1)  # compiles it
    start = time.perf_counter()
    _take_part_in_jobs(slot, 0, 0, 0, tried)
    elapsed = time.perf_counter() - start
    _stop(slot, 0)  # compiles it now, not while the interpreter ends
    return max(1, int(tried * seconds / elapsed))


WORKERS = Workers()
"""The workers of this process, which all CPU engines share."""

SLOT = np.array([WORKERS._slot], np.int64)
"""The address of their job slot, for launches, which look here each time; 0 where a launch runs on its thread alone."""


def _at_exit() -> None:
    SLOT[0] = 0  # whatever is launched later, by finalizers, may find the slot's memory gone
    WORKERS.stop()


def _after_fork() -> None:
    """A child process has none of its parent's threads, and may find a lock held by one, or the slot taken."""
    global WORKERS
    WORKERS = Workers()
    SLOT[0] = WORKERS._slot


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
