"""Integers: LLVM IR, as text, of operations on one vector of integers.

No processor divides vectors of integers: quotients are those of floats, which are exact where integers are small. Those
of 64 bits that are not are divided one by one.
"""

from __future__ import annotations

from alpha.cpu.loops.elements import SIGNED, Element
from alpha.cpu.loops.lanes import Lanes, Text, Value
from alpha.expressions.arithmetic import bits_of
from alpha.expressions.integers import IntegerOperations

_EXACT = 1 << 51
"""Below, the quotient of two integers of 64 bits as float64 rounds down to the integers' own."""


class Integers(IntegerOperations, Lanes):
    """Vectors of ``count`` integers, which stand where ``Lanes`` has floats."""

    def __init__(self, element: Element, count: int, text: Text) -> None:
        super().__init__(element.bits, count, False, text)
        self.scalar, self.floats, self.suffix = element.scalar, self.ints, f"v{count}{element.suffix}"
        self.is_signed = element.kind == SIGNED

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

    def bitwise(self, operation: str, x: Value, y: Value) -> Value:
        if operation == "shr":
            operation = "ashr" if self.is_signed else "lshr"
        return self.integers(operation, x, y)

    def quotient(self, x: Value, y: Value) -> Value:
        wide = Lanes(32 if self.bits == 8 else 64, self.count, False, self.text)
        if self.bits == 64:
            bits = _whole(wide, wide.from_small_ints(x), wide.from_small_ints(y))
            found = self.write(f"bitcast {wide.ints} {bits} to {self.ints}")
            return _long(self, x, y, self.sub(found, self.integer(bits_of(1.5 * 2.0**52, 64))))
        convert = "sitofp" if self.is_signed else "uitofp"
        dividend, divisor = (self.write(f"{convert} {self.ints} {value} to {wide.floats}") for value in (x, y))
        # The last bits of the sum are the integer's, which wrap.
        return self.write(f"trunc {wide.ints} {_whole(wide, dividend, divisor)} to {self.ints}")

    def power(self, x: Value, y: Value) -> Value:
        """x to a power >= 0, by squaring."""
        self.text.functions["power"] = _POWER.format(
            ints=self.ints, masks=self.masks, bits=f"i{self.count}", zero=self.integer(0), one=self.integer(1)
        )
        return self.write(f"call {self.ints} @power({self.ints} {x}, {self.ints} {y})")


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
