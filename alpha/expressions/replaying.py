"""A program's results as point-wise functions: so gradients, which are programs, have gradients themselves."""

from __future__ import annotations

import inspect
from typing import Any

from alpha.expressions import symbols
from alpha.expressions.functions import PointwiseFunction
from alpha.expressions.program import Program
from alpha.expressions.symbols import Symbol


def replayed(program: Program, name: str) -> tuple[PointwiseFunction, ...]:
    """For each of a program's results the function that computes it, of the program's tensors and then its numbers."""
    count = program.tensors + program.count_of_numbers
    return tuple([_result(program, slot, count, name) for slot in program.results])


def _result(program: Program, slot: int, count: int, name: str) -> PointwiseFunction:
    def result(*given: Any) -> Any:
        values = list(given)
        for one in program.instructions:
            if one.operation == "constant":
                values.append(one.value)
            else:
                operands = [values[operand] for operand in one.operands]
                values.append(_applied(given, one.operation, operands))
        return values[slot]

    kind = inspect.Parameter.POSITIONAL_ONLY
    result.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(f"x{place}", kind) for place in range(count)]
    )
    result.__name__ = name
    return PointwiseFunction(result)


def _applied(given: Any, operation: str, operands: list[Any]) -> Any:
    """An operation of symbols and constants; one of constants alone becomes a symbol's too."""
    if any(type(value) is Symbol for value in operands):
        return symbols.apply(operation, *operands)
    graph = next(value.graph for value in given if type(value) is Symbol)
    return Symbol(graph, graph.apply(operation, *operands))
