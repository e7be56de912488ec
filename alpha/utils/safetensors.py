"""safetensors files under the names of ``safetensors.torch``: plain dicts of tensors by name."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from alpha import Tensor, engines, files
from alpha.errors import ArgumentError
from alpha.files import Array, PathLike

__all__ = ["load", "load_file", "save", "save_file"]


def save_file(tensors: Mapping[str, Tensor], filename: PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors by name, in row-major order, with strings beside them; the file appears whole or not at all."""
    files.write("save_file", _arrays("save_file", tensors), filename, files.strings("save_file", metadata))


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of such a file."""
    content = io.BytesIO()
    files.write("save", _arrays("save", tensors), content, files.strings("save", metadata))
    return content.getvalue()


def load_file(filename: PathLike, device: Any = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, on a device (by default the default engine)."""
    return _tensors("load_file", filename, device)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of such a file's bytes by name."""
    if not isinstance(data, bytes | bytearray):
        raise ArgumentError(f"[load] expected bytes, got {type(data).__name__}: read a file with load_file")
    return _tensors("load", io.BytesIO(data), None)


def _tensors(function: str, source: Any, device: Any) -> dict[str, Tensor]:
    engine = engines.resolve(device)
    arrays, _ = files.read(function, source)
    return {name: engine.from_numpy(array) for name, array in arrays.items()}


def _arrays(function: str, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    if not isinstance(tensors, Mapping) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ArgumentError(f"[{function}] expected a dict of tensors by name, got another value: see alpha.save")
    return {name: files.host_array(function, name, value) for name, value in tensors.items()}
