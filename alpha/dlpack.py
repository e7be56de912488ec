"""What NumPy's own DLPack capsules do not know of: bfloat16, and memory on a GPU.

They carry bfloat16's bits as int16, and addresses on a GPU, which nobody reads here, as those of the host; in their
memory stands what it really is. It lies as in DLPack's header (dlpack.h 1.0, DLManagedTensor and
DLManagedTensorVersioned).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alpha.dtypes import bfloat16

_INT, _BFLOAT = 0, 4
"""DLPack's codes of kinds of numbers."""
_VERSIONED, _MAJOR = b"dltensor_versioned", 1
"""The name of capsules that begin with their version, and the version in which they lie so."""
_CODES = {b"dltensor": 20, _VERSIONED: 52}
"""Where the code lies: behind the address of the data, the device and the number of axes; with versions later."""

_PLACES = {b"dltensor": 8, _VERSIONED: 40}
"""Where the device lies, its kind and its number."""

HOST, CUDA = 1, 2
"""DLPack's numbers of devices: the CPU, and NVIDIA's GPUs."""

_NAME = ctypes.pythonapi.PyCapsule_GetName
_NAME.restype, _NAME.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def capsule_of(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """A capsule over an array's memory; options as ``numpy.ndarray.__dlpack__`` takes them."""
    if array.dtype != bfloat16:
        return array.__dlpack__(**options)
    capsule = array.view(np.int16).__dlpack__(**options)
    _kind(capsule)[0] = _BFLOAT
    return capsule


def named(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype that array interfaces have a name for, of as many bytes."""
    return np.dtype(np.int16) if dtype == bfloat16 else dtype


def device_of(source: Any) -> tuple[int, int]:
    """The device that has the memory of a capsule, or of an object that makes one; the host for anything else."""
    if type(source).__name__ == "PyCapsule":
        place = _device(source)
        return (place[0], place[1]) if place else (HOST, 0)
    if not hasattr(source, "__dlpack_device__"):
        return HOST, 0
    kind, number = source.__dlpack_device__()
    return int(kind), int(number)


def on_device(capsule: Any, device: tuple[int, int]) -> Any:
    """The capsule, which from now on says that its memory is on a device."""
    _device(capsule)[:] = device
    return capsule


class Capsule:
    """A capsule of an object that takes part in DLPack, as NumPy takes it.

    Attributes:
        content: the capsule itself.
        gpu: the number of the GPU that has the memory; None for the host's. An array of the capsule has its addresses.
        is_writable: whether it is of the protocol's first versions, which do not know of memory that is read-only.
    """

    def __init__(self, source: Any, stream: Callable[[int], int] | None = None) -> None:
        """``stream``: the handle of the stream in which memory on a GPU of a number will be used. Without it NumPy
        refuses such memory.
        """
        self._device = HOST, 0  # NumPy looks again into the capsule
        self.gpu: int | None = None
        if type(source).__name__ != "PyCapsule":
            self._device = kind, number = source.__dlpack_device__()
            options = {"stream": stream(number)} if kind == CUDA and stream is not None else {}
            try:
                source = source.__dlpack__(max_version=(1, 0), **options)
            except TypeError:  # of a library that does not know of versions
                source = source.__dlpack__(**options)
        self.content = source
        self.is_writable = "dltensor_versioned" not in repr(source)
        place = _device(source)
        if place and place[0] == CUDA and stream is not None:
            self.gpu = place[1]
            self._device = HOST, 0
            on_device(source, self._device)

    def __dlpack__(self, **_options: Any) -> Any:
        return self.content

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def array_of(capsule: Capsule) -> np.ndarray[Any, Any]:
    """An array over a capsule's memory, as ``numpy.from_dlpack`` makes it."""
    is_bfloat = _is_bfloat(capsule.content)
    array: np.ndarray[Any, Any] = np.from_dlpack(capsule)
    return array.view(bfloat16) if is_bfloat else array


def _is_bfloat(capsule: Any) -> bool:
    """Whether a capsule is of bfloat16; then it says from now on that it is of int16."""
    kind = _kind(capsule)
    if not kind or kind[0] != _BFLOAT or kind[1] != 16:
        return False
    kind[0] = _INT
    return True


def _kind(capsule: Any) -> Any:
    """Code and bits of a capsule's numbers, in its memory; nothing where it was used, or may lie in another way."""
    return _part(capsule, _CODES, ctypes.c_uint8 * 2)


def _device(capsule: Any) -> Any:
    """The kind and the number of a capsule's device, in the same way."""
    return _part(capsule, _PLACES, ctypes.c_int32 * 2)


def _part(capsule: Any, places: Mapping[bytes, int], kind: Any) -> Any:
    name = _NAME(capsule)
    place = places.get(name)
    if place is None:
        return ()
    address = _POINTER(capsule, name)
    if name == _VERSIONED and ctypes.c_uint32.from_address(address).value != _MAJOR:
        return ()
    return kind.from_address(address + place)
