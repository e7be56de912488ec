"""Memory of the host, for the pools of engines that compute in it, and tensors in it as NumPy's arrays."""

from __future__ import annotations

import mmap
import os
import platform
import sys
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


class Export:
    """Shows a tensor to NumPy, and keeps its storage alive as the base of the array made from it."""

    __slots__ = ("__array_interface__", "storage")

    def __init__(self, tensor: Tensor) -> None:
        self.storage = tensor.storage
        item = tensor.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "typestr": tensor.dtype.str,
            "shape": tensor.shape,
            "strides": tuple([stride * item for stride in tensor.strides]),
            "data": (tensor.storage.address + tensor.offset * item, False),
        }


def allocate(nbytes: int) -> tuple[int, Array]:
    """Allocates bytes at the beginning of a page; returns the address and the array that holds them."""
    raw = np.empty(nbytes + _PAGE, np.uint8)
    return -(-raw.ctypes.data // _PAGE) * _PAGE, raw


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
