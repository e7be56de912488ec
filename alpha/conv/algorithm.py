"""Algorithm: what is known about one algorithm for convolutions, on any engine."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Generic, TypeVar

from alpha.conv.problem import FORWARD, INPUT_GRAD, Problem

ProblemT = TypeVar("ProblemT", bound=Problem)


class Algorithm(ABC, Generic[ProblemT]):
    """An algorithm for some operators. An engine's subclass adds how it is planned, what it costs, and how it runs.

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

    def serves(self, problem: ProblemT) -> bool:
        """Whether it can compute a problem of its operators."""
        return True
