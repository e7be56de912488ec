"""Special functions: the gamma function's family, Bessel functions, the normal distribution, x * log(y) and the logit.

``alpha.special`` gathers them under PyTorch's names.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from alpha.arguments import number, whole
from alpha.autograd import is_grad_enabled
from alpha.errors import ArgumentError, GraphError, described
from alpha.expressions import polygammas, symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.functions.comparison import ne, where
from alpha.functions.operands import TensorLike, is_number
from alpha.functions.primitives import EXPRESSIONS, PRIMITIVES, as_floats, convert, of_floats, of_two_floats
from alpha.functions.rounding import floor
from alpha.tensor import Tensor

__all__ = ["digamma", "i0", "lgamma", "logit", "mvlgamma", "polygamma", "xlogy"]


def _do(name: str, *values: Any) -> Any:
    return symbols.apply(name, *values)


# -- the gamma function ------------------------------------------------------------------------------------------

lgamma = of_floats(PRIMITIVES["lgamma"], "log(|gamma(input)|): infinite at 0 and the negative whole numbers.")


@pointwise
def _digamma(x: Any) -> Any:
    return _do("digamma", x)


@_digamma.gradient
def _digamma_gradient(grad: Any, x: Any) -> Any:
    return grad * _of_order(1)(x)


digamma = of_floats(_digamma, "The slope of lgamma: infinite at 0, NaN at the negative whole numbers.")


def polygamma(n: int, input: TensorLike) -> Tensor:
    """The n-th derivative of ``digamma``, n >= 0."""
    order = whole("polygamma", "n", n, 0, _MOST_ORDERS)
    if order == 0:
        return digamma(input)
    function = _of_order(order)
    found: Tensor | None = function.latest.launch_outside(input)
    return function(as_floats("polygamma", input)) if found is None else found


_MOST_ORDERS = 60
"""Beyond, a float64 holds n! / input ** (n + 1) of few numbers."""


@functools.cache
def _of_order(n: int) -> PointwiseFunction:
    """The n-th derivative of ``digamma``."""
    function = pointwise(lambda x: polygammas.polygamma(n, x))
    function.name = "polygamma"
    function.gradient(lambda grad, x: grad * _of_order(n + 1)(x))
    return function


def mvlgamma(input: TensorLike, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of p dimensions: the sum of lgamma(input - k / 2) below p."""
    dimensions = whole("mvlgamma", "p", p, 1, 10_000)
    x = as_floats("mvlgamma", input)
    total = lgamma(x) + dimensions * (dimensions - 1) / 4 * math.log(math.pi)
    for k in range(1, dimensions):
        total = total + lgamma(x - k / 2)
    return total


def _zeta_at_ends(s: Any, q: Any, value: Any) -> Any:
    """Infinite at s = 1 and where a term is, NaN where there is no sum."""
    known = (s > 1) & ((q > 0) | (_do("floor", s) == s))
    value = _do("where", known, value, math.nan)
    value = _do("where", (q <= 0) & (_do("floor", q) == q) & (s > 1), math.inf, value)
    return _do("where", s == 1, math.inf, value)


@functools.cache
def _zeta() -> PointwiseFunction:
    """Hurwitz's zeta function of q > 0."""
    function = pointwise(lambda s, q: _zeta_at_ends(s, q, polygammas.hurwitz(s, q)))
    function.name = "zeta"
    function.gradient(lambda grad, s, q: (None, -grad * s * _zeta()(s + 1, q)))
    return function


def zeta(input: TensorLike, other: TensorLike) -> Tensor:
    """Hurwitz's zeta function: the sum of (other + k) ** -input over k = 0, 1, ..., broadcast.

    It is NaN for input < 1, and where other is negative and input no whole number. As in PyTorch it has no gradient for
    input: GraphError where that requires one.
    """
    if isinstance(input, Tensor) and input.requires_grad and is_grad_enabled():
        raise GraphError("[zeta] expected an input that does not require grad, got one that does: .detach() it")
    s, q = convert("zeta", input, other, floating=True, logical=True)
    if not _has_negative(q):
        return _zeta()(s, q)
    # For q < 0 and whole s the terms below 0 are, with their signs, those of 1 - q's fraction.
    first = q - floor(q)
    below = _zeta()(s, 1 - first) - _zeta()(s, 1 - q)
    odd = ne(floor(s * 0.5) * 2, s) if isinstance(s, Tensor) else s % 2 == 1
    found = _zeta()(s, first) + where(odd, -below, below)
    return _at_ends(s, q, where(q < 0, found, _zeta()(s, q)))


@pointwise
def _at_ends(s: Any, q: Any, value: Any) -> Any:
    return _zeta_at_ends(s, q, value)


def _has_negative(q: Any) -> bool:
    """Whether a number, or any of a tensor's, is below 0; True of what may be, such as symbols and arrays."""
    if not isinstance(q, Tensor):
        return not is_number(q) or q < 0
    return q.numel() > 0 and q.engine.reduce("min", q.detach(), tuple(range(q.ndim)), False).item() < 0


# -- Bessel functions --------------------------------------------------------------------------------------------


def _grown(scaled: Any, x: Any) -> Any:
    """A number times exp(|x|), also where that is infinite and the product is not."""
    root = _do("exp", abs(x) * 0.5)
    return scaled * root * root


@pointwise
def _i0(x: Any) -> Any:
    return _grown(_do("i0e", x), x)


@_i0.gradient
def _i0_gradient(grad: Any, x: Any) -> Any:
    return grad * _i1(x)


@pointwise
def _i1(x: Any) -> Any:
    return _grown(_do("i1e", x), x)


@_i1.gradient
def _i1_gradient(grad: Any, x: Any) -> Any:
    near = abs(x) < 1e-17
    return grad * _do("where", near, 0.5, _i0(x) - _i1(x) / _do("where", near, 1.0, x))


i0 = of_floats(_i0, "The modified Bessel function of the first kind, of order 0.")
i0e = of_floats(PRIMITIVES["i0e"], "exp(-|input|) * i0(input).")
i1 = of_floats(_i1, "The modified Bessel function of the first kind, of order 1.")
i1e = of_floats(PRIMITIVES["i1e"], "exp(-|input|) * i1(input).")


# -- the normal distribution -------------------------------------------------------------------------------------


@pointwise
def _ndtr(x: Any) -> Any:
    """By erfcx and exp(-x * x / 2), its exponent in two parts, the first of few digits."""
    size = abs(x)
    head = _do("floor", _do("minimum", size, 64.0) * 16) * (1 / 16)
    bell = _do("exp", head * head * -0.5) * _do("exp", (size - head) * (size + head) * -0.5)
    tail = bell * _do("erfcx", size * math.sqrt(0.5)) * 0.5
    return _do("where", x < 0, tail, 1 - tail)


@_ndtr.gradient
def _ndtr_gradient(grad: Any, x: Any) -> Any:
    return grad * (_do("exp", x * x * -0.5) * (1 / math.sqrt(2 * math.pi)))


@pointwise
def _log_ndtr(x: Any) -> Any:
    scaled = x * -math.sqrt(0.5)
    below = _do("log", _do("erfcx", scaled) * 0.5) - x * x * 0.5
    return _do("where", x < -1, below, _do("log1p", -_ndtr(-x)))


@_log_ndtr.gradient
def _log_ndtr_gradient(grad: Any, x: Any) -> Any:
    return grad / _do("erfcx", x * -math.sqrt(0.5)) * math.sqrt(2 / math.pi)


erfcx = of_floats(PRIMITIVES["erfcx"], "exp(input * input) * erfc(input).")
ndtr = of_floats(_ndtr, "The normal distribution's cumulative function.")
ndtri = of_floats(PRIMITIVES["ndtri"], "The inverse of ``ndtr``: infinite at 0 and 1, NaN beyond.")
log_ndtr = of_floats(_log_ndtr, "log(ndtr(input)), accurate where that is small.")


# -- entropy and odds --------------------------------------------------------------------------------------------


@pointwise
def _entr(x: Any) -> Any:
    above = _do("where", x > 0, -x * _do("log", x), x)
    return _do("where", x == 0, 0.0, _do("where", x < 0, -math.inf, above))


@_entr.gradient
def _entr_gradient(grad: Any, x: Any) -> Any:
    return grad * (-1 - _do("log", x))


@pointwise
def _xlogy(x: Any, y: Any) -> Any:
    return _do("where", (x == 0) & ~_do("isnan", y), 0.0, x * _do("log", y))


@_xlogy.gradient
def _xlogy_gradient(grad: Any, x: Any, y: Any) -> Any:
    return _do("where", (x == 0) & (y <= 0), 0.0, _xlogy(grad, y)), grad * x / y


@pointwise
def _xlog1py(x: Any, y: Any) -> Any:
    return _do("where", (x == 0) & ~_do("isnan", y), 0.0, x * _do("log1p", y))


@_xlog1py.gradient
def _xlog1py_gradient(grad: Any, x: Any, y: Any) -> Any:
    return _do("where", (x == 0) & (y <= -1), 0.0, _xlog1py(grad, y)), grad * x / (y + 1)


entr = of_floats(_entr, "-input * log(input): 0 at 0 and -inf below.")
xlogy = of_two_floats(_xlogy, "input * log(other), broadcast: 0 where input is 0.")
xlog1py = of_two_floats(_xlog1py, "input * log1p(other), broadcast: 0 where input is 0.")


@pointwise
def _logit(x: Any) -> Any:
    """Near 1/2, where the logarithm is near 0, by log1p."""
    near = _do("log1p", (x * 2 - 1) / (1 - x))
    return _do("where", abs(x - 0.5) < 0.25, near, _do("log", x / (1 - x)))


@_logit.gradient
def _logit_gradient(grad: Any, x: Any) -> Any:
    return _do("where", (x < 0) | (x > 1), math.nan, grad / (x * (1 - x)))


@pointwise
def _limited_logit(x: Any, eps: Any) -> Any:
    return _logit(_do("minimum", _do("maximum", x, eps), 1 - eps))


@_limited_logit.gradient
def _limited_logit_gradient(grad: Any, x: Any, eps: Any) -> Any:
    return _do("where", (x < eps) | (x > 1 - eps), 0.0, grad / (x * (1 - x))), None


def logit(input: TensorLike, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)), the inverse of the sigmoid; ``eps`` first limits input to eps..1 - eps."""
    if eps is None:
        found: Tensor | None = _logit.latest.launch_outside(input)
        return _logit(as_floats("logit", input)) if found is None else found
    limit = number("logit", "eps", eps)
    if math.isnan(limit):
        raise ArgumentError(f"[logit] expected eps as a number, got {described(eps)}")
    return _limited_logit(as_floats("logit", input), limit)


EXPRESSIONS["logit"] = _logit
