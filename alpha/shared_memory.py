"""Tensors in memory that processes share: those that this one forks later see each other's writes to it."""

from __future__ import annotations

import math
import mmap
import weakref

import numpy as np

from alpha import foreign
from alpha.changes import at_once, setting, taking
from alpha.dtypes import uint8
from alpha.errors import OutOfMemoryError
from alpha.mempool import SLACK
from alpha.tensor import Storage, Tensor

_SHARED: weakref.WeakSet[Storage] = weakref.WeakSet()
"""The storages in such memory."""


def is_shared(x: Tensor) -> bool:
    """Whether processes that are forked share the tensor's memory; so it is on a device, as PyTorch has it."""
    return not x.engine.memory.is_on_host or x.storage in _SHARED


def share(x: Tensor) -> Tensor:
    """Moves a tensor's elements into memory that is shared with processes forked later; returns x.

    The tensor keeps its shape, its strides and its place in the graph; other tensors over the old memory keep that. On
    a device, and where it is shared already, nothing changes. Pickles hold copies, as before.
    """
    if is_shared(x) or not math.prod(x.shape):
        return x
    storage = x.storage
    try:
        room = mmap.mmap(-1, storage.nbytes + SLACK)  # anonymous and shared
    except (OSError, ValueError, OverflowError) as error:
        raise OutOfMemoryError(
            f"[share_memory_] expected {storage.nbytes} bytes of memory to share, got an error: {error}"
        ) from error
    memory = foreign.sharing(x.engine, np.frombuffer(room, np.uint8, storage.nbytes))
    whole = Tensor(storage, 0, (storage.nbytes,), (1,), uint8)
    if memory is None:
        raise OutOfMemoryError("[share_memory_] expected memory that tensors can lie in, got none from the system")
    x.engine.copy(whole, memory)
    _SHARED.add(memory.storage)
    at_once([*taking(x, Tensor(memory.storage, x.offset, x.shape, x.strides, x.dtype)), setting(x, "_base", None)])
    return x
