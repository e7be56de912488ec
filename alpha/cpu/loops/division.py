"""Floats divided at length, in LLVM IR: the lanes whose quotient has more digits than a float.

``alpha.expressions.division`` says when; cu32's form is in kernels/division.cuh.
"""

from __future__ import annotations

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
