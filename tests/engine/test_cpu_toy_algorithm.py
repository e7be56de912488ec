"""An algorithm in one file: naive taps, which planner, explain, the algorithms' checks and the benchmark then know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha.conv.problem import FORWARD, INPUT_GRAD, OPERATORS
from alpha.cpu import planner
from alpha.cpu.base import HostEngine
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.problem import Problem
from alpha.cpu.engine import CPUEngine
from alpha.cpu.figures import Figures
from alpha.errors import ArgumentError
from alpha.geometry import Axis, Geometry
from benchmarks import accesses, algorithms
from benchmarks.generators import GENERATORS
from benchmarks.suites import Layer
from tests.engine.algorithms import check_algorithm
from tests.engine.test_conv import PICKED, Case
from tests.tiers import FLOATS


class Plan(NamedTuple):
    """Nothing is cut."""

    taps: int
    tasks: int = 1


class Toy(Algorithm):
    """Naive taps: for each tap of the filter, a product of all pixels of x and y that meet under it."""

    name = "toy"
    operators = OPERATORS

    def serves(self, problem: Problem) -> bool:
        return problem.groups == 1

    def plan(self, problem: Problem) -> Plan:
        return Plan(problem.geometry.rows.filter * problem.geometry.columns.filter)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        return 1e3 * problem.macs + 1e6  # it is for those who ask for it

    def describe(self, problem: Problem) -> str:
        return f"naively, {self.plan(problem).taps} taps one by one"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        source, other, out = (engine.array(tensor) for tensor in (call.source, call.other, call.out))
        sums, macs = np.zeros_like(out), 0
        for i, rows in enumerate(met(call.geometry.rows)):
            for j, columns in enumerate(met(call.geometry.columns)):
                at_x, at_y = ((slice(None), down, across) for down, across in zip(rows, columns, strict=True))
                if problem.operator == FORWARD:
                    sums[at_y] += source[at_x] @ other[:, i, j].T
                elif problem.operator == INPUT_GRAD:
                    sums[at_x] += source[at_y] @ other[:, i, j]
                else:
                    sums[:, i, j] = np.tensordot(other[at_y], source[at_x], axes=([0, 1, 2], [0, 1, 2]))
                macs += source[at_y if problem.operator == INPUT_GRAD else at_x][..., 0].size
        if call.bias is not None:
            sums += engine.array(call.bias)
        if call.residual is not None:
            sums += engine.array(call.residual)
        out[...] = sums if call.slope is None else np.where(sums > 0, sums, call.slope * sums)
        return macs * problem.in_channels * problem.out_channels


def met(axis: Axis) -> list[tuple[slice, slice]]:
    """The pixels of x and of y that meet under each tap of an axis."""
    pairs = axis.pairs_by_tap
    return [
        (slice(x, x + count * pairs.step, pairs.step), slice(y, y + count * pairs.other_step, pairs.other_step))
        for count, x, y in zip(pairs.count.tolist(), pairs.first.tolist(), pairs.other.tolist(), strict=True)
    ]


@pytest.fixture(autouse=True)
def toy() -> Iterator[Toy]:
    """Registered for a test."""
    algorithm = Toy()
    planner.register(algorithm)
    yield algorithm
    planner.unregister(algorithm)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", PICKED, ids=str)
def test_it_passes_what_every_algorithm_must(toy: Toy, case: Case, dtype: Any) -> None:
    assert check_algorithm(toy, case, dtype) == (set(OPERATORS) if case.groups == 1 else set())


def test_explain_tells_of_it(cpu: CPUEngine) -> None:
    for operator in OPERATORS:
        with planner.use("toy"):
            told = alpha.cpu.explain(cpu, operator, (2, 8, 8, 16), (16, 3, 3, 16), padding=1, measure=True)
        assert told.name == "toy" and "9 taps one by one, 1 tasks" in told.choice
        assert "choice: toy, naively" in str(told)
        assert told.measured_ms is not None and told.measured_ms > 0


def test_the_benchmarks_run_it(cpu: CPUEngine, capsys: pytest.CaptureFixture[str]) -> None:
    rows = algorithms.measure(cpu, Layer("tiny", 6, 3, 5, 3, 1, 1), 2)
    assert {row.operator for row in rows if row.algorithm == "toy"} == set(OPERATORS)
    assert all(row.measured_ms > 0 for row in rows)
    algorithms.report(rows)
    assert "toy" in capsys.readouterr().out
    problem = GENERATORS[4].problem(1)
    with planner.use("toy"):
        as_toy = accesses.forward(problem, packs=False)
    with planner.use("images"):
        assert as_toy == accesses.forward(problem, packs=False)


def test_it_is_chosen_where_it_is_cheapest(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = GENERATORS[4].problem(1)
    assert planner.choose(problem) is not toy
    planner.unregister(toy)
    monkeypatch.setattr(Toy, "cycles", lambda *_: 0.0)
    planner.register(toy)
    assert planner.choose(problem) is toy


def test_a_name_belongs_to_one_algorithm() -> None:
    with pytest.raises(
        ArgumentError, match=r"\[planner.register\] expected a name that no algorithm of forward, .*'toy'"
    ):
        planner.register(Toy())
    assert planner.names()[-1] == "toy"
    assert planner.names().count("winograd") == 1


def test_met() -> None:
    """By hand: padding 1 and stride 2 over 5 numbers, 3 taps."""
    assert met(Geometry.make((5, 5), (3, 3), (2, 2), (1, 1)).rows) == [
        (slice(1, 5, 2), slice(1, 3, 1)),
        (slice(0, 6, 2), slice(0, 3, 1)),
        (slice(1, 5, 2), slice(0, 2, 1)),
    ]
