"""The C function of all launches (``alpha.cpu.launches``), written as LLVM IR, and where it finds what it reads.

It reads a tensor's attributes where ``__slots__`` keeps them. Where they lie is looked up in an object, so an
interpreter that keeps them elsewhere has no launches, and goes the long way always.

A record, in 8-byte fields, is what one launch knows; it never changes, another entry makes another record:

    ``_HEADER``: how many entries, how the launch behaves, its arguments' kinds, addresses of types and functions of
    Python; for each entry ``_ENTRY``, then for each tensor ``_OF_TENSOR``, for each key the object, and for each word
    of the job a source and what is added to it.

The sources are 0, the address of the kernel's verdict, that of the memory for threads' parts, then the numbers, the
tensors' and the results' addresses.
"""

from __future__ import annotations

import ctypes
import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache as once
from pathlib import Path
from typing import Any

from llvmlite import ir

from alpha.cpu.job_slot import JOB_SLOT
from alpha.cpu.loops import machine
from alpha.launches import ENGINE, KEY, NUMBER, OPTIONAL, SEVERAL, TENSOR
from alpha.tensor import Storage, Tensor

MOST_ARGUMENTS, MOST_TENSORS, MOST_RESULTS, MOST_WORDS = 16, 256, 8, 288
"""What a launch has room for."""

KINDS = (TENSOR, OPTIONAL, SEVERAL, NUMBER, KEY, ENGINE)
_FUNCTIONS = (
    "PyLong_AsLongLong", "PyFloat_AsDouble", "PyErr_Occurred", "PyErr_Clear", "PyObject_RichCompareBool",
    "PyObject_CallOneArg", "PyType_IsSubtype", "PyType_GenericAlloc", "Py_IncRef", "Py_DecRef", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyObject_GetAttr", "PyMem_RawMalloc", "PyMem_RawFree",
)  # fmt: skip
_OBJECTS = {
    "Tensor": Tensor,
    "Storage": Storage,
    "tuple": tuple,
    "int": int,
    "float": float,
    "str": str,
    "None": None,
    "False": False,
    "threads": "threads",
}
_KIND_NAMES = tuple([f"kind {place}" for place in range(MOST_ARGUMENTS)])
_HEADER = ("count", "outside", "in_place", "arguments", "slot", *_KIND_NAMES, *_OBJECTS, *_FUNCTIONS)
_ENTRY = (
    "size", "engine", "tensors", "results", "words", "alone", "shared", "takes_share", "tasks", "parts", "is_long",
    "make", "like", "least", "most",
)  # fmt: skip
_OF_TENSOR = ("dtype", "shape", "strides", "itemsize")
_SEEN = ("object", "storage", "offset", "shape", "strides", "dtype")
_TENSOR_SLOTS = tuple([name for name in Tensor.__slots__ if name != "__weakref__"])
_STORAGE_SLOTS = ("engine", "address", "version")

_I64, _I32, _DOUBLE, _VOID = ir.IntType(64), ir.IntType(32), ir.DoubleType(), ir.VoidType()
VERDICT, PARTS, INPUTS = 1, 2, 3
"""Places of sources; the last is the first of those that come from the arguments."""
_TYPE = 8
"""Where an object keeps its type."""
_FLOAT = 16
"""Where a float keeps its number."""
_LENGTH = 16
"""Where a tuple keeps its length."""
_FASTCALL = 0x80
"""Python's flag of a function that gets its arguments as an array."""


@once
def python_addresses() -> tuple[int, ...]:
    """The addresses of Python's objects and functions."""
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS]
    return (*map(id, _OBJECTS.values()), *functions)


class _Definition(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class Method:
    """The machine code of all launches."""

    def __init__(self, places: dict[str, int]) -> None:
        source = Path(__file__).read_bytes()
        key = f"{places} {JOB_SLOT} {hashlib.sha256(source).hexdigest()}"
        self._functions = machine.functions(key, lambda: _Writer(places).text())  # keeps the code
        self.definition = _Definition(b"launch", self._functions.address("launch"), _FASTCALL, None)


@once
def method() -> Method | None:
    """The code, once per process; None in an interpreter that has no launches."""
    places = slots()
    return None if places is None else Method(places)


@once
def slots() -> dict[str, int] | None:
    """Where the objects keep the attributes that a launch reads, in bytes; None in an interpreter unlike CPython."""
    mark, text, number = object(), b"launches", 1.5
    holder = (mark,)
    if (
        sysconfig.get_config_var("Py_GIL_DISABLED")
        or ctypes.c_int64.from_address(id(holder) + tuple.__basicsize__).value != id(mark)
        or ctypes.c_int64.from_address(id(holder) + _LENGTH).value != len(holder)
        or ctypes.c_double.from_address(id(number) + _FLOAT).value != number
        or ctypes.string_at(id(text) + bytes.__basicsize__ - 1, len(text)) != text
    ):
        return None
    found: dict[str, int] = {}
    for kind, names in ((Tensor, _TENSOR_SLOTS), (Storage, _STORAGE_SLOTS)):
        thing: Any = object.__new__(kind)
        marks = {name: object() for name in names}
        for name, mark in marks.items():
            setattr(thing, name, mark)
        words = (ctypes.c_int64 * (kind.__basicsize__ // 8)).from_address(id(thing))
        if words[_TYPE // 8] != id(kind):
            return None
        for name, mark in marks.items():
            places = [8 * place for place, word in enumerate(words) if word == id(mark)]
            if len(places) != 1:
                return None
            found[f"{kind.__name__}.{name}"] = places[0]
    return found


class _Writer:
    """Writes the function of all launches. Every value is an i64: a number, an address, or an object by its address."""

    def __init__(self, places: dict[str, int]) -> None:
        self._places = places
        self._module = ir.Module("launch")
        function = ir.Function(self._module, ir.FunctionType(_I64, (_I64, _I64, _I64)), "launch")
        self._owner, self._arguments, self._given = function.args
        self._function = function
        self._builder = ir.IRBuilder(function.append_basic_block("entry"))
        self._decline = function.append_basic_block("decline")
        self._record = self._sum(self._owner, bytes.__basicsize__ - 1)
        self._seen = self._room(MOST_TENSORS * len(_SEEN))
        self._keys = self._room(MOST_ARGUMENTS)
        self._sources = self._room(INPUTS + MOST_ARGUMENTS + MOST_TENSORS + MOST_RESULTS)
        self._job = self._room(MOST_WORDS)
        self._tensors, self._numbers, self._key_count, self._engine = (self._room(1) for _ in range(4))
        self._verdict, self._threads, self._slot = (self._room(1) for _ in range(3))
        self._given_numbers = self._room(MOST_ARGUMENTS)

    def text(self) -> str:
        """The module's text."""
        b = self._builder
        counts = self._tensors, self._numbers, self._key_count
        for place in (*counts, self._engine, self._sources, self._verdict, self._slot):
            self._store(self._number(0), place)
        self._store(self._verdict, self._sources, 8 * VERDICT)
        self._check(self._is(self._given, self._known("arguments")), self._decline)
        with self._loop(self._given) as k:
            self._read(self._item(self._arguments, k), self._item(self._field_address("kind 0"), k))
        engine = self._load(self._engine)
        self._check(b.not_(self._is(engine, self._number(0))), self._decline)  # a tensor or the caller tells it
        entry = self._entry(engine)
        self._find_integers(entry)
        self._find_threads(entry, engine)
        out = self._call("PyObject_CallOneArg", self._of(entry, "make"), engine)
        refused = b.or_(self._is(out, self._number(0)), self._is(out, self._known("None")))
        going_on, leave = self._function.append_basic_block(), self._function.append_basic_block("leave")
        b.cbranch(refused, leave, going_on)
        b.position_at_end(leave)  # an error, or None of a function that has nothing for it
        b.ret(out)
        changed = self._function.append_basic_block("changed")
        b.position_at_end(changed)
        self._call("Py_DecRef", out, result=_VOID)
        b.branch(self._decline)
        b.position_at_end(self._decline)
        self._call("PyErr_Clear", result=_VOID)
        self._call("Py_IncRef", self._known("None"), result=_VOID)
        b.ret(self._known("None"))
        b.position_at_end(going_on)
        self._find_tensors(entry, changed)
        self._find_results(entry, out)
        self._take_slot()
        self._find_parts(entry)
        self._write_job(entry)
        self._run(entry)
        self._check(self._is(self._load(self._verdict), self._number(0)), changed)
        self._return(entry, out)
        return str(self._module)

    # -- arguments -----------------------------------------------------------------------------------------------

    def _read(self, thing: Any, kind: Any) -> None:
        """Notes an argument of a kind."""
        b = self._builder
        is_kind = {name: self._is(kind, self._number(place)) for place, name in enumerate(KINDS)}
        with b.if_then(b.or_(is_kind[TENSOR], is_kind[OPTIONAL])):
            self._note_tensor(thing, is_kind[OPTIONAL])
        with b.if_then(is_kind[SEVERAL]):
            self._check_kind(thing, "tuple", self._decline)
            with self._loop(self._load(thing, _LENGTH)) as k:
                self._note_tensor(self._item(self._sum(thing, tuple.__basicsize__), k), ir.Constant(ir.IntType(1), 0))
        with b.if_then(is_kind[NUMBER]):
            count = self._count_up(self._numbers)
            self._store(thing, b.add(self._given_numbers, b.mul(count, self._number(8))))
            value = b.bitcast(self._value(thing), _I64)
            self._store(value, b.add(self._sources, b.mul(self._sum(count, INPUTS), self._number(8))))
        with b.if_then(is_kind[ENGINE]):
            self._store(thing, self._engine)
        with b.if_then(is_kind[KEY]):
            self._store(thing, b.add(self._keys, b.mul(self._count_up(self._key_count), self._number(8))))

    def _note_tensor(self, thing: Any, may_be_absent: Any) -> None:
        """Notes a tensor's attributes, all of them there and of their types; None's are None."""
        b, none = self._builder, self._known("None")
        count = self._count_up(self._tensors)
        self._check(b.icmp_signed("<", count, self._number(MOST_TENSORS)), self._decline)
        row = self._row(count)
        with b.if_else(b.and_(may_be_absent, self._is(thing, none))) as (absent, present):
            with absent:
                for name in _SEEN:
                    self._store(none, row, 8 * _SEEN.index(name))
            with present:
                self._note_present(thing, row)

    def _note_present(self, thing: Any, row: Any) -> None:
        b = self._builder
        is_tensor = self._call("PyType_IsSubtype", self._load(thing, _TYPE), self._known("Tensor"), result=_I32)
        self._check(b.icmp_signed("!=", is_tensor, ir.Constant(_I32, 0)), self._decline)
        self._store(thing, row)
        found = {name: self._attribute(thing, f"Tensor.{name}") for name in _SEEN[1:]}
        for name, kind in (("storage", "Storage"), ("offset", "int"), ("shape", "tuple"), ("strides", "tuple")):
            self._check_kind(found[name], kind, self._decline)
        for name, value in found.items():
            self._store(value, row, 8 * _SEEN.index(name))
        storage = found["storage"]
        self._check_kind(self._attribute(storage, "Storage.address"), "int", self._decline)
        engine, before = self._attribute(storage, "Storage.engine"), self._load(self._engine)
        is_first = self._is(before, self._number(0))
        with b.if_then(b.not_(is_first)):
            self._check(self._is(engine, before), self._decline)
            in_place = b.not_(self._is(self._known("in_place"), self._number(0)))
            first = self._load(self._seen, 8 * _SEEN.index("storage"))
            self._check(b.not_(b.and_(in_place, self._is(storage, first))), self._decline)
        self._store(engine, self._engine)
        with b.if_then(b.not_(self._is(self._known("outside"), self._number(0)))):
            self._check_outside(thing, storage, is_first)

    def _check_outside(self, thing: Any, storage: Any, is_first: Any) -> None:
        """Goes on where a tensor is not in the graph: neither itself nor, unless written to since, what it views.

        In place the first tensor is no view at all: what it views would have to be checked too.
        """
        b, false = self._builder, self._known("False")
        self._check(self._is(self._attribute(thing, "Tensor.requires_grad"), false), self._decline)
        base = self._attribute(thing, "Tensor._base")
        with b.if_then(b.not_(self._is(base, self._known("None")))):
            in_place = b.not_(self._is(self._known("in_place"), self._number(0)))
            self._check(b.not_(b.and_(in_place, is_first)), self._decline)
            self._check(b.not_(self._is(base, self._number(0))), self._decline)
            self._check(self._is(self._attribute(base, "Tensor.requires_grad"), false), self._decline)
            followed = self._attribute(thing, "Tensor._base_version")
            self._check(self._is(followed, self._attribute(storage, "Storage.version")), self._decline)

    def _value(self, thing: Any) -> Any:
        """A Python float or int as a double."""
        b, kind = self._builder, self._load(thing, _TYPE)
        self._check(b.or_(self._is(kind, self._known("float")), self._is(kind, self._known("int"))), self._decline)
        value = self._call("PyFloat_AsDouble", thing, result=_DOUBLE)
        with b.if_then(b.fcmp_ordered("==", value, ir.Constant(_DOUBLE, -1.0))):
            error = self._call("PyErr_Occurred")
            self._check(self._is(error, self._number(0)), self._decline)
        return value

    # -- the entry -----------------------------------------------------------------------------------------------

    def _entry(self, engine: Any) -> Any:
        """The address of the entry that fits."""
        b = self._builder
        first = self._sum(self._record, 8 * len(_HEADER))
        before = b.block
        look, fits, another = (self._function.append_basic_block(name) for name in ("look", "fits", "another"))
        b.branch(look)
        b.position_at_end(look)
        entry, number = b.phi(_I64), b.phi(_I64)
        entry.add_incoming(first, before)
        number.add_incoming(self._number(0), before)
        self._check(b.icmp_signed("<", number, self._known("count")), self._decline)
        self._check(self._is(self._of(entry, "engine"), self._load(engine, _TYPE)), another)
        tensors = self._load(self._tensors)
        self._check(self._is(self._of(entry, "tensors"), tensors), another)
        with self._loop(tensors) as k:
            row, wanted = self._row(k), self._of_tensor(entry, k)
            self._check(self._is(self._load(wanted), self._load(row, 8 * _SEEN.index("dtype"))), another)
            for place, name in ((1, "shape"), (2, "strides")):
                self._check_equal(self._load(wanted, 8 * place), self._load(row, 8 * _SEEN.index(name)), another)
        keys = self._of_tensor(entry, tensors)
        with self._loop(self._load(self._key_count)) as k:
            self._check_same(self._item(keys, k), self._item(self._keys, k), another)
        b.branch(fits)
        b.position_at_end(another)
        entry.add_incoming(b.add(entry, self._of(entry, "size")), another)
        number.add_incoming(self._sum(number, 1), another)
        b.branch(look)
        b.position_at_end(fits)
        return entry

    def _check_same(self, wanted: Any, given: Any, otherwise: Any) -> None:
        """Goes on where two keys are equal and of one type, and so their items; floats have the same bits.

        Dtypes are compared by their addresses: NumPy has one object for each that is made without options.
        """
        b = self._builder
        compare, same = self._function.append_basic_block(), self._function.append_basic_block()
        b.cbranch(self._is(wanted, given), same, compare)
        b.position_at_end(compare)
        kind = self._load(given, _TYPE)
        self._check(self._is(kind, self._load(wanted, _TYPE)), otherwise)
        is_tuple, is_float = (self._is(kind, self._known(name)) for name in ("tuple", "float"))
        with b.if_then(is_float):
            b.cbranch(self._is(self._load(given, _FLOAT), self._load(wanted, _FLOAT)), same, otherwise)
        is_known = is_tuple
        for name in ("int", "str"):
            is_known = b.or_(is_known, self._is(kind, self._known(name)))
        self._check(is_known, otherwise)
        with b.if_then(is_tuple), self._loop(self._load(given, _LENGTH)) as k:
            item = self._item(self._sum(given, tuple.__basicsize__), k)
            self._check_kind(item, "int", otherwise)
        self._check_equal(wanted, given, otherwise)
        b.branch(same)
        b.position_at_end(same)

    def _check_equal(self, wanted: Any, given: Any, otherwise: Any) -> None:
        """Goes on where two tuples of ints, or the like, are equal."""
        b = self._builder
        compare, equal = self._function.append_basic_block(), self._function.append_basic_block()
        b.cbranch(self._is(wanted, given), equal, compare)
        b.position_at_end(compare)
        found = self._call("PyObject_RichCompareBool", wanted, given, ir.Constant(_I32, 2), result=_I32)
        b.cbranch(b.icmp_signed("==", found, ir.Constant(_I32, 1)), equal, otherwise)
        b.position_at_end(equal)

    # -- the call ------------------------------------------------------------------------------------------------

    def _find_integers(self, entry: Any) -> None:
        """Writes the numbers to the sources as integers, where the entry has limits for them."""
        b, least, most = self._builder, self._of(entry, "least"), self._of(entry, "most")
        with b.if_then(b.icmp_signed("<=", least, most)), self._loop(self._load(self._numbers)) as k:
            thing = self._item(self._given_numbers, k)
            self._check_kind(thing, "int", self._decline)
            value = self._int(thing)
            with b.if_then(self._is(value, self._number(-1))):
                self._check(self._is(self._call("PyErr_Occurred"), self._number(0)), self._decline)
            within = b.and_(b.icmp_signed("<=", least, value), b.icmp_signed("<=", value, most))
            self._check(within, self._decline)
            self._store(value, b.add(self._sources, b.mul(self._sum(k, INPUTS), self._number(8))))

    def _find_threads(self, entry: Any, engine: Any) -> None:
        """Notes how many threads the job can have; goes on where as many are there or no more can be started."""
        b, tasks = self._builder, self._of(entry, "tasks")
        self._store(self._number(1), self._threads)
        with b.if_then(b.icmp_signed(">", tasks, self._number(1))):
            given = self._call("PyObject_GetAttr", engine, self._known("threads"))
            self._check(b.not_(self._is(given, self._number(0))), self._decline)
            threads = self._int(given)
            self._call("Py_DecRef", given, result=_VOID)
            self._check(b.icmp_signed(">=", threads, self._number(1)), self._decline)
            threads = b.select(b.icmp_signed("<", threads, tasks), threads, tasks)
            self._store(threads, self._threads)
            slot = self._load(self._known("slot"))
            is_shared = b.and_(b.icmp_signed(">", threads, self._number(1)), b.not_(self._is(slot, self._number(0))))
            with b.if_then(is_shared):
                ready = b.load_atomic(self._pointer(slot, JOB_SLOT.ready), "monotonic", 8)
                self._check(b.icmp_signed("<=", threads, ready), self._decline)

    def _take_slot(self) -> None:
        """Takes the workers' slot for a job of several threads, unless another job has it. Python code has run before.

        From here on no path leaves without giving it back, and none runs Python code.
        """
        b, slot = self._builder, self._load(self._known("slot"))
        several = b.icmp_signed(">", self._load(self._threads), self._number(1))
        with b.if_then(b.and_(several, b.not_(self._is(slot, self._number(0))))):
            busy = self._pointer(slot, JOB_SLOT.busy)
            pair = b.cmpxchg(busy, self._number(0), self._number(1), "seq_cst", "seq_cst")
            with b.if_then(b.extract_value(pair, 1)):
                self._store(slot, self._slot)

    def _find_parts(self, entry: Any) -> None:
        """Writes the address of memory for parts to the sources. Without memory one thread computes: it needs none."""
        b, place, zero = self._builder, self._sum(self._sources, 8 * PARTS), self._number(0)
        self._store(zero, place)
        slot, size = self._load(self._slot), self._of(entry, "parts")
        with b.if_then(b.not_(b.or_(self._is(slot, zero), self._is(size, zero)))):
            memory = self._call("PyMem_RawMalloc", size)
            self._store(memory, place)
            with b.if_else(self._is(memory, zero)) as (without, with_memory):
                with without:
                    b.store_atomic(zero, self._pointer(slot, JOB_SLOT.busy), "seq_cst", 8)
                    self._store(zero, self._slot)
                with with_memory:
                    self._store(zero, memory)

    def _find_tensors(self, entry: Any, changed: Any) -> None:
        """Writes the tensors' addresses to the sources, unless one is another now: Python code has run meanwhile."""
        b, tensors = self._builder, self._load(self._tensors)
        first = b.add(self._sources, b.mul(self._sum(self._load(self._numbers), INPUTS), self._number(8)))
        with self._loop(tensors) as k:
            row = self._row(k)
            thing = self._load(row)
            place = b.add(first, b.mul(k, self._number(8)))
            with b.if_else(self._is(thing, self._known("None"))) as (absent, present):
                with absent:
                    self._store(self._number(0), place)
                with present:
                    for name in _SEEN[1:]:
                        before = self._load(row, 8 * _SEEN.index(name))
                        self._check(self._is(self._attribute(thing, f"Tensor.{name}"), before), changed)
                    storage, offset = (self._load(row, 8 * _SEEN.index(name)) for name in ("storage", "offset"))
                    itemsize = self._load(self._of_tensor(entry, k), 8 * _OF_TENSOR.index("itemsize"))
                    start = self._int(self._attribute(storage, "Storage.address"))
                    self._store(b.add(start, b.mul(self._int(offset), itemsize)), place)

    def _find_results(self, entry: Any, out: Any) -> None:
        """Writes the results' addresses to the sources."""
        b, results, like = self._builder, self._of(entry, "results"), self._of(entry, "like")
        inputs = b.add(self._load(self._numbers), self._load(self._tensors))
        first = b.add(self._sources, b.mul(self._sum(inputs, INPUTS), self._number(8)))
        are_tensors = self._is(like, self._number(0))
        is_one = b.and_(b.not_(are_tensors), self._is(results, self._number(1)))
        thing = self._room(1)
        with self._loop(results) as k:
            self._store(out, thing)
            with b.if_then(b.not_(is_one)):
                self._store(self._item(self._sum(out, tuple.__basicsize__), k), thing)
            place = b.add(first, b.mul(k, self._number(8)))
            with b.if_else(self._is(self._load(thing), self._known("None"))) as (absent, present):
                with absent:
                    self._store(self._number(0), place)
                with present:
                    with b.if_then(are_tensors):
                        self._store(self._attribute(self._load(thing), "Tensor.storage"), thing)
                    self._store(self._int(self._attribute(self._load(thing), "Storage.address")), place)

    def _write_job(self, entry: Any) -> None:
        b = self._builder
        keys = b.mul(self._load(self._key_count), self._number(8))
        words = b.add(self._of_tensor(entry, self._load(self._tensors)), keys)
        with self._loop(self._of(entry, "words")) as k:
            word = b.add(words, b.mul(k, self._number(16)))
            value = b.add(self._item(self._sources, self._load(word)), self._load(word, 8))
            self._store(value, b.add(self._job, b.mul(k, self._number(8))))

    def _run(self, entry: Any) -> None:
        b, slot = self._builder, self._load(self._slot)
        state = self._room(1)
        is_long = b.not_(self._is(self._of(entry, "is_long"), self._number(0)))
        with b.if_then(is_long):
            self._store(self._call("PyEval_SaveThread"), state)
        with b.if_else(self._is(slot, self._number(0))) as (alone, shared):
            with alone, b.if_else(self._is(self._of(entry, "takes_share"), self._number(0))) as (job_alone, with_slot):
                with job_alone:
                    self._call_at(self._of(entry, "alone"), [self._job], _VOID)
                with with_slot:
                    self._call_at(self._of(entry, "alone"), [self._number(0), self._job], _VOID)
            with shared:  # gives the slot back
                given = [slot, self._load(self._threads), self._of(entry, "shared"), self._job, self._number(1)]
                self._call_at(self._load(slot, JOB_SLOT.run), given, _VOID)
        with b.if_then(is_long):
            self._call("PyEval_RestoreThread", self._load(state), result=_VOID)
        self._call("PyMem_RawFree", self._load(self._sources, 8 * PARTS), result=_VOID)

    def _return(self, entry: Any, out: Any) -> None:
        b, like = self._builder, self._of(entry, "like")
        with b.if_then(b.not_(self._is(self._known("in_place"), self._number(0)))):
            self._call("Py_DecRef", out, result=_VOID)
            first = self._load(self._seen)
            self._call("Py_IncRef", first, result=_VOID)
            b.ret(first)
        with b.if_then(self._is(like, self._number(0))):
            b.ret(out)
        storage = self._room(1)
        self._store(out, storage)
        with b.if_then(b.icmp_signed(">", self._of(entry, "results"), self._number(1))):
            self._store(self._load(out, tuple.__basicsize__), storage)
            self._call("Py_IncRef", self._load(storage), result=_VOID)
            self._call("Py_DecRef", out, result=_VOID)
        b.ret(self._tensor(self._load(storage), like))

    def _tensor(self, storage: Any, like: Any) -> Any:
        """A tensor of a storage, otherwise like another one."""
        b = self._builder
        made = self._call("PyType_GenericAlloc", self._known("Tensor"), self._number(0))
        with b.if_then(self._is(made, self._number(0))):
            self._call("Py_DecRef", storage, result=_VOID)
            b.ret(made)
        for name in _TENSOR_SLOTS:
            if name == "storage":
                value = storage
            elif name == "address":  # the offset is 0
                value = self._attribute(storage, "Storage.address")
            else:
                value = self._attribute(like, f"Tensor.{name}")
            if name != "storage":
                self._call("Py_IncRef", value, result=_VOID)
            self._store(value, made, self._places[f"Tensor.{name}"])
        return made

    # -- pieces --------------------------------------------------------------------------------------------------

    def _room(self, words: int) -> Any:
        """The address of so many words on the stack."""
        with self._builder.goto_entry_block():
            return self._builder.ptrtoint(self._builder.alloca(ir.ArrayType(_I64, words)), _I64)

    @contextmanager
    def _loop(self, count: Any) -> Iterator[Any]:
        """Writes a loop over 0, 1, ... count - 1, whose number it gives."""
        b = self._builder
        before = b.block
        head, body, behind = (self._function.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        number = b.phi(_I64)
        number.add_incoming(self._number(0), before)
        b.cbranch(b.icmp_signed("<", number, count), body, behind)
        b.position_at_end(body)
        yield number
        number.add_incoming(self._sum(number, 1), b.block)
        b.branch(head)
        b.position_at_end(behind)

    def _number(self, value: int) -> Any:
        return ir.Constant(_I64, value)

    def _sum(self, value: Any, more: int) -> Any:
        return self._builder.add(value, self._number(more))

    def _is(self, one: Any, other: Any) -> Any:
        return self._builder.icmp_signed("==", one, other)

    def _pointer(self, address: Any, offset: int = 0) -> Any:
        return self._builder.inttoptr(self._sum(address, offset), _I64.as_pointer())

    def _load(self, address: Any, offset: int = 0) -> Any:
        return self._builder.load(self._pointer(address, offset))

    def _store(self, value: Any, address: Any, offset: int = 0) -> None:
        self._builder.store(value, self._pointer(address, offset))

    def _item(self, address: Any, place: Any) -> Any:
        """A word of an array of words."""
        return self._load(self._builder.add(address, self._builder.mul(place, self._number(8))))

    def _count_up(self, place: Any) -> Any:
        """A count before it goes up by one."""
        count = self._load(place)
        self._store(self._sum(count, 1), place)
        return count

    def _row(self, place: Any) -> Any:
        """The address of what was seen of a tensor."""
        return self._builder.add(self._seen, self._builder.mul(place, self._number(8 * len(_SEEN))))

    def _of(self, entry: Any, name: str) -> Any:
        """A field of an entry."""
        return self._load(entry, 8 * _ENTRY.index(name))

    def _of_tensor(self, entry: Any, place: Any) -> Any:
        """The address of what an entry has on a tensor; of that behind the last one, of its keys."""
        first = self._sum(entry, 8 * len(_ENTRY))
        return self._builder.add(first, self._builder.mul(place, self._number(8 * len(_OF_TENSOR))))

    def _attribute(self, thing: Any, name: str) -> Any:
        return self._load(thing, self._places[name])

    def _field_address(self, name: str) -> Any:
        return self._sum(self._record, 8 * _HEADER.index(name))

    def _known(self, name: str) -> Any:
        """A field of the record's header."""
        return self._load(self._field_address(name))

    def _call(self, name: str, *arguments: Any, result: Any = _I64) -> Any:
        """Calls a function of Python's."""
        return self._call_at(self._known(name), arguments, result)

    def _call_at(self, address: Any, arguments: Sequence[Any], result: Any) -> Any:
        kind = ir.FunctionType(result, [one.type for one in arguments])
        return self._builder.call(self._builder.inttoptr(address, kind.as_pointer()), arguments)

    def _int(self, thing: Any) -> Any:
        return self._call("PyLong_AsLongLong", thing)

    def _check(self, condition: Any, otherwise: Any) -> None:
        """Goes on where a condition holds."""
        going_on = self._function.append_basic_block()
        self._builder.cbranch(condition, going_on, otherwise)
        self._builder.position_at_end(going_on)

    def _check_kind(self, thing: Any, kind: str, otherwise: Any) -> None:
        """Goes on where something is there and has one of Python's types."""
        self._check(self._builder.not_(self._is(thing, self._number(0))), otherwise)
        self._check(self._is(self._load(thing, _TYPE), self._known(kind)), otherwise)
