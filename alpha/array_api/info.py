"""What the namespace tells of itself: ``__array_namespace_info__()``."""

from __future__ import annotations

from typing import Any

from alpha import cuda, dtypes, engines
from alpha.arguments import MAX_AXES
from alpha.array_api.data_types import of_kind
from alpha.array_api.promotion import Device
from alpha.devices import device as _device
from alpha.devices import torch_name
from alpha.errors import ArgumentError, described

_SMALLEST = {dtypes.FLOAT: 4, dtypes.COMPLEX: 8}
"""Bytes of the smallest floats and complex numbers of the standard: float16 and bfloat16 are not among its dtypes."""


class Info:
    """What ``alpha.array_api`` can do, its devices and its dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """Masks as indices and shapes that depend on values are there; so many axes an array can have."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_AXES}

    def default_device(self) -> _device:
        """Where arrays are made unless a device is given."""
        return _device(torch_name(engines.default_engine().name))

    def devices(self) -> tuple[_device, ...]:
        """The CPU, the GPUs that can be used, and the default device."""
        found = [_device("cpu"), *[_device(f"cuda:{k}") for k in range(cuda.device_count())], self.default_device()]
        return tuple(dict.fromkeys(found))

    def default_dtypes(self, *, device: Device = None) -> dict[str, dtypes.DType]:
        """The dtypes of arrays of Python's numbers, and of indices; they are the same on each device."""
        _check_device("default_dtypes", device)
        return {
            "real floating": dtypes.default_float,
            "complex floating": dtypes.complex_of(dtypes.default_float),
            "integral": dtypes.default_int,
            "indexing": dtypes.default_int,
        }

    def dtypes(self, *, device: Device = None, kind: Any = None) -> dict[str, dtypes.DType]:
        """The standard's dtypes that there are, by name, or those of a kind or of several: see ``isdtype``.

        They are the same on each device; uint64 is not among them.
        """
        _check_device("dtypes", device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for one in kinds:
            if not isinstance(one, str):
                raise ArgumentError(f"[dtypes] expected the name of a kind, or a tuple of names, got {described(kind)}")
        return {
            str(dtype): dtype
            for dtype in dtypes.TABLE
            if dtype.itemsize >= _SMALLEST.get(dtypes.category(dtype), 0)
            and any(of_kind("dtypes", dtype, one) for one in kinds)
        }


def _check_device(function: str, device: Device) -> None:
    """ArgumentError unless it names a device, or is None."""
    if device is not None:
        try:
            _device(device)
        except ArgumentError as error:
            raise ArgumentError(f"[{function}] expected a device or None, got {described(device)}") from error


def __array_namespace_info__() -> Info:
    """The namespace's capabilities, devices and dtypes."""
    return Info()
