"""Floats of 16 bits in loops that compute in float32: bits to numbers, and numbers rounded, ties to even.

A bfloat16 is the upper half of a float32. It is rounded as an integer, since the processor's own instruction takes
numbers below float32's normal ones for 0.
"""

from __future__ import annotations

from alpha.cpu.loops.elements import BRAIN, Element
from alpha.cpu.loops.lanes import Text, Value

_QUIET = 0x40
"""The bit that makes a NaN of a bfloat16 whatever else of its fraction is cut off."""


def extended(text: Text, value: Value, element: Element, count: int) -> Value:
    """Vectors of bits as float32."""
    bits, ints, floats = f"<{count} x i16>", f"<{count} x i32>", f"<{count} x float>"
    if element.kind == BRAIN:
        wide = text.write(f"zext {bits} {value} to {ints}")
        upper = text.write(f"shl {ints} {wide}, {_every(count, 'i32', 16)}")
        return text.write(f"bitcast {ints} {upper} to {floats}")
    numbers = text.write(f"bitcast {bits} {value} to <{count} x half>")
    return text.write(f"fpext <{count} x half> {numbers} to {floats}")


def rounded(text: Text, value: Value, element: Element, count: int) -> Value:
    """Vectors of float32 as the nearest numbers' bits."""
    bits, ints, floats = f"<{count} x i16>", f"<{count} x i32>", f"<{count} x float>"
    if element.kind != BRAIN:
        numbers = text.write(f"fptrunc {floats} {value} to <{count} x half>")
        return text.write(f"bitcast <{count} x half> {numbers} to {bits}")
    whole = text.write(f"bitcast {floats} {value} to {ints}")
    upper = text.write(f"lshr {ints} {whole}, {_every(count, 'i32', 16)}")
    odd = text.write(f"and {ints} {upper}, {_every(count, 'i32', 1)}")
    half = text.write(f"add {ints} {odd}, {_every(count, 'i32', 0x7FFF)}")  # a tie goes up where what is left is odd
    nearest = text.write(f"lshr {ints} {text.write(f'add {ints} {whole}, {half}')}, {_every(count, 'i32', 16)}")
    quiet = text.write(f"or {ints} {upper}, {_every(count, 'i32', _QUIET)}")
    is_none = text.write(f"fcmp uno {floats} {value}, {value}")
    chosen = text.write(f"select <{count} x i1> {is_none}, {ints} {quiet}, {ints} {nearest}")
    return text.write(f"trunc {ints} {chosen} to {bits}")


def _every(count: int, kind: str, value: int) -> Value:
    """A constant in every lane."""
    return "<" + ", ".join([f"{kind} {value}"] * count) + ">"
