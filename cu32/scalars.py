"""Scalars: C++ statements, as text, of operations on one float or one integer."""

from __future__ import annotations

import math

from alpha.dtypes import ALL, info, is_integer, limits
from alpha.expressions.arithmetic import Arithmetic, Operations, Value, bits_of, rounded
from alpha.expressions.integers import IntegerOperations


class Statements(Operations):
    """What the statements on floats and those on integers have in common.

    Attributes:
        kind: of the numbers, by its name in C++.
        lines: the statements.
        has_loops: whether some of them are loops, or as long.
    """

    def __init__(self, kind: str, lines: list[str]) -> None:
        self.kind, self.lines = kind, lines
        self.has_loops = False
        self._written: dict[tuple[str, str], Value] = {}

    def let(self, kind: str, expression: str) -> Value:
        """The name of an expression's value; one written before serves again."""
        found = self._written.get((kind, expression))
        if found is None:
            found = self._written[kind, expression] = f"v{len(self.lines)}"
            self.lines.append(f"const {kind} {found} = {expression};")
        return found

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        return self.let(self.kind, f"{mask} ? {x} : {y}")

    def logical(self, operation: str, x: Value, y: Value) -> Value:
        return self.let("bool", f"{x} {_LOGIC[operation]} {y}")

    def inverted(self, mask: Value) -> Value:
        return self.let("bool", f"!{mask}")


class Floats(Statements, Arithmetic):
    """Writes statements on floats."""

    def __init__(self, kind: str, lines: list[str]) -> None:
        Statements.__init__(self, kind, lines)
        Arithmetic.__init__(self, 32 if kind == "float" else 64, fused=True)
        self.whole = "int" if self.bits == 32 else "int64"
        self._f, self._rounding = ("f", "f") if self.bits == 32 else ("", "d")

    # -- constants -----------------------------------------------------------------------------------------------

    def number(self, value: float) -> Value:
        if self.bits == 32:
            value = rounded(value)
        if math.isfinite(value):
            return f"{value!r}{self._f}"
        bits = f"0x{bits_of(abs(value), self.bits):x}"
        found = f"__int_as_float({bits})" if self.bits == 32 else f"__longlong_as_double({bits}ll)"
        return f"-{found}" if value < 0 else found

    def integer(self, value: int) -> Value:
        return str(value) if self.bits == 32 else f"{value}ll"

    # -- floats --------------------------------------------------------------------------------------------------

    def add(self, x: Value, y: Value) -> Value:
        return self.let(self.kind, f"__{self._rounding}add_rn({x}, {y})")

    def sub(self, x: Value, y: Value) -> Value:
        return self.let(self.kind, f"__{self._rounding}sub_rn({x}, {y})")

    def mul(self, x: Value, y: Value) -> Value:
        return self.let(self.kind, f"__{self._rounding}mul_rn({x}, {y})")

    def div(self, x: Value, y: Value) -> Value:
        return self.let(self.kind, f"__{self._rounding}div_rn({x}, {y})")

    def neg(self, x: Value) -> Value:
        return self.let(self.kind, f"-({x})")

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.let(self.kind, f"__fma{self._f}_rn({x}, {y}, {z})")

    def call(self, function: str, *operands: Value) -> Value:
        name = f"__{self._rounding}sqrt_rn" if function == "sqrt" else f"{function}{self._f}"
        return self.let(self.kind, f"{name}({', '.join(operands)})")

    def wider(self) -> Floats:
        found = Floats("double", self.lines)
        found._written = self._written
        return found

    def extended(self, x: Value) -> Value:
        return self.let("double", f"(double){x}")

    def shortened(self, x: Value) -> Value:
        return self.let("float", f"__double2float_rn({x})")

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        return self.let("bool", _CONDITIONS[condition].format(x=x, y=y))

    # -- integers ------------------------------------------------------------------------------------------------

    def as_ints(self, x: Value) -> Value:
        return self.let(self.whole, f"{'__float_as_int' if self.bits == 32 else '__double_as_longlong'}({x})")

    def as_floats(self, x: Value) -> Value:
        return self.let(self.kind, f"{'__int_as_float' if self.bits == 32 else '__longlong_as_double'}({x})")

    def integers(self, operation: str, x: Value, y: Value) -> Value:
        if operation == "ashr":
            return self.let(self.whole, f"{x} >> {y}")
        unsigned = f"u{self.whole}" if self.bits == 64 else "uint32"  # which wraps
        return self.let(self.whole, f"({self.whole})(({unsigned}){x} {_INTEGERS[operation]} ({unsigned}){y})")

    def differ(self, x: Value, y: Value) -> Value:
        return self.let("bool", f"{x} != {y}")

    # -- what few values need ------------------------------------------------------------------------------------

    def turned(self, x: Value, large: Value, n: Value, r: Value) -> tuple[Value, Value]:
        """By kernels/turns.cuh."""
        key = "turned", x
        if key not in self._written:
            found = self._written[key] = f"v{len(self.lines)}"
            self.lines += [f"int64 {found}_turns = {n};", f"{self.kind} {found} = {r};"]
            self.lines.append(f"if ({large}) {found} = ({self.kind})turn((double){x}, {found}_turns);")
        found = self._written[key]
        return self.let(self.whole, f"({self.whole}){found}_turns"), found

    def divided(self, x: Value, y: Value, long: Value, rest: Value) -> Value:
        """By kernels/division.cuh."""
        key = "divided", f"{x}, {y}"
        if key not in self._written:
            found = self._written[key] = f"v{len(self.lines)}"
            self.lines.append(f"{self.kind} {found} = {rest};")
            self.lines.append(f"if ({long}) {found} = ({self.kind})divide((double){x}, (double){y});")
        return self._written[key]


class Integers(Statements, IntegerOperations):
    """Writes statements on integers, which wrap where their unsigned kin do."""

    def __init__(self, kind: str, lines: list[str]) -> None:
        super().__init__(kind, lines)
        least, most = INTEGERS[kind]
        self.bits, self.is_signed = (most - least).bit_length(), least < 0
        self._wrapping = "uint64" if self.bits == 64 else "uint32"

    def integer(self, value: int) -> Value:
        suffix = "ll" if self.bits == 64 else ""
        if value >= 0:
            return f"{value}{suffix}"
        return f"({value + 1}{suffix} - 1)"  # C++ has no name for the least

    def add(self, x: Value, y: Value) -> Value:
        return self._wrapped(x, "+", y)

    def sub(self, x: Value, y: Value) -> Value:
        return self._wrapped(x, "-", y)

    def mul(self, x: Value, y: Value) -> Value:
        return self._wrapped(x, "*", y)

    def neg(self, x: Value) -> Value:
        return self._wrapped("0", "-", x)

    def _wrapped(self, x: Value, sign: str, y: Value) -> Value:
        return self.let(self.kind, f"({self.kind})(({self._wrapping}){x} {sign} ({self._wrapping}){y})")

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        return self.let("bool", _CONDITIONS["une" if condition == "ne" else f"o{condition}"].format(x=x, y=y))

    def bitwise(self, operation: str, x: Value, y: Value) -> Value:
        if operation == "shr":
            return self.let(self.kind, f"({self.kind})({x} >> {y})")
        return self._wrapped(x, _INTEGERS[operation], y)

    def quotient(self, x: Value, y: Value) -> Value:
        """By kernels/integers.cuh."""
        self.has_loops = True
        return self.let(self.kind, f"quotient<{self.kind}>({x}, {y})")

    def power(self, x: Value, y: Value) -> Value:
        """By kernels/integers.cuh."""
        self.has_loops = True
        return self.let(self.kind, f"power<{self.kind}>({x}, {y})")


INTEGERS = {info(dtype).c_name: (int(limits(dtype)[0]), int(limits(dtype)[1])) for dtype in ALL if is_integer(dtype)}
"""The integers' least and largest, by their names in C++."""


_CONDITIONS = {
    "olt": "{x} < {y}",
    "ole": "{x} <= {y}",
    "ogt": "{x} > {y}",
    "oge": "{x} >= {y}",
    "oeq": "{x} == {y}",
    "one": "({x} < {y}) | ({x} > {y})",
    "uno": "({x} != {x}) | ({y} != {y})",
    "ult": "!({x} >= {y})",
    "ule": "!({x} > {y})",
    "ugt": "!({x} <= {y})",
    "uge": "!({x} < {y})",
    "une": "{x} != {y}",
    "ueq": "!(({x} < {y}) | ({x} > {y}))",
}
_LOGIC = {"and": "&", "or": "|", "xor": "!="}
_INTEGERS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "shl": "<<", "lshr": ">>"}
