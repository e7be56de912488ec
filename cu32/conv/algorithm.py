"""Algorithm: what dispatch, ``planner.use``, the search, ``explain`` and tests know of one way to convolve on a GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from alpha.conv import algorithm
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.problem import Call, Problem
from alpha.cu32.costs import Chip, Plan


class Algorithm(algorithm.Algorithm[Problem]):
    """A way to compute some operators on a GPU: its plans with their cost in cycles, and how it runs by one of them.

    Attributes:
        file: the kernel file that it launches, which checks itself before it is first used; None: what needs no check.
    """

    file: ClassVar[str | None] = None

    @abstractmethod
    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> Sequence[Plan]:
        """The ways in which it can compute a problem that it serves, the cheapest first; none where it cannot.

        ``parts``: pieces that each sum is to be cut into, where that can be chosen.
        """

    def normalises(self, engine: DeviceEngine, plan: Any) -> bool:
        """Whether the kernel of a plan can normalise the images that it reads, on the engine's device."""
        return False

    @abstractmethod
    def describe(self, plan: Any) -> str:
        """How a plan of its own cuts a problem, in a few words."""

    @abstractmethod
    def run(self, engine: DeviceEngine, plan: Any, call: Call) -> int:
        """Computes a call by a plan of its own; returns the multiply-adds that it issued."""
