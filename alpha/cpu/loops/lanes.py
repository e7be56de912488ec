"""Lanes: LLVM IR, as text, of operations on one vector of floats."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Value = str
"""A name of LLVM's, or a constant."""


class Text:
    """The instructions of one function, as they are written.

    Attributes:
        lines: the instructions.
        declarations: of the functions of LLVM's that they call.
        turns: the bits of the floats whose angles they reduce by ``turns``.
        divisions: the bits of the floats that they divide by ``division``.
        block: the label of the block that is being written.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.turns: set[int] = set()
        self.divisions: set[int] = set()
        self.block = "entry"
        self.written: dict[str, Value] = {}
        self.results: dict[str, Value] = {}
        self._count = 0

    def name(self) -> Value:
        """A new name of a value."""
        self._count += 1
        return f"%v{self._count}"

    def new_label(self) -> str:
        """A new name of a block."""
        self._count += 1
        return f"b{self._count}"

    def write(self, instruction: str) -> Value:
        """The value of an instruction without side effects; one written before serves again."""
        found = self.written.get(instruction)
        if found is None:
            found = self.written[instruction] = self.name()
            self.lines.append(f"{found} = {instruction}")
        return found

    def act(self, instruction: str) -> None:
        """An instruction for its effect, or one that must stand here."""
        self.lines.append(instruction)

    def label(self, name: str) -> None:
        """Begins a block that all that is written comes through."""
        self.lines.append(f"{name}:")
        self.block = name

    def forget(self) -> None:
        """From here on nothing that was written serves again: the block may be reached another way."""
        self.written.clear()
        self.results.clear()


class Lanes:
    """Vectors of ``count`` floats of ``bits`` (of 8: of bools alone), and what can be done with them.

    No operation may be reordered or contracted, except where ``fma`` says so: the bits follow from the program alone.
    """

    def __init__(self, bits: int, count: int, fused: bool, text: Text) -> None:
        """``fused``: whether the processor multiplies and adds in one rounding."""
        self.bits, self.count, self.fused, self.text = bits, count, fused, text
        self.scalar = "double" if bits == 64 else "float"
        self.floats = f"<{count} x {self.scalar}>"
        self.ints = f"<{count} x i{bits}>"
        self.masks = f"<{count} x i1>"
        self.suffix = f"v{count}f{bits}"
        self.mantissa, self.bias = (23, 127) if bits == 32 else (52, 1023)
        self.write = text.write

    # -- constants -----------------------------------------------------------------------------------------------

    def number(self, value: float) -> Value:
        """A float, rounded to the dtype, in every lane."""
        text = scalar(value, self.bits)
        return "<" + ", ".join([f"{self.scalar} {text}"] * self.count) + ">"

    def integer(self, value: int) -> Value:
        """An integer in every lane."""
        return "<" + ", ".join([f"i{self.bits} {value}"] * self.count) + ">"

    # -- floats --------------------------------------------------------------------------------------------------

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        return self.write(f"fadd {self.floats} {x}, {y}")

    def sub(self, x: Value, y: Value) -> Value:
        """x - y."""
        return self.write(f"fsub {self.floats} {x}, {y}")

    def mul(self, x: Value, y: Value) -> Value:
        """x * y."""
        return self.write(f"fmul {self.floats} {x}, {y}")

    def div(self, x: Value, y: Value) -> Value:
        """x / y."""
        return self.write(f"fdiv {self.floats} {x}, {y}")

    def neg(self, x: Value) -> Value:
        """-x."""
        return self.write(f"fneg {self.floats} {x}")

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z in one rounding, where the processor can."""
        if not self.fused:
            return self.add(self.mul(x, y), z)
        return self.call("fma", x, y, z)

    def call(self, intrinsic: str, *operands: Value) -> Value:
        """A function of LLVM's of floats."""
        name = f"llvm.{intrinsic}.{self.suffix}"
        self.text.declarations.add(f"declare {self.floats} @{name}({', '.join([self.floats] * len(operands))})")
        return self.write(f"call {self.floats} @{name}({', '.join(f'{self.floats} {x}' for x in operands)})")

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """A polynomial by its coefficients from the constant on, by Horner's rule."""
        value = self.number(coefficients[-1])
        for c in coefficients[-2::-1]:
            value = self.fma(value, x, self.number(c))
        return value

    # -- masks ---------------------------------------------------------------------------------------------------

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        """LLVM's fcmp: "olt" is less and neither NaN, "ult" less or either NaN."""
        return self.write(f"fcmp {condition} {self.floats} {x}, {y}")

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        """x where a mask holds, else y."""
        return self.write(f"select {self.masks} {mask}, {self.floats} {x}, {self.floats} {y}")

    def limited(self, x: Value, low: float | None, high: float | None) -> Value:
        """x between two numbers; NaN stays."""
        if low is not None:
            x = self.select(self.compare("olt", x, self.number(low)), self.number(low), x)
        if high is not None:
            x = self.select(self.compare("ogt", x, self.number(high)), self.number(high), x)
        return x

    # -- integers ------------------------------------------------------------------------------------------------

    def as_ints(self, x: Value) -> Value:
        """The bits of floats."""
        return self.write(f"bitcast {self.floats} {x} to {self.ints}")

    def as_floats(self, x: Value) -> Value:
        """The floats of bits."""
        return self.write(f"bitcast {self.ints} {x} to {self.floats}")

    def integers(self, operation: str, x: Value, y: Value) -> Value:
        """add, sub, and, or, xor, shl, lshr, ashr."""
        return self.write(f"{operation} {self.ints} {x}, {y}")

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


def scalar(value: float, bits: int) -> str:
    """A float as LLVM writes it: the bits of the double of the same value."""
    if bits == 32:
        value = rounded(value)
    return "0x" + struct.pack(">d", value).hex().upper()


def rounded(value: float) -> float:
    """The nearest float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def bits_of(value: float, bits: int) -> int:
    """The bits of a float as an integer."""
    kinds = ("<f", "<i") if bits == 32 else ("<d", "<q")
    return int(struct.unpack(kinds[1], struct.pack(kinds[0], value))[0])
