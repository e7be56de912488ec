"""Special functions: Bessel's and Airy's by their power series, incomplete gamma functions, orthogonal polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

from tests.robustness.cases import Case, Draw
from tests.robustness.compare import Tolerance
from tests.robustness.record import Record
from tests.robustness.records.pointwise import Oracle

WAVES = Tolerance(256, 0, 256, "the terms of power series cancel, in the oracle too")
GROWING = Tolerance(1024, 64, 256, "powers and exponentials gather the roundings of their arguments")
_TERMS = 40


def _sum(first: Callable[[int], float], z: Any) -> Any:
    return sum(first(k) * z**k for k in range(_TERMS))


def _fact(k: int) -> float:
    return float(math.factorial(k))


def _harmonic(k: int) -> float:
    return math.fsum(1 / n for n in range(1, k + 1))


def _first_kind(order: int, sign: float) -> Oracle:
    """J for sign -1, I for 1: DLMF 10.2.2 and 10.25.2."""
    return lambda x: (x / 2) ** order * _sum(lambda k: sign**k / (_fact(k) * _fact(k + order)), x * x / 4)


def _second_kind(order: int, sign: float) -> Oracle:
    """Y for sign -1, K for 1: DLMF 10.8.1 and 10.31.1."""

    def value(x: Any) -> Any:
        z, half = x * x / 4, x / 2

        def weight(k: int) -> float:
            slopes = _harmonic(k) + _harmonic(k + order) - 2 * np.euler_gamma  # psi(k + 1) + psi(k + order + 1)
            return slopes * sign**k / (_fact(k) * _fact(k + order))

        logarithm = np.log(half) * _first_kind(order, sign)(x)
        series = half**order * _sum(weight, z) / 2
        pole = 1 / x if order else 0.0
        if sign < 0:
            return (2 * logarithm - 2 * series - 2 * pole) / math.pi
        return (-1) ** (order + 1) * (logarithm - series) + pole

    return value


def _airy(x: Any) -> Any:
    """DLMF 9.4.1."""
    cube, one, other = x**3, np.ones_like(x), x.copy()
    first, second = one.copy(), other.copy()
    for k in range(1, 60):
        one, other = one * cube / ((3 * k - 1) * 3 * k), other * cube / (3 * k * (3 * k + 1))
        first, second = first + one, second + other
    return first / (3 ** (2 / 3) * math.gamma(2 / 3)) - second / (3 ** (1 / 3) * math.gamma(1 / 3))


def _lower(a: Any, x: Any) -> Any:
    """DLMF 8.7.1, of which all terms are positive."""
    term = total = 1 / a * np.ones_like(x)
    for n in range(1, 400):
        term = term * x / (a + n)
        total = total + term
    return total * np.exp(a * np.log(x) - x - np.vectorize(math.lgamma, otypes=[float])(a))


BESSEL: list[tuple[str, Oracle, Tolerance]] = [
    ("bessel_j0", _first_kind(0, -1), WAVES),
    ("bessel_j1", _first_kind(1, -1), WAVES),
    ("bessel_y0", _second_kind(0, -1), WAVES),
    ("bessel_y1", _second_kind(1, -1), WAVES),
    ("modified_bessel_i0", _first_kind(0, 1), GROWING),
    ("modified_bessel_i1", _first_kind(1, 1), GROWING),
    ("modified_bessel_k0", _second_kind(0, 1), WAVES),
    ("modified_bessel_k1", _second_kind(1, 1), WAVES),
    ("scaled_modified_bessel_k0", lambda x: np.exp(x) * _second_kind(0, 1)(x), WAVES),
    ("scaled_modified_bessel_k1", lambda x: np.exp(x) * _second_kind(1, 1)(x), WAVES),
    ("spherical_bessel_j0", lambda x: np.sinc(x / math.pi), WAVES),
    ("airy_ai", _airy, WAVES),
]


def _unit(n: int) -> list[float]:
    return [0.0] * n + [1.0]


def _second_chebyshev(x: Any, n: int) -> Any:
    """U(n) = 2 (T(n) + T(n - 2) + ...), with half of T(0)."""
    terms = [(1.0 if k == 0 else 2.0) * ((n - k) % 2 == 0) for k in range(n + 1)]
    return chebyshev.chebval(x, terms or [0.0])


POLYNOMIALS: list[tuple[str, Oracle]] = [
    ("chebyshev_polynomial_t", lambda x, n: chebyshev.chebval(x, _unit(n))),
    ("chebyshev_polynomial_u", _second_chebyshev),
    ("chebyshev_polynomial_v", lambda x, n: _second_chebyshev(x, n) - _second_chebyshev(x, n - 1)),
    ("chebyshev_polynomial_w", lambda x, n: _second_chebyshev(x, n) + _second_chebyshev(x, n - 1)),
    ("hermite_polynomial_h", lambda x, n: hermite.hermval(x, _unit(n))),
    ("hermite_polynomial_he", lambda x, n: hermite_e.hermeval(x, _unit(n))),
    ("laguerre_polynomial_l", lambda x, n: laguerre.lagval(x, _unit(n))),
    ("legendre_polynomial_p", lambda x, n: legendre.legval(x, _unit(n))),
]


def _bessel_records() -> list[Record]:
    def draw(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(), d.dtype("f"), "unit")])

    return [
        Record(f"alpha.special.{name}", draw, oracle, None, tolerance, weight=0.15)
        for name, oracle, tolerance in BESSEL
    ]


def _polynomial_records() -> list[Record]:
    def draw(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(), d.dtype("f"), "unit"), d.whole(0, 9)])

    def shifted(oracle: Oracle) -> Oracle:
        return lambda x, n: oracle(2 * x - 1, n)

    found = [Record(f"alpha.special.{name}", draw, oracle, None, GROWING, weight=0.15) for name, oracle in POLYNOMIALS]
    for name, oracle in POLYNOMIALS[:4]:
        found.append(Record(f"alpha.special.shifted_{name}", draw, shifted(oracle), None, GROWING, weight=0.1))
    return found


def _gamma_records() -> list[Record]:
    def draw(d: Draw) -> Case:
        d.values = "ordinary"
        shape, dtype = d.shape(), d.dtype("f")
        exponent = d.input(shape, dtype, "positive", grad=0.0)
        return Case([exponent, d.input(d.broadcastable(shape), dtype, "positive")])

    def covered(name: str) -> tuple[str, ...]:
        return f"alpha.{name}", f"alpha.Tensor.{name}"

    return [
        Record("alpha.special.gammainc", draw, _lower, None, WAVES, differences=False, weight=0.2,
               covers=covered("igamma")),
        Record("alpha.special.gammaincc", draw, lambda a, x: 1 - _lower(a, x), None, WAVES, differences=False,
               weight=0.2, covers=covered("igammac")),
    ]  # fmt: skip


RECORDS = [*_bessel_records(), *_polynomial_records(), *_gamma_records()]
