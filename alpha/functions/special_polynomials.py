"""Orthogonal polynomials by their recurrences: Chebyshev's four kinds, Hermite's two, Laguerre's and Legendre's.

Source: DLMF 18.9. Those of very high order overflow where they are large, and are then infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from alpha.autograd import is_grad_enabled
from alpha.errors import ArgumentError, GraphError
from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.functions.casting import cast
from alpha.functions.comparison import where
from alpha.functions.operands import TensorLike, filled
from alpha.functions.primitives import convert
from alpha.functions.rounding import trunc
from alpha.tensor import Tensor

__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip

MOST = 10_000
"""The highest order: each takes a pass over memory."""


@pointwise
def _next_chebyshev(x: Any, now: Any, before: Any, k: Any) -> Any:
    return 2 * x * now - before


@pointwise
def _next_hermite_h(x: Any, now: Any, before: Any, k: Any) -> Any:
    return 2 * (x * now - k * before)


@pointwise
def _next_hermite_he(x: Any, now: Any, before: Any, k: Any) -> Any:
    return x * now - k * before


@pointwise
def _next_laguerre(x: Any, now: Any, before: Any, k: Any) -> Any:
    return ((2 * k + 1 - x) * now - k * before) / (k + 1)


@pointwise
def _next_legendre(x: Any, now: Any, before: Any, k: Any) -> Any:
    return ((2 * k + 1) * x * now - k * before) / (k + 1)


@pointwise
def _one(x: Any) -> Any:
    """1, also of infinities and NaN, with the slope 0."""
    return symbols.apply("where", symbols.apply("isfinite", x), x, 0.0) * 0.0 + 1.0


@pointwise
def _chosen(order: Any, k: Any, value: Any, before: Any) -> Any:
    return where(order == k, value, before)


def _family(
    name: str, title: str, slope: float, shift: float, step: PointwiseFunction, shifted: bool = False
) -> Callable[[TensorLike, TensorLike], Tensor]:
    """A family of polynomials whose first is slope * x + shift; shifted ones are those of 2 x - 1."""

    def polynomial(input: TensorLike, n: TensorLike) -> Tensor:
        if isinstance(n, Tensor) and n.requires_grad and is_grad_enabled():
            raise GraphError(
                f"[{name}] expected an order n that does not require grad, got one that does: .detach() it"
            )
        x, orders = convert(name, input, n, floating=True, logical=True)
        if not isinstance(x, Tensor):
            x = filled(orders, 1.0) * x
        x = 2 * x - 1 if shifted else x
        before, now = _one(x), slope * x + shift
        if not isinstance(orders, Tensor):
            return _of_one_order(x, before, now, step, _whole(name, float(orders)))
        orders = trunc(orders.detach())
        largest = _whole(name, float(orders.max().item())) if orders.numel() else 0
        found = cast(orders == 0, x.dtype) * before
        for k in range(1, largest + 1):
            found = _chosen(orders, k, now, found)
            before, now = now, step(x, now, before, k) if k < largest else now
        return found

    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = (
        f"{title} of order n, broadcast: 0 for n < 0.\n\n"
        "    ``n`` is a number or a tensor, whose fractions are cut off. Only input has gradients: GraphError where\n"
        f"    n requires one. ArgumentError for an order above {MOST}.\n    "
    )
    return polynomial


def _of_one_order(x: Tensor, before: Tensor, now: Tensor, step: PointwiseFunction, order: int) -> Tensor:
    if order < 1:
        return before if order == 0 else 0 * before
    for k in range(1, order):
        before, now = now, step(x, now, before, k)
    return now


def _whole(name: str, order: float) -> int:
    """An order without its fraction; -1 for all below 0 and for NaN."""
    if order > MOST:
        raise ArgumentError(f"[{name}] expected orders n <= {MOST}, got {order}: that many passes take too long")
    return -1 if math.isnan(order) or order <= -1 else int(order)


chebyshev_polynomial_t = _family(
    "chebyshev_polynomial_t", "Chebyshev's polynomial of the first kind", 1, 0, _next_chebyshev
)
chebyshev_polynomial_u = _family(
    "chebyshev_polynomial_u", "Chebyshev's polynomial of the second kind", 2, 0, _next_chebyshev
)
chebyshev_polynomial_v = _family(
    "chebyshev_polynomial_v", "Chebyshev's polynomial of the third kind", 2, -1, _next_chebyshev
)
chebyshev_polynomial_w = _family(
    "chebyshev_polynomial_w", "Chebyshev's polynomial of the fourth kind", 2, 1, _next_chebyshev
)
shifted_chebyshev_polynomial_t = _family(
    "shifted_chebyshev_polynomial_t", "chebyshev_polynomial_t(2 * input - 1, n), that", 1, 0, _next_chebyshev, True
)
shifted_chebyshev_polynomial_u = _family(
    "shifted_chebyshev_polynomial_u", "chebyshev_polynomial_u(2 * input - 1, n), that", 2, 0, _next_chebyshev, True
)
shifted_chebyshev_polynomial_v = _family(
    "shifted_chebyshev_polynomial_v", "chebyshev_polynomial_v(2 * input - 1, n), that", 2, -1, _next_chebyshev, True
)
shifted_chebyshev_polynomial_w = _family(
    "shifted_chebyshev_polynomial_w", "chebyshev_polynomial_w(2 * input - 1, n), that", 2, 1, _next_chebyshev, True
)
hermite_polynomial_h = _family("hermite_polynomial_h", "The physicists' Hermite polynomial", 2, 0, _next_hermite_h)
hermite_polynomial_he = _family("hermite_polynomial_he", "The probabilists' Hermite polynomial", 1, 0, _next_hermite_he)
laguerre_polynomial_l = _family("laguerre_polynomial_l", "Laguerre's polynomial", -1, 1, _next_laguerre)
legendre_polynomial_p = _family("legendre_polynomial_p", "Legendre's polynomial", 1, 0, _next_legendre)
