"""The elementary functions in vectors: sums, products, selections and polynomials, the same for every lane.

No table and no library's function is used, so a result depends on nothing but its argument: not on the processor (of
those that multiply and add in one rounding), nor on its place in a vector, nor on the number of threads.
"""

from __future__ import annotations

import math

from alpha.expressions import coefficients
from alpha.expressions.arithmetic import Arithmetic, Value, bits_of

_LN2_HIGH = {32: 0.693359375, 64: float.fromhex("0x1.62e42fefa3800p-1")}
"""ln 2 cut off after so many digits that its product with an exponent is exact."""

_LN2_LOW = {32: -2.1219444005469057e-4, 64: 5.497923018708371e-14}
"""What is cut off."""


ERRORS: dict[str, tuple[float, float]] = {
    "exp": (1.1, 1.1),
    "expm1": (1.7, 1.9),
    "log": (1.2, 1.0),
    "log1p": (1.6, 1.6),
    "tanh": (2.5, 2.6),
    "sigmoid": (2.4, 2.5),
    "erf": (3.0, 1.8),
    "exp2": (1.5, 1.5),
    "log2": (2.0, 2.0),
    "log10": (2.0, 2.0),
    "pow": (0.6, 1.5),
}
"""The largest errors in float32 and float64, in units of the last place, over all exponents: measured, and held by
``tests/engine/test_pointwise_accuracy.py``."""


def exp(v: Arithmetic, x: Value) -> Value:
    """e ** x."""
    return scaled_exp(v, x, None)


def scaled_exp(v: Arithmetic, x: Value, low: Value | None) -> Value:
    """e ** (x + low), low being a part of x beyond its digits."""
    bounds = (-104.0, 89.0) if v.bits == 32 else (-746.0, 710.0)
    x = v.limited(x, *bounds)
    n, r = _reduced(v, x)
    if low is not None:
        r = v.add(r, low)
    value = v.add(_expm1_near_0(v, r), v.number(1.0))
    # In two steps: of the least numbers the second rounds, and 2 ** 128 is no float32.
    half = v.integers("ashr", n, v.integer(1))
    return v.mul(v.mul(value, v.power_of_two(half)), v.power_of_two(v.integers("sub", n, half)))


def exp2(v: Arithmetic, x: Value) -> Value:
    """2 ** x."""
    x = v.limited(x, *((-151.0, 129.0) if v.bits == 32 else (-1077.0, 1025.0)))
    count, n = v.nearest(x, 1.0)
    value = v.add(_expm1_near_0(v, v.mul(v.sub(x, count), v.number(math.log(2)))), v.number(1.0))
    half = v.integers("ashr", n, v.integer(1))
    return v.mul(v.mul(value, v.power_of_two(half)), v.power_of_two(v.integers("sub", n, half)))


def _reduced(v: Arithmetic, x: Value) -> tuple[Value, Value]:
    """n and r with x = n * ln 2 + r and |r| <= ln 2 / 2."""
    count, n = v.nearest(x, 1 / math.log(2))
    r = v.fma(count, v.number(-_LN2_HIGH[v.bits]), x)
    return n, v.fma(count, v.number(-_LN2_LOW[v.bits]), r)


def _expm1_near_0(v: Arithmetic, r: Value) -> Value:
    tail = v.polynomial(r, coefficients.EXP if v.bits == 32 else coefficients.EXP_64)
    return v.fma(v.mul(r, r), tail, r)


def expm1(v: Arithmetic, x: Value) -> Value:
    """e ** x - 1."""
    # Below the first bound the result is -1. With half of 2 ** n and doubled, as 2 ** 128 is no float32.
    x = v.limited(x, *((-20.0, 89.0) if v.bits == 32 else (-40.0, 710.0)))
    n, r = _reduced(v, x)
    near = _expm1_near_0(v, r)
    half = v.power_of_two(v.integers("sub", n, v.integer(1)))
    value = v.fma(half, near, v.sub(half, v.number(0.5)))
    is_far = v.differ(n, v.integer(0))
    return v.call("copysign", v.select(is_far, v.add(value, value), near), x)


def log(v: Arithmetic, x: Value) -> Value:
    """The natural logarithm."""
    return _log_at_ends(v, x, _log_of_parts(v, *_parts(v, x)), 0.0)


def log2(v: Arithmetic, x: Value) -> Value:
    """The logarithm to base 2."""
    n, f = _parts(v, x)
    rest = _log_of_parts(v, v.number(0.0), f)
    high, low = _LOG2_OF_E[v.bits]
    value = v.add(n, v.fma(rest, v.number(high), v.mul(rest, v.number(low))))
    return _log_at_ends(v, x, value, 0.0)


def log10(v: Arithmetic, x: Value) -> Value:
    """The logarithm to base 10."""
    n, f = _parts(v, x)
    rest = _log_of_parts(v, v.number(0.0), f)
    high, low = _LOG10_OF_E[v.bits]
    logarithm = v.fma(rest, v.number(high), v.fma(n, v.number(_LOG10_OF_2_LOW[v.bits]), v.mul(rest, v.number(low))))
    value = v.fma(n, v.number(_LOG10_OF_2_HIGH[v.bits]), logarithm)
    return _log_at_ends(v, x, value, 0.0)


_LOG2_OF_E = {32: (1.4426950216293335, 1.9259629911266175e-08), 64: (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10_OF_E = {32: (0.4342944920063019, -1.0103050052231683e-08), 64: (0.4342944819032518, 1.098319650216765e-17)}
"""Each as the sum of two floats."""

_LOG10_OF_2_HIGH = {32: 0.301025390625, 64: 0.30102999566383914}
"""Cut off after so many digits that its product with an exponent is exact."""

_LOG10_OF_2_LOW = {32: 4.605038981195214e-06, 64: 1.42050232272661e-13}
"""What is cut off."""


def _parts(v: Arithmetic, x: Value) -> tuple[Value, Value]:
    """n as a float and f with x = 2 ** n * (1 + f) and 1 + f from sqrt(1/2) to sqrt(2), of positive numbers."""
    least, up = (2.0**-126, 23) if v.bits == 32 else (2.0**-1022, 54)
    small = v.compare("olt", x, v.number(least))
    scaled = v.select(small, v.mul(x, v.number(2.0**up)), x)
    n, f = _exponent(v, scaled)
    return v.add(v.from_small_ints(n), v.select(small, v.number(-up), v.number(0.0))), f


def log1p(v: Arithmetic, x: Value) -> Value:
    """log(1 + x)."""
    one = v.number(1.0)
    total = v.add(one, x)
    back = v.sub(total, one)
    lost = v.add(v.sub(one, v.sub(total, back)), v.sub(x, back))  # what the sum has rounded off
    n, f = _exponent(v, total)
    exact = v.fma(lost, v.power_of_two(v.integers("sub", v.integer(0), n)), f)
    f = v.select(v.compare("ogt", total, v.number(2.0**60)), f, exact)  # there it is nothing, and 2 ** -n none
    value = _log_at_ends(v, x, _log_of_parts(v, v.from_small_ints(n), f), -1.0)
    return v.select(v.compare("oeq", x, v.number(0.0)), x, value)


def _exponent(v: Arithmetic, x: Value) -> tuple[Value, Value]:
    """n and f with x = 2 ** n * (1 + f) and 1 + f from sqrt(1/2) to sqrt(2); x is a positive normal number."""
    above = v.integers("sub", v.as_ints(x), v.integer(bits_of(math.sqrt(0.5), v.bits)))
    n = v.integers("ashr", above, v.integer(v.mantissa))
    part = v.as_floats(v.integers("sub", v.as_ints(x), v.integers("shl", n, v.integer(v.mantissa))))
    return n, v.sub(part, v.number(1.0))


def _log_of_parts(v: Arithmetic, n: Value, f: Value) -> Value:
    """n * ln 2 + log(1 + f)."""
    high, low = v.number(_LN2_HIGH[v.bits]), v.number(_LN2_LOW[v.bits])
    if v.bits == 32:
        square = v.mul(f, f)
        cubic = v.mul(v.mul(square, f), v.polynomial(f, coefficients.LOG1P))
        small = v.fma(n, low, v.fma(square, v.number(-0.5), cubic))
        return v.fma(n, high, v.add(f, small))
    # log(1 + f) = 2 s + s z q(z) with s = f / (2 + f), z = s * s; and 2 s = f - f * f / 2 + s * f * f / 2.
    s = v.div(f, v.add(v.number(2.0), f))
    z = v.mul(s, s)
    half = v.mul(v.mul(v.number(0.5), f), f)
    rest = v.mul(s, v.fma(z, v.polynomial(z, coefficients.LOG_64), half))
    return v.fma(n, high, v.sub(f, v.sub(half, v.fma(n, low, rest))))


def _log_at_ends(v: Arithmetic, x: Value, value: Value, least: float) -> Value:
    """A logarithm that is -inf at ``least``, NaN below, and infinite at infinity."""
    infinity = v.number(math.inf)
    value = v.select(v.compare("oeq", x, infinity), infinity, value)
    value = v.select(v.compare("oeq", x, v.number(least)), v.number(-math.inf), value)
    return v.select(v.compare("ult", x, v.number(least)), v.number(math.nan), value)


def tanh(v: Arithmetic, x: Value) -> Value:
    """(e ** 2x - 1) / (e ** 2x + 1)."""
    size = v.limited(v.call("fabs", x), None, 10.0 if v.bits == 32 else 22.0)  # beyond it is 1
    grown = expm1(v, v.add(size, size))
    return v.call("copysign", v.div(grown, v.add(grown, v.number(2.0))), x)


def sigmoid(v: Arithmetic, x: Value) -> Value:
    """1 / (1 + e ** -x), as e ** x / (1 + e ** x) below 0."""
    small = exp(v, v.neg(v.call("fabs", x)))
    above = v.select(v.compare("olt", x, v.number(0.0)), small, v.number(1.0))
    return v.div(above, v.add(v.number(1.0), small))


def erf(v: Arithmetic, x: Value) -> Value:
    """The error function."""
    size = v.call("fabs", x)
    if v.bits == 32:
        t = v.limited(size, None, 4.0)
        value = v.neg(expm1(v, v.neg(v.mul(t, v.polynomial(t, coefficients.ERF)))))
        return v.call("copysign", value, x)
    t = v.limited(size, 1.0, 6.0)
    far = v.neg(expm1(v, v.neg(v.mul(t, v.polynomial(t, coefficients.ERF_64)))))
    near = v.mul(size, v.polynomial(v.mul(size, size), coefficients.ERF_NEAR_0_64))
    value = v.select(v.compare("olt", size, v.number(1.0)), near, far)
    return v.call("copysign", value, x)


def normal_cdf(v: Arithmetic, x: Value) -> Value:
    """The normal distribution's cumulative function: exp(-s * p(s)) / 2 of s = |x| below 0, and above 1 minus that.

    In float32 it is within 1e-7 of its formula, and within 1e-6 of its size from -3 on; further below 0 the exponent's
    digits decide, and below -5.5 it goes to 0 more slowly.
    """
    if v.bits == 64:
        return v.mul(v.add(erf(v, v.mul(x, v.number(math.sqrt(0.5)))), v.number(1.0)), v.number(0.5))
    size = v.call("fabs", x)
    slope = v.polynomial(v.limited(size, None, 5.5), [-c for c in coefficients.NORMAL])
    n, r = _reduced(v, v.limited(v.mul(size, slope), -126 * math.log(2), None))  # there 2 ** (n - 1) below is made 0
    half = v.power_of_two(v.integers("sub", n, v.integer(1)))
    below = v.mul(v.add(_expm1_near_0(v, r), v.number(1.0)), half)
    return v.select(v.compare("olt", x, v.number(0.0)), below, v.sub(v.number(1.0), below))


def pow(v: Arithmetic, x: Value, y: Value) -> Value:
    """x ** y, as C's pow: 1 where y is 0 or x is 1, NaN for a negative x to a power that is no integer."""
    size = v.call("fabs", x)
    value = _pow_in_double(v, size, y) if v.bits == 32 else _pow_of_size(v, size, y)
    whole = v.compare("oeq", v.call("floor", y), y)
    half = v.mul(y, v.number(0.5))
    odd = v.logical("and", whole, v.compare("one", v.call("floor", half), half))
    value = v.select(odd, v.call("copysign", value, x), value)
    # A power that is no number of a negative base: not of -inf, nor of -0, nor to an infinite power.
    finite = v.compare("olt", v.call("fabs", y), v.number(math.inf))
    below = v.compare("olt", x, v.number(0.0))
    above = v.compare("ogt", x, v.number(-math.inf))
    wrong = v.logical("and", v.inverted(whole), v.logical("and", below, above))
    wrong = v.logical("and", wrong, finite)
    value = v.select(wrong, v.number(math.nan), value)
    one = v.number(1.0)
    is_one = v.compare("oeq", size, one)  # 1 to any power, and -1 to an infinite one
    endless = v.logical("and", is_one, v.compare("oeq", v.call("fabs", y), v.number(math.inf)))
    value = v.select(endless, one, value)
    value = v.select(v.compare("oeq", x, one), one, value)
    return v.select(v.compare("oeq", y, v.number(0.0)), one, value)


def _pow_in_double(v: Arithmetic, x: Value, y: Value) -> Value:
    """x ** y of float32 x >= 0, through float64, with as many digits as float32 needs: 35 of the logarithm."""
    w = v.wider()
    base, exponent = v.extended(x), v.extended(y)
    n, f = _exponent(w, base)  # the smallest float32 is a normal float64
    s = w.div(f, w.add(w.number(2.0), f))
    z = w.mul(s, s)
    tail = w.mul(w.mul(s, z), w.polynomial(z, coefficients.LOG_OF_POWER))
    logarithm = w.fma(w.from_small_ints(n), w.number(math.log(2)), w.add(w.add(s, s), tail))
    n, r = _reduced(w, w.limited(w.mul(exponent, logarithm), -120.0, 100.0))  # beyond, float32 has no numbers
    near = w.fma(w.mul(r, r), w.polynomial(r, coefficients.EXP_OF_POWER), r)
    value = v.shortened(w.mul(w.add(near, w.number(1.0)), w.power_of_two(n)))
    # Powers of 0, infinity and NaN, whose logarithms the above has not made.
    zero, is_zero = v.number(0.0), v.compare("oeq", x, v.number(0.0))
    limit = v.mul(y, v.select(is_zero, v.number(-math.inf), x))
    is_limit = v.logical("or", is_zero, v.compare("ueq", x, v.number(math.inf)))
    return v.select(is_limit, v.select(v.compare("olt", limit, zero), zero, limit), value)


def _pow_of_size(v: Arithmetic, x: Value, y: Value) -> Value:
    """x ** y of float64 x >= 0: the logarithm in two floats, as an exponential multiplies its error by up to 745."""
    small = v.compare("olt", x, v.number(2.0**-1022))
    n, f = _exponent(v, v.select(small, v.mul(x, v.number(2.0**54)), x))
    count = v.add(v.from_small_ints(n), v.select(small, v.number(-54.0), v.number(0.0)))
    # s = f / (2 + f)
    two = v.number(2.0)
    g = v.add(two, f)
    s = v.div(f, g)
    lost = v.sub(f, v.sub(g, two))
    rest = v.sub(v.fma(v.neg(s), g, f), v.mul(s, lost))
    s_low = v.div(rest, g)
    # z = s * s; t = s * z * (2 / 3 + z * q(z))
    z = v.mul(s, s)
    z_low = v.fma(v.add(s, s), s_low, v.fma(s, s, v.neg(z)))
    c = v.number(2 / 3)
    tail = v.mul(z, v.polynomial(z, _LOG_AFTER_CUBE))
    q = v.add(c, tail)
    q_low = v.add(v.sub(tail, v.sub(q, c)), v.number(2 / 3 * 2.0**-54))
    cube, cube_low = _product(v, s, s_low, z, z_low)
    t, t_low = _product(v, cube, cube_low, q, q_low)
    # n * ln 2 + 2 s + t
    double, double_low = v.add(s, s), v.add(s_low, s_low)
    first, first_low = _sum(v, v.mul(count, v.number(_LN2_HIGH[64])), double)
    high, high_low = _sum(v, first, t)
    low = v.add(v.add(high_low, v.add(first_low, double_low)), v.add(t_low, v.mul(count, v.number(_LN2_LOW[64]))))
    # At the ends the logarithm is infinite, and has no low part.
    is_limit = v.logical("or", v.compare("oeq", x, v.number(0.0)), v.compare("ueq", x, v.number(math.inf)))
    high = v.select(is_limit, _log_at_ends(v, x, high, 0.0), high)
    low = v.select(is_limit, v.number(0.0), low)
    product = v.mul(y, high)
    beyond = v.fma(y, low, v.fma(y, high, v.neg(product)))
    within = v.compare("olt", v.call("fabs", product), v.number(1000.0))
    return scaled_exp(v, product, v.select(within, beyond, v.number(0.0)))


_LOG_AFTER_CUBE = coefficients.LOG_64[1:]


def _sum(v: Arithmetic, x: Value, y: Value) -> tuple[Value, Value]:
    """x + y and what it rounds off."""
    total = v.add(x, y)
    back = v.sub(total, x)
    return total, v.add(v.sub(x, v.sub(total, back)), v.sub(y, back))


def _product(v: Arithmetic, x: Value, x_low: Value, y: Value, y_low: Value) -> tuple[Value, Value]:
    """The product of two numbers of two floats each."""
    value = v.mul(x, y)
    rest = v.fma(x, y, v.neg(value))
    return value, v.add(rest, v.fma(x, y_low, v.mul(x_low, y)))


def rsqrt(v: Arithmetic, x: Value) -> Value:
    """1 / sqrt(x)."""
    return v.div(v.number(1.0), v.call("sqrt", x))


def sign(v: Arithmetic, x: Value) -> Value:
    """-1, 0 or 1; of NaN 0."""
    zero = v.number(0.0)
    below = v.select(v.compare("olt", x, zero), v.number(-1.0), zero)
    return v.select(v.compare("ogt", x, zero), v.number(1.0), below)


def maximum(v: Arithmetic, x: Value, y: Value) -> Value:
    """The larger; NaN where either is."""
    return v.select(v.compare("uno", x, x), x, v.select(v.compare("ogt", x, y), x, y))


def minimum(v: Arithmetic, x: Value, y: Value) -> Value:
    """The smaller; NaN where either is."""
    return v.select(v.compare("uno", x, x), x, v.select(v.compare("olt", x, y), x, y))


def clamp(v: Arithmetic, x: Value, low: Value, high: Value) -> Value:
    """x from low to high, high where they are in the wrong order; NaN where any is."""
    return minimum(v, maximum(v, x, low), high)


def copysign(v: Arithmetic, x: Value, y: Value) -> Value:
    """|x| with the sign of y."""
    return v.call("copysign", x, y)


def exponent(v: Arithmetic, x: Value) -> Value:
    """n with |x| = m * 2 ** n and m from 1/2 to 1; 0 of 0, infinities and NaN."""
    size, zero = v.call("fabs", x), v.number(0.0)
    least, up = (2.0**-126, 23) if v.bits == 32 else (2.0**-1022, 54)
    small = v.compare("olt", size, v.number(least))
    bits = v.as_ints(v.select(small, v.mul(size, v.number(2.0**up)), size))
    n = v.integers("sub", v.integers("lshr", bits, v.integer(v.mantissa)), v.integer(v.bias - 1))
    value = v.add(v.from_small_ints(n), v.select(small, v.number(-up), zero))
    regular = v.logical("and", v.compare("ogt", size, zero), v.compare("olt", size, v.number(math.inf)))
    return v.select(regular, value, zero)


def nextafter(v: Arithmetic, x: Value, y: Value) -> Value:
    """The next float after x in the direction of y."""
    zero = v.number(0.0)
    outward = v.compare("ogt", v.mul(v.call("copysign", v.number(1.0), x), v.sub(y, x)), zero)
    outward = v.logical("or", outward, v.compare("oeq", x, zero))
    bits = v.as_ints(v.select(v.compare("oeq", x, zero), v.call("copysign", zero, y), x))
    step = v.as_floats(v.integers("add", bits, v.integer(1)))
    back = v.as_floats(v.integers("sub", bits, v.integer(1)))
    value = v.select(v.compare("oeq", x, y), y, v.select(outward, step, back))
    return v.select(v.compare("uno", x, y), v.add(x, y), value)
