"""A reference that threads, signal handlers and finalizers replace without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    """A value, and under the key 0 the node that replaced it."""

    __slots__ = ("successor", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.successor: dict[int, _Node[T]] = {}


class AtomicReference(Generic[T]):
    """A value with compare-and-set, by one call of ``dict.setdefault``, which nothing interrupts.

    A lock could stay held for ever: after an interrupt just when it was taken, by a thread that a fork does not copy,
    or by this very thread, below a signal handler that needs it too.
    """

    def __init__(self, value: T) -> None:
        self._node = _Node(value)

    def get(self) -> T:
        """The current value."""
        node = self._node
        return self._last().value if node.successor else node.value

    def replace(self, expected: T, value: T) -> bool:
        """Replaces the value by ``value`` if it is still ``expected``; returns whether it was."""
        node, new = self._last(), _Node(value)
        replaced = node.value is expected and node.successor.setdefault(0, new) is new
        self._last()  # frees the old value
        return replaced

    def update(self, change: Callable[[T], T]) -> None:
        """Replaces the value by what ``change`` makes of it."""
        while not self.replace(old := self.get(), change(old)):
            continue

    def _last(self) -> _Node[T]:
        node = self._node
        while node.successor:
            node = node.successor[0]
        self._node = node  # a short cut; a slower thread may set it back, but the same chain leads on from there
        return node
