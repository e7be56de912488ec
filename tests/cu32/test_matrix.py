"""The CUDA engine's matrix products against float64 NumPy: layouts, tails, batches, vectors, split sums."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from alpha.cu32 import planner, products
from alpha.cu32.base import DeviceEngine
from alpha.cu32.matrix import MatrixOperations
from alpha.cu32.products import Product
from alpha.tensor import Tensor
from tests.cu32.test_planner import H100, plan

Array = np.ndarray[Any, Any]

BOUND = {np.float32: 5e-6, np.float64: 1e-13}
"""Largest error allowed, relative to the largest result: the project's bound, and a few hundred roundings."""

LAYOUTS = list(itertools.product((False, True), repeat=2))

SIZES = [(1, 1, 1), (5, 3, 2), (67, 65, 33), (64, 64, 16), (132, 136, 40), (129, 4, 100), (2, 130, 7)]


def on_device(engine: DeviceEngine, array: Array, turned: bool) -> Tensor:
    """The matrices on the device, in memory as they are or with their last two axes exchanged."""
    if not turned:
        return engine.from_numpy(np.ascontiguousarray(array))
    return products.transposed(engine.from_numpy(np.ascontiguousarray(array.swapaxes(-1, -2))))


def check(engine: DeviceEngine, x: Array, y: Array, turned: tuple[bool, bool] = (False, False)) -> None:
    """The device's product is within the bound of float64's."""
    got = engine.to_numpy(engine.matmul(on_device(engine, x, turned[0]), on_device(engine, y, turned[1])))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert got.shape == expected.shape and got.dtype == x.dtype
    if got.size:
        assert np.abs(got - expected).max() <= BOUND[x.dtype.type] * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", LAYOUTS)
def test_layouts_and_tails(
    cu32: DeviceEngine, rng: np.random.Generator, dtype: type[np.floating[Any]], turned: tuple[bool, bool]
) -> None:
    for rows, columns, depth in SIZES:
        x, y = rng.standard_normal((rows, depth)).astype(dtype), rng.standard_normal((depth, columns)).astype(dtype)
        check(cu32, x, y, turned)


@pytest.mark.parametrize("vector", [1, 4])
@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("turned", LAYOUTS)
def test_every_tile(
    cu32: DeviceEngine,
    rng: np.random.Generator,
    turned: tuple[bool, bool],
    tile: int,
    vector: int,
) -> None:
    odd = 0 if vector == 4 else 1
    x = rng.standard_normal((tile + 4 + odd, 28 + odd)).astype(np.float32)
    y = rng.standard_normal((28 + odd, 2 * tile - 4 + odd)).astype(np.float32)
    with planner.use(tile=(tile, tile)):
        check(cu32, x, y, turned)


@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 7, 100), (7, 1, 100), (130, 1, 4096), (1, 132, 3000), (1, 1, 50001), (3, 1, 1)])
def test_vectors(
    cu32: DeviceEngine, rng: np.random.Generator, shape: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    rows, columns, depth = shape
    x, y = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    check(cu32, x.astype(np.float32), y.astype(np.float32), turned)
    check(cu32, x[:, :300], y[:300], turned)


@pytest.mark.parametrize("shape", [(5, 7), (64, 128), (1, 4), (300, 3)])
def test_outer_products(cu32: DeviceEngine, rng: np.random.Generator, shape: tuple[int, int]) -> None:
    check(cu32, rng.standard_normal((2, shape[0], 1)), rng.standard_normal((2, 1, shape[1])))
    x, y = rng.standard_normal((shape[0], 1)).astype(np.float32), rng.standard_normal((1, shape[1])).astype(np.float32)
    check(cu32, x, y)


@pytest.mark.parametrize(
    "shapes",
    [
        ((6, 1, 2, 3), (5, 3, 4)),
        ((4, 1, 8, 12), (3, 12, 8)),
        ((2, 3, 5, 7), (2, 3, 7, 1)),
        ((2, 1, 3, 1, 2, 3), (2, 3, 1, 5, 3, 4)),
        ((3, 2, 1), (3, 1, 4)),
        ((0, 2, 3), (3, 4)),
        ((2, 2, 0), (0, 4)),
    ],
    ids=str,
)
def test_batches(cu32: DeviceEngine, rng: np.random.Generator, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    check(cu32, x, y)


def test_strides_that_a_leading_dimension_describes_are_not_copied(
    cu32: DeviceEngine, rng: np.random.Generator
) -> None:
    base = cu32.from_numpy(rng.standard_normal((40, 60)).astype(np.float32))
    for view in (base[3:20, 5:31], base.T[3:20, 5:31], base[::2, 4:40], base[:1].expand(8, 60)):
        assert isinstance(cu32, MatrixOperations)
        assert cu32._operand(view, ()).tensor is view
        other = rng.standard_normal((view.shape[1], 9)).astype(np.float32)
        got = cu32.to_numpy(cu32.matmul(view, cu32.from_numpy(other)))
        np.testing.assert_allclose(got, view.numpy().astype(np.float64) @ other, rtol=0, atol=2e-5)


def test_a_long_sum_is_split_and_stays_exact(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    """All factors positive: one running float32 sum of so many would be off by more than the bound."""
    depth = 3 * products.LONGEST
    check(cu32, rng.random((8, depth)).astype(np.float32), rng.random((depth, 4)).astype(np.float32))


def test_two_runs_are_equal_to_the_bit(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    x, y = (cu32.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in ((20, 5000), (5000, 24)))
    first, second = (cu32.to_numpy(cu32.matmul(x, y)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_infinite_sums_stay_infinite(cu32: DeviceEngine) -> None:
    x = np.ones((4, 1024), np.float32)
    x[1, 5], x[2, 700] = np.inf, np.nan
    got = cu32.to_numpy(cu32.matmul(cu32.from_numpy(x), cu32.from_numpy(np.ones((x.shape[1], 4), np.float32))))
    assert np.isfinite(got[[0, 3]]).all() and np.isposinf(got[1]).all() and np.isnan(got[2]).all()


def test_merged_axes() -> None:
    assert products.merged_axes((2, 3, 4), (12, 4, 1), (0, 0, 0)) == ((24, 1, 0),)
    assert products.merged_axes((2, 3), (3, 1), (0, 1)) == ((2, 3, 0), (3, 1, 1))
    assert products.merged_axes((1, 5, 1), (9, 7, 9), (9, 0, 9)) == ((5, 7, 0),)


@pytest.mark.parametrize("forced", [None, 1, 7, 1000])
@pytest.mark.parametrize("real", ["float", "double"])
def test_splits_cover_the_depth(real: str, forced: int | None) -> None:
    for rows, columns, depth in itertools.product((1, 64, 1000), (1, 200), (1, 31, 256, 5000, 100_000, 1_000_000)):
        job = Product(rows, columns, depth, 1, 4 if real == "float" else 8, real == "float", ("ACROSS", "ALONG"), True)
        every = (algorithm for algorithm in products.ALGORITHMS if algorithm.serves(job))
        for found in (found for algorithm in every for found in algorithm.plans(job, H100, forced)):
            split = products.split(found)
            assert split.parts == found.parts
            assert split.part % products.STEP == 0 and split.part <= products.LONGEST
            assert (split.parts - 1) * split.part < depth <= split.parts * split.part


def test_few_tiles_are_split_and_many_are_not() -> None:
    few_tiles = plan(Product(128, 128, 65536, 1, 4, True, ("ACROSS", "ALONG")), H100)
    many_tiles = plan(Product(4096, 4096, 4096, 1, 4, True, ("ACROSS", "ALONG")), H100)
    assert few_tiles.parts > 16 and (many_tiles.tile.rows, many_tiles.parts) == (128, 1)
