"""What loops and kernels are made of: operations on floats and on integers, each engine's in its own language."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

Value = Any
"""The name of a value in an engine's language or a constant, as text; or an array (``alpha.expressions.arrays``)."""


class Operations(ABC):
    """Writes operations on numbers of one kind, and on masks; a value may be one number or a vector."""

    # -- constants -----------------------------------------------------------------------------------------------

    @abstractmethod
    def number(self, value: float) -> Value:
        """A number, rounded to the dtype."""

    @abstractmethod
    def integer(self, value: int) -> Value:
        """An integer of as many bits as the numbers."""

    # -- numbers -------------------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, x: Value, y: Value) -> Value:
        """x + y."""

    @abstractmethod
    def sub(self, x: Value, y: Value) -> Value:
        """x - y."""

    @abstractmethod
    def mul(self, x: Value, y: Value) -> Value:
        """x * y."""

    @abstractmethod
    def neg(self, x: Value) -> Value:
        """-x."""

    # -- masks ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def compare(self, condition: str, x: Value, y: Value) -> Value:
        """A comparison by the name that LLVM has for it, of integers without their sign."""

    @abstractmethod
    def select(self, mask: Value, x: Value, y: Value) -> Value:
        """x where a mask holds, else y."""

    @abstractmethod
    def logical(self, operation: str, x: Value, y: Value) -> Value:
        """and, or, xor of masks."""

    @abstractmethod
    def inverted(self, mask: Value) -> Value:
        """Where a mask does not hold."""


class Arithmetic(Operations):
    """Writes operations on floats of ``bits``. Comparisons: "olt" is less and neither NaN, "ult" less or either NaN.

    Each operation is rounded by itself: none may be reordered or contracted, and only ``fma`` rounds once for two. So
    a function written through it has the same bits on every engine that multiplies and adds in one rounding.
    """

    def __init__(self, bits: int, fused: bool) -> None:
        """``fused``: whether the processor multiplies and adds in one rounding."""
        self.bits, self.fused = bits, fused
        self.mantissa, self.bias = (23, 127) if bits == 32 else (52, 1023)

    # -- floats --------------------------------------------------------------------------------------------------

    @abstractmethod
    def div(self, x: Value, y: Value) -> Value:
        """x / y."""

    @abstractmethod
    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z in one rounding, where the processor can."""

    @abstractmethod
    def call(self, function: str, *operands: Value) -> Value:
        """One of fabs, sqrt, floor, ceil, trunc, rint, copysign: all are exact, or rounded once."""

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """A polynomial by its coefficients from the constant on, by Horner's rule."""
        value = self.number(coefficients[-1])
        for c in coefficients[-2::-1]:
            value = self.fma(value, x, self.number(c))
        return value

    @abstractmethod
    def wider(self) -> Arithmetic:
        """The arithmetic of float64, beside that of float32."""

    @abstractmethod
    def extended(self, x: Value) -> Value:
        """A float32 as a float64."""

    @abstractmethod
    def shortened(self, x: Value) -> Value:
        """A float64 rounded to float32."""

    def limited(self, x: Value, low: float | None, high: float | None) -> Value:
        """x between two numbers; NaN stays."""
        if low is not None:
            x = self.select(self.compare("olt", x, self.number(low)), self.number(low), x)
        if high is not None:
            x = self.select(self.compare("ogt", x, self.number(high)), self.number(high), x)
        return x

    # -- integers ------------------------------------------------------------------------------------------------

    @abstractmethod
    def as_ints(self, x: Value) -> Value:
        """The bits of floats."""

    @abstractmethod
    def as_floats(self, x: Value) -> Value:
        """The floats of bits."""

    @abstractmethod
    def integers(self, operation: str, x: Value, y: Value) -> Value:
        """add, sub, and, or, xor, shl, lshr, ashr; they wrap."""

    @abstractmethod
    def differ(self, x: Value, y: Value) -> Value:
        """Where two integers differ."""

    def power_of_two(self, n: Value) -> Value:
        """2 ** n for integers n within the exponents of normal numbers."""
        biased = self.integers("add", n, self.integer(self.bias))
        return self.as_floats(self.integers("shl", biased, self.integer(self.mantissa)))

    def nearest(self, x: Value, factor: float) -> tuple[Value, Value]:
        """The integer nearest to x * factor, as a float and as an integer; |x * factor| is less than 2 ** 21.

        A float of 1.5 * 2 ** 23 (52 in float64) has its last digit at 1: what is added to it is rounded.
        """
        shift = self.number(1.5 * 2.0**self.mantissa)
        shifted = self.fma(x, self.number(factor), shift)
        return self.sub(shifted, shift), self.integers("sub", self.as_ints(shifted), self._shift_bits())

    def from_small_ints(self, n: Value) -> Value:
        """Integers below 2 ** 21 as floats: processors without AVX-512 have no instruction for 64 bits."""
        shifted = self.as_floats(self.integers("add", n, self._shift_bits()))
        return self.sub(shifted, self.number(1.5 * 2.0**self.mantissa))

    def _shift_bits(self) -> Value:
        return self.integer(bits_of(1.5 * 2.0**self.mantissa, self.bits))

    # -- what few values need ------------------------------------------------------------------------------------

    @abstractmethod
    def turned(self, x: Value, large: Value, n: Value, r: Value) -> tuple[Value, Value]:
        """n and r, but where a mask holds the quarter turns in the angle x and its rest, by all digits of 2 / pi."""

    @abstractmethod
    def divided(self, x: Value, y: Value, long: Value, rest: Value) -> Value:
        """The rest, but where a mask holds C's fmod of x and y by a long division of integers."""


def rounded(value: float) -> float:
    """The nearest float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def bits_of(value: float, bits: int) -> int:
    """The bits of a float as an integer."""
    kinds = ("<f", "<i") if bits == 32 else ("<d", "<q")
    return int(struct.unpack(kinds[1], struct.pack(kinds[0], value))[0])
