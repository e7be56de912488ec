"""Images in another order than the engine's are copied first where that serves a faster algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.conv.problem import FORWARD, INPUT_GRAD, OPERATORS, WEIGHT_GRAD
from alpha.cpu import planner
from alpha.cpu.conv.problem import in_order, problem_of
from alpha.cpu.engine import CPUEngine
from alpha.cpu.explanations import COPIED, explain_problem
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from alpha.tensor import Tensor
from tests import oracles
from tests.engine.test_conv import relative

# Winograd's products, relative to the largest result: a bit or two more than float32's own.
BOUND = 2e-5

PLANES = (1, 0, 2, 3)
"""An order that is neither row-major nor the engine's: rows of all images, one after the other."""


def tensors(engine: CPUEngine, shape: tuple[int, ...], channels: int, geometry: Geometry) -> tuple[Tensor, ...]:
    """x, w and dy in row-major order."""
    rng = np.random.default_rng(0)
    shapes = shape, (channels, *geometry.filter, shape[3]), (shape[0], *geometry.output, channels)
    x, w, dy = (engine.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes)
    return x, w, dy


def computed(engine: CPUEngine, operator: str, x: Tensor, w: Tensor, dy: Tensor, geometry: Geometry) -> Any:
    if operator == FORWARD:
        return engine.conv2d(x, w, None, geometry, 1).numpy()
    if operator == INPUT_GRAD:
        return engine.conv2d_input_grad(dy, w, geometry, 1).numpy()
    return engine.conv2d_weight_grad(x, dy, geometry, 1).numpy()


@pytest.mark.usefixtures("same_figures")
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("order", [None, PLANES], ids=["row-major", "planes"])
def test_results_are_those_of_images_in_order(operator: str, order: Any, cpu: CPUEngine) -> None:
    """The same bits where the planner finds a copy worth it, as it does here, and the definition's numbers."""
    geometry = Geometry.make((13, 15), (3, 3), padding=(1, 1))
    x, w, dy = tensors(cpu, (19, 13, 15, 64), 72, geometry)
    lying = [cpu.dense(t, range(4) if order is None else order) for t in (x, dy)]
    arranged = [cpu.dense(t, IMAGE_ORDER) for t in (x, dy)]
    problem = problem_of(operator, *lying, geometry, 1)
    assert planner.arranged(problem) is in_order(problem) is not problem
    found = computed(cpu, operator, lying[0], w, lying[1], geometry)
    np.testing.assert_array_equal(found, computed(cpu, operator, arranged[0], w, arranged[1], geometry))
    options = (1, 1), (1, 1), (1, 1), 1
    if operator == FORWARD:
        expected = oracles.conv2d(x.numpy(), w.numpy(), *options)
    else:
        dx, dw = oracles.conv2d_gradients(x.numpy(), w.numpy(), dy.numpy(), *options)
        expected = dx if operator == INPUT_GRAD else dw
    assert relative(found, expected) <= BOUND


@pytest.mark.usefixtures("same_figures")
@pytest.mark.parametrize(
    ("shape", "channels", "filter"),
    [((1, 13, 15, 64), 72, 3), ((32, 16, 16, 3), 8, 1), ((2, 4, 4, 8), 8, 3)],
    ids=["one image", "little to do for a number", "a launch takes longer"],
)
def test_images_stay_where_a_copy_is_not_worth_it(
    shape: tuple[int, ...], channels: int, filter: int, cpu: CPUEngine
) -> None:
    geometry = Geometry.make(shape[1:3], (filter, filter), padding=(filter // 2,) * 2)
    x, _, dy = tensors(cpu, shape, channels, geometry)
    for operator in OPERATORS:
        problem = problem_of(operator, x, dy, geometry, 1)
        assert planner.arranged(problem) is problem


def test_an_algorithm_that_users_name_gets_copies_where_it_needs_them(cpu: CPUEngine) -> None:
    geometry = Geometry.make((8, 8), (3, 3), padding=(1, 1))
    x, _, dy = tensors(cpu, (4, 8, 8, 16), 16, geometry)
    for operator in OPERATORS:
        problem = problem_of(operator, x, dy, geometry, 1)
        with planner.use("winograd4"):
            assert planner.choose(planner.arranged(problem)).name == "winograd4"
        with planner.use("taps" if operator == WEIGHT_GRAD else "images"):
            assert planner.arranged(problem) is problem


@pytest.mark.usefixtures("same_figures")
def test_explain_tells_of_the_copies(cpu: CPUEngine) -> None:
    geometry = Geometry.make((16, 16), (3, 3), padding=(1, 1))
    x, _, dy = tensors(cpu, (32, 16, 16, 64), 64, geometry)
    arranged = problem_of(FORWARD, cpu.dense(x, IMAGE_ORDER), dy, geometry, 1)
    told, other = (explain_problem(cpu, p) for p in (problem_of(FORWARD, x, dy, geometry, 1), arranged))
    assert COPIED in str(told) and COPIED not in str(other)
    assert told.name == other.name
    assert told.predicted_ms > other.predicted_ms
