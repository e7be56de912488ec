"""RobustLock: a lock that an interrupt, a finalizer, a signal handler or a fork cannot leave held for ever."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

LOOK_SECONDS, LONGEST_LOOK_SECONDS = 2e-3, 64e-3
"""How long a thread waits between two checks of who holds the lock: longer each time it finds a holder."""

LOOKS = 40
"""This many checks in a row must find the lock taken and no holder before it counts as abandoned."""


class RobustLock:
    """Mutual exclusion that outlives the thread that held it, as POSIX's robust mutexes do.

    Python may end a function between any two of its instructions (``KeyboardInterrupt``), run a signal handler or a
    finalizer there, and a forked child inherits locks from threads that it does not have. A waiting thread therefore
    checks from time to time whether any thread executes a function that holds the lock. If none does, the lock was
    abandoned and is replaced. The next holder must expect a change that was begun and not finished. A thread that
    already holds the lock further down its stack is told so instead of waiting for itself.

    The functions that hold the lock are named to it, and each does this, with these names of its variables::

        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return ...  # this very thread holds it, in a function that was interrupted by this one
        try:
            ...
        finally:
            mutex.release()

    ``with lock:`` holds it too, as an ordinary lock that never counts as abandoned.
    """

    __slots__ = ("_codes", "_entered", "_successors", "mutex")

    def __init__(self, *holders: Callable[..., Any]) -> None:
        self.mutex = threading.Lock()
        self._codes: frozenset[CodeType] = frozenset(holder.__code__ for holder in holders)
        self._successors: dict[Any, threading.Lock] = {}
        self._entered: threading.Lock | None = None

    def __enter__(self) -> None:
        while not (mutex := self.mutex).acquire(timeout=LOOK_SECONDS):
            pass
        self._entered = mutex

    def __exit__(self, *_: object) -> None:
        mutex, self._entered = self._entered, None
        if mutex is not None:
            mutex.release()

    def wait(self, mutex: threading.Lock) -> bool:
        """Waits until ``acquire`` is worth another try; True at once if the caller's thread holds the lock already."""
        caller = sys._getframe(1)
        if self._holds(caller.f_back):
            return True
        looks, seconds = 0, LOOK_SECONDS
        while looks < LOOKS:
            if mutex.acquire(timeout=seconds):
                mutex.release()
                return False
            # mutex.locked() does not help: in a forked child it may say False for a lock that cannot be acquired.
            if self._entered is mutex or self._is_occupied():
                looks, seconds = 0, min(2 * seconds, LONGEST_LOOK_SECONDS)
            else:
                looks, seconds = looks + 1, LOOK_SECONDS
        # Several threads may come to this conclusion: they must agree on one successor. The old mutex stays taken.
        self.mutex = self._successors.setdefault(mutex, threading.Lock())
        return False

    def _holds(self, frame: FrameType | None) -> bool:
        """Whether a frame, or one of its callers, runs a function that may hold the lock."""
        while frame is not None:
            if frame.f_code in self._codes and frame.f_locals.get("lock") is self:
                return True
            frame = frame.f_back
        return False

    def _is_occupied(self) -> bool:
        """Whether a thread that does not wait for the lock runs a function that may hold it."""
        threads = sys._current_frames()
        del threads[threading.get_ident()]  # it waits; and a frame that refers to itself would not be freed
        for innermost in threads.values():
            frame: FrameType | None = innermost
            while frame is not None:
                if frame.f_code is _WAIT and frame.f_locals.get("self") is self:
                    break
                if frame.f_code in self._codes and frame.f_locals.get("lock") is self:
                    return True
                frame = frame.f_back
        return False


_WAIT = RobustLock.wait.__code__
