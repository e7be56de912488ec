"""Copies in the place of views: what is written to one memory is written to the other.

Images lie in memory in an order that suits convolutions, and some views that PyTorch has of its own images would need
strides that no number gives. Such a view is a copy, and the two memories mirror each other while both are in use.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import Shape
from alpha.changes import finish
from alpha.tensor import Storage, Tensor, dense_strides

Place = tuple[int, Shape]
"""A tensor's offset and strides in its storage."""


class _Mirror(NamedTuple):
    """Where elements of a storage lie, and where they lie in another one."""

    other: weakref.ref[Storage]
    shape: Shape
    dtype: np.dtype[Any]
    here: Place
    there: Place


_MIRRORS: weakref.WeakKeyDictionary[Storage, list[_Mirror]] = weakref.WeakKeyDictionary()


class MirroredStorage(Storage):
    """A storage that has mirrors: each write is repeated in them."""

    __slots__ = ()
    is_mirrored = True

    def touch(self, writes: int = 1) -> None:
        """Counts writes, and repeats them."""
        super().touch(writes)
        self.repeat()

    def repeat(self) -> None:
        """Copies the elements to all mirrors in use, and from these to theirs; an interrupt comes after that."""
        try:
            self._copy()
        except KeyboardInterrupt:
            finish(self._copy)
            raise

    def _copy(self) -> None:
        done: set[int] = {id(self)}
        waiting: list[Storage] = [self]
        while waiting:
            storage = waiting.pop()
            for one in _MIRRORS.get(storage, ()):
                other = one.other()
                if other is not None and id(other) not in done:
                    source = Tensor(storage, one.here[0], one.shape, one.here[1], one.dtype)
                    storage.engine.copy(source, Tensor(other, one.there[0], one.shape, one.there[1], one.dtype))
                    Storage.touch(other)
                    done.add(id(other))
                    waiting.append(other)


def mirror(x: Tensor, copy: Tensor) -> None:
    """Makes the storage of a tensor and that of its copy, dense and in row-major order, mirrors of each other."""
    original: Place = (x.offset, x.strides)
    copied: Place = (copy.offset, dense_strides(x.shape))
    _link(x.storage, _Mirror(weakref.ref(copy.storage), x.shape, x.dtype, original, copied))
    _link(copy.storage, _Mirror(weakref.ref(x.storage), x.shape, x.dtype, copied, original))


def _link(storage: Storage, link: _Mirror) -> None:
    kept = [one for one in _MIRRORS.get(storage, ()) if one.other() is not None]
    _MIRRORS[storage] = [*kept, link]
    storage.__class__ = MirroredStorage


def is_in_use_twice(x: Tensor) -> bool:
    """Whether a tensor's storage has a mirror in use."""
    return x.storage.is_mirrored and any(one.other() is not None for one in _MIRRORS.get(x.storage, ()))
