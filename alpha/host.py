"""Memory of the host, for the pools of engines that compute in it, and tensors in it as NumPy's arrays."""

from __future__ import annotations

import mmap
import os
import platform
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
_PAGE = mmap.PAGESIZE
# Not every Python has a name for it. Without it Linux counts reservations that lie side by side as one demand for more
# memory than there is, and refuses to fork.
_NO_RESERVE = getattr(
    mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") else 0
)


class _Memory(Array):
    """The memory of a segment, of a class of its own: else NumPy would make it, and not a loan, the base of arrays."""


def array(tensor: Tensor) -> Array:
    """A tensor as an array of the same memory, which keeps the storage's loan alive."""
    storage, dtype = tensor.storage, tensor.dtype
    item = dtype.itemsize
    if 0 in tensor.shape:  # it may begin behind the memory's end
        return np.empty(tensor.shape, dtype)
    strides = tuple([stride * item for stride in tensor.strides])
    return np.ndarray(tensor.shape, dtype, storage._loan, tensor.offset * item, strides)


def convert(source: Array, out: Array) -> None:
    """Copies an array into another, broadcast, in the other's dtype."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        np.copyto(out, source, casting="unsafe")


def memory_of(loan: Array) -> Array:
    """A loan's bytes as the memory of segments, for a pool that borrows from another: see ``_Memory``."""
    return _Memory(loan.nbytes, np.uint8, loan.data)  # no array is its base: NumPy would skip it for the loan


def view(handle: Any, offset: int, nbytes: int) -> Array:
    """The bytes of a block: the loan of a pool's memory on the host."""
    return np.ndarray((nbytes,), np.uint8, handle, offset)


def allocate(nbytes: int) -> tuple[int, Array]:
    """Allocates bytes at the beginning of a page; returns the address and the array that holds them."""
    raw = _Memory(nbytes + _PAGE, np.uint8)
    start = -raw.ctypes.data % _PAGE
    handle = raw[start : start + nbytes]
    return handle.ctypes.data, handle


def reserve(nbytes: int) -> tuple[int, mmap.mmap, int] | None:
    """Reserves addresses for a segment that may grow to all of the machine's memory; None where the system refuses.

    A page takes memory only when it is first written to.
    """
    room = max(_physical_memory(), nbytes)
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    try:
        reserved = mmap.mmap(-1, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except (OSError, OverflowError):  # a limit on addresses, or a system that counts them all as memory
        return None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system built without
            reserved.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(reserved, np.uint8).ctypes.data, reserved, room


def discard(handle: object, address: int, nbytes: int) -> None:
    """Gives the memory of whole pages within a reservation back to the system."""
    if not isinstance(handle, mmap.mmap):
        return
    start = address - np.frombuffer(handle, np.uint8).ctypes.data
    first, end = -(-start // _PAGE) * _PAGE, (start + nbytes) // _PAGE * _PAGE
    if end > first:
        handle.madvise(mmap.MADV_DONTNEED, first, end - first)


def usable_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's limit where that is lower."""
    total = _physical_memory()
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no control groups, or "max"
        return total


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30
