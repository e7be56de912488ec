"""Caches of plans and tables: what a shape needs is made once and kept, within a budget of bytes that all share.

A cache keeps two generations. What is made or found again is young; once the young of all caches would weigh more than
half the budget they become old, and the old that nobody asked for meanwhile are dropped. So the least recently used go
first, a hit costs a look into a dictionary, and no lock is needed: each step is one operation of a dictionary or one
assignment, and a count that threads or an interrupt leave too low starts anew with each generation.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

Made = TypeVar("Made")
Made_co = TypeVar("Made_co", covariant=True)

MOST = 64 << 20
"""Bytes of the budget where no engine's memory is small."""

SHARE = 16
"""The budget is at most one part in so many of the smallest engine's memory."""

ENTRY = 512
"""Bytes that an entry weighs besides its value: its key and its place."""


class Statistics(NamedTuple):
    """What all caches hold at one moment, in bytes."""

    entries: int
    nbytes: int
    budget: int


class _Ledger:
    """Bytes of all caches' young values, and the budget."""

    def __init__(self) -> None:
        self.young = self.old = 0
        self.budget = MOST
        self.caches: weakref.WeakSet[_Cache[Any]] = weakref.WeakSet()
        self.caps: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()

    def turn(self) -> None:
        """The young become old."""
        self.young, self.old = 0, self.young
        for cache in list(self.caches):
            cache.turn()


_LEDGER = _Ledger()


class _Cache(Generic[Made]):
    """The values of one function."""

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
        """A value that is not among the young."""
        value = self.old.pop(key, None)
        if value is None:
            self.misses += 1
            value = self.function(*key)
        nbytes = weight(value) + ENTRY
        if nbytes <= _LEDGER.budget // 4:  # a larger one would drive out all others
            if _LEDGER.young + nbytes > _LEDGER.budget // 2:
                _LEDGER.turn()
            self.young[key] = value
            _LEDGER.young += nbytes
        return value


class Kept(Protocol[Made_co]):
    """What ``kept`` makes of a function."""

    __wrapped__: Callable[..., Any]

    def __call__(self, *key: Any) -> Made_co: ...

    def cache_clear(self) -> None:
        """Forgets all values."""


def kept(function: Callable[..., Made]) -> Kept[Made]:
    """Decorator for a function of hashable positional arguments whose values, never None, are kept within the budget.

    As of ``functools.lru_cache`` what comes back has ``cache_clear()`` and ``__wrapped__``.
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


def weight(value: Any) -> int:
    """Bytes of a value, of the arrays above all: tuples, lists and data classes are walked through."""
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
    """The figures at this moment; bytes as they were weighed when values were made."""
    entries = sum(len(cache.young) + len(cache.old) for cache in list(_LEDGER.caches))
    return Statistics(entries, _LEDGER.young + _LEDGER.old, _LEDGER.budget)


def release() -> int:
    """Drops all that is kept, as where memory runs out; returns the bytes. Safe at any time and from any thread."""
    nbytes = _LEDGER.young + _LEDGER.old
    for cache in list(_LEDGER.caches):
        cache.clear()
    _LEDGER.young = _LEDGER.old = 0
    return nbytes


def restrict(owner: object, cap: int) -> None:
    """Notes the memory of an engine: the budget is a small share of the smallest, while that engine lives."""
    _LEDGER.caps[owner] = cap
    budget = min([MOST, *(each // SHARE for each in list(_LEDGER.caps.values()))])
    _LEDGER.budget = budget
    if _LEDGER.young > budget // 2 or _LEDGER.old > budget // 2:
        release()
