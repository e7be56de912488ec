"""The dtypes a Tensor may have, and how two of them combine."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.errors import DtypeError, described

float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
uint8 = np.dtype(np.uint8)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
bool_ = np.dtype(np.bool_)

ALL = (float32, float64, uint8, int32, int64, bool_)
FLOATS = (float32, float64)
# Within one category the later wins; a later category wins over an earlier one (as in PyTorch).
_RANK = {bool_: 0, uint8: 1, int32: 2, int64: 3, float32: 4, float64: 5}
# uint8 and a signed type meet in the signed one, which holds every uint8.

DtypeLike = Any
"""Whatever ``numpy.dtype`` takes: ``alpha.float32``, ``numpy.float32``, ``"float32"``, ``float``."""


def as_dtype(value: DtypeLike, function: str = "dtype") -> np.dtype[Any]:
    """Returns one of the six dtypes; DtypeError for anything else. Python's ``float`` means float32, ``int`` int64."""
    if value is float:
        return float32
    try:
        dtype = np.dtype(value)
    except Exception as error:  # NumPy raises what it meets on the way
        raise DtypeError(f"[{function}] expected a dtype, got {described(value)}: one of {names()}") from error
    if dtype not in _RANK:
        raise DtypeError(f"[{function}] expected one of the dtypes {names()}, got {dtype}: convert the array first")
    return dtype


def names() -> str:
    """The dtypes' names, for messages."""
    return ", ".join(str(dtype) for dtype in ALL)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether gradients can flow through the dtype."""
    return dtype in FLOATS


def scalar(dtype: np.dtype[Any], value: float) -> Any:
    """A Python number in a float dtype; one beyond its range is infinite, of which NumPy is not to warn."""
    if -3e38 < value < 3e38:
        return dtype.type(value)
    with np.errstate(over="ignore"):
        return dtype.type(value)


def of_scalar(value: bool | int | float) -> np.dtype[Any]:
    """The weakest dtype that takes a Python number: bool, int64 or float32."""
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return int64
    return float32


def promote(first: np.dtype[Any], second: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which two tensors meet: bool < uint8 < int32 < int64 < float32 < float64."""
    return first if _RANK[first] >= _RANK[second] else second


def category(dtype: np.dtype[Any]) -> int:
    """0 for bool, 1 for integers, 2 for floats: a Python number changes a tensor's dtype only by a higher category."""
    return 0 if dtype == bool_ else 2 if is_float(dtype) else 1


def promote_scalar(dtype: np.dtype[Any], value: bool | int | float) -> np.dtype[Any]:
    """The dtype in which a tensor and a Python number meet: the tensor's, unless the number's category is higher."""
    scalar = of_scalar(value)
    return dtype if category(dtype) >= category(scalar) else scalar
