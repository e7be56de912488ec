"""Weights that stay as they are for several passes: what an engine derives from them is worth keeping meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.tensor import Storage, Tensor


class _Thread(threading.local):
    storages: frozenset[int] = frozenset()


_thread = _Thread()


@contextmanager
def unchanged(weights: Iterable[Tensor]) -> Iterator[None]:
    """``with unchanged(weights):`` this thread passes through them several times before they change.

    An engine may keep packed forms of them with their storages, which are dropped at the end.
    """
    storages = [weight.storage for weight in weights]
    before = _thread.storages
    try:
        _thread.storages = before | {id(storage) for storage in storages}
        yield
    finally:
        _thread.storages = before
        for storage in storages:
            storage.cache.clear()


def is_unchanged(storage: Storage) -> bool:
    """Whether a storage is one of those."""
    return id(storage) in _thread.storages
