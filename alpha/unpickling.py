"""Pickles of data, read without running or importing anything that they name.

A pickle is a program of a stack machine, and may name any function to call. The machine here knows the instructions of
which data is made, and the names in a table that its caller gives; it stops at any other name.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from alpha import dtypes


class PickleError(Exception):
    """The bytes are no pickle of data."""


class ForeignNameError(PickleError):
    """The pickle names something that is not in the table.

    Attributes:
        name: what it wanted to import.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"one that names {name}, which is no data")
        self.name = name


class Call(NamedTuple):
    """A name in the table that a pickle may call.

    Attributes:
        function: what is called in its place.
        type: what a pickle means that keeps the name without calling it; None where no value may be that.
    """

    function: Callable[..., Any]
    type: Any = None


class Lacking(NamedTuple):
    """A name in the table for what cannot be had here, and what to say of it."""

    why: str


Names = Mapping[tuple[str, str], Any]
"""Module and name -> a ``Call``, or the value that the name stands for."""

_LITERALS = frozenset(
    {"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"}
    | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)
"""Instructions that push their argument."""
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, type] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()

COPIES = 16
"""How often the file's size calls may copy: bytes go through two or three, from text to an array."""


def load(file: BinaryIO, names: Names, persistent: Callable[[Any], Any] | None = None) -> Any:
    """The value of a pickle in a file, which is left standing behind it.

    Args:
        file: read up to the pickle's end; it can be sought in.
        names: what the pickle may name.
        persistent: makes a value of a persistent identifier.

    Raises:
        PickleError: it is truncated or corrupt, or names anything else.
    """
    try:
        place = file.tell()
        size = file.seek(0, io.SEEK_END) - place
        file.seek(place)
        return _Machine(names, persistent, size).run(file)
    except PickleError:
        raise
    except (MemoryError, OSError):
        raise
    except Exception as error:  # damaged instructions meet values of any type
        raise PickleError(f"a truncated or damaged pickle ({' '.join(str(error).split()):.100})") from error


class _Machine:
    """The stack, the memory, and a method per instruction.

    What calls copy is limited by the file's size, so that a small file cannot fill the memory.
    """

    def __init__(self, names: Names, persistent: Callable[[Any], Any] | None, size: int) -> None:
        self._names = names
        self._persistent = persistent
        self._left = COPIES * size
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def run(self, file: BinaryIO) -> Any:
        stack, memory = self._stack, self._memory
        for opcode, argument, _ in pickletools.genops(file):
            name = opcode.name
            if name in _LITERALS:
                stack.append(argument)
            elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
                memory[argument] = stack[-1]  # type: ignore[index]
            elif name == "MEMOIZE":
                memory[len(memory)] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                stack.append(memory[argument])  # type: ignore[index]
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name in _TUPLES:
                stack[-_TUPLES[name] :] = [tuple(self._last(_TUPLES[name]))]
            elif name == "MARK":
                stack.append(_MARK)
            elif name == "STOP":
                break
            elif name not in ("PROTO", "FRAME"):
                action = getattr(self, f"_{name.lower()}", None)
                if action is None:
                    raise PickleError(f"the instruction {name}")
                action(argument)
        return self._last(1)[0]

    def _last(self, count: int) -> list[Any]:
        values = self._stack[-count:]
        if len(values) < count or any(value is _MARK for value in values):
            raise PickleError("a stack that is empty")
        return values

    def _to_mark(self) -> list[Any]:
        """Takes the values above the last mark, and the mark."""
        stack = self._stack
        place = next(index for index in reversed(range(len(stack))) if stack[index] is _MARK)
        values = stack[place + 1 :]
        del stack[place:]
        return values

    # -- containers --------------------------------------------------------------------------------------------------

    def _append(self, _: Any) -> None:
        (value,) = self._last(1)
        self._stack.pop()
        self._target(list).append(value)

    def _appends(self, _: Any) -> None:
        values = self._to_mark()
        self._target(list).extend(values)

    def _setitem(self, _: Any) -> None:
        key, value = self._last(2)
        del self._stack[-2:]
        self._target(dict)[as_key(key)] = value

    def _setitems(self, _: Any) -> None:
        values = self._to_mark()
        target = self._target(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[as_key(key)] = value

    def _additems(self, _: Any) -> None:
        values = self._to_mark()
        self._target(set).update(map(as_key, values))

    def _target(self, kind: type) -> Any:
        target = self._stack[-1]
        if not isinstance(target, kind):
            raise PickleError(f"a {type(target).__name__} in the place of a {kind.__name__}")
        return target

    def _list(self, _: Any) -> None:
        self._stack.append(self._to_mark())

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._to_mark()))

    def _frozenset(self, _: Any) -> None:
        self._stack.append(frozenset(map(as_key, self._to_mark())))

    def _dict(self, _: Any) -> None:
        values = self._to_mark()
        self._stack.append(mapping(zip(values[::2], values[1::2], strict=True)))

    def _pop(self, _: Any) -> None:
        self._stack.pop()

    def _pop_mark(self, _: Any) -> None:
        self._to_mark()

    # -- names and calls ---------------------------------------------------------------------------------------------

    def _global(self, argument: str) -> None:
        self._name(*argument.split(" ", 1))

    def _stack_global(self, _: Any) -> None:
        module, name = self._last(2)
        del self._stack[-2:]
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("a name that is no text")
        try:
            value = self._names[module, name]
        except KeyError:
            raise ForeignNameError(" ".join(f"{module}.{name}"[:200].split())) from None
        if isinstance(value, Lacking):
            raise PickleError(value.why)
        self._stack.append(value)

    def _count(self, values: Any) -> None:
        """Counts the lengths of values that are to be copied."""
        self._left -= sum(len(value) for value in values if hasattr(value, "__len__") and type(value) is not Call)
        if self._left < 0:
            raise PickleError("more copies of values than a file of its size holds")

    def _reduce(self, _: Any) -> None:
        call, arguments = self._last(2)
        del self._stack[-2:]
        if not isinstance(call, Call) or not isinstance(arguments, tuple):
            raise PickleError(f"a call of a {type(call).__name__}")
        self._count(arguments)
        self._stack.append(call.function(*arguments))

    _newobj = _reduce

    def _build(self, _: Any) -> None:
        target, state = self._last(2)
        self._stack.pop()
        if isinstance(target, np.ndarray):
            self._count(state)
            _fill(target, state)
        elif isinstance(target, np.dtype):
            if isinstance(state, tuple) and state[1:2] == (">",):
                raise PickleError("numbers in big-endian byte order")
        elif isinstance(target, dict) and hasattr(target, "__dict__") and isinstance(state, dict):
            vars(target).update({key: value for key, value in state.items() if key == "_metadata"}, _from_torch=True)
        else:
            raise PickleError(f"a state for a {type(target).__name__}")

    def _binpersid(self, _: Any) -> None:
        if self._persistent is None:
            raise PickleError("a persistent identifier")
        self._stack.append(self._persistent(self._stack.pop()))

    def _persid(self, _: Any) -> None:
        raise PickleError("a persistent identifier that is text")


def as_key(value: Any) -> Any:
    """A value that may be a key: hashing nested tuples that share their parts may take for ever."""
    parts = value if type(value) is tuple else (value,)
    if not all(part is None or isinstance(part, bool | int | float | complex | str | bytes) for part in parts):
        raise PickleError(f"a key of the type {type(value).__name__}")
    return value


def mapping(pairs: Iterable[Any]) -> dict[Any, Any]:
    """A dict of pairs whose keys may be keys."""
    return {as_key(key): value for key, value in (pairs.items() if isinstance(pairs, dict) else pairs)}


def sequence(values: Any) -> Any:
    """Values that stand in the pickle one by one: a range of a few bytes may be longer than the memory."""
    if not isinstance(values, list | tuple | set | frozenset):
        raise PickleError(f"a list of a {type(values).__name__}")
    return values


# -- NumPy's arrays ----------------------------------------------------------------------------------------------------


def _dtype(code: Any, *_flags: Any) -> np.dtype[Any]:
    """A dtype of numbers."""
    text = code.decode("ascii") if isinstance(code, bytes) else code
    dtype = np.dtype(text) if isinstance(text, str) else np.dtype(object)
    if not dtypes.holds_numbers(dtype):
        raise PickleError(f"an array of {dtype}")
    return dtype


def _blank(*_arguments: Any) -> np.ndarray[Any, Any]:
    """An array that a state is to fill."""
    return np.empty(0, np.uint8)


def _fill(target: np.ndarray[Any, Any], state: Any) -> None:
    """Gives a blank array its shape and numbers, once they are found to agree."""
    _version, shape, dtype, is_fortran, raw = state
    data = as_bytes(raw)
    array = _of_buffer(data, dtype, shape, "F" if is_fortran else "C")
    state = (1, array.shape, array.dtype, bool(is_fortran), data)
    target.__setstate__(state)


def _of_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    """An array as protocol 5 writes it."""
    if not isinstance(dtype, np.dtype) or order not in ("C", "F"):
        raise PickleError("an array without a dtype")
    data = as_bytes(raw)
    if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise PickleError(f"{len(data)} bytes for an array of another size")
    return np.frombuffer(data, dtype).reshape(shape, order=order)


def _scalar(dtype: Any, raw: Any) -> Any:
    return _of_buffer(raw, dtype, (1,), "C")[0]


def as_bytes(raw: Any) -> bytes:
    """Bytes, or as Python 2 wrote them the same as Latin-1 text."""
    if isinstance(raw, str):
        return raw.encode("latin1")
    if not isinstance(raw, bytes | bytearray):
        raise PickleError(f"a {type(raw).__name__} in the place of bytes")
    return bytes(raw)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes in old protocols."""
    if encoding not in ("latin1", "latin-1"):
        raise PickleError(f"text in the encoding {encoding!r:.40}")
    return text.encode("latin1")


def _joined(*parts: Any) -> bytes:
    return b"".join(map(as_bytes, parts))


_CORES = ("numpy.core", "numpy._core")
_BUILTINS = ("builtins", "__builtin__")

ARRAYS: Names = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): Call(_dtype),
    ("_codecs", "encode"): Call(_encode),
    **{(module, "bytes"): Call(_joined) for module in _BUILTINS},
    **{(module, "bytearray"): Call(lambda *parts: bytearray(_joined(*parts))) for module in _BUILTINS},
    **{(f"{core}.multiarray", "_reconstruct"): Call(_blank) for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): Call(_scalar) for core in _CORES},
    **{(f"{core}.numeric", "_frombuffer"): Call(_of_buffer) for core in _CORES},
}
"""The names by which pickles make NumPy's arrays and scalars, and bytes."""
