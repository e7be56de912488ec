"""The framework's own programs: their kernels are compiled ahead, and the table of resources has them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from alpha import functions
from alpha.adaptive_rules import (
    AdadeltaRule,
    AdagradRule,
    AdamaxRule,
    ASGDRule,
    NAdamRule,
    RAdamRule,
    RpropRule,
)
from alpha.cu32 import optimizers
from alpha.cu32.arrays import VECTOR_BYTES
from alpha.cu32.base import c_type
from alpha.cu32.compiler import Source
from alpha.cu32.expressions import DENSE, DRAWN, STRIDED, Layout, source
from alpha.cu32.pointwise import is_one_kernel
from alpha.dtypes import ALL, FLOATS, TABLE, DType, bool_, default_int, float32, is_complex, is_integer
from alpha.expressions import attention, dropout, integers, rectifiers
from alpha.expressions.functions import PointwiseFunction
from alpha.expressions.graph import BOOL, FLOAT, NUMBER, OF_INTEGERS_ALONE, OPERATIONS
from alpha.expressions.operations import program_of
from alpha.expressions.program import Program, conversion
from alpha.random import WORDS
from alpha.update_rules import AdamRule, RMSpropRule, SGDRule, UpdateRule

LAYOUTS = ((DENSE, 4), (STRIDED, 1))
"""How tensors lie most often, and elements of a step."""

ARGUMENTS: dict[int, list[tuple[str, ...]]] = {
    1: [(FLOAT,)],
    2: [(FLOAT, FLOAT), (FLOAT, NUMBER), (NUMBER, FLOAT)],
    3: [(BOOL, FLOAT, FLOAT), (BOOL, NUMBER, FLOAT), (FLOAT, NUMBER, NUMBER)],
}
"""What functions of so many arguments are called with most often; those of more with tensors alone."""


def programs() -> Iterator[Program]:
    """What computes the results of alpha's functions, and what their gradients."""
    yield from (*rectifiers.PROGRAMS, *dropout.PROGRAMS, *attention.PROGRAMS)
    for function in _functions():
        count = len(inspect.signature(function).parameters)
        for kinds in ARGUMENTS.get(count, [(FLOAT,) * count]):
            trace = function.of_kinds(kinds)
            yield trace.program
            needs = tuple([kind == FLOAT for kind in kinds if kind != NUMBER])
            gradient = None if trace.program.bools[0] else trace.gradient(needs).program
            if gradient is not None:
                yield gradient


def _functions() -> Iterator[PointwiseFunction]:
    """The modules' functions, and those that stand in their tables."""
    for name in sorted(module.name for module in pkgutil.iter_modules(functions.__path__)):
        for value in vars(importlib.import_module(f"{functions.__name__}.{name}")).values():
            several: list[Any] = list(value.values()) if isinstance(value, dict) else [value]
            found = [one for one in several if isinstance(one, PointwiseFunction)]
            yield from [one for one in found if one.name not in OF_INTEGERS_ALONE]


def rules() -> Iterator[UpdateRule]:
    """The optimizers' rules in every choice of what their formulas decide on; one of each to maximize, a sign apart."""
    betas = 0.9, 0.999
    for decay, is_on in product((0.0, 0.1), (False, True)):
        for amsgrad in (False, True):
            yield AdamRule(0.1, betas, 1e-8, decay, 1, is_on, amsgrad)
        yield NAdamRule(0.1, betas, 1e-8, decay, 0.004, 1.0, 1, is_on)
        yield RAdamRule(0.1, betas, 1e-8, decay, 1, is_on)
        yield AdagradRule(0.1, 0.01, 1e-10, decay, 0.1, 1 + is_on)
        for momentum, first in product((0.0, 0.9), (False, True)):
            yield SGDRule(0.1, momentum, 0.1, decay, is_on, first)
        for momentum in (0.0, 0.9):
            yield RMSpropRule(0.1, 0.9, 1e-8, decay, momentum, is_on)
    for decay in (0.0, 0.1):
        yield AdadeltaRule(0.1, 0.9, 1e-6, decay)
        yield AdamaxRule(0.1, betas, 1e-8, decay, 1)
        yield ASGDRule(1e-4, 0.1, 1.0, decay)
    for first in (False, True):
        yield RpropRule(0.1, (0.5, 1.2), (1e-6, 50.0), first)
    yield AdamRule(0.1, betas, 1e-8, 0.1, 1, maximize=True)
    yield SGDRule(0.1, 0.9, 0.1, 0.1, maximize=True)


def _conversions() -> Iterator[Source]:
    """The conversions that are most frequent: from and to the dtypes of Python's numbers."""
    stored = [dtype for dtype in TABLE if dtype not in ALL and not is_complex(dtype)]
    for dtype, target in permutations((*ALL, *stored), 2):
        if {dtype, target} & {float32, default_int}:
            width = VECTOR_BYTES // max(dtype.itemsize, target.itemsize)
            for spacing, elements in ((DENSE, width), (STRIDED, 1)):
                layout = Layout(c_type(target), ((c_type(dtype), spacing),), spacing == DENSE, elements)
                yield source(conversion(target), layout)


def _of_integers() -> Iterator[Source]:
    """The operations of tensors of each integer; the most frequent dtype's also with a number, and in any strides."""
    for dtype in filter(is_integer, ALL):
        width, is_frequent = VECTOR_BYTES // dtype.itemsize, dtype == default_int
        for operation in integers.FUNCTIONS:
            kinds = OPERATIONS[operation].operands
            if BOOL in kinds and FLOAT not in kinds:  # a logical one: its operands are compared with 0 first
                kinds = (FLOAT,) * len(kinds)
            yield _of_tensors(program_of(operation, kinds), dtype, True, width)
            if is_frequent:
                yield _of_tensors(program_of(operation, kinds), dtype, False, 1)
            if is_frequent and kinds == (FLOAT, FLOAT):
                yield _of_tensors(program_of(operation, (FLOAT, NUMBER)), dtype, True, width)


def _dropouts() -> Iterator[Source]:
    for program, dtype in product((dropout.KEPT_AND_MASK, dropout.KEPT), FLOATS):
        for spacing, is_flat, width in ((DENSE, True, WORDS), (DENSE, False, WORDS), (STRIDED, False, 1)):
            yield source(program, Layout(c_type(dtype), ((c_type(dtype), spacing), (DRAWN, spacing)), is_flat, width))


def _of_tensors(program: Program, dtype: DType, is_flat: bool, width: int) -> Source:
    """A program's kernel for tensors of one dtype and of bools that all lie alike: in runs of memory, or in any way."""
    spacing = DENSE if is_flat else STRIDED
    kinds = [c_type(bool_ if is_condition else dtype) for is_condition in program.conditions]
    return source(program, Layout(c_type(dtype), tuple([(kind, spacing) for kind in kinds]), is_flat, width))


def _sources() -> Iterator[Source]:
    yield from _conversions()
    yield from _of_integers()
    yield from _dropouts()
    for rule in rules():
        program, _ = rule.traced()
        yield optimizers.kernel_of(program, type(rule).__name__, c_type(float32)).source
    for program in filter(is_one_kernel, programs()):
        for spacing, width in LAYOUTS:
            yield _of_tensors(program, float32, spacing == DENSE, width)


SOURCES = tuple(dict.fromkeys(_sources()))
