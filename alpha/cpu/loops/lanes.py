"""Lanes: LLVM IR, as text, of operations on one vector of floats."""

from __future__ import annotations

import struct

from alpha.expressions.arithmetic import Arithmetic, rounded

Value = str
"""A name of LLVM's, or a constant."""


class Text:
    """The instructions of one function, as they are written.

    Attributes:
        lines: the instructions.
        declarations: of the functions of LLVM's that they call.
        turns: the bits of the floats whose angles they reduce by ``turns``.
        divisions: the bits of the floats that they divide by ``division``.
        functions: of our own that they call beside these, by name.
        block: the label of the block that is being written.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.turns: set[int] = set()
        self.divisions: set[int] = set()
        self.functions: dict[str, str] = {}
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


def spread(text: Text, value: Value, kind: str, count: int) -> Value:
    """A value of a type in every lane."""
    vector = f"<{count} x {kind}>"
    first = text.write(f"insertelement {vector} undef, {kind} {value}, i32 0")
    return text.write(f"shufflevector {vector} {first}, {vector} undef, <{count} x i32> zeroinitializer")


class Lanes(Arithmetic):
    """Vectors of ``count`` floats of ``bits`` (of 8: of bools alone), and what can be done with them."""

    def __init__(self, bits: int, count: int, fused: bool, text: Text) -> None:
        """``fused``: whether the processor multiplies and adds in one rounding."""
        super().__init__(bits, fused)
        self.count, self.text = count, text
        self.scalar = "double" if bits == 64 else "float"
        self.floats = f"<{count} x {self.scalar}>"
        self.ints = f"<{count} x i{bits}>"
        self.masks = f"<{count} x i1>"
        self.suffix = f"v{count}f{bits}"
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

    def wider(self) -> Lanes:
        return Lanes(64, self.count, self.fused, self.text)

    def extended(self, x: Value) -> Value:
        return self.write(f"fpext {self.floats} {x} to {self.wider().floats}")

    def shortened(self, x: Value) -> Value:
        return self.write(f"fptrunc {self.wider().floats} {x} to {self.floats}")

    # -- masks ---------------------------------------------------------------------------------------------------

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        """LLVM's fcmp: "olt" is less and neither NaN, "ult" less or either NaN."""
        return self.write(f"fcmp {condition} {self.floats} {x}, {y}")

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        """x where a mask holds, else y."""
        return self.write(f"select {self.masks} {mask}, {self.floats} {x}, {self.floats} {y}")

    def logical(self, operation: str, x: Value, y: Value) -> Value:
        return self.write(f"{operation} {self.masks} {x}, {y}")

    def inverted(self, mask: Value) -> Value:
        every = ", ".join(["i1 true"] * self.count)
        return self.write(f"xor {self.masks} {mask}, <{every}>")

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

    def differ(self, x: Value, y: Value) -> Value:
        return self.write(f"icmp ne {self.ints} {x}, {y}")

    # -- what few lanes need -------------------------------------------------------------------------------------

    def turned(self, x: Value, large: Value, n: Value, r: Value) -> tuple[Value, Value]:
        """By ``turns``, which is called where some lane has such an angle."""
        pair = f"{{ {self.ints}, {self.floats} }}"
        parts = f"insertvalue {pair} undef, {self.ints} {n}, 0"
        before = self.write(f"insertvalue {pair} {self.write(parts)}, {self.floats} {r}, 1")
        key = f"turned {x}"
        if key not in self.text.results:
            bits = self.write(f"bitcast {self.masks} {large} to i{self.count}")
            some = self.write(f"icmp ne i{self.count} {bits}, 0")
            here, away, back = self.text.block, self.text.new_label(), self.text.new_label()
            self.text.act(f"br i1 {some}, label %{away}, label %{back}")
            self.text.label(away)
            made = self.text.name()
            arguments = f"{self.floats} {x}, {self.masks} {large}, {pair} {before}"
            self.text.act(f"{made} = call {pair} @turn{self.bits}({arguments})")
            self.text.act(f"br label %{back}")
            self.text.label(back)
            self.text.turns.add(self.bits)
            self.text.results[key] = self.write(f"phi {pair} [ {before}, %{here} ], [ {made}, %{away} ]")
        found = self.text.results[key]
        return self.write(f"extractvalue {pair} {found}, 0"), self.write(f"extractvalue {pair} {found}, 1")

    def divided(self, x: Value, y: Value, long: Value, rest: Value) -> Value:
        """By ``division``, which is called where some lane needs it."""
        key = f"divided {x} {y}"
        if key not in self.text.results:
            bits = self.write(f"bitcast {self.masks} {long} to i{self.count}")
            some = self.write(f"icmp ne i{self.count} {bits}, 0")
            here, away, back = self.text.block, self.text.new_label(), self.text.new_label()
            self.text.act(f"br i1 {some}, label %{away}, label %{back}")
            self.text.label(away)
            made = self.text.name()
            operands = f"{self.floats} {x}, {self.floats} {y}, {self.masks} {long}, {self.floats} {rest}"
            self.text.act(f"{made} = call {self.floats} @divide{self.bits}({operands})")
            self.text.act(f"br label %{back}")
            self.text.label(back)
            self.text.divisions.add(self.bits)
            self.text.results[key] = self.write(f"phi {self.floats} [ {rest}, %{here} ], [ {made}, %{away} ]")
        return self.text.results[key]


def scalar(value: float, bits: int) -> str:
    """A float as LLVM writes it: the bits of the double of the same value."""
    if bits == 32:
        value = rounded(value)
    return "0x" + struct.pack(">d", value).hex().upper()
