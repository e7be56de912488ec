"""The CPU engine's reductions and softmax: any strides, error bounds, the same bits for any number of threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.cpu.engine import CPUEngine
from alpha.cpu.loops.fold_columns import STRIP
from alpha.cpu.reductions import PART
from tests.tiers import FLOAT_NAMES

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
    *(((rows, 512), (0,)) for rows in (15, 31, 32, 1003)),  # rows that share few sets of the first cache
    ((3, 77, 1024), (1,)),
    ((65_000, 33), (0,)),  # narrow rows that come from memory
    ((7, 8, 9, 40), (0, 2)),  # neither: copied
    ((33, 40, 41), (0, 1, 2)),
    *(((lines, length), (1,)) for lines, length in ((9, 2), (3000, 3), (700, 16), (401, 17), (90, 64), (90, 65))),
    ((50, 7, 11), (2,)),  # short lines
]


TERMS = {4: 5.001, 8: 9.001}
"""Units in the last place of a sum of absolute values by which a sum may be off, beside the result's own rounding."""


def threaded(engine: CPUEngine, op: str, x: Tensor, axes: tuple[int, ...]) -> Array:
    """What the engine computes, after a look at whether one, two and five threads agree to the bit."""
    found = []
    for threads in (1, 2, 5):
        engine.configure(threads=threads)
        operation = {"mean": engine.mean, "norm": engine.euclidean_norm}.get(op)
        y = engine.reduce(op, x, axes, False) if operation is None else operation(x, axes, False)
        found.append(y.numpy())
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    return found[0]


def check(engine: CPUEngine, op: str, x: Tensor, axes: tuple[int, ...]) -> None:
    """The bounds of ``alpha.cpu.loops.runs``; a float32 product is the rounded float64 one."""
    got, exact = threaded(engine, op, x, axes), x.numpy().astype(np.longdouble)
    expected = np.sqrt((exact**2).sum(axes)) if op == "norm" else getattr(np, op)(exact, axis=axes)
    assert got.shape == expected.shape and got.dtype == x.dtype
    count = x.numel() // max(1, got.size)
    unit, wide = np.finfo(got.dtype).eps / 2, np.finfo(np.float64).eps / 2
    if op == "prod":
        bound = np.abs(expected) * (unit + 1.01 * count * wide)
    elif op == "norm":  # a square's rounding and its sum's, of which the root halves the share
        bound = expected * (2 * unit + (TERMS[x.dtype.itemsize] + 1) / 2 * unit + count * wide**2)
    else:
        sizes = getattr(np, op)(np.abs(exact), axis=axes)
        bound = 2 * np.abs(expected) * unit + TERMS[x.dtype.itemsize] * unit * sizes
    assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "norm"])
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_bounds_and_bits(cpu: CPUEngine, rng: np.random.Generator, op: str, dtype: str) -> None:
    for shape, axes in LARGE:
        size = rng.uniform(0.999, 1.001, shape)
        x = size if op == "prod" else size * rng.choice([-1.0, 1.0], shape)
        check(cpu, op, alpha.tensor(x.astype(dtype), engine=cpu), axes)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_any_strides_and_axes(cpu: CPUEngine, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(60):
        axes_count = int(rng.integers(1, 5))
        shape = [int(n) for n in rng.choice([1, 2, 3, 5, 8, 17, 33, 64], axes_count)]
        shape[int(rng.integers(axes_count))] += int(rng.choice([0, 5000 // int(np.prod(shape))]))
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


def test_squares_beyond_float32_have_a_norm(cpu: CPUEngine) -> None:
    for size in (1e30, 1e-30):
        x = alpha.tensor(np.full((100, 100), size, np.float32), engine=cpu)
        np.testing.assert_allclose(x.norm().item(), size * 100, rtol=1e-6)
        np.testing.assert_allclose(x.norm(dim=0).numpy(), size * 10, rtol=1e-6)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("count", [1, 2, 7, 16, 17, 33, 255, 512, 1000, 4097, 100_003])
def test_no_sum_is_worse_than_a_pairwise_one(cpu: CPUEngine, rng: np.random.Generator, count: int, dtype: str) -> None:
    unit = np.finfo(dtype).eps / 2
    levels = min(math.ceil(math.log2(count)), TERMS[np.dtype(dtype).itemsize]) if count > 1 else 0
    for _ in range(5):
        x = (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 7, count)).astype(dtype)
        exact, size = math.fsum(x.tolist()), math.fsum(np.abs(x).tolist())
        columns = np.repeat(x[:, None], 3, 1)
        for got in (alpha.tensor(x, engine=cpu).sum().item(), alpha.tensor(columns, engine=cpu).sum(0)[1].item()):
            assert abs(got - exact) <= levels * unit * size + 1.001 * unit * abs(exact)


def test_a_sum_beyond_float32_on_the_way_is_finite(cpu: CPUEngine) -> None:
    large = np.repeat(np.float32([3e38, -3e38]), 400)
    x = np.concatenate([large, np.zeros(1200, np.float32)])
    for shape, axes in (((2000,), (0,)), ((1, 2000), (1,)), ((2000, 1), (0,)), ((400, 5), (0, 1))):
        assert threaded(cpu, "sum", alpha.tensor(x.reshape(shape), engine=cpu), axes).item() == 0
    columns = alpha.tensor(np.stack([x, np.ones(2000, np.float32)], 1), engine=cpu)
    assert threaded(cpu, "sum", columns, (0,)).tolist() == [0, 2000]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_extremes(cpu: CPUEngine, rng: np.random.Generator, dtype: str) -> None:
    for shape, axes in LARGE:
        x = rng.standard_normal(shape).astype(dtype)
        x.reshape(-1)[:: x.size // 3] = np.nan
        for array in (x, np.nan_to_num(x)):
            tensor = alpha.tensor(array, engine=cpu)
            for op in ("max", "min"):
                np.testing.assert_array_equal(threaded(cpu, op, tensor, axes), getattr(np, op)(array, axis=axes))


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_variances(cpu: CPUEngine, rng: np.random.Generator, mean: float, dtype: str) -> None:
    unit = np.finfo(dtype).eps
    for shape, axes in [*LARGE, ((7, 9), (0,)), ((3, 4, 5), (1,)), ((2, 3), (0, 1)), ((5, 2), (1,))]:
        x = (rng.standard_normal(shape) + mean).astype(dtype)
        tensor, wide = alpha.tensor(x, engine=cpu), x.astype(np.longdouble)
        for correction in (0, 1):

            def compute(x: Tensor = tensor, axes: tuple[int, ...] = axes, c: int = correction) -> tuple[Tensor, ...]:
                return cpu.variance(x, axes, c, False)

            got, kept = agreed(cpu, compute)
            want = wide.var(axes, ddof=correction)
            np.testing.assert_allclose(got, want.astype(dtype), rtol=(20 + 50 * mean * (dtype == "float64")) * unit)
            np.testing.assert_allclose(kept, wide.mean(axes, keepdims=True), rtol=0, atol=8 * unit * (1 + mean))
            assert kept.shape == wide.mean(axes, keepdims=True).shape


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_equal_numbers_have_no_variance(cpu: CPUEngine, dtype: str) -> None:
    for value in (0.1, 1 / 3, 1e5 + 0.1, 1e-30):
        x = alpha.tensor(np.full((1001, 37), value, dtype), engine=cpu)
        for dim in (None, 0, 1):
            assert not x.var(dim).numpy().any()


@pytest.mark.parametrize("length", [40, 64, 5000, 100_003])
def test_means_whose_sum_is_beyond_float32_are_finite(cpu: CPUEngine, length: int) -> None:
    x = np.full((9, length), 3e38, np.float32)
    equal = alpha.tensor(x, engine=cpu)
    got, kept = agreed(cpu, lambda: cpu.variance(equal, (1,), 0, False))
    assert not got.any() and (kept == x[:, :1]).all()
    x[:, ::2] = 2.97e38
    tensor, wide = alpha.tensor(x, engine=cpu), x.astype(np.float64)
    mean, deviation = wide.mean(1, keepdims=True), wide.std(1, keepdims=True)
    _, kept = agreed(cpu, lambda: cpu.variance(tensor, (1,), 0, False))
    np.testing.assert_allclose(kept, mean, rtol=1e-6)
    y = F.layer_norm(tensor, (length,)).numpy()
    np.testing.assert_allclose(y, (wide - mean) / deviation, rtol=1e-5)


def test_a_sum_of_many_equal_numbers_is_not_off(cpu: CPUEngine) -> None:
    x = alpha.tensor(np.full(3_000_000, 0.1), engine=cpu)
    assert abs(float(x.sum().item()) - 300000) < 9 * 2.0**-53 * 300000
    assert x.astype("float32").mean().item() == np.float32(0.1)


@pytest.mark.parametrize("length", [2, 10, 16, 33, 64])
def test_a_short_line_is_no_other_ones_matter(cpu: CPUEngine, rng: np.random.Generator, length: int) -> None:
    """Lines that are computed side by side, some of them not finite, and each by itself."""
    x = rng.standard_normal((101, length)).astype(np.float32)
    x[3, 1], x[18, 0], x[40], x[57, :2], x[100, -1] = np.nan, np.inf, -np.inf, (np.inf, -np.inf), np.nan
    x[60], x[61] = 5e36, 1e-30
    whole, lines = alpha.tensor(x, engine=cpu), [alpha.tensor(x[k : k + 1], engine=cpu) for k in range(len(x))]

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        reduced = [cpu.reduce(op, x, (1,), True) for op in ("sum", "prod", "max", "min")]
        others = cpu.euclidean_norm(x, (1,), True), cpu.softmax(x, 1, False), cpu.softmax(x, 1, True)
        y, (statistics,) = cpu.row_norm(x, None, None, 1, 1e-5, True)
        return (*reduced, *others, *cpu.variance(x, (1,), 0, True), cpu.cumsum(x, 1), y, statistics)

    for got, *single in zip(agreed(cpu, lambda: compute(whole)), *[compute(line) for line in lines], strict=True):
        wanted = np.concatenate([one.numpy() for one in single])
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-5 if got.shape[1] > 1 else 1e-6)


# -- running sums ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("shape", [(3, 7, 331), (40, 30, 9), (9000, 2), (70000,), (2, 3, 5000), (5000, 1, 3), (99, 64)])
def test_running_sums(cpu: CPUEngine, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
    base = alpha.tensor(rng.standard_normal(shape).astype(dtype), engine=cpu)
    for x in (base, base.permute(list(range(base.ndim))[::-1]), base.unsqueeze(0).expand((2, *shape))):
        wide = x.numpy().astype(np.longdouble)
        for axis in range(x.ndim):
            (got,) = agreed(cpu, lambda x=x, axis=axis: (cpu.cumsum(x, axis),))  # type: ignore[misc]
            want = np.cumsum(wide, axis)
            sizes = np.cumsum(np.abs(wide), axis)
            bound = np.finfo(dtype).eps * np.abs(want) + x.shape[axis] * np.finfo(np.float64).eps * sizes
            assert got.shape == want.shape and got.dtype == x.dtype and (np.abs(got - want) <= bound).all()


def test_what_is_not_finite_spoils_only_the_sums_after_it(cpu: CPUEngine) -> None:
    x = np.ones((40, 300))
    x[:, 137], x[:, 211], x[13] = np.inf, -np.inf, np.nan
    for axis in (0, 1):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(cpu.cumsum(alpha.tensor(x, engine=cpu), axis).numpy(), np.cumsum(x, axis))


# -- softmax and cross entropy -----------------------------------------------------------------------------------


def rows_of(
    engine: CPUEngine, rng: np.random.Generator, shape: tuple[int, int], dtype: str, count: int
) -> list[Tensor]:
    return [alpha.tensor((4 * rng.standard_normal(shape)).astype(dtype), engine=engine) for _ in range(count)]


def agreed(engine: CPUEngine, compute: Callable[[], tuple[Tensor, ...]]) -> list[Array]:
    """The results, which have the same bits for one, two and five threads."""
    found = []
    for threads in (1, 2, 5):
        engine.configure(threads=threads)
        found.append([result.numpy() for result in compute()])
    for other in found[1:]:
        assert [array.tobytes() for array in other] == [array.tobytes() for array in found[0]]
    return found[0]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("shape", [(700, 100), (300, 1029), (2, 20001), (9000, 3), (50, 1), (77, 17), (333, 64)])
def test_softmax_of_rows(cpu: CPUEngine, rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> None:
    x, dy = rows_of(cpu, rng, shape, dtype, 2)
    wide, g = x.numpy().astype(np.float64), dy.numpy().astype(np.float64)
    logs = wide - wide.max(1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(1, keepdims=True))
    p = np.exp(logs)
    unit = float(np.finfo(dtype).eps)
    for log, y, dx in (
        (False, p, (g - (g * p).sum(1, keepdims=True)) * p),
        (True, logs, g - p * g.sum(1, keepdims=True)),
    ):

        def compute(log: bool = log) -> tuple[Tensor, ...]:
            y = cpu.softmax(x, 1, log)
            return y, cpu.softmax_grad(dy, y, 1, log)

        got = agreed(cpu, compute)
        np.testing.assert_allclose(got[0], y, rtol=8 * unit, atol=4 * unit * np.abs(y).max())
        np.testing.assert_allclose(got[1], dx, rtol=64 * unit, atol=16 * unit * np.abs(g).sum(1).max())


def test_softmax_along_any_axis_of_any_strides(cpu: CPUEngine, rng: np.random.Generator) -> None:
    base = alpha.tensor(rng.standard_normal((6, 10, 8)), engine=cpu)
    for x in (
        base,
        base.permute(2, 0, 1),
        base[:, ::2],
        base[::2, 1:, ::3],
        base[:1].expand((4, 10, 8)),
        base[:, :, :1],
    ):
        wide = np.exp(x.numpy())
        for axis in range(3):
            expected = wide / wide.sum(axis, keepdims=True)
            y, logs = cpu.softmax(x, axis, False), cpu.softmax(x, axis, True)
            np.testing.assert_allclose(y.numpy(), expected, rtol=1e-14)
            np.testing.assert_allclose(logs.numpy(), np.log(expected), rtol=1e-13, atol=1e-14)
            dy = alpha.tensor(np.cos(wide), engine=cpu)
            for order in ((0, 1, 2), (2, 1, 0)):
                g = cpu.dense(dy, order)
                dx = cpu.softmax_grad(g, y, axis, False).numpy()
                want = (np.cos(wide) - (np.cos(wide) * expected).sum(axis, keepdims=True)) * expected
                np.testing.assert_allclose(dx, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_softmax_of_what_is_not_finite(cpu: CPUEngine, dtype: str) -> None:
    x = np.zeros((6, 40), dtype)
    x[0, 3], x[1, 39], x[2], x[3, 5], x[4, 0] = np.nan, np.inf, -np.inf, -np.inf, np.finfo(dtype).max
    y, logs = (cpu.softmax(alpha.tensor(x, engine=cpu), 1, log).numpy() for log in (False, True))
    assert np.isnan(y[:3]).all() and np.isnan(logs[:3]).all()
    np.testing.assert_allclose(y[3:].sum(1), 1, rtol=1e-6)
    assert y[3, 5] == 0 and logs[3, 5] == -np.inf and y[4, 0] == 1 and logs[4, 0] == 0


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_many_classes(cpu: CPUEngine, rng: np.random.Generator, dtype: str, smoothing: float) -> None:
    (x,) = rows_of(cpu, rng, (90, 1029), dtype, 1)
    labels = rng.integers(0, 1029, 90)
    labels[7], labels[8] = 1029, -1  # not followed
    given = alpha.tensor(labels, engine=cpu)
    scale = alpha.tensor(rng.standard_normal(90).astype(dtype), engine=cpu)

    def compute() -> tuple[Tensor, ...]:
        losses, p = cpu.cross_entropy(x, given, smoothing)
        return losses, p, cpu.cross_entropy_grad(p, given, scale, smoothing)

    losses, p, dx = agreed(cpu, compute)
    wide = x.numpy().astype(np.float64)
    logs = wide - wide.max(1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(1, keepdims=True))
    target = np.full(wide.shape, smoothing / 1029)
    valid = (labels >= 0) & (labels < 1029)
    target[valid, labels[valid]] += 1 - smoothing
    unit = float(np.finfo(dtype).eps)
    assert np.isnan(losses[~valid]).all()
    np.testing.assert_allclose(losses[valid], -(target * logs).sum(1)[valid], rtol=8 * unit)
    np.testing.assert_allclose(p, np.exp(logs), rtol=16 * unit)
    np.testing.assert_allclose(dx, (p - target) * scale.numpy()[:, None], rtol=16 * unit, atol=8 * unit)


# -- sorting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [(1,), (17,), (40, 1000), (3, 5, 7), (20000,), (2, 9000), (0, 3)])
def test_sorting_is_stable(cpu: CPUEngine, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
    x = rng.integers(-9, 9, shape).astype(dtype)
    if dtype != "int32" and x.size > 9:
        flat = x.reshape(-1)
        for first, value in enumerate((np.nan, -0.0, np.inf, -np.inf, -np.nan)):
            flat[first::23] = value
    for axis in range(x.ndim):
        for order in (tuple(range(x.ndim)), tuple(range(x.ndim))[::-1]):
            given = cpu.dense(alpha.tensor(x, engine=cpu), order)
            values, places = agreed(cpu, lambda given=given, axis=axis: cpu.sort(given, axis))  # type: ignore[misc]
            wanted = np.argsort(x, axis=axis, kind="stable")
            np.testing.assert_array_equal(places, wanted)
            np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))
