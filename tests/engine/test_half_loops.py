"""Floats of 16 bits in point-wise loops: every number, rounding to the nearest, and however tensors lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Engine
from alpha.nn import functional as F

HALVES = [alpha.bfloat16, alpha.float16]


def numbers(dtype: Any) -> np.ndarray[Any, Any]:
    """All of them, NaNs and infinities too."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def around(dtype: Any) -> np.ndarray[Any, Any]:
    """Float32s: a dtype's numbers, those half way between neighbours, and the next ones to these on either side."""
    exact = numbers(dtype).astype(np.float32)
    bits = numbers(dtype).astype(np.float32).view(np.uint32)
    half = (exact + np.roll(exact, -1)) / 2
    sides = [np.nextafter(half, np.float32(way)) for way in (-np.inf, np.inf)]
    more = (bits[:, None] + np.array([1, 0x7FFF, 0x8000, 0x8001], np.uint32)).view(np.float32).ravel()
    return np.concatenate([exact, half, *sides, more])


def same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Whether numbers have the same bits, any NaN standing for any other."""
    none = np.isnan(expected)
    return bool(
        (np.isnan(found) == none).all() and (found[~none].view(np.uint16) == expected[~none].view(np.uint16)).all()
    )


@pytest.mark.parametrize("dtype", HALVES)
def test_conversions_are_numpys(engine: Engine, dtype: Any) -> None:
    every = numbers(dtype)
    wide = alpha.tensor(every, engine=engine).float().numpy()
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    with np.errstate(all="ignore"):
        given = around(dtype)
        assert same(alpha.tensor(given, engine=engine).to(dtype).numpy(), given.astype(dtype))
        others = alpha.float16 if dtype is alpha.bfloat16 else alpha.bfloat16
        assert same(alpha.tensor(every, engine=engine).to(others).numpy(), every.astype(np.float32).astype(others))
        far = np.array([1 / 3, 1e300, 2.0**-25 * (1 + 2.0**-40), 65519.99999999], np.float64)
        assert same(alpha.tensor(far, engine=engine).to(dtype).numpy(), far.astype(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [1, 7, 31, 33, 1000, 70001])
def test_functions_round_once(engine: Engine, rng: np.random.Generator, dtype: Any, size: int) -> None:
    x, y = (rng.standard_normal(size).astype(dtype) for _ in range(2))
    a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    wide_x, wide_y = x.astype(np.float32), y.astype(np.float32)
    cases = {
        "add": (a + b, wide_x + wide_y),
        "number": (a * 3 - 1, (wide_x * 3).astype(dtype).astype(np.float32) - 1),
        "relu": (a.relu(), np.maximum(wide_x, 0)),
        "sqrt": (a.abs().sqrt(), np.sqrt(np.abs(wide_x))),
        "where": (alpha.where(a > b, a, b), np.where(wide_x > wide_y, wide_x, wide_y)),
        "clamp": (a.clamp(-0.5, 0.5), np.clip(wide_x, -0.5, 0.5)),
    }
    for name, (found, expected) in cases.items():
        assert found.dtype == dtype and same(found.numpy(), expected.astype(dtype)), name
    np.testing.assert_array_equal((a > b).numpy(), wide_x > wide_y)
    both = a + alpha.tensor(wide_y, engine=engine)
    assert both.dtype == alpha.float32
    np.testing.assert_array_equal(both.numpy(), wide_x + wide_y)


@pytest.mark.parametrize("dtype", HALVES)
def test_however_tensors_lie(engine: Engine, rng: np.random.Generator, dtype: Any) -> None:
    x, row = rng.standard_normal((5, 37, 19)).astype(dtype), rng.standard_normal(19).astype(dtype)
    column = rng.standard_normal((37, 1)).astype(dtype)
    a, b, c = (alpha.tensor(one, engine=engine) for one in (x, row, column))
    wide = x.astype(np.float32) + row.astype(np.float32)
    assert same((a + b).numpy(), wide.astype(dtype))
    assert same((a + c).numpy(), (x.astype(np.float32) + column.astype(np.float32)).astype(dtype))
    turned = a.permute(2, 0, 1)[::2]
    expected = x.astype(np.float32).transpose(2, 0, 1)[::2]
    assert same((turned * 2).numpy(), (expected * 2).astype(dtype))
    a[:, 3:30, 1:18] += 1  # in place, rows that begin in the middle of a vector
    x[:, 3:30, 1:18] += dtype.type(1)
    assert same(a.numpy(), x)
    a.add_(b)
    assert same(a.numpy(), (x.astype(np.float32) + row.astype(np.float32)).astype(dtype))
    flat = alpha.empty((5, 37, 19), dtype=dtype, engine=engine).copy_(a.float())
    assert same(flat.numpy(), a.numpy())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "mish", "softplus", "leaky_relu"])
def test_gradients_are_float32s_rounded(engine: Engine, rng: np.random.Generator, dtype: Any, name: str) -> None:
    x = rng.standard_normal(777).astype(dtype)
    function = getattr(F, name)
    a = alpha.tensor(x, engine=engine).requires_grad_()
    b = alpha.tensor(x.astype(np.float32), engine=engine).requires_grad_()
    y, wide = function(a), function(b)
    assert same(y.detach().numpy(), wide.detach().numpy().astype(dtype))
    dy = rng.standard_normal(777).astype(dtype)
    y.backward(alpha.tensor(dy, engine=engine))
    wide.backward(alpha.tensor(dy.astype(np.float32), engine=engine))
    assert a.grad is not None and b.grad is not None and a.grad.dtype == dtype
    bound = 2.0**-7 if dtype is alpha.bfloat16 else 2.0**-10  # what is kept of y is rounded, and the result again
    np.testing.assert_allclose(a.grad.numpy().astype(np.float32), b.grad.numpy(), rtol=4 * bound, atol=2 * bound)


@pytest.mark.parametrize("dtype", HALVES)
def test_many_numbers(engine: Engine, dtype: Any) -> None:
    """So many that results are written past the caches, by several threads, in rows that end within vectors."""
    if engine.name != "cpu":
        pytest.skip("the stand-in takes minutes for so many")
    x = (np.arange(9 * 300_011) % 1009 - 500).astype(dtype).reshape(9, 300_011)
    a = alpha.tensor(x, engine=engine)
    assert same((a + a).numpy(), x + x)
    assert same((a[:, 5:] * 0.5).numpy(), x[:, 5:] * dtype.type(0.5))
    np.testing.assert_array_equal(a.float().numpy(), x.astype(np.float32))


@pytest.mark.parametrize("dtype", HALVES)
def test_dropout_and_conditions(engine: Engine, dtype: Any) -> None:
    alpha.manual_seed(3)
    x = alpha.ones((3001,), dtype=dtype, engine=engine)
    y = F.dropout(x, 0.5).numpy().astype(np.float32)
    assert set(np.unique(y)) == {0.0, 2.0} and 1300 < (y == 0).sum() < 1700
    mask = alpha.tensor(np.arange(3001) % 3 == 0, engine=engine)
    filled = x.masked_fill(mask, 7.0).numpy().astype(np.float32)
    assert (filled == np.where(np.arange(3001) % 3 == 0, 7, 1)).all()
