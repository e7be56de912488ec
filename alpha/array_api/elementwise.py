"""The standard's element-wise functions."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from alpha import dtypes
from alpha.array_api.promotion import of_two
from alpha.errors import DtypeError
from alpha.functions import arithmetic, bits, comparison, complex_numbers, rounding, transcendental
from alpha.functions.casting import cast, clone
from alpha.functions.operands import check_tensor, is_number
from alpha.tensor import Tensor

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos",
    "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal",
    "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
    "subtract", "tan", "tanh", "trunc",
]  # fmt: skip

# -- of one array ----------------------------------------------------------------------------------------------------

abs = rounding.abs
acos, acosh = transcendental.acos, transcendental.acosh
asin, asinh = transcendental.asin, transcendental.asinh
atan, atanh = transcendental.atan, transcendental.atanh
bitwise_invert = bits.bitwise_not
ceil, floor, trunc = rounding.ceil, rounding.floor, rounding.trunc
conj, imag = complex_numbers.conj, complex_numbers.imag
real = complex_numbers.real
cos, cosh = transcendental.cos, transcendental.cosh
exp, expm1 = transcendental.exp, transcendental.expm1
isfinite, isinf, isnan = comparison.isfinite, comparison.isinf, comparison.isnan
log, log10 = transcendental.log, transcendental.log10
log1p, log2 = transcendental.log1p, transcendental.log2
logical_not = comparison.logical_not
negative, positive = rounding.negative, rounding.positive
reciprocal = transcendental.reciprocal
signbit = comparison.signbit
sin, sinh = transcendental.sin, transcendental.sinh
sqrt, square = transcendental.sqrt, rounding.square
tan, tanh = transcendental.tan, transcendental.tanh


def round(x: Tensor, /) -> Tensor:
    """The nearest integers, of two the even one; of complex numbers those of both parts."""
    if isinstance(x, Tensor) and dtypes.is_complex(x.dtype):
        return complex_numbers.complex(*[rounding.round(part(x)) for part in (real, imag)])
    return rounding.round(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1, of complex numbers x / abs(x); of NaN it is NaN, which PyTorch takes for 0."""
    found = rounding.sgn(x)
    return comparison.where(comparison.isnan(x), x, found) if dtypes.is_float(found.dtype) else found


# -- of two arrays ---------------------------------------------------------------------------------------------------


def _floor_divide(x1: Any, x2: Any) -> Tensor:
    """floor(x1 / x2); an infinite quotient stays infinite, and one by infinity is 0, where PyTorch has NaN and -1."""
    found = arithmetic.floor_divide(x1, x2)
    if not dtypes.is_float(found.dtype):
        return found
    quotient = arithmetic.div(x1, x2)
    if any(is_number(x) and math.isinf(x) for x in (x1, x2)):
        return quotient
    infinite = [comparison.isinf(x) for x in (x1, x2) if isinstance(x, Tensor)]
    return comparison.where(reduce(comparison.logical_or, infinite), quotient, found)


def _remainder(x1: Any, x2: Any) -> Tensor:
    """x1 - floor(x1 / x2) * x2, with the sign of x2; a zero has it too, where PyTorch's has that of x1."""
    found = arithmetic.remainder(x1, x2)
    if not dtypes.is_float(found.dtype):
        return found
    return comparison.where(comparison.eq(found, 0.0), arithmetic.copysign(found, x2), found)


add = of_two("add", arithmetic.add)
atan2 = of_two("atan2", arithmetic.atan2)
bitwise_and = of_two("bitwise_and", bits.bitwise_and)
bitwise_left_shift = of_two("bitwise_left_shift", bits.bitwise_left_shift)
bitwise_or = of_two("bitwise_or", bits.bitwise_or)
bitwise_right_shift = of_two("bitwise_right_shift", bits.bitwise_right_shift)
bitwise_xor = of_two("bitwise_xor", bits.bitwise_xor)
copysign = of_two("copysign", arithmetic.copysign)
divide = of_two("divide", arithmetic.divide)
equal = of_two("equal", comparison.eq)
floor_divide = of_two("floor_divide", _floor_divide)
greater = of_two("greater", comparison.gt)
greater_equal = of_two("greater_equal", comparison.ge)
hypot = of_two("hypot", arithmetic.hypot)
less = of_two("less", comparison.lt)
less_equal = of_two("less_equal", comparison.le)
logaddexp = of_two("logaddexp", transcendental.logaddexp)
logical_and = of_two("logical_and", comparison.logical_and)
logical_or = of_two("logical_or", comparison.logical_or)
logical_xor = of_two("logical_xor", comparison.logical_xor)
maximum = of_two("maximum", arithmetic.maximum)
minimum = of_two("minimum", arithmetic.minimum)
multiply = of_two("multiply", arithmetic.mul)
nextafter = of_two("nextafter", arithmetic.nextafter)
not_equal = of_two("not_equal", comparison.ne)
pow = of_two("pow", arithmetic.pow)
remainder = of_two("remainder", _remainder)
subtract = of_two("subtract", arithmetic.sub)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements limited to min..max, numbers or arrays; the dtype stays that of x."""
    check_tensor("clip", x)
    for bound in (min, max):
        if isinstance(bound, Tensor) and bound.dtype != x.dtype:
            raise DtypeError(f"[clip] expected bounds of the array's {x.dtype}, got {bound.dtype}: use astype")
    return clone(x) if min is None and max is None else cast(rounding.clamp(x, min, max), x.dtype)
