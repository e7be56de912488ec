"""What a cubin tells of its kernels: the bytes of their parameters, as the compiler wrote them down."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_INFO = ".nv.info."
"""What the names of sections begin with that tell of a kernel; its own name follows."""

_PARAMETER_BYTES = 0x19
"""The attribute EIATTR_CBANK_PARAM_SIZE, whose value is a number of bytes."""

_SIZED = 4
"""The format of attributes whose value is a number of bytes that follow."""


class _Section(NamedTuple):
    name: str
    content: bytes


def parameter_bytes(image: bytes) -> dict[str, int]:
    """By kernel, where its last parameter ends."""
    found = {}
    for section in _sections(image):
        if section.name.startswith(_INFO):
            for attribute, value in _attributes(section.content):
                if attribute == _PARAMETER_BYTES:
                    found[section.name[len(_INFO) :]] = value
    return found


def _attributes(content: bytes) -> Iterator[tuple[int, int]]:
    """The attributes of a section, each with its value or the number of bytes of it."""
    at = 0
    while at + 4 <= len(content):
        kind, attribute, value = struct.unpack_from("<BBH", content, at)
        yield attribute, value
        at += 4 + (value if kind == _SIZED else 0)


def _sections(image: bytes) -> list[_Section]:
    """The sections of an ELF file of 64 bits."""
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, of_names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, table + number * size) for number in range(count)]
    names = headers[of_names][4]
    found = []
    for name, _, _, _, start, nbytes in headers:
        begin = names + name
        found.append(_Section(image[begin : image.index(b"\0", begin)].decode(), image[start : start + nbytes]))
    return found
