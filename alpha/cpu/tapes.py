"""Tapes: the calls of kernels that a captured step makes, noted instead of made, and played by one native loop.

A thread that has a tape (``taping``) runs no kernels: ``alpha.cpu.tasks.run`` and its like give them to the tape. What
is noted is a function's address, the job that it is given and on how many threads; between runs of such calls there may
be actions, C functions with their arguments, and effects on the host, which are functions written in Python.

A kernel that Numba compiled gets its arguments from Numba. It is run once with a slot that has no tasks for it
(``_packed``): it does nothing, and leaves the record of its arguments, which all later runs are given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from alpha.cpu import workers
from alpha.cpu.atomics import get, put
from alpha.cpu.compile import Entry, NativeFunction, call, entered, layout_of
from alpha.cpu.job_slot import JOB_SLOT, SHARE
from alpha.cpu.loops.machine import Entries
from alpha.cpu.sharing import give_back, run, take
from alpha.errors import GraphError
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

ZERO, COPY, ALONE, UNSHARED, SHARED = range(5)
"""Kinds of calls: 8-byte words set to 0, or copied from a job to a function's address; ``function(job)``;
``function(0, job)``; ``function(share, job)``."""

_WORDS = 5
"""Words of a call: its kind, the function, the threads, and the job (or zeros) as its address and its words."""


class Live(NamedTuple):
    """A part of a job that is new in each replay."""

    place: int
    """Where it begins in the job, in bytes."""
    refresh: Callable[[], bytes]
    """Gives the bytes for the replay that comes."""


Changing = tuple[bytes, int, Callable[[], bytes]]
"""A part of a kernel's arguments by its bytes, where in it begins what is new in each replay, and what gives that."""


class Addressed:
    """A tensor's memory by its address, of which NumPy makes an array that nobody reads while it is noted."""

    def __init__(self, tensor: Tensor) -> None:
        item = tensor.dtype.itemsize
        self.storage = tensor.storage  # lent as long as the array is there
        self.__array_interface__ = {
            "data": (tensor.address, False),
            "shape": tensor.shape,
            "strides": tuple([step * item for step in tensor.strides]),
            "typestr": tensor.dtype.str,
            "version": 3,
        }


class _Unowned:
    """Memory by its address, which others lend."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def unowned(value: Any) -> Any:
    """An array of a tensor's memory, or a tuple with some, that does not keep it lent: the step's plan of it does."""
    if isinstance(value, tuple):
        return tuple([unowned(part) for part in value])
    if isinstance(value, np.ndarray) and isinstance(_source_of(value), Addressed):
        return np.asarray(_Unowned(value.__array_interface__)).view(value.dtype)
    return value


def _source_of(array: Array) -> Any:
    """What an array's memory belongs to."""
    return array.base.base if isinstance(array.base, np.ndarray) else array.base


def _tables(value: Any) -> Iterator[Array]:
    """The arrays among a kernel's arguments that are no tensors' memory."""
    if isinstance(value, tuple):
        for part in value:
            yield from _tables(part)
    elif isinstance(value, np.ndarray) and not isinstance(_source_of(value), Addressed):
        yield value


class Tape:
    """What is noted of a step. ``finish`` makes it a list of functions that are called one after another."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, int, int, int, int]] = []
        self._parts: list[Callable[[], object]] = []
        self._kept: list[Any] = []
        self._threads = 1

    def keep(self, *things: Any) -> None:
        """Keeps what calls use by its address."""
        self._kept += things

    def zeros(self, array: Array) -> None:
        """Has an array of 8-byte words set to 0."""
        self.keep(array)
        if array.size:
            self._calls.append((ZERO, 0, 1, array.ctypes.data, array.size))

    def copy(self, source: int, target: int, words: int) -> None:
        """Has 8-byte words copied from an address to another."""
        self._calls.append((COPY, target, 1, source, words))

    def run(self, code: Any, job: bytes, tasks: int, threads: int, live: Live | None = None) -> None:
        """Notes the run of a loop's or kernel's job of so many tasks on up to so many threads."""
        entries: Entries = code.entries
        self.keep(code)
        if tasks <= 1 or threads == 1:
            self._note(UNSHARED if entries.takes_share else ALONE, entries.alone, job, 1, live)
        else:
            self._note(SHARED, entries.shared, job, min(threads, tasks), live)

    def share(self, code: Any, function: int, job: bytes, threads: int, live: Live | None = None) -> None:
        """Notes the run of a function that draws the job's tasks, on up to so many threads."""
        self.keep(code)
        self._note(SHARED, function, job, threads, live)

    def launch(self, kernel: Any, arguments: tuple[Any, ...], threads: int, changing: Changing | None = None) -> None:
        """Notes the run of a kernel that Numba compiles."""
        function, job = _packed(kernel, arguments)
        self.keep(*_tables(arguments))
        live = None
        if changing is not None:
            part, behind, refresh = changing
            if job.count(part) != 1:
                raise GraphError(f"[graph] expected what changes once among the arguments of {kernel}: step outside")
            live = Live(job.index(part) + behind, refresh)
        self._note(SHARED, function, job, threads, live)

    def act(self, function: Callable[..., object], *arguments: Any) -> None:
        """Notes the call of a function, with arguments."""
        self._end_calls()
        self._parts.append(partial(function, *arguments) if arguments else function)

    def _note(self, kind: int, function: int, job: bytes, threads: int, live: Live | None) -> None:
        memory = np.zeros(-(-len(job) // 8) * 8, np.uint8)
        memory[: len(job)] = np.frombuffer(job, np.uint8)
        self.keep(memory)
        if live is not None:
            self.act(_refreshing(memory, live))
        self._threads = max(self._threads, threads)
        self._calls.append((kind, function, threads, memory.ctypes.data, memory.size // 8))

    def _end_calls(self) -> None:
        """Makes what was noted last a part of its own."""
        if self._calls:
            table = np.array(self._calls, np.int64)
            self._parts.append(_Played(table, self._threads))
            self._calls, self._threads = [], 1

    def finish(self) -> list[Callable[[], object]]:
        """The parts of the step, which keep what they need as long as this tape is kept."""
        self._end_calls()
        return self._parts


class _Played:
    """Calls without any Python between them."""

    def __init__(self, table: Array, threads: int) -> None:
        self._table, self._threads = table, threads
        self._room = np.zeros(int(table[:, -1].max()) + 8, np.int64)  # jobs begin where a cache line does
        room = -(-self._room.ctypes.data // 64) * 64
        self._arguments = table.ctypes.data, len(table), room
        self._count = len(table)

    def __call__(self) -> None:
        found = workers.WORKERS.play(_PLAY.call, self._threads, *self._arguments)
        if found != self._count:
            raise MemoryError("no memory for a kernel's own buffers")


def _refreshing(memory: Array, live: Live) -> Callable[[], None]:
    """Writes a job's new part, from the second run on: the first one has what was captured."""
    refresh, is_first, room = live.refresh, [True], memory.data[live.place :]

    def write() -> None:
        if is_first:
            is_first.clear()
            return
        fresh = refresh()
        room[: len(fresh)] = fresh

    return write


# -- the native loop -----------------------------------------------------------------------------------------------


def _play(calls, count, room, slot, thread_slot):  # type: ignore[no-untyped-def]
    """Makes calls one after another; returns how many went well.

    Each gets a copy of its job, in ``room``: kernels may count in it. ``thread_slot``: for what one thread runs.
    """
    for place in range(count):
        address = calls + 8 * _WORDS * place
        kind, function, threads = get(address), get(address + 8), get(address + 16)
        job, words = get(address + 24), get(address + 32)
        if kind == ZERO:
            for word in range(words):
                put(job + 8 * word, 0)
            continue
        copied = function if kind == COPY else room
        for word in range(words):
            put(copied + 8 * word, get(job + 8 * word))
        if kind == COPY:
            continue
        if kind == ALONE:
            call(function, (room,))
        elif kind == UNSHARED:
            call(function, (0, room))
        else:
            used = thread_slot
            if threads > 1:
                used = slot
                take(slot)
            run(used, threads, function, room)
            failures = get(used + JOB_SLOT.failures)
            if threads > 1:
                give_back(slot)
            if failures != 0:
                return place
    return count


_number = ctypes.c_int64
_PLAY = NativeFunction(_play, "play", (_number,) * 5, result=_number)


# -- the arguments of Numba's kernels --------------------------------------------------------------------------------

_TARGET, _LENGTH, _TAKEN = (JOB_SLOT.nbytes + 8 * place for place in range(3))
"""What a slot without tasks has behind its fields: where arguments are copied to, their words, whether they were."""


def _leave_arguments(share, tasks):  # type: ignore[no-untyped-def]
    """Draws no task, and copies the job's arguments."""
    slot = get(share + SHARE.slot)
    source, target = get(slot + JOB_SLOT.arguments), get(slot + _TARGET)
    for word in range(get(slot + _LENGTH)):
        put(target + 8 * word, get(source + 8 * word))
    put(slot + _TAKEN, 1)
    return tasks


_LEAVE_ARGUMENTS = NativeFunction(_leave_arguments, "leave_arguments", (_number, _number), result=_number)


def _packed(kernel: Any, arguments: tuple[Any, ...]) -> tuple[int, bytes]:
    """The address of a kernel's function of a share and a job, and the job of these arguments.

    Arrays in the job belong to nobody: who notes it keeps their memory.
    """
    memory, slot = workers.new_slot(more=24)  # the memory stays until the kernel is through
    layout = layout_of(kernel, arguments)
    record = np.zeros(-(-layout.nbytes // 8), np.int64)
    fields = {JOB_SLOT.draw: _LEAVE_ARGUMENTS.address, _TARGET: record.ctypes.data, _LENGTH: record.size, _TAKEN: 0}
    for place, value in fields.items():
        ctypes.c_int64.from_address(slot + place).value = value
    kernel(slot, 1, *arguments)
    if not ctypes.c_int64.from_address(slot + _TAKEN).value:
        raise GraphError(
            f"[graph] expected kernels that divide their work into tasks, got {kernel.__name__}: step outside the graph"
        )
    for place in layout.owners:
        record[place // 8] = 0
    function = ctypes.c_int64.from_address(slot + JOB_SLOT.entry).value
    del memory
    return function, record.tobytes()


# -- the thread's tape ---------------------------------------------------------------------------------------------

_tapes: dict[int, Tape] = {}
"""By the thread that has one."""


def tape() -> Tape | None:
    """This thread's tape."""
    return _tapes.get(get_ident()) if _tapes else None


@contextmanager
def taping(noted: Tape) -> Iterator[Tape]:
    """``with taping(Tape()) as tape:`` this thread's kernels are noted instead of run."""
    thread = get_ident()
    before = _tapes.get(thread)
    try:
        _tapes[thread] = noted
        yield noted
    finally:
        if before is None:
            _tapes.pop(thread, None)
        else:
            _tapes[thread] = before


@contextmanager
def paused() -> Iterator[None]:
    """``with paused():`` this thread's kernels run."""
    thread = get_ident()
    before = _tapes.pop(thread, None)
    try:
        yield
    finally:
        if before is not None:
            _tapes[thread] = before


def zeros(words: int) -> Array:
    """Memory of so many 8-byte words for the parts of a result, which are 0 when the next job begins."""
    memory = np.zeros(words)
    noted = tape()
    if noted is not None:
        noted.zeros(memory)
    return memory


def enter(entry: Entry, threads: int, arguments: tuple[Any, ...], changing: Changing | None = None) -> None:
    """Runs a kernel by its entry (``alpha.cpu.compile.entry``) on up to so many threads."""
    noted = tape()
    if noted is None:
        workers.WORKERS.enter(entry, threads, arguments)
    else:
        kernel, typed = entered(entry, arguments)
        noted.launch(kernel, typed, threads, changing)


def kept(*things: Any) -> None:
    """Notes what the next jobs have the addresses of."""
    noted = tape()
    if noted is not None:
        noted.keep(*things)
