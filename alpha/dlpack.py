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
_CODES = {b"dltensor": 20, b"dltensor_versioned": 52}
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


def array_of(source: Any) -> np.ndarray[Any, Any]:
    """An array over the memory of an object that has ``__dlpack__``, as ``numpy.from_dlpack`` makes it."""
    capsule = source.__dlpack__()
    is_bfloat = type(capsule).__name__ == "PyCapsule" and _is_bfloat(capsule)
    array: np.ndarray[Any, Any] = np.from_dlpack(_Given(source, capsule))
    return array.view(bfloat16) if is_bfloat else array


class _Given:
    """A capsule that was asked for already, of the device that its source lies on."""

    def __init__(self, source: Any, capsule: Any) -> None:
        self._source, self._capsule = source, capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()


def _is_bfloat(capsule: Any) -> bool:
    """Whether a capsule is of bfloat16; then it says from now on that it is of int16."""
    kind = _kind(capsule)
    if not kind or kind[0] != _BFLOAT or kind[1] != 16:
        return False
    kind[0] = _INT
    return True


def _kind(capsule: Any) -> Any:
    """Code and bits of a capsule's numbers, in its memory; nothing where it was used already."""
    name = _NAME(capsule)
    place = _CODES.get(name)
    return (ctypes.c_uint8 * 2).from_address(_POINTER(capsule, name) + place) if place is not None else ()
