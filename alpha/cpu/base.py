"""HostEngine: what every family of the CPU engine stands on: memory, array views of tensors, and launches."""

from __future__ import annotations

import mmap
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from alpha import caches
from alpha.arguments import as_array
from alpha.cpu import workers
from alpha.dtypes import as_dtype
from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.mempool import MemoryPool
from alpha.tensor import Storage, Tensor

Array = np.ndarray[Any, Any]
_PAGE = mmap.PAGESIZE


class HostEngine(Engine):
    """Tensors in the host's memory. Families of operations subclass it, and ``CPUEngine`` gathers them.

    Args:
        memory: the pool's cap; by default 90 % of the machine's memory.
        threads: threads that compute; by default as many as the process may use.
    """

    def __init__(self, memory: str | int | None = None, threads: int | None = None) -> None:
        self.name = "cpu"
        cap = memory if memory is not None else _machine_memory() * 9 // 10
        self.memory = MemoryPool(cap, _allocate, reserve=_reserve, discard=_discard)
        caches.restrict(self, self.memory.cap)
        self.threads = available_threads()
        self.configure(threads=threads)

    def configure(self, *, memory: str | int | None = None, threads: int | None = None) -> None:
        if threads is not None:
            if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
                raise ArgumentError(f"[engine] expected threads >= 1, got {described(threads)}")
            self.threads = threads
        if memory is not None:
            self.memory.cap = memory  # the setter parses "8GB"
            caches.restrict(self, self.memory.cap)

    def synchronize(self) -> None:
        """Nothing to wait for: the CPU engine's work is done when a call returns."""

    def allocate(self, nbytes: int) -> Storage:
        return Storage(self, self.memory, nbytes)

    def array(self, tensor: Tensor) -> Array:
        """The tensor's memory as an array; it keeps the storage alive."""
        view: Array | None = tensor._array
        if view is None:
            view = tensor._array = np.asarray(_Export(tensor))
        return view

    def from_numpy(self, array: Array) -> Tensor:
        array = array if type(array) is np.ndarray else as_array("from_numpy", array)
        as_dtype(array.dtype, "from_numpy")
        strides = [abs(s) for s in array.strides]
        order = sorted(range(array.ndim), key=lambda axis: -strides[axis])  # stable: ties stay row-major
        out = self.empty(array.shape, array.dtype, order)
        np.copyto(self.array(out), array)
        return out

    def from_pieces(self, shape: Sequence[int], dtype: np.dtype[Any], pieces: Iterable[tuple[int, Array]]) -> Tensor:
        out = self.empty(shape, dtype)
        target = self.flat(out)
        for start, numbers in pieces:
            target[start : start + len(numbers)] = numbers
        return out

    def to_numpy(self, tensor: Tensor) -> Array:
        return self.array(tensor)

    def storing(self, source: Array, out: Tensor) -> tuple[Any, ...]:
        return operator.setitem, self.array(out), ..., source

    def fill(self, out: Tensor, value: bool | int | float) -> None:
        self.array(out).fill(value)

    def dense(self, x: Tensor, order: Sequence[int] | None = None) -> Tensor:
        """x, or a copy, without gaps: in the given order of axes, or in whatever order it lies."""
        wanted = x.memory_order() if order is None else order
        if x.is_contiguous(wanted):
            return x
        out = self.empty(x.shape, x.dtype, order)
        self.copy(x, out)
        return out

    def flat(self, x: Tensor) -> Array:
        """A dense tensor's elements as they lie in memory."""
        return self.array(x.view(x.offset, (x.numel(),), (1,)))

    def launch(self, kernel: Callable[..., Any], *arguments: Any, tasks: int | None = None) -> Any:
        """Runs a compiled kernel on this engine's threads; the sum of what they return.

        ``tasks``, where the caller knows their number, leaves threads asleep that would find none.
        """
        threads = self.threads
        if tasks is not None and tasks < threads:
            threads = max(1, tasks)
        return workers.WORKERS.run(kernel, threads, arguments)


class _Export:
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


def _allocate(nbytes: int) -> tuple[int, Array]:
    raw = np.empty(nbytes + _PAGE, np.uint8)
    return -(-raw.ctypes.data // _PAGE) * _PAGE, raw


def _reserve(nbytes: int) -> tuple[int, mmap.mmap, int] | None:
    """Addresses for a segment that may grow to all of the machine's memory; None where the system gives them not.

    A page takes memory when it is written to first.
    """
    room = max(_physical_memory(), nbytes)
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    try:
        place = mmap.mmap(-1, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    except (OSError, OverflowError):  # a limit on addresses, or a system that counts them all as memory
        return None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system built without
            place.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(place, np.uint8).ctypes.data, place, room


def _discard(handle: object, address: int, nbytes: int) -> None:
    """Gives the whole pages of a part of a reserved place back to the system."""
    if not isinstance(handle, mmap.mmap):
        return
    start = address - np.frombuffer(handle, np.uint8).ctypes.data
    first, end = -(-start // _PAGE) * _PAGE, (start + nbytes) // _PAGE * _PAGE
    if end > first:
        handle.madvise(mmap.MADV_DONTNEED, first, end - first)


def _machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's limit where that is lower."""
    total = _physical_memory()
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no control groups, or "max"
        return total


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30


def available_threads() -> int:
    """Processors that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
