"""Single operations as programs, for ``Engine.elementwise``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from alpha.dtypes import is_bool
from alpha.expressions import symbols
from alpha.expressions.graph import BOOL, FLOAT, NUMBER, OPERATIONS, Graph
from alpha.expressions.program import Program, shared
from alpha.tensor import Tensor

NAMES = (*OPERATIONS, *symbols.COMPOUND)
"""The operations of floats."""

_OF_BOOLS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x | y,
    "mul": lambda x, y: x & y,
    "maximum": lambda x, y: x | y,
    "minimum": lambda x, y: x & y,
    "where": lambda condition, x, y: (condition & x) | (~condition & y),
    "eq": lambda x, y: ~(x ^ y),
    "ne": lambda x, y: x ^ y,
    "lt": lambda x, y: ~x & y,
    "le": lambda x, y: ~x | y,
    "gt": lambda x, y: x & ~y,
    "ge": lambda x, y: x | ~y,
    "isfinite": lambda x: x | ~x,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "bitwise_not": lambda x: ~x,
}
"""The operations of bools that are not logical by their names, made of those that are."""


def kind_of(value: Any) -> str:
    """What a tensor or a number is in an expression."""
    if not isinstance(value, Tensor):
        return NUMBER
    return BOOL if is_bool(value.dtype) else FLOAT


@cache
def program_of(operation: str, kinds: tuple[str, ...]) -> Program:
    """An operation of tensors of FLOAT and of BOOL, and of NUMBERs; where all tensors are BOOL the result is too."""
    graph = Graph()
    places = {False: 0, True: 0}
    given = []
    for kind in kinds:
        is_number = kind == NUMBER
        given.append(graph.argument(places[True]) if is_number else graph.input(places[False], kind))
        places[is_number] += 1
    operands = [symbols.Symbol(graph, node) for node in given]
    if FLOAT not in kinds and operation in _OF_BOOLS:
        result = _OF_BOOLS[operation](*operands)
    else:
        result = symbols.apply(operation, *operands)
    tensors = [node for node, kind in zip(given, kinds, strict=True) if kind != NUMBER]
    return shared(Program(graph, [result.node], tensors))
