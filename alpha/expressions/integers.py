"""Integers: the operations of expressions on them, for every engine. They wrap around, as NumPy's do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from alpha.expressions.arithmetic import Operations, Value
from alpha.expressions.writers import FUNCTIONS as OF_FLOATS


class IntegerOperations(Operations):
    """Writes operations on integers. Comparisons: eq, ne, lt, le, gt, ge.

    Attributes:
        bits: of an integer.
        is_signed: whether one may be below 0.
    """

    bits: int
    is_signed: bool

    def number(self, value: float) -> Value:
        """An integer; for infinity the largest, or the least."""
        least = -(1 << self.bits - 1) if self.is_signed else 0
        most = least + (1 << self.bits) - 1
        return self.integer(int(min(max(value, least), most)))

    @abstractmethod
    def bitwise(self, operation: str, x: Value, y: Value) -> Value:
        """and, or, xor; shl and shr by 0 to bits - 1, of which shr keeps the sign."""

    @abstractmethod
    def quotient(self, x: Value, y: Value) -> Value:
        """The quotient rounded down; y is not 0."""

    @abstractmethod
    def power(self, x: Value, y: Value) -> Value:
        """x to a power >= 0."""


def _abs(v: IntegerOperations, x: Value) -> Value:
    return v.select(v.compare("lt", x, v.integer(0)), v.neg(x), x) if v.is_signed else x


def _sign(v: IntegerOperations, x: Value) -> Value:
    zero = v.integer(0)
    below = v.select(v.compare("lt", x, zero), v.integer(-1), zero) if v.is_signed else zero
    return v.select(v.compare("gt", x, zero), v.integer(1), below)


def _maximum(v: IntegerOperations, x: Value, y: Value) -> Value:
    return v.select(v.compare("gt", x, y), x, y)


def _minimum(v: IntegerOperations, x: Value, y: Value) -> Value:
    return v.select(v.compare("lt", x, y), x, y)


def _floor_divide(v: IntegerOperations, x: Value, y: Value) -> Value:
    """The quotient rounded down; 0 where y is 0."""
    is_zero = v.compare("eq", y, v.integer(0))
    divisor = v.select(is_zero, v.integer(1), y)
    return v.select(is_zero, v.integer(0), v.quotient(x, divisor))


def _remainder(v: IntegerOperations, x: Value, y: Value) -> Value:
    """What the quotient leaves, which has the divisor's sign; 0 where y is 0."""
    is_zero = v.compare("eq", y, v.integer(0))
    divisor = v.select(is_zero, v.integer(1), y)
    return v.select(is_zero, v.integer(0), v.sub(x, v.mul(v.quotient(x, divisor), divisor)))


def _fmod(v: IntegerOperations, x: Value, y: Value) -> Value:
    """What the quotient rounded towards 0 leaves, which has the sign of x; 0 where y is 0."""
    rest = _remainder(v, x, y)
    if not v.is_signed:
        return rest
    zero = v.integer(0)
    differs = v.logical("xor", v.compare("lt", rest, zero), v.compare("lt", x, zero))
    return v.select(v.logical("and", differs, v.compare("ne", rest, zero)), v.sub(rest, y), rest)


def _shifted(v: IntegerOperations, operation: str, x: Value, y: Value) -> Value:
    """Shifted by y bits; where y is below 0 or above bits - 1 all bits have gone."""
    within = v.compare("lt", y, v.integer(v.bits))
    if v.is_signed:
        within = v.logical("and", within, v.compare("ge", y, v.integer(0)))
    found = v.bitwise(operation, x, v.select(within, y, v.integer(0)))
    zero = v.integer(0)
    gone = v.select(v.compare("lt", x, zero), v.integer(-1), zero) if operation == "shr" and v.is_signed else zero
    return v.select(within, found, gone)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: OF_FLOATS[name] for name in ("neg", "add", "sub", "mul", "where")},
    **{name: OF_FLOATS[name] for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
    **{
        name: lambda v, x, y, condition=name: v.compare(condition, x, y)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "abs": _abs,
    "sign": _sign,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "pow": lambda v, x, y: v.power(x, y),
    "bitwise_and": lambda v, x, y: v.bitwise("and", x, y),
    "bitwise_or": lambda v, x, y: v.bitwise("or", x, y),
    "bitwise_xor": lambda v, x, y: v.bitwise("xor", x, y),
    "bitwise_not": lambda v, x: v.bitwise("xor", x, v.integer(-1 if v.is_signed else (1 << v.bits) - 1)),
    "left_shift": lambda v, x, y: _shifted(v, "shl", x, y),
    "right_shift": lambda v, x, y: _shifted(v, "shr", x, y),
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp": lambda v, x, low, high: _minimum(v, _maximum(v, x, low), high),
    "isfinite": lambda v, x: v.compare("eq", x, x),
}
"""What computes each operation of ``alpha.expressions.graph`` that integers have."""
