"""Caches of plans and tables: made once per shape and kept, within a budget of bytes that all caches share.

A cache keeps two generations. A value that is made or found is young. Once the young values of all caches would take
more than half the budget they become old, and old values that were not used since are dropped. So the least recently
used ones go first, a hit costs one dictionary lookup, and no lock is needed: each step is one dictionary operation or
one assignment, and a count that threads or an interrupt leave too low restarts with each generation.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

Made = TypeVar("Made")
Made_co = TypeVar("Made_co", covariant=True)

MAX_BUDGET = 64 << 20
"""The largest budget, in bytes."""

BUDGET_FRACTION = 16
"""The budget is at most 1 / BUDGET_FRACTION of the smallest engine's memory."""

ENTRY_BYTES = 512
"""What an entry counts in addition to its value, for its key and its place in the dictionary."""


class Statistics(NamedTuple):
    """Figures of all caches at one moment, in bytes."""

    entries: int
    nbytes: int
    budget: int


class _Ledger:
    """Counts the bytes of all caches' young values, and knows the budget."""

    def __init__(self) -> None:
        self.young = self.old = 0
        self.budget = MAX_BUDGET
        self.keepers: list[list[Any]] = []
        self.caches: weakref.WeakSet[_Cache[Any]] = weakref.WeakSet()
        self.caps: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()

    def turn(self) -> None:
        """Makes the young values old."""
        self.young, self.old = 0, self.young
        for cache in list(self.caches):
            cache.turn()


_LEDGER = _Ledger()


class _Cache(Generic[Made]):
    """The cached values of one function."""

    def __init__(self, function: Callable[..., Made]) -> None:
        self.function = function
        self.young: dict[tuple[Any, ...], Made] = {}
        self.old: dict[tuple[Any, ...], Made] = {}
        self.misses = 0
        _LEDGER.caches.add(self)

    def turn(self) -> None:
        self.old, self.young = self.young, {}

    def clear(self) -> None:
        self.old, self.young = {}, {}

    def make(self, key: tuple[Any, ...]) -> Made:
        """Returns a value that is not young: an old one, or a new one."""
        value = self.old.pop(key, None)
        if value is None:
            self.misses += 1
            value = self.function(*key)
        for keeper in list(_LEDGER.keepers):
            keeper.append(value)
        nbytes = weight(value) + ENTRY_BYTES
        if nbytes <= _LEDGER.budget // 4:  # a larger value would displace all others
            if _LEDGER.young + nbytes > _LEDGER.budget // 2:
                _LEDGER.turn()
            self.young[key] = value
            _LEDGER.young += nbytes
        return value


class Kept(Protocol[Made_co]):
    """Type of a function decorated with ``kept``."""

    __wrapped__: Callable[..., Any]

    def __call__(self, *key: Any) -> Made_co: ...

    def cache_clear(self) -> None:
        """Forgets all values."""


def kept(function: Callable[..., Made]) -> Kept[Made]:
    """Decorator that caches a function of hashable positional arguments, whose values are never None, within the
    budget.

    The decorated function has ``cache_clear()`` and ``__wrapped__``, as with ``functools.lru_cache``.
    """
    cache: _Cache[Made] = _Cache(function)

    @functools.wraps(function)
    def call(*key: Any) -> Made:
        try:
            return cache.young[key]
        except KeyError:
            pass
        return cache.make(key)

    call.cache_clear = cache.clear  # type: ignore[attr-defined]
    return cast(Kept[Made], call)


@contextmanager
def keeping() -> Iterator[list[Any]]:
    """``with caches.keeping() as values:`` lists all cached values that are used in the block, maybe more.

    For who goes on using them by their addresses: he keeps the list.
    """
    values: list[Any] = []
    try:
        _LEDGER.keepers.append(values)
        _LEDGER.turn()  # a value's first use finds it old, and so goes through ``_Cache.make``
        yield values
    finally:
        _LEDGER.keepers[:] = [keeper for keeper in _LEDGER.keepers if keeper is not values]


def weight(value: Any) -> int:
    """Bytes of a value, mainly of its arrays: also those in tuples, lists and data classes."""
    if type(value) in (int, bool, float, str):
        return 32
    if isinstance(value, np.ndarray):
        return value.nbytes + sys.getsizeof(value, 128) - (value.nbytes if value.base is None else 0)
    if isinstance(value, (tuple, list)):
        return sys.getsizeof(value, 64) + sum(map(weight, value))
    if isinstance(value, dict):
        return sys.getsizeof(value, 64) + sum(weight(key) + weight(item) for key, item in value.items())
    if is_dataclass(value) and not isinstance(value, type):
        return 64 + sum(weight(getattr(value, field.name)) for field in fields(value))
    return sys.getsizeof(value, 64)


def statistics() -> Statistics:
    """The figures at this moment; values count what they weighed when they were made."""
    entries = sum(len(cache.young) + len(cache.old) for cache in list(_LEDGER.caches))
    return Statistics(entries, _LEDGER.young + _LEDGER.old, _LEDGER.budget)


def release() -> int:
    """Drops all cached values, for example when memory runs out; returns their bytes.

    Safe at any time, in any thread.
    """
    nbytes = _LEDGER.young + _LEDGER.old
    for cache in list(_LEDGER.caches):
        cache.clear()
    _LEDGER.young = _LEDGER.old = 0
    return nbytes


def restrict(owner: object, cap: int) -> None:
    """Limits the budget to a small share of an engine's memory, as long as that engine exists."""
    _LEDGER.caps[owner] = cap
    budget = min([MAX_BUDGET, *(cap // BUDGET_FRACTION for cap in list(_LEDGER.caps.values()))])
    _LEDGER.budget = budget
    if _LEDGER.young > budget // 2 or _LEDGER.old > budget // 2:
        release()
