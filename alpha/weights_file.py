"""The safetensors format, read with every claim of the header checked, and written with a seal over every bit.

The format: the header's length (8 bytes, little-endian), a JSON header, the tensors' bytes. The seal is white space
behind the header's first brace, which JSON allows and readers skip: 64 characters of the four that JSON has, two bits
each. They spell a digest (BLAKE2b, 128 bits) of the length, the rest of the header and the tensors' CRC-32. So a bit
that flips anywhere changes the digest or what it is compared with, in the seal itself too; and a seal cannot be taken
for the lack of one, for that would need many.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from alpha import dtypes

Array = np.ndarray[Any, Any]

_LONGEST = 100_000_000
"""Bytes of a header beyond which no reader of the format takes it."""
_SPACES = b" \t\n\r"
_SEAL = 64
_AXES = 64
"""Most axes that an array has."""
_OTHERS = {"U64": "uint64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
"""What tensors of other kinds are called in an error; one that is not here goes by its code."""


class FormatError(Exception):
    """The bytes are no safetensors file."""


class SealError(Exception):
    """The file is not as it was written."""


class KindError(Exception):
    """A tensor of a kind that Tensor has not."""


# -- writing -----------------------------------------------------------------------------------------------------------


def write(arrays: Mapping[str, Array], metadata: Mapping[str, str], file: BinaryIO) -> None:
    """Writes dense row-major arrays and strings beside them to a file; FormatError for a header beyond all measure.

    safetensors' own writer puts a temporary file of its own beside ours, which a killed process leaves behind, and
    makes it readable by its owner alone; or it holds the whole file in memory twice.
    """
    # Widest elements first, after a header of a multiple of 8 bytes, so that every tensor is aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    header |= dict.fromkeys(arrays)  # in the order given, which readers of dicts keep
    end, body = 0, 0
    for name in names:
        array, start = arrays[name], end
        end += array.nbytes
        header[name] = {
            "dtype": dtypes.info(array.dtype).safetensors,
            "shape": array.shape,
            "data_offsets": [start, end],
        }
        body = zlib.crc32(_bytes(array), body)
    text = json.dumps(header).encode()[1:]
    text += b" " * (-(1 + _SEAL + len(text)) % 8)
    if 1 + _SEAL + len(text) > _LONGEST:
        raise FormatError(f"a header of {1 + _SEAL + len(text)} bytes, more than the {_LONGEST} that readers take")
    length = (1 + _SEAL + len(text)).to_bytes(8, "little")
    _put(file, length + b"{" + _seal(length, text, body) + text)
    for name in names:
        _put(file, _bytes(arrays[name]))


def _put(file: BinaryIO, data: bytes | memoryview) -> None:
    """Writes all of the data: a file without a buffer may take a part at a time."""
    left = memoryview(data)
    while left:
        count = file.write(left)
        left = left[len(left) if count is None else count :]


def _bytes(array: Array) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


def _seal(length: bytes, text: bytes | memoryview, body: int) -> bytes:
    """The seal of a header that goes on with a text, before bytes with a checksum."""
    digest = hashlib.blake2b(length, digest_size=_SEAL // 4)
    digest.update(text)
    digest.update(body.to_bytes(4, "little"))
    return bytes(_SPACES[byte >> shift & 3] for byte in digest.digest() for shift in (6, 4, 2, 0))


# -- reading -----------------------------------------------------------------------------------------------------------


def read(file: BinaryIO) -> tuple[dict[str, Array], dict[str, str]]:
    """All arrays, in the header's order, and the metadata of a file, from where it stands to its end.

    Raises the errors above, OSError and MemoryError.
    """
    data = _content(file)
    if len(data) < 8:
        raise FormatError(f"{len(data)} bytes")
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(_LONGEST, len(data) - 8):
        raise FormatError(f"a header of {length} bytes in a file of {len(data)}")
    text, body = data[8 : 8 + length], data[8 + length :]
    header = _parse(bytes(text))
    metadata = header.pop("__metadata__", None)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError("metadata that is no dict of strings")
    places = {name: _place(name, entry) for name, entry in header.items()}
    _check_cover(places, len(body))
    _check_seal(data[:8], text, body)
    arrays = {name: _array(name, code, shape, body[start:end]) for name, (start, end, code, shape) in places.items()}
    return arrays, metadata


def _content(file: BinaryIO) -> memoryview:
    """The rest of a file's bytes, aligned as tensors need it."""
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    memory = np.empty(size // 8 + 1, np.int64).view(np.uint8)[:size]
    count = file.readinto(memory.data) if size else 0  # type: ignore[attr-defined]
    if count < size or file.read(1):
        raise FormatError("a file that changes while it is read")
    return memory.data


def _check_seal(length: memoryview, text: memoryview, body: memoryview) -> None:
    """SealError unless the seal, where there is one, is that of the file."""
    place = bytes(text[1 : 1 + _SEAL])
    if len(place.strip(_SPACES)) or not place.strip(b" ") or len(place) < _SEAL:
        return  # another program's: white space so long, and not of spaces alone, is a seal of ours
    if text[0] != ord("{") or place != _seal(bytes(length), text[1 + _SEAL :], zlib.crc32(body)):
        raise SealError("bits of it have changed")


def _parse(text: bytes) -> dict[str, Any]:
    """The header's JSON object."""
    if not text.startswith(b"{"):
        raise FormatError("a header that is no JSON object")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=_no_constant)
        "".join(header).encode("utf-8")  # half of a surrogate pair is no text
    except RecursionError as error:
        raise FormatError("a header that is nested too deep") from error
    except ValueError as error:
        raise FormatError(str(error)) from error
    if not isinstance(header, dict):
        raise FormatError("a header that is no JSON object")
    return header


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; ValueError where a name comes twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that comes twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"the number {text}")


Place = tuple[int, int, str, tuple[int, ...]]
"""First byte and the one after the last, kind and shape of a tensor."""


def _check_cover(places: Mapping[str, Place], size: int) -> None:
    """FormatError unless the tensors lie one after another, without gaps, to the file's end."""
    end = 0
    for name, (start, stop, _, _) in sorted(places.items(), key=lambda item: item[1][:2]):
        if start != end:
            raise FormatError(f"{name!r:.80} at byte {start} instead of {end}")
        end = stop
    if end != size:
        raise FormatError(f"{size} bytes of tensors instead of {end}")


def _place(name: str, entry: Any) -> Place:
    """What the header says of a tensor."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise FormatError(f"no dtype, shape and data_offsets of {name!r:.80}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise FormatError(f"a dtype, shape or data_offsets of {name!r:.80} that is none")
    if offsets[0] > offsets[1]:
        raise FormatError(f"{name!r:.80} from byte {offsets[0]} to {offsets[1]}")
    return offsets[0], offsets[1], kind, tuple(shape)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in values)


def _array(name: str, code: str, shape: tuple[int, ...], data: memoryview) -> Array:
    """A tensor over the file's memory, or where that is not aligned a copy."""
    kind = dtypes.of_safetensors(code)
    if kind is None:
        raise KindError(f"{_OTHERS.get(code, code)} for {name!r:.80}")
    if math.prod(shape) * kind.itemsize != len(data) or len(shape) > _AXES:
        raise FormatError(f"{len(data)} bytes for {name!r:.80} of shape {str(shape)[:80]} and {kind}")
    raw = np.frombuffer(data, np.uint8)
    if dtypes.is_bool(kind) and raw.size and raw.max() > 1:
        raise FormatError(f"bytes that are no bool in {name!r:.80}")
    if raw.ctypes.data % kind.itemsize:
        raw = raw.copy()
    array: Array = raw.view(kind.newbyteorder("<")).astype(kind, copy=False)
    return array.reshape(shape)
