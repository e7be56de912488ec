"""The regularised incomplete gamma functions P and Q.

P is a power series where x is below a + 1, Q Legendre's continued fraction beyond, and both are Temme's uniform
expansion where a is large and x near it; for a below 1 and x below 2 Q is 1 - x ** a / gamma(a + 1) and a series that
begins with x ** (a + 1). Source: DLMF 8.7, 8.9 and 8.12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from alpha.autograd import is_grad_enabled
from alpha.errors import GraphError
from alpha.expressions import symbols
from alpha.expressions.coefficients import LOG_GAMMA
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.functions.operands import TensorLike
from alpha.functions.primitives import convert
from alpha.functions.special_coefficients import TEMME
from alpha.tensor import Tensor

__all__ = ["igamma", "igammac"]

_LARGE = 30.0
"""From here on Temme's expansion serves, for x within half of a."""
_STIRLING_FROM = 10.0
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_SMALL_X = 2.0
_SERIES_TERMS, _FRACTION_TERMS, _SMALL_TERMS, _LOGARITHM_TERMS = 66, 66, 26, 16


def _do(name: str, *values: Any) -> Any:
    return symbols.apply(name, *values)


def _polynomial(terms: Sequence[float], t: Any) -> Any:
    value: Any = terms[-1]
    for c in terms[-2::-1]:
        value = value * t + c
    return value


def _excess(a: Any, x: Any) -> Any:
    """mu - log(1 + mu) for mu = x / a - 1, with all digits near 0.

    With s = mu / (2 + mu) it is s mu - 2 s ** 3 (1 / 3 + s ** 2 / 5 + ...).
    """
    mu = (x - a) / a
    near = _do("minimum", _do("maximum", mu, -0.5), 0.5)
    s = near / (near + 2)
    square = s * s
    rest = _polynomial([2 / (2 * k + 3) for k in range(_LOGARITHM_TERMS)], square)
    away = mu - _do("log", x / a)
    return _do("where", abs(mu) <= 0.5, s * near - s * square * rest, away)


def _factor(a: Any, x: Any) -> Any:
    """x ** a exp(-x) / gamma(a + 1)."""
    near = _do("minimum", a, _STIRLING_FROM)
    plain = _do("exp", near * _do("log", x) - x - _do("lgamma", near + 1))
    far = _do("maximum", a, _STIRLING_FROM)
    inverse = 1 / far
    correction = inverse * _polynomial(_STIRLING, inverse * inverse)
    stirling = _do("exp", -far * _excess(far, x) - correction) / _do("sqrt", far * (2 * math.pi))
    return _do("where", a < _STIRLING_FROM, plain, stirling)


def _series(a: Any, x: Any) -> Any:
    """1 + x / (a + 1) (1 + x / (a + 2) (1 + ...)), which P is times the factor."""
    total: Any = 1.0
    for n in range(_SERIES_TERMS, 0, -1):
        total = total * x / (a + n) + 1
    return total


def _fraction(a: Any, x: Any) -> Any:
    """a / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)), which Q is times the factor."""
    tail: Any = 0.0
    shifted = x - a
    for n in range(_FRACTION_TERMS, 0, -1):
        tail = (n - a) * n / (shifted + (2 * n + 1) - tail)
    return a / (shifted + 1 - tail)


def _small(a: Any, x: Any) -> Any:
    """Q for a < 1 and small x."""
    near = _do("minimum", a, 1.0)
    logarithm = near * (near - 1) * _polynomial(LOG_GAMMA, near - 0.5)  # of gamma(a + 1)
    power = near * _do("log", x) - logarithm
    total: Any = 0.0
    for n in range(_SMALL_TERMS, 0, -1):
        total = (total + 1 / (near + n)) * (x * (-1 / n))
    return -_do("expm1", power) - _do("exp", power) * near * total


def _temme(a: Any, x: Any, sign: float) -> Any:
    """P for sign -1, Q for 1; for large a and x near it."""
    large = _do("maximum", a, _LARGE)
    excess = _excess(large, x)
    eta = _do("sqrt", excess * 2)
    eta = _do("where", x < large, -eta, eta)
    inverse = 1 / large
    total: Any = 0.0
    for row in TEMME[::-1]:
        total = total * inverse + _polynomial(row, eta)
    rest = _do("exp", -large * excess) / _do("sqrt", large * (2 * math.pi)) * total
    return _do("erfc", eta * _do("sqrt", large * 0.5) * sign) * 0.5 + rest * sign


def _incomplete(a: Any, x: Any, sign: float) -> Any:
    """P for sign -1, Q for 1."""
    factor = _factor(a, x)
    small = (a < 1) & (x < _SMALL_X)
    p = factor * _series(a, x)
    q = factor * _fraction(a, x)
    if sign > 0:
        value = _do("where", x < a + 1, 1 - p, q)
        value = _do("where", small, _small(a, x), value)
    else:
        value = _do("where", small | (x < a + 1), p, 1 - q)
    value = _do("where", (a >= _LARGE) & (abs(x - a) < a * 0.5), _temme(a, x, sign), value)
    low, high = (1.0, 0.0) if sign > 0 else (0.0, 1.0)  # at x = 0, and at infinity
    value = _do("where", (x == 0) | (a == math.inf), low, value)
    value = _do("where", (x == math.inf) | (a == 0), high, value)
    unknown = (
        (a < 0)
        | (x < 0)
        | ((a == 0) & (x == 0))
        | ((a == math.inf) & (x == math.inf))
        | _do("isnan", x)
        | _do("isnan", a)
    )
    return _do("where", unknown, math.nan, value)


@pointwise
def _gammainc(a: Any, x: Any) -> Any:
    return _incomplete(a, x, -1.0)


@pointwise
def _gammaincc(a: Any, x: Any) -> Any:
    return _incomplete(a, x, 1.0)


def _slope(a: Any, x: Any) -> Any:
    """x ** (a - 1) exp(-x) / gamma(a)"""
    return _do("exp", _do("where", a == 1, 0.0, (a - 1) * _do("log", x)) - x - _do("lgamma", a))


@_gammainc.gradient
def _gammainc_gradient(grad: Any, a: Any, x: Any) -> Any:
    return None, grad * _slope(a, x)


@_gammaincc.gradient
def _gammaincc_gradient(grad: Any, a: Any, x: Any) -> Any:
    return None, -grad * _slope(a, x)


def _public(name: str, expression: PointwiseFunction, description: str) -> Callable[[TensorLike, TensorLike], Tensor]:
    def function(input: TensorLike, other: TensorLike) -> Tensor:
        if isinstance(input, Tensor) and input.requires_grad and is_grad_enabled():
            raise GraphError(f"[{name}] expected an input that does not require grad, got one that does: .detach() it")
        found: Tensor | None = expression.latest.launch_outside(input, other)
        return expression(*convert(name, input, other, floating=True, logical=True)) if found is None else found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = description
    return function


_DOCUMENTED = """The regularised {0} incomplete gamma function of input, an exponent, and other, broadcast: {1}.

    Neither may be below 0, where the result is NaN. As in PyTorch it has no gradient for input: GraphError where that
    requires one.
    """
_LOWER = _DOCUMENTED.format("lower", "its integral from 0 to other")
_UPPER = _DOCUMENTED.format("upper", "1 - gammainc(input, other)")

gammainc = _public("gammainc", _gammainc, _LOWER)
gammaincc = _public("gammaincc", _gammaincc, _UPPER)
igamma, igammac = _public("igamma", _gammainc, _LOWER), _public("igammac", _gammaincc, _UPPER)
