"""BatchNorm, channel sums and LeakyReLU on cu32: every tiling, packed and scalar accesses, odd memory, accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.engine import IMAGE_ORDER, Engine, Epilogue, RunningStatistics
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
EPS = 1e-5

# Rows and channels: one row; one channel; less than a tile, whole tiles of packs and of scalars, and one more; a cut
# into parts of which the last is short.
SIZES = [(2, 1), (3000, 1), (700, 3), (257, 10), (1, 64), (1500, 64), (90, 132), (33, 513), (5000, 4), (65, 36)]


def relative(actual: Any, expected: Any) -> float:
    """Largest difference relative to the largest expected value."""
    expected = np.asarray(expected, np.float64)
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))


def shifted(engine: Engine, array: Array) -> Tensor:
    """A tensor whose memory begins one element behind an aligned address."""
    longer = engine.from_numpy(np.concatenate([np.zeros(1, array.dtype), array.reshape(-1)]))
    strides = tuple(s // array.itemsize for s in np.ascontiguousarray(array).strides)
    return longer.strided(1, array.shape, strides)


def statistics(x: Array) -> tuple[Array, Array]:
    x = x.astype(np.float64)
    return x.mean(0), 1 / np.sqrt(x.var(0) + EPS)


def gradients(dy: Array, x: Array, y: Array, weight: Array, slope: float) -> dict[str, Array]:
    """From the chain rule, term by term; y is the forward's result."""
    mean, inverse_std = statistics(x)
    normal = (x.astype(np.float64) - mean) * inverse_std
    g = np.where(y > 0, dy, slope * dy.astype(np.float64))
    dn = g * weight
    dx = (dn - dn.mean(0) - normal * (dn * normal).mean(0)) * inverse_std
    return {"x": dx, "weight": (g * normal).sum(0), "bias": g.sum(0), "residual": g}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("aligned", [True, False])
def test_every_tiling(cu32: Engine, rng: np.random.Generator, size: tuple[int, int], aligned: bool) -> None:
    x, dy, residual = (rng.standard_normal(size).astype(np.float32) for _ in range(3))
    weight, bias = (rng.uniform(0.5, 1.5, size[1]).astype(np.float32) for _ in range(2))
    place = cu32.from_numpy if aligned else lambda array: shifted(cu32, array)
    tx, tdy, tr, tw, tb = (place(array) for array in (x, dy, residual, weight, bias))
    mean, inverse_std = statistics(x)
    before = (x - mean) * inverse_std * weight + bias + residual
    y, state = cu32.batch_norm(tx, RunningStatistics(), EPS, Epilogue(tw, tb, 0.25), tr)
    assert relative(cu32.to_numpy(y), np.where(before > 0, before, 0.25 * before)) <= 5e-6
    assert relative(cu32.to_numpy(state.mean), mean) <= 1e-6
    assert relative(cu32.to_numpy(state.inverse_std), inverse_std) <= 1e-6
    assert relative(cu32.to_numpy(cu32.channel_sum(tx)), x.astype(np.float64).sum(0)) <= 1e-6
    if size[0] < 3:  # all of dx cancels
        return
    expected = gradients(dy, x, cu32.to_numpy(y), weight, 0.25)
    for need_residual in (True, False):
        found = cu32.batch_norm_grad(tdy, tx, y, Epilogue(tw, tb, 0.25), state, need_residual)
        for name, value in zip(("x", "weight", "bias", "residual"), found, strict=True):
            assert (value is None) == (name == "residual" and not need_residual)
            if value is not None:
                assert relative(cu32.to_numpy(value), expected[name]) <= 1e-5, name


def test_tensors_with_gaps_and_other_orders(cu32: Engine, rng: np.random.Generator) -> None:
    whole = rng.standard_normal((3, 8, 5, 12)).astype(np.float32)
    x = cu32.from_numpy(whole)
    gaps = x.strided(x.offset, (3, 4, 5, 6), (480, 120, 12, 2))  # every second row and channel
    expected = whole[:, ::2, :, ::2]
    mean, inverse_std = statistics(expected.reshape(-1, 6))
    turned = cu32.from_numpy(np.ascontiguousarray(expected.transpose(1, 2, 0, 3))).strided(
        0, (3, 4, 5, 6), (6, 90, 18, 1)
    )
    assert turned.is_contiguous(IMAGE_ORDER)
    for tensor in (gaps, turned):
        y, state = cu32.batch_norm(tensor, RunningStatistics(), EPS, Epilogue(), gaps)
        assert relative(cu32.to_numpy(y), (expected - mean) * inverse_std + expected) <= 5e-6
        dx, *_ = cu32.batch_norm_grad(gaps, tensor, None, Epilogue(), state, False)
        # The gradient of dy = x is all but nothing: what is left of 1 is eps / var.
        assert np.abs(cu32.to_numpy(dx)).max() <= 1e-4
        assert relative(cu32.to_numpy(cu32.channel_sum(tensor)), expected.astype(np.float64).sum((0, 1, 2))) <= 1e-6


def test_running_statistics_in_a_strided_view(cu32: Engine, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((40, 5)) * 3 + 2).astype(np.float32)
    both = cu32.from_numpy(np.ones((5, 2), np.float32))
    mean, var = both.strided(0, (5,), (2,)), both.strided(1, (5,), (2,))
    before = both.version
    cu32.batch_norm(cu32.from_numpy(x), RunningStatistics(mean, var, 0.25), EPS, Epilogue(), None)
    assert both.version > before
    found = cu32.to_numpy(both)
    assert relative(found[:, 0], 0.75 + 0.25 * x.astype(np.float64).mean(0)) <= 1e-6
    assert relative(found[:, 1], 0.75 + 0.25 * x.astype(np.float64).var(0, ddof=1)) <= 1e-6


@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4, -1e6])
def test_a_large_mean_costs_no_digit(cu32: Engine, rng: np.random.Generator, mean: float) -> None:
    """An element is normalised by the mean in float64: only the rounding of x is left, which the reference shares."""
    x = (rng.standard_normal((2000, 8)) + mean).astype(np.float32)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    y, state = cu32.batch_norm(cu32.from_numpy(x), RunningStatistics(), EPS, Epilogue(), None)
    exact, inverse_std = statistics(x)
    assert relative(cu32.to_numpy(state.inverse_std), inverse_std) <= 1e-6
    assert relative(cu32.to_numpy(y), (x - exact) * inverse_std) <= 1e-6
    found = cu32.batch_norm_grad(cu32.from_numpy(dy), cu32.from_numpy(x), None, Epilogue(), state, False)
    expected = gradients(dy, x, np.ones_like(x), np.ones(8), 1.0)
    for name, value in zip(("x", "weight", "bias"), found[:3], strict=True):
        assert value is not None and relative(cu32.to_numpy(value), expected[name]) <= 1e-5, name


def test_outliers_do_not_spoil_the_variance(cu32: Engine) -> None:
    """The first and the last row, from which deviations are taken, are a thousand deviations off."""
    x = np.random.default_rng(1).standard_normal((4000, 8)).astype(np.float32)
    x[0], x[-1] = 1000, -1000
    _, state = cu32.batch_norm(cu32.from_numpy(x), RunningStatistics(), EPS, Epilogue(), None)
    assert relative(cu32.to_numpy(state.inverse_std), statistics(x)[1]) <= 5e-6


def test_a_nan_stays_in_its_channel(cu32: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((600, 9)).astype(np.float32)
    x[77, 4] = np.nan
    y, _ = cu32.batch_norm(cu32.from_numpy(x), RunningStatistics(), EPS, Epilogue(slope=0.0), None)
    found = np.isnan(cu32.to_numpy(y))
    assert found[:, 4].all() and found.sum() == 600


def test_two_runs_are_equal_to_the_bit(cu32: Engine, rng: np.random.Generator) -> None:
    x, dy = (cu32.from_numpy(rng.standard_normal((3000, 20)).astype(np.float32)) for _ in range(2))
    runs = []
    for _ in range(2):
        y, state = cu32.batch_norm(x, RunningStatistics(), EPS, Epilogue(slope=0.1), None)
        grads = cu32.batch_norm_grad(dy, x, None, Epilogue(slope=0.1), state, False)
        runs.append([cu32.to_numpy(t) for t in (y, state.mean, state.inverse_std, *grads[:3])])
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


def test_the_mask_is_the_forwards(cu32: Engine, rng: np.random.Generator) -> None:
    """The backward's recomputed sign and the forward's result agree in every element, at zero too."""
    x = rng.integers(-2, 3, (512, 6)).astype(np.float32)
    y, state = cu32.batch_norm(cu32.from_numpy(x), RunningStatistics(), EPS, Epilogue(slope=0.0), None)
    ones = cu32.from_numpy(np.ones_like(x))
    dx, *_ = cu32.batch_norm_grad(
        ones, cu32.from_numpy(x), None, Epilogue(slope=0.0), state._replace(training=False), False
    )
    assert np.array_equal(cu32.to_numpy(dx) > 0, cu32.to_numpy(y) > 0)


def test_nothing_to_normalise(cu32: Engine) -> None:
    vector = cu32.from_numpy(np.ones(3, np.float32))
    for shape in ((0, 3), (2, 0)):
        x = cu32.from_numpy(np.ones(shape, np.float32))
        stats = vector if shape[1] else cu32.from_numpy(np.ones(0, np.float32))
        y, state = cu32.batch_norm_inference(x, stats, stats, EPS, Epilogue(slope=0.0), None)
        dx, dweight, dbias, _ = cu32.batch_norm_grad(x, x, None, Epilogue(slope=0.0), state, False)
        assert y.shape == dx.shape == shape
        for vector_grad in (dweight, dbias, cu32.channel_sum(x)):
            assert cu32.to_numpy(vector_grad).tolist() == [0] * shape[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 3, 4, 1027])
@pytest.mark.parametrize("aligned", [True, False])
def test_leaky_relu_in_packs_and_single(
    cu32: Engine, rng: np.random.Generator, dtype: Any, n: int, aligned: bool
) -> None:
    x, dy = (rng.standard_normal(n).astype(dtype) for _ in range(2))
    place = cu32.from_numpy if aligned else lambda array: shifted(cu32, array)
    slope = dtype(0.25)
    assert np.array_equal(cu32.to_numpy(cu32.leaky_relu(place(x), 0.25)), np.where(x > 0, x, x * slope))
    grad = cu32.leaky_relu_grad(place(dy), place(x), 0.25)
    assert np.array_equal(cu32.to_numpy(grad), np.where(x > 0, dy, dy * slope))
