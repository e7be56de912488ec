"""Side by side: calls of NumPy's loops, which release the GIL, shared among threads of this process.

The calling thread works too, and waits for those calls alone that another thread has begun. So a thread that comes
late, or that the system did not give, holds up nobody; and an interrupt leaves no thread behind that writes to memory
which the caller gives up.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

Calls = Sequence[tuple[Any, ...]]

_LONGEST_WAIT = 0.05
"""Seconds until the caller looks again, should the news of a call's end have been lost to an interrupt."""


class _Batch:
    """Calls of one function. Lists and counters are changed by single C calls, so no lock is needed."""

    def __init__(self, function: Callable[..., None], calls: Calls) -> None:
        self._function, self._calls = function, calls
        self._numbers = itertools.count()
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.errors: list[BaseException] = []

    def work(self) -> None:
        """Makes calls that nobody has begun, until there are none."""
        for number in self._numbers:
            if number >= len(self._calls):
                return
            self._function(*self._calls[number])

    def help(self) -> None:
        """As ``work``, on another thread than the one that closes the batch."""
        for number in self._numbers:
            self._begun.append(number)
            calls = self._calls  # after saying so: who closes the batch then waits, or has left no calls
            try:
                if number >= len(calls):
                    return
                self._function(*calls[number])
            except BaseException as error:
                self.errors.append(error)
            finally:
                del calls
                self._ended.append(number)
                self._news.put(None)

    def close(self) -> None:
        """Has nobody begin another call, and waits for those begun; an interrupt is raised after that."""
        self._calls = ()
        interrupt: BaseException | None = None
        while len(self._ended) < len(self._begun):
            try:
                with suppress(queue.Empty):
                    self._news.get(timeout=_LONGEST_WAIT)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


class _Helpers:
    """The threads that help; they start when first wanted."""

    def __init__(self) -> None:
        self.batches: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._count = 0

    def want(self, count: int) -> None:
        """Starts threads until there are so many, or the system gives no more."""
        while self._count < min(count, (os.cpu_count() or 1) - 1):
            self._count += 1  # first: an interrupt then costs a thread, not the count
            try:
                threading.Thread(target=_help, args=(self.batches,), name="alpha-cpu-numpy", daemon=True).start()
            except (RuntimeError, MemoryError):  # "can't start new thread": the calls are made without it
                return


def _help(batches: queue.SimpleQueue[_Batch]) -> None:
    while True:
        batches.get().help()


_helpers = _Helpers()


def _forget() -> None:
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_forget)


def share(function: Callable[..., None], calls: Calls) -> None:
    """Calls ``function(*call)`` for every call, on this thread and on others that release the GIL meanwhile."""
    batch = _Batch(function, calls)
    try:
        try:
            helpers = _helpers
            helpers.want(len(calls) - 1)
            for _ in calls[1:]:
                helpers.batches.put(batch)
            batch.work()
        finally:
            batch.close()
    finally:
        batch.close()  # once more, if an interrupt came before the first time
    if batch.errors:
        raise batch.errors[0]
