"""Special functions in vectors: error functions and their inverses, gamma's logarithm and its slope, Bessel functions.

They are written as ``elementary``'s are. The gamma function's, Bessel's and ``ndtri`` are computed in float64, of
float32 too: there a result is off by little more than half a unit in the last place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from alpha.expressions import coefficients, elementary, trigonometry
from alpha.expressions.arithmetic import Arithmetic, Value

ERRORS: dict[str, tuple[float, float]] = {
    "erfc": (4.0, 5.0),
    "erfcx": (4.0, 5.0),
    "erfinv": (4.0, 4.0),
    "i0e": (0.6, 4.0),
    "i1e": (0.6, 4.0),
}
"""As ``elementary.ERRORS``. Where ``digamma`` crosses 0, and ``lgamma`` below 0, a last place is no measure of them."""


def _in_float64(function: Callable[..., Value]) -> Callable[..., Value]:
    """The function of float64, which float32 is extended to and shortened from."""

    @functools.wraps(function)
    def write(v: Arithmetic, x: Value) -> Value:
        return function(v, x) if v.bits == 64 else v.shortened(function(v.wider(), v.extended(x)))

    return write


# -- error functions -------------------------------------------------------------------------------------------------


def _square(v: Arithmetic, x: Value) -> tuple[Value, Value]:
    """x * x and what it rounds off; nothing where it is beyond all exponentials."""
    square = v.mul(x, x)
    within = v.compare("olt", v.call("fabs", x), v.number(30.0))
    return square, v.select(within, v.fma(x, x, v.neg(square)), v.number(0.0))


def _erfcx_of_size(v: Arithmetic, size: Value) -> Value:
    """exp(x * x) * erfc(x) of x >= 0: a polynomial of (x - 3) / (x + 3), divided by 1 + 2 x.

    The form of the quotient is due to Shepherd and Laframboise, Mathematics of Computation 36 (1981).
    """
    near, three = v.limited(size, None, 1e18), v.number(3.0)
    quotient = v.div(v.sub(near, three), v.add(near, three))
    value = v.polynomial(quotient, coefficients.ERFCX if v.bits == 32 else coefficients.ERFCX_64)
    half = v.number(0.5)
    return v.div(v.mul(value, half), v.add(size, half))


def erfcx(v: Arithmetic, x: Value) -> Value:
    """exp(x * x) * erfc(x)."""
    above = _erfcx_of_size(v, v.call("fabs", x))
    grown = elementary.scaled_exp(v, *_square(v, x))
    return v.select(v.compare("olt", x, v.number(0.0)), v.sub(v.add(grown, grown), above), above)


def erfc(v: Arithmetic, x: Value) -> Value:
    """1 - erf(x)."""
    size, one = v.call("fabs", x), v.number(1.0)
    square, low = _square(v, x)
    tail = v.mul(elementary.scaled_exp(v, v.neg(square), v.neg(low)), _erfcx_of_size(v, size))
    value = v.select(v.compare("olt", x, v.number(0.0)), v.sub(v.number(2.0), tail), tail)
    return v.select(v.compare("olt", size, v.number(0.5)), v.sub(one, elementary.erf(v, x)), value)


def _inverse(v: Arithmetic, x: Value, rest: Value, has_tail: bool) -> Value:
    """The inverse of the error function, of x and ``rest`` = 1 - x * x: x times a function of w = -log(rest)."""
    w = v.neg(elementary.log(v, rest))
    root = v.call("sqrt", w)
    near = v.limited(w, None, 6.25)
    if v.bits == 32:
        middle = v.polynomial(near, coefficients.ERFINV_OF_LOGARITHM)
        far = v.polynomial(v.sub(root, v.number(3.3)), coefficients.ERFINV_OF_ROOT)
    else:
        middle = v.polynomial(near, coefficients.ERFINV_OF_LOGARITHM_64)
        far = v.polynomial(v.sub(v.limited(root, 2.5, 6.2), v.number(4.35)), coefficients.ERFINV_OF_ROOT_64)
    if has_tail:
        inverse = v.div(v.number(1.0), v.limited(root, 6.2, None))
        inverse = v.sub(inverse, v.number(0.1))
        farther = v.mul(root, v.polynomial(inverse, coefficients.ERFINV_OF_INVERSE_ROOT))
        far = v.select(v.compare("ogt", root, v.number(6.2)), farther, far)
    value = v.mul(x, v.select(v.compare("olt", w, v.number(6.25)), middle, far))
    at_end = v.compare("oeq", rest, v.number(0.0))
    return v.select(at_end, v.call("copysign", v.number(math.inf), x), value)


def erfinv(v: Arithmetic, x: Value) -> Value:
    """The inverse of the error function."""
    one = v.number(1.0)
    return _inverse(v, x, v.mul(v.sub(one, x), v.add(one, x)), has_tail=False)


@_in_float64
def ndtri(v: Arithmetic, p: Value) -> Value:
    """The inverse of the normal distribution's cumulative function: sqrt(2) * erfinv(2 * p - 1)."""
    one = v.number(1.0)
    x = v.sub(v.add(p, p), one)
    rest = v.mul(v.mul(p, v.number(4.0)), v.sub(one, p))
    return v.mul(_inverse(v, x, rest, has_tail=True), v.number(math.sqrt(2)))


# -- the gamma function ----------------------------------------------------------------------------------------------

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_STIRLING = tuple([b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)])
_STIRLING_SLOPE = tuple([b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)])
_SHIFT = 10
"""From here on Stirling's series give all digits."""


def _turn(v: Arithmetic, x: Value) -> Value:
    """pi times what x is off from the nearest whole number."""
    whole = v.call("floor", v.add(x, v.number(0.5)))
    return v.mul(v.sub(x, whole), v.number(math.pi))


@_in_float64
def lgamma(v: Arithmetic, x: Value) -> Value:
    """The logarithm of |gamma(x)|."""
    zero, one, infinity = v.number(0.0), v.number(1.0), v.number(math.inf)
    below = v.compare("olt", x, v.number(-(2.0**-60)))  # nearer to 0 it is -log(|x|)
    value = _lgamma_above_0(v, v.select(below, v.sub(one, x), v.call("fabs", x)))
    # gamma(x) * gamma(1 - x) = pi / sin(pi * x)
    sine = v.call("fabs", trigonometry.sin(v, _turn(v, v.select(below, x, zero))))
    reflected = v.sub(v.sub(v.number(math.log(math.pi)), elementary.log(v, sine)), value)
    reflected = v.select(v.compare("oeq", sine, zero), infinity, reflected)
    value = v.select(below, reflected, value)
    return v.select(v.compare("oeq", v.call("fabs", x), infinity), infinity, value)


def _lgamma_above_0(v: Arithmetic, x: Value) -> Value:
    """Stirling's series from 10 on, where the series is short; below, by the recurrence from the interval 1 to 2."""
    one, small = v.number(1.0), v.compare("olt", x, v.number(1.0))
    steps = v.sub(v.call("floor", v.limited(x, 1.0, float(_SHIFT))), one)
    product = one
    for k in range(1, _SHIFT - 1):
        product = v.select(v.compare("oge", steps, v.number(float(k))), v.mul(product, v.sub(x, v.number(k))), product)
    u = v.select(small, v.add(x, one), v.sub(x, steps))
    above_1 = v.select(small, x, v.sub(u, one))
    above_2 = v.select(small, v.sub(x, one), v.sub(u, v.number(2.0)))
    far = v.compare("oge", x, v.number(float(_SHIFT)))
    logarithm = elementary.log(v, v.select(far, x, v.select(small, x, product)))
    near = v.mul(
        v.mul(above_1, above_2), v.polynomial(v.sub(v.limited(u, None, 2.0), v.number(1.5)), coefficients.LOG_GAMMA)
    )
    near = v.add(near, v.select(small, v.neg(logarithm), logarithm))
    inverse = v.div(one, v.limited(x, float(_SHIFT), None))
    series = v.mul(inverse, v.polynomial(v.mul(inverse, inverse), _STIRLING))
    series = v.add(series, v.number(0.5 * math.log(2 * math.pi) - 0.5))
    stirling = v.fma(v.sub(x, v.number(0.5)), v.sub(logarithm, one), series)
    return v.select(far, stirling, near)


@_in_float64
def digamma(v: Arithmetic, x: Value) -> Value:
    """The slope of ``lgamma``; infinite at 0, with the other sign than it, and NaN at the negative whole numbers."""
    zero, one = v.number(0.0), v.number(1.0)
    below = v.compare("olt", x, zero)
    y = v.select(below, v.sub(one, x), x)
    near = v.compare("olt", y, v.number(float(_SHIFT)))
    # 1 / y + 1 / (y + 1) + ... as one quotient
    start = v.select(near, y, one)
    top, bottom = zero, one
    for k in range(_SHIFT):
        term = v.add(start, v.number(float(k)))
        top = v.fma(top, term, bottom)
        bottom = v.mul(bottom, term)
    far = v.select(near, v.add(y, v.number(float(_SHIFT))), y)
    inverse = v.div(one, far)
    square = v.mul(inverse, inverse)
    value = v.sub(elementary.log(v, far), v.mul(inverse, v.number(0.5)))
    value = v.sub(value, v.mul(square, v.polynomial(square, _STIRLING_SLOPE)))
    value = v.select(near, v.sub(value, v.div(top, bottom)), value)
    # psi(1 - x) - psi(x) = pi / tan(pi * x)
    turn = _turn(v, v.select(below, x, v.number(0.25)))
    slope = v.div(v.mul(trigonometry.cos(v, turn), v.number(math.pi)), trigonometry.sin(v, turn))
    is_whole = v.logical("and", below, v.compare("oeq", turn, zero))
    value = v.select(below, v.select(is_whole, v.number(math.nan), v.sub(value, slope)), value)
    value = v.select(v.compare("oeq", x, zero), v.call("copysign", v.number(math.inf), v.neg(x)), value)
    return v.select(v.compare("oeq", x, v.number(-math.inf)), v.number(math.nan), value)


# -- Bessel functions ------------------------------------------------------------------------------------------------


def _bessel(v: Arithmetic, x: Value, order: int) -> Value:
    """exp(-x) times the modified Bessel function of the first kind, of x >= 0."""
    table = (coefficients.BESSEL_I0, coefficients.BESSEL_I1)[order]
    table_far = (coefficients.BESSEL_I0_FAR, coefficients.BESSEL_I1_FAR)[order]
    near = v.limited(x, None, 8.0)
    half = v.mul(near, v.number(0.5))
    value = v.mul(v.polynomial(v.mul(half, half), table), elementary.exp(v, v.neg(near)))
    value = v.mul(value, half) if order else value
    t = v.sub(v.div(v.number(16.0), v.limited(x, 8.0, None)), v.number(1.0))
    far = v.div(v.polynomial(t, table_far), v.call("sqrt", x))
    return v.select(v.compare("ogt", x, v.number(8.0)), far, value)


@_in_float64
def i0e(v: Arithmetic, x: Value) -> Value:
    """exp(-|x|) times the modified Bessel function of the first kind, of order 0."""
    return _bessel(v, v.call("fabs", x), 0)


@_in_float64
def i1e(v: Arithmetic, x: Value) -> Value:
    """exp(-|x|) times the modified Bessel function of the first kind, of order 1."""
    return v.call("copysign", _bessel(v, v.call("fabs", x), 1), x)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "erfc": erfc,
    "erfcx": erfcx,
    "erfinv": erfinv,
    "ndtri": ndtri,
    "lgamma": lgamma,
    "digamma": digamma,
    "i0e": i0e,
    "i1e": i1e,
}
"""What computes each of these operations."""
