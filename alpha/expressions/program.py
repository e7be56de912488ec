"""Program: an expression's nodes in an order in which they can be computed; what an engine gets."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from alpha import launches
from alpha.dtypes import DType, get_default_dtype, is_bool, of_tensors
from alpha.expressions.graph import BOOL, NUMBER, Graph, Node, evaluated


class Instruction(NamedTuple):
    """An operation of earlier slots; a "constant" has a value instead."""

    operation: str
    operands: tuple[int, ...]
    value: float


class Program:
    """Instructions that compute results from one element of each tensor and from numbers.

    What they compute lies in numbered slots: first the tensors' elements, then the numbers, then one an instruction.
    What is made of numbers alone is no instruction: ``numbers`` computes it once a call, in float64.

    Attributes:
        tensors: how many tensors it takes.
        instructions: in their order.
        results: the slots of the results.
        conditions: whether each tensor is of bools.
        bools: whether each result is a bool.
        text: all of this in words; programs of one text compute the same.
        launches: of the tensors and then the numbers.
        launches_in_place: the same; the result is written into the first tensor. Known are layouts that were given to
            ``Engine.pointwise`` with that tensor as ``out``.
    """

    def __init__(self, graph: Graph, results: Sequence[Node], tensors: Sequence[Node]) -> None:
        """``tensors``: the graph's inputs in the order in which their tensors are given."""
        self.tensors = len(tensors)
        self.conditions = tuple([node.kind == BOOL for node in tensors])
        self.bools = tuple([node.kind == BOOL for node in results])
        self._graph = graph  # keeps the nodes
        order = _ordered(results, set(tensors))
        used = {one for node in order if node.kind != NUMBER for one in node.operands} | set(results)
        self._numbers = tuple([n for n in order if n.kind == NUMBER and not n.is_constant and n in used])
        slots = {node: slot for slot, node in enumerate((*tensors, *self._numbers))}
        instructions: list[Instruction] = []
        for node in order:
            if node not in slots and (node.kind != NUMBER or (node.is_constant and node in used)):
                slots[node] = self.tensors + len(self._numbers) + len(instructions)
                operands = tuple([slots[one] for one in node.operands])
                instructions.append(Instruction(node.operation, operands, node.value))
        self.instructions = tuple(instructions)
        self.results = tuple([slots[node] for node in results])
        self._plain = tuple([int(n.value) if n.operation == "argument" else -1 for n in self._numbers])
        self._is_in_order = self._plain == tuple(range(len(self._plain)))
        arguments = [launches.TENSOR] * self.tensors + [launches.NUMBER] * len(self._numbers)
        self.launches = launches.Launches(*arguments)
        self.launches_in_place = launches.Launches(*arguments, in_place=True)

    def dtype(self, tensors: Sequence[tuple[tuple[int, ...], DType]]) -> DType:
        """The dtype that it computes in, of tensors of these shapes and dtypes: that in which those of numbers meet."""
        numbers = [one for one, is_condition in zip(tensors, self.conditions, strict=True) if not is_condition]
        return of_tensors(numbers) if numbers else get_default_dtype()

    def takes(self, arguments: int) -> bool:
        """Whether its numbers are so many arguments themselves, in their order."""
        return self._is_in_order and len(self._plain) == arguments

    @property
    def count_of_numbers(self) -> int:
        """How many numbers ``numbers`` gives."""
        return len(self._numbers)

    def numbers(self, arguments: Sequence[float]) -> tuple[float, ...]:
        """The numbers that the instructions take, made from a call's arguments."""
        if self._is_in_order and len(arguments) == len(self._plain):
            return tuple(arguments)
        if -1 not in self._plain:
            return tuple([arguments[place] for place in self._plain])
        return self._made_numbers(arguments)

    @cached_property
    def _made_numbers(self) -> Callable[[Sequence[float]], tuple[float, ...]]:
        """``numbers`` as a Python function of these very operations."""
        names: dict[Node, str] = {}
        lines = [f"{_named(node, names)} = {_in_python(node, names)}" for node in _ordered(self._numbers, set())]
        results = "".join([f"{names[node]}, " for node in self._numbers])
        made: dict[str, Any] = {**_FUNCTIONS, "evaluated": evaluated}
        exec("\n ".join(["def numbers(arguments):", *lines, f"return ({results})"]), made)
        found: Callable[[Sequence[float]], tuple[float, ...]] = made["numbers"]
        return found

    @cached_property
    def text(self) -> str:
        """The program in words."""
        lines = [f"tensors {' '.join(map(str, self.conditions))} numbers {len(self._numbers)}"]
        for one in self.instructions:
            value = one.value.hex() if one.operation == "constant" else ""
            lines.append(" ".join([one.operation, *map(str, one.operands), value]))
        lines.append(f"results {' '.join(map(str, self.results))} bools {' '.join(map(str, self.bools))}")
        return "\n".join(lines)

    def last_uses(self) -> list[tuple[int, ...]]:
        """For each instruction the slots that no later one reads, nor the results: their memory may go."""
        last: dict[int, int] = {}
        for number, one in enumerate(self.instructions):
            last.update(dict.fromkeys(one.operands, number))
        kept = set(self.results)
        last_read: list[list[int]] = [[] for _ in self.instructions]
        for slot, number in last.items():
            if slot not in kept:
                last_read[number].append(slot)
        return [tuple(slots) for slots in last_read]


class Conversion(Program):
    """The elements of a tensor in another dtype."""

    def __init__(self, target: DType) -> None:
        graph = Graph()
        element = graph.input(0)
        super().__init__(graph, [element], [element])
        self.bools = (is_bool(target),)
        self._target = target

    def dtype(self, tensors: Sequence[tuple[tuple[int, ...], DType]]) -> DType:
        return self._target


@cache
def conversion(target: DType) -> Conversion:
    """What converts to a dtype."""
    return Conversion(target)


def shared(program: Program) -> Program:
    """The program that was first made to compute the same from the same numbers, so that all callers share launches."""
    return _SHARED.setdefault(program.text, program) if program._is_in_order else program


_SHARED: weakref.WeakValueDictionary[str, Program] = weakref.WeakValueDictionary()


def _ordered(results: Sequence[Node], given: set[Node]) -> list[Node]:
    """All nodes that the results are made of, each after its operands; what is given is made of nothing."""
    found: set[Node] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node not in given:
                waiting += node.operands
    return sorted(found, key=lambda node: node.serial)


def inputs_of(results: Sequence[Node], given: set[Node]) -> list[Node]:
    """The graph's inputs, and what is given, that results are made of."""
    return [n for n in _ordered(results, given) if n.operation == "input" or n in given]


_OPERATORS = {"neg": "-{}", "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}"}
"""Operations that Python's floats have, a hundred times as fast as NumPy's numbers."""


def _with_numpys(operation: str, function: Callable[..., float]) -> Callable[..., float]:
    """A function of Python's that gives an error where NumPy has an infinity or a NaN, with that instead."""

    def compute(*values: float) -> float:
        try:
            return function(*values)
        except (ArithmeticError, ValueError):
            return evaluated(operation, *values)

    return compute


_FUNCTIONS: dict[str, Callable[..., float]] = {
    name: _with_numpys(name, function)
    for name, function in (("div", operator.truediv), ("sqrt", math.sqrt), ("pow", math.pow))
}


def _named(node: Node, names: dict[Node, str]) -> str:
    """A new name for a node."""
    name = names[node] = f"v{len(names)}"
    return name


def _in_python(node: Node, names: dict[Node, str]) -> str:
    """A node of numbers alone as a Python expression; ``names``: of those that it is made of."""
    if node.operation == "constant":
        return repr(node.value) if math.isfinite(node.value) else f"float({str(node.value)!r})"
    if node.operation == "argument":
        return f"arguments[{int(node.value)}]"
    operands = [names[one] for one in node.operands]
    if node.operation in _OPERATORS:
        return _OPERATORS[node.operation].format(*operands)
    if node.operation in _FUNCTIONS:
        return f"{node.operation}({', '.join(operands)})"
    return f"evaluated({node.operation!r}, {', '.join(operands)})"
