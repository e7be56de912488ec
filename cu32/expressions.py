"""Point-wise programs as CUDA C++: one kernel for each program and way in which tensors lie.

Every operation is rounded by itself, by CUDA's functions that the compiler does not contract, and the elementary
functions are those of the CPU's loops: results have the bits that the CPU engine gives with fused multiply-adds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from alpha.cu32.compiler import Source
from alpha.cu32.strided import LOOP_OPERANDS
from alpha.errors import EngineError
from alpha.expressions.arithmetic import Arithmetic, Value, bits_of, rounded
from alpha.expressions.elementary import FUNCTIONS
from alpha.expressions.program import Program

STRIDED, DENSE, SAME = "strided", "dense", "same"
"""How a tensor lies along the innermost axis: in any way; one element after the other; one for all of them."""

SHORT = 40
"""Statements up to which a thread computes two steps at a time: longer programs have enough to do in one."""

TWICE = 8
"""Tensors up to which it does: beyond, the elements of one step are enough on their way."""

_NAME_LENGTH = 48


@dataclass(frozen=True)
class Layout:
    """What a kernel is made for, beside its program.

    Attributes:
        real: what it computes in, by its name in C++: a float, or what a conversion makes.
        tensors: for each tensor its dtype's name and how it lies. Where one is STRIDED all are.
        is_flat: whether they are runs of memory, or one element, and all steps of ``width`` elements but the last.
        width: elements of a step.
    """

    real: str
    tensors: tuple[tuple[str, str], ...]
    is_flat: bool
    width: int


class Scalars(Arithmetic):
    """Writes C++ statements on one float."""

    def __init__(self, real: str, lines: list[str]) -> None:
        super().__init__(32 if real == "float" else 64, fused=True)
        self.real, self.whole = real, "int" if self.bits == 32 else "int64"
        self.lines = lines
        self._f, self._rounding = ("f", "f") if self.bits == 32 else ("", "d")
        self._written: dict[tuple[str, str], Value] = {}

    def let(self, kind: str, expression: str) -> Value:
        """The name of an expression's value; one written before serves again."""
        found = self._written.get((kind, expression))
        if found is None:
            found = self._written[kind, expression] = f"v{len(self.lines)}"
            self.lines.append(f"const {kind} {found} = {expression};")
        return found

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
        return self.let(self.real, f"__{self._rounding}add_rn({x}, {y})")

    def sub(self, x: Value, y: Value) -> Value:
        return self.let(self.real, f"__{self._rounding}sub_rn({x}, {y})")

    def mul(self, x: Value, y: Value) -> Value:
        return self.let(self.real, f"__{self._rounding}mul_rn({x}, {y})")

    def div(self, x: Value, y: Value) -> Value:
        return self.let(self.real, f"__{self._rounding}div_rn({x}, {y})")

    def neg(self, x: Value) -> Value:
        return self.let(self.real, f"-({x})")

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.let(self.real, f"__fma{self._f}_rn({x}, {y}, {z})")

    def call(self, function: str, *operands: Value) -> Value:
        name = f"__{self._rounding}sqrt_rn" if function == "sqrt" else f"{function}{self._f}"
        return self.let(self.real, f"{name}({', '.join(operands)})")

    def wider(self) -> Scalars:
        found = Scalars("double", self.lines)
        found._written = self._written
        return found

    def extended(self, x: Value) -> Value:
        return self.let("double", f"(double){x}")

    def shortened(self, x: Value) -> Value:
        return self.let("float", f"__double2float_rn({x})")

    # -- masks ---------------------------------------------------------------------------------------------------

    def compare(self, condition: str, x: Value, y: Value) -> Value:
        return self.let("bool", _CONDITIONS[condition].format(x=x, y=y))

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        return self.let(self.real, f"{mask} ? {x} : {y}")

    def logical(self, operation: str, x: Value, y: Value) -> Value:
        return self.let("bool", f"{x} {_LOGIC[operation]} {y}")

    def inverted(self, mask: Value) -> Value:
        return self.let("bool", f"!{mask}")

    # -- integers ------------------------------------------------------------------------------------------------

    def as_ints(self, x: Value) -> Value:
        return self.let(self.whole, f"{'__float_as_int' if self.bits == 32 else '__double_as_longlong'}({x})")

    def as_floats(self, x: Value) -> Value:
        return self.let(self.real, f"{'__int_as_float' if self.bits == 32 else '__longlong_as_double'}({x})")

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
            self.lines += [f"int64 {found}_turns = {n};", f"{self.real} {found} = {r};"]
            self.lines.append(f"if ({large}) {found} = ({self.real})turn((double){x}, {found}_turns);")
        found = self._written[key]
        return self.let(self.whole, f"({self.whole}){found}_turns"), found

    def divided(self, x: Value, y: Value, long: Value, rest: Value) -> Value:
        """By kernels/division.cuh."""
        key = "divided", f"{x}, {y}"
        if key not in self._written:
            found = self._written[key] = f"v{len(self.lines)}"
            self.lines.append(f"{self.real} {found} = {rest};")
            self.lines.append(f"if ({long}) {found} = ({self.real})divide((double){x}, (double){y});")
        return self._written[key]


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


# -- a kernel --------------------------------------------------------------------------------------------------------


def kernel_name(program: Program, layout: Layout) -> str:
    """The kernel's name: its operations as far as there is room, else what it converts, and a digest of the program."""
    operations = [one.operation for one in program.instructions if one.operation != "constant"]
    name = "_".join(operations) or f"from_{layout.tensors[0][0]}"
    return f"{name[:_NAME_LENGTH].rstrip('_')}_{digest(program)}"


def digest(program: Program) -> str:
    """What tells kernels of different programs apart."""
    return hashlib.sha256(program.text.encode()).hexdigest()[:8]


def source(program: Program, layout: Layout) -> Source:
    """A program's kernel: its arguments are the loop, the results' addresses, the tensors', and the numbers as doubles.

    EngineError where the program has an operation that none is written for.
    """
    body, is_short = statements(program, layout.real)
    offsets = 1 if layout.is_flat else 1 + len(layout.tensors)
    text = _text(program, layout, body, 2 if is_short and program.tensors <= TWICE else 1)
    return Source("pointwise", text=text, REAL=layout.real, WIDTH=layout.width, OFFSETS=offsets)


def _text(program: Program, layout: Layout, body: list[str], steps: int) -> str:
    """The kernel's text around the statements for one element; a thread takes so many steps at a time."""
    tensors = [(f"x{k}", "uint8" if kind == "bool" else kind, lie) for k, (kind, lie) in enumerate(layout.tensors)]
    kinds = ["bool" if is_condition else "T" for is_condition in program.conditions]
    numbers = [f"n{k}" for k in range(program.count_of_numbers)]
    results = [(f"r{k}", "bool" if is_bool else "T") for k, is_bool in enumerate(program.bools)]
    addresses = [*(f"{kind}* {r}" for r, kind in results), *(f"const {kind}* {x}" for x, kind, _ in tensors)]
    operands = [*(r for r, _ in results), *(x for x, _, _ in tensors), *(f"(T){n}" for n in numbers)]
    inputs = [f"{kind} {x}" for kind, (x, _, _) in zip(kinds, tensors, strict=True)]
    parameters = [*inputs, *(f"T {n}" for n in numbers), *(f"{kind}& {r}" for r, kind in results)]
    elements = [
        f"{_conversion(kind, source, layout.real)}values.{x}.at[{'0' if lie == SAME else 'k'}]"
        for kind, (x, source, lie) in zip(kinds, tensors, strict=True)
    ]
    return _KERNEL.format(
        operands=max(LOOP_OPERANDS, 1 + len(tensors)),
        headers=headers(body),
        name=kernel_name(program, layout),
        parameters=", ".join(parameters),
        body=indented(4, body),
        fields=indented(4, [f"{one};" for one in [*addresses, *(f"T {n}" for n in numbers)]]),
        values=indented(8, [f"Pack<{kind}, {_width(lie)}> {x};" for x, kind, lie in tensors]),
        reads=indented(
            8,
            [
                f"values.{x} = neighbours<{_width(lie)}>({x}, {_offset(k, lie, layout.is_flat)});"
                for k, (x, _, lie) in enumerate(tensors)
            ],
        ),
        packs=indented(8, [f"Pack<{kind}, W> {r}_pack;" for r, kind in results]),
        call=", ".join([*elements, *numbers, *(f"{r}_pack.at[k]" for r, _ in results)]),
        stores=indented(8, [f"store({r}, at, {r}_pack);" for r, _ in results]),
        arguments=", ".join([*addresses, *(f"double {n}" for n in numbers)]),
        steps=steps,
        given=", ".join(operands),
    )


def _conversion(kind: str, source: str, real: str) -> str:
    """What converts an element; integers wrap, also those from floats, as those of 64 bits do."""
    wraps = kind == "T" and source in _REALS and real not in (*_REALS, "bool")
    return "(T)(int64)" if wraps else f"({kind})"


_REALS = ("float", "double")

_HEADERS = (("turns.cuh", ")turn("), ("division.cuh", ")divide("))
"""Files of kernels/ that are included where the statements call their functions."""


def indented(indent: int, lines: Iterable[str]) -> str:
    """Lines, each by so many columns further right."""
    return "\n".join(" " * indent + line for line in lines)


def headers(body: Sequence[str]) -> str:
    """The lines that include what statements call."""
    return "".join(f'#include "{file}"\n' for file, call in _HEADERS if any(call in line for line in body))


def statements(program: Program, real: str) -> tuple[list[str], bool]:
    """The statements that compute the results r0, ... from elements x0, ... and numbers n0, ...; whether they are few.

    ``real``: the float that they compute in, by its name in C++. EngineError as ``source``.
    """
    lines: list[str] = []
    scalars = Scalars(real, lines)
    slots = [*(f"x{k}" for k in range(program.tensors)), *(f"n{k}" for k in range(program.count_of_numbers))]
    for one in program.instructions:
        if one.operation == "constant":
            slots.append(scalars.number(one.value))
            continue
        write = FUNCTIONS.get(one.operation)
        if write is None:
            raise EngineError(f"[cu32] expected operations that cu32/expressions.py writes, got {one.operation}")
        slots.append(write(scalars, *[slots[slot] for slot in one.operands]))
    is_short = len(lines) <= SHORT
    lines += [f"r{k} = {slots[slot]};" for k, slot in enumerate(program.results)]
    return lines, is_short


def _width(lie: str) -> str:
    return "1" if lie == SAME else "W"


def _offset(k: int, lie: str, is_flat: bool) -> str:
    """Where a tensor's elements of a step begin."""
    if is_flat:
        return "0" if lie == SAME else "at[0]"
    return f"at[{1 + k}]"


_KERNEL = """\
// A point-wise program, written by cu32/expressions.py. Macros: REAL, the float that it computes in; WIDTH, elements of
// a step; OFFSETS, how many of a step's offsets differ: one in runs of memory, else the results' and each tensor's.
#define OPERANDS {operands}
#include "pointwise.cuh"
{headers}
typedef REAL T;

// The results of one element of each tensor.
__device__ __forceinline__ void element({parameters}) {{
{body}
}}

struct Program {{
{fields}

    template <int W>
    struct Values {{
{values}
    }};

    template <int W>
    __device__ __forceinline__ void read(const int (&at)[OFFSETS], Values<W>& values) const {{
{reads}
    }}

    template <int W>
    __device__ __forceinline__ void write(int at, const Values<W>& values) const {{
{packs}
#pragma unroll
        for (int k = 0; k < W; ++k) element({call});
{stores}
    }}
}};

extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
{name}(const __grid_constant__ Loop loop, {arguments}) {{
    compute<OFFSETS, {steps}>(loop, Program{{{given}}});
}}
"""
