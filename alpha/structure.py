"""Nested values as JSON beside named arrays: what ``alpha.save`` and checkpoints write, and how it is read back.

Numbers, strings, booleans, None and lists are JSON's own. Anything else is an object of one entry, whose name says what
it is: ``{"$tuple": [1, 2]}``, ``{"$dict": [[key, value], ...]}``, ``{"$tensor": [name of an array, {}]}``.
Nothing in it names code: whoever reads it makes values of the kinds listed here, and no others.
"""

from __future__ import annotations

import importlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from alpha import dtypes, files
from alpha.devices import device
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError
from alpha.files import Array
from alpha.tensor import Storage, Tensor, dense_strides, extent, is_within

DEPTH = 100
"""How deep lists and dicts may be nested."""

_FACTORIES = {kind.__name__: kind for kind in (list, dict, set, int, float, str, bool, tuple)} | {"None": None}
"""What a defaultdict may make its missing values of."""

_TENSOR_KINDS = {"Parameter": "alpha.nn.parameter"}
"""Subclasses of Tensor that come back as themselves, with their modules."""


class StructureError(Exception):
    """What was read is no structure that a ``Packer`` makes."""


class _Kind(NamedTuple):
    """A kind of value: the list of values that it is made of, and what makes it of them again."""

    name: str
    take_apart: Callable[[Any], list[Any]]
    put_together: Callable[[list[Any]], Any]


def _mapping(pairs: list[Any]) -> dict[Any, Any]:
    found = {key: value for key, value in pairs}  # noqa: C416 (a pair of another length is an error)
    if len(found) != len(pairs):
        raise ValueError("a key that comes twice")
    return found


def _pairs(value: Mapping[Any, Any]) -> list[Any]:
    return [list(pair) for pair in value.items()]


def _factory(value: defaultdict[Any, Any]) -> str:
    factory = value.default_factory
    name = "None" if factory is None else getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise TypeError(f"one that makes its values by {factory!r:.80}")
    return name


_KINDS: dict[type, _Kind] = {
    tuple: _Kind("$tuple", list, tuple),
    set: _Kind("$set", list, set),
    frozenset: _Kind("$frozenset", list, frozenset),
    complex: _Kind("$complex", lambda z: [z.real, z.imag], lambda parts: complex(*parts)),
    range: _Kind("$range", lambda r: [r.start, r.stop, r.step], lambda parts: range(*parts)),
    slice: _Kind("$slice", lambda s: [s.start, s.stop, s.step], lambda parts: slice(*parts)),
    dict: _Kind("$dict", _pairs, _mapping),
    OrderedDict: _Kind("$ordered", _pairs, lambda pairs: OrderedDict(_mapping(pairs))),
    Counter: _Kind("$counter", _pairs, lambda pairs: Counter(_mapping(pairs))),
    defaultdict: _Kind(
        "$defaultdict",
        lambda value: [_factory(value), dict(value)],
        lambda parts: defaultdict(_FACTORIES[parts[0]], parts[1]),
    ),
    np.dtype: _Kind("$dtype", lambda value: [_text_of(value)], lambda parts: _number_dtype(*parts)),
    device: _Kind("$device", lambda value: [str(value)], lambda parts: device("".join(parts))),
}
_NAMED = {kind.name: kind for kind in _KINDS.values()}
_BY_KEY = [_KINDS[dict], _KINDS[OrderedDict], _KINDS[Counter]]


def _text_of(dtype: np.dtype[Any]) -> str:
    """What NumPy makes a dtype of; of one that another library brings its name."""
    return dtype.name if dtype in dtypes.TABLE and dtype.isbuiltin != 1 else dtype.str


def _number_dtype(text: Any) -> np.dtype[Any]:
    if not isinstance(text, str):
        raise TypeError("a dtype that is no text")
    dtype = np.dtype(text)
    if not dtypes.holds_numbers(dtype):
        raise TypeError(f"the dtype {dtype}")
    return dtype


# -- writing -----------------------------------------------------------------------------------------------------------


class Packer:
    """Converts nested values to JSON, and collects their arrays.

    Tensors that share memory share it again when they are read; all are kept in row-major order.

    Attributes:
        arrays: what the structure names, in the order in which it came.
        storages: bytes of the memory that several tensors share.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self.arrays: dict[str, Array] = {}
        self.storages: list[int] = []
        self._tensors: dict[int, list[tuple[Tensor, dict[str, Any]]]] = {}  # by their storage, with their entries

    def pack(self, value: Any, path: str, depth: int = 0) -> Any:
        """A value as JSON; ArgumentError for what is of no kind that is known."""
        if depth > DEPTH:
            raise ArgumentError(
                f"[{self.function}] expected at most {DEPTH} lists and dicts within each other, got more at "
                f"{path[:80]}...: flatten them"
            )
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            return {"$tensor": self._tensor(value, path)}
        if isinstance(value, np.ndarray):
            return {"$array": self._array(value, path)}
        if isinstance(value, np.generic) and dtypes.holds_numbers(value.dtype):
            return {"$scalar": [_text_of(value.dtype), self.pack(value.item(), path)]}
        if type(value) in (bytes, bytearray):
            return {f"${type(value).__name__}": self._name(np.frombuffer(value, np.uint8), path)}
        if type(value) is list:
            return self._list(value, path, depth)
        kind = _kind_of(value)
        if kind is None:
            raise self.refused(value, path)
        try:
            parts = kind.take_apart(value)
        except TypeError as error:
            raise self.refused(value, path, f": {error}") from error
        return {kind.name: self._pairs(parts, path, depth) if kind in _BY_KEY else self._list(parts, path, depth)}

    def refused(self, value: Any, path: str, why: str = "") -> ArgumentError:
        """The error for a value that has no place in a file."""
        return ArgumentError(
            f"[{self.function}] expected numbers, strings, lists, dicts, tensors and arrays, got "
            f"{type(value).__name__} at {path}{why}: convert it first, an object with a state to its state_dict()"
        )

    def _pairs(self, pairs: list[Any], path: str, depth: int) -> list[Any]:
        return [
            [self.pack(key, path, depth + 1), self.pack(value, _join(path, key), depth + 1)] for key, value in pairs
        ]

    def _list(self, values: list[Any], path: str, depth: int) -> list[Any]:
        return [self.pack(value, _join(path, index), depth + 1) for index, value in enumerate(values)]

    def _tensor(self, tensor: Tensor, path: str) -> Any:
        name = self._name(tensor.engine.to_numpy(tensor.detach()), path)
        details: dict[str, Any] = {"requires_grad": True} if tensor.requires_grad else {}
        if type(tensor).__name__ in _TENSOR_KINDS:
            details["kind"] = type(tensor).__name__
        self._tensors.setdefault(id(tensor.storage), []).append((tensor, details))
        return [name, details]

    def _array(self, array: Array, path: str) -> Any:
        if not dtypes.holds_numbers(array.dtype):
            raise self.refused(array, path, f" of {array.dtype}")
        plain = array.astype(array.dtype.newbyteorder("="), copy=False)
        if plain.dtype in dtypes.TABLE and dtypes.info(plain.dtype).safetensors:
            return self._name(plain, path)
        raw = np.ascontiguousarray(plain).reshape(-1).view(np.uint8)
        return [self._name(raw, path), plain.dtype.str, list(plain.shape)]

    def _name(self, array: Array, path: str) -> str:
        """Enters an array under its path, or where that is taken under one like it."""
        path = path.encode("utf-8", "replace").decode() or "value"
        name, number = path, 1
        while name in self.arrays or name == "__metadata__":
            name, number = f"{path}#{number}", number + 1
        self.arrays[name] = files.host_array(self.function, name, array)
        return name

    def finish(self) -> None:
        """Notes in the entries of tensors which of them share memory, and where in it they are."""
        for entries in self._tensors.values():
            group = [entry for entry in entries if entry[0].numel()]
            if len(group) < 2:
                continue
            spans = [_span(tensor) for tensor, _ in group]
            low = min(first for first, _ in spans) // 8 * 8  # so that every dtype stays aligned
            for tensor, details in group:
                offset = tensor.offset * tensor.itemsize - low
                details["memory"] = [len(self.storages), offset, list(tensor.strides)]
            self.storages.append(max(end for _, end in spans) - low)


def is_plain(structure: Any, names: Mapping[str, Any]) -> bool:
    """Whether a structure is no more than a dict of tensors by their names, as any safetensors file is."""
    return bool(structure == {"$dict": [[name, {"$tensor": [name, {}]}] for name in names]})


def _kind_of(value: Any) -> _Kind | None:
    if isinstance(value, np.dtype):
        return _KINDS[np.dtype] if dtypes.holds_numbers(value) else None
    kind = _KINDS.get(type(value))
    return _KINDS[dict] if kind is None and isinstance(value, Mapping) else kind


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _span(tensor: Tensor) -> tuple[int, int]:
    """The first byte of a tensor's elements in its storage, and the one past the last."""
    low, high = extent(tensor.shape, tensor.strides)
    return (tensor.offset + low) * tensor.itemsize, (tensor.offset + high) * tensor.itemsize


# -- reading -----------------------------------------------------------------------------------------------------------


class Unpacker:
    """Makes values of a structure again.

    Args:
        arrays: the arrays that it may name.
        storages: bytes of the memory that several tensors share.
        engine: where tensors go; None leaves them arrays.
    """

    def __init__(self, arrays: Mapping[str, Array], storages: Any = (), engine: Engine | None = None) -> None:
        self._arrays = arrays
        self._sizes = storages
        self._engine = engine
        self._shared: dict[int, Storage] = {}

    def unpack(self, value: Any, depth: int = 0) -> Any:
        """A value from its JSON; StructureError where it is none."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if depth > 3 * DEPTH + 3:  # a dict is an object, a list and a list for each pair
            raise StructureError(f"more than {DEPTH} lists and dicts within each other")
        if isinstance(value, list):
            return [self.unpack(item, depth + 1) for item in value]
        name, content = next(iter(value.items())) if len(value) == 1 else ("", None)
        special = self._special(name, content)
        if special is not None:
            return special
        kind = _NAMED.get(name)
        if kind is None or not isinstance(content, list):
            raise StructureError(f"{str(value)[:80]!r}")
        parts = self.unpack(content, depth + 1)
        try:
            return kind.put_together(parts)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError, AlphaError) as error:
            raise StructureError(f"a {name[1:]} that is none ({error!s:.80})") from error

    def _special(self, name: str, content: Any) -> Any:
        """What is made of an array; None for any other kind."""
        if name == "$tensor":
            return self._tensor(content)
        if name == "$array":
            return self._host_array(content)
        if name in ("$bytes", "$bytearray"):
            raw = self._named(content).tobytes()
            return raw if name == "$bytes" else bytearray(raw)
        if name == "$scalar":
            parts = self.unpack(content)
            try:
                return _number_dtype(parts[0]).type(parts[1])
            except (TypeError, ValueError, IndexError, OverflowError) as error:
                raise StructureError(f"a scalar that is none ({error!s:.80})") from error
        return None

    def _named(self, name: Any) -> Array:
        if not isinstance(name, str) or name not in self._arrays:
            raise StructureError(f"the name {name!r:.80} of no array")
        return self._arrays[name]

    def _host_array(self, content: Any) -> Array:
        if isinstance(content, str):
            return self._named(content).copy()
        try:
            name, code, shape = content
            raw, dtype = self._named(name), _number_dtype(code)
            return raw.reshape(-1).view(np.uint8).view(dtype).reshape(shape).copy()
        except (TypeError, ValueError) as error:
            raise StructureError(f"an array that is none ({error!s:.80})") from error

    def _tensor(self, content: Any) -> Any:
        name, details = content if isinstance(content, list) and len(content) == 2 else (content, {})
        array = self._named(name)
        if self._engine is None:
            return array
        if not isinstance(details, dict) or not set(details) <= {"requires_grad", "kind", "memory"}:
            raise StructureError(f"a tensor of the properties {details!r:.80}")
        tensor = self._engine.from_numpy(array)
        if "memory" in details:
            tensor = self._sharing(tensor, details["memory"])
        needs_grad = details.get("requires_grad", False)
        if needs_grad is not False and (needs_grad is not True or not dtypes.is_float(tensor.dtype)):
            raise StructureError(f"a tensor of {tensor.dtype} whose requires_grad is {needs_grad!r:.80}")
        if "kind" in details:
            tensor = as_kind(tensor, details["kind"])
        tensor.requires_grad = needs_grad
        return tensor

    def _sharing(self, tensor: Tensor, memory: Any) -> Tensor:
        """A tensor with the same values in memory that others share."""
        try:
            number, offset, strides = memory
            size = self._sizes[number]
            place, rest = divmod(offset, tensor.itemsize)
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise StructureError(f"the memory {memory!r:.80}") from error
        if type(number) is not int or type(size) is not int or size < 0 or rest or not isinstance(strides, list):
            raise StructureError(f"the memory {memory!r:.80}")
        storage = self._shared.get(number)
        if storage is None:
            storage = self._shared[number] = zeroed(tensor.engine, size)
        if not is_within(storage, tensor.dtype, place, tensor.shape, tuple(strides)):
            raise StructureError(f"a tensor beyond its memory of {size} bytes")
        out = Tensor(storage, place, tensor.shape, tuple(strides), tensor.dtype)
        tensor.engine.copy(tensor, out)
        return out


def zeroed(engine: Engine, nbytes: int) -> Storage:
    """Memory of zeros on an engine."""
    storage = engine.allocate(nbytes)
    if nbytes:
        engine.fill(Tensor(storage, 0, (nbytes,), dense_strides((nbytes,)), dtypes.uint8), 0)
    return storage


def as_kind(tensor: Tensor, kind: Any) -> Tensor:
    """A tensor over the same memory of a subclass that files may name: ``"Parameter"``."""
    if not isinstance(kind, str) or kind not in _TENSOR_KINDS:
        raise StructureError(f"a tensor of the kind {kind!r:.80}")
    made = getattr(importlib.import_module(_TENSOR_KINDS[kind]), kind)
    return made(tensor, requires_grad=False)  # type: ignore[no-any-return]
