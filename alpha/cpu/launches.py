"""Launches: a program's loop called by one C function, which Python calls with the tensors and numbers themselves.

A launch is a built-in function made of LLVM IR. It knows how tensors lay in earlier calls and finds their plan by
comparing pointers, has the results made, and runs the loop. It declines, by returning None, whatever it does not know
or what is not for it: other types, another layout, several threads, or, if asked to look, tensors in the graph. The
caller then goes the long way (``PointwiseOperations.pointwise``), which knows everything and checks everything.

It reads a tensor's attributes where ``__slots__`` keeps them. Where they lie is looked up in an object, so an
interpreter that keeps them elsewhere has no launches, and goes the long way always.

A record, in 8-byte fields, is what one launch knows; it never changes, another entry makes another record:

    ``_HEADER``: how many entries, whether to look for the graph, addresses of types and functions of Python;
    for each entry the type of the engine, the plan's and the loop's address, whether the loop is long, the function
    that makes the results, a tensor like them, the least and the largest number where these are integers, else 1 and 0,
    and for each tensor dtype, shape, strides and bytes per element.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from alpha.arguments import Shape
from alpha.cpu.loops import machine
from alpha.tensor import Storage, Tensor

MOST_ENTRIES = 16
"""Layouts that a launch knows; when there are more it begins anew with the last one."""

LONG = 1 << 13
"""Elements from which a loop lets other threads run meanwhile: to do so takes as long as the loop of some hundreds."""

_FUNCTIONS = (
    "PyLong_AsLongLong", "PyFloat_AsDouble", "PyErr_Occurred", "PyErr_Clear", "PyObject_RichCompareBool",
    "PyObject_CallOneArg", "PyType_IsSubtype", "PyType_GenericAlloc", "Py_IncRef", "Py_DecRef", "PyEval_SaveThread",
    "PyEval_RestoreThread",
)  # fmt: skip
_OBJECTS = {
    "Tensor": Tensor,
    "Storage": Storage,
    "tuple": tuple,
    "int": int,
    "float": float,
    "None": None,
    "False": False,
}
_HEADER = ("count", "outside", *_OBJECTS, *_FUNCTIONS)
_ENTRY = ("engine", "plan", "loop", "long", "make", "like", "least", "most")
_OF_TENSOR = ("dtype", "shape", "strides", "itemsize")
_READ_SLOTS = ("storage", "offset", "shape", "strides", "dtype", "requires_grad", "_base")
_TENSOR_SLOTS = tuple([name for name in Tensor.__slots__ if name != "__weakref__"])
_STORAGE_SLOTS = ("engine", "address")

_I64, _I32, _DOUBLE, _VOID = ir.IntType(64), ir.IntType(32), ir.DoubleType(), ir.VoidType()
_TYPE = 8
"""Where an object keeps its type."""
_FASTCALL = 0x80
"""Python's flag of a function that gets its arguments as an array."""


class Entry(NamedTuple):
    """A layout of tensors that a launch knows."""

    engine: type
    """The class of the engine."""
    plan: Any
    """Keeps the plan's record and the loop."""
    address: int
    """The address of the plan's record."""
    loop: int
    """The address of the function that runs the loop."""
    is_long: bool
    make: Callable[[Any], Any]
    """Makes the result's storage on an engine, or a tuple of several results; None where the launch is to decline.

    In place anything else than None says that it is not to.
    """
    like: Tensor
    """What a result is but for its storage."""
    lies: tuple[tuple[Shape, Shape, np.dtype[Any]], ...]
    """Shape, strides and dtype of each tensor."""
    limits: tuple[int, int] | None
    """The least and the largest of the numbers where these are integers; else they are floats."""


def launch(
    tensors: int, numbers: int, results: int, entries: Sequence[Entry], outside: bool, in_place: bool = False
) -> Callable[..., Any] | None:
    """A function of so many tensors and numbers that runs a program's loop, or returns None; None where it cannot be.

    ``outside``: it declines tensors that may belong to the graph. ``in_place``: the result is written into the first
    tensor, which it returns; it declines others of the same storage.
    """
    method = _method(tensors, numbers, results, in_place)
    if method is None:
        return None
    fields = [len(entries), outside, *_python()]
    for one in entries:
        limits = one.limits or (1, 0)
        fields += [id(one.engine), one.address, one.loop, one.is_long, id(one.make), id(one.like), *limits]
        for shape, strides, dtype in one.lies:
            fields += [id(dtype), id(shape), id(strides), dtype.itemsize]
    record = struct.pack(f"{len(fields)}q", *fields)
    module = _Module(__name__)
    module.needed = method, tuple(entries)
    made: Callable[..., Any] = _new(ctypes.addressof(method.definition), record, module)
    return made


class _Module(str):
    """The name of a launch's module, which the launch holds, with all that it needs."""

    needed: tuple[_Method, tuple[Entry, ...]]


_new: Any = ctypes.pythonapi.PyCFunction_NewEx
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)


@once
def _python() -> tuple[int, ...]:
    """The addresses of Python's objects and functions."""
    functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS]
    return (*map(id, _OBJECTS.values()), *functions)


class _Definition(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Method:
    """The machine code for a number of tensors, numbers and results."""

    def __init__(self, counts: tuple[int, int, int], in_place: bool, places: dict[str, int]) -> None:
        source = Path(__file__).read_bytes()
        key = f"{counts} {in_place} {places} {hashlib.sha256(source).hexdigest()}"
        self._functions = machine.functions(key, lambda: _Writer(counts, in_place, places).text())  # keeps the code
        self.definition = _Definition(b"launch", self._functions.address("launch"), _FASTCALL, None)


@once
def _method(tensors: int, numbers: int, results: int, in_place: bool) -> _Method | None:
    places = slots()
    return None if places is None else _Method((tensors, numbers, results), in_place, places)


@once
def slots() -> dict[str, int] | None:
    """Where the objects keep the attributes that a launch reads, in bytes; None in an interpreter unlike CPython."""
    mark, text = object(), b"launches"
    holder = (mark,)
    if (
        sysconfig.get_config_var("Py_GIL_DISABLED")
        or ctypes.c_int64.from_address(id(holder) + tuple.__basicsize__).value != id(mark)
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
    """Writes the function of a launch. Every value is an i64: a number, an address, or an object by its address."""

    def __init__(self, counts: tuple[int, int, int], in_place: bool, places: dict[str, int]) -> None:
        """``counts``: of tensors, numbers and results."""
        self._counts, self._in_place, self._places = counts, in_place, places
        self._module = ir.Module("launch")
        function = ir.Function(self._module, ir.FunctionType(_I64, (_I64, _I64, _I64)), "launch")
        self._owner, self._arguments, self._given = function.args
        self._function = function
        self._builder = ir.IRBuilder(function.append_basic_block("entry"))
        self._record = self._sum(self._owner, bytes.__basicsize__ - 1)

    def text(self) -> str:
        """The module's text."""
        tensors, numbers, results = self._counts
        b, decline = self._builder, self._function.append_basic_block("decline")
        job = b.ptrtoint(b.alloca(ir.ArrayType(_I64, 1 + results + tensors + numbers)), _I64)
        self._check(self._is(self._given, self._number(tensors + numbers)), decline)
        objects = [self._load(self._arguments, 8 * k) for k in range(tensors + numbers)]
        seen = [self._seen(one, decline) for one in objects[:tensors]]
        engine = seen[0]["engine"]
        for one in seen[1:]:
            self._check(self._is(one["engine"], engine), decline)
            if self._in_place:
                self._check(b.not_(self._is(one["storage"], seen[0]["storage"])), decline)
        entry = self._entry(seen, engine, decline)
        values = [self._value(one, entry, decline) for one in objects[tensors:]]
        out = self._call("PyObject_CallOneArg", self._load(entry, 8 * _ENTRY.index("make")), engine)
        refused = b.or_(self._is(out, self._number(0)), self._is(out, self._known("None")))
        going_on, leave = self._function.append_basic_block(), self._function.append_basic_block("leave")
        b.cbranch(refused, leave, going_on)
        b.position_at_end(leave)  # an error, or the function's own None
        b.ret(out)
        changed = self._function.append_basic_block("changed")
        b.position_at_end(changed)
        self._call("Py_DecRef", out, result=_VOID)
        b.branch(decline)
        b.position_at_end(decline)
        self._call("PyErr_Clear", result=_VOID)
        self._call("Py_IncRef", self._known("None"), result=_VOID)
        b.ret(self._known("None"))
        b.position_at_end(going_on)
        fields = [self._load(entry, 8 * _ENTRY.index("plan"))]
        for k in range(0 if self._in_place else results):
            storage = out
            if results > 1:
                storage = self._attribute(self._load(out, tuple.__basicsize__ + 8 * k), "Tensor.storage")
            fields.append(self._int(self._attribute(storage, "Storage.address")))
        for k, (thing, before) in enumerate(zip(objects, seen, strict=False)):
            for name in ("storage", "offset", "shape", "strides", "dtype"):  # Python code has run meanwhile
                self._check(self._is(self._attribute(thing, f"Tensor.{name}"), before[name]), changed)
            itemsize = self._load(entry, 8 * (len(_ENTRY) + len(_OF_TENSOR) * k + _OF_TENSOR.index("itemsize")))
            start = self._int(self._attribute(before["storage"], "Storage.address"))
            start = b.add(start, b.mul(self._int(before["offset"]), itemsize))
            fields += [start, start] if self._in_place and k == 0 else [start]
        for place, value in enumerate([*fields, *values]):
            b.store(value, b.inttoptr(self._sum(job, 8 * place), _I64.as_pointer()))
        if self._in_place:
            self._call("Py_DecRef", out, result=_VOID)
            out = objects[0]
            self._call("Py_IncRef", out, result=_VOID)
        elif results == 1:
            out = self._tensor(out, self._load(entry, 8 * _ENTRY.index("like")))
        self._run(self._load(entry, 8 * _ENTRY.index("loop")), self._load(entry, 8 * _ENTRY.index("long")), job)
        b.ret(out)
        return str(self._module)

    def _seen(self, thing: Any, decline: Any) -> dict[str, Any]:
        """A tensor's attributes, all of them there and of their types."""
        b = self._builder
        is_tensor = self._call("PyType_IsSubtype", self._load(thing, _TYPE), self._known("Tensor"), result=_I32)
        self._check(b.icmp_signed("!=", is_tensor, ir.Constant(_I32, 0)), decline)
        found = {name: self._attribute(thing, f"Tensor.{name}") for name in _READ_SLOTS}
        for name, kind in (("storage", "Storage"), ("offset", "int"), ("shape", "tuple"), ("strides", "tuple")):
            self._check_kind(found[name], kind, decline)
        found["engine"] = self._attribute(found["storage"], "Storage.engine")
        self._check(b.not_(self._is(found["engine"], self._number(0))), decline)
        self._check_kind(self._attribute(found["storage"], "Storage.address"), "int", decline)
        in_graph = b.or_(
            b.not_(self._is(found["requires_grad"], self._known("False"))),
            b.not_(self._is(found["_base"], self._known("None"))),
        )
        looks = b.not_(self._is(self._known("outside"), self._number(0)))
        self._check(b.not_(b.and_(in_graph, looks)), decline)
        return found

    def _value(self, thing: Any, entry: Any, decline: Any) -> Any:
        """The bits of a Python number as the entry's loop takes it: of a float64, or of an integer within limits."""
        b = self._builder
        least, most = (self._load(entry, 8 * _ENTRY.index(name)) for name in ("least", "most"))
        whole, fraction, found = (self._function.append_basic_block() for _ in range(3))
        b.cbranch(b.icmp_signed("<=", least, most), whole, fraction)
        b.position_at_end(whole)
        integer = self._integer(thing, decline)
        within = b.and_(b.icmp_signed("<=", least, integer), b.icmp_signed("<=", integer, most))
        self._check(within, decline)
        after_integer = b.block
        b.branch(found)
        b.position_at_end(fraction)
        bits = b.bitcast(self._float(thing, decline), _I64)
        after_float = b.block
        b.branch(found)
        b.position_at_end(found)
        value = b.phi(_I64)
        value.add_incoming(integer, after_integer)
        value.add_incoming(bits, after_float)
        return value

    def _integer(self, thing: Any, decline: Any) -> Any:
        """A Python int as an i64."""
        b = self._builder
        self._check_kind(thing, "int", decline)
        value = self._int(thing)
        with b.if_then(self._is(value, self._number(-1))):
            self._check(self._is(self._call("PyErr_Occurred"), self._number(0)), decline)
        return value

    def _float(self, thing: Any, decline: Any) -> Any:
        """A Python float or int as a double."""
        b, kind = self._builder, self._load(thing, _TYPE)
        self._check(b.or_(self._is(kind, self._known("float")), self._is(kind, self._known("int"))), decline)
        value = self._call("PyFloat_AsDouble", thing, result=_DOUBLE)
        with b.if_then(b.fcmp_ordered("==", value, ir.Constant(_DOUBLE, -1.0))):
            error = self._call("PyErr_Occurred")
            self._check(self._is(error, self._number(0)), decline)
        return value

    def _entry(self, seen: list[dict[str, Any]], engine: Any, decline: Any) -> Any:
        """The address of the entry that fits."""
        b = self._builder
        size = 8 * (len(_ENTRY) + len(_OF_TENSOR) * len(seen))
        first = self._sum(self._record, 8 * len(_HEADER))
        end = b.add(first, b.mul(self._known("count"), self._number(size)))
        before = b.block
        look, fits, another = (self._function.append_basic_block(name) for name in ("look", "fits", "another"))
        b.branch(look)
        b.position_at_end(look)
        entry = b.phi(_I64)
        entry.add_incoming(first, before)
        self._check(b.icmp_signed("<", entry, end), decline)
        kind = self._load(entry, 8 * _ENTRY.index("engine"))
        self._check(self._is(kind, self._load(engine, _TYPE)), another)
        for k, one in enumerate(seen):
            at = 8 * (len(_ENTRY) + len(_OF_TENSOR) * k)
            self._check(self._is(self._load(entry, at), one["dtype"]), another)
            for place, name in ((1, "shape"), (2, "strides")):
                self._check_equal(self._load(entry, at + 8 * place), one[name], another)
        b.branch(fits)
        b.position_at_end(another)
        entry.add_incoming(self._sum(entry, size), another)
        b.branch(look)
        b.position_at_end(fits)
        return entry

    def _check_equal(self, wanted: Any, given: Any, otherwise: Any) -> None:
        """Goes on where two tuples are equal."""
        b = self._builder
        compare, equal = self._function.append_basic_block(), self._function.append_basic_block()
        b.cbranch(self._is(wanted, given), equal, compare)
        b.position_at_end(compare)
        found = self._call("PyObject_RichCompareBool", wanted, given, ir.Constant(_I32, 2), result=_I32)
        b.cbranch(b.icmp_signed("==", found, ir.Constant(_I32, 1)), equal, otherwise)
        b.position_at_end(equal)

    def _tensor(self, storage: Any, like: Any) -> Any:
        """A tensor of a storage, otherwise like another one."""
        b = self._builder
        made = self._call("PyType_GenericAlloc", self._known("Tensor"), self._number(0))
        with b.if_then(self._is(made, self._number(0))):
            self._call("Py_DecRef", storage, result=_VOID)
            b.ret(made)
        for name in _TENSOR_SLOTS:
            value = storage if name == "storage" else self._attribute(like, f"Tensor.{name}")
            if name != "storage":
                self._call("Py_IncRef", value, result=_VOID)
            b.store(value, b.inttoptr(self._sum(made, self._places[f"Tensor.{name}"]), _I64.as_pointer()))
        return made

    def _run(self, loop: Any, is_long: Any, job: Any) -> None:
        b = self._builder
        with b.if_else(self._is(is_long, self._number(0))) as (short, long):
            with short:
                self._call_at(loop, [job], _VOID)
            with long:
                state = self._call("PyEval_SaveThread")
                self._call_at(loop, [job], _VOID)
                self._call("PyEval_RestoreThread", state, result=_VOID)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _number(self, value: int) -> Any:
        return ir.Constant(_I64, value)

    def _sum(self, value: Any, more: int) -> Any:
        return self._builder.add(value, self._number(more))

    def _is(self, one: Any, other: Any) -> Any:
        return self._builder.icmp_signed("==", one, other)

    def _load(self, address: Any, offset: int) -> Any:
        return self._builder.load(self._builder.inttoptr(self._sum(address, offset), _I64.as_pointer()))

    def _attribute(self, thing: Any, name: str) -> Any:
        return self._load(thing, self._places[name])

    def _known(self, name: str) -> Any:
        """A field of the record's header."""
        return self._load(self._record, 8 * _HEADER.index(name))

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

    def _check_kind(self, thing: Any, kind: str, decline: Any) -> None:
        """Goes on where something is there and has one of Python's types."""
        self._check(self._builder.not_(self._is(thing, self._number(0))), decline)
        self._check(self._is(self._load(thing, _TYPE), self._known(kind)), decline)
