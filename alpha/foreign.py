"""Tensors in memory of another library: a NumPy array's, or what NumPy makes an array of.

The array and the tensor share numbers, not the version that autograd guards saved tensors by: it does not count what is
written through the array, and engines cache nothing that they derive from such memory.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.mempool import SLACK
from alpha.tensor import Storage, Tensor

Array = np.ndarray[Any, Any]

_PAGE = 2 << 20
"""Bytes of a page of a GPU's memory."""

_READ_ONLY = "is read-only, and tensors can be written to"

_HEAP_BYTES = 128 << 10
"""Requests below this many bytes are served from the heap, whose pages stay readable behind an array."""


class _Owner:
    """Makes NumPy see bytes at an address, and keeps their owner alive: it is the base of the array of them."""

    def __init__(self, array: Array, address: int, nbytes: int) -> None:
        self.array = array
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


class _OnDevice:
    """Makes NumPy see an array at addresses on a GPU, which it does not read, and keeps their owner alive."""

    def __init__(self, owner: object, interface: Mapping[str, Any]) -> None:
        self.owner, self.__array_interface__ = owner, interface


def addressed(owner: object, interface: Mapping[str, Any]) -> Array:
    """An array as CUDA's array interface, or NumPy's, describes it. Nobody may read it where it lies on a GPU."""
    names = ("shape", "typestr", "data", "strides")
    given = {name: interface[name] for name in names if interface.get(name) is not None}
    return np.asarray(_OnDevice(owner, {**given, "version": 3}))


def sharing(engine: Engine, array: Array, is_writable: bool = False) -> Tensor | None:
    """A tensor over an array's memory; None where the engine cannot compute in it: see ``obstacle``."""
    if obstacle(engine, array, is_writable):
        return None
    return over(engine, array)


def on_gpu(function: str, engine: Engine, array: Array, copies: bool | None, is_writable: bool = False) -> Tensor:
    """A tensor over memory of an engine's GPU, whose addresses an array has; a copy where it is asked for.

    ``copies``: None copies, with a warning, where tensors cannot lie so; False is an error there.
    """
    why = _unlike_a_tensor(array)
    if why:
        raise ArgumentError(
            f"[{function}] expected a tensor that lies as tensors do, got one that {why}: make it dense"
        )
    if not (array.flags.writeable or is_writable):
        why = _READ_ONLY
    elif array.size and -byte_bounds(array)[1] % _PAGE < SLACK:
        why = f"ends less than {SLACK} bytes before a page of the GPU's memory that may not be read"
    if why and copies is False:
        raise ArgumentError(
            f"[{function}] expected memory that a tensor can share, got a tensor that {why}: allow a copy"
        )
    source = over(engine, array)
    if not why and not copies:
        return source
    if copies is None:
        warn(function, why)
    out = engine.empty(source.shape, source.dtype)
    engine.copy(source, out)
    return out


def over(engine: Engine, array: Array) -> Tensor:
    """A tensor over an array's memory, in which the engine computes."""
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
    if not engine.memory.is_on_host:
        return f"lies in the host's memory, which {engine.name} does not compute in"
    if not (array.flags.writeable or is_writable):
        return _READ_ONLY
    why = _unlike_a_tensor(array)
    if why:
        return why
    if array.size and not _has_room(array):
        return f"ends less than {SLACK} bytes before memory that may not be read, as kernels read it"
    return ""


def _unlike_a_tensor(array: Array) -> str:
    """Why tensors do not lie as an array does; empty if they can."""
    item = array.itemsize
    if not array.flags.aligned or any(stride % item for stride in array.strides):
        return "has numbers at addresses that are no multiples of their size"
    if any(stride < 0 for stride in array.strides):
        return "has negative strides"
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
