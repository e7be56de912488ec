"""The algorithm "patches": its results against float64, what its tiles cover, and what the model says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import planner
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv import patches, tables
from alpha.cu32.conv.patch_lists import DEPTH, PATCH_TILE, TOGETHER, patch_tiles
from alpha.cu32.conv.patch_tiles import TILES, Patches, PatchPlan
from alpha.cu32.conv.problem import Problem, dense_problem
from alpha.cu32.conv.rectangles import covered
from alpha.cu32.convolution import MACS
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from tests import oracles
from tests.cu32.test_planner import H100
from tests.cu32.test_tf32 import rounded, summed

Array = np.ndarray[Any, Any]
Sizes = tuple[int, int]

SHAPES = [(tile.rows, tile.columns) for tile in TILES]


@pytest.fixture(autouse=True)
def high() -> Iterator[None]:
    """TF32 for each test here."""
    before = alpha.get_float32_precision()
    alpha.set_float32_precision("high")
    yield
    alpha.set_float32_precision(before)


@dataclass(frozen=True)
class Case:
    """A convolution: images, (height, width), channels in and out, and the parameters."""

    images: int
    size: Sizes
    inside: int
    outside: int
    filter: Sizes = (3, 3)
    stride: Sizes = (1, 1)
    padding: Sizes = (1, 1)
    dilation: Sizes = (1, 1)
    groups: int = 1

    @property
    def geometry(self) -> Geometry:
        return Geometry.make(self.size, self.filter, self.stride, self.padding, self.dilation)

    @property
    def macs(self) -> int:
        """Products that meet no zero of padding or dilation."""
        pairs = oracles.nonzero_products(self.size, self.filter, self.stride, self.padding, self.dilation)
        return int(pairs) * self.images * self.inside * self.outside // self.groups


CASES = [
    Case(3, (7, 6), 16, 20),  # images that are no multiple of eight, channels that fill no tile
    Case(1, (9, 10), 20, 16),  # one image
    Case(33, (4, 4), 36, 68),  # several classes, more images than a tile has
    Case(9, (8, 7), 24, 132, (5, 3), (2, 1), (2, 0)),  # nothing square, two tiles of columns
    Case(70, (1, 1), 32, 16, (1, 1), padding=(0, 0)),  # maps of one pixel
    Case(12, (2, 2), 48, 32),  # each position a class of its own
    Case(2, (9, 9), 32, 64, padding=(2, 2), dilation=(2, 2), groups=2),
    Case(5, (5, 6), 16, 16, padding=(2, 2)),  # padding over half the filter
    Case(3, (8, 9), 16, 24, (2, 1), (3, 2), (0, 0)),  # stride over filter: some inputs are never read
    Case(4, (11, 7), 16, 16, (3, 2), (3, 1), (2, 1), (2, 3)),  # pixels between those that are needed
    Case(2, (15, 6), 16, 16, (1, 3), (1, 2), (0, 1)),
]
IDS = [str(number) for number in range(len(CASES))]


def draw(case: Case, engine: DeviceEngine) -> tuple[Array, ...]:
    """x, w, dy, a bias for each side's channels, and what is there before on both sides."""
    rng = np.random.default_rng(7)
    y = (case.images, *case.geometry.output, case.outside)
    shapes = [(case.images, *case.size, case.inside), (case.outside, *case.filter, case.inside // case.groups), y]
    x, w, dy = (rounded(rng.standard_normal(shape).astype(np.float32), engine) for shape in shapes)
    return (x, w, dy, *(rng.standard_normal(shape).astype(np.float32) for shape in (case.outside, case.inside)))


def expected(case: Case, data: tuple[Array, ...]) -> list[Array]:
    """y with a bias, and dx, in float64."""
    x, w, dy, bias = (array.astype(np.float64) for array in data[:4])
    parameters = case.stride, case.padding, case.dilation, case.groups
    return [oracles.conv2d(x, w, *parameters) + bias, oracles.conv2d_gradients(x, w, dy, *parameters)[0]]


def check(case: Case, got: list[Array], wanted: list[Array]) -> None:
    taps = math.prod(case.filter)
    for result, exact, channels in zip(got, wanted, (case.inside, case.outside), strict=True):
        assert np.abs(result - exact).max() <= summed(taps * channels // case.groups) * np.abs(exact).max()


@pytest.mark.parametrize("tile", SHAPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_both_operators(cu32: DeviceEngine, case: Case, tile: Sizes) -> None:
    """With a bias, in one part, and just the products that meet no zero."""
    data = draw(case, cu32)
    x, w, dy, bias, _ = (cu32.from_numpy(array) for array in data)
    with planner.use("patches", tile=tile, parts=1):
        results = [
            cu32.conv2d(x, w, bias, case.geometry, case.groups),
            cu32.conv2d_input_grad(dy, w, case.geometry, case.groups),
        ]
    check(case, [cu32.to_numpy(one) for one in results], expected(case, data))
    assert [MACS["conv2d"], MACS["conv2d_input_grad"]] == [case.macs] * 2


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("number", [0, 3, 6])
def test_split_sums(cu32: DeviceEngine, number: int, parts: int) -> None:
    """More parts than chunks too."""
    case = CASES[number]
    data = draw(case, cu32)
    x, w, dy, bias, _ = (cu32.from_numpy(array) for array in data)
    with planner.use("patches", parts=parts):
        results = [
            cu32.conv2d(x, w, bias, case.geometry, case.groups),
            cu32.conv2d_input_grad(dy, w, case.geometry, case.groups),
        ]
    check(case, [cu32.to_numpy(one) for one in results], expected(case, data))


@pytest.mark.parametrize("tile", SHAPES, ids=str)
@pytest.mark.parametrize("number", [0, 3, 8])
def test_accumulates(cu32: DeviceEngine, number: int, tile: Sizes) -> None:
    case = CASES[number]
    data = draw(case, cu32)
    _, w, dy, _, bias = (cu32.from_numpy(array) for array in data)
    before = np.random.default_rng(8).standard_normal((case.images, *case.size, case.inside)).astype(np.float32)
    into = cu32.from_numpy(before).contiguous(IMAGE_ORDER)
    with planner.use("patches", tile=tile, parts=3):
        assert cu32.conv2d_input_grad(dy, w, case.geometry, case.groups, bias, into) is into
    wanted = expected(case, data)[1] + before + data[4]
    assert np.abs(cu32.to_numpy(into) - wanted).max() <= 2 * summed(9 * case.outside) * np.abs(wanted).max()


@pytest.mark.parametrize("number", [0, 2, 6])
def test_a_part_of_more_channels(cu32: DeviceEngine, number: int) -> None:
    """Images whose strides are not those of dense ones, row-major and in the engine's order."""
    case = CASES[number]
    data = draw(case, cu32)
    w = cu32.from_numpy(data[1])
    for order in (None, IMAGE_ORDER):
        x, dy = (
            cu32.from_numpy(np.concatenate([array, array], 3)).contiguous(order)[..., 4 : 4 + array.shape[3]]
            for array in (data[0], data[2])
        )
        turned = [np.roll(data[0], -4, 3), data[1], np.roll(data[2], -4, 3), 0 * data[3], data[4]]
        with planner.use("patches"):
            results = [
                cu32.conv2d(x, w, None, case.geometry, case.groups),
                cu32.conv2d_input_grad(dy, w, case.geometry, case.groups),
            ]
        check(case, [cu32.to_numpy(one) for one in results], expected(case, tuple(turned)))


@pytest.mark.parametrize("tile", SHAPES, ids=str)
def test_offsets_of_64_bits(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, tile: Sizes) -> None:
    monkeypatch.setattr(Problem, "wide", True)
    planner.forget()
    try:
        test_both_operators(cu32, replace(CASES[0], images=2), tile)
    finally:
        planner.forget()


def test_factors_are_rounded_once_and_to_nearest(cu32: DeviceEngine) -> None:
    """The bits are those of an algorithm that rounds factors as it reads them, where sums are exact."""
    rng = np.random.default_rng(3)
    x = (1 + rng.integers(0, 1 << 13, (8, 1, 1, 16)) * 2.0**-13).astype(np.float32)
    w = np.zeros((16, 1, 1, 16), np.float32)
    w[np.arange(16), 0, 0, np.arange(16)] = (1 + rng.integers(0, 1 << 13, 16) * 2.0**-13).astype(np.float32)
    exact = rounded(x, cu32) * rounded(w[np.arange(16), 0, 0, np.arange(16)], cu32)
    for name in ("patches", "tensor_cores"):
        with planner.use(name):
            got = cu32.conv2d(cu32.from_numpy(x), cu32.from_numpy(w), None, Geometry.make((1, 1), (1, 1)), 1)
        assert np.array_equal(cu32.to_numpy(got), exact)


LARGER = [Case(512, (16, 16), 64, 64), Case(40, (56, 60), 16, 16, stride=(2, 2))]

# -- the list of tiles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(
    "case", [*CASES, Case(512, (16, 16), 64, 64), Case(40, (56, 60), 16, 16, stride=(2, 2))], ids=str
)
def test_tiles_cover_every_position_once(case: Case, forward: bool) -> None:
    g = case.geometry
    for tile in TILES:
        for capacity in (1000, 128):
            listed = patch_tiles(g, forward, case.images, tile, capacity)
            assert listed is not None and listed.largest <= capacity
            assert listed.products * case.inside * case.outside // case.groups == case.macs
            axes = patches.classes(g, forward)
            seen = np.zeros((case.images, *(g.output if forward else g.input)), np.int64)
            for values in listed.tiles.tolist():
                t = dict(zip((field.name for field in PATCH_TILE.fields), values, strict=True))
                taps = t["taps_down"] * t["taps_across"]
                pixels = t["height"] * t["width"] * t["pitch"]
                assert t["pitch"] % TOGETHER == 0 and t["down"] * t["across"] * t["pitch"] <= tile.rows
                assert pixels <= taps * tile.rows  # each thread brings as much during a step as it has registers for
                rows, columns = (
                    axis.index[t[first] : t[first] + t[size]]
                    for axis, first, size in zip(
                        axes, ("member_down", "member_across"), ("down", "across"), strict=True
                    )
                )
                seen[t["image"] : t["image"] + t["images"], rows[:, None], columns] += 1
                _check_pixels(t, g.output if not forward else g.input, axes)
            assert (seen == 1).all()


def _check_pixels(t: dict[str, int], source: Sizes, axes: tuple[tables.Classes, tables.Classes]) -> None:
    """Each member's taps are where the tables have them, and the patch is inside the source."""
    for axis, where, extent, size in zip(axes, ("down", "across"), ("height", "width"), source, strict=True):
        member, tap, pixel = (np.arange(t[name]) for name in (where, f"taps_{where}", extent))
        if t["taps_down"] * t["taps_across"]:
            places = t[f"source_{where}"] + t[f"pixel_{where}"] * pixel
            assert places.min() >= 0 and places.max() < size
            inside = t[f"origin_{where}"] + t[f"step_{where}"] * member[:, None] + t[f"tap_{where}"] * tap
            found = axis.first_a[t[f"member_{where}"] + member][:, None] + axis.step_a * tap
            assert np.array_equal(places[inside], found)


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (14, 14), (100, 3)])
def test_rectangles_cover_a_rectangle(size: Sizes) -> None:
    grids = covered(*size, 32, lambda rows, columns: 1 + (rows + 2) * (columns + 2) / 50)
    assert grids is not None
    seen = np.zeros(size, np.int64)
    for grid in grids:
        assert grid.down * grid.across <= 32
        seen[grid.row :, grid.column :][: grid.down * grid.rows, : grid.across * grid.columns] += 1
    assert (seen == 1).all()
    assert covered(*size, 32, lambda rows, columns: math.inf) is None


# -- the model -------------------------------------------------------------------------------------------------------

LAYER = replace(dense_problem(FORWARD, Geometry.make((16, 16), (3, 3), (1, 1), (1, 1)), 512, 64, 64, 1), high=True)


@pytest.mark.parametrize("operator", [FORWARD, INPUT_GRAD])
def test_less_passes_through_the_second_cache(operator: str) -> None:
    """Less than half of what tiles of single positions need for a layer of ResNet18, so patches are taken."""
    plan = planner.plan(replace(LAYER, operator=operator), H100)
    assert isinstance(plan, PatchPlan) and plan.algorithm == "patches" and plan.useful > 0.95
    with planner.use("tensor_cores"):
        other = planner.plan(replace(LAYER, operator=operator), H100)
    assert other.algorithm == "tensor_cores" and plan.cycles < 0.7 * other.cycles
    bytes_before = LAYER.products / other.useful * 4 * (1 / other.tile.rows + 1 / other.tile.columns)  # type: ignore[attr-defined]
    assert plan.second_cache < bytes_before / 2


def test_what_a_plan_says_of_bytes() -> None:
    """Patches and panels of 16 channels each."""
    for plan in Patches().plans(LAYER, H100):
        assert isinstance(plan, PatchPlan)
        listed = patch_tiles(LAYER.geometry, True, 512, plan.tile, plan.capacity)
        assert listed is not None
        rows = listed.pixels.sum() + listed.taps.sum() * plan.tile.columns
        assert plan.second_cache == rows * 64 * 4 == rows * DEPTH * 4 * (64 // DEPTH)


def test_a_device_of_little_shared_memory_has_smaller_patches_or_none() -> None:
    small = replace(H100, shared_per_block=48 << 10, shared_per_multiprocessor=64 << 10)
    plans = Patches().plans(LAYER, small)
    assert plans and all(isinstance(plan, PatchPlan) and plan.capacity < 300 for plan in plans)
    assert not Patches().plans(LAYER, replace(small, shared_per_block=12 << 10))


def test_filters_too_large_are_left_to_others() -> None:
    wide = replace(dense_problem(FORWARD, Geometry.make((40, 40), (15, 15)), 8, 16, 16, 1), high=True)
    assert not Patches().plans(wide, H100)
    with planner.use("patches"):
        assert planner.plan(wide, H100).algorithm != "patches"
