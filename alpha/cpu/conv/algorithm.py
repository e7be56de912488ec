"""Algorithm: what dispatch, ``planner.use``, ``explain``, tests and benchmarks know of one way to convolve."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from alpha.cpu.base import HostEngine
from alpha.cpu.conv.problem import FORWARD, INPUT_GRAD, Problem
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
        bias: what is added to results, a number for each channel; of a filter gradient nothing.
        residual: likewise images that lie as ``out`` does, or ``out`` itself.
        slope: of the LeakyReLU that results then pass.
    """

    source: Tensor
    other: Tensor
    out: Tensor
    geometry: Geometry
    bias: Tensor | None = None
    residual: Tensor | None = None
    slope: float | None = None

    @property
    def tag(self) -> Any:
        """A number whose type tells the kernels theirs, and whose value is the activation's slope."""
        return self.source.dtype.type(self.slope or 0)

    @property
    def ends(self) -> tuple[int, int, int, int]:
        """The kernels' arguments for what is written, and how results are finished.

        They find the residual's elements by one distance from the result's.
        """
        out, bias, residual = self.out.address, self.bias, self.residual
        mode = (STORE if self.slope is None else ACTIVATE) | (STORE if bias is None else BIAS)
        if residual is None:
            return out, mode, 0 if bias is None else bias.address, 0
        return out, mode | ADD, 0 if bias is None else bias.address, residual.address - out


class Algorithm(ABC):
    """A way to compute some operators.

    Attributes:
        name: as ``planner.use`` takes it, and as the file that holds it is called.
        operators: those that it computes.
        exact: whether it issues the multiply-adds that meet no zero of padding, stride or dilation, and no others.
        always: whether it is taken wherever it serves, whatever others would cost.
        title: what ``explain`` says of it after the operator's own name in C-K-S.
    """

    name: str
    operators: ClassVar[tuple[str, ...]] = (FORWARD, INPUT_GRAD)
    exact: ClassVar[bool] = True
    always: ClassVar[bool] = False
    title: ClassVar[str] = ""

    def serves(self, problem: Problem) -> bool:
        """Whether it can compute a problem of its operators."""
        return True

    def suits(self, problem: Problem) -> bool:
        """Whether it may be the cheapest for a problem that it serves."""
        return True

    @abstractmethod
    def plan(self, problem: Problem) -> Any:
        """The tables and sizes that it computes a problem by."""

    @abstractmethod
    def cycles(self, problem: Problem, packs: bool) -> float:
        """Cycles of one core that it should take, with its filters' packing where each call ``packs`` them."""

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
        """Numbers that a convolution or an input gradient reads and writes, whatever caches hold.

        For each output position what its taps meet; results, filters, and the packing of filters.
        """
        source, target = problem.sides
        met = problem.geometry.useful * problem.images * source.channels * problem.groups
        results = problem.images * math.prod(target.size) * target.channels * problem.groups
        return met + results + filter_numbers(problem) * (3 if packs else 1)


def filter_numbers(problem: Problem) -> int:
    """Numbers of the filters."""
    return math.prod(problem.geometry.filter) * problem.in_channels * problem.group_out
