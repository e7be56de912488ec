"""Arrays: the special functions computed by NumPy, for engines without loops or kernels of their own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.errors import EngineError
from alpha.expressions import special
from alpha.expressions.arithmetic import Arithmetic, Value


class Arrays(Arithmetic):
    """Computes with arrays of float64 at once, where engines write what is to be computed."""

    def __init__(self) -> None:
        super().__init__(64, fused=True)

    def number(self, value: float) -> Value:
        return np.float64(value)

    def integer(self, value: int) -> Value:
        return np.int64(value)

    def add(self, x: Value, y: Value) -> Value:
        return x + y

    def sub(self, x: Value, y: Value) -> Value:
        return x - y

    def mul(self, x: Value, y: Value) -> Value:
        return x * y

    def div(self, x: Value, y: Value) -> Value:
        return x / y

    def neg(self, x: Value) -> Value:
        return -x

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """Through long double, which holds the product's first digits and not all of them."""
        return np.asarray(np.longdouble(1) * x * y + z).astype(np.float64)

    def call(self, function: str, *operands: Value) -> Value:
        return getattr(np, function)(*operands)

    def wider(self) -> Arithmetic:
        return self

    def extended(self, x: Value) -> Value:
        return x

    def shortened(self, x: Value) -> Value:
        return x

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        if condition == "uno":
            return np.isnan(x) | np.isnan(y)
        found = _CONDITIONS[condition[1:]](x, y)
        unordered = np.isnan(x) | np.isnan(y)
        return found & ~unordered if condition[0] == "o" else found | unordered

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        return np.where(mask, x, y)

    def logical(self, operation: str, x: Value, y: Value) -> Value:
        return _INTEGERS[operation](x, y)

    def inverted(self, mask: Value) -> Value:
        return ~mask

    def as_ints(self, x: Value) -> Value:
        return np.asarray(x, np.float64).view(np.int64)

    def as_floats(self, x: Value) -> Value:
        return np.asarray(x, np.int64).view(np.float64)

    def integers(self, operation: str, x: Value, y: Value) -> Value:
        return _INTEGERS[operation](x, y)

    def differ(self, x: Value, y: Value) -> Value:
        return x != y

    def turned(self, x: Value, large: Value, n: Value, r: Value) -> tuple[Value, Value]:
        if np.any(large & np.isfinite(x)):
            raise EngineError("[arrays] expected angles below 2 ** 15, got larger ones: use NumPy's functions")
        return n, r

    def divided(self, x: Value, y: Value, long: Value, rest: Value) -> Value:
        raise EngineError("[arrays] expected no division with a remainder, got one: use NumPy's function")


_CONDITIONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_INTEGERS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": np.left_shift, "ashr": np.right_shift,
}  # fmt: skip


def computed(name: str) -> Callable[..., Any]:
    """A function of ``special.FUNCTIONS`` of arrays, in float64."""

    def compute(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            return special.FUNCTIONS[name](Arrays(), *[np.asarray(x, np.float64) for x in values])

    return compute
