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

_FORMATS = {"int64": "q", "int": "i", "uint32": "I"}
_COMMENT = re.compile(r"//[^\n]*")
_DECLARATION = re.compile(r"(?:const\s+)?(\w+)\s*(\*?)\s*(.+)", re.DOTALL)
_NAME = re.compile(r"(\w+)(?:\[(\d+)\])?")


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

    Fields are integers, pointers (addresses), arrays of integers, and structs (the bytes that ``pack`` made of them).
    """

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name = file, name

    def __repr__(self) -> str:
        return f"<struct {self.name} of {self.file}>"

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """As they are declared. Read when first asked for."""
        return _declared(_text(self.file), self.name)

    @cached_property
    def layout(self) -> struct.Struct:
        """How its bytes lie."""
        return struct.Struct(_format(self.fields))

    @cached_property
    def _ordered(self) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
        """What puts values by name into the fields' order."""
        return itemgetter(*(field.name for field in self.fields))

    @cached_property
    def _has_arrays(self) -> bool:
        return any(field.length is not None for field in self.fields)

    def pack(self, **values: Any) -> bytes:
        """Its bytes; EngineError unless every field is given, and nothing else."""
        try:
            ordered = self._ordered(values)
        except KeyError:
            ordered = ()
        if len(ordered) != len(values):
            names = tuple(field.name for field in self.fields)
            raise EngineError(f"[{self.name}] expected the fields {names}, got {tuple(values)}: a fault of ours")
        if self._has_arrays:
            arrays = [value if isinstance(value, tuple) else (value,) for value in ordered]
            ordered = tuple(number for array in arrays for number in array)
        return self.layout.pack(*ordered)


def _text(file: str) -> str:
    """A file of the kernels, after all that it includes, without comments."""
    code = (KERNELS / file).read_text("utf-8")
    headers = [_text(header) for header in INCLUDE.findall(code) if (KERNELS / header).is_file()]
    return "".join([*headers, _COMMENT.sub("", code)])


def _declared(text: str, name: str) -> tuple[Field, ...]:
    """The fields of a struct that holds data alone."""
    found = re.search(rf"\bstruct {name} {{([^}}]*)}};", text)
    if found is None:
        raise EngineError(f"[{name}] expected a struct of that name among the kernels, got none: a fault of ours")
    fields: list[Field] = []
    for declaration in filter(None, map(str.strip, found[1].split(";"))):
        kind, pointer, names = _DECLARATION.fullmatch(declaration).groups()  # type: ignore[union-attr]
        if pointer:
            code = "P"
        else:
            code = _FORMATS.get(kind) or f"{struct.calcsize(_format(_declared(text, kind)))}s"
        for entry in names.split(","):
            field, length = _NAME.fullmatch(entry.strip()).groups()  # type: ignore[union-attr]
            fields.append(Field(field, code, None if length is None else int(length)))
    return tuple(fields)


def _format(fields: tuple[Field, ...]) -> str:
    """Of fields aligned as in C."""
    return "@" + "".join(f"{'' if field.length is None else field.length}{field.format}" for field in fields)
