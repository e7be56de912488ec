"""An algorithm in one file: naive taps, which planner, explain, the algorithms' checks and the benchmark then know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha import bands
from alpha import cache as disk
from alpha.conv.problem import FORWARD, INPUT_GRAD, OPERATORS
from alpha.cu32 import planner, search
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.problem import Call, Problem, dense_problem
from alpha.cu32.costs import Chip, Plan
from alpha.cu32.explain import explain
from alpha.errors import ArgumentError
from alpha.geometry import Axis, Geometry
from alpha.tensor import Tensor
from benchmarks import algorithms
from benchmarks.suites import Layer
from tests.cu32.algorithms import cuda_kit
from tests.cu32.test_algorithms import SMALL
from tests.engine.algorithms import check_algorithm, taken
from tests.engine.test_conv import Case


class Toy(Algorithm):
    """Naive taps: for each tap of the filter, a product of all pixels of x and y that meet under it."""

    name = "toy"
    operators = OPERATORS

    def serves(self, problem: Problem) -> bool:
        return problem.groups == 1

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[Plan]:
        return [Plan(problem, self.name, 1e3 * problem.macs + 1e6)]  # it is for those who ask for it

    def describe(self, plan: Plan) -> str:
        return f"naively, {np.prod(plan.problem.geometry.filter)} taps one by one"

    def run(self, engine: DeviceEngine, plan: Plan, call: Call) -> int:
        problem, out, macs = plan.problem, call.out, 0
        if not problem.adds:
            engine.fill(out, 0)
        if call.bias is not None:
            engine.elementwise("add", out, call.bias, out=out)
        for i, rows in enumerate(met(problem.geometry.rows)):
            for j, columns in enumerate(met(problem.geometry.columns)):
                at_x, at_y = zip(rows, columns, strict=True)
                if at_x[0] and at_x[1]:
                    self._add(engine, problem.operator, call, (i, j), Met(*at_x, *at_y))
                    macs += problem.images * len(at_x[0]) * len(at_x[1])
        return macs * problem.in_channels * problem.out_channels

    def _add(self, engine: DeviceEngine, operator: str, call: Call, tap: tuple[int, int], at: Met) -> None:
        """Adds a tap's products to the results."""
        if operator == FORWARD:
            place = at.of_y(call.out)
            found = engine.matmul(at.of_x(call.source), of_tap(call.other, tap).T)
        elif operator == INPUT_GRAD:
            place = at.of_x(call.out)
            found = engine.matmul(at.of_y(call.source), of_tap(call.other, tap))
        else:
            place = of_tap(call.out, tap)
            x, dy = (engine.dense(images, range(4)) for images in (at.of_x(call.source), at.of_y(call.other)))
            found = engine.matmul(dy.reshape(-1, dy.shape[3]).T, x.reshape(-1, x.shape[3]))
        engine.elementwise("add", place, found, out=place)


class Met(NamedTuple):
    """Rows and columns of x, and of y, that meet under a tap."""

    x_rows: range
    x_columns: range
    y_rows: range
    y_columns: range

    def of_x(self, images: Tensor) -> Tensor:
        return bands.view(images, self.x_rows, self.x_columns)

    def of_y(self, images: Tensor) -> Tensor:
        return bands.view(images, self.y_rows, self.y_columns)


def of_tap(w: Tensor, tap: tuple[int, int]) -> Tensor:
    """The matrix (outputs, inputs) of a tap: a view."""
    offset = w.offset + tap[0] * w.strides[1] + tap[1] * w.strides[2]
    return w.strided(offset, (w.shape[0], w.shape[3]), (w.strides[0], w.strides[3]))


def met(axis: Axis) -> list[tuple[range, range]]:
    """The pixels of x and of y that meet under each tap of an axis."""
    pairs = axis.pairs_by_tap
    return [
        (range(x, x + count * pairs.step, pairs.step), range(y, y + count * pairs.other_step, pairs.other_step))
        for count, x, y in zip(pairs.count.tolist(), pairs.first.tolist(), pairs.other.tolist(), strict=True)
    ]


@pytest.fixture(autouse=True)
def toy() -> Iterator[Toy]:
    """Registered for a test."""
    algorithm = Toy()
    planner.register(algorithm)
    yield algorithm
    planner.unregister(algorithm)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_it_passes_what_every_algorithm_must(cu32: DeviceEngine, toy: Toy, case: Case, dtype: Any) -> None:
    served = check_algorithm(toy, case, dtype, kit=cuda_kit(cu32))
    assert served == (set(OPERATORS) if case.groups == 1 else set())


def test_explain_tells_of_it(cu32: DeviceEngine) -> None:
    for operator in OPERATORS:
        with planner.use("toy"):
            told = explain(cu32, operator, (2, 8, 8, 16), (16, 3, 3, 16), padding=1, measure=True)
        assert told.name == "toy" and told.choice == "naively, 9 taps one by one"
        assert "choice: toy, naively" in str(told)
        assert told.measured_ms is not None and told.measured_ms > 0


def test_the_benchmark_runs_it(cu32: DeviceEngine, capsys: pytest.CaptureFixture[str]) -> None:
    rows = algorithms.measure(cu32, Layer("tiny", 6, 3, 5, 3, 1, 1), 2)
    assert {row.operator for row in rows if row.algorithm == "toy"} == set(OPERATORS)
    assert all(row.measured_ms > 0 for row in rows)
    algorithms.report(rows)
    assert "toy" in capsys.readouterr().out


def test_it_is_chosen_where_it_is_cheapest(cu32: DeviceEngine, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dense_problem(FORWARD, Geometry.make((8, 8), (3, 3)), 2, 16, 16, 1)
    assert planner.choose(problem, cu32) is not toy
    planner.unregister(toy)
    monkeypatch.setattr(Toy, "plans", lambda self, problem, *_: [Plan(problem, "toy", 0.0)])
    planner.register(toy)
    assert planner.choose(problem, cu32) is toy


def test_the_search_times_it(cu32: DeviceEngine, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = disk.directory
    monkeypatch.setattr(disk, "directory", lambda kind: tmp_path if kind == search.KIND else kept(kind))
    monkeypatch.setattr(Toy, "plans", lambda self, problem, *_: [Plan(problem, "toy", 1e4)])
    monkeypatch.setattr(search, "_time", lambda engine, plans, run: {p: 1.0 + (p.algorithm != "toy") for p in plans})
    search.forget()
    alpha.set_search(True)
    try:
        x, w = alpha.rand(2, 8, 8, 16, engine=cu32), alpha.rand(16, 3, 3, 16, engine=cu32)
        planner.unregister(toy)
        with taken(cuda_kit(cu32)) as names:
            alpha.conv2d(x, w)
        planner.register(toy)  # which is searched for anew then
        with taken(cuda_kit(cu32)) as names_with_it:
            alpha.conv2d(x, w)
        assert (names, names_with_it) == (["tiles"], ["toy"])
    finally:
        alpha.set_search(False)
        search.forget()


def test_a_name_belongs_to_one_algorithm() -> None:
    with pytest.raises(
        ArgumentError, match=r"\[planner.register\] expected a name that no algorithm of forward, .*'toy'"
    ):
        planner.register(Toy())
    assert planner.names()[-1] == "toy"
    assert planner.names().count("tiles") == 1
