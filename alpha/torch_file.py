"""PyTorch's ``.pt`` and ``.pth`` files, read without PyTorch and without the code that their pickles may name.

A file of ``torch.save`` is a zip archive with stored members: ``data.pkl``, a pickle whose persistent identifiers name
storages, and one member of raw bytes for each storage. Files from before PyTorch 1.6 are a sequence of pickles with the
storages behind them.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from alpha import dtypes, structure, torch_types, unpickling
from alpha.arguments import MAX_AXES, MAX_ELEMENTS
from alpha.devices import device
from alpha.engine import Engine
from alpha.errors import AlphaError
from alpha.tensor import Storage, Tensor, is_within
from alpha.unpickling import Call

ZIP_START = b"PK\3\4"

_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
"""The numbers with which files of old begin."""

_STORAGES = {**torch_types.TYPES, "Untyped": "uint8"}
"""PyTorch's dtypes by the first part of the names of their storages."""

_DTYPES = {
    **{name: name for name in _STORAGES.values()},
    **{name: name for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")},
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}
"""NumPy's names of PyTorch's dtypes, those of which NumPy has none by the same."""


class TorchFileError(Exception):
    """The file cannot be read as it is.

    Attributes:
        expected: what was expected of it.
    """

    def __init__(self, what: str, expected: str = "expected a file of torch.save") -> None:
        super().__init__(what)
        self.expected = expected


class _StorageType:
    """The dtype of a storage by name, which need not be one that Tensor has."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a tensor; TorchFileError where it has none."""
        found = _dtype_named(self.name)
        if found not in dtypes.TABLE:
            raise _lacking(self.name)
        return found


def _dtype_named(name: str) -> np.dtype[Any] | None:
    """A dtype of tensors or of NumPy's; None where there is none."""
    for dtype in dtypes.TABLE:
        if dtype.name == name:
            return dtype
    try:
        return np.dtype(name)
    except TypeError:
        return None


def _lacking(name: Any) -> TorchFileError:
    return TorchFileError(
        f"a tensor of {name}: convert it in PyTorch first, by .float() or .to(...)",
        f"expected tensors of {dtypes.names()}",
    )


class _Bytes:
    """A storage of a file: memory on an engine, which its bytes have filled or will fill."""

    def __init__(self, storage: Storage, dtype: np.dtype[Any]) -> None:
        self.storage = storage
        self.dtype = dtype

    def fill(self, data: bytes) -> None:
        """Copies the file's bytes into the memory."""
        if len(data) != self.storage.nbytes:
            raise TorchFileError(f"{len(data)} bytes for a storage of {self.storage.nbytes}")
        raw = np.frombuffer(data, np.uint8)
        if dtypes.is_bool(self.dtype) and raw.size and raw.max() > 1:
            raise TorchFileError("bytes that are no bool")
        if data:
            engine = self.storage.engine
            engine.copy(engine.from_numpy(raw), Tensor(self.storage, 0, (raw.size,), (1,), dtypes.uint8))


def is_pickle(start: bytes) -> bool:
    """Whether a file's first bytes are those of a pickle of protocol 2 or later."""
    return start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5") and start[2:3] != b"\0"


# -- the two forms of file ---------------------------------------------------------------------------------------------


def read_zip(file: BinaryIO, place: Callable[[str], Engine]) -> Any:
    """The value of a zip archive; TorchFileError where it is none of PyTorch's or damaged."""
    try:
        size = file.seek(0, io.SEEK_END)
        with zipfile.ZipFile(file) as archive:
            return _Archive(archive, size, place).read()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, UnicodeError) as error:
        raise TorchFileError(f"a truncated or corrupt one ({error!s:.100})") from error
    except RuntimeError as error:
        if isinstance(error, AlphaError):
            raise
        raise TorchFileError(f"an archive with a password ({error!s:.100})") from error


class _Archive:
    """The members of a zip archive, of which each storage is read once."""

    def __init__(self, archive: zipfile.ZipFile, size: int, place: Callable[[str], Engine]) -> None:
        self._archive = archive
        self._place = place
        self._members = {member.filename: member for member in archive.infolist()}
        self._found: dict[str, _Bytes] = {}
        self._left = size
        pickles = [name for name in self._members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1 or len(self._members) != len(archive.infolist()):
            raise TorchFileError("a zip archive of something else")
        self._folder = pickles[0].partition("/")[0]

    def read(self) -> Any:
        if f"{self._folder}/constants.pkl" in self._members:
            raise TorchFileError("a program of torch.jit.save: save module.state_dict() with torch.save instead")
        if self._optional("byteorder", b"little").strip() != b"little":
            raise TorchFileError("numbers in big-endian byte order")
        data = io.BytesIO(self._member("data.pkl"))
        return _unpickled(data, self._storage)

    def _optional(self, name: str, otherwise: bytes) -> bytes:
        return self._member(name) if f"{self._folder}/{name}" in self._members else otherwise

    def _member(self, name: str) -> bytes:
        """A member's bytes. PyTorch never compresses them, so that none is larger than its part of the file."""
        member = self._members.get(f"{self._folder}/{name}")
        if member is None:
            raise TorchFileError(f"none of its members called {name!r:.80}")
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise TorchFileError(f"a compressed member {name!r:.80}, which PyTorch does not write")
        self._left -= member.file_size
        if self._left < 0:  # members that lie over each other
            raise TorchFileError("members of more bytes than the file has")
        return self._archive.read(member)

    def _storage(self, key: str, dtype: np.dtype[Any], location: str, elements: int) -> _Bytes:
        found = self._found.get(key)
        if found is None:
            data = self._member(f"data/{key}")
            found = _Bytes(self._place(location).allocate(len(data)), dtype)
            found.fill(data)
            self._found[key] = found
        return found


def read_legacy(file: BinaryIO, place: Callable[[str], Engine]) -> Any:
    """The value of a file from before PyTorch 1.6, or of one written in that form since."""
    found: dict[str, _Bytes] = {}
    start = file.tell()
    size = file.seek(0, io.SEEK_END) - start
    file.seek(start)

    def storage(key: str, dtype: np.dtype[Any], location: str, elements: int) -> _Bytes:
        if key not in found:
            nbytes = elements * dtype.itemsize
            if sum(known.storage.nbytes for known in found.values()) + nbytes > size:
                raise TorchFileError(f"storages of more bytes than the file's {size}")
            found[key] = _Bytes(place(location).allocate(nbytes), dtype)
        return found[key]

    try:
        if unpickling.load(file, _NAMES) != _LEGACY_MAGIC:
            raise TorchFileError("a pickle of something else")
        version, system = unpickling.load(file, {}), unpickling.load(file, {})
        if version != _LEGACY_PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
            raise TorchFileError("one of another version, or in big-endian byte order")
        value = _unpickled(file, storage)
        keys = unpickling.load(file, {})
    except unpickling.PickleError as error:
        raise TorchFileError(str(error)) from error
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(found):
        raise TorchFileError("one that lacks storages")
    for key in keys:
        content = found[key]
        elements = int.from_bytes(file.read(8), "little")
        if elements * content.dtype.itemsize != content.storage.nbytes:
            raise TorchFileError(f"a storage of {elements} elements in the place of {content.storage.nbytes} bytes")
        content.fill(file.read(content.storage.nbytes))
    return value


# -- the pickle --------------------------------------------------------------------------------------------------------

Find = Callable[[str, np.dtype[Any], str, int], _Bytes]


def _unpickled(file: BinaryIO, find: Find) -> Any:
    """The value of a pickle whose storages are found by name."""

    def persistent(identifier: Any) -> _Bytes:
        """A storage, of ``("storage", type, key, location, elements)`` and perhaps a view of none."""
        if not isinstance(identifier, tuple) or len(identifier) not in (5, 6) or identifier[0] != "storage":
            raise TorchFileError("an identifier of no storage")
        kind, key, location, elements = identifier[1:5]
        right = isinstance(kind, _StorageType) and isinstance(key, str) and isinstance(location, str)
        if not right or type(elements) is not int or not 0 <= elements <= MAX_ELEMENTS or any(identifier[5:]):
            raise TorchFileError("an identifier of a storage that is none")
        dtype = kind.dtype
        content = find(key, dtype, location, elements)
        if content.dtype != dtype or content.storage.nbytes != elements * dtype.itemsize:
            raise TorchFileError(f"a storage {key!r:.40} of {elements} elements with {content.storage.nbytes} bytes")
        return content

    try:
        return unpickling.load(file, _NAMES, persistent)
    except unpickling.ForeignNameError as error:
        raise TorchFileError(
            f"which wants to import {error.name}: only a module.state_dict() and other plain values are read, so "
            "save these in PyTorch",
            "expected tensors and plain values",
        ) from error
    except unpickling.PickleError as error:
        if isinstance(error.__cause__, TorchFileError):
            raise error.__cause__ from None
        raise TorchFileError(str(error)) from error


def _rebuild(storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, *_rest: Any) -> Tensor:
    """A tensor over a storage, as every version of PyTorch asks for one."""
    if not isinstance(storage, _Bytes):
        raise TorchFileError("a tensor of no storage")
    return _tensor(storage, storage.dtype, offset, shape, strides, requires_grad)


def _rebuild_with_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, _hooks: Any, dtype: Any, *_rest: Any
) -> Tensor:
    """A tensor over an untyped storage."""
    if not isinstance(storage, _Bytes) or not isinstance(dtype, np.dtype):
        raise TorchFileError("a tensor of no storage or dtype")
    if dtype not in dtypes.TABLE:
        raise _lacking(dtype)
    return _tensor(storage, dtype, offset, shape, strides, requires_grad)


def _tensor(storage: _Bytes, dtype: np.dtype[Any], offset: Any, shape: Any, strides: Any, requires_grad: Any) -> Tensor:
    sizes = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= MAX_AXES
    if not sizes or not all(type(n) is int and n >= 0 for n in (*shape, *strides, offset)):
        raise TorchFileError("a tensor of an offset, a shape or strides that are none")
    if math.prod(n or 1 for n in shape) > MAX_ELEMENTS or not is_within(storage.storage, dtype, offset, shape, strides):
        raise TorchFileError(f"a tensor beyond its storage of {storage.storage.nbytes} bytes")
    if dtypes.is_bool(dtype) and not dtypes.is_bool(storage.dtype):
        raise TorchFileError("a tensor of bool over other numbers")
    out = Tensor(storage.storage, offset, shape, strides, dtypes.as_dtype(dtype))
    out.requires_grad = _needs_grad(requires_grad, dtype)
    return out


def _needs_grad(value: Any, dtype: np.dtype[Any]) -> bool:
    if not isinstance(value, bool) or (value and not dtypes.has_gradients(dtype)):
        raise TorchFileError(f"a tensor of {dtype} whose requires_grad is no right one")
    return value


def _parameter(data: Any, requires_grad: Any = True, *_rest: Any) -> Tensor:
    """An ``nn.Parameter``; its hooks, which PyTorch does not save, and other attributes are left out."""
    if not isinstance(data, Tensor):
        raise TorchFileError("a parameter of no tensor")
    out = structure.as_kind(data, "Parameter")
    out.requires_grad = _needs_grad(requires_grad, data.dtype)
    return out


def _size(values: Any = ()) -> tuple[int, ...]:
    if not isinstance(values, tuple | list) or not all(type(n) is int for n in values):
        raise TorchFileError("a torch.Size of other values than ints")
    return tuple(values)


def _device(*parts: Any) -> device:
    if not parts or not isinstance(parts[0], str) or not all(type(part) is int for part in parts[1:]):
        raise TorchFileError("a device that is none")
    return device(*parts)


def _default(factory: Any = None, pairs: Any = ()) -> defaultdict[Any, Any]:
    return defaultdict(factory.type if isinstance(factory, Call) else None, unpickling.mapping(pairs))


def _items(values: Any = ()) -> set[Any]:
    return set(map(unpickling.as_key, unpickling.sequence(values)))


_BUILTINS: Mapping[str, Any] = {
    "set": Call(_items, set),
    "frozenset": Call(lambda values=(): frozenset(_items(values))),
    "complex": Call(complex),
    "slice": Call(slice),
    "range": Call(range),
    "xrange": Call(range),
    "list": Call(lambda values=(): list(unpickling.sequence(values)), list),
    "dict": Call(lambda pairs=(): unpickling.mapping(pairs), dict),
    "int": Call(lambda: 0, int),
    "float": Call(lambda: 0.0, float),
}

_NAMES: unpickling.Names = {
    **unpickling.ARRAYS,
    **{(module, name): call for module in ("builtins", "__builtin__") for name, call in _BUILTINS.items()},
    ("collections", "OrderedDict"): Call(lambda pairs=(): OrderedDict(unpickling.mapping(pairs))),
    ("collections", "Counter"): Call(lambda pairs=(): Counter(unpickling.mapping(pairs))),
    ("collections", "defaultdict"): Call(_default),
    ("torch", "Size"): Call(_size),
    ("torch", "device"): Call(_device),
    ("torch._utils", "_rebuild_tensor"): Call(_rebuild),
    ("torch._utils", "_rebuild_tensor_v2"): Call(_rebuild),
    ("torch._utils", "_rebuild_tensor_v3"): Call(_rebuild_with_dtype),
    ("torch._utils", "_rebuild_parameter"): Call(_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): Call(_parameter),
    **{
        (module, f"{name}Storage"): _StorageType(dtype)
        for module in ("torch", "torch.cuda")
        for name, dtype in _STORAGES.items()
    },
    ("torch.storage", "UntypedStorage"): _StorageType("uint8"),
    **{
        ("torch", name): _dtype_named(numpy) or unpickling.Lacking(f"the dtype torch.{name}, which Tensor has not")
        for name, numpy in _DTYPES.items()
    },
}
