"""Arithmetic of two operands: sums, products, quotients, remainders, powers, the larger and the smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import number, whole
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, described
from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.expressions.graph import FLOAT, NUMBER
from alpha.expressions.operations import program_of
from alpha.functions.autocasting import in_float32
from alpha.functions.casting import cast
from alpha.functions.complex_arithmetic import of_complex
from alpha.functions.operands import Number, TensorLike, common_dtype, compute, is_bool, operands, python_number
from alpha.functions.primitives import PRIMITIVES, convert, evaluated, of_integers, of_two_floats
from alpha.tensor import Tensor

__all__ = [
    "add",
    "addcdiv",
    "addcmul",
    "arctan2",
    "atan2",
    "copysign",
    "div",
    "divide",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "ldexp",
    "lerp",
    "maximum",
    "minimum",
    "mul",
    "multiply",
    "nextafter",
    "pow",
    "remainder",
    "rsub",
    "sub",
    "subtract",
    "true_divide",
]  # fmt: skip

# -- sums and products -------------------------------------------------------------------------------------------


def add(input: TensorLike, other: TensorLike, *, alpha: Number = 1) -> Tensor:
    """input + alpha * other, broadcast; of bools the logical or."""
    if alpha is not _ONE:
        return _scaled("add", input, other, alpha)
    found: Tensor | None = PRIMITIVES["add"].latest.launch_outside(input, other)
    return evaluated("add", *convert("add", input, other, logical=True)) if found is None else found


def sub(input: TensorLike, other: TensorLike, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other, broadcast; of numbers alone: a bool on either side is refused, as in PyTorch."""
    if alpha is not _ONE:
        return _scaled("sub", input, other, alpha)
    found: Tensor | None = PRIMITIVES["sub"].latest.launch_outside(input, other)
    return evaluated("sub", *convert("sub", input, other, dtype_of=_dtype_of_numbers)) if found is None else found


def rsub(input: TensorLike, other: TensorLike, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input, broadcast."""
    return sub(other, input, alpha=alpha)


_ONE = 1


@pointwise
def _add_scaled(x: Any, y: Any, alpha: Any) -> Any:
    return x + y * alpha


@pointwise
def _sub_scaled(x: Any, y: Any, alpha: Any) -> Any:
    return x - y * alpha


def _scaled(name: str, x: TensorLike, y: TensorLike, alpha: Any) -> Tensor:
    """A sum or a difference whose second operand is multiplied by a number, in their common dtype."""
    expression = _add_scaled if name == "add" else _sub_scaled
    if symbols.is_symbolic(x, y, alpha):
        return expression(x, y, alpha)
    if isinstance(alpha, bool | np.bool_) and not (name == "add" and is_bool(x) and is_bool(y)):
        raise DtypeError(f"[{name}] expected alpha as a number, got a bool: give 1 or 0")
    first, second = convert(
        name, x, y, logical=name == "add", dtype_of=common_dtype if name == "add" else _dtype_of_numbers
    )
    dtype = first.dtype if isinstance(first, Tensor) else second.dtype
    if dtypes.is_float(dtype):
        return expression(first, second, number(name, "alpha", alpha))
    if dtypes.is_complex(dtype):
        return (add if name == "add" else sub)(first, mul(second, python_number(name, alpha)))
    if not isinstance(alpha, bool | int | np.integer | np.bool_):
        raise DtypeError(
            f"[{name}] expected alpha as an int beside {dtype}, got {described(alpha)}: cast x with .float()"
        )
    if dtypes.is_bool(dtype):
        return add(first, second if alpha else False)
    factor = whole(name, "alpha", alpha)
    return add(first, mul(second, factor)) if name == "add" else sub(first, mul(second, factor))


def _dtype_of_numbers(values: Sequence[Tensor | Number]) -> np.dtype[Any]:
    """The common dtype of values none of which is a bool; DtypeError where one is."""
    if any(map(is_bool, values)):
        raise DtypeError("[sub] expected numbers, got bool: cast it, or use the logical functions")
    return common_dtype(values)


def mul(input: TensorLike, other: TensorLike) -> Tensor:
    """input * other, broadcast; of bools the logical and."""
    found: Tensor | None = PRIMITIVES["mul"].latest.launch_outside(input, other)
    return evaluated("mul", *convert("mul", input, other, logical=True)) if found is None else found


@pointwise
def _addcmul(x: Any, first: Any, second: Any, value: Any) -> Any:
    return x + first * value * second


def addcmul(input: TensorLike, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 * tensor2, broadcast."""
    x, first, second = convert("addcmul", input, tensor1, tensor2)
    if not symbols.is_symbolic(x, first, second) and not dtypes.is_float(common_dtype([x, first, second])):
        return add(x, mul(mul(first, second), value))
    return _addcmul(x, first, second, value if symbols.is_symbolic(value) else number("addcmul", "value", value))


@pointwise
def _addcdiv(x: Any, first: Any, second: Any, value: Any) -> Any:
    return x + first * value / second


def addcdiv(input: TensorLike, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2, broadcast, of floats."""
    x, first, second = convert("addcdiv", input, tensor1, tensor2)
    if not symbols.is_symbolic(x, first, second) and not dtypes.is_float(common_dtype([x, first, second])):
        if dtypes.is_complex(common_dtype([x, first, second])):
            return add(x, div(mul(first, value), second))
        raise DtypeError("[addcdiv] expected a float among the tensors, got integers: cast one with .float()")
    return _addcdiv(x, first, second, value if symbols.is_symbolic(value) else number("addcdiv", "value", value))


@pointwise
def _lerp(x: Any, end: Any, weight: Any) -> Any:
    """From the nearer end, so that both are met exactly."""
    step = end - x
    return symbols.apply("where", abs(weight) < 0.5, x + step * weight, end - step * (1 - weight))


@_lerp.gradient
def _lerp_gradient(grad: Any, x: Any, end: Any, weight: Any) -> Any:
    return grad * (1 - weight), grad * weight, grad * (end - x)


@pointwise
def _lerp_by_number(x: Any, end: Any, weight: Any) -> Any:
    return _lerp(x, end, weight)


@_lerp_by_number.gradient
def _lerp_by_number_gradient(grad: Any, x: Any, end: Any, weight: Any) -> Any:
    return grad * (1 - weight), grad * weight, None


def lerp(input: TensorLike, end: TensorLike, weight: TensorLike) -> Tensor:
    """input + weight * (end - input), broadcast; the weight is a number or a tensor."""
    values = convert("lerp", input, end, weight, floating=True)
    if not symbols.is_symbolic(*values) and dtypes.is_complex(common_dtype(values)):
        return add(values[0], mul(sub(values[1], values[0]), values[2]))
    is_number = not isinstance(values[2], Tensor) and not symbols.is_symbolic(values[2])
    return (_lerp_by_number if is_number else _lerp)(*values)


# -- quotients and remainders ------------------------------------------------------------------------------------


@pointwise
def _div_trunc(x: Any, y: Any) -> Any:
    return symbols.apply("trunc", x / y)


def div(input: TensorLike, other: TensorLike, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, broadcast; of two integers float32.

    ``rounding_mode="floor"`` rounds it down and ``"trunc"`` towards 0, of integers to integers; the gradient is then 0.
    """
    if rounding_mode is not None:
        return _divided(input, other, rounding_mode)
    found: Tensor | None = PRIMITIVES["div"].latest.launch_outside(input, other)
    return evaluated("div", *convert("div", input, other, floating=True, logical=True)) if found is None else found


def _divided(x: TensorLike, y: TensorLike, rounding_mode: Any) -> Tensor:
    """The quotient, rounded."""
    if not isinstance(rounding_mode, str) or rounding_mode not in ("floor", "trunc"):
        raise ArgumentError(
            f'[div] expected rounding_mode="floor", "trunc" or None, got {described(rounding_mode)}: name one of them'
        )
    first, second = convert("div", x, y)
    if rounding_mode == "floor":
        return evaluated("floor_divide", first, second)
    if symbols.is_symbolic(first, second) or dtypes.is_float(common_dtype([first, second])):
        return _div_trunc(first, second)
    return compute("floor_divide", sub(first, fmod(first, second)), second)


def true_divide(input: TensorLike, other: TensorLike) -> Tensor:
    """input / other, as ``div``."""
    return div(input, other)


def floor_divide(input: TensorLike, other: TensorLike) -> Tensor:
    """floor(input / other), broadcast, outside the graph; an integer divided by 0 is 0, as in NumPy."""
    found: Tensor | None = PRIMITIVES["floor_divide"].latest.launch_outside(input, other)
    if found is not None:
        return found
    values = [x.detach() if isinstance(x, Tensor) else x for x in convert("floor_divide", input, other)]
    return evaluated("floor_divide", *values)


def remainder(input: TensorLike, other: TensorLike) -> Tensor:
    """input - floor(input / other) * other, broadcast: with the divisor's sign, as ``%``, but a zero has input's."""
    found: Tensor | None = PRIMITIVES["remainder"].latest.launch_outside(input, other)
    return evaluated("remainder", *convert("remainder", input, other)) if found is None else found


def fmod(input: TensorLike, other: TensorLike) -> Tensor:
    """input - trunc(input / other) * other, broadcast: it has the sign of input; of an integer and 0 it is 0."""
    found: Tensor | None = PRIMITIVES["fmod"].latest.launch_outside(input, other)
    return evaluated("fmod", *convert("fmod", input, other)) if found is None else found


# -- powers ------------------------------------------------------------------------------------------------------


@in_float32
def pow(input: TensorLike, exponent: TensorLike) -> Tensor:
    """input ** exponent, broadcast; ArgumentError for an integer to a negative integer power."""
    simpler = _POWERS.get(exponent) if type(exponent) in (int, float) else None
    found: Tensor | None = (
        PRIMITIVES["pow"].latest.launch_outside(input, exponent)
        if simpler is None
        else simpler.latest.launch_outside(input)
    )
    if found is not None and (simpler is None or type(exponent) is int or dtypes.is_float(found.dtype)):
        return found
    if simpler is None and type(exponent) is int and 0 <= exponent < _LIMIT_IN_EVERY_DTYPE:
        found = _POWER_OF_NUMBER.launches.launch_outside(input, exponent)
        if found is not None:
            return found
    base, exponent = convert("pow", input, exponent)
    if not symbols.is_symbolic(base, exponent):
        dtype = common_dtype([base, exponent])
        if dtypes.is_complex(dtype):
            simple = None if isinstance(exponent, Tensor) else _COMPLEX_POWERS.get(exponent)
            return of_complex("pow", base, exponent) if simple is None else of_complex(simple, base)
        if not dtypes.is_float(dtype):
            _check_not_negative(exponent, dtype)
            if simpler is not None:
                return of_integers(simpler, base)
            return compute("pow", base, exponent)
        power = None if isinstance(exponent, Tensor) else _POWERS.get(exponent)
        if power is not None:
            return power(base)
    return PRIMITIVES["pow"](base, exponent)


def _power(exponent: float) -> PointwiseFunction:
    """The power of an exponent for which there is something simpler: products, a root, or of 1 the base itself."""
    function = pointwise(lambda x: symbols.apply("pow", x, exponent))
    function.name, function.takes_integers = "pow", True
    if exponent != 1:
        function.gradient(lambda grad, x: grad * (symbols.apply("pow", x, exponent - 1) * exponent))
    return function


_COMPLEX_POWERS = {-1: "reciprocal", -0.5: "rsqrt", 0.5: "sqrt", 2: "square"}
_POWERS = {exponent: _power(exponent) for exponent in (-2, -1, -0.5, 0.5, 1, 2, 3)}


_POWER_OF_NUMBER = program_of("pow", (FLOAT, NUMBER))
"""What engines compute of integers; ``PRIMITIVES`` has another, since integers to negative powers are refused."""

_LIMIT_IN_EVERY_DTYPE = 128
"""An exponent below this is one in every dtype of integers."""

_INT64_MAX = 2**63 - 1


def _check_not_negative(exponent: Tensor | Number, dtype: np.dtype[Any]) -> None:
    check = RangeCheck(ArgumentError, "[pow] expected integers to powers >= 0, got {value}: cast x with .float()")
    if isinstance(exponent, Tensor):
        exponent.engine.check_range(cast(exponent.detach(), dtypes.default_int), 0, _INT64_MAX, check)
    elif exponent < 0 or np.array(exponent).astype(dtype) < 0:  # a number takes the tensor's dtype, and wraps around
        raise check.error(exponent, 0)


def float_power(input: TensorLike, exponent: TensorLike) -> Tensor:
    """input ** exponent in float64, broadcast; of complex numbers in complex128."""
    values = operands("float_power", input, exponent)
    are_complex = dtypes.is_complex(common_dtype(values))
    kind = dtypes.complex_of(dtypes.widest_float) if are_complex else dtypes.widest_float
    return pow(*[cast(x, kind) if isinstance(x, Tensor) else x for x in values])


def ldexp(input: TensorLike, other: TensorLike) -> Tensor:
    """input * 2 ** other, broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor) and dtypes.is_float(input.dtype):
        other = other if dtypes.has_gradients(other.dtype) else cast(other, input.dtype)
    return mul(input, pow(2.0, other))


# -- the larger and the smaller ----------------------------------------------------------------------------------


def maximum(input: TensorLike, other: TensorLike) -> Tensor:
    """The larger of two, broadcast; NaN where either is."""
    found: Tensor | None = PRIMITIVES["maximum"].latest.launch_outside(input, other)
    return evaluated("maximum", *convert("maximum", input, other, logical=True)) if found is None else found


def minimum(input: TensorLike, other: TensorLike) -> Tensor:
    """The smaller of two, broadcast; NaN where either is."""
    found: Tensor | None = PRIMITIVES["minimum"].latest.launch_outside(input, other)
    return evaluated("minimum", *convert("minimum", input, other, logical=True)) if found is None else found


def _other_than_nan(extremum: str, wins: str) -> PointwiseFunction:
    """The larger or the smaller of two, of one that is NaN the other; the gradient is one's alone, as in PyTorch."""

    def value(x: Any, y: Any) -> Any:
        found = symbols.apply("where", symbols.apply("isnan", y), x, symbols.apply(extremum, x, y))
        return symbols.apply("where", symbols.apply("isnan", x), y, found)

    def gradient(grad: Any, x: Any, y: Any) -> Any:
        first = symbols.apply(wins, x, y) | symbols.apply("isnan", y)
        return symbols.apply("where", first, grad, 0.0), symbols.apply("where", first, 0.0, grad)

    function = pointwise(value)
    function.gradient(gradient)
    function.name = {"maximum": "fmax", "minimum": "fmin"}[extremum]
    return function


_fmax, _fmin = _other_than_nan("maximum", "ge"), _other_than_nan("minimum", "le")


def fmax(input: TensorLike, other: TensorLike) -> Tensor:
    """The larger of two, broadcast; where one is NaN the other."""
    return _of_numbers(_fmax, "maximum", input, other)


def fmin(input: TensorLike, other: TensorLike) -> Tensor:
    """The smaller of two, broadcast; where one is NaN the other."""
    return _of_numbers(_fmin, "minimum", input, other)


def _of_numbers(function: PointwiseFunction, of_integers: str, x: TensorLike, y: TensorLike) -> Tensor:
    """A function that has another name where there are no NaN."""
    found: Tensor | None = function.latest.launch_outside(x, y)
    if found is not None:
        return found
    values = convert(function.name, x, y, logical=True)
    is_whole = not symbols.is_symbolic(*values) and not dtypes.is_float(common_dtype(values))
    return compute(of_integers, *values) if is_whole else function(*values)


# -- of floats ---------------------------------------------------------------------------------------------------


@pointwise
def _hypot(x: Any, y: Any) -> Any:
    first, second = abs(x), abs(y)
    large, small = symbols.apply("maximum", first, second), symbols.apply("minimum", first, second)
    ratio = symbols.apply("where", large == 0, 0.0, small / large)
    value = large * symbols.apply("sqrt", ratio * ratio + 1)
    return symbols.apply("where", (first == float("inf")) | (second == float("inf")), float("inf"), value)


@_hypot.gradient
def _hypot_gradient(grad: Any, x: Any, y: Any) -> Any:
    result = _hypot(x, y)
    return grad * (x / result), grad * (y / result)


atan2 = of_two_floats(PRIMITIVES["atan2"], "The angles of the points (other, input), from -pi to pi; they broadcast.")
copysign = of_two_floats(PRIMITIVES["copysign"], "The sizes of input with the signs of other, broadcast.")
hypot = of_two_floats(_hypot, "sqrt(input ** 2 + other ** 2), broadcast, without overflow on the way.")
nextafter = of_two_floats(
    PRIMITIVES["nextafter"], "The next floats after input in the direction of other, broadcast; their slope is 1."
)

# PyTorch's other names.
arctan2, divide, multiply, subtract = atan2, div, mul, sub
