"""Launches: an operation's kernel called by one C function, which Python calls with the arguments themselves.

A launch is a built-in function made of LLVM IR (``alpha.cpu.launch_code``). It knows how tensors lay in earlier calls
and finds what a call needs by comparing pointers, has the results made, and calls the kernel with its job. It declines,
by returning None, whatever it does not know or what is not for it: other types, another layout, or, if asked to look,
tensors in the graph. The caller then goes the long way, which knows everything, checks everything, and ends with
``learn``.

A job of several tasks runs on the engine's threads: the launch takes the workers' slot (``alpha.cpu.sharing``) and runs
the job there. While another job has the slot it does all tasks itself: the bits are the same. Where workers have yet to
be started it declines, and the long way starts them.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from alpha.cpu import workers
from alpha.cpu.launch_code import (
    INPUTS,
    KINDS,
    MOST_ARGUMENTS,
    MOST_RESULTS,
    MOST_TENSORS,
    MOST_WORDS,
    PARTS,
    VERDICT,
    Method,
    method,
    python_addresses,
)
from alpha.cpu.loops.machine import Entries
from alpha.geometry import Geometry
from alpha.launches import KEY, NUMBER, OPTIONAL, SEVERAL, TENSOR, Launches, decline
from alpha.tensor import Storage, Tensor

MOST_ENTRIES = 32
"""Layouts that a launch knows."""

MISSES_UNTIL_RESET = 256
"""Calls of other layouts after which it begins anew, once it knows so many: to learn one takes as long as ten calls."""

LONG = 1 << 13
"""Elements from which other threads run meanwhile: to let them takes as long as the loop of some hundreds."""


class Word(NamedTuple):
    """A word of a job: a number, or what is added to the address of a tensor or result, in bytes, or to a number."""

    source: str
    """"constant", "verdict", "parts", "number", "tensor" or "result"."""
    place: int = 0
    """Which of the numbers, tensors or results."""
    plus: int = 0


def constant(value: int) -> Word:
    """The same number in each job."""
    return Word("constant", 0, value)


def of_tensor(place: int) -> Word:
    """The address of a tensor's first element; 0 where there is no tensor."""
    return Word("tensor", place)


def of_result(place: int = 0) -> Word:
    """The address of a result's first element; 0 where there is no such result."""
    return Word("result", place)


def verdict() -> Word:
    """The address of a word that is 0: a kernel that writes another number there makes the launch decline."""
    return Word("verdict")


def parts() -> Word:
    """The address of memory in which threads keep the parts of a result, whose first word is 0; 0 for one thread."""
    return Word("parts")


def of_number(place: int) -> Word:
    """The bits of a number, as a float64, or as an integer where there are limits."""
    return Word("number", place)


class Code(Protocol):
    """A kernel: a ``Loop`` or a ``JobKernel``."""

    @property
    def entries(self) -> Entries:
        """The addresses of its functions."""


class Call(NamedTuple):
    """How a kernel is called for arguments of one layout."""

    kept: Any
    """Keeps the kernel, and what constants of the job are addresses of."""
    entries: Entries
    tasks: int
    """How many the job has: more threads would find none."""
    parts: int
    """Bytes of memory for the parts of several threads."""
    is_long: bool
    """Whether other threads may run meanwhile."""
    job: tuple[Word, ...]
    make: Callable[[Any], Any]
    """Gives what the results lie in on an engine.

    With ``like`` a storage, or a tuple of them, of which the first is the result's and the others are for the kernel
    alone; without it the tuple of results, of which some may be None. In place anything else than None.
    """
    results: int
    """How many there are: storages, or tensors."""
    like: Tensor | None
    """What a single result is but for its storage."""
    limits: tuple[int, int] | None = None
    """The least and the largest of the numbers where these are to be ints; else they are floats."""


class _Entry(NamedTuple):
    """A layout of arguments that a launch knows, and what it needs."""

    call: Call
    layouts: tuple[tuple[Any, Any, Any], ...]
    """Dtype, shape and strides of each tensor, None of one that is not there."""
    keys: tuple[Any, ...]
    packed: bytes


def learn(known: Launches, engine: Any, call: Callable[[], Call | None], *arguments: Any) -> None:
    """Makes an operation's launches know how the kernel is called with arguments that lie as these, if it can be."""
    if not engine.has_launches:
        return
    layouts, keys = _layout(known, arguments)
    if not _are_keys(keys):
        return
    key = _key(type(engine), layouts, keys)
    if key in known.known:
        return
    is_full = len(known.known) >= MOST_ENTRIES
    if is_full:
        known.missed += 1
        if known.missed < MISSES_UNTIL_RESET:
            return
    made = call()
    if made is None or len(layouts) > MOST_TENSORS or made.results > MOST_RESULTS or len(made.job) > MOST_WORDS:
        return
    packed = _packed(type(engine), made, layouts, keys, known.arguments.count(NUMBER))
    entries = {} if is_full else dict(known.known)
    entries[key] = _Entry(made, layouts, keys, packed)
    launch, outside = (_launch(known, entries, looks or known.in_place) for looks in (False, True))
    known.launch, known.launch_outside, known.known, known.missed = launch, outside, entries, 0


def alias(engine: Any, known: Launches, arguments: Sequence[Any], other: Launches, given: Sequence[Any]) -> None:
    """Where some arguments are known, makes others known that mean the same, such as an axis counted from the end.

    Their tensors are the same, or begin where these do: as a view that repeats another, and no copy.
    """
    layouts, keys = _layout(known, arguments)
    found = known.known.get(_key(type(engine), layouts, keys)) if _are_keys(keys) else None
    if found is not None and _starts(known, arguments) == _starts(other, given):
        learn(other, engine, lambda: found.call, *given)


def _starts(known: Launches, arguments: Sequence[Any]) -> list[tuple[int, int] | None]:
    """Where the tensors among the arguments begin."""
    return [None if x is None else (id(x.storage), x.offset) for x in _tensors(known, arguments)]


def call_of(
    code: Code,
    job: Sequence[Word],
    results: Sequence[Tensor | None],
    elements: int,
    tasks: int,
    kept: Any,
    parts: int = 0,
    scratch: Sequence[int] = (),
) -> Call:
    """How a kernel is called whose results are like these.

    Args:
        code: the kernel.
        results: what a call has made, new and dense; nothing in place.
        elements: how many it computes or moves: from ``LONG`` on other threads may run meanwhile.
        tasks: into how many parts the job is divided.
        kept: keeps what constants of the job are addresses of.
        parts: bytes of memory that several threads need for the parts of a result.
        scratch: bytes of memory for the kernel alone, beside a single result: ``of_result(1)`` and so on.
    """
    layouts = [None if x is None else (x.shape, x.strides, x.dtype, x.storage.nbytes) for x in results]
    one = layouts[0] if len(layouts) == 1 else None
    like: Tensor | None = None
    if one is None:
        make = _several(layouts) if layouts else _nothing
    else:
        like = Tensor(_NoStorage, 0, *one[:3])
        make = _memory((one[3], *scratch))
    count = len(layouts) + len(scratch)
    return Call((code, kept), code.entries, tasks, parts, elements >= LONG, tuple(job), make, count, like)


class _NoStorage:
    """What a tensor has for a storage that says only how results lie."""

    address = 0


def _memory(sizes: tuple[int, ...]) -> Callable[[Any], Any]:
    """Makes a storage of each size in bytes."""
    first, *others = sizes

    def make(engine: Any) -> Storage | tuple[Storage, ...]:
        pool = engine.memory
        made = Storage(engine, pool, first)
        return (made, *[Storage(engine, pool, size) for size in others]) if others else made

    return make


def _several(layouts: Sequence[Any]) -> Callable[[Any], Any]:
    """Makes tensors by shape, strides, dtype and bytes, and None for None."""

    def make(engine: Any) -> tuple[Tensor | None, ...]:
        pool = engine.memory
        return tuple([
            None if layout is None else Tensor(Storage(engine, pool, layout[3]), 0, layout[0], layout[1], layout[2])
            for layout in layouts
        ])  # fmt: skip

    return make


def _nothing(_engine: Any) -> bool:
    """Makes nothing, for what is computed in place."""
    return True


def _layout(known: Launches, arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """How the tensors among the arguments lie, and the keys."""
    tensors = _tensors(known, arguments)
    layouts = tuple([(None, None, None) if x is None else (x.dtype, x.shape, x.strides) for x in tensors])
    return layouts, tuple([value for kind, value in zip(known.arguments, arguments, strict=True) if kind == KEY])


def _tensors(known: Launches, arguments: Sequence[Any]) -> list[Tensor | None]:
    """The tensors among the arguments."""
    found: list[Tensor | None] = []
    for kind, value in zip(known.arguments, arguments, strict=True):
        if kind == SEVERAL:
            found += value
        elif kind in (TENSOR, OPTIONAL):
            found.append(value)
    return found


def _key(engine: type, layouts: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    return engine, layouts, tuple([struct.pack("d", key) if type(key) is float else (type(key), key) for key in keys])


def _are_keys(keys: tuple[Any, ...]) -> bool:
    """Whether a launch can tell the keys from others."""
    return all(
        key is None or type(key) in (bool, int, float, str, Geometry) or isinstance(key, np.dtype)
        or (type(key) is tuple and all(type(n) is int for n in key))
        for key in keys
    )  # fmt: skip


def _packed(
    engine: type, call: Call, layouts: tuple[tuple[Any, Any, Any], ...], keys: tuple[Any, ...], numbers: int
) -> bytes:
    """An entry of a record."""
    first = {"constant": 0, "verdict": VERDICT, "parts": PARTS, "number": INPUTS, "tensor": INPUTS + numbers}
    first["result"] = first["tensor"] + len(layouts)
    fields = [
        0, id(engine), len(layouts), call.results, len(call.job), *call.entries, call.tasks, call.parts, call.is_long,
        id(call.make), 0 if call.like is None else id(call.like), *(call.limits or (1, 0)),
    ]  # fmt: skip
    for dtype, shape, strides in layouts:
        fields += [id(dtype), id(shape), id(strides), 0 if dtype is None else dtype.itemsize]
    fields += map(id, keys)
    for word in call.job:
        fields += [first[word.source] + word.place, word.plus]
    fields[0] = 8 * len(fields)
    return struct.pack(f"{len(fields)}q", *fields)


def _launch(known: Launches, entries: dict[Any, _Entry], outside: bool) -> Callable[..., Any]:
    """A function of the operation's arguments; one that always declines where there can be none."""
    code = method()
    if code is None:
        return decline
    kinds = [KINDS.index(kind) for kind in known.arguments]
    kinds += [0] * (MOST_ARGUMENTS - len(kinds))
    slot = workers.SLOT
    fields = [
        len(entries),
        outside,
        known.in_place,
        len(known.arguments),
        slot.ctypes.data,
        *kinds,
        *python_addresses(),
    ]
    record = struct.pack(f"{len(fields)}q", *fields) + b"".join([entry.packed for entry in entries.values()])
    module = _Module(__name__)
    module.needed = code, entries, slot
    made: Callable[..., Any] = _new(ctypes.addressof(code.definition), record, module)
    return made


class _Module(str):
    """The name of a launch's module, which the launch holds, with all that it needs."""

    needed: tuple[Method, dict[Any, _Entry], Any]


_new: Any = ctypes.pythonapi.PyCFunction_NewEx
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
