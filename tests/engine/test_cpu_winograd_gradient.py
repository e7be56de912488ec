"""Filter gradients by Winograd's products: values, products counted, blocks and parts of any size, and the choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cpu import planner
from alpha.cpu.conv import winograd_gradient
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import dense_problem, problem_of
from alpha.cpu.convolution import MACS
from alpha.cpu.engine import CPUEngine
from alpha.cpu.kernels.winograd_forms import FORMS, Key
from alpha.engine import IMAGE_ORDER
from alpha.errors import ShapeError
from alpha.geometry import Geometry
from tests import oracles
from tests.engine.test_conv import Case, draw_data

# As of Winograd's convolutions: the transforms add up to nine numbers and multiply by 1/4 at least, and float32's
# rounding of each is of the size of the terms, whose root of squares the error is divided by.
BOUND = 5e-6

WINOGRADS = {made.name: made.results for made in ALGORITHMS if isinstance(made, winograd_gradient.WinogradGradient)}
"""Results of a run of taps along an axis, by name."""


@pytest.fixture(params=[{}, {"IN_BLOCK": 32, "OUT_BLOCKS": (20,), "ROWS": 6, "PART_UNITS": 1}], ids=["as is", "small"])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As they are; and small ones, which make several blocks of either's channels, and many parts."""
    for name, value in request.param.items():
        monkeypatch.setattr(winograd_gradient, name, value)
    winograd_gradient.plan.cache_clear()
    yield
    winograd_gradient.plan.cache_clear()


def check(case: Case, algorithm: str) -> None:
    engine = alpha.engine("cpu")
    x, _, _, dy = draw_data(case, np.float32)
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    images, grads = (alpha.tensor(a, engine=engine).contiguous(IMAGE_ORDER) for a in (x, dy))
    problem = problem_of(WEIGHT_GRAD, images, grads, geometry.reached, case.groups)
    made = WINOGRADS[algorithm]
    if not winograd_gradient.serves(problem, made):
        assert geometry.reached is not geometry or made > 2  # the taps that reach x have no form
        return
    with planner.use(algorithm):
        dw = engine.conv2d_weight_grad(images, grads, geometry, case.groups).numpy()
    assert MACS["conv2d_weight_grad"] == winograd_gradient.plan(problem, made).macs
    parameters = (case.stride, case.padding, case.dilation, case.groups)
    expected, squares = (
        oracles.conv2d_gradients(
            a, np.ones((case.channels[1], *case.filter, case.channels[0] // case.groups)), b, *parameters
        )[1]
        for a, b in ((x, dy), (x**2, dy**2))
    )
    size = max(np.abs(expected).max(), np.sqrt(squares.max()), 1e-30)
    assert np.abs(dw - expected).max() / size <= BOUND


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("algorithm", WINOGRADS)
@pytest.mark.parametrize(
    "case",
    [
        Case(1, (7, 7), (64, 80), (3, 3), padding=(1, 1)),
        Case(70, (5, 4), (32, 48), (3, 3), padding=(1, 1)),
        Case(9, (1, 1), (17, 33), (3, 3), padding=(1, 1)),
        Case(3, (3, 9), (130, 7), (3, 3), padding=(2, 0)),
        Case(2, (1, 2), (70, 33), (3, 3), padding=(3, 1)),
        Case(16, (11, 8), (24, 140), (3, 3), (2, 2), (1, 1)),
        Case(5, (9, 10), (24, 40), (5, 5), (2, 2), (2, 2)),
        Case(5, (6, 7), (24, 40), (5, 5), (1, 1), (2, 2)),
        Case(4, (9, 8), (40, 24), (3, 3), (1, 1), (3, 2), (3, 2)),
        Case(6, (8, 6), (34, 74), (3, 3), (1, 1), (1, 1), groups=2),
        Case(6, (8, 7), (30, 9), (3, 3), (2, 2), (1, 0), groups=3),
    ],
    ids=str,
)
def test_picked(case: Case, algorithm: str) -> None:
    """Channels that fill no panel or tile, several blocks of either, few rows, parts of tiles, tiles without input."""
    check(case, algorithm)


@settings(max_examples=80, deadline=None)
@given(
    n=st.sampled_from([1, 2, 5, 13, 50, 130]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    channels=st.tuples(*[st.sampled_from([1, 3, 8, 17, 33, 70])] * 2),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    taps=st.sampled_from([3, 3, 5]),
    steps=st.sampled_from([(2, (1, 1)), (1, (1, 1)), (1, (1, 1)), (1, (2, 2)), (1, (1, 3)), (1, (4, 2))]),
    groups=st.sampled_from([1, 1, 2, 3]),
    algorithm=st.sampled_from([*WINOGRADS]),
)
def test_any_shape(
    n: int,
    size: tuple[int, int],
    channels: tuple[int, int],
    padding: tuple[int, int],
    taps: int,
    steps: tuple[int, tuple[int, int]],
    groups: int,
    algorithm: str,
) -> None:
    stride, dilation = steps
    extents = [(taps - 1) * d + 1 for d in dilation]
    size = (max(size[0], extents[0] - 2 * padding[0]), max(size[1], extents[1] - 2 * padding[1]))
    both = (channels[0] * groups, channels[1] * groups)
    check(Case(n, size, both, (taps, taps), (stride, stride), padding, dilation, groups=groups), algorithm)


CONVOLUTIONS = [(made, key) for made, forms in FORMS.items() for key in forms if key[0]]


@pytest.mark.parametrize(("made", "key"), CONVOLUTIONS, ids=str)
def test_the_forms_of_an_axis(made: int, key: Key, rng: np.random.Generator) -> None:
    """The transposed algorithm by its definition, in float64, to 1e-12."""
    _, taps, stride, _ = key
    form = FORMS[made][key]
    a, b, g = (np.array(matrix) for matrix in (form.a, form.b, form.g))
    tile, dy = rng.normal(size=form.inputs), rng.normal(size=form.results)
    gradient = g.T @ ((a.T @ dy) * (b @ tile))
    for f in range(taps):
        assert gradient[f] == pytest.approx(sum(dy[k] * tile[stride * k + f] for k in range(form.results)), abs=1e-12)


def test_sums_are_the_same_on_any_number_of_threads(cpu: CPUEngine) -> None:
    """Parts are made by shapes alone."""
    x, _, _, dy = draw_data(Case(64, (8, 8), (48, 40), (3, 3), padding=(1, 1)), np.float32)
    geometry = Geometry.make((8, 8), (3, 3), padding=(1, 1))
    images, grads = (alpha.tensor(a, engine=cpu).contiguous(IMAGE_ORDER) for a in (x, dy))
    before, results = cpu.threads, []
    assert winograd_gradient.plan(problem_of(WEIGHT_GRAD, images, grads, geometry, 1)).sizes.parts > 1
    try:
        for threads in (1, 2, 3):
            cpu.configure(threads=threads)
            with planner.use("winograd"):
                results.append(cpu.conv2d_weight_grad(images, grads, geometry, 1).numpy().tobytes())
    finally:
        cpu.configure(threads=before)
    assert results[0] == results[1] == results[2]


@pytest.mark.usefixtures("same_figures")
def test_choice() -> None:
    """Where products are saved and sums repay themselves; never in float64, or where all products are asked for."""

    def chosen(n: int, size: int, channels: int, item: int = 4) -> str:
        geometry = Geometry.make((size, size), (3, 3), padding=(1, 1))
        problem = dense_problem(WEIGHT_GRAD, geometry, n, channels, channels, 1)
        return planner.choose(replace(problem, item=item)).name

    assert chosen(128, 32, 64) == chosen(128, 8, 256) == "winograd4"
    assert chosen(128, 32, 64, item=8) == "taps"
    assert chosen(1, 4, 512) == "taps"
    with planner.use("images"):
        assert chosen(128, 32, 64) == "taps"
    with planner.use("winograd"):
        assert chosen(1, 4, 512) == "winograd"


def test_gradients_of_another_dtype_are_told_before_they_are_read(cpu: CPUEngine) -> None:
    x, dy = alpha.zeros((2, 8, 8, 32), engine=cpu), alpha.zeros((2, 8, 8, 32), dtype=alpha.float64, engine=cpu)
    with pytest.raises(ShapeError, match="expected dy of x's float32, got float64"):
        cpu.conv2d_weight_grad(x, dy, Geometry.make((8, 8), (3, 3), padding=(1, 1)), 1)


def test_infinite_gradients_stay_visible(cpu: CPUEngine) -> None:
    """A gradient that overflowed is not lost in the transforms: what it enters is not finite."""
    x, dy = np.ones((4, 8, 8, 32), np.float32), np.ones((4, 8, 8, 32), np.float32)
    dy[1, 3, 4, 5] = np.inf
    images, grads = (alpha.tensor(a, engine=cpu).contiguous(IMAGE_ORDER) for a in (x, dy))
    with planner.use("winograd"):
        dw: Any = cpu.conv2d_weight_grad(images, grads, Geometry.make((8, 8), (3, 3), padding=(1, 1)), 1).numpy()
    assert not np.isfinite(dw[5]).any() and np.isfinite(np.delete(dw, 5, axis=0)).all()
