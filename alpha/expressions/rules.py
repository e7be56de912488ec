"""Update rules' formulas as programs: traced on symbols once for each choice of what they decide on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from alpha.errors import ArgumentError, described
from alpha.expressions.graph import BOOL, Graph, Node
from alpha.expressions.program import Program
from alpha.expressions.symbols import Symbol, TraceError
from alpha.expressions.tracing import run

if TYPE_CHECKING:
    from alpha.update_rules import UpdateRule

Reader = Callable[[Any], Any]
"""Reads something of a rule."""

_traces: WeakKeyDictionary[type, list[Trace]] = WeakKeyDictionary()


def traced(rule: UpdateRule) -> tuple[Program, tuple[float, ...]]:
    """The program of a rule's formula, and its numbers."""
    traces = _traces.get(type(rule))
    if traces is None:
        traces = _traces.setdefault(type(rule), [])
    for trace in traces:
        values = trace.values(rule)
        if values is not None:
            return trace.program, trace.program.numbers(values)
    trace = Trace(rule)
    traces.append(trace)
    return trace.program, trace.program.numbers(trace.values(rule) or ())


class Trace:
    """What a rule's formula computes where that on which it decides is as it was.

    Attributes:
        program: computes the new parameter and states of one element from a row's elements and from numbers.
    """

    def __init__(self, rule: UpdateRule) -> None:
        graph, notes = Graph(), _Notes(rule)
        inputs = [graph.input(place) for place in range(2 + notes.note("states", rule.states))]
        row = tuple([Symbol(graph, node) for node in inputs])
        found = run(notes.name, type(rule).formula, (_stand_in(notes, graph), row))
        self.program = Program(graph, _results(notes.name, graph, found, rule.states), inputs)
        self._lengths = tuple(notes.lengths.items())
        self._read_flags = attrgetter(*notes.flags)  # all at once: it is asked before each step
        self._flags = self._read_flags(rule)
        self._numbers = tuple(notes.numbers.values())

    def values(self, rule: UpdateRule) -> tuple[float, ...] | None:
        """The numbers of a rule that the formula reads; None where it decides otherwise for this rule."""
        if self._read_flags(rule) != self._flags:
            return None
        for name, length in self._lengths:
            if len(getattr(rule, name)) != length:
                return None
        values = tuple([read(rule) for read in self._numbers])
        if _PLAIN.issuperset(map(type, values)):
            return values
        return tuple(map(float, values)) if all(map(_is_number, values)) else None


class _Notes:
    """What a formula reads of its rule, noted while it is traced.

    Attributes:
        name: the rule's, for messages.
        flags: what it decides on, by name.
        lengths: those of tuples of numbers.
        numbers: what reads the numbers, in the order of the program's arguments.
    """

    def __init__(self, rule: UpdateRule) -> None:
        self.rule, self.name = rule, type(rule).__name__
        self.flags: dict[str, Any] = {}
        self.lengths: dict[str, int] = {}
        self.numbers: dict[tuple[str, int | None], Reader] = {}

    def note(self, name: str, flag: Any) -> Any:
        """Notes something that the formula decides on."""
        self.flags[name] = flag
        return flag

    def read(self, owner: Any, name: str, graph: Graph) -> Any:
        """What a formula gets for ``self.name``: methods are traced with it, numbers are symbols."""
        method = inspect.getattr_static(type(self.rule), name, None)
        if isinstance(method, FunctionType):
            return MethodType(method, owner)
        value = getattr(self.rule, name)
        if isinstance(method, staticmethod | classmethod):  # which know no numbers
            return value
        if name == "states" or _is_flag(value):
            return self.note(name, value)
        if not isinstance(value, tuple | list):
            return self._number(name, None, value, graph)
        self.lengths[name] = len(value)
        return tuple([self._number(name, place, one, graph) for place, one in enumerate(value)])

    def _number(self, name: str, place: int | None, value: Any, graph: Graph) -> Symbol:
        """A number, or one in a tuple, as an argument of the program."""
        if not _is_number(value):
            expected = "numbers, tuples of numbers, bools, None and text in a rule"
            raise TraceError(expected, f"{name} = {described(value)}", "make a tensor of it one of the states")
        key = name, place
        if key not in self.numbers:
            self.numbers[key] = attrgetter(name) if place is None else lambda rule: getattr(rule, name)[place]
        return Symbol(graph, graph.argument(list(self.numbers).index(key)))


_PLAIN = frozenset([float, int])


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool | np.bool_ | str)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int | np.number) and not isinstance(value, bool)


def _stand_in(notes: _Notes, graph: Graph) -> Any:
    """What a formula is called with as ``self``: an instance of a subclass, so that ``super()`` works."""
    kind: Any = type(notes.rule)

    def read(self: Any, name: str) -> Any:
        return object.__getattribute__(self, name) if name.startswith("__") else notes.read(self, name, graph)

    made = type(kind)(kind.__name__, (kind,), {"__slots__": (), "__getattribute__": read})
    return object.__new__(made)


def _results(name: str, graph: Graph, found: Any, states: int) -> list[Node]:
    """The nodes of a formula's results."""
    wanted = f"the new parameter and {states} new state{'s' * (states != 1)}"
    if not isinstance(found, tuple | list) or len(found) != 1 + states:
        got = f"{len(found)} values" if isinstance(found, tuple | list) else described(found)
        raise ArgumentError(f"[{name}] expected {wanted} from its formula, got {got}: return a tuple of so many")
    nodes: list[Node] = []
    for value in found:
        if _is_number(value):
            nodes.append(graph.constant(float(value)))
        elif type(value) is not Symbol or value.node.kind == BOOL:
            got = "a condition" if type(value) is Symbol else described(value)
            raise ArgumentError(f"[{name}] expected {wanted} as floats, got {got}: write alpha.where(condition, a, b)")
        else:
            nodes.append(value.node)
    return nodes
