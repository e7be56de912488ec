"""Division with a remainder, of floats: exact however large the quotient is, so that its bits are the same everywhere.

Where the quotient has fewer digits than a float, one product and one sum give the remainder; in the few other lanes a
long division of integers does.
"""

from __future__ import annotations

import math

from alpha.expressions.arithmetic import Arithmetic, Value


def remainder(v: Arithmetic, x: Value, y: Value) -> Value:
    """x - floor(x / y) * y: it has y's sign, but a zero has that of x."""
    rest = _truncated(v, x, y)
    return v.select(_falls_short(v, rest, y), v.add(rest, y), rest)


def floor_divide(v: Arithmetic, x: Value, y: Value) -> Value:
    """floor(x / y), of the exact quotient; x / y where y is 0."""
    rest = _truncated(v, x, y)
    zero, one, plain = v.number(0.0), v.number(1.0), v.div(x, y)
    quotient = v.div(v.sub(x, rest), y)
    quotient = v.select(_falls_short(v, rest, y), v.sub(quotient, one), quotient)
    whole = v.call("floor", quotient)  # beyond a float's digits the division above has rounded
    whole = v.select(v.compare("ogt", v.sub(quotient, whole), v.number(0.5)), v.add(whole, one), whole)
    whole = v.select(v.compare("oeq", quotient, zero), v.call("copysign", zero, plain), whole)
    return v.select(v.compare("oeq", y, zero), plain, whole)


def _falls_short(v: Arithmetic, rest: Value, y: Value) -> Value:
    """Whether a remainder with x's sign is not one with y's."""
    zero = v.number(0.0)
    differ = v.logical("xor", v.compare("olt", rest, zero), v.compare("olt", y, zero))
    return v.logical("and", differ, v.compare("one", rest, zero))


def _truncated(v: Arithmetic, x: Value, y: Value) -> Value:
    """C's fmod: x - trunc(x / y) * y, with x's sign; NaN where x is infinite or y is 0."""
    quotient = v.call("trunc", v.div(x, y))
    size, divisor = v.call("fabs", x), v.call("fabs", y)
    rest = _rest(v, x, quotient, y)
    # The division may have rounded up to the next whole number: then the rest has the other sign, and lacks one y.
    toward_x = v.mul(rest, v.call("copysign", v.number(1.0), x))
    more = v.add(rest, v.call("copysign", divisor, x))
    rest = v.select(v.compare("olt", toward_x, v.number(0.0)), more, rest)
    rest = v.call("copysign", v.select(v.compare("olt", size, divisor), x, rest), x)
    # Without a fused multiplication no quotient of float64 is small enough.
    digits = 0.0 if v.bits == 64 and not v.fused else 2.0 ** (v.mantissa - 1)
    long = v.compare("oge", v.call("fabs", quotient), v.number(digits))
    finite = v.compare("olt", size, v.number(math.inf))
    divides = v.compare("ogt", divisor, v.number(0.0))
    beyond = v.compare("oge", size, divisor)
    for condition in (finite, divides, beyond):
        long = v.logical("and", long, condition)
    return v.divided(x, y, long, rest)


def _rest(v: Arithmetic, x: Value, quotient: Value, y: Value) -> Value:
    """x - quotient * y, which is exact for a quotient of fewer digits than a float has."""
    if v.fused or v.bits == 64:
        return v.fma(v.neg(quotient), y, x)
    w = v.wider()
    return v.shortened(w.sub(v.extended(x), w.mul(v.extended(quotient), v.extended(y))))


_ONE = """
define internal double @divide(double %x, double %y) noinline {
entry:
  %x_bits = bitcast double %x to i64
  %y_bits = bitcast double %y to i64
  %x_shifted = lshr i64 %x_bits, 52
  %y_shifted = lshr i64 %y_bits, 52
  %x_field = and i64 %x_shifted, 2047
  %y_field = and i64 %y_shifted, 2047
  %x_low = and i64 %x_bits, 4503599627370495
  %y_low = and i64 %y_bits, 4503599627370495
  %x_normal = or i64 %x_low, 4503599627370496
  %y_normal = or i64 %y_low, 4503599627370496
  %x_is_small = icmp eq i64 %x_field, 0
  %y_is_small = icmp eq i64 %y_field, 0
  ; x = x_mantissa * 2 ** (x_exponent - 1075), and so y.
  %x_mantissa = select i1 %x_is_small, i64 %x_low, i64 %x_normal
  %y_mantissa = select i1 %y_is_small, i64 %y_low, i64 %y_normal
  %x_exponent = select i1 %x_is_small, i64 1, i64 %x_field
  %y_exponent = select i1 %y_is_small, i64 1, i64 %y_field
  %first_left = sub i64 %x_exponent, %y_exponent
  %first = urem i64 %x_mantissa, %y_mantissa
  br label %digits
digits:
  %rest = phi i64 [ %first, %entry ], [ %next, %more ]
  %left = phi i64 [ %first_left, %entry ], [ %next_left, %more ]
  %goes_on = icmp sgt i64 %left, 0
  br i1 %goes_on, label %more, label %done
more:
  %is_few = icmp slt i64 %left, 11
  %step = select i1 %is_few, i64 %left, i64 11
  %longer = shl i64 %rest, %step
  %next = urem i64 %longer, %y_mantissa
  %next_left = sub i64 %left, %step
  br label %digits
done:
  ; The power of two in halves: it may be smaller than the least normal number.
  %number = uitofp i64 %rest to double
  %power = sub i64 %y_exponent, 1075
  %half = ashr i64 %power, 1
  %other = sub i64 %power, %half
  %half_field = add i64 %half, 1023
  %other_field = add i64 %other, 1023
  %half_bits = shl i64 %half_field, 52
  %other_bits = shl i64 %other_field, 52
  %half_scale = bitcast i64 %half_bits to double
  %other_scale = bitcast i64 %other_bits to double
  %scaled = fmul double %number, %half_scale
  %size = fmul double %scaled, %other_scale
  %minus = fneg double %size
  %below = icmp slt i64 %x_bits, 0
  %signed = select i1 %below, double %minus, double %size
  ret double %signed
}
"""

_LANES = """
define internal {floats} @divide{bits}({floats} %x, {floats} %y, {masks} %long, {floats} %given) noinline {{
entry:
  br label %lane
lane:
  %i = phi i32 [ 0, %entry ], [ %next, %after ]
  %before = phi {floats} [ %given, %entry ], [ %now, %after ]
  %is_long = extractelement {masks} %long, i32 %i
  br i1 %is_long, label %one, label %after
one:
  %dividend = extractelement {floats} %x, i32 %i
  %divisor = extractelement {floats} %y, i32 %i
  {call}
  %changed = insertelement {floats} %before, {scalar} %rest, i32 %i
  br label %after
after:
  %now = phi {floats} [ %before, %lane ], [ %changed, %one ]
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, {count}
  br i1 %more, label %lane, label %done
done:
  ret {floats} %now
}}
"""


def functions(bits: int, count: int) -> str:
    """LLVM IR of ``divide``, of one pair, and ``divide32`` or ``divide64``, of the lanes of a mask."""
    call = "%rest = call double @divide(double %dividend, double %divisor)"
    if bits == 32:
        call = """%wide_dividend = fpext float %dividend to double
  %wide_divisor = fpext float %divisor to double
  %wide_rest = call double @divide(double %wide_dividend, double %wide_divisor)
  %rest = fptrunc double %wide_rest to float"""
    scalar = "float" if bits == 32 else "double"
    floats, masks = f"<{count} x {scalar}>", f"<{count} x i1>"
    return _ONE + _LANES.format(bits=bits, count=count, scalar=scalar, floats=floats, masks=masks, call=call)
