"""Point-wise programs as CUDA C++: one kernel for each program and way in which tensors lie.

Every operation is rounded by itself, by CUDA's functions that the compiler does not contract, and the elementary
functions are those of the CPU's loops: results have the bits that the CPU engine gives with fused multiply-adds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alpha.cu32.compiler import Source
from alpha.cu32.scalars import INTEGERS, Floats, Integers
from alpha.cu32.strided import LOOP_OPERANDS
from alpha.dtypes import STORED, TABLE, info, is_complex, is_float, is_integer
from alpha.errors import EngineError
from alpha.expressions import integers, writers
from alpha.expressions.program import Program

STRIDED, DENSE, SAME = "strided", "dense", "same"
"""How a tensor lies along the innermost axis: in any way; one element after the other; one for all of them."""

DRAWN = "drawn"
"""What stands for the dtype of bools that lie nowhere: see ``alpha.expressions.dropout``."""

NOT_COMPUTED = frozenset(info(dtype).c_name for dtype in STORED if not is_complex(dtype))
"""The numbers that are stored but not computed with."""

FRACTIONS = frozenset(info(dtype).c_name for dtype in TABLE if is_float(dtype))
WHOLE = frozenset(info(dtype).c_name for dtype in TABLE if is_integer(dtype))
"""The floats and the integers, by their names in C++."""

SHORT = 40
"""Statements up to which a thread computes two steps at a time: longer programs have enough to do in one."""

TWICE = 8
"""Tensors up to which it does: beyond, the elements of one step are enough on their way."""

_NAME_LENGTH = 48


@dataclass(frozen=True)
class Layout:
    """What a kernel is made for, beside its program.

    Attributes:
        kind: what it computes in, by its name in C++: a float, an integer, or what a conversion makes.
        result: as what it stores that, if as something else.
        tensors: for each tensor its dtype's name, or DRAWN, and how it lies. Where one is STRIDED all are.
        is_flat: whether they are runs of memory, or one element, and all steps of ``width`` elements but the last.
        width: elements of a step.
    """

    kind: str
    tensors: tuple[tuple[str, str], ...]
    is_flat: bool
    width: int
    result: str = ""


# -- a kernel --------------------------------------------------------------------------------------------------------


def kernel_name(program: Program, layout: Layout) -> str:
    """The kernel's name: its operations as far as there is room, else what it converts, and a digest of the program.

    Then, where there are numbers that are not computed with, what the tensors and the results are.
    """
    operations = [one.operation for one in program.instructions if one.operation != "constant"]
    name = "_".join(operations) or f"from_{layout.tensors[0][0]}"
    kinds = [kind for kind, _ in layout.tensors] + [layout.result] * bool(layout.result)
    stored = "".join(f"_{kind}" for kind in kinds) if operations and _is_stored(layout) else ""
    return f"{name[:_NAME_LENGTH].rstrip('_')}_{digest(program)}{stored}"


def family(program: Program, layout: Layout) -> str:
    """The name of the kernels that are checked together on a device: see ``alpha.cu32.selfcheck``."""
    if is_drawn(layout):
        return "dropout"
    if _is_stored(layout):
        return "converted"
    return "integers" if layout.kind in INTEGERS and program.instructions else "pointwise"


def is_drawn(layout: Layout) -> bool:
    """Whether one of the tensors is drawn."""
    return any(source == DRAWN for source, _ in layout.tensors)


def digest(program: Program) -> str:
    """What tells kernels of different programs apart."""
    return hashlib.sha256(program.text.encode()).hexdigest()[:8]


def source(program: Program, layout: Layout) -> Source:
    """A program's kernel.

    Its arguments are the loop, the results' addresses, the tensors', and the numbers: as doubles, or int64 where it
    computes in integers. Behind them stand, where a tensor is drawn, the draw's place by value, where that lies which
    counts instead, and the threshold that a kept word reaches.

    EngineError where the program has an operation that none is written for.
    """
    body, is_short = statements(program, layout.kind)
    offsets = 1 if layout.is_flat else 1 + len(layout.tensors)
    text = _text(program, layout, body, 2 if is_short and program.tensors <= TWICE else 1)
    name = family(program, layout)
    return Source(name, text=text, REAL=layout.kind, WIDTH=layout.width, OFFSETS=offsets)


class _Tensor(NamedTuple):
    """A tensor in a kernel's text.

    Attributes:
        name: also that of its elements in a step.
        stored: what lies in memory, by its name in C++, or DRAWN.
        wanted: what the program takes: bool, or T, which it computes in.
        wraps: whether an element goes through int64, so that floats wrap as integers do.
        spacing: how its elements lie along the innermost axis.
        offset: where its elements of a step begin.
    """

    name: str
    stored: str
    wanted: str
    wraps: bool
    spacing: str
    offset: str

    @property
    def is_drawn(self) -> bool:
        """Whether its elements lie nowhere."""
        return self.stored == DRAWN

    @property
    def pointer(self) -> str:
        """The declaration of its address."""
        return f"const {self.stored}* {self.name}"

    @property
    def width(self) -> str:
        """How many of its elements a step of W reads."""
        return "1" if self.spacing == SAME else "W"

    @property
    def pack(self) -> str:
        """The declaration of its elements of a step."""
        return f"Pack<{'bool' if self.is_drawn else self.stored}, {self.width}> {self.name};"

    @property
    def read(self) -> str:
        """The statement that reads or draws them."""
        function = "drawn" if self.is_drawn else "neighbours"
        return f"values.{self.name} = {function}<{self.width}>({self.name}, {self.offset});"

    @property
    def element(self) -> str:
        """Element k of a step, as it is wanted."""
        place = "0" if self.spacing == SAME else "k"
        return f"({self.wanted}){'(int64)' if self.wraps else ''}values.{self.name}.at[{place}]"


def _tensors(program: Program, layout: Layout) -> list[_Tensor]:
    found = []
    for k, ((dtype, spacing), is_condition) in enumerate(zip(layout.tensors, program.conditions, strict=True)):
        offset = f"at[{1 + k}]" if not layout.is_flat else "0" if spacing == SAME else "at[0]"
        stored, wanted = "uint8" if dtype == "bool" else dtype, "bool" if is_condition else "T"
        wraps = stored in FRACTIONS and layout.kind in WHOLE
        found.append(_Tensor(f"x{k}", stored, wanted, wraps, spacing, offset))
    return found


def _text(program: Program, layout: Layout, body: list[str], steps: int) -> str:
    """The kernel's text around the statements for one element; a thread takes so many steps at a time."""
    tensors = _tensors(program, layout)
    numbers = [f"n{k}" for k in range(program.count_of_numbers)]
    results = [(f"r{k}", "bool" if is_bool else "T") for k, is_bool in enumerate(program.bools)]
    stored = [(r, kind if kind == "bool" else layout.result or kind) for r, kind in results]
    inputs = [f"{x.wanted} {x.name}" for x in tensors]
    pointers = [f"{kind}* {r}" for r, kind in stored]
    fields = [*pointers, *(f"Draw {x.name}" if x.is_drawn else x.pointer for x in tensors)]
    fields += [f"T {n}" for n in numbers]
    return _KERNEL.format(
        operands=max(LOOP_OPERANDS, 1 + len(tensors)),
        headers=_include("drawn.cuh") * is_drawn(layout) + _include("stored.cuh") * _is_stored(layout) + headers(body),
        name=kernel_name(program, layout),
        parameters=", ".join([*inputs, *(f"T {n}" for n in numbers), *(f"{kind}& {r}" for r, kind in results)]),
        body=indented(4, body),
        fields=indented(4, [f"{one};" for one in fields]),
        values=indented(8, [x.pack for x in tensors]),
        reads=indented(8, [x.read for x in tensors]),
        packs=indented(8, [f"Pack<{kind}, W> {r}_pack;" for r, kind in stored]),
        call=_call([x.element for x in tensors] + numbers, results, stored),
        stores=indented(8, [f"store({r}, at, {r}_pack);" for r, _ in results]),
        arguments=", ".join([*pointers, *_arguments(tensors, numbers, layout)]),
        steps=steps,
        given=", ".join([*(r for r, _ in results), *map(_operand, tensors), *(f"(T){n}" for n in numbers)]),
    )


def _call(operands: Sequence[str], results: Sequence[tuple[str, str]], stored: Sequence[tuple[str, str]]) -> str:
    """The statement that computes element k of a step; results that are stored as something else are converted."""
    made = [f"{r}_pack.at[k]" if kind == of else r for (r, kind), (_, of) in zip(results, stored, strict=True)]
    call = f"element({', '.join([*operands, *made])});"
    others = [(r, kind, of) for (r, kind), (_, of) in zip(results, stored, strict=True) if kind != of]
    if not others:
        return call
    declared = "".join(f"{kind} {r}; " for r, kind, _ in others)
    return f"{{ {declared}{call} {' '.join(f'{r}_pack.at[k] = ({of}){r};' for r, _, of in others)} }}"


def _is_stored(layout: Layout) -> bool:
    """Whether there are numbers that C++ knows by ``stored.cuh``."""
    return not NOT_COMPUTED.isdisjoint({layout.kind, layout.result, *[kind for kind, _ in layout.tensors]})


def _arguments(tensors: Sequence[_Tensor], numbers: Sequence[str], layout: Layout) -> list[str]:
    """The declarations of the kernel's arguments behind the results' addresses."""
    number = "int64" if layout.kind in INTEGERS else "double"
    given = [f"int64 {x.name}" if x.is_drawn else x.pointer for x in tensors]
    draw = ["Place given", "const Place* live", "uint32 threshold"] if is_drawn(layout) else []
    return [*given, *(f"{number} {n}" for n in numbers), *draw]


def _operand(x: _Tensor) -> str:
    """A tensor as the kernel hands it on."""
    return f"Draw{{live ? *live : given, {x.name}, threshold}}" if x.is_drawn else x.name


_HEADERS = (
    ("turns.cuh", (")turn(",)), ("division.cuh", (")divide(",)), ("integers.cuh", ("= quotient<", "= power<")),
)  # fmt: skip
"""Files of kernels/ that are included where the statements call their functions."""


def indented(indent: int, lines: Iterable[str]) -> str:
    """Lines, each by so many columns further right."""
    return "\n".join(" " * indent + line for line in lines)


def headers(body: Sequence[str]) -> str:
    """The lines that include what statements call."""
    called = [file for file, calls in _HEADERS if any(call in line for line in body for call in calls)]
    return "".join(map(_include, called))


def _include(file: str) -> str:
    return f'#include "{file}"\n'


def statements(program: Program, kind: str) -> tuple[list[str], bool]:
    """The statements that compute the results r0, ... from elements x0, ... and numbers n0, ...; whether they are few.

    ``kind``: what they compute in, by its name in C++. EngineError as ``source``.
    """
    lines: list[str] = []
    scalars = Integers(kind, lines) if kind in INTEGERS else Floats(kind, lines)
    functions = integers.FUNCTIONS if kind in INTEGERS else writers.FUNCTIONS
    slots = [*(f"x{k}" for k in range(program.tensors)), *(f"n{k}" for k in range(program.count_of_numbers))]
    for one in program.instructions:
        if one.operation == "constant":
            slots.append(scalars.number(one.value))
            continue
        write = functions.get(one.operation)
        if write is None:
            raise EngineError(f"[cu32] expected operations that are written for {kind}, got {one.operation}")
        slots.append(write(scalars, *[slots[slot] for slot in one.operands]))
    is_short = len(lines) <= SHORT and not scalars.has_loops
    lines += [f"r{k} = {slots[slot]};" for k, slot in enumerate(program.results)]
    return lines, is_short


_KERNEL = """\
// A point-wise program, written by cu32/expressions.py. Macros: REAL, what it computes in; WIDTH, elements of a step;
// OFFSETS, how many of a step's offsets differ: one in runs of memory, else the results' and each tensor's.
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
        for (int k = 0; k < W; ++k) {call}
{stores}
    }}
}};

extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
{name}(const __grid_constant__ Loop loop, {arguments}) {{
    compute<OFFSETS, {steps}>(loop, Program{{{given}}});
}}
"""
