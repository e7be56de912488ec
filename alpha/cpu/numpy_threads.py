"""Threads that share calls of NumPy's loops, which release the GIL.

The calling thread works too, and waits only for calls that another thread has begun. So a thread that comes late, or
that the system did not give, delays nobody; and an interrupt leaves no thread behind that writes to memory which the
caller frees.
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

_POLL_SECONDS = 0.05
"""How long the caller waits before it looks again, in case an interrupt lost the message that a call ended."""


class _Batch:
    """Calls of one function, for threads to share. Single C calls change its lists and counters: it needs no lock."""

    def __init__(self, function: Callable[..., None], calls: Calls) -> None:
        self._function, self._calls = function, calls
        self._numbers = itertools.count()
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._end_messages: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.errors: list[BaseException] = []

    def work(self) -> None:
        """Makes calls that no thread has begun, until none is left."""
        for number in self._numbers:
            if number >= len(self._calls):
                return
            self._function(*self._calls[number])

    def help(self) -> None:
        """Does what ``work`` does, on a thread other than the one that closes the batch."""
        for number in self._numbers:
            self._begun.append(number)
            calls = self._calls  # read after _begun says so: close() then waits for this call, or has removed the calls
            try:
                if number >= len(calls):
                    return
                self._function(*calls[number])
            except BaseException as error:
                self.errors.append(error)
            finally:
                del calls
                self._ended.append(number)
                self._end_messages.put(None)

    def close(self) -> None:
        """Lets no thread begin another call, and waits for those begun; raises an interrupt only after that."""
        self._calls = ()
        interrupt: BaseException | None = None
        while len(self._ended) < len(self._begun):
            try:
                with suppress(queue.Empty):
                    self._end_messages.get(timeout=_POLL_SECONDS)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


class _Helpers:
    """The threads that help; they start when first needed."""

    def __init__(self) -> None:
        self.batches: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._count = 0

    def want(self, count: int) -> None:
        """Starts threads until there are ``count`` or as many as other processors, or the system gives no more."""
        while self._count < min(count, (os.cpu_count() or 1) - 1):
            self._count += 1  # counted first: an interrupt may cost one thread, but never starts too many
            try:
                threading.Thread(target=_help, args=(self.batches,), name="alpha-cpu-numpy", daemon=True).start()
            except (RuntimeError, MemoryError):  # "can't start new thread": the calls are made without it
                return


def _help(batches: queue.SimpleQueue[_Batch]) -> None:
    while True:
        batches.get().help()


_helpers = _Helpers()


def _after_fork() -> None:
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_after_fork)


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
        batch.close()  # again, if an interrupt came before the first close
    if batch.errors:
        raise batch.errors[0]
