"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions, and their inverses.

Each is one expression of floats; its gradient is derived, or stands beside it where another form is better.
"""

from __future__ import annotations

import math
from typing import Any

from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.functions.primitives import PRIMITIVES, of_floats, of_two_floats

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "rad2deg",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]  # fmt: skip


def _do(name: str, *values: Any) -> Any:
    return symbols.apply(name, *values)


exp = of_floats(PRIMITIVES["exp"], "e to the power of each element.")
exp2 = of_floats(PRIMITIVES["exp2"], "2 to the power of each element.")
expm1 = of_floats(PRIMITIVES["expm1"], "e to the power of each element, minus 1; accurate near 0.")
log = of_floats(PRIMITIVES["log"], "Natural logarithms: -inf at 0, NaN below.")
log2 = of_floats(PRIMITIVES["log2"], "Logarithms to base 2: -inf at 0, NaN below.")
log10 = of_floats(PRIMITIVES["log10"], "Logarithms to base 10: -inf at 0, NaN below.")
log1p = of_floats(PRIMITIVES["log1p"], "log(1 + input), accurate near 0.")
sqrt = of_floats(PRIMITIVES["sqrt"], "Square roots.")
rsqrt = of_floats(PRIMITIVES["rsqrt"], "1 / sqrt(input).")
reciprocal = of_floats(PRIMITIVES["reciprocal"], "1 / input.")
sigmoid = of_floats(PRIMITIVES["sigmoid"], "1 / (1 + exp(-input)).")
erf = of_floats(PRIMITIVES["erf"], "The error function: 2 / sqrt(pi) * integral of exp(-t * t) from 0 to input.")
erfc = of_floats(PRIMITIVES["erfc"], "1 - erf(input), accurate where that is small.")
erfinv = of_floats(PRIMITIVES["erfinv"], "The inverse of the error function: infinite at -1 and 1, NaN beyond.")


# -- sums of exponentials ----------------------------------------------------------------------------------------


def _log_of_sum(name: str, grown: str, base: float) -> PointwiseFunction:
    """log(base ** x + base ** y) to the base, by the larger of the two."""
    scale = math.log(base)

    def value(x: Any, y: Any) -> Any:
        difference = _do("where", x == y, 0.0, x - y)  # of two infinities too
        return _do("maximum", x, y) + _do("log1p", _do(grown, -abs(difference))) * (1 / scale)

    def gradient(grad: Any, x: Any, y: Any) -> Any:
        difference = (x - y) * scale
        return grad * _do("sigmoid", difference), grad * _do("sigmoid", -difference)

    function = pointwise(value)
    function.gradient(gradient)
    function.name = name
    return function


_logaddexp = _log_of_sum("logaddexp", "exp", math.e)
_logaddexp2 = _log_of_sum("logaddexp2", "exp2", 2.0)
logaddexp = of_two_floats(_logaddexp, "log(exp(input) + exp(other)), broadcast, without overflow.")
logaddexp2 = of_two_floats(_logaddexp2, "log2(2 ** input + 2 ** other), broadcast, without overflow.")


# -- angles ------------------------------------------------------------------------------------------------------


@pointwise
def _asin(x: Any) -> Any:
    return _do("atan2", x, _do("sqrt", (1 - x) * (1 + x)))


@_asin.gradient
def _asin_gradient(grad: Any, x: Any) -> Any:
    return grad * _do("rsqrt", (1 - x) * (1 + x))


@pointwise
def _acos(x: Any) -> Any:
    return _do("atan2", _do("sqrt", 1 - x), _do("sqrt", 1 + x)) * 2


@_acos.gradient
def _acos_gradient(grad: Any, x: Any) -> Any:
    return -grad * _do("rsqrt", (1 - x) * (1 + x))


@pointwise
def _deg2rad(x: Any) -> Any:
    return x * (math.pi / 180)


@pointwise
def _rad2deg(x: Any) -> Any:
    return x * (180 / math.pi)


@pointwise
def _sinc(x: Any) -> Any:
    """By the sine of what x is off from a whole number: pi * x would round off more than that."""
    n = _do("floor", x + 0.5)
    odd = n - _do("floor", n * 0.5) * 2
    return _do("where", x == 0, 1.0, _do("sin", (x - n) * math.pi) * (1 - odd * 2) / (x * math.pi))


@_sinc.gradient
def _sinc_gradient(grad: Any, x: Any) -> Any:
    """Near 0, where the two terms cancel, by the first terms of the series."""
    angle = x * math.pi
    slope = (angle * _do("cos", angle) - _do("sin", angle)) / (angle * x)
    square = angle * angle
    near = angle * (-math.pi / 3) * (1 - square * (1 / 10) * (1 - square * (1 / 28) * (1 - square * (1 / 54))))
    return grad * _do("where", abs(x) < 0.05, near, slope)


sin = of_floats(PRIMITIVES["sin"], "Sines of radians.")
cos = of_floats(PRIMITIVES["cos"], "Cosines of radians.")
tan = of_floats(PRIMITIVES["tan"], "Tangents of radians.")
asin = of_floats(_asin, "The angles in radians, from -pi / 2 to pi / 2, of these sines.")
acos = of_floats(_acos, "The angles in radians, from 0 to pi, of these cosines.")
atan = of_floats(PRIMITIVES["atan"], "The angles in radians, from -pi / 2 to pi / 2, of these tangents.")
deg2rad = of_floats(_deg2rad, "Degrees as radians.")
rad2deg = of_floats(_rad2deg, "Radians as degrees.")
sinc = of_floats(_sinc, "sin(pi * input) / (pi * input), and 1 at 0.")


# -- hyperbolic functions ----------------------------------------------------------------------------------------


_FAR = 20.0
"""From here on exp(-x) is nothing beside exp(x)."""


def _half_of_exp(size: Any) -> Any:
    """exp(size) / 2, also where exp(size) is infinite and that is not."""
    root = _do("exp", size * 0.5)
    return root * 0.5 * root


def _size(x: Any) -> Any:
    """|x|, whose slope at 0 is 1: that of |x| is 0 there, which makes second and third gradients wrong."""
    return _do("where", x < 0, -x, x)


@pointwise
def _sinh(x: Any) -> Any:
    size = _size(x)
    grown = _do("expm1", size)
    near = (grown + grown / (grown + 1)) * 0.5
    value = _do("where", size > _FAR, _half_of_exp(size), near)
    return _do("where", x < 0, -value, value)


@_sinh.gradient
def _sinh_gradient(grad: Any, x: Any) -> Any:
    return grad * _cosh(x)


@pointwise
def _cosh(x: Any) -> Any:
    size = _size(x)
    grown = _do("exp", size)
    return _do("where", size > _FAR, _half_of_exp(size), (grown + 1 / grown) * 0.5)


@_cosh.gradient
def _cosh_gradient(grad: Any, x: Any) -> Any:
    return grad * _sinh(x)


_LARGE = 1e8
"""From here on sqrt(x * x + 1) is x."""


@pointwise
def _asinh(x: Any) -> Any:
    size = abs(x)
    square = size * size
    near = _do("log1p", size + square / (_do("sqrt", square + 1) + 1))
    return _do("copysign", _do("where", size > _LARGE, _do("log", size) + math.log(2), near), x)


@_asinh.gradient
def _asinh_gradient(grad: Any, x: Any) -> Any:
    return grad * _do("rsqrt", x * x + 1)


@pointwise
def _acosh(x: Any) -> Any:
    above = x - 1
    near = _do("log1p", above + _do("sqrt", above * (above + 2)))
    value = _do("where", x > _LARGE, _do("log", x) + math.log(2), near)
    return _do("where", x < 1, math.nan, value)


@_acosh.gradient
def _acosh_gradient(grad: Any, x: Any) -> Any:
    return grad * _do("rsqrt", (x - 1) * (x + 1))


@pointwise
def _atanh(x: Any) -> Any:
    size = abs(x)
    return _do("copysign", _do("log1p", size * 2 / (1 - size)) * 0.5, x)


@_atanh.gradient
def _atanh_gradient(grad: Any, x: Any) -> Any:
    return grad / ((1 - x) * (1 + x))


sinh = of_floats(_sinh, "Hyperbolic sines: (exp(input) - exp(-input)) / 2.")
cosh = of_floats(_cosh, "Hyperbolic cosines: (exp(input) + exp(-input)) / 2.")
tanh = of_floats(PRIMITIVES["tanh"], "Hyperbolic tangents.")
asinh = of_floats(_asinh, "The inverses of the hyperbolic sine.")
acosh = of_floats(_acosh, "The inverses of the hyperbolic cosine, from 0; NaN below 1.")
atanh = of_floats(_atanh, "The inverses of the hyperbolic tangent: infinite at -1 and 1, NaN beyond.")

# PyTorch's other names.
arccos, arccosh, arcsin, arcsinh, arctan, arctanh = acos, acosh, asin, asinh, atan, atanh
