"""Forks: a child finds no lock held by a thread that it does not have."""

from __future__ import annotations

import os
import threading
from typing import Protocol


class Lock(Protocol):
    """What can be taken, also by the thread that has it, and given back."""

    def acquire(self) -> object:
        """Takes it, waiting for another thread that has it."""

    def release(self) -> object:
        """Gives it back."""


def hold_while_forking(lock: Lock) -> None:
    """Has forks wait until no other thread is within a lock, so that what it protects is whole in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def compilation_lock() -> threading.RLock:
    """A lock for compiling one thing once: a signal handler may take it again, and forks wait for it."""
    lock = threading.RLock()
    hold_while_forking(lock)
    return lock
