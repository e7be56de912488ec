"""Filter gradients by sliding windows: values against float64 from the definition, products counted, tables, plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cu32 import planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv import windows
from alpha.cu32.conv.problem import Problem, dense_problem
from alpha.cu32.conv.tensor_cores import STAGES
from alpha.cu32.conv.windows import SQUARE, TALL, ThreefoldWindowGradient, WindowGradient
from alpha.cu32.convolution import MACS
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Axis, Geometry, Side
from tests.cu32.algorithms import cuda_kit
from tests.cu32.test_planner import H100, plan
from tests.cu32.test_tf32 import rounded, summed
from tests.engine.algorithms import taken

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A filter gradient."""

    images: int
    size: tuple[int, int]
    channels: tuple[int, int]
    filter: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[Side, Side] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def geometry(self) -> Geometry:
        return Geometry.make(self.size, self.filter, self.stride, self.padding, self.dilation)


CASES = [
    Case(32, (4, 5), (16, 20)),
    Case(33, (3, 4), (68, 64)),  # images and channels that fill no step and no tile
    Case(40, (5, 7), (20, 132), stride=(2, 2)),
    Case(64, (2, 2), (64, 16)),  # every position has a tap in the padding
    Case(16, (1, 1), (16, 16)),  # one tap of each row is left
    Case(32, (4, 9), (16, 16), (2, 3), (3, 4), (0, 1)),  # stride over the filter: columns that nothing reads
    Case(32, (3, 3), (16, 16), (3, 3), (1, 1), (2, 3)),  # padding over half the filter: positions without a tap
    Case(34, (3, 6), (16, 16), (2, 2), (1, 1), ((0, 1), (1, 0))),  # padded on one side
    Case(32, (3, 7), (16, 16), (1, 3), (1, 2), (0, (0, 2))),
    Case(35, (5, 3), (32, 40), (3, 2), (2, 1), (1, 0), groups=2),
    Case(32, (2, 8), (16, 16), (1, 5), (1, 1), (0, 2)),  # taps in runs of three and two
    Case(32, (2, 9), (16, 16), (1, 7), (1, 2), (0, 3)),  # a last run of one tap
    Case(32, (2, 7), (16, 16), (1, 4), (1, 1), (0, (3, 0))),  # runs of two
    Case(32, (3, 9), (16, 16), (2, 3), (1, 1), (0, 2), (2, 2)),  # dilated: columns of a window that no tap meets
    Case(32, (2, 8), (16, 16), (1, 3), (1, 3), (0, 2), (1, 2)),
    Case(17, (2, 3), (16, 16), (2, 2), (1, 5), (0, 9), (1, 1)),  # few positions meet x at all
]


def gradient(case: Case, x: Array, dy: Array) -> Array:
    """dw of a group's channels, in float64, from the definition."""
    geometry, groups = case.geometry, case.groups
    inside, outside = (count // groups for count in case.channels)
    found = np.zeros((case.channels[1], *case.filter, inside))
    for r, rows in enumerate(geometry.rows.by_tap):
        for c, columns in enumerate(geometry.columns.by_tap):
            for (i, p), (j, q) in ((row, column) for row in rows for column in columns):
                a, b = x[:, i, j].reshape(-1, groups, inside), dy[:, p, q].reshape(-1, groups, outside)
                found[:, r, c] += np.einsum("ngi,ngo->goi", a, b).reshape(-1, inside)
    return found


@contextmanager
def taking(name: str) -> Iterator[None]:
    """The precision that an algorithm is of, within it."""
    before = alpha.get_float32_precision()
    alpha.set_float32_precision("high" if name == "window" else "highest")
    try:
        yield
    finally:
        alpha.set_float32_precision(before)


def check(engine: DeviceEngine, case: Case, name: str, rng: np.random.Generator, **use: Any) -> None:
    """Takes an algorithm: its values are as near as those without windows, and only what is useful is counted."""
    geometry = case.geometry
    x = rng.standard_normal((case.images, *case.size, case.channels[0])).astype(np.float32)
    dy = rng.standard_normal((case.images, *geometry.output, case.channels[1])).astype(np.float32)
    if name == "window":
        x, dy = rounded(x, engine), rounded(dy, engine)
    images, grads = (engine.dense(engine.from_numpy(array), IMAGE_ORDER) for array in (x, dy))
    with taking(name), planner.use(name, **use), taken(cuda_kit(engine)) as names:
        got = engine.to_numpy(engine.conv2d_weight_grad(images, grads, geometry, case.groups))
    assert names == [name]
    exact, wide = gradient(case, x.astype(np.float64), dy.astype(np.float64)), gradient(case, np.abs(x), np.abs(dy))
    if name == "window":
        depth = case.images * geometry.output[0] * geometry.output[1]
        assert np.abs(got - exact).max() <= summed(depth) * np.abs(exact).max()
    else:
        assert (np.abs(got - exact) <= 4e-7 * wide).all()
    pairs = geometry.rows.useful * geometry.columns.useful
    assert MACS["conv2d_weight_grad"] == pairs * case.images * case.channels[0] * case.channels[1] // case.groups


@pytest.mark.parametrize("name", ["window", "threefold_window"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_products(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, case: Case, name: str
) -> None:
    monkeypatch.setattr(tf32, "FEWEST_TERMS", 1)
    check(cu32, case, name, rng)


@pytest.mark.parametrize("parts", [1, 2, 5, 64])
@pytest.mark.parametrize("name, tile", [("window", (64, 64)), ("window", (128, 64)), ("threefold_window", (64, 64))])
def test_tiles_and_parts(
    cu32: DeviceEngine, rng: np.random.Generator, name: str, tile: tuple[int, int], parts: int
) -> None:
    """Parts begin in the middle of rows, and there are some without a step."""
    check(cu32, Case(40, (3, 4), (16, 132)), name, rng, tile=tile, parts=parts)
    check(cu32, Case(33, (5, 7), (68, 16), stride=(2, 2)), name, rng, tile=tile, parts=parts)


@pytest.mark.parametrize("name", ["window", "threefold_window"])
def test_offsets_of_64_bits(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(windows, "WIDE", 1)
    check(cu32, Case(33, (3, 4), (20, 16)), name, rng)


def test_what_is_no_number_passes(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    """Infinities, what is no number and the largest numbers, as by multiply-adds."""
    geometry = Geometry.make((3, 4), (3, 3), (1, 1), (1, 1))
    for value in (np.inf, np.nan, np.finfo(np.float32).max):
        x, dy = (rng.standard_normal((32, 3, 4, 16)).astype(np.float32) for _ in range(2))
        x[3, 1, 2, 5], dy[7, 0, 3, 9], dy[:, :, :, 2] = value, -value, 0
        results = []
        for algorithm in ("threefold_window", "tiles"):
            with planner.use(algorithm):
                found = cu32.conv2d_weight_grad(cu32.from_numpy(x), cu32.from_numpy(dy), geometry, 1)
                results.append(cu32.to_numpy(found))
        ours, theirs = results
        assert np.array_equal(np.isnan(ours), np.isnan(theirs)) and np.array_equal(np.isinf(ours), np.isinf(theirs))
        finite = np.isfinite(theirs)
        np.testing.assert_allclose(ours[finite], theirs[finite], rtol=1e-4, atol=1e-4)


# -- the walk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_ring_holds_what_the_stages_need_and_no_more(case: Case) -> None:
    """Panels from the first that a step reads to the last that is brought while it is computed, at worst."""
    axis = case.geometry.columns
    for run in windows.tap_runs(axis):
        assert run.slots == max(1, _most_held(axis, run))
        pairs = [axis.leap(tap) for tap in range(axis.filter)]
        assert run.met <= sum(map(len, pairs)) and run.brought <= run.positions * axis.extent
    assert sum(run.met for run in windows.tap_runs(axis)) == axis.useful


def _most_held(axis: Axis, run: windows.TapRun) -> int:
    """By walking along several rows, the panels written down one by one."""
    span = (run.taps - 1) * axis.dilation + 1
    walk = [
        {(row, column) for column in range(begin, begin + span) if 0 <= column < axis.input}
        for row in range(STAGES + 1)
        for begin in range(run.column, run.column + run.positions * axis.stride, axis.stride)
    ]
    ahead = [set().union(*walk[step : step + STAGES]) for step in range(len(walk) - STAGES)]
    return max(map(len, ahead), default=0)


def test_windows_slide() -> None:
    """Each column of a row is brought once; with a stride of two a step brings two."""
    (run,) = windows.tap_runs(Axis(16, 3, 1, (1, 1)))
    assert (run.positions, run.column, run.met, run.brought, run.slots) == (16, -1, 46, 16, 5)
    (run,) = windows.tap_runs(Axis(16, 3, 2, (1, 1)))
    assert (run.positions, run.column, run.met, run.brought, run.slots) == (8, -1, 23, 16, 7)


# -- plans -----------------------------------------------------------------------------------------------------------

GEOMETRY = Geometry.make((16, 16), (3, 3), (1, 1), (1, 1))
LAYER = replace(dense_problem(WEIGHT_GRAD, GEOMETRY, 512, 64, 64, 1), high=True)


def test_which_problems_are_served() -> None:
    def serves(problem: Problem) -> bool:
        return WindowGradient().serves(problem)

    assert serves(LAYER) and not ThreefoldWindowGradient().serves(LAYER)
    assert ThreefoldWindowGradient().serves(replace(LAYER, high=False, split=True))
    assert not serves(replace(LAYER, high=False))
    assert not serves(replace(LAYER, images=8))
    assert not serves(replace(LAYER, in_channels=8)) and not serves(replace(LAYER, out_channels=18))
    narrow = Geometry.make((16, 16), (3, 1), (1, 1), (1, 0))
    assert not serves(replace(LAYER, geometry=narrow))


def test_a_layer_brings_a_third_through_the_cache() -> None:
    found = plan(LAYER, H100)
    assert found.algorithm == "window" and found.useful == 1
    with planner.use("tensor_cores", tile=(64, 64)):
        assert found.second_cache < 0.36 * plan(LAYER, H100).second_cache
    # 46 of 48 pairs of a tap and a position are inside, of rows as of columns; every panel is of 64 channels.
    steps, brought = 46 * 16 * 16, 46 * 16 * 16
    assert found.second_cache == (steps + brought) * 64 * 32 * 4


def test_plans_that_do_not_fit() -> None:
    small = replace(H100, shared_per_block=66 << 10)
    assert {plan.tile for plan in WindowGradient().plans(LAYER, small)} == {SQUARE}
    assert not WindowGradient().plans(LAYER, replace(H100, shared_per_block=16 << 10))
    assert {plan.tile for plan in WindowGradient().plans(LAYER, H100)} == {SQUARE, TALL}
    wide = replace(dense_problem(WEIGHT_GRAD, GEOMETRY, 1 << 17, 64, 64, 1), high=True)
    assert {plan.tile for plan in WindowGradient().plans(wide, H100)} == {SQUARE}
