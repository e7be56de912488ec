"""Algorithm: what dispatch, ``planner.use``, ``explain``, tests and benchmarks know about an algorithm."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from alpha.conv import algorithm
from alpha.cpu.base import HostEngine
from alpha.cpu.conv.problem import Problem
from alpha.cpu.figures import Figures
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, STORE
from alpha.geometry import Geometry
from alpha.tensor import Tensor


class Call(NamedTuple):
    """The tensors of a call.

    Attributes:
        source: the images that are read: x, or dy of an input gradient.
        other: the filters, or dy of a filter gradient.
        out: what is written: y, dx or dw.
        geometry: as called; a problem's may be flattened.
        bias: added to results, one number per channel; None for a filter gradient.
        residual: images that are added to results, with the strides of ``out``, or ``out`` itself.
        slope: slope of the LeakyReLU that is then applied, or None.
        reused: whether ``other`` may be a layer's filters, which inference keeps packed; not of a product's matrix.
    """

    source: Tensor
    other: Tensor
    out: Tensor
    geometry: Geometry
    bias: Tensor | None = None
    residual: Tensor | None = None
    slope: float | None = None
    reused: bool = True

    @property
    def tag(self) -> Any:
        """A number whose type is the kernels' dtype, and whose value, or whose bits, are the activation's slope."""
        if self.source.dtype != self.out.dtype:
            return self.out.dtype.type(self.slope or 0).view(self.source.dtype)
        return self.source.dtype.type(self.slope or 0)

    @property
    def result_arguments(self) -> tuple[int, int, int, int]:
        """The kernels' arguments for the result: address, mode, bias, and the residual's distance in bytes."""
        out, bias, residual = self.out.address, self.bias, self.residual
        mode = (STORE if self.slope is None else ACTIVATE) | (STORE if bias is None else BIAS)
        if residual is None:
            return out, mode, 0 if bias is None else bias.address, 0
        return out, mode | ADD, 0 if bias is None else bias.address, residual.address - out


class Algorithm(algorithm.Algorithm[Problem]):
    """A way to compute some operators on the CPU: its plan, its cost in cycles, and how it runs.

    Attributes:
        of_pairs: whether it computes with words of two bfloat16 too: it moves numbers, and the micro-kernel alone
            multiplies and adds.
        rounds: whether it makes factors of bfloat16 itself, of problems that ask for that alone.
        reads_halves: whether images of bfloat16 are read and written as they lie in memory, and filters are read so.
    """

    of_pairs: ClassVar[bool] = False
    rounds: ClassVar[bool] = False
    reads_halves: ClassVar[bool] = False

    def suits(self, problem: Problem) -> bool:
        """Whether it may be the cheapest for a problem that it serves."""
        return True

    @abstractmethod
    def plan(self, problem: Problem) -> Any:
        """The tables and sizes by which it computes a problem."""

    @abstractmethod
    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        """Cycles that one core should take, by a processor's figures; ``packs``: with packing filters."""

    @abstractmethod
    def describe(self, problem: Problem) -> str:
        """How it cuts a problem, in a few words."""

    def tasks(self, problem: Problem) -> int:
        """Tasks that threads share."""
        tasks: int = self.plan(problem).tasks
        return tasks

    @abstractmethod
    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        """Computes a problem that it serves; returns the multiply-adds that it issued."""

    def accesses(self, problem: Problem, packs: bool) -> int:
        """Numbers that a convolution or an input gradient reads and writes, without regard to caches.

        These are what each output position's taps read, the results, the filters, and the packing of filters.
        """
        source, target = problem.sides
        met = problem.geometry.useful * problem.images * source.channels * problem.groups
        results = problem.images * math.prod(target.size) * target.channels * problem.groups
        return met + results + filter_numbers(problem) * (3 if packs else 1)


def filter_numbers(problem: Problem) -> int:
    """Numbers of the filters."""
    return math.prod(problem.geometry.filter) * problem.in_channels * problem.group_out
