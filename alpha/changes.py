"""Changes that are made completely or not at all, even if an interrupt comes.

A KeyboardInterrupt may come between any two instructions of Python code. So everything that a change needs is computed
first, and then assigned by one call of a function written in C (``at_once``): CPython handles signals, and traces, only
in Python code, so before or after that call. A change that has to run Python code on the way, such as copies to a
device, consists of steps that may be repeated: if an interrupt comes after the first has begun, the rest is finished
before the interrupt is passed on.
"""

from __future__ import annotations

import operator
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat, starmap
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from alpha.tensor import Tensor

Action = tuple[Any, ...]
"""A function written in C that runs no Python code, and its arguments."""

# The module in C, where there is one: it does not make names of numbers, which takes longer than all the rest.
_signals: Any = sys.modules.get("_signal", signal)
_SIGINT = int(signal.SIGINT)

_TRIES = 1000
"""How often a change is resumed that interrupts hit even while it is being resumed."""


def at_once(actions: Iterable[Action]) -> None:
    """Calls ``function(*arguments)`` for each action, in one C call: an interrupt finds all done or none."""
    deque(starmap(operator.call, actions), 0)


def setting(owner: object, name: str, value: Any) -> Action:
    """The action ``owner.name = value``, without any ``__setattr__`` that is written in Python."""
    return object.__setattr__, owner, name, value


def putting(table: dict[Any, Any], key: Any, value: Any) -> Action:
    """The action ``table[key] = value``."""
    return dict.__setitem__, table, key, value


def appending(items: list[Any], value: Any) -> Action:
    """The action ``items.append(value)``."""
    return list.append, items, value


def taking(tensor: Tensor, other: Tensor) -> list[Action]:
    """Gives a tensor the memory of another one, and how that lies there."""
    parts = "storage", "offset", "address", "shape", "strides", "dtype"
    view = setting(tensor, "_array", None)  # the engine's, of the memory it had
    return [*[setting(tensor, name, getattr(other, name)) for name in parts], view]


def versions(tensors: Iterable[Tensor]) -> list[Action]:
    """The actions that give new versions to the storages of tensors that are written to."""
    storages = [tensor.storage for tensor in tensors]
    found: list[Action] = [(setattr, storage, "version", storage.version + 1) for storage in storages]
    heard = [storage for storage in storages if storage.waiting is not None or storage.is_mirrored]
    if heard:
        found += [(storage.tell_written,) for storage in heard if storage.waiting is not None]
        found += [(storage.repeat,) for storage in heard if storage.is_mirrored]
    return found


class Changes:
    """Collects changes, which ``make`` then makes at once."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._written: list[Tensor] = []
        self._kept: list[Any] = []
        self._begun = False
        # Not an attribute of this, which its own actions would then keep, with all that they change.
        self._made: list[bool] = []

    def add(self, *actions: Action) -> None:
        """Adds actions."""
        self._actions += actions

    def set(self, owner: object, name: str, value: Any) -> None:
        """Adds ``owner.name = value``."""
        # The old value is kept until all is done: freeing it may run Python code.
        self._kept.append(getattr(owner, name, None))
        self._actions.append(setting(owner, name, value))

    def take(self, tensor: Tensor, other: Tensor) -> None:
        """Adds giving a tensor the memory of another one, and how that lies there."""
        self._kept += [tensor.storage, tensor._array]
        self._actions += taking(tensor, other)

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Adds ``table[key] = value``."""
        self._kept.append(table.get(key))
        self._actions.append(putting(table, key, value))

    def write(self, out: Tensor, values: np.ndarray[Any, Any]) -> None:
        """Adds copying an array of a tensor's shape into its memory; the array must not share that memory."""
        engine = out.engine
        source = np.asarray(values, out.dtype)
        action = engine.storing(source, out)
        if action is None:
            self._copies.append((engine.from_numpy(source), out))
        else:
            self._actions.append(action)
        self._written.append(out)

    def make(self) -> None:
        """Makes all changes; after an interrupt, all or none of them are made."""
        self._actions += versions(self._written)
        self._actions.append(appending(self._made, True))
        if not self._copies:
            at_once(self._actions)
            return
        try:
            self._run()
        except BaseException:
            if self._begun:
                finish(self._run)
            raise

    def _run(self) -> None:
        """Makes all changes from the start; to repeat one changes nothing."""
        if self._made:
            return
        self._begun = True
        for source, out in self._copies:
            out.engine.copy(source, out)
        at_once(self._actions)


class Rewriting:
    """Overwrites tensors, one after another, by values that are computed from them: all of them, or none.

    Each value is computed into new memory and then copied: copying may be repeated, computing may not.

    Args:
        values: tensors, each with the function that computes its new value.
        actions: actions to run when all tensors are written.
    """

    def __init__(self, values: Sequence[tuple[Tensor, Callable[[], Tensor]]], actions: Sequence[Action] = ()) -> None:
        self._values = values
        self._actions = list(actions)
        self._next = 0
        self._computed: Tensor | None = None
        self._made = False

    def make(self) -> None:
        """Computes and writes all values."""
        try:
            self._run()
        except BaseException:
            if self._next or self._computed is not None:
                finish(self._run)
            raise

    def _run(self) -> None:
        while self._next < len(self._values):
            out, compute = self._values[self._next]
            if self._computed is None:
                self._computed = compute()
            out.engine.copy(self._computed, out)
            done = self._computed  # freed after the actions, since freeing may run Python code
            at_once([*versions([out]), setting(self, "_computed", None), setting(self, "_next", self._next + 1)])
            del done
        if not self._made:
            at_once([*self._actions, setting(self, "_made", True)])


def clear_gradients(tensors: Sequence[Tensor]) -> None:
    """Drops the gradients of all tensors; if interrupted, of all or none."""
    kept = [tensor.grad for tensor in tensors]  # until all are dropped: freeing one may run Python code
    deque(map(object.__setattr__, tensors, repeat("grad"), repeat(None)), 0)
    del kept


def fill_with_zeros(tensors: Sequence[Tensor]) -> None:
    """Writes zeros into all tensors; if interrupted, into all or none."""
    changes = Changes()
    for tensor in tensors:
        changes.write(tensor, np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape))
    changes.make()


def finish(run: Callable[[], None]) -> None:
    """Calls a function that resumes its work, again after each interrupt, until it has finished."""
    for _ in range(_TRIES):
        try:
            while True:
                try:
                    run()
                    return
                except KeyboardInterrupt:
                    pass
        except KeyboardInterrupt:  # between two calls
            pass


class deferred_interrupts:
    """``with deferred_interrupts():`` delays Ctrl-C to the end of the block: for steps that cannot be undone.

    Only the main thread gets signals, so other threads have nothing to defer.
    """

    __slots__ = ("_handler", "_waiting")

    def __enter__(self) -> None:
        handler = _signals.getsignal(_SIGINT)
        self._waiting: list[tuple[int, FrameType | None]] = []
        is_main = threading.current_thread() is threading.main_thread()
        self._handler = handler if is_main and callable(handler) else None
        if self._handler is not None:
            _signals.signal(_SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            _signals.signal(_SIGINT, self._handler)
            if self._waiting:
                self._handler(*self._waiting[0])
