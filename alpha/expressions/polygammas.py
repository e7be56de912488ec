"""The derivatives of ``digamma`` and Hurwitz's zeta function, as expressions of others."""

from __future__ import annotations

import math
from typing import Any

from alpha.expressions.symbols import apply

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
"""B(2), B(4), ..."""

_TERMS = 10
"""Terms of Hurwitz's series that are added one by one, at least; Euler and Maclaurin's formula gives the rest."""


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of ``digamma``, n > 0: (-1) ** (n + 1) * n! * zeta(n + 1, x), and below 0 by reflection."""
    sign = 1.0 if n % 2 else -1.0
    # psi(n, x) = (-1) ** n * psi(n, 1 - x) - pi * d ** n / dx ** n cot(pi * x)
    below = x < 0
    above = _hurwitz_of_whole(n, apply("where", below, 1 - x, x)) * sign
    # Away from 0 where it is not used: the gradient of what is not chosen is 0 times a slope, which must be finite.
    rest = apply("where", below, x - apply("floor", x + 0.5), 0.25)
    angle = rest * math.pi
    cotangent = apply("cos", angle) / apply("sin", angle)
    reflected = above * (1 if n % 2 == 0 else -1) - _polynomial(_cotangent_slope(n), cotangent)
    pole = apply("where", rest == 0, math.inf * sign, reflected)
    return apply("where", below, pole, above)


def _hurwitz_of_whole(n: int, x: Any) -> Any:
    """n! * zeta(n + 1, x) for x >= 0."""
    terms = _TERMS + n
    scale = math.factorial(n)
    total: Any = 0.0
    for k in range(terms):
        total = total + _power(1 / (x + k), n + 1) * scale
    far = 1 / (x + terms)
    # The integral from there on, half a term, and the sum of B(2j) / (2j)! * (n + 2j - 1)! / (x + terms) ** (n + 2j).
    tail = _power(far, n) * math.factorial(n - 1) + _power(far, n + 1) * (0.5 * scale)
    factors = [b * math.factorial(n + 2 * j - 1) / math.factorial(2 * j) for j, b in enumerate(_BERNOULLI, 1)]
    return total + tail + _power(far, n + 2) * _polynomial(factors, far * far)


def _power(x: Any, n: int) -> Any:
    """x ** n by squaring."""
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def _polynomial(coefficients: list[float], x: Any) -> Any:
    value: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value


def _cotangent_slope(n: int) -> list[float]:
    """pi * d ** n / dx ** n cot(pi * x) as a polynomial of c = cot(pi * x): dc/dx = -pi * (1 + c * c)."""
    terms = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(terms)][1:]
        terms = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return [c * math.pi ** (n + 1) for c in terms]


def hurwitz(s: Any, q: Any) -> Any:
    """The sum of (q + k) ** -s from k = 0 on, for s > 1 and q > 0, by Euler and Maclaurin's formula."""
    total: Any = 0.0
    for k in range(_TERMS):
        total = total + apply("pow", q + k, -s)
    far = q + _TERMS
    power = apply("pow", far, -s)
    total = total + power * far / (s - 1) + power * 0.5
    term, inverse = power * s / far, 1 / (far * far)
    for j, b in enumerate(_BERNOULLI, 1):
        total = total + term * (b / math.factorial(2 * j))
        term = term * ((s + (2 * j - 1)) * (s + 2 * j)) * inverse
    return total
