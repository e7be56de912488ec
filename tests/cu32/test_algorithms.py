"""The CUDA engine's convolution algorithms, each where it serves: values, products counted, and what is explained."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.algorithms import ALGORITHMS
from alpha.cu32.convolution import MACS
from alpha.cu32.explain import explain, explain_problem
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from tests.cu32.algorithms import cuda_kit
from tests.cu32.test_convolution import PICKED as PLAIN
from tests.cu32.test_depthwise import PICKED as DEPTHWISE
from tests.cu32.test_few_channels import INPUTS, OUTPUTS, RESULTS
from tests.engine.algorithms import COUNTERS, check_algorithm, draw_filters, draw_images, taken, with_results
from tests.engine.test_conv import Case

PATCHES = {"forward": 0, "input_grad": 1}
"""Which of two turns take that algorithm."""

SMALL = [case for case in PLAIN if case.n * case.channels[0] * case.channels[1] < 4000]
MANY_IMAGES = Case(33, (3, 4), (16, 20), (3, 3), (1, 1), (1, 1))
"""What a walk of so many images a step takes."""


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: f"{algorithm.name} {algorithm.operators[-1]}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_algorithm_where_it_serves(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm, dtype: Any
) -> None:
    """What takes TF32 has bounds and tests of its own: tests/cu32/test_tf32.py and test_patch_tiles.py."""
    monkeypatch.setattr(tf32, "FEWEST_TERMS", 1)
    kit, served = cuda_kit(cu32), set()
    for turn, case in enumerate((*SMALL, MANY_IMAGES, *DEPTHWISE[:4], *RESULTS[:3], *INPUTS[:3], *OUTPUTS[:3])):
        served |= check_algorithm(algorithm, case, dtype, image_order=bool(turn % 2), kit=kit)
    float32_alone = algorithm.name in ("few_results", "few_channels", "threefold", "threefold_window")
    none = algorithm.name in ("tensor_cores", "flat_tensor_cores", "patches", "window") or (
        float32_alone and dtype == np.float64
    )
    assert served == (set() if none else set(algorithm.operators))


def test_what_is_explained_is_what_runs(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 random problems: the algorithm, the products, and for dense float32 images what their shapes alone tell."""
    monkeypatch.setattr(tf32, "FEWEST_TERMS", 1)
    rng, kit = np.random.default_rng(22), cuda_kit(cu32)
    seen, count = set(), 0
    for number, case in enumerate((*itertools.islice(random_cases(rng), 170), *[MANY_IMAGES] * 20)):
        geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
        dtype = np.float64 if rng.random() < 0.2 else np.float32
        whole = bool(rng.random() < 0.5)
        x, dy = (
            draw_images(cu32, rng, (case.n, *size, channels), dtype, whole)
            for size, channels in zip((geometry.input, geometry.output), case.channels, strict=True)
        )
        w_shape = (case.channels[1], *case.filter, case.channels[0] // case.groups)
        w = draw_filters(cu32, rng, w_shape, dtype, whole)
        calls = {
            "forward": lambda: cu32.conv2d(x, w, None, geometry, case.groups),  # noqa: B023
            "input_grad": lambda: cu32.conv2d_input_grad(dy, w, geometry, case.groups),  # noqa: B023
            "weight_grad": lambda: cu32.conv2d_weight_grad(x, dy, geometry, case.groups),  # noqa: B023
        }
        high = bool(rng.random() < 0.4)
        alpha.set_float32_precision("high" if high else "highest")
        try:
            for operator, call in calls.items():
                x_as, dy_as = with_results(cu32, operator, x, dy)
                # So small, the tensor cores are rarely the cheapest.
                on_them = case.n > 1 and (high or number % 2 == 0)
                rounding = "patches" if PATCHES.get(operator) == number % 2 else "tensor_cores"
                rounding = "flat_tensor_cores" if number % 8 == 5 else rounding
                names = (rounding, "window") if high else ("threefold", "threefold_window")
                with planner.use(names[case is MANY_IMAGES]) if on_them else nullcontext():
                    told = explain_problem(cu32, kit.problem(operator, x_as, dy_as, w, geometry, case.groups))
                    if whole and dtype == np.float32:
                        steps = case.stride, case.padding, case.dilation, case.groups
                        assert told == explain(cu32, operator, x.shape, w_shape, *steps)
                    with taken(kit) as names:
                        call()
                assert names == [told.name], (operator, case, dtype)
                assert 2 * MACS[COUNTERS[operator]] == told.useful
                seen.add((told.name, operator))
                count += 1
        finally:
            alpha.set_float32_precision("highest")
    assert count >= 500
    assert seen == {(one.name, operator) for one in ALGORITHMS for operator in one.operators}


@pytest.mark.parametrize(
    ("operator", "size", "stride", "padding"), [(FORWARD, 5, 1, 9000), (INPUT_GRAD, 18_000, 17_000, 0)]
)
@pytest.mark.parametrize("channels", [(3, 20), (20, 3), (8, 12)])
def test_what_is_explained_of_long_axes_is_what_runs(
    cu32: DeviceEngine, operator: str, size: int, stride: int, padding: int, channels: tuple[int, int]
) -> None:
    """Positions beside all windows are not computed, and so not a part of the problem that is decided on."""
    kit, steps = cuda_kit(cu32), ((1, stride), (0, padding))
    geometry = Geometry.make((1, size), (1, 2), *steps)
    x, dy = (
        cu32.dense(alpha.rand(2, *side, count, engine=cu32), IMAGE_ORDER)
        for side, count in zip((geometry.input, geometry.output), channels, strict=True)
    )
    w = alpha.rand(channels[1], 1, 2, channels[0], engine=cu32)
    told = explain(cu32, operator, x.shape, w.shape, *steps)
    decided: list[Any] = []
    with pytest.MonkeyPatch.context() as patched, taken(kit) as names:
        plain = planner.chosen
        patched.setattr(planner, "chosen", lambda *given: (decided.append(given[1]), plain(*given))[1])
        if operator == FORWARD:
            cu32.conv2d(x, w, None, geometry, 1)
        else:
            cu32.conv2d_input_grad(dy, w, geometry, 1)
    assert names == [told.name] and told.useful == 2 * MACS[COUNTERS[operator]]
    assert explain_problem(cu32, decided[0]).choice == told.choice
    assert told.nominal == 2 * 2 * channels[0] * channels[1] * geometry.nominal


def random_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Tiny: odd sizes, strides, dilations; groups, depthwise, few channels, and channels that fill no vector."""

    def pair(*values: int) -> tuple[int, int]:
        """The same for both axes, mostly."""
        row, column = rng.choice(values, 2).tolist()
        return (row, row) if rng.random() < 0.7 else (row, column)

    for turn in itertools.count():
        filter, stride, dilation = pair(1, 2, 3, 3, 4), pair(1, 1, 2, 3), pair(1, 1, 1, 2)
        extents = [(taps - 1) * step + 1 for taps, step in zip(filter, dilation, strict=True)]
        padding = int(rng.integers(0, extents[0] // 2 + 1)), int(rng.integers(0, extents[1] // 2 + 1))
        size = int(rng.integers(extents[0], extents[0] + 5)), int(rng.integers(extents[1], extents[1] + 5))
        fewer, some = int(rng.choice([1, 2, 3, 4, 6])), int(rng.choice([16, 17, 20, 32]))
        groups, channels = (
            (1, (some, int(rng.choice([16, 20, 33, 36])))),
            (1, (fewer, some)),
            (1, (some, fewer)),
            (some, (some, some * int(rng.choice([1, 1, 2])))),
            (2, (2 * int(rng.choice([3, 16])), 2 * int(rng.choice([5, 16])))),
        )[turn % 5]
        yield Case(int(rng.choice([1, 1, 2, 5])), size, channels, filter, stride, padding, dilation, groups)
