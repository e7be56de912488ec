"""Sine, cosine, tangent and the arc tangents in vectors, written as ``elementary``'s functions are."""

from __future__ import annotations

import math

from alpha.expressions import coefficients
from alpha.expressions.arithmetic import Arithmetic, Value

ERRORS: dict[str, tuple[float, float]] = {
    "sin": (1.5, 2.6),
    "cos": (1.5, 2.6),
    "tan": (3.5, 4.5),
    "atan": (2.0, 2.0),
    "atan2": (2.5, 2.5),
}
"""As ``elementary.ERRORS``."""


def sin(v: Arithmetic, x: Value) -> Value:
    """The sine."""
    return v.select(v.compare("oeq", x, v.number(0.0)), x, _wave(v, x, 0))  # of -0 it is -0


def cos(v: Arithmetic, x: Value) -> Value:
    """The cosine: the sine a quarter turn on."""
    return _wave(v, x, 1)


def _wave(v: Arithmetic, x: Value, quarters: int) -> Value:
    n, r = turned(v, x)
    n = v.integers("add", n, v.integer(quarters))
    sine, cosine = _sine_and_cosine(v, r)
    bit = v.integers("and", n, v.integer(1))
    value = v.select(v.differ(bit, v.integer(0)), cosine, sine)
    second = v.integers("and", n, v.integer(2))
    return v.select(v.differ(second, v.integer(0)), v.neg(value), value)


def _sine_and_cosine(v: Arithmetic, r: Value) -> tuple[Value, Value]:
    """Both of an angle up to an eighth of a turn."""
    z = v.mul(r, r)
    narrow = v.bits == 32
    sine = v.fma(v.mul(z, r), v.polynomial(z, coefficients.SIN if narrow else coefficients.SIN_64), r)
    tail = v.polynomial(z, coefficients.COS if narrow else coefficients.COS_64)
    half = v.mul(z, v.number(0.5))
    near = v.sub(v.number(1.0), half)
    lost = v.sub(v.sub(v.number(1.0), near), half)
    return sine, v.add(near, v.fma(v.mul(z, z), tail, lost))


LARGEST_ANGLE = 2.0**15
"""Up to here the quarter turns of an angle are subtracted as three floats' product; beyond, ``turns`` does it."""


def turned(v: Arithmetic, x: Value) -> tuple[Value, Value]:
    """n and r with x = n * pi / 2 + r and |r| <= pi / 4; r is NaN for infinite angles."""
    count, n = v.nearest(x, 2 / math.pi)
    r = x
    for part in _HALF_PI[v.bits]:
        r = v.fma(count, v.number(-part), r)
    large = v.compare("uge", v.call("fabs", x), v.number(LARGEST_ANGLE))
    return v.turned(x, large, n, r)


_HALF_PI = {
    32: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
"""pi / 2 as the sum of three floats."""


def tan(v: Arithmetic, x: Value) -> Value:
    """The tangent: sine by cosine of the rest of a quarter turn, or minus the inverse of that."""
    n, r = turned(v, x)
    sine, cosine = _sine_and_cosine(v, r)
    odd = v.differ(v.integers("and", n, v.integer(1)), v.integer(0))
    value = v.div(v.select(odd, v.neg(cosine), sine), v.select(odd, sine, cosine))
    return v.select(v.compare("oeq", x, v.number(0.0)), x, value)


def atan(v: Arithmetic, x: Value) -> Value:
    """The arc tangent."""
    return v.call("copysign", _angle(v, v.call("fabs", x), v.number(1.0)), x)


def atan2(v: Arithmetic, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), from -pi to pi."""
    up, right, one = v.call("fabs", y), v.call("fabs", x), v.number(1.0)
    # The angle of equal sizes is that of (1, 1), however small or large they are; that of (0, 0) is that of (1, 0).
    same = v.compare("oeq", up, right)
    nowhere = v.logical("and", same, v.compare("oeq", up, v.number(0.0)))
    huge = v.number(2.0 ** (v.bias - 3))  # sums and differences of larger numbers might be infinite
    far = v.logical("or", v.compare("ogt", up, huge), v.compare("ogt", right, huge))
    scale = v.select(far, v.number(0.125), one)
    up = v.select(nowhere, v.number(0.0), v.select(same, one, v.mul(up, scale)))
    right = v.select(same, one, v.mul(right, scale))
    angle = _angle(v, up, right)
    negative = v.compare("olt", v.call("copysign", one, x), v.number(0.0))
    low, high = v.number(_PI_LOW[v.bits]), v.number(math.pi)
    angle = v.select(negative, v.sub(high, v.sub(angle, low)), angle)
    either = v.compare("uno", x, y)
    return v.select(either, v.add(x, y), v.call("copysign", angle, y))


def _angle(v: Arithmetic, up: Value, right: Value) -> Value:
    """The angle of a point whose two coordinates are >= 0, and not both 0 or both infinite."""
    steep = v.compare("ogt", up, right)
    small, large = v.select(steep, right, up), v.select(steep, up, right)
    # Beyond pi / 8 by atan(t) = pi / 4 + atan((t - 1) / (t + 1)).
    middle = v.compare("ogt", small, v.mul(large, v.number(math.sqrt(2) - 1)))
    top = v.select(middle, v.sub(small, large), small)
    t = v.div(top, v.select(middle, v.add(small, large), large))
    z = v.mul(t, t)
    tail = v.polynomial(z, coefficients.ATAN if v.bits == 32 else coefficients.ATAN_64)
    rest = v.mul(v.mul(z, t), tail)
    # The angle is high + low + t + rest, and where it is steep what that lacks to pi / 2.
    zero, quarter, lost = v.number(0.0), math.pi / 4, _PI_LOW[v.bits] / 4
    low = v.add(v.select(middle, v.number(lost), zero), rest)
    value = v.add(v.select(middle, v.number(quarter), zero), v.add(t, low))
    turned_low = v.sub(v.select(middle, v.number(lost), v.number(2 * lost)), rest)
    turned_value = v.add(v.select(middle, v.number(quarter), v.number(2 * quarter)), v.sub(turned_low, t))
    return v.select(steep, turned_value, value)


_PI_LOW = {32: -8.742278000372485e-08, 64: 1.2246467991473532e-16}
"""What the nearest float lacks to pi."""
