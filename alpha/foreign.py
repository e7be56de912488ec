"""Tensors in memory of another library: a NumPy array's, or what NumPy makes an array of.

The array and the tensor share numbers, not the version that autograd guards saved tensors by: it does not count what is
written through the array, and engines cache nothing that they derive from such memory.
"""

from __future__ import annotations

import mmap
import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from alpha.engine import Engine
from alpha.mempool import SLACK
from alpha.tensor import Storage, Tensor

Array = np.ndarray[Any, Any]

_HEAP_BYTES = 128 << 10
"""Requests below this many bytes are served from the heap, whose pages stay readable behind an array."""


class _Owner:
    """Makes NumPy see bytes at an address, and keeps their owner alive: it is the base of the array of them."""

    def __init__(self, array: Array, address: int, nbytes: int) -> None:
        self.array = array
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def sharing(engine: Engine, array: Array, is_writable: bool = False) -> Tensor | None:
    """A tensor over an array's memory; None where the engine cannot compute in it: see ``obstacle``."""
    if obstacle(engine, array, is_writable):
        return None
    low, high = byte_bounds(array)
    loan = np.asarray(_Owner(array, low, high - low))
    storage = _borrowed(engine, loan, low)
    first, item = array.ctypes.data - low, array.itemsize
    strides = tuple([stride // item for stride in array.strides])
    return Tensor(storage, first // item, array.shape, strides, array.dtype)


def _borrowed(engine: Engine, loan: Array, address: int) -> Storage:
    """A storage of no pool's memory: bytes that an array keeps alive, and that it may write to unseen."""
    out = Storage.__new__(Storage)
    out._block, out._loan, out.engine, out.pool = None, loan, engine, engine.memory  # type: ignore[assignment]
    out.address, out.nbytes, out.version, out.cache = address, loan.nbytes, 0, {}
    out.waiting, out.exported = None, True
    return out


def obstacle(engine: Engine, array: Array, is_writable: bool = False) -> str:
    """Why an engine's tensors cannot share an array's memory; empty if they can.

    ``is_writable`` says so of memory that the array itself takes for read-only.
    """
    item = array.itemsize
    if not engine.memory.is_on_host:
        return f"lies in the host's memory, which {engine.name} does not compute in"
    if not (array.flags.writeable or is_writable):
        return "is read-only, and tensors can be written to"
    if not array.flags.aligned or any(stride % item for stride in array.strides):
        return "has numbers at addresses that are no multiples of their size"
    if any(stride < 0 for stride in array.strides):
        return "has negative strides"
    if array.size and not _has_room(array):
        return f"ends less than {SLACK} bytes before memory that may not be read, as kernels read it"
    return ""


def warn(function: str, why: str) -> None:
    """Says that a tensor does not share the memory that a program expects it to share."""
    warnings.warn(
        f"[{function}] expected an array whose memory a tensor can share, got one that {why}: the tensor is a copy",
        UserWarning,
        stacklevel=4,
    )


def _has_room(array: Array) -> bool:
    """Whether ``SLACK`` bytes behind an array can be read: within its owner's memory, its last page, or the heap."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    behind = byte_bounds(array)[1]
    readable = -(-max(byte_bounds(owner)[1], behind) // mmap.PAGESIZE) * mmap.PAGESIZE
    if readable - behind >= SLACK:
        return True
    base = owner.base.obj if isinstance(owner.base, memoryview) else owner.base
    allocated = base is None or type(base).__name__ in ("bytearray", "array", "PyCapsule")  # no file or shared memory
    return allocated and owner.nbytes < _HEAP_BYTES
