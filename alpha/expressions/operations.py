"""Single operations as programs, for ``Engine.elementwise``."""

from __future__ import annotations

from functools import cache
from typing import Any

from alpha.dtypes import is_bool
from alpha.expressions import symbols
from alpha.expressions.graph import BOOL, FLOAT, NUMBER, OPERATIONS, Graph
from alpha.expressions.program import Program
from alpha.tensor import Tensor

NAMES = (*OPERATIONS, *symbols.COMPOUND)
"""The operations of floats."""


def kind_of(value: Any) -> str:
    """What a tensor or a number is in an expression."""
    if not isinstance(value, Tensor):
        return NUMBER
    return BOOL if is_bool(value.dtype) else FLOAT


@cache
def program_of(operation: str, kinds: tuple[str, ...]) -> Program:
    """An operation of tensors of FLOAT and of BOOL, and of NUMBERs."""
    graph = Graph()
    places = {False: 0, True: 0}
    given = []
    for kind in kinds:
        is_number = kind == NUMBER
        given.append(graph.argument(places[True]) if is_number else graph.input(places[False], kind))
        places[is_number] += 1
    result = symbols.apply(operation, *[symbols.Symbol(graph, node) for node in given])
    return Program(graph, [result.node], [node for node, kind in zip(given, kinds, strict=True) if kind != NUMBER])
