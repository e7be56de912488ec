"""Integers: LLVM IR, as text, of operations on one vector of integers. They wrap around, as NumPy's do.

No processor divides vectors of integers: quotients are those of floats, which are exact where integers are small. Those
of 64 bits that are not are divided one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from alpha.cpu.loops.elements import SIGNED, Element
from alpha.cpu.loops.lanes import Lanes, Text, Value
from alpha.expressions.arithmetic import bits_of
from alpha.expressions.elementary import FUNCTIONS as OF_FLOATS

_EXACT = 1 << 51
"""Below, the quotient of two integers of 64 bits as float64 rounds down to the integers' own."""


class Integers(Lanes):
    """Vectors of ``count`` integers, which stand where ``Lanes`` has floats."""

    def __init__(self, element: Element, count: int, text: Text) -> None:
        super().__init__(element.bits, count, False, text)
        self.scalar, self.floats, self.suffix = element.scalar, self.ints, f"v{count}{element.suffix}"
        self.is_signed = element.kind == SIGNED

    def number(self, value: float) -> Value:
        """An integer in every lane; for infinity the largest, or the least."""
        least = -(1 << self.bits - 1) if self.is_signed else 0
        most = least + (1 << self.bits) - 1
        return self.integer(int(min(max(value, least), most)))

    def add(self, x: Value, y: Value) -> Value:
        return self.integers("add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.integers("sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.integers("mul", x, y)

    def neg(self, x: Value) -> Value:
        return self.sub(self.integer(0), x)

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        """eq, ne, lt, le, gt, ge."""
        sign = "" if condition in ("eq", "ne") else "s" if self.is_signed else "u"
        return self.write(f"icmp {sign}{condition} {self.ints} {x}, {y}")


def _abs(v: Integers, x: Value) -> Value:
    return v.select(v.compare("lt", x, v.integer(0)), v.neg(x), x) if v.is_signed else x


def _sign(v: Integers, x: Value) -> Value:
    zero = v.integer(0)
    below = v.select(v.compare("lt", x, zero), v.integer(-1), zero) if v.is_signed else zero
    return v.select(v.compare("gt", x, zero), v.integer(1), below)


def _maximum(v: Integers, x: Value, y: Value) -> Value:
    return v.select(v.compare("gt", x, y), x, y)


def _minimum(v: Integers, x: Value, y: Value) -> Value:
    return v.select(v.compare("lt", x, y), x, y)


def _floor_divide(v: Integers, x: Value, y: Value) -> Value:
    """The quotient rounded down; 0 where y is 0."""
    is_zero = v.compare("eq", y, v.integer(0))
    divisor = v.select(is_zero, v.integer(1), y)
    return v.select(is_zero, v.integer(0), _quotient(v, x, divisor))


def _remainder(v: Integers, x: Value, y: Value) -> Value:
    """What the quotient leaves, which has the divisor's sign; 0 where y is 0."""
    is_zero = v.compare("eq", y, v.integer(0))
    divisor = v.select(is_zero, v.integer(1), y)
    return v.select(is_zero, v.integer(0), v.sub(x, v.mul(_quotient(v, x, divisor), divisor)))


def _quotient(v: Integers, x: Value, y: Value) -> Value:
    """The quotient rounded down; y is not 0."""
    wide = Lanes(32 if v.bits == 8 else 64, v.count, False, v.text)
    if v.bits == 64:
        quotient = v.write(
            f"bitcast {wide.ints} {_whole(wide, wide.from_small_ints(x), wide.from_small_ints(y))} to {v.ints}"
        )
        quotient = v.sub(quotient, v.integer(bits_of(1.5 * 2.0**52, 64)))
        return _long(v, x, y, quotient)
    convert = "sitofp" if v.is_signed else "uitofp"
    dividend, divisor = (v.write(f"{convert} {v.ints} {value} to {wide.floats}") for value in (x, y))
    # The last bits of the sum are the integer's, which wrap.
    return v.write(f"trunc {wide.ints} {_whole(wide, dividend, divisor)} to {v.ints}")


def _whole(wide: Lanes, x: Value, y: Value) -> Value:
    """The bits of floor(x / y) + 1.5 * 2 ** mantissa, whose last are those of the quotient."""
    quotient = wide.call("floor", wide.div(x, y))
    return wide.as_ints(wide.add(quotient, wide.number(1.5 * 2.0**wide.mantissa)))


def _long(v: Integers, x: Value, y: Value, quotient: Value) -> Value:
    """The quotient of floats, or where an integer is large that of integers."""
    key = f"quotient {x} {y}"
    if key not in v.text.results:
        found = [v.integers("add", value, v.integer(_EXACT)) for value in (x, y)]
        beyond = [v.write(f"icmp uge {v.ints} {value}, {v.integer(2 * _EXACT)}") for value in found]
        bits = v.write(f"bitcast {v.masks} {v.logical('or', *beyond)} to i{v.count}")
        some = v.write(f"icmp ne i{v.count} {bits}, 0")
        here, away, back = v.text.block, v.text.new_label(), v.text.new_label()
        v.text.act(f"br i1 {some}, label %{away}, label %{back}")
        v.text.label(away)
        made = v.text.name()
        v.text.act(f"{made} = call {v.ints} @quotient({v.ints} {x}, {v.ints} {y})")
        v.text.act(f"br label %{back}")
        v.text.label(back)
        v.text.functions["quotient"] = _QUOTIENT.format(ints=v.ints, count=v.count)
        v.text.results[key] = v.write(f"phi {v.ints} [ {quotient}, %{here} ], [ {made}, %{away} ]")
    return v.text.results[key]


def _pow(v: Integers, x: Value, y: Value) -> Value:
    """x to a power >= 0, by squaring."""
    v.text.functions["power"] = _POWER.format(
        ints=v.ints, masks=v.masks, bits=f"i{v.count}", zero=v.integer(0), one=v.integer(1)
    )
    return v.write(f"call {v.ints} @power({v.ints} {x}, {v.ints} {y})")


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
    "pow": _pow,
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp": lambda v, x, low, high: _minimum(v, _maximum(v, x, low), high),
    "isfinite": lambda v, x: v.compare("eq", x, x),
}
"""What computes each operation of ``alpha.expressions.graph`` that integers have."""


_QUOTIENT = """
define internal {ints} @quotient({ints} %x, {ints} %y) noinline {{
entry:
  br label %lane
lane:
  %i = phi i32 [ 0, %entry ], [ %next, %lane ]
  %before = phi {ints} [ %x, %entry ], [ %after, %lane ]
  %dividend = extractelement {ints} %x, i32 %i
  %divisor = extractelement {ints} %y, i32 %i
  ; The least integer divided by -1 would be a fault of the processor's.
  %is_minus_one = icmp eq i64 %divisor, -1
  %safe = select i1 %is_minus_one, i64 1, i64 %divisor
  %whole = sdiv i64 %dividend, %safe
  %product = mul i64 %whole, %safe
  %rest = sub i64 %dividend, %product
  %has_rest = icmp ne i64 %rest, 0
  %signs = xor i64 %rest, %safe
  %differ = icmp slt i64 %signs, 0
  %is_above = and i1 %has_rest, %differ
  %one = zext i1 %is_above to i64
  %down = sub i64 %whole, %one
  %negated = sub i64 0, %dividend
  %quotient = select i1 %is_minus_one, i64 %negated, i64 %down
  %after = insertelement {ints} %before, i64 %quotient, i32 %i
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, {count}
  br i1 %more, label %lane, label %done
done:
  ret {ints} %after
}}
"""

_POWER = """
define internal {ints} @power({ints} %x, {ints} %y) noinline {{
entry:
  br label %digit
digit:
  %power = phi {ints} [ {one}, %entry ], [ %next_power, %digit ]
  %square = phi {ints} [ %x, %entry ], [ %next_square, %digit ]
  %left = phi {ints} [ %y, %entry ], [ %next_left, %digit ]
  %last = and {ints} %left, {one}
  %is_one = icmp ne {ints} %last, {zero}
  %product = mul {ints} %power, %square
  %next_power = select {masks} %is_one, {ints} %product, {ints} %power
  %next_square = mul {ints} %square, %square
  %next_left = lshr {ints} %left, {one}
  %goes_on = icmp ne {ints} %next_left, {zero}
  %lanes = bitcast {masks} %goes_on to {bits}
  %more = icmp ne {bits} %lanes, 0
  br i1 %more, label %digit, label %done
done:
  ret {ints} %next_power
}}
"""
