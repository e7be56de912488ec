"""Locks that no other thread holds while the process forks: a child has only the thread that forked."""

from __future__ import annotations

import os
import threading
from typing import Protocol

from numba.core.compiler_lock import global_compiler_lock


class Lock(Protocol):
    """A reentrant lock."""

    def acquire(self) -> object:
        """Takes the lock, waiting for another thread that holds it."""

    def release(self) -> object:
        """Gives the lock back."""


def hold_while_forking(lock: Lock) -> None:
    """Makes forks wait until no other thread holds the lock, so that what it protects is complete in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def compilation_lock() -> threading.RLock:
    """A lock for compiling one thing once: a signal handler may take it again, and forks wait for it."""
    lock = threading.RLock()
    hold_while_forking(lock)
    return lock


# Numba's lock is registered before all of ours, so that a fork, which takes the last one first, takes it behind them,
# as a thread that compiles does.
hold_while_forking(global_compiler_lock)
