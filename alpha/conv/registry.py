"""Registry: an engine's list of convolution algorithms, in which they are found by name, and which users extend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from alpha.conv.algorithm import Algorithm
from alpha.errors import ArgumentError

AlgorithmT = TypeVar("AlgorithmT", bound=Algorithm[Any])
Value = TypeVar("Value")


class Registry(Generic[AlgorithmT]):
    """A list of algorithms, in order of preference. A name belongs to one algorithm per operator.

    Args:
        algorithms: the list.
        forget: drops the choices that were made among them, after a change of the list.
    """

    def __init__(self, algorithms: list[AlgorithmT], forget: Callable[[], None]) -> None:
        self.algorithms, self._forget = algorithms, forget
        self._by_name: dict[tuple[str, str], AlgorithmT] = {}
        self._note()

    def _note(self) -> None:
        """Looks up who has which name; one name belongs to one algorithm of an operator."""
        self._by_name = {
            (algorithm.name, operator): algorithm for algorithm in self.algorithms for operator in algorithm.operators
        }

    def names(self) -> tuple[str, ...]:
        """The names that ``use`` accepts, in order of preference."""
        return tuple(dict.fromkeys(algorithm.name for algorithm in self.algorithms))

    def named(self, name: str, operator: str) -> AlgorithmT | None:
        """The algorithm with a name for an operator, or None."""
        return self._by_name.get((name, operator))

    def candidates(self, problem: Any) -> list[AlgorithmT]:
        """The algorithms that serve a problem, in order of preference."""
        return [
            algorithm
            for algorithm in self.algorithms
            if problem.operator in algorithm.operators and algorithm.serves(problem)
        ]

    def check(self, name: str) -> None:
        """Raises ArgumentError unless some algorithm has the name."""
        if name not in self.names():
            raise ArgumentError(f"[planner.use] expected one of {', '.join(self.names())}, got {name!r}")

    def register(self, algorithm: AlgorithmT) -> None:
        """Adds an algorithm to the list, last in preference; ArgumentError where its name is taken for an operator."""
        taken = [operator for operator in algorithm.operators if self.named(algorithm.name, operator) is not None]
        if taken:
            raise ArgumentError(
                f"[planner.register] expected a name that no algorithm of {', '.join(taken)} has, got "
                f"{algorithm.name!r}"
            )
        self.algorithms.append(algorithm)
        self._note()
        self._forget()

    def unregister(self, algorithm: AlgorithmT) -> None:
        """Takes an algorithm off the list; ValueError where it is not on it."""
        self.algorithms.remove(algorithm)
        self._note()
        self._forget()


@contextmanager
def within(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """A context in which the variable has the value; afterwards the old one, even after an interrupt."""
    outer = variable.get()
    try:
        try:
            variable.set(value)
            yield
        finally:
            variable.set(outer)
    finally:
        variable.set(outer)  # once more, if an interrupt came before the first time
