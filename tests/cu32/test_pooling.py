"""Pooling on cu32 in packs of four and single elements, against the CPU engine, which the definition has tested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import IMAGE_ORDER, Engine
from alpha.geometry import Axis, Geometry
from alpha.tensor import Tensor

GEOMETRIES = [
    Geometry.make((6, 7), (2, 2), (2, 2)),
    Geometry.make((6, 7), (3, 3), (2, 1), (1, 1)),
    Geometry.make((6, 7), (3, 2), (1, 2), (1, 0), (2, 3)),
    Geometry.make((6, 7), (6, 7)),
]


LARGE_WINDOWS = [
    Geometry.make((9, 8), (9, 8)),  # the whole image
    Geometry.make((16, 17), (8, 9), (4, 3), (2, 4)),
    Geometry.make((20, 40), (10, 20), (10, 20)),
    Geometry.make((9, 8), (9, 8), (1, 1), (2, 0)),
    Geometry(Axis(11, 8, 4, (0, 1)), Axis(11, 8, 4, (0, 1))),  # as ceil_mode has it
]
"""Windows over which a thread each would leave the device idle."""


def both(cu32: Engine, array: Any) -> tuple[Tensor, Tensor]:
    """The array in image order on the CPU engine and on the other."""
    ordered = np.ascontiguousarray(array.transpose(IMAGE_ORDER)).transpose(np.argsort(IMAGE_ORDER))
    return alpha.engine("cpu").from_numpy(ordered), cu32.from_numpy(ordered)


@pytest.mark.parametrize("size", [(2, 6), (4, 8), (1, 5), (300, 4)], ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: f"{g.filter}{g.rows.stride}")
def test_as_on_the_cpu(cu32: Engine, rng: np.random.Generator, geometry: Geometry, size: tuple[int, int]) -> None:
    cpu = alpha.engine("cpu")
    n, c = size
    x = rng.integers(-9, 9, (n, *geometry.input, c)).astype(np.float32)  # with ties
    x[0, 1, 1, 0] = np.nan
    dy = rng.standard_normal((n, *geometry.output, c)).astype(np.float32)
    (x_cpu, x_gpu), (dy_cpu, dy_gpu) = both(cu32, x), both(cu32, dy)
    pairs = list(zip(cpu.max_pool2d(x_cpu, geometry), cu32.max_pool2d(x_gpu, geometry), strict=True))
    taps_cpu, taps_gpu = pairs[1]
    pairs.append((cpu.max_pool2d_grad(dy_cpu, taps_cpu, geometry), cu32.max_pool2d_grad(dy_gpu, taps_gpu, geometry)))
    for expected, found in pairs:
        np.testing.assert_array_equal(cu32.to_numpy(found), cpu.to_numpy(expected))
    for count in (True, False):
        expected, found = cpu.avg_pool2d(x_cpu, geometry, count), cu32.avg_pool2d(x_gpu, geometry, count)
        # Sums of at most 42 integers: exact, but for the division.
        np.testing.assert_allclose(cu32.to_numpy(found), cpu.to_numpy(expected), rtol=0, atol=1e-5)
        expected, found = cpu.avg_pool2d_grad(dy_cpu, geometry, count), cu32.avg_pool2d_grad(dy_gpu, geometry, count)
        np.testing.assert_allclose(cu32.to_numpy(found), cpu.to_numpy(expected), rtol=0, atol=1e-6)
        assert found.is_contiguous(IMAGE_ORDER)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("geometry", LARGE_WINDOWS, ids=lambda g: f"{g.input}{g.filter}{g.rows.padding}")
def test_means_over_large_windows(cu32: Engine, rng: np.random.Generator, geometry: Geometry, dtype: Any) -> None:
    cpu = alpha.engine("cpu")
    x = rng.standard_normal((3, *geometry.input, 5)) + 3
    _, ours = both(cu32, x.astype(dtype))
    exact, _ = both(cu32, x)
    for count in (True, False):
        found = cu32.avg_pool2d(ours, geometry, count)
        assert found.is_contiguous(IMAGE_ORDER)
        expected = cpu.to_numpy(cpu.avg_pool2d(exact, geometry, count))
        # Three roundings of float32 above the sums of at most 20 numbers each.
        tolerance = 5e-6 if dtype == np.float32 else 1e-14
        np.testing.assert_allclose(cu32.to_numpy(found), expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_a_view_behind_an_aligned_address(cu32: Engine, rng: np.random.Generator) -> None:
    geometry = Geometry.make((4, 4), (2, 2), (2, 2))
    values = rng.standard_normal((4, 4, 2, 4)).astype(np.float32)  # (H, W, N, C)
    longer = cu32.from_numpy(np.concatenate([[np.float32(0)], values.reshape(-1)]))
    x = longer.strided(1, (2, 4, 4, 4), (4, 32, 8, 1))
    out, _ = cu32.max_pool2d(x, geometry)
    expected = values.reshape(2, 2, 2, 2, 2, 4).max((1, 3)).transpose(2, 0, 1, 3)
    assert np.array_equal(cu32.to_numpy(out), expected)
