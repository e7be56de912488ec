"""Reading a data set's pickles without running anything that is written in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors


class _DtypeName:
    """Stands in for numpy.dtype in a pickle: keeps the name and ignores the rest."""

    def __init__(self, name: str | bytes, *_flags: Any) -> None:
        self.name = name.decode("ascii") if isinstance(name, bytes) else name

    def __setstate__(self, _state: Any) -> None:
        """Byte order and alignment say nothing about bytes, the only dtype there is here."""


class _Array:
    """Stands in for numpy.ndarray in a pickle: a uint8 array rebuilt from its shape and bytes."""

    def __init__(self, *_arguments: Any) -> None:
        self.value: np.ndarray[Any, np.dtype[np.uint8]] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        self._fill(raw, dtype, shape, "F" if fortran else "C")

    @classmethod
    def from_buffer(cls, raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
        """As pickle protocol 5 writes an array."""
        array = cls()
        array._fill(raw, dtype, shape, order)
        return array

    def _fill(self, raw: Any, dtype: Any, shape: Any, order: Any) -> None:
        if not isinstance(dtype, _DtypeName) or dtype.name not in ("u1", "|u1", "uint8"):
            raise pickle.UnpicklingError("an array of another dtype than uint8")
        # A Python 2 pickle read as Latin-1 text, or as bytes: the same bytes.
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        self.value = np.frombuffer(data, np.uint8).reshape(shape, order=order)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes in old pickle protocols; other codecs are refused."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DtypeName,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytes"): bytes,
    ("builtins", "bytearray"): bytearray,
    ("__builtin__", "bytes"): bytes,
    ("__builtin__", "bytearray"): bytearray,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Array.from_buffer for core in ("core", "_core")},
}


class _DataUnpickler(pickle.Unpickler):
    """Builds plain containers, numbers, text and uint8 arrays; every other name in the pickle is refused.

    The files come from the network, and a pickle may name any function to call. Even NumPy's own constructors are
    replaced, since they trust the state they are given.
    """

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no data") from None


def load_dict(function: str, path: Path, advice: str) -> dict[str, Any]:
    """The pickled dict in a file, its keys as str, its arrays as uint8 ndarrays.

    Raises:
        DataError: the file is missing, truncated, no pickle of a dict, or names anything but data.
    """
    try:
        with path.open("rb") as file:
            content = _DataUnpickler(file, encoding="latin1").load()
    except FileNotFoundError:
        raise errors.DataError(f"[{function}] expected the file {path}, got none: {advice}") from None
    except Exception as error:  # corrupt bytes make the unpickler raise nearly anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise errors.DataError(f"[{function}] expected a pickled dict in {path}, got {reason}: {advice}") from error
    if not isinstance(content, dict):
        raise errors.DataError(
            f"[{function}] expected a pickled dict in {path}, got {type(content).__name__}: {advice}"
        )
    return {_text(key): value.value if isinstance(value, _Array) else value for key, value in content.items()}


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
