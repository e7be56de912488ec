"""Division with a remainder, of floats: exact however large the quotient is, so that its bits are the same everywhere.

Where the quotient has fewer digits than a float, one product and one sum give the remainder; in the few other lanes a
long division of integers does.
"""

from __future__ import annotations

import math

from alpha.expressions.arithmetic import Arithmetic, Value


def remainder(v: Arithmetic, x: Value, y: Value) -> Value:
    """x - floor(x / y) * y: it has y's sign, but a zero has that of x."""
    rest = fmod(v, x, y)
    return v.select(_falls_short(v, rest, y), v.add(rest, y), rest)


def floor_divide(v: Arithmetic, x: Value, y: Value) -> Value:
    """floor(x / y), of the exact quotient; x / y where y is 0."""
    rest = fmod(v, x, y)
    zero, one, plain = v.number(0.0), v.number(1.0), v.div(x, y)
    quotient = v.div(v.sub(x, rest), y)
    quotient = v.select(_falls_short(v, rest, y), v.sub(quotient, one), quotient)
    whole = v.call("floor", quotient)  # beyond a float's digits the division above has rounded
    whole = v.select(v.compare("ogt", v.sub(quotient, whole), v.number(0.5)), v.add(whole, one), whole)
    whole = v.select(v.compare("oeq", quotient, zero), v.call("copysign", zero, plain), whole)
    return v.select(v.compare("oeq", y, zero), plain, whole)


def _falls_short(v: Arithmetic, rest: Value, y: Value) -> Value:
    """Whether a remainder with x's sign is not one with y's."""
    zero = v.number(0.0)
    differ = v.logical("xor", v.compare("olt", rest, zero), v.compare("olt", y, zero))
    return v.logical("and", differ, v.compare("one", rest, zero))


def fmod(v: Arithmetic, x: Value, y: Value) -> Value:
    """C's fmod: x - trunc(x / y) * y, with x's sign; NaN where x is infinite or y is 0."""
    quotient = v.call("trunc", v.div(x, y))
    size, divisor = v.call("fabs", x), v.call("fabs", y)
    rest = _rest(v, x, quotient, y)
    # The division may have rounded up to the next whole number: then the rest has the other sign, and lacks one y.
    toward_x = v.mul(rest, v.call("copysign", v.number(1.0), x))
    more = v.add(rest, v.call("copysign", divisor, x))
    rest = v.select(v.compare("olt", toward_x, v.number(0.0)), more, rest)
    rest = v.call("copysign", v.select(v.compare("olt", size, divisor), x, rest), x)
    # Without a fused multiplication no quotient of float64 is small enough.
    digits = 0.0 if v.bits == 64 and not v.fused else 2.0 ** (v.mantissa - 1)
    long = v.compare("oge", v.call("fabs", quotient), v.number(digits))
    finite = v.compare("olt", size, v.number(math.inf))
    divides = v.compare("ogt", divisor, v.number(0.0))
    beyond = v.compare("oge", size, divisor)
    for condition in (finite, divides, beyond):
        long = v.logical("and", long, condition)
    return v.divided(x, y, long, rest)


def _rest(v: Arithmetic, x: Value, quotient: Value, y: Value) -> Value:
    """x - quotient * y, which is exact for a quotient of fewer digits than a float has."""
    if v.fused or v.bits == 64:
        return v.fma(v.neg(quotient), y, x)
    w = v.wider()
    return v.shortened(w.sub(v.extended(x), w.mul(v.extended(quotient), v.extended(y))))
