"""explain of the CPU engine tells the algorithm that is taken, and its model puts the cheaper one first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from alpha.conv.problem import FORWARD
from alpha.cpu import explain, figures, planner
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import dense_problem, problem_of
from alpha.cpu.convolution import MACS
from alpha.cpu.engine import CPUEngine
from alpha.cpu.explanations import explain_problem
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry
from tests.engine.algorithms import COUNTERS, draw_filters, draw_images, taken, with_results
from tests.engine.test_conv import Case


@pytest.mark.usefixtures("same_figures")
@pytest.mark.parametrize(
    ("operator", "x", "w", "options", "algorithm", "choice"),
    [
        ("forward", (128, 16, 16, 64), (64, 3, 3, 64), {"padding": 1}, "ConvV2 by Winograd", "0.302 G products"),
        ("forward", (128, 2, 2, 500), (500, 3, 3, 500), {"padding": 1}, "ConvV2", "images as rows"),
        ("forward", (1, 7, 7, 512), (512, 3, 3, 512), {"padding": 1}, "ConvV2", "one panel of filters per task"),
        (
            "input_grad",
            (64, 28, 28, 64),
            (64, 5, 5, 64),
            {"stride": 2},
            "KS-deconv-V2 by Winograd",
            "G products instead",
        ),
        (
            "input_grad",
            (1, 28, 28, 64),
            (64, 7, 7, 64),
            {"dilation": 2},
            "KS-deconv-V2",
            "positions and images as rows",
        ),
        ("forward", (4, 28, 28, 64), (64, 3, 3, 64), {"dilation": 2}, "ConvV2 by Winograd", "G products instead"),
        ("forward", (8, 28, 28, 64), (64, 3, 3, 1), {"groups": 64}, "ConvV2", "channels as lanes"),
        ("weight_grad", (8, 28, 28, 64), (64, 3, 3, 1), {"groups": 64}, "Sk-dilated-V2", "channels as lanes"),
        (
            "weight_grad",
            (64, 32, 32, 3),
            (64, 7, 7, 3),
            {"stride": 2, "padding": 3},
            "Sk-dilated-V2",
            "filter row's taps",
        ),
        ("weight_grad", (64, 32, 32, 1), (64, 3, 3, 1), {"dilation": 2}, "Sk-dilated-V2", "all taps and channels"),
        ("input_grad", (64, 32, 32, 3), (64, 3, 3, 3), {"stride": 2}, "KS-deconv-V2", "images as lanes"),
        ("input_grad", (1, 64, 64, 3), (128, 5, 5, 3), {"stride": 2, "padding": 2}, "KS-deconv-V2", "taps as columns"),
        ("weight_grad", (64, 8, 8, 64), (64, 7, 7, 64), {"stride": 2}, "Sk-dilated-V2", "a tap's channels"),
        ("weight_grad", (64, 16, 16, 64), (64, 3, 3, 64), {}, "Sk-dilated-V2 by Winograd", "G products instead"),
    ],
)
def test_it_tells_what_is_done(cpu: CPUEngine, operator: str, x, w, options, algorithm: str, choice: str) -> None:  # type: ignore[no-untyped-def]
    told = explain(cpu, operator, x, w, **options)
    assert told.algorithm.startswith(algorithm) and choice in told.choice
    geometry = Geometry.make(
        x[1:3],
        w[1:3],
        *[(options.get(name, default),) * 2 for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))],
    )
    assert told.useful == 2 * geometry.macs(x[0], x[3], w[0], options.get("groups", 1)) <= told.nominal
    assert told.predicted_ms > 0 and told.measured_ms is None


@pytest.mark.slow
def test_what_it_tells_of_is_what_runs(cpu: CPUEngine) -> None:
    """510 random problems: the algorithm, and where it is exact the products too."""
    rng = np.random.default_rng(22)
    seen = set()
    for case in itertools.islice(random_cases(rng), 170):
        geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
        dtype = np.float64 if rng.random() < 0.2 else np.float32
        whole = bool(rng.random() < 0.7)
        x, dy = (
            draw_images(cpu, rng, (case.n, *size, channels), dtype, whole)
            for size, channels in zip((geometry.input, geometry.output), case.channels, strict=True)
        )
        w_shape = (case.channels[1], *case.filter, case.channels[0] // case.groups)
        w = draw_filters(cpu, rng, w_shape, dtype, whole)
        calls = {
            "forward": lambda: cpu.conv2d(x, w, None, geometry, case.groups),  # noqa: B023
            "input_grad": lambda: cpu.conv2d_input_grad(dy, w, geometry, case.groups),  # noqa: B023
            "weight_grad": lambda: cpu.conv2d_weight_grad(x, dy, geometry, case.groups),  # noqa: B023
        }
        for operator, call in calls.items():
            problem = problem_of(operator, *with_results(cpu, operator, x, dy), geometry.reached, case.groups)
            told = explain_problem(cpu, problem)
            if whole and dtype == np.float32:
                steps = case.stride, case.padding, case.dilation, case.groups
                assert explain(cpu, operator, x.shape, w_shape, *steps).name == told.name
            with taken() as names:
                call()
            assert names == [told.name], (operator, case)
            assert told.name is not None
            algorithm = planner.named(told.name, operator)
            assert algorithm is not None
            if algorithm.exact:
                assert 2 * MACS[COUNTERS[operator]] == told.useful
            seen.add(algorithm)
    assert len(seen) >= 10


def random_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Small and large channels, groups, one channel per group; sizes that the filter fits into."""

    def pair(*values: int) -> tuple[int, int]:
        """The same for both axes, mostly."""
        row, column = rng.choice(values, 2).tolist()
        return (row, row) if rng.random() < 0.7 else (row, column)

    while True:
        filter, stride, dilation = pair(1, 2, 3, 3, 5), pair(1, 1, 2, 3), pair(1, 1, 1, 2)
        extents = [(taps - 1) * step + 1 for taps, step in zip(filter, dilation, strict=True)]
        padding = int(rng.integers(0, extents[0] // 2 + 1)), int(rng.integers(0, extents[1] // 2 + 1))
        size = int(rng.integers(extents[0], extents[0] + 12)), int(rng.integers(extents[1], extents[1] + 12))
        groups, images = int(rng.choice([1, 1, 1, 2, 8])), int(rng.choice([1, 2, 5, 16, 70]))
        inputs, outputs = (groups * int(rng.choice([1, 1, 3, 8, 16, 24, 64])) for _ in range(2))
        yield Case(images, size, (inputs, outputs), filter, stride, padding, dilation, groups)


def test_it_measures_when_asked(cpu: CPUEngine) -> None:
    told = explain(cpu, "forward", (2, 8, 8, 16), (16, 3, 3, 16), padding=1, measure=True)
    assert told.measured_ms is not None and told.measured_ms > 0
    assert "measured" in str(told)


def test_bad_input(cpu: CPUEngine) -> None:
    with pytest.raises(ArgumentError, match=r"\[explain\] expected an operator of forward, .*, got 'backward'"):
        explain(cpu, "backward", (2, 8, 8, 16), (16, 3, 3, 16))
    with pytest.raises(ShapeError, match=r"\[explain\] expected x_shape .* in 1 groups"):
        explain(cpu, "forward", (2, 8, 8, 16), (16, 3, 3, 8))


@pytest.mark.usefixtures("same_figures")
def test_the_model_ranks() -> None:
    """More of the same work costs more, and each algorithm is the cheapest where it is meant to be."""

    def cost(images: int, size: int, channels: int, name: str) -> float:
        geometry = Geometry.make((size, size), (3, 3), padding=(1, 1))
        algorithm = planner.named(name, FORWARD)
        assert algorithm is not None
        problem = dense_problem(FORWARD, geometry, images, channels, channels, 1)
        return algorithm.cycles(problem, False, figures.known().figures)

    for name in (algorithm.name for algorithm in ALGORITHMS if FORWARD in algorithm.operators and not algorithm.always):
        # A few images may cost as much as some more: a tile's latency, or the reading of its filters.
        assert cost(2, 8, 64, name) < cost(100, 8, 64, name) < cost(100, 16, 64, name)
        assert cost(2, 8, 64, name) < cost(2, 8, 128, name)
    assert cost(1, 14, 64, "positions") < cost(1, 14, 64, "images")
    assert cost(64, 16, 64, "winograd") < cost(64, 16, 64, "images")
    assert cost(128, 2, 512, "images") < cost(128, 2, 512, "winograd")
