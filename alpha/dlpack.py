"""bfloat16 through DLPack, of which NumPy's own capsules do not know: they carry its bits as int16, and say what it is.

A capsule's memory lies as in DLPack's header (dlpack.h 1.0, DLManagedTensor and DLManagedTensorVersioned).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from alpha.dtypes import bfloat16

_INT, _BFLOAT = 0, 4
"""DLPack's codes of kinds of numbers."""
_VERSIONED, _MAJOR = b"dltensor_versioned", 1
"""The name of capsules that begin with their version, and the version in which they lie so."""
_CODES = {b"dltensor": 20, _VERSIONED: 52}
"""Where the code lies: behind the address of the data, the device and the number of axes; with versions later."""

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


class Capsule:
    """A capsule of an object that takes part in DLPack, as NumPy takes it.

    Attributes:
        content: the capsule itself.
        is_writable: whether it is of the protocol's first versions, which do not know of memory that is read-only.
    """

    def __init__(self, source: Any) -> None:
        self._device = 1, 0  # the CPU; NumPy looks again into the capsule
        if type(source).__name__ != "PyCapsule":
            self._device = source.__dlpack_device__()
            try:
                source = source.__dlpack__(max_version=(1, 0))
            except TypeError:  # of a library that does not know of versions
                source = source.__dlpack__()
        self.content = source
        self.is_writable = "dltensor_versioned" not in repr(source)

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
    name = _NAME(capsule)
    place = _CODES.get(name)
    if place is None:
        return ()
    address = _POINTER(capsule, name)
    if name == _VERSIONED and ctypes.c_uint32.from_address(address).value != _MAJOR:
        return ()
    return (ctypes.c_uint8 * 2).from_address(address + place)
