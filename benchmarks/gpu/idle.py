"""A CUDA driver that does nothing, in the place of PyCUDA: programs run on it as far as Python goes, and are counted.

No kernel is compiled and none runs; memory is addresses alone. What a program reads from the device is therefore zeros.
To be installed before anything asks for the engine, in a process that needs no other.
"""

from __future__ import annotations

import sys
import types
from collections import Counter
from typing import Any

import numpy as np

LAUNCHES: Counter[str] = Counter()
"""Kernels launched, copies and fills among them, by name."""

H200 = {
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "L2_CACHE_SIZE": 60 << 20,
    "CLOCK_RATE": 1980000,
}
"""What the device says of itself."""

_GRAIN = 2 << 20  # of addresses, as a driver's


class _Names:
    """An enumeration whose values are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class _Context:
    """A context that is current everywhere."""

    def push(self) -> None:
        """Has nothing to change."""

    pop = push


class _Device:
    """An H200, with all of its memory free."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal

    @staticmethod
    def count() -> int:
        """One."""
        return 1

    def name(self) -> str:
        """Says that it is none."""
        return "no device"

    def compute_capability(self) -> tuple[int, int]:
        """Hopper's."""
        return 9, 0

    def get_attribute(self, name: str) -> int:
        """One of ``H200``."""
        return H200[name]

    def retain_primary_context(self) -> _Context:
        """The only context."""
        return _Context()


class _Stream:
    """A stream that is always empty."""

    handle = 1 << 20

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags

    def synchronize(self) -> None:
        """Returns at once."""

    def wait_for_event(self, event: Any) -> None:
        """Has nothing to wait for."""


class _Event:
    """A point that is always passed."""

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags

    def record(self, stream: Any) -> None:
        """Notes nothing."""

    def query(self) -> bool:
        """True."""
        return True

    def synchronize(self) -> None:
        """Returns at once."""


class _Allocation(int):
    """Addresses that nothing lies at."""

    def free(self) -> None:
        """Has nothing to give back."""


class _Function:
    """A kernel that is counted."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_attribute(self, name: str) -> int:
        """Zero: a kernel needs nothing."""
        return 0

    def set_attribute(self, name: str, value: int) -> None:
        """Takes anything."""

    def _launch_kernel(self, grid: Any, block: Any, arguments: bytes, shared: int, stream: Any) -> None:
        LAUNCHES[self.name] += 1


class _Module:
    def get_function(self, name: str) -> _Function:
        return _Function(name)


class _Library:
    """The driver's own functions, of which each succeeds."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0


_addresses = [1 << 40]


def _allocate(nbytes: int) -> _Allocation:
    address = _addresses[0]
    _addresses[0] += -(-nbytes // _GRAIN) * _GRAIN
    return _Allocation(address)


def _download(array: np.ndarray[Any, Any], address: int, stream: Any) -> None:
    array[...] = 0


def _counting(name: str) -> Any:
    def count(*arguments: Any) -> None:
        LAUNCHES[name] += 1

    return count


def install() -> None:
    """Makes the engine find this driver."""
    made = types.ModuleType("pycuda.driver")
    made.__dict__.update(
        Error=type("Error", (Exception,), {}),
        LogicError=type("LogicError", (Exception,), {}),
        MemoryError=type("MemoryError", (Exception,), {}),
        Device=_Device,
        Stream=_Stream,
        Event=_Event,
        device_attribute=_Names(),
        function_attribute=_Names(),
        event_flags=types.SimpleNamespace(DISABLE_TIMING=2),
        init=lambda: None,
        get_driver_version=lambda: 13000,
        mem_get_info=lambda: (139 << 30, 140 << 30),
        mem_alloc=_allocate,
        pagelocked_empty=np.empty,
        memcpy_htod_async=_counting("copy from the host"),
        memcpy_dtoh_async=_download,
        memcpy_dtod_async=_counting("copy"),
        memset_d8_async=_counting("fill"),
        module_from_buffer=lambda image: _Module(),
    )
    package = types.ModuleType("pycuda")
    package.__dict__["driver"] = made
    sys.modules.update({"pycuda": package, "pycuda.driver": made})
    from alpha.cu32 import driver

    setattr(driver, "_libcuda", _Library)  # noqa: B010
    setattr(driver, "cubin", lambda source, architecture: b"")  # noqa: B010
