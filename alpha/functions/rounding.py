"""Signs, sizes and rounding; limits."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import number, whole
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions import symbols
from alpha.expressions.functions import pointwise
from alpha.functions.arithmetic import div, mul
from alpha.functions.casting import cast, clone
from alpha.functions.complex_arithmetic import of_complex
from alpha.functions.operands import TensorLike, check_float, check_tensor, compute
from alpha.functions.primitives import EXPRESSIONS, PRIMITIVES, convert, evaluated, numeric, of_integers
from alpha.tensor import Tensor

__all__ = [
    "abs", "absolute", "ceil", "clamp", "clamp_max", "clamp_min", "clip", "fix", "floor", "frac", "frexp", "nan_to_num",
    "neg", "negative", "positive", "round", "sgn", "sign", "square", "trunc",
]  # fmt: skip

# -- signs and sizes ---------------------------------------------------------------------------------------------


def neg(input: TensorLike) -> Tensor:
    """-input."""
    found: Tensor | None = PRIMITIVES["neg"].latest.launch_outside(input)
    return evaluated("neg", numeric("neg", input)) if found is None else found


def positive(input: TensorLike) -> Tensor:
    """The numbers as they are; DtypeError for bools."""
    return numeric("positive", input)


def abs(input: TensorLike) -> Tensor:
    """|input|; its gradient at 0 is 0."""
    found: Tensor | None = PRIMITIVES["abs"].latest.launch_outside(input)
    if found is not None:
        return found
    value = numeric("abs", input)
    if dtypes.is_complex(value.dtype):
        from alpha.functions.complex_numbers import absolute_of_complex  # here: it imports this family

        return absolute_of_complex(value)
    return evaluated("abs", value)


def sign(input: TensorLike) -> Tensor:
    """-1, 0 or 1; its gradient is 0. A bool is its own sign."""
    found: Tensor | None = PRIMITIVES["sign"].latest.launch_outside(input)
    if found is not None:
        return found
    value: Tensor = convert("sign", input, logical=True)[0]
    return clone(value) if dtypes.is_bool(value.dtype) else evaluated("sign", value)


def square(input: TensorLike) -> Tensor:
    """input * input; of bools int64."""
    found: Tensor | None = PRIMITIVES["square"].latest.launch_outside(input)
    if found is not None:
        return found
    value: Tensor = convert("square", input, logical=True)[0]
    return evaluated("square", cast(value, dtypes.default_int) if dtypes.is_bool(value.dtype) else value)


# -- rounding ----------------------------------------------------------------------------------------------------


def floor(input: TensorLike) -> Tensor:
    """The largest integers not above the elements; the gradient is 0."""
    return _rounded("floor", input)


def ceil(input: TensorLike) -> Tensor:
    """The smallest integers not below the elements; the gradient is 0."""
    return _rounded("ceil", input)


def trunc(input: TensorLike) -> Tensor:
    """The integers next to the elements in the direction of 0; the gradient is 0."""
    return _rounded("trunc", input)


def _rounded(name: str, x: TensorLike) -> Tensor:
    found: Tensor | None = PRIMITIVES[name].latest.launch_outside(x)
    if found is not None:
        return found
    value = numeric(name, x)
    if dtypes.is_complex(value.dtype):
        return of_complex(name, value)  # which says that there is none
    return PRIMITIVES[name](value) if dtypes.is_float(value.dtype) else clone(value)


def round(input: TensorLike, *, decimals: int = 0) -> Tensor:
    """The nearest integers, of two the even one, or so many decimals, of floats; the gradient is 0."""
    if decimals is _NONE:
        return _rounded("round", input)
    digits = whole("round", "decimals", decimals, -400, 400)
    value = numeric("round", input)
    if digits == 0:
        return _rounded("round", value)
    if not dtypes.is_float(value.dtype):
        raise DtypeError(f"[round] expected floats to round to decimals, got {value.dtype}: cast it with .float()")
    scale = 10.0 ** builtins.abs(digits)
    if digits > 0:
        return div(_rounded("round", mul(value, scale)), scale)
    return mul(_rounded("round", div(value, scale)), scale)


_NONE = 0


@pointwise
def _frac(x: Any) -> Any:
    return x - symbols.apply("trunc", x)


def frac(input: Tensor) -> Tensor:
    """What truncation takes away: input - trunc(input), of floats."""
    found: Tensor | None = _frac.latest.launch_outside(input)
    if found is not None:
        return found
    value = numeric("frac", input)
    if not dtypes.is_float(value.dtype):
        raise DtypeError(f"[frac] expected {dtypes.float_names()}, got {value.dtype}: integers have no fractions")
    return _frac(value)


def frexp(input: Tensor) -> tuple[Tensor, Tensor]:
    """(mantissa, exponent) with input = mantissa * 2 ** exponent and |mantissa| from 1/2 to 1; exponents are int32."""
    check_float("frexp", input)
    exponent = _exponent(input.detach())
    return _mantissa(input, exponent), cast(exponent, dtypes.int32)


@pointwise
def _exponent(x: Any) -> Any:
    return symbols.apply("exponent", x)


@pointwise
def _mantissa(x: Any, exponent: Any) -> Any:
    half = symbols.apply("floor", exponent * 0.5)  # 2 ** 1074 is no float64
    return x * symbols.apply("exp2", -half) * symbols.apply("exp2", half - exponent)


@pointwise
def _nan_to_num(x: Any, nan: Any, above: Any, below: Any) -> Any:
    finite = symbols.apply("where", x == float("inf"), above, symbols.apply("where", x == -float("inf"), below, x))
    return symbols.apply("where", symbols.apply("isnan", x), nan, finite)


@_nan_to_num.gradient
def _nan_to_num_gradient(grad: Any, x: Any, nan: Any, above: Any, below: Any) -> Any:
    return symbols.apply("where", symbols.apply("isfinite", x), grad, 0.0), None, None, None


def nan_to_num(
    input: TensorLike, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN, inf and -inf replaced by numbers: 0, the dtype's largest and its least unless they are given."""
    value = convert("nan_to_num", input, logical=True)[0]
    if not symbols.is_symbolic(value) and dtypes.is_complex(value.dtype):
        from alpha.functions.complex_numbers import view_as_complex, view_as_real  # here: it imports this family

        return view_as_complex(nan_to_num(view_as_real(value), nan, posinf, neginf))
    if not symbols.is_symbolic(value) and not dtypes.is_float(value.dtype):
        return clone(value)
    least, most = dtypes.limits(value.dtype)
    given = (("nan", nan, 0.0), ("posinf", posinf, most), ("neginf", neginf, least))
    return _nan_to_num(value, *[usual if n is None else number("nan_to_num", name, n) for name, n, usual in given])


# -- limits ------------------------------------------------------------------------------------------------------


@pointwise
def _clamp(x: Any, low: Any, high: Any) -> Any:
    return symbols.clamped(x, low, high)


@pointwise
def _clamp_from(x: Any, low: Any) -> Any:
    return symbols.clamped(x, low, None)


@pointwise
def _clamp_to(x: Any, high: Any) -> Any:
    return symbols.clamped(x, None, high)


for _function in (_clamp, _clamp_from, _clamp_to):
    _function.takes_integers = True


def clamp(input: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Elements limited to min..max, numbers or tensors, max where they are in the wrong order.

    The gradient is input's inside, bounds included; beyond a bound it is the bound's.
    """
    if min is None and max is None:
        raise ArgumentError("[clamp] expected min, max or both, got neither")
    limited = _clamp_to if min is None else _clamp_from if max is None else _clamp
    bounds = (max,) if min is None else (min,) if max is None else (min, max)
    result: Tensor | None = limited.latest.launch_outside(input, *bounds)
    if result is not None:
        return result
    if symbols.is_symbolic(input, min, max):
        traced: Any = symbols.clamped(input, min, max)
        return traced  # type: ignore[no-any-return]
    value, *found = convert("clamp", input, *bounds, logical=any(isinstance(b, Tensor | np.ndarray) for b in bounds))
    check_tensor("clamp", value)
    if dtypes.is_float(value.dtype):
        return limited(value, *found)
    if isinstance(value, Tensor) and dtypes.is_integer(value.dtype) and _tensors_first(found):
        return of_integers(limited, value, *found)
    value = value if min is None else compute("maximum", value, found[0])
    return value if max is None else compute("minimum", value, found[-1])


def _tensors_first(values: Sequence[Any]) -> bool:
    """Whether no number stands before a tensor."""
    kinds = [isinstance(value, Tensor) for value in values]
    return kinds == sorted(kinds, reverse=True)


def clamp_min(input: TensorLike, min: TensorLike) -> Tensor:
    """``clamp`` from below."""
    return clamp(input, min=min)


def clamp_max(input: TensorLike, max: TensorLike) -> Tensor:
    """``clamp`` from above."""
    return clamp(input, max=max)


def sgn(input: TensorLike) -> Tensor:
    """``sign``; of complex numbers those of absolute value 1 in their direction, 0 at 0."""
    value: Tensor = convert("sgn", input, logical=True)[0]
    if dtypes.is_complex(value.dtype):
        from alpha.functions.complex_numbers import direction  # here: it imports this family

        return direction(value)
    return sign(value)


# PyTorch's other names.
absolute, clip, fix, negative = abs, clamp, trunc, neg

for _name in ("neg", "abs", "sign", "square", "floor", "ceil", "trunc", "round"):
    EXPRESSIONS[_name] = PRIMITIVES[_name]
EXPRESSIONS["frac"] = _frac
