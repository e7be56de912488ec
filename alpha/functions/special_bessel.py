"""Bessel functions of the orders 0 and 1, the spherical one of order 0, and Airy's function.

Near 0 they are polynomials of x * x, beside the logarithm and the pole where there are such; far from it, amplitude and
phase (J, Y, Airy's below 0) or the factor beside an exponential (K, Airy's above 0) are polynomials of an inverse power
of x. The forms are those of DLMF 10.8, 10.17, 10.31, 10.40 and 9.7; ``special_fit`` makes the polynomials. Near a zero
other than 0 the error is that of the function's terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpha.expressions import symbols
from alpha.expressions.coefficients import BESSEL_I0, BESSEL_I1
from alpha.expressions.functions import pointwise
from alpha.functions import special_coefficients as coefficients
from alpha.functions.primitives import of_floats
from alpha.functions.special import i0, i1

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1",
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
]  # fmt: skip

_NEAR = 8.0
"""Up to here J and Y are polynomials of x * x."""
_NEAR_K = 2.0
"""Up to here K is."""
_RISING, _FALLING = -4.0, 2.0
"""Between these Airy's function is a polynomial of x."""


def _do(name: str, *values: Any) -> Any:
    return symbols.apply(name, *values)


def _polynomial(terms: Sequence[float], t: Any) -> Any:
    value: Any = terms[-1]
    for c in terms[-2::-1]:
        value = value * t + c
    return value


def _square_ratio(x: Any, size: float) -> Any:
    """t = 2 x ** 2 / size ** 2 - 1, at most 1."""
    near = _do("minimum", x, size) * (math.sqrt(2) / size)
    return near * near - 1


def _either(x: Any, limit: float, near: Any, far: Any) -> Any:
    return _do("where", x > limit, far, near)


# -- J and Y ---------------------------------------------------------------------------------------------------------


def _amplitudes(x: Any, order: int) -> tuple[Any, Any]:
    """P and Q of Hankel's expansion, over sqrt(pi x), and of x no less than 8."""
    inverse = _NEAR / x
    t = inverse * inverse * 2 - 1
    scale = 1 / _do("sqrt", x * math.pi)
    real = (coefficients.PHASE_REAL_0, coefficients.PHASE_REAL_1)[order]
    imaginary = (coefficients.PHASE_IMAGINARY_0, coefficients.PHASE_IMAGINARY_1)[order]
    return _polynomial(real, t) * scale, _polynomial(imaginary, t) * scale / x


def _turned(x: Any, order: int) -> tuple[Any, Any]:
    """sqrt(2) times cosine and sine of x - pi / 4, or of x - 3 pi / 4."""
    cosine, sine = _do("cos", x), _do("sin", x)
    return (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -sine - cosine)


def _j_of_size(x: Any, order: int) -> Any:
    """J of x >= 0."""
    table = (coefficients.J0_NEAR, coefficients.J1_NEAR)[order]
    near = _polynomial(table, _square_ratio(x, _NEAR))
    far_x = _do("minimum", _do("maximum", x, _NEAR), _LARGEST)
    p, q = _amplitudes(far_x, order)
    cosine, sine = _turned(far_x, order)
    far = _do("where", x == math.inf, 0.0, p * cosine - q * sine)
    return _either(x, _NEAR, near * x if order else near, far)


_LARGEST = 1e300
"""Beyond it numbers are one with infinity, of which J and Y are 0."""


def _y(x: Any, order: int) -> Any:
    """Y of x > 0, minus infinity at 0 and NaN below."""
    table = (coefficients.Y0_NEAR, coefficients.Y1_NEAR)[order]
    near_x = _positive(_do("minimum", x, _NEAR))
    near = _polynomial(table, _square_ratio(near_x, _NEAR))
    near = (near * near_x if order else near) + _log_of_half(near_x) * (2 / math.pi) * _j_of_size(near_x, order)
    near = near - (2 / math.pi) / near_x if order else near
    far_x = _do("minimum", _do("maximum", x, _NEAR), _LARGEST)
    p, q = _amplitudes(far_x, order)
    cosine, sine = _turned(far_x, order)
    far = _do("where", x == math.inf, 0.0, p * sine + q * cosine)
    return _above_0(x, _either(x, _NEAR, near, far), -math.inf)


def _positive(x: Any) -> Any:
    """1 in the place of numbers that are not above 0, whose results are not used."""
    return _do("where", x <= 0, 1.0, x)


def _log_of_half(x: Any) -> Any:
    """log(x / 2), also where the half is below the smallest number; near 2 with all digits."""
    small = x < 1
    return _do("log", _do("where", small, x, x * 0.5)) - _do("where", small, math.log(2), 0.0)


def _above_0(x: Any, value: Any, pole: float) -> Any:
    """A value for x > 0, the pole's at 0, and NaN below."""
    return _do("where", x < 0, math.nan, _do("where", x == 0, pole, value))


@pointwise
def _bessel_j0(x: Any) -> Any:
    return _j_of_size(abs(x), 0)


@pointwise
def _bessel_j1(x: Any) -> Any:
    return _do("copysign", 1.0, x) * _j_of_size(abs(x), 1)


@pointwise
def _bessel_y0(x: Any) -> Any:
    return _y(x, 0)


@pointwise
def _bessel_y1(x: Any) -> Any:
    return _y(x, 1)


@_bessel_j0.gradient
def _bessel_j0_gradient(grad: Any, x: Any) -> Any:
    return -grad * _bessel_j1(x)


@_bessel_j1.gradient
def _bessel_j1_gradient(grad: Any, x: Any) -> Any:
    at_0 = abs(x) < _TINY
    return grad * _do("where", at_0, 0.5, _bessel_j0(x) - _bessel_j1(x) / _do("where", at_0, 1.0, x))


@_bessel_y0.gradient
def _bessel_y0_gradient(grad: Any, x: Any) -> Any:
    return -grad * _bessel_y1(x)


@_bessel_y1.gradient
def _bessel_y1_gradient(grad: Any, x: Any) -> Any:
    return grad * (_bessel_y0(x) - _bessel_y1(x) / x)


_TINY = 1e-17
"""Nearer to 0 a slope is that at 0."""

bessel_j0 = of_floats(_bessel_j0, "The Bessel function of the first kind, of order 0.")
bessel_j1 = of_floats(_bessel_j1, "The Bessel function of the first kind, of order 1.")
bessel_y0 = of_floats(_bessel_y0, "The Bessel function of the second kind, of order 0: NaN below 0.")
bessel_y1 = of_floats(_bessel_y1, "The Bessel function of the second kind, of order 1: NaN below 0.")


# -- the modified ones -----------------------------------------------------------------------------------------------

modified_bessel_i0, modified_bessel_i1 = i0, i1


def _k(x: Any, order: int, scaled: bool) -> Any:
    """K of x > 0, or exp(x) times it; infinite at 0 and NaN below."""
    table = (coefficients.K0_NEAR, coefficients.K1_NEAR)[order]
    table_far = (coefficients.K0_FAR, coefficients.K1_FAR)[order]
    near_x = _positive(_do("minimum", x, _NEAR_K))
    half = near_x * 0.5
    growing = _polynomial((BESSEL_I0, BESSEL_I1)[order], half * half)
    near, logarithm = _polynomial(table, _square_ratio(near_x, _NEAR_K)), _log_of_half(near_x)
    if order:
        near = 1 / near_x + near_x * near + logarithm * growing * half
    else:
        near = near - logarithm * growing
    far_x = _do("maximum", x, _NEAR_K)
    far = _polynomial(table_far, 2 * _NEAR_K / far_x - 1) / _do("sqrt", far_x)
    if scaled:
        near = near * _do("exp", near_x)
    else:
        far = far * _do("exp", -far_x)
    return _above_0(x, _either(x, _NEAR_K, near, far), math.inf)


@pointwise
def _modified_bessel_k0(x: Any) -> Any:
    return _k(x, 0, scaled=False)


@pointwise
def _modified_bessel_k1(x: Any) -> Any:
    return _k(x, 1, scaled=False)


@pointwise
def _scaled_modified_bessel_k0(x: Any) -> Any:
    return _k(x, 0, scaled=True)


@pointwise
def _scaled_modified_bessel_k1(x: Any) -> Any:
    return _k(x, 1, scaled=True)


@_modified_bessel_k0.gradient
def _modified_bessel_k0_gradient(grad: Any, x: Any) -> Any:
    return -grad * _modified_bessel_k1(x)


@_modified_bessel_k1.gradient
def _modified_bessel_k1_gradient(grad: Any, x: Any) -> Any:
    return -grad * (_modified_bessel_k0(x) + _modified_bessel_k1(x) / x)


@_scaled_modified_bessel_k0.gradient
def _scaled_modified_bessel_k0_gradient(grad: Any, x: Any) -> Any:
    return grad * (_scaled_modified_bessel_k0(x) - _scaled_modified_bessel_k1(x))


@_scaled_modified_bessel_k1.gradient
def _scaled_modified_bessel_k1_gradient(grad: Any, x: Any) -> Any:
    value = _scaled_modified_bessel_k1(x)
    return grad * (value - _scaled_modified_bessel_k0(x) - value / x)


modified_bessel_k0 = of_floats(
    _modified_bessel_k0, "The modified Bessel function of the second kind, of order 0: NaN below 0."
)
modified_bessel_k1 = of_floats(
    _modified_bessel_k1, "The modified Bessel function of the second kind, of order 1: NaN below 0."
)
scaled_modified_bessel_k0 = of_floats(_scaled_modified_bessel_k0, "exp(input) * modified_bessel_k0(input).")
scaled_modified_bessel_k1 = of_floats(_scaled_modified_bessel_k1, "exp(input) * modified_bessel_k1(input).")


# -- of other orders -------------------------------------------------------------------------------------------------


@pointwise
def _spherical_bessel_j0(x: Any) -> Any:
    value = _do("sin", x) / _do("where", x == 0, 1.0, x)
    return _do("where", abs(x) == math.inf, 0.0, _do("where", x == 0, 1.0, value))


@_spherical_bessel_j0.gradient
def _spherical_bessel_j0_gradient(grad: Any, x: Any) -> Any:
    """(cos(x) - sin(x) / x) / x, near 0 by its series."""
    near = _polynomial([-(2 * n + 2) * (-1) ** n / math.factorial(2 * n + 3) for n in range(8)], x * x) * x
    away = _do("where", abs(x) < 1, 1.0, x)
    return grad * _do("where", abs(x) < 1, near, (_do("cos", away) - _spherical_bessel_j0(away)) / away)


@pointwise
def _airy_ai(x: Any) -> Any:
    near = _polynomial(coefficients.AIRY_NEAR, (_do("minimum", _do("maximum", x, _RISING), _FALLING) + 1) / 3)
    above = _do("maximum", x, _FALLING)
    root = _do("sqrt", above)
    zeta = above * root * (2 / 3)
    ratio = (4 / 3 * _FALLING**1.5) / zeta - 1
    falling = _polynomial(coefficients.AIRY_FALLING, ratio) * _do("exp", -zeta)
    falling = falling / (_do("sqrt", root) * (2 * math.sqrt(math.pi)))
    return _either(x, _FALLING, _do("where", x < _RISING, _airy_below(x), near), falling)


def _airy_below(x: Any) -> Any:
    """Airy's function of x below -4, at minus infinity 0."""
    size = _do("maximum", -x, -_RISING)
    near = _do("minimum", size, _FAR_BELOW)
    root, zeta = _do("sqrt", size), near * _do("sqrt", near) * (2 / 3)
    inverse = (2 / 3 * (-_RISING) ** 1.5) / zeta
    ratio = inverse * inverse * 2 - 1
    real, imaginary = _polynomial(coefficients.AIRY_REAL, ratio), _polynomial(coefficients.AIRY_IMAGINARY, ratio)
    cosine, sine = _do("cos", zeta), _do("sin", zeta)
    waves = real * (cosine + sine) + imaginary / zeta * (sine - cosine)
    return _do("where", x == -math.inf, 0.0, waves / (_do("sqrt", root) * math.sqrt(2 * math.pi)))


_FAR_BELOW = 1e25
"""The phase of Airy's function is that at no larger size than this, where none of its digits is known."""

spherical_bessel_j0 = of_floats(_spherical_bessel_j0, "sin(input) / input, the spherical Bessel function of order 0.")
airy_ai = of_floats(_airy_ai, "Airy's function Ai, the solution of y'' = x y that vanishes at infinity.")
