"""Where the polynomials of ``coefficients`` come from: ``python -m alpha.expressions.fit`` prints that module.

Each is a series of Chebyshev polynomials, cut off where its error is beyond the dtype's digits, and written in powers.
The functions are computed in NumPy's long double, which must be wider than float64 (it is on x86 Linux).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

Real = Any  # np.longdouble
_PI = np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)


def erf(x: Real) -> Real:
    """The error function, by 2 / sqrt(pi) * exp(-x * x) times a series without differences."""
    term = total = x
    n = 0
    while abs(term) > abs(total) * np.longdouble(1e-21):
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
        total += term
    return 2 / np.sqrt(_PI) * np.exp(-x * x) * total


def erfc(x: Real) -> Real:
    """1 - erf(x); from 2 on by its continued fraction, which keeps its digits."""
    if x < 2:
        return 1 - erf(x)
    tail = np.longdouble(0)
    for k in range(400, 0, -1):
        tail = (np.longdouble(k) / 2) / (x + tail)
    return np.exp(-x * x) / np.sqrt(_PI) / (x + tail)


def _series(first: Callable[[int], Real], variable: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """A power series by its coefficients: what is left of a function without its first terms has no other good form."""

    def value(x: Real) -> Real:
        v, power, total = variable(x), np.longdouble(1), np.longdouble(0)
        for n in range(60):
            total += first(n) * power
            power *= v
        return total

    return value


def _factorial(n: int) -> Real:
    value = np.longdouble(1)
    for k in range(2, n + 1):
        value *= k
    return value


exp_tail = _series(lambda n: 1 / _factorial(n + 2), lambda r: r)
sin_tail = _series(lambda n: (-1) ** (n + 1) / _factorial(2 * n + 3), lambda z: z)
cos_tail = _series(lambda n: (-1) ** n / _factorial(2 * n + 4), lambda z: z)
log_tail = _series(lambda n: np.longdouble(2) / (2 * n + 3), lambda z: z)


def log1p_tail(f: Real) -> Real:
    """(log(1 + f) - f + f * f / 2) / f ** 3."""
    if abs(f) > 0.1:
        return (np.log1p(f) - f + f * f / 2) / f**3
    return _series(lambda n: np.longdouble((-1) ** n) / (n + 3), lambda x: x)(f)


def erf_exponent(t: Real) -> Real:
    """-log(1 - erf(t)) / t: erf(t) = 1 - exp(-t * it)."""
    return -np.log(erfc(t)) / t


def normal_exponent(s: Real) -> Real:
    """-log(2 - 2 * cdf(s)) / s of the normal distribution: cdf(-s) = exp(-s * it) / 2."""
    return -np.log(erfc(s / np.sqrt(np.longdouble(2)))) / s


def erf_near_0(z: Real) -> Real:
    """erf(x) / x of z = x * x."""
    x = np.sqrt(z)
    return erf(x) / x


def erfcx_of_quotient(q: Real) -> Real:
    """(1 + 2 x) * exp(x * x) * erfc(x) of q = (x - 3) / (x + 3), which is 1 at infinity."""
    x = 3 * (1 + q) / (1 - q)
    return (1 + 2 * x) * _erfcx(x)


def _erfcx(x: Real) -> Real:
    """exp(x * x) * erfc(x)."""
    if x < 2:
        return np.exp(x * x) * (1 - erf(x))
    tail = np.longdouble(0)
    for k in range(400, 0, -1):
        tail = (np.longdouble(k) / 2) / (x + tail)
    return 1 / (np.sqrt(_PI) * (x + tail))


def erfinv_of_logarithm(w: Real) -> Real:
    """y / erf(y) where w = -log(1 - erf(y) ** 2), by Newton's method."""
    x = np.sqrt(-np.expm1(-w))
    if w < 2:
        y = x
        for _ in range(8):
            y -= (erf(y) - x) * np.exp(y * y) * np.sqrt(_PI) / 2
        return y / x
    logarithm = -w - np.log1p(x)  # of 1 - x
    y = np.sqrt(w)
    for _ in range(8):
        scaled = _erfcx(y)
        y += (np.log(scaled) - y * y - logarithm) * scaled * np.sqrt(_PI) / 2
    return y / x


def erfinv_of_root(middle: float) -> Callable[[Real], Real]:
    """The same of t = sqrt(w) - middle: powers of a variable that is 0 in the middle keep their digits."""
    return lambda t: erfinv_of_logarithm((t + np.longdouble(middle)) ** 2)


def erfinv_of_inverse_root(t: Real) -> Real:
    """The same divided by sqrt(w), of t = 1 / sqrt(w) - 0.1."""
    u = t + np.longdouble(0.1)
    return erfinv_of_logarithm(1 / (u * u)) * u


def log_gamma(t: Real) -> Real:
    """log(gamma(x)) / ((x - 1) * (x - 2)) of t = x - 1.5, by Stirling's series of x + 30, in 50 decimal digits."""
    with localcontext() as context:
        context.prec = 50
        x = t + np.longdouble(1.5)
        exact = Decimal(float(x)) + Decimal(float(x - np.longdouble(float(x))))
        product = Decimal(1)
        for k in range(30):
            product *= exact + k
        y = exact + 30
        value = (y - Decimal("0.5")) * y.ln() - y + (2 * Decimal(_PI_IN_DIGITS)).ln() / 2
        for k, bernoulli in enumerate(_BERNOULLI, 1):
            value += bernoulli / (2 * k * (2 * k - 1)) / y ** (2 * k - 1)
        return np.longdouble(str((value - product.ln()) / ((exact - 1) * (exact - 2))))


_PI_IN_DIGITS = "3.1415926535897932384626433832795028841971693993751"


def _bernoulli_numbers(count: int) -> list[Decimal]:
    """B(2), B(4), ..., by the recurrence of their definition."""
    found = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        found.append(-sum((math.comb(n + 1, k) * found[k] for k in range(n)), Fraction(0)) / (n + 1))
    with localcontext() as context:
        context.prec = 50
        return [Decimal(b.numerator) / Decimal(b.denominator) for b in found[2::2]]


_BERNOULLI = _bernoulli_numbers(16)


def bessel_near_0(order: int) -> Callable[[Real], Real]:
    """I(order, x) / (x / 2) ** order of z = x * x / 4."""
    return _series(lambda n: 1 / (_factorial(n) * _factorial(n + order)), lambda z: z)


def bessel_far(order: int) -> Callable[[Real], Real]:
    """sqrt(x) * exp(-x) * I(order, x) of t = 16 / x - 1."""

    def value(t: Real) -> Real:
        x = 16 / (t + 1)
        if x < 50:
            term = (x / 2) ** order / _factorial(order)
            total, n = term, 0
            while term > total * np.longdouble(1e-22):
                n += 1
                term *= x * x / 4 / (n * (n + order))
                total += term
            return total * np.exp(-x) * np.sqrt(x)
        term = total = np.longdouble(1)
        for k in range(1, 60):
            term *= -(4 * order * order - (2 * k - 1) ** 2) / (8 * x * k)
            total += term
        return total / np.sqrt(2 * _PI)

    return value


atan_tail = _series(lambda n: np.longdouble((-1) ** (n + 1)) / (2 * n + 3), lambda z: z)

_R = np.log(np.longdouble(2)) / 2 * np.longdouble(1.01)
_Z = (_PI / 4) ** 2 * np.longdouble(1.02)
_EIGHTH = (np.sqrt(np.longdouble(2)) - 1) ** 2 * np.longdouble(1.001)  # of the square of tan(pi / 8)
_LOW, _HIGH = np.sqrt(np.longdouble(0.5)) - 1, np.sqrt(np.longdouble(2)) - 1

POLYNOMIALS: dict[str, tuple[Callable[[Real], Real], Real, Real, int, int]] = {
    "EXP": (exp_tail, -_R, _R, 32, 4),
    "LOG1P": (log1p_tail, _LOW, _HIGH, 32, 7),
    "SIN": (sin_tail, 0, _Z, 32, 2),
    "COS": (cos_tail, 0, _Z, 32, 2),
    "ERF": (erf_exponent, 1e-3, 4, 32, 11),
    "NORMAL": (normal_exponent, 1e-3, 5.5, 32, 9),
    "EXP_64": (exp_tail, -_R, _R, 64, 10),
    "LOG_64": (log_tail, 0, _HIGH**2 / (2 + _HIGH) ** 2 * np.longdouble(1.02), 64, 7),
    "EXP_OF_POWER": (exp_tail, -_R, _R, 64, 6),
    "LOG_OF_POWER": (log_tail, 0, _HIGH**2 / (2 + _HIGH) ** 2 * np.longdouble(1.02), 64, 4),
    "SIN_64": (sin_tail, 0, _Z, 64, 6),
    "COS_64": (cos_tail, 0, _Z, 64, 6),
    "ERF_NEAR_0_64": (erf_near_0, 1e-12, 1, 64, 11),
    "ERF_64": (erf_exponent, 1, 6, 64, 24),
    "ATAN": (atan_tail, 0, _EIGHTH, 32, 4),
    "ATAN_64": (atan_tail, 0, _EIGHTH, 64, 11),
    "ERFCX": (erfcx_of_quotient, -1, 0.9999, 32, 11),
    "ERFCX_64": (erfcx_of_quotient, -1, 0.9999, 64, 24),
    "ERFINV_OF_LOGARITHM": (erfinv_of_logarithm, 1e-12, 6.25, 32, 10),
    "ERFINV_OF_ROOT": (erfinv_of_root(3.3), -0.8, 0.8, 32, 8),
    "ERFINV_OF_LOGARITHM_64": (erfinv_of_logarithm, 1e-12, 6.25, 64, 23),
    "ERFINV_OF_ROOT_64": (erfinv_of_root(4.35), -1.85, 1.85, 64, 27),
    "ERFINV_OF_INVERSE_ROOT": (erfinv_of_inverse_root, 1 / 27.4 - 0.1, 1 / 6.2 - 0.1, 64, 23),
    "LOG_GAMMA": (log_gamma, -0.5, 0.5, 64, 20),
    "BESSEL_I0": (bessel_near_0(0), 0, 16, 64, 15),
    "BESSEL_I1": (bessel_near_0(1), 0, 16, 64, 15),
    "BESSEL_I0_FAR": (bessel_far(0), -0.9999, 1, 64, 22),
    "BESSEL_I1_FAR": (bessel_far(1), -0.9999, 1, 64, 22),
}
"""By name: the function, the interval, the bits of its dtype, and the degree."""


def fitted(function: Callable[[Real], Real], low: Real, high: Real, degree: int) -> list[Real]:
    """Coefficients of the powers, from the constant on, of the first terms of the function's Chebyshev series."""
    low, high = np.longdouble(low), np.longdouble(high)
    count = 4 * degree + 20
    angles = (np.arange(count, dtype=np.longdouble) + np.longdouble(0.5)) * _PI / count
    middle, half = (low + high) / 2, (high - low) / 2
    values = np.array([function(middle + half * u) for u in np.cos(angles)])
    terms = [2 * np.sum(values * np.cos(j * angles)) / count for j in range(degree + 1)]
    terms[0] /= 2
    # T(j + 1) = 2 u T(j) - T(j - 1) with u = (x - middle) / half, in powers of x.
    line = [-middle / half, 1 / half]
    before, now = [np.longdouble(1)], line
    total = [terms[0], *[np.longdouble(0)] * degree]
    for j in range(1, degree + 1):
        for k, c in enumerate(now):
            total[k] += terms[j] * c
        following = [np.longdouble(0)] * (j + 2)
        for k, c in enumerate(now):
            following[k] += 2 * line[0] * c
            following[k + 1] += 2 * line[1] * c
        for k, c in enumerate(before):
            following[k] -= c
        before, now = now, following
    return total


def main() -> None:
    """Prints ``coefficients.py``."""
    print('"""Polynomials of the point-wise functions, from the constant on; made by ``alpha.expressions.fit``."""')
    for name, (function, low, high, bits, degree) in POLYNOMIALS.items():
        number = np.float32 if bits == 32 else np.float64
        print(f"\n{name} = (")
        for c in fitted(function, low, high, degree):
            print(f"    {float(number(c))!r},")
        print(")")


if __name__ == "__main__":
    main()
