"""The structs that kernels are handed: their fields stand in the kernels' sources alone, and are given by name."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from alpha.cu32.compiler import INCLUDE, KERNELS
from alpha.errors import EngineError

_FORMATS = {"int64": "q", "uint64": "Q", "int": "i", "uint32": "I", "float": "f", "double": "d"}
_ALIGNED = {1: "0b", 2: "0h", 4: "0i", 8: "0q"}
"""By bytes of alignment, what a format ends with that is filled up to them."""
_COMMENT = re.compile(r"//[^\n]*")
_DECLARATION = re.compile(r"(?:const\s+)?(\w+)\s*(\*?)\s*(.+)", re.DOTALL)
_NAME = re.compile(r"(\w+)(?:\[(\w+)\])?")


class Field(NamedTuple):
    """A field of a struct.

    Attributes:
        format: how ``struct`` packs it.
        length: of an array, else None.
    """

    name: str
    format: str
    length: int | None


class KernelStruct:
    """A struct as a file of ``kernels/`` declares it: ``KernelStruct("tile.cuh", "Gather").pack(images=512, ...)``.

    Fields are numbers, pointers (addresses), structs (the bytes that ``pack`` made of them), and arrays of these.
    ``macros`` are those that the file is compiled with: ``KernelStruct("strided.cuh", "Loop", LOOP_OPERANDS="6")``.
    """

    def __init__(self, file: str, name: str, **macros: str) -> None:
        self.file, self.name, self._macros = file, name, macros

    def __repr__(self) -> str:
        return f"<struct {self.name} of {self.file}>"

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """As they are declared. Read when first asked for."""
        return self._declared[0]

    @cached_property
    def layout(self) -> struct.Struct:
        """How its bytes lie."""
        return struct.Struct(_format(*self._declared))

    @cached_property
    def _declared(self) -> tuple[tuple[Field, ...], int]:
        text = _text(self.file)
        for macro, value in self._macros.items():
            text = re.sub(rf"\b{macro}\b", value, text)
        return _declared(text, self.name)

    @cached_property
    def _ordered(self) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
        """What puts values by name into the fields' order."""
        return itemgetter(*(field.name for field in self.fields))

    @cached_property
    def _has_arrays(self) -> bool:
        return any(field.length is not None for field in self.fields)

    def pack(self, **values: Any) -> bytes:
        """Its bytes; EngineError unless every field is given, and nothing else. The rest of a short array is 0."""
        try:
            ordered = self._ordered(values)
        except KeyError:
            ordered = ()
        if len(ordered) != len(values):
            names = tuple(field.name for field in self.fields)
            raise EngineError(f"[{self.name}] expected the fields {names}, got {tuple(values)}: a fault of ours")
        return self.layout.pack(*(self._flat(ordered) if self._has_arrays else ordered))

    def _flat(self, ordered: tuple[Any, ...]) -> list[Any]:
        """The values with those of arrays one by one."""
        flat: list[Any] = []
        for (name, format, length), value in zip(self.fields, ordered, strict=True):
            if length is None:
                flat.append(value)
                continue
            missing = length - len(value)
            if missing < 0:
                raise EngineError(f"[{self.name}] expected {name} of {length}, got {len(value)}: a fault of ours")
            flat += value
            flat += (b"" if format[-1] == "s" else 0,) * missing
        return flat


def _text(file: str) -> str:
    """A file of the kernels, after all that it includes, without comments."""
    code = (KERNELS / file).read_text("utf-8")
    headers = [_text(header) for header in INCLUDE.findall(code) if (KERNELS / header).is_file()]
    return "".join([*headers, _COMMENT.sub("", code)])


def _declared(text: str, name: str) -> tuple[tuple[Field, ...], int]:
    """The fields of a struct that holds data alone, and the bytes that it is aligned to."""
    found = re.search(rf"\bstruct (?:alignas\((\d+)\) )?{name} {{([^}}]*)}};", text)
    if found is None:
        raise EngineError(f"[{name}] expected a struct of that name among the kernels, got none: a fault of ours")
    fields: list[Field] = []
    alignment = int(found[1] or 1)
    for declaration in filter(None, map(str.strip, found[2].split(";"))):
        kind, pointer, names = _DECLARATION.fullmatch(declaration).groups()  # type: ignore[union-attr]
        code, aligned = ("P", struct.calcsize("P")) if pointer else _kind(text, kind)
        alignment = max(alignment, aligned)
        for entry in names.split(","):
            field, length = _NAME.fullmatch(entry.strip()).groups()  # type: ignore[union-attr]
            fields.append(Field(field, code, None if length is None else _constant(text, length)))
    return tuple(fields), alignment


def _kind(text: str, kind: str) -> tuple[str, int]:
    """The format and the alignment of a type: a number's, or a struct's bytes."""
    named = re.search(rf"\btypedef (\w+) {kind};", text)
    code = _FORMATS.get(kind) or (_FORMATS.get(named[1]) if named else None)
    if code is not None:
        return code, struct.calcsize(code)
    fields, alignment = _declared(text, kind)
    return f"{_ALIGNED[alignment]}{struct.calcsize(_format(fields, alignment))}s", alignment


def _constant(text: str, length: str) -> int:
    """A number, or a constant's."""
    if length.isdecimal():
        return int(length)
    found = re.search(rf"\bconstexpr int {length} = (\d+);", text)
    if found is None:
        raise EngineError(f"[{length}] expected a constant of that name among the kernels, got none: a fault of ours")
    return int(found[1])


def _format(fields: tuple[Field, ...], alignment: int) -> str:
    """The ``struct`` format of fields aligned as in C, padded at the end so that such structs can form an array."""
    return "@" + "".join(field.format * (field.length or 1) for field in fields) + _ALIGNED[alignment]
