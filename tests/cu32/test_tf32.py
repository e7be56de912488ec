"""TF32 on the tensor cores: exact products of rounded factors, the bound of the rounding, when it serves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.flat import FlatTensorCores
from alpha.cu32.conv.problem import Aligned, Problem, dense_problem
from alpha.cu32.conv.tensor_cores import TensorCores
from alpha.cu32.costs import TilePlan
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Geometry
from tests.cu32.test_matrix import LAYOUTS, on_device
from tests.cu32.test_planner import H100, plan

Array = np.ndarray[Any, Any]

ROUNDING = 2.0**-11
"""TF32 keeps 10 bits behind the leading one: a factor is off by at most this, relative to itself."""

FLOAT32 = 5e-6
"""What sums that are rounded to nearest, in float32, may add, relative to the largest result."""


def summed(depth: int) -> float:
    """What the tensor cores' sums of so many products may add, relative to the largest result.

    They add exact products to float32 sums without rounding. An instruction of 8 products (mma.m16n8k8) brings all nine
    addends to the largest one's exponent, cutting off what then lies below 2^-23 of it, and cuts its sum off likewise:
    the sum so far loses up to two units of 2^-23, always towards zero, so that over depth / 8 instructions losses add
    up to depth / 8 * 2 * 2^-23. The products' own losses have either sign; with those of parts that are added, they
    are as small as roundings to nearest. For the deepest sum here, of 612 products, that makes 2.3e-5.
    """
    return FLOAT32 + depth / 8 * 2 * 2.0**-23


@pytest.fixture(autouse=True)
def high() -> Iterator[None]:
    """TF32 for each test here."""
    before = alpha.get_float32_precision()
    alpha.set_float32_precision("high")
    yield
    alpha.set_float32_precision(before)


def rounded(x: Array, engine: DeviceEngine) -> Array:
    """To TF32: to nearest, ties to even from compute capability 9.0 on, away from zero before."""
    bits = x.view(np.uint32)
    half = 0xFFF + (bits >> 13 & 1) if engine.device.capability >= (9, 0) else np.uint32(0x1000)
    return (bits + half & ~np.uint32(0x1FFF)).view(np.float32)


@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("turned", LAYOUTS)
def test_products(
    cu32: DeviceEngine,
    rng: np.random.Generator,
    turned: tuple[bool, bool],
    tile: int,
) -> None:
    for rows, columns, depth in ((132, 140, 36), (64, 128, 128), (12, 8, 4), (68, 4, 612)):
        x, y = (rng.standard_normal(s).astype(np.float32) for s in ((rows, depth), (depth, columns)))
        with planner.use("tensor_cores", tile=(tile, tile)):
            got = cu32.to_numpy(cu32.matmul(on_device(cu32, x, turned[0]), on_device(cu32, y, turned[1])))
        exact = rounded(x, cu32).astype(np.float64) @ rounded(y, cu32).astype(np.float64)
        allowed = summed(depth)
        assert np.abs(got - exact).max() <= allowed * np.abs(exact).max()
        # Each product is off by two roundings (and their product) of its size; no sum is larger than that of the sizes.
        sizes = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
        assert (np.abs(got - x.astype(np.float64) @ y) <= (2 * ROUNDING + ROUNDING**2 + allowed) * sizes).all()
        assert np.abs(got - x.astype(np.float64) @ y).max() > allowed * np.abs(exact).max()  # it is TF32 indeed


def test_batches_and_parts(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 1, 8, 4096)).astype(np.float32)
    y = rng.standard_normal((2, 4096, 12)).astype(np.float32)
    with planner.use("tensor_cores"):
        got = cu32.to_numpy(cu32.matmul(cu32.from_numpy(x), cu32.from_numpy(y)))
    exact = rounded(x, cu32).astype(np.float64) @ rounded(y, cu32).astype(np.float64)
    assert np.abs(got - exact).max() <= summed(4096) * np.abs(exact).max()


def test_what_is_not_aligned_is_computed_in_float32(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((9, 33), (33, 7)))
    got = cu32.to_numpy(cu32.matmul(cu32.from_numpy(x), cu32.from_numpy(y)))
    exact = x.astype(np.float64) @ y
    assert np.abs(got - exact).max() <= FLOAT32 * np.abs(exact).max()


def test_infinities_and_nans_pass(cu32: DeviceEngine) -> None:
    x = np.ones((8, 8), np.float32)
    x[1, 2], x[2, 3] = np.inf, np.nan
    x.view(np.uint32)[3, 4] = 0x7FFFFFFF  # the NaN that the device's own arithmetic makes
    with planner.use("tensor_cores"):
        got = cu32.to_numpy(cu32.matmul(cu32.from_numpy(x), cu32.from_numpy(np.ones((8, 8), np.float32))))
    assert np.isposinf(got[1]).all() and np.isnan(got[2:4]).all() and (got[[0, 4, 7]] == 8).all()


CONVOLUTIONS = [
    # images, (height, width), in channels, out channels, filter, stride, padding, dilation, groups
    (3, (7, 6), 16, 20, 3, 1, 1, 1, 1),
    (5, (9, 8), 36, 68, 3, 2, 1, 1, 1),
    (33, (4, 4), 64, 64, 3, 1, 1, 1, 1),
    (2, (8, 7), 24, 132, 5, 2, 2, 1, 1),
    (130, (2, 2), 32, 16, 1, 1, 0, 1, 1),
    (2, (9, 9), 32, 48, 3, 1, 2, 2, 2),
]


@pytest.mark.parametrize("tile", [(128, 128), (128, 64), (64, 64)], ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(
    cu32: DeviceEngine,
    rng: np.random.Generator,
    case: tuple[Any, ...],
    tile: tuple[int, int],
) -> None:
    """All three operators equal, within the sums' bound, the CPU engine's float64 ones on rounded factors."""
    images, size, inside, outside, filter, stride, padding, dilation, groups = case
    geometry = Geometry.make(size, (filter,) * 2, (stride,) * 2, (padding,) * 2, (dilation,) * 2)
    x = rounded(rng.standard_normal((images, *size, inside)).astype(np.float32), cu32)
    w = rounded(rng.standard_normal((outside, filter, filter, inside // groups)).astype(np.float32), cu32)
    dy = rounded(rng.standard_normal((images, *geometry.output, outside)).astype(np.float32), cu32)
    bias = rng.standard_normal((outside,)).astype(np.float32)
    before = rng.standard_normal((images, *size, inside)).astype(np.float32)
    results = []
    for engine, dtype in ((alpha.engine("cpu"), np.float64), (cu32, np.float32)):
        arrays: list[Array] = [x, w, dy, bias, before]
        tx, tw, ty, tb, tr = (engine.from_numpy(array.astype(dtype)) for array in arrays)
        adds = engine.empty(tr.shape, tr.dtype, IMAGE_ORDER)
        engine.copy(tr, adds)
        with planner.use("tensor_cores", tile=tile):
            results.append(
                (
                    engine.conv2d(tx, tw, tb, geometry, groups),
                    engine.conv2d_input_grad(ty, tw, geometry, groups, accumulate=adds),
                    engine.conv2d_weight_grad(tx, ty, geometry, groups),
                )
            )
    taps = filter**2
    depths = (taps * inside // groups, taps * outside // groups, images * geometry.output[0] * geometry.output[1])
    for expected, got, depth in zip(*results, depths, strict=True):
        exact = expected.numpy()
        assert np.abs(cu32.to_numpy(got) - exact).max() <= summed(depth) * np.abs(exact).max()


SHALLOW = [
    # images, (height, width), summed channels, others, filter, stride, padding, dilation, groups
    (3, (9, 8), 3, 20, (3, 3), (2, 1), (1, 1), (1, 1), 1),
    (5, (11, 10), 3, 72, (7, 7), (2, 2), (3, 3), (1, 1), 1),
    (2, (8, 7), 5, 36, (5, 2), (1, 1), (2, 1), (2, 1), 1),
    (130, (4, 3), 1, 16, (5, 5), (1, 1), (3, 2), (1, 1), 1),
    (1, (6, 5), 6, 40, (3, 3), (3, 4), (1, 2), (1, 1), 2),
    (2, (5, 6), 15, 132, (8, 8), (1, 1), (6, 4), (1, 1), 1),  # as many terms as the table holds, nearly
    (3, (1, 1), 7, 16, (3, 3), (1, 1), (1, 1), (1, 1), 1),
]
"""Convolutions of few channels, and input gradients from few."""


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("tile", [(128, 128), (128, 64), (64, 64)], ids=str)
@pytest.mark.parametrize("case", SHALLOW, ids=str)
@pytest.mark.parametrize("operator", [FORWARD, INPUT_GRAD])
def test_sums_over_few_channels(
    cu32: DeviceEngine,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
    case: tuple[Any, ...],
    tile: tuple[int, int],
    parts: int,
) -> None:
    images, size, summed_over, others, filter, stride, padding, dilation, groups = case
    geometry = Geometry.make(size, filter, stride, padding, dilation)
    inside, outside = (summed_over, others) if operator == FORWARD else (others, summed_over)
    source = (*size, inside) if operator == FORWARD else (*geometry.output, outside)
    image = rounded(rng.standard_normal((images, *source)).astype(np.float32), cu32)
    w = rounded(rng.standard_normal((outside, *filter, inside // groups)).astype(np.float32), cu32)
    bias = rng.standard_normal(others).astype(np.float32)
    taken = spied(monkeypatch)
    results = []
    for engine, dtype in ((alpha.engine("cpu"), np.float64), (cu32, np.float32)):
        given = [engine.from_numpy(array.astype(dtype)) for array in (image, w, bias)]
        convolve = engine.conv2d if operator == FORWARD else engine.conv2d_input_grad
        with planner.use("flat_tensor_cores", tile=tile, parts=parts):
            results.append(
                convolve(given[0], given[1], geometry, groups, given[2])
                if operator == INPUT_GRAD
                else convolve(*given, geometry, groups)
            )
    expected, got = (one.numpy() for one in results)
    assert taken
    assert np.abs(got - expected).max() <= summed(math.prod(filter) * summed_over // groups) * np.abs(expected).max()


def spied(monkeypatch: pytest.MonkeyPatch) -> list[TilePlan]:
    """The plans that are computed by the algorithm for few channels."""
    found: list[TilePlan] = []
    original = FlatTensorCores.run

    def run(self: FlatTensorCores, engine: DeviceEngine, plan: TilePlan, call: Any) -> int:
        found.append(plan)
        return original(self, engine, plan, call)

    monkeypatch.setattr(FlatTensorCores, "run", run)
    return found


def test_a_stem_runs_on_the_tensor_cores() -> None:
    stem = replace(dense_problem("forward", Geometry.make((32, 32), (7, 7), (2, 2), (3, 3)), 512, 3, 64, 1), high=True)
    found = plan(stem, H100)
    others = plan(replace(stem, high=False), H100)
    assert found.algorithm == "flat_tensor_cores" and others.algorithm == "tiles"
    assert found.cycles < 0.5 * others.cycles
    flat = FlatTensorCores()
    gradient = replace(stem, operator=INPUT_GRAD, in_channels=64, out_channels=3)
    assert flat.serves(gradient)
    assert not flat.serves(replace(gradient, in_channels=62))  # filters are read four at a time
    assert not flat.serves(replace(gradient, aligned=Aligned(filters=False)))
    assert not flat.serves(replace(stem, in_channels=32)) and not flat.serves(replace(stem, item=8, high=False))
    assert not flat.serves(replace(stem, out_channels=8))


GEOMETRY = Geometry.make((32, 32), (3, 3), (1, 1), (1, 1))
LAYER = replace(dense_problem("forward", GEOMETRY, 512, 64, 64, 1), high=True)


def test_which_convolutions_run_on_the_tensor_cores() -> None:
    def takes(problem: Problem) -> bool:
        return "tensor_cores" in (algorithm.name for algorithm in planner.candidates(problem))

    assert takes(LAYER) and takes(replace(LAYER, operator="weight_grad"))
    assert not takes(replace(LAYER, aligned=Aligned(x=False)))
    assert not takes(replace(LAYER, in_channels=4))
    assert not takes(replace(LAYER, item=8))
    assert not takes(replace(LAYER, high=False))


def test_they_are_taken_in_high_precision_only(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tf32.enabled(cu32)
    with monkeypatch.context() as older:
        older.setattr(cu32.device, "capability", (7, 5))
        assert not tf32.enabled(cu32)
    alpha.set_float32_precision("medium")  # TF32 is more exact than bfloat16
    assert tf32.enabled(cu32) and not tf32.threefold(cu32)
    alpha.set_float32_precision("highest")
    assert not tf32.enabled(cu32)


def test_tiles_that_need_more_shared_memory_than_there_is_are_left_out() -> None:
    small = replace(H100, shared_per_block=64 << 10, shared_per_multiprocessor=65 << 10)
    tiles = {(plan.tile.rows, plan.tile.columns) for plan in TensorCores().plans(LAYER, small)}
    assert tiles == {(64, 64)}
    smallest = replace(small, shared_per_block=1 << 10)
    assert not TensorCores().plans(LAYER, smallest)
    with planner.use("tensor_cores"):
        assert planner.plan(LAYER, smallest).algorithm == "tiles"


def test_a_weight_gradient_of_few_filters_is_split() -> None:
    with planner.use("tensor_cores"):
        found = plan(replace(LAYER, operator="weight_grad"), H100)
    assert found.algorithm == "tensor_cores" and found.parts > 1 and found.useful > 0.9


@pytest.mark.parametrize("depth", [8, 64, 256, 608])
def test_the_bound_of_sums_holds_for_sums_that_are_cut_off(rng: np.random.Generator, depth: int) -> None:
    """What a device does, in float64: addends are cut off at 2^-23 of the largest one, and the sum too."""
    x, y = (rng.standard_normal((400, depth)).astype(np.float32) for _ in range(2))
    assert _lost(x.astype(np.float64) * y) <= summed(depth)
    # Where all products have one sign, so have their losses: the nine addends' and the sum's, a unit each at most.
    same = _lost(np.abs(x.astype(np.float64) * y))
    assert same <= depth / 8 * 10 * 2.0**-23
    assert depth < 256 or same > FLOAT32  # what rounding allows would not do


def _lost(products: Array) -> float:
    """The largest error of sums of rows, eight products at a time, relative to the largest sum."""
    total = np.zeros(len(products))
    for first in range(0, products.shape[1], 8):
        total = _cut_off(np.concatenate([total[:, None], products[:, first : first + 8]], 1))
    exact = products.sum(1)
    return float(np.abs(total - exact).max() / np.abs(exact).max())


def _cut_off(addends: Array) -> Array:
    """The sums of rows, cut off as the tensor cores do."""
    unit = np.exp2(np.floor(np.log2(np.abs(addends).max(1))) - 23)
    total: Array = (np.trunc(addends / unit[:, None]) * unit[:, None]).sum(1)
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(total), 1e-30))) - 23)
    return np.asarray(np.trunc(total / unit) * unit)
