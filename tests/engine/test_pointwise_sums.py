"""Sums and means of point-wise functions in one pass: values, gradients, sizes, strides, threads, special values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, GraphError
from alpha.testing import assert_close, gradcheck
from tests.engine.checks import gradcheck_on
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]


@alpha.pointwise
def bumps(x: Any, y: Any, scale: Any) -> Any:
    """A function of two tensors and a number."""
    return alpha.exp(-x * x) * y + scale * x


def bumps_of(x: Array, y: Array, scale: float) -> Array:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    result: Array = np.exp(-x * x) * y + scale * x
    return result


plain = alpha.pointwise(lambda x: x * 1.0)
product = alpha.pointwise(lambda x, y: x * y)
SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (7,),
    (3, 0, 2),
    (16, 33),
    (5, 3, 257),
    (2, 70_001),
    (70_001, 2),
    (9,) * 5,
]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_of_sizes(
    engine: Engine, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> None:
    given = [np.asarray(rng.standard_normal(shape)).astype(dtype) for _ in range(2)]
    x, y = (alpha.tensor(v, engine=engine, requires_grad=True) for v in given)
    total, expected = bumps.sum(x, y, 0.5), bumps_of(*given, 0.5)
    scale = float(np.abs(expected).sum()) + 1
    assert total.shape == () and total.dtype == np.dtype(dtype)
    assert abs(total.item() - math.fsum(expected.reshape(-1))) <= scale * (4e-7 if dtype == "float32" else 1e-14)
    total.backward()
    assert x.grad is not None and y.grad is not None
    a, b = (np.asarray(v, np.float64) for v in given)
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(x.grad.numpy(), -2 * a * np.exp(-a * a) * b + 0.5, tolerance * 4, tolerance)
    np.testing.assert_allclose(y.grad.numpy(), np.exp(-a * a), tolerance, tolerance)
    mean = bumps.mean(x.detach(), y.detach(), 0.5)
    if expected.size:
        assert abs(mean.item() - expected.mean()) <= scale / expected.size * (4e-7 if dtype == "float32" else 1e-14)
    else:
        assert math.isnan(mean.item()) and total.item() == 0


def test_gradcheck(engine: Engine, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 1, 3)), rng.standard_normal((4, 1))
    gradcheck_on(engine, lambda a, b: bumps.mean(a, b, 1.5), x, y)
    gradcheck_on(engine, lambda a, b: bumps.sum(a, b, 1.5), x, y)
    gradcheck_on(engine, plain.mean, x)


def test_a_gradient_that_reads_no_tensor_of_the_whole_shape(engine: Engine, rng: np.random.Generator) -> None:
    added = alpha.pointwise(lambda x, y: x * 2 + y * y)
    x, y = (alpha.tensor(rng.standard_normal(s), engine=engine, requires_grad=True) for s in ((4, 1), (5,)))
    added.mean(x, y).backward()
    assert x.grad is not None and y.grad is not None
    assert_close(x.grad, np.full((4, 1), 0.5))
    assert_close(y.grad, 2 * y.detach().numpy() / 5)


def test_strides_and_dtypes_that_meet(engine: Engine, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((12, 40, 6)).astype(np.float32), rng.standard_normal((6, 40, 12))
    x, y = alpha.tensor(a, engine=engine), alpha.tensor(b, engine=engine)
    for one, other, first, second in (
        (x.permute(2, 1, 0), y, a.transpose(2, 1, 0), b),
        (x[::2, 3:, 1:], y.permute(2, 1, 0)[::2, 3:, 1:], a[::2, 3:, 1:], b.transpose(2, 1, 0)[::2, 3:, 1:]),
        (x[:, :, :1], y.permute(2, 1, 0), a[:, :, :1], b.transpose(2, 1, 0)),
        (x.permute(2, 1, 0)[:1].expand(6, 40, 12), y, np.broadcast_to(a.transpose(2, 1, 0)[:1], b.shape), b),
    ):
        total = bumps.sum(one, other, 0.25)
        assert total.dtype == alpha.float64
        assert abs(total.item() - bumps_of(first, second, 0.25).sum()) <= 1e-10


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_sums_are_no_worse_than_pairwise_ones(rng: np.random.Generator, dtype: str) -> None:
    """The error of a sum is held to 16 u sum(|x|), and its rounding: what cancels shows every lost bit."""
    engine = CPUEngine(threads=1)
    x = (rng.standard_normal(1_000_003) * 10 ** rng.uniform(-4, 4, 1_000_003)).astype(dtype)
    x = np.concatenate([x, -x[::-1] * np.asarray(0.999, dtype)])
    exact, size = math.fsum(x), math.fsum(np.abs(x))
    found = plain.sum(alpha.tensor(x, engine=engine)).item()
    rounded = abs(exact) * 2.0**-24 if dtype == "float32" else 0.0
    assert abs(found - exact) <= 16 * 2.0**-53 * size + rounded


def test_bits_do_not_depend_on_threads(rng: np.random.Generator) -> None:
    engine = CPUEngine(threads=1)
    for dtype in (np.float32, np.float64):
        for shape in ((67, 3001), (3, 90_000), (90_000, 3), (2_500_000,)):
            given = [rng.standard_normal(shape).astype(dtype) for _ in range(2)]
            results = set()
            for threads in (1, 2, 3):
                engine.configure(threads=threads)
                x, y = (alpha.tensor(v, engine=engine) for v in given)
                results.add((bumps.sum(x, y, 0.5).item(), bumps.mean(x, y, 0.5).item()))
            assert len(results) == 1


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_special_values(engine: Engine, dtype: str) -> None:
    largest = float(np.finfo(dtype).max)
    for numbers, expected in (
        ([math.inf] * 40, math.inf),
        ([1.0] * 39 + [-math.inf], -math.inf),
        ([math.inf, 1.0, -math.inf], math.nan),
        ([math.nan] + [1.0] * 20, math.nan),
        ([5e-324, 5e-324] if dtype == "float64" else [2.0**-149] * 2, 1e-323 if dtype == "float64" else 2.0**-148),
        ([largest, largest / 2], math.inf),
    ):
        found = plain.sum(alpha.tensor(np.array(numbers, dtype), engine=engine)).item()
        np.testing.assert_allclose(found, expected, 1e-6, equal_nan=True)


def test_an_overwritten_argument_is_an_error_in_backward(engine: Engine, rng: np.random.Generator) -> None:
    x, y = (alpha.tensor(rng.standard_normal(5), engine=engine, requires_grad=True) for _ in range(2))
    inner = x * 1.0
    total = product.sum(inner, y)
    with alpha.no_grad():
        inner += 1
    with pytest.raises(GraphError, match="overwrote"):
        total.backward()


def test_errors(engine: Engine) -> None:
    x = alpha.tensor(np.ones(3), engine=engine)
    with pytest.raises(DtypeError, match=r"result is a float, to be added up, got a bool: write alpha.where"):
        alpha.pointwise(lambda v: v > 0).sum(x)
    with pytest.raises(DtypeError, match="expected tensors of float32 or float64"):
        plain.sum(alpha.tensor(np.ones(3, np.int64), engine=engine))
    with pytest.raises(ArgumentError, match="expected a tensor among the arguments"):
        plain.mean(3.0)
    with pytest.raises(ArgumentError, match="expected arguments as in bumps"):
        bumps.mean(x)


def test_gradients_of_a_sum_in_a_longer_graph(rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.standard_normal((3, 4)), requires_grad=True)
    gradcheck(lambda v: (plain.mean(v * v) * 3 + product.sum(v, v.sum(0))) ** 2, x)
