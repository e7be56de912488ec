"""HostEngine: the base of the CPU engine's families of operations: memory, array views of tensors, and launches."""

from __future__ import annotations

import ctypes
import math
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from alpha import caches, host
from alpha.arguments import as_array
from alpha.cpu import launches, workers
from alpha.dtypes import as_dtype
from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.launches import Launches
from alpha.mempool import MemoryPool
from alpha.tensor import Storage, Tensor

SMALL_FILL = 1 << 10
"""Elements up to which a tensor is filled without an array of its memory, which takes longer to make than to fill."""

Array = np.ndarray[Any, Any]


class HostEngine(Engine):
    """Keeps tensors in the host's memory. Families of operations subclass it, and ``CPUEngine`` gathers them.

    Args:
        memory: the pool's cap; by default 90 % of the machine's memory.
        threads: threads that compute; by default as many as the process may use.
    """

    has_launches = True
    """Whether launches (``alpha.cpu.launches``) are to know how to call the kernels."""

    def __init__(self, memory: str | int | None = None, threads: int | None = None) -> None:
        self.name = "cpu"
        cap = memory if memory is not None else host.usable_memory() * 9 // 10
        self.memory = MemoryPool(cap, host.allocate, reserve=host.reserve, discard=host.discard, view=host.view)
        caches.restrict(self, self.memory.cap)
        self.threads = available_threads()
        self.configure(threads=threads)

    def configure(self, *, memory: str | int | None = None, threads: int | None = None) -> None:
        if threads is not None:
            if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
                raise ArgumentError(f"[engine] expected threads >= 1, got {described(threads)}")
            self.threads = threads
        super().configure(memory=memory)
        if memory is not None:
            caches.restrict(self, self.memory.cap)

    def redrawn(self, seed: int, offset: int, words: int, is_again: bool = False) -> Callable[[], bytes] | None:
        """What gives the replays of a step that is captured the seed and offset of random words; None where they stay.

        ``is_again``: whether they were drawn before, and are needed once more.
        """
        return None

    def synchronize(self) -> None:
        """Nothing to wait for: the CPU engine's work is done when a call returns."""

    def allocate(self, nbytes: int) -> Storage:
        return Storage(self, self.memory, nbytes)

    def array(self, tensor: Tensor) -> Array:
        """The tensor's memory as a NumPy array, which keeps the storage alive."""
        view: Array | None = tensor._array
        if view is None:
            view = tensor._array = host.array(tensor)
        return view

    def operand(self, tensor: Tensor) -> Array:
        """``array`` for what is noted in a captured step: a kernel, or a function that ``act`` calls."""
        return self.array(tensor)

    def act(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls a function that reads and writes operands, and returns nothing of use; what it does is no error.

        A step that is captured notes the call. Infinities and NaN are values here.
        """
        with np.errstate(all="ignore"):
            function(*arguments)

    def decided(self, answer: Tensor) -> bool:
        """What a kernel has answered, not 0 for yes, in a tensor of one int64.

        A capture takes what the rehearsal found; a replay that finds another answer is none.
        """
        return bool(self.array(answer)[0])

    def overwriting(self, tensor: Tensor) -> None:
        """Called before a tensor is changed that is there before a step and behind it, ahead of what is ``decided``.

        A replay that ends there puts it back as it was.
        """

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
        elements = math.prod(out.shape)
        if elements <= SMALL_FILL and out.is_contiguous(out.memory_order()):
            number = np.empty((), out.dtype)
            number.fill(value)
            self.act(ctypes.memmove, out.address, number.tobytes() * elements, elements * number.itemsize)
        else:
            self.act(self.operand(out).fill, value)

    def alias(self, known: Launches, arguments: Sequence[Any], other: Launches, given: Sequence[Any]) -> None:
        launches.alias(self, known, arguments, other, given)

    def parameter(self, part: Tensor | None) -> Tensor | None:
        """A weight or bias as loops read it, dense; None where there is none."""
        return None if part is None else self.dense(part, range(part.ndim))

    def flat(self, x: Tensor) -> Array:
        """A dense tensor's elements as they lie in memory."""
        return self.array(x.strided(x.offset, (x.numel(),), (1,)))

    def launch(self, kernel: Callable[..., Any], *arguments: Any, tasks: int | None = None) -> Any:
        """Runs a compiled kernel on this engine's threads; returns the sum of what it returned to each.

        ``tasks``: their number, where the caller knows it: threads that would find none are not woken.
        """
        threads = self.threads
        if tasks is not None and tasks < threads:
            threads = max(1, tasks)
        return workers.WORKERS.run(kernel, threads, arguments)


def available_threads() -> int:
    """Processors that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
