"""Reductions, running sums and sorting on cu32: every way to share out the threads, every dtype, odd strides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alpha.engine import Engine
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
DTYPES = [np.float32, np.float64, np.uint8, np.int32, np.int64, np.bool_]

# Rows of a warp's lanes, of a block's, of several blocks'; columns few and many; two reduced axes that do not merge; no
# result more than one element; more axes than a kernel walks over.
CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5, 3), (1,)),
    ((300, 7), (1,)),
    ((3, 1000), (1,)),
    ((1, 70_000), (0, 1)),
    ((2, 40_000), (1,)),
    ((7, 300), (0,)),
    ((1000, 3), (0,)),
    ((20_000, 40), (0,)),
    ((6, 50, 33), (1,)),
    ((40, 5, 60), (0, 2)),
    ((3, 4, 5, 6, 7), (1, 3)),
    ((4, 4, 4, 4, 4, 4), (0, 2, 4)),
    ((2, 3, 2, 3, 2, 3, 2, 3), (1, 3, 6)),
    ((4, 1, 6), (1,)),
    ((5,), ()),
]


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.dtype(dtype).kind == "f":
        return rng.uniform(-1, 1, shape).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else 200, shape).astype(dtype)


def expected_reduction(op: str, x: Array, axes: tuple[int, ...]) -> Array:
    functions: dict[str, Callable[..., Any]] = {
        "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
    }  # fmt: skip
    if op in ("sum", "prod"):
        x = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
    return np.asarray(functions[op](x, axis=axes))


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "any", "all"])
def test_every_way_to_share_out_threads(
    cu32: Engine, rng: np.random.Generator, op: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = draw(rng, shape, np.float32)
    if op in ("any", "all"):
        x = np.where(rng.uniform(size=shape) < 0.02, op == "any", op != "any").astype(np.float32)
    if op == "prod":
        x = (1 + x / x.size).astype(np.float32)
    found = cu32.reduce(op, cu32.from_numpy(x), axes, True)
    wanted = expected_reduction(op, x, axes)
    assert found.shape == tuple(1 if a in axes else n for a, n in enumerate(shape))
    values = cu32.to_numpy(found).reshape(wanted.shape)
    if op in ("sum", "prod"):
        # One rounding of what float64 gives.
        np.testing.assert_allclose(values, wanted, rtol=1.2e-7, atol=1e-10 * x.size)
    else:
        np.testing.assert_array_equal(values, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
def test_every_dtype(cu32: Engine, rng: np.random.Generator, op: str, dtype: Any) -> None:
    x = draw(rng, (9, 700), dtype)
    if op == "prod" and np.dtype(dtype).kind == "f":
        x = 1 + x / 100
    for axis in (0, 1):
        tensor = cu32.from_numpy(x)
        if op.startswith("arg"):
            found, wanted = cu32.arg_reduce(op, tensor, axis), getattr(np, op)(x, axis)
            assert found.dtype == np.int64
        else:
            found, wanted = cu32.reduce(op, tensor, (axis,), False), expected_reduction(op, x, (axis,))
        if np.dtype(dtype).kind == "f" and op in ("sum", "prod"):
            np.testing.assert_allclose(cu32.to_numpy(found), wanted, rtol=1e-6 if dtype == np.float32 else 1e-12)
        else:
            assert found.dtype == np.asarray(wanted).dtype
            np.testing.assert_array_equal(cu32.to_numpy(found), wanted)


def views(cu32: Engine, x: Array) -> list[tuple[Tensor, Array]]:
    """A (6, 8, 10) array seen in ways that a kernel must follow: transposed, with gaps, backwards, repeated."""
    whole = cu32.from_numpy(x)
    return [
        (whole.strided(0, (10, 6, 8), (1, 80, 10)), x.transpose(2, 0, 1)),
        (whole.strided(10, (3, 4, 5), (160, 20, 2)), x[::2, 1::2, ::2]),
        (whole.strided(479, (6, 8, 10), (-80, -10, -1)), x[::-1, ::-1, ::-1]),
        (whole.strided(0, (6, 7, 10), (80, 0, 1)), np.broadcast_to(x[:, :1], (6, 7, 10))),
        (whole.strided(3, (6, 8, 10), (80, 10, 0)), np.broadcast_to(x[:, :, 3:4], (6, 8, 10))),
    ]


def test_views(cu32: Engine, rng: np.random.Generator) -> None:
    for tensor, x in views(cu32, rng.standard_normal((6, 8, 10))):
        for axes in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
            found = cu32.to_numpy(cu32.reduce("sum", tensor, axes, False))
            np.testing.assert_allclose(found, x.sum(axes), rtol=1e-13, atol=1e-13)
        for axis in range(3):
            found = cu32.to_numpy(cu32.arg_reduce("argmax", tensor, axis))
            np.testing.assert_array_equal(found, x.argmax(axis))
            np.testing.assert_allclose(cu32.to_numpy(cu32.cumsum(tensor, axis)), x.cumsum(axis), rtol=1e-13, atol=1e-13)
            values, indices = cu32.sort(tensor, axis)
            np.testing.assert_array_equal(cu32.to_numpy(values), np.sort(x, axis))
            np.testing.assert_array_equal(cu32.to_numpy(indices), np.argsort(x, axis, kind="stable"))


def test_exact_sums_of_float64(cu32: Engine, rng: np.random.Generator) -> None:
    """Large terms that cancel: a plain sum in float64 would keep no digit of what is left."""
    small = rng.uniform(0, 1, 30_000)
    x = np.concatenate([small, np.full(1, 1e16), np.full(1, -1e16)])
    found = float(cu32.to_numpy(cu32.reduce("sum", cu32.from_numpy(x), (0,), False)))
    assert abs(found / math.fsum(x.tolist()) - 1) <= 1e-12


def test_infinities_and_nan(cu32: Engine) -> None:
    rows = np.array([[1, np.inf, 2], [np.inf, -np.inf, 0], [1, np.nan, 5], [-np.inf, 1, 1]])
    for dtype in (np.float32, np.float64):
        x = cu32.from_numpy(rows.astype(dtype))
        with np.errstate(invalid="ignore"):
            for op, function in (("sum", np.sum), ("max", np.max), ("min", np.min)):
                np.testing.assert_array_equal(cu32.to_numpy(cu32.reduce(op, x, (1,), False)), function(rows, axis=1))
        np.testing.assert_array_equal(cu32.to_numpy(cu32.arg_reduce("argmax", x, 1)), rows.argmax(1))
        np.testing.assert_array_equal(cu32.to_numpy(cu32.arg_reduce("argmin", x, 1)), rows.argmin(1))


def test_the_first_of_ties_wherever_blocks_meet(cu32: Engine) -> None:
    x = np.zeros(50_000, np.float32)
    for places in ([49_999, 30_001, 17], [40_000, 39_999], [0, 49_999]):
        x[places] = 3
        assert int(cu32.to_numpy(cu32.arg_reduce("argmax", cu32.from_numpy(x), 0))) == min(places)
        assert int(cu32.to_numpy(cu32.arg_reduce("argmin", cu32.from_numpy(-x), 0))) == min(places)
        x[places[0]] = np.nan
        assert int(cu32.to_numpy(cu32.arg_reduce("argmax", cu32.from_numpy(x), 0))) == places[0]
        x[:] = 0


def test_two_runs_are_equal_to_the_bit(cu32: Engine, rng: np.random.Generator) -> None:
    x = cu32.from_numpy(rng.standard_normal((300, 401)).astype(np.float32))
    for axes in ((0,), (1,), (0, 1)):
        first, second = (cu32.to_numpy(cu32.reduce("sum", x, axes, False)) for _ in range(2))
        assert np.array_equal(first, second)


LINES = [
    *itertools.product((1, 3), (1, 2, 3, 255, 257, 5000)),
    (5000, 1),
    (5000, 3),
    (5000, 40),
    (255, 200),  # about the least number of lines that threads take one each
    (256, 127),
    (257, 1001),
]


@pytest.mark.parametrize(("lines", "length"), LINES)
def test_running_sums(cu32: Engine, rng: np.random.Generator, lines: int, length: int) -> None:
    x = rng.standard_normal((lines, length)).astype(np.float32)
    for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        found = cu32.to_numpy(cu32.cumsum(cu32.from_numpy(array), axis))
        np.testing.assert_allclose(found, array.astype(np.float64).cumsum(axis), rtol=1.2e-7, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_running_sums_of_every_dtype(cu32: Engine, rng: np.random.Generator, dtype: Any) -> None:
    x = draw(rng, (3, 900), dtype)
    found = cu32.cumsum(cu32.from_numpy(x), 1)
    assert found.dtype == (dtype if np.dtype(dtype).kind == "f" else np.int64)
    np.testing.assert_allclose(cu32.to_numpy(found), x.cumsum(1, dtype=np.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 3, 31, 1024, 1025, 3000, 5000])
def test_sorting_lines_of_any_length(cu32: Engine, rng: np.random.Generator, length: int) -> None:
    x = rng.integers(-50, 50, (3, length)).astype(np.float32)  # with many ties
    x[rng.uniform(size=x.shape) < 0.1] = np.nan
    x[x == 0] = rng.choice([0.0, -0.0], int((x == 0).sum()))
    for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        values, indices = cu32.sort(cu32.from_numpy(array), axis)
        order = np.argsort(array, axis, kind="stable")
        np.testing.assert_array_equal(cu32.to_numpy(indices), order)
        np.testing.assert_array_equal(cu32.to_numpy(values), np.take_along_axis(array, order, axis))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorting_every_dtype(cu32: Engine, rng: np.random.Generator, dtype: Any) -> None:
    x = draw(rng, (2, 1100, 2), dtype)
    values, indices = cu32.sort(cu32.from_numpy(x), 1)
    order = np.argsort(x, 1, kind="stable")
    np.testing.assert_array_equal(cu32.to_numpy(indices), order)
    np.testing.assert_array_equal(cu32.to_numpy(values), np.take_along_axis(x, order, 1))


def test_more_axes_than_a_kernel_walks_over(cu32: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 2, 3, 2, 3, 2, 3))
    order = (1, 0, 3, 2, 5, 4, 7, 6)
    tensor = cu32.from_numpy(np.ascontiguousarray(x.transpose(order)))
    strides = tuple(tensor.strides[order.index(a)] for a in range(8))
    turned = tensor.strided(0, x.shape, strides)
    for axis in (1, 6):
        np.testing.assert_allclose(cu32.to_numpy(cu32.cumsum(turned, axis)), x.cumsum(axis), rtol=1e-13, atol=1e-13)
        values, _ = cu32.sort(turned, axis)
        np.testing.assert_array_equal(cu32.to_numpy(values), np.sort(x, axis))
        found = cu32.to_numpy(cu32.reduce("sum", turned, (axis,), False))
        np.testing.assert_allclose(found, x.sum(axis), rtol=1e-13, atol=1e-13)


def test_nothing_to_reduce(cu32: Engine) -> None:
    x = cu32.from_numpy(np.ones((0, 3), np.float32))
    assert cu32.to_numpy(cu32.reduce("sum", x, (0,), False)).tolist() == [0, 0, 0]
    assert cu32.to_numpy(cu32.reduce("prod", x, (0, 1), False)).tolist() == 1
    assert cu32.reduce("max", x, (1,), False).shape == (0,)
    assert cu32.cumsum(x, 0).shape == x.shape and cu32.sort(x, 1)[1].shape == x.shape


@pytest.mark.parametrize("shape", [(2, 0, 0), (0, 3, 0, 2), (2, 3, 0, 5, 0, 2, 3, 2)])
def test_views_of_nothing(cu32: Engine, shape: tuple[int, ...]) -> None:
    """Strides of empty views follow no order, so that no two of their axes need to merge."""
    whole = cu32.from_numpy(np.ones([n + 2 for n in shape]))
    view = whole.strided(0, shape, whole.strides)
    for axes in ((1,), (1, 2), (0, 2), tuple(range(len(shape)))):
        expected = np.ones(shape).sum(axes)
        found = cu32.to_numpy(cu32.reduce("sum", view, axes, False))
        assert found.shape == expected.shape and np.array_equal(found, expected)
        assert cu32.to_numpy(cu32.reduce("all", view, axes, False)).all()
