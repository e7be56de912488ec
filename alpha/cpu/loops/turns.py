"""Large angles: what is left of them after whole quarter turns, by enough digits of 2 / pi. Payne & Hanek, 1983."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

_WORDS = 22
"""Words of 64 bits: one of zeros, and 2 / pi as far as float64's largest numbers reach."""

_ONE = """
define internal {{ i32, double }} @turn(double %x) noinline {{
entry:
  %bits = bitcast double %x to i64
  %shifted = lshr i64 %bits, 52
  %exponent = and i64 %shifted, 2047
  %low = and i64 %bits, 4503599627370495
  %mantissa = or i64 %low, 4503599627370496
  ; x = mantissa * 2 ** (exponent - 1075). Digits of 2 / pi that make only whole turns are left out.
  %first = sub i64 %exponent, 1013
  %word = lshr i64 %first, 6
  %offset = and i64 %first, 63
  %base = ptrtoint {pointer_to_table} @two_over_pi to i64
  %skipped = shl i64 %word, 3
  %a0 = add i64 %base, %skipped
  %a1 = add i64 %a0, 8
  %a2 = add i64 %a0, 16
  %a3 = add i64 %a0, 24
  %p0 = inttoptr i64 %a0 to {pointer}
  %p1 = inttoptr i64 %a1 to {pointer}
  %p2 = inttoptr i64 %a2 to {pointer}
  %p3 = inttoptr i64 %a3 to {pointer}
  %w0 = load i64, {pointer} %p0
  %w1 = load i64, {pointer} %p1
  %w2 = load i64, {pointer} %p2
  %w3 = load i64, {pointer} %p3
  %e0 = zext i64 %w0 to i256
  %e1 = zext i64 %w1 to i256
  %e2 = zext i64 %w2 to i256
  %e3 = zext i64 %w3 to i256
  %s0 = shl i256 %e0, 192
  %s1 = shl i256 %e1, 128
  %s2 = shl i256 %e2, 64
  %j0 = or i256 %s0, %s1
  %j1 = or i256 %s2, %e3
  %joined = or i256 %j0, %j1
  %wide_offset = zext i64 %offset to i256
  %aligned = shl i256 %joined, %wide_offset
  %upper = lshr i256 %aligned, 64
  %digits = trunc i256 %upper to i192
  %factor = zext i64 %mantissa to i192
  ; The first two digits count quarter turns, the others are the rest in quarter turns.
  %product = mul i192 %factor, %digits
  %high = lshr i192 %product, 190
  %whole = trunc i192 %high to i32
  %rest = shl i192 %product, 2
  %nearer_next = icmp slt i192 %rest, 0
  %one_more = zext i1 %nearer_next to i32
  %count = add i32 %whole, %one_more
  %negated = sub i192 0, %rest
  %size = select i1 %nearer_next, i192 %negated, i192 %rest
  %zeros = call i192 @llvm.ctlz.i192(i192 %size, i1 false)
  %normal = shl i192 %size, %zeros
  %top = lshr i192 %normal, 128
  %leading = trunc i192 %top to i64
  %number = uitofp i64 %leading to double
  %few_zeros = trunc i192 %zeros to i64
  %scale_exponent = sub i64 959, %few_zeros
  %scale_bits = shl i64 %scale_exponent, 52
  %scale = bitcast i64 %scale_bits to double
  %fraction = fmul double %number, %scale
  %angle = fmul double %fraction, 0x3FF921FB54442D18
  %minus = fneg double %angle
  %signed = select i1 %nearer_next, double %minus, double %angle
  %below = icmp slt i64 %bits, 0
  %mirrored = fneg double %signed
  %mirrored_count = sub i32 0, %count
  %r = select i1 %below, double %mirrored, double %signed
  %n = select i1 %below, i32 %mirrored_count, i32 %count
  %finite = icmp ult i64 %exponent, 2047
  %angle_or_nan = select i1 %finite, double %r, double 0x7FF8000000000000
  %part = insertvalue {{ i32, double }} undef, i32 %n, 0
  %both = insertvalue {{ i32, double }} %part, double %angle_or_nan, 1
  ret {{ i32, double }} %both
}}
"""

_ALL = """
define internal {pair} @turn{bits}({floats} %x, {masks} %large, {pair} %given) noinline {{
entry:
  %n0 = extractvalue {pair} %given, 0
  %r0 = extractvalue {pair} %given, 1
  br label %lane
lane:
  %i = phi i32 [ 0, %entry ], [ %next, %after ]
  %n1 = phi {ints} [ %n0, %entry ], [ %n3, %after ]
  %r1 = phi {floats} [ %r0, %entry ], [ %r3, %after ]
  %is_large = extractelement {masks} %large, i32 %i
  br i1 %is_large, label %one, label %after
one:
  %angle = extractelement {floats} %x, i32 %i
  {widen}
  %both = call {{ i32, double }} @turn(double %wide)
  %count = extractvalue {{ i32, double }} %both, 0
  %rest = extractvalue {{ i32, double }} %both, 1
  {narrow}
  %n2 = insertelement {ints} %n1, i{bits} %as_int, i32 %i
  %r2 = insertelement {floats} %r1, {scalar} %as_float, i32 %i
  br label %after
after:
  %n3 = phi {ints} [ %n1, %lane ], [ %n2, %one ]
  %r3 = phi {floats} [ %r1, %lane ], [ %r2, %one ]
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, {count}
  br i1 %more, label %lane, label %done
done:
  %part = insertvalue {pair} undef, {ints} %n3, 0
  %result = insertvalue {pair} %part, {floats} %r3, 1
  ret {pair} %result
}}
"""


def functions(widths: Iterable[int], count: int, pointer: str) -> str:
    """LLVM IR of ``turn``, of one angle, and ``turn32`` and ``turn64``, of the lanes of a mask, as far as asked for.

    Args:
        widths: bits of the angles.
        pointer: what LLVM calls a pointer to an i64.
    """
    kind = "ptr" if pointer == "ptr" else f"[{_WORDS} x i64]*"
    words = ", ".join(f"i64 {word}" for word in _two_over_pi())
    table = f"@two_over_pi = internal constant [{_WORDS} x i64] [{words}]\n"
    declaration = "declare i192 @llvm.ctlz.i192(i192, i1)\n"
    one = _ONE.format(pointer=pointer, pointer_to_table=kind)
    return table + declaration + one + "".join([_of_lanes(bits, count) for bits in sorted(widths)])


def _of_lanes(bits: int, count: int) -> str:
    """LLVM IR of ``turn32`` or ``turn64``."""
    narrow = bits == 32
    return _ALL.format(
        bits=bits,
        count=count,
        scalar="float" if narrow else "double",
        floats=f"<{count} x {'float' if narrow else 'double'}>",
        ints=f"<{count} x i{bits}>",
        masks=f"<{count} x i1>",
        pair=f"{{ <{count} x i{bits}>, <{count} x {'float' if narrow else 'double'}> }}",
        widen="%wide = fpext float %angle to double" if narrow else "%wide = fadd double %angle, -0.0",
        narrow="%as_int = add i32 %count, 0\n  %as_float = fptrunc double %rest to float"
        if narrow
        else "%as_int = sext i32 %count to i64\n  %as_float = fadd double %rest, -0.0",
    )


@cache
def _two_over_pi() -> tuple[int, ...]:
    """The binary digits of 2 / pi in words, after one word of zeros."""
    digits = 64 * _WORDS + 64
    one = 1 << digits

    def arc_tangent(n: int) -> int:
        """The arc tangent of 1 / n, by its series."""
        term = total = one // n
        k = 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    pi = 4 * (4 * arc_tangent(5) - arc_tangent(239))  # Machin, 1706
    fraction = (2 * one << 64 * (_WORDS - 1)) // pi
    return tuple([fraction >> 64 * (_WORDS - 1 - word) & (1 << 64) - 1 for word in range(_WORDS)])
