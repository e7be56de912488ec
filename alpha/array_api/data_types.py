"""The standard's functions of dtypes."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from alpha import dtypes
from alpha.arguments import flag
from alpha.array_api.promotion import Device
from alpha.errors import ArgumentError, DtypeError, described
from alpha.functions import casting
from alpha.functions.operands import check_tensor, is_number
from alpha.tensor import Tensor

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]


class FloatInfo(NamedTuple):
    """What ``finfo`` tells, as Python's numbers; of a complex dtype it is told of the parts.

    Attributes:
        bits: bits of a number.
        eps: the distance from 1 to the next number.
        max, min: the largest and the least finite number.
        smallest_normal: the smallest number above 0 with all its digits.
        dtype: the float dtype that it is told of.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtypes.DType


class IntegerInfo(NamedTuple):
    """What ``iinfo`` tells: bits of a number, the largest and the least, and the dtype."""

    bits: int
    max: int
    min: int
    dtype: dtypes.DType


def astype(x: Tensor, dtype: dtypes.DtypeLike, /, *, copy: bool = True, device: Device = None) -> Tensor:
    """The elements in another dtype; ``copy=False`` returns x itself where it has that dtype, and that device."""
    check_tensor("astype", x)
    moved = x if device is None else casting.to(x, device)
    found = casting.cast(moved, dtypes.as_dtype(dtype, "astype"))
    return casting.clone(found) if found is x and flag("astype", "copy", copy) else found


def can_cast(from_: Any, to: dtypes.DtypeLike, /) -> bool:
    """Whether the dtype (or an array's) promotes to another one: no number of it is lost there but by rounding."""
    wanted = dtypes.as_dtype(to, "can_cast")
    return dtypes.promote(_dtype_of("can_cast", from_), wanted) == wanted


def _dtype_of(function: str, given: Any) -> dtypes.DType:
    """An array's dtype, or a dtype."""
    return given.dtype if isinstance(given, Tensor) else dtypes.as_dtype(given, function)


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a float or complex dtype, or of an array's."""
    kind = dtypes.real_of(_dtype_of("finfo", type))
    found: Any = dtypes.finfo(kind)
    eps, most, least, normal = (float(value) for value in (found.eps, found.max, found.min, found.smallest_normal))
    return FloatInfo(int(found.bits), eps, most, least, normal, kind)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype, or of an array's."""
    kind = _dtype_of("iinfo", type)
    found = dtypes.iinfo(kind)
    return IntegerInfo(int(found.bits), int(found.max), int(found.min), kind)


def of_kind(function: str, dtype: dtypes.DType, kind: str) -> bool:
    """Whether a dtype is of a kind that the standard names; ArgumentError for another name."""
    signed = dtypes.is_integer(dtype) and dtypes.limits(dtype)[0] < 0
    kinds = {
        "bool": dtypes.is_bool(dtype),
        "signed integer": signed,
        "unsigned integer": dtypes.is_integer(dtype) and not signed,
        "integral": dtypes.is_integer(dtype),
        "real floating": dtypes.is_float(dtype),
        "complex floating": dtypes.is_complex(dtype),
        "numeric": not dtypes.is_bool(dtype),
    }
    if kind not in kinds:
        raise ArgumentError(f"[{function}] expected a kind among {', '.join(kinds)}, got {described(kind)}")
    return kinds[kind]


def isdtype(dtype: dtypes.DtypeLike, kind: Any) -> bool:
    """Whether a dtype is another one, of a kind that the standard names, or among a tuple of these.

    The kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" and
    "numeric".
    """
    given = dtypes.as_dtype(dtype, "isdtype")
    if isinstance(kind, tuple):
        return any(isdtype(given, one) for one in kind)
    if isinstance(kind, str):
        return of_kind("isdtype", given, kind)
    return given == dtypes.as_dtype(kind, "isdtype")


def result_type(*arrays_and_dtypes: Any) -> dtypes.DType:
    """The dtype in which arrays, dtypes and Python numbers meet: that of the numbers counts by its kind alone."""
    numbers = [value for value in arrays_and_dtypes if is_number(value)]
    kinds = [_dtype_of("result_type", value) for value in arrays_and_dtypes if not is_number(value)]
    if not kinds:
        raise DtypeError("[result_type] expected at least one array or dtype, got none")
    dtype = reduce(dtypes.promote, kinds)
    return dtypes.combine(dtype, reduce(dtypes.promote, map(dtypes.of_scalar, numbers)) if numbers else None)
