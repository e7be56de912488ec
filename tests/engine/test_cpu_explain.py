"""explain of the CPU engine tells the algorithm that is taken, and its model puts the cheaper one first."""

from __future__ import annotations

import pytest

from alpha.cpu import explain, planner
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import FORWARD, dense_problem
from alpha.cpu.engine import CPUEngine
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry


@pytest.mark.parametrize(
    ("operator", "x", "w", "options", "algorithm", "choice"),
    [
        ("forward", (128, 16, 16, 64), (64, 3, 3, 64), {"padding": 1}, "ConvV2 by Winograd", "0.302 G products"),
        ("forward", (128, 2, 2, 500), (500, 3, 3, 500), {"padding": 1}, "ConvV2", "images as rows"),
        ("forward", (1, 7, 7, 512), (512, 3, 3, 512), {"padding": 1}, "ConvV2", "a panel of filters a task"),
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


def test_it_measures_when_asked(cpu: CPUEngine) -> None:
    told = explain(cpu, "forward", (2, 8, 8, 16), (16, 3, 3, 16), padding=1, measure=True)
    assert told.measured_ms is not None and told.measured_ms > 0
    assert "measured" in str(told)


def test_bad_input(cpu: CPUEngine) -> None:
    with pytest.raises(ArgumentError, match=r"\[explain\] expected an operator of forward, .*, got 'backward'"):
        explain(cpu, "backward", (2, 8, 8, 16), (16, 3, 3, 16))
    with pytest.raises(ShapeError, match=r"\[explain\] expected x_shape .* in 1 groups"):
        explain(cpu, "forward", (2, 8, 8, 16), (16, 3, 3, 8))


def test_the_model_ranks() -> None:
    """More of the same work costs more, and each algorithm is the cheapest where it is meant to be."""

    def cost(images: int, size: int, channels: int, name: str) -> float:
        geometry = Geometry.make((size, size), (3, 3), padding=(1, 1))
        algorithm = planner.named(name, FORWARD)
        assert algorithm is not None
        return algorithm.cycles(dense_problem(FORWARD, geometry, images, channels, channels, 1), packs=False)

    for name in (algorithm.name for algorithm in ALGORITHMS if FORWARD in algorithm.operators and not algorithm.always):
        # A few images may cost as much as some more: a tile's latency, or the reading of its filters.
        assert cost(2, 8, 64, name) < cost(100, 8, 64, name) < cost(100, 16, 64, name)
        assert cost(2, 8, 64, name) < cost(2, 8, 128, name)
    assert cost(1, 14, 64, "positions") < cost(1, 14, 64, "images")
    assert cost(64, 16, 64, "winograd") < cost(64, 16, 64, "images")
    assert cost(128, 2, 512, "images") < cost(128, 2, 512, "winograd")
