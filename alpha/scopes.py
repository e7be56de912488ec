"""Scoped: the base of context managers whose end no interrupt can prevent."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, overload


class _Local(threading.local):
    """What one thread has entered with one context manager."""

    def __init__(self) -> None:
        self.locks: list[threading.Lock] = []
        self.entering = False


class _Enter:
    """The descriptor behind ``__enter__``: prepares a lock, which the ``with`` statement then takes by a C call."""

    @overload
    def __get__(self, scoped: None, owner: type) -> Callable[[Scoped], object]: ...
    @overload
    def __get__(self, scoped: Scoped, owner: type) -> Callable[[], object]: ...
    def __get__(self, scoped: Scoped | None, owner: type) -> Callable[..., object]:
        if scoped is None:
            return self
        lock = threading.Lock()
        local = scoped._local
        _drop_released(local.locks)
        local.locks.append(lock)
        local.entering = True
        scoped.prepare(Scope(lock))
        return lock.acquire

    def __call__(self, scoped: Scoped) -> object:
        return scoped.__enter__()


class _Exit:
    """The descriptor behind ``__exit__``: the C function that releases the lock."""

    @overload
    def __get__(self, scoped: None, owner: type) -> Callable[..., None]: ...
    @overload
    def __get__(self, scoped: Scoped, owner: type) -> Callable[..., None]: ...
    def __get__(self, scoped: Scoped | None, owner: type) -> Callable[..., None]:
        if scoped is None:
            return self
        local = scoped._local
        if not local.entering:  # called by hand: the last one that is still entered
            _drop_released(local.locks)
        local.entering = False
        return local.locks[-1].__exit__

    def __call__(self, scoped: Scoped, *error: Any) -> None:
        scoped.__exit__(*error)


def _drop_released(locks: list[threading.Lock]) -> None:
    while locks and not locks[-1].locked():
        locks.pop()


class Scope:
    """The extent of one ``with`` block: open from when the block is entered until it is left, in whatever way."""

    __slots__ = ("_lock",)

    def __init__(self, lock: threading.Lock) -> None:
        # Weakly: the interpreter holds the lock as long as the block runs, and an unwound block leaves none.
        self._lock = weakref.ref(lock)

    @property
    def is_open(self) -> bool:
        """Whether the block is running."""
        lock = self._lock()
        return lock is not None and lock.locked()

    @property
    def is_over(self) -> bool:
        """Whether the block cannot run any more; one that is about to be entered is neither open nor over."""
        return self._lock() is None


class Scoped:
    """A context manager that may be entered several times, in any threads.

    An interrupt can come between any two instructions of a Python ``__enter__`` or ``__exit__``: what they switch then
    stays switched. Here a ``with`` block merely takes and releases a lock, which is one C call each; whoever wants to
    know asks whether the ``Scope`` is open.
    """

    __enter__ = _Enter()
    __exit__ = _Exit()

    def __init__(self) -> None:
        self._local = _Local()

    def prepare(self, scope: Scope) -> None:
        """Called on the thread that is about to enter a ``with`` block, with the block's scope."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with prepare, got none: write one")
