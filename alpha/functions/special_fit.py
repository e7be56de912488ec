"""Where ``special_coefficients`` comes from: ``python -m alpha.functions.special_fit`` prints that module.

A polynomial is a series of Chebyshev polynomials of a variable t in -1..1, cut off where the rest is below half a unit
in the last place of a float64, and written in powers of t. Functions are computed by mpmath, in 40 digits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

Real = Any  # mpmath.mpf
_NODES = 96
_DIGITS = 40
ORDERS, TERMS = 12, 30
"""Length of Temme's expansion in powers of 1 / a, and of each one's coefficient in powers of eta."""


def _squared(size: float, function: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """A function of x as one of t = 2 x ** 2 / size ** 2 - 1, for 0 < x < size."""
    mp = importlib.import_module("mpmath")
    return lambda t: function(size * mp.sqrt((t + 1) / 2))


def _inverse_squared(size: float, function: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """A function of x as one of t = 2 size ** 2 / x ** 2 - 1, for x > size."""
    mp = importlib.import_module("mpmath")
    return lambda t: function(size / mp.sqrt((t + 1) / 2))


def _inverse(size: float, function: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """A function of x as one of t = 2 size / x - 1, for x > size."""
    return lambda t: function(2 * size / (t + 1))


def polynomials() -> dict[str, Callable[[Real], Real]]:
    """By name: the function of t."""
    mp: Any = importlib.import_module("mpmath")
    return {**_bessel(mp, 0), **_bessel(mp, 1), **_airy(mp)}


def _bessel(mp: Any, n: int) -> dict[str, Callable[[Real], Real]]:
    """J, Y and K of one order."""

    def rest_of_y(x: Real) -> Real:
        """Y without its logarithm and its pole, over x ** n."""
        regular = mp.bessely(n, x) - 2 / mp.pi * mp.log(x / 2) * mp.besselj(n, x)
        return (regular + (2 / (mp.pi * x) if n else 0)) / x**n

    def rest_of_k(x: Real) -> Real:
        """K without its logarithm and its pole, over x ** n."""
        regular = mp.besselk(n, x) + (-1) ** n * mp.log(x / 2) * mp.besseli(n, x)
        return (regular - (1 / x if n else 0)) / x**n

    def turned(x: Real) -> Real:
        """sqrt(pi x / 2) (J + i Y) exp(-i (x - n pi / 2 - pi / 4))"""
        return mp.hankel1(n, x) * mp.expj(n * mp.pi / 2 + mp.pi / 4 - x) * mp.sqrt(mp.pi * x / 2)

    return {
        f"J{n}_NEAR": _squared(8, lambda x: mp.besselj(n, x) / x**n),
        f"Y{n}_NEAR": _squared(8, rest_of_y),
        f"PHASE_REAL_{n}": _inverse_squared(8, lambda x: turned(x).real),
        f"PHASE_IMAGINARY_{n}": _inverse_squared(8, lambda x: turned(x).imag * x),
        f"K{n}_NEAR": _squared(2, rest_of_k),
        f"K{n}_FAR": _inverse(2, lambda x: mp.besselk(n, x) * mp.exp(x) * mp.sqrt(x)),
    }


def _airy(mp: Any) -> dict[str, Callable[[Real], Real]]:
    """Airy's function between -4 and 2, and beyond as functions of zeta = 2 / 3 |x| ** 1.5."""

    def falling(zeta: Real) -> Real:
        x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
        return mp.airyai(x) * mp.exp(zeta) * 2 * mp.sqrt(mp.pi) * x**0.25

    def turned(zeta: Real) -> Real:
        """sqrt(pi) |x| ** 0.25 (Ai + i Bi) exp(i (zeta - pi / 4))"""
        x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
        return mp.mpc(mp.airyai(-x), mp.airybi(-x)) * mp.expj(zeta - mp.pi / 4) * mp.sqrt(mp.pi) * x**0.25

    least = mp.mpf(2) / 3 * mp.mpf(4) ** 1.5
    return {
        "AIRY_NEAR": lambda t: mp.airyai(3 * t - 1),
        "AIRY_FALLING": _inverse(mp.mpf(2) / 3 * mp.mpf(2) ** 1.5, falling),
        "AIRY_REAL": _inverse_squared(least, lambda zeta: turned(zeta).real),
        "AIRY_IMAGINARY": _inverse_squared(least, lambda zeta: turned(zeta).imag * zeta),
    }


def fitted(function: Callable[[Real], Real]) -> list[float]:
    """Coefficients of the powers of t, from the constant on."""
    mp: Any = importlib.import_module("mpmath")
    with mp.workdps(_DIGITS):
        angles = [mp.pi * (k + mp.mpf(1) / 2) / _NODES for k in range(_NODES)]
        values = [function(mp.cos(angle)) for angle in angles]
        terms = [
            2 * sum(value * mp.cos(j * angle) for value, angle in zip(values, angles, strict=True)) / _NODES
            for j in range(_NODES // 2)
        ]
        terms[0] /= 2
        limit = max(abs(value) for value in values) * mp.mpf(2) ** -54
        rests = [sum(map(abs, terms[degree + 1 :])) for degree in range(len(terms))]
        degree = next(degree for degree, rest in enumerate(rests) if rest < limit)
        before, now, total = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)], [terms[0]] + [mp.mpf(0)] * degree
        for j in range(1, degree + 1):
            for k, c in enumerate(now):
                total[k] += terms[j] * c
            doubled = [mp.mpf(0), *[2 * c for c in now]]  # T(j + 1) = 2 t T(j) - T(j - 1)
            before, now = now, [c - (before[k] if k < len(before) else 0) for k, c in enumerate(doubled)]
        return [float(c) for c in total]


def temme() -> list[list[float]]:
    """Coefficients of the powers of eta, a row for each power of 1 / a, of the incomplete gamma functions' expansion.

    mu - log(1 + mu) = eta ** 2 / 2 makes mu a series of eta by mu mu' = eta (1 + mu). Then c(0) = 1 / mu - 1 / eta and
    eta c(k) = c'(k - 1) + g(k) eta / mu, with the g(k) that leave no pole at 0. DLMF 8.12, Temme (1979).
    """
    count = TERMS + 2 * ORDERS + 2
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count + 1):  # the coefficient of eta ** n in mu mu' = eta + eta mu
        known = sum((mu[i] * (n - i + 1) * mu[n - i + 1] for i in range(2, n)), Fraction(0))
        mu.append((mu[n - 1] - known) / (n + 1))
    ratio = [Fraction(1)]  # of eta / mu
    for n in range(1, count):
        ratio.append(-sum((mu[i + 1] * ratio[n - i] for i in range(1, n + 1)), Fraction(0)))
    rows = [ratio[1:]]
    for _ in range(1, ORDERS):
        slope = [n * c for n, c in enumerate(rows[-1])][1:]
        pole = -slope[0]
        rows.append([a + pole * b for a, b in zip(slope[1:], ratio[1:], strict=False)])
    return [[float(c) for c in row[:TERMS]] for row in rows]


def main() -> None:
    """Prints ``special_coefficients.py``."""
    print('"""Polynomials of special functions, from the constant on; made by ``alpha.functions.special_fit``."""')
    print("\nfrom __future__ import annotations")
    for name, function in polynomials().items():
        print(f"\n{name} = (")
        for c in fitted(function):
            print(f"    {c!r},")
        print(")")
    print("\nTEMME = (")
    for row in temme():
        print("    (")
        for c in row:
            print(f"        {c!r},")
        print("    ),")
    print(")")


if __name__ == "__main__":
    main()
