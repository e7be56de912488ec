"""The CPU engine's reductions: any axes and strides, error bounds, the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor
from alpha.cpu.engine import CPUEngine
from alpha.cpu.reductions import PART, SMALL, STRIP

Array = np.ndarray[Any, Any]


@pytest.fixture
def cpu() -> Iterator[CPUEngine]:
    engine = CPUEngine("1GB")
    yield engine
    engine.configure(threads=1)


LARGE = [
    ((4 * PART + 77,), (0,)),  # one line in pieces
    ((3, 3 * PART + 5), (1,)),  # some lines in pieces
    ((2000, 100), (1,)),
    ((40, 3, 5003), (0, 2)),  # segments, several a task
    ((2, 2, 3 * PART + 1), (0, 2)),  # segments in pieces
    ((8 * PART // 100, 100), (0,)),  # rows in bunches
    ((9, 3 * STRIP + 7), (0,)),  # columns in strips
    ((5, 1700, 33), (1,)),  # blocks of columns
    ((7, 8, 9, 40), (0, 2)),  # neither: copied
    ((33, 40, 41), (0, 1, 2)),
]


def threaded(engine: CPUEngine, op: str, x: Tensor, axes: tuple[int, ...]) -> Array:
    """What the engine computes, after a look at whether one, two and five threads agree to the bit."""
    found = []
    for threads in (1, 2, 5):
        engine.configure(threads=threads)
        y = engine.mean(x, axes, False) if op == "mean" else engine.reduce(op, x, axes, False)
        found.append(y.numpy())
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    return found[0]


def check(engine: CPUEngine, op: str, x: Tensor, axes: tuple[int, ...]) -> None:
    """The bounds of ``alpha.cpu.kernels.sums``; a float32 result is the rounded float64 one."""
    got, exact = threaded(engine, op, x, axes), x.numpy().astype(np.longdouble)
    expected = getattr(np, op)(exact, axis=axes)
    assert got.shape == expected.shape and got.dtype == x.dtype
    count = x.numel() // max(1, got.size)
    unit, wide = np.finfo(got.dtype).eps / 2, np.finfo(np.float64).eps / 2
    if op == "prod":
        bound = np.abs(expected) * (unit + 1.01 * count * wide)
    else:
        terms = count if x.dtype == np.float32 else 22
        bound = np.abs(expected) * 2 * unit + (terms + 2) * wide * getattr(np, op)(np.abs(exact), axis=axes)
    assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize("op", ["sum", "mean", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_and_bits(cpu: CPUEngine, rng: np.random.Generator, op: str, dtype: str) -> None:
    for shape, axes in LARGE:
        size = rng.uniform(0.999, 1.001, shape)
        x = size if op == "prod" else size * rng.choice([-1.0, 1.0], shape)
        check(cpu, op, alpha.tensor(x.astype(dtype), engine=cpu), axes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_strides_and_axes(cpu: CPUEngine, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(60):
        axes_count = int(rng.integers(1, 5))
        shape = [int(n) for n in rng.choice([1, 2, 3, 5, 8, 17, 33, 64], axes_count)]
        shape[int(rng.integers(axes_count))] += -(-SMALL // int(np.prod(shape)))
        x = alpha.tensor(rng.standard_normal(shape).astype(dtype), engine=cpu)
        x = x.permute([int(axis) for axis in rng.permutation(axes_count)])
        cut = int(rng.integers(axes_count))
        x = x[
            tuple(slice(None, None, int(rng.integers(1, 3))) if axis == cut else slice(None) for axis in range(x.ndim))
        ]
        axes = tuple(axis for axis in range(x.ndim) if rng.random() < 0.5)
        check(cpu, "sum", x, axes)
        check(cpu, "mean", x.unsqueeze(0).expand((2, *x.shape)), (0, *(axis + 1 for axis in axes)))


@pytest.mark.parametrize("axes", [(0, 1), (0,), (1,)])
def test_what_is_not_finite(cpu: CPUEngine, axes: tuple[int, ...]) -> None:
    x = np.ones((130, 140))
    for values in ([np.inf], [-np.inf], [np.nan], [np.inf, -np.inf], [1.7e308, 1.7e308]):
        x.reshape(-1)[: 71 * len(values) : 71] = values
        for dtype in ("float32", "float64"):
            with np.errstate(all="ignore"):
                array = x.astype(dtype)
                expected = array.astype(np.float64).sum(axes)
            tensor = alpha.tensor(array, engine=cpu)
            np.testing.assert_allclose(threaded(cpu, "sum", tensor, axes), expected.astype(dtype), rtol=1e-6)


def test_a_sum_of_many_equal_numbers_is_not_off(cpu: CPUEngine) -> None:
    x = alpha.tensor(np.full(3_000_000, 0.1), engine=cpu)
    assert abs(float(x.sum().item()) - 300000) < 1e-10
    assert x.astype("float32").mean().item() == np.float32(0.1)
