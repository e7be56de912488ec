"""Reductions, running sums and sorting against float64 NumPy and PyTorch: values, gradients, accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import alpha
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]

REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "var": lambda x, axis, keepdims: np.var(x, axis, ddof=1, keepdims=keepdims),
    "std": lambda x, axis, keepdims: np.std(x, axis, ddof=1, keepdims=keepdims),
    "logsumexp": lambda x, axis, keepdims: np.log(np.sum(np.exp(x), axis, keepdims=keepdims)),
    "norm": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis, keepdims=keepdims)),
}


def call(name: str, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return getattr(alpha, name)(x, dim=dim, keepdim=keepdim)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [None, 0, -1, 1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_values_and_gradients(engine: Engine, rng: np.random.Generator, name: str, dim: Any, keepdim: bool) -> None:
    dense = rng.uniform(0.5, 1.5, (3, 2, 4)).astype(np.float32)
    for x in (dense, rng.uniform(0.5, 1.5, (4, 3, 2)).astype(np.float32).transpose(1, 2, 0)):
        result = call(name, alpha.tensor(x, engine=engine), dim, keepdim)
        expected = REDUCTIONS[name](x.astype(np.float64), axis=dim, keepdims=keepdim)
        assert result.shape == np.shape(expected)
        # Variances subtract close numbers: their error is relative to the mean's square.
        assert_close(result, expected, rtol=5e-6, atol=1e-6)
        assert gradcheck_on(engine, lambda t: call(name, t, dim, keepdim), x)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "logsumexp", "norm"])
def test_size_one_axes_and_no_axes(engine: Engine, rng: np.random.Generator, name: str) -> None:
    for shape in ((), (1,), (1, 3, 1)):
        x = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        expected = REDUCTIONS[name](x.astype(np.float64), axis=None, keepdims=False)
        assert_close(call(name, alpha.tensor(x, engine=engine)), expected)
        assert gradcheck_on(engine, lambda t: call(name, t), x)


def test_empty_axes(engine: Engine) -> None:
    x = alpha.zeros(0, 3, engine=engine)
    assert x.sum(0).tolist() == [0, 0, 0]
    assert x.prod(0).tolist() == [1, 1, 1]
    assert x.sum(1).shape == (0,)
    assert np.isnan(x.mean(0).numpy()).all()
    assert x.any(0).tolist() == [False] * 3 and x.all(0).tolist() == [True] * 3
    assert x.logsumexp(0).tolist() == [-math.inf] * 3
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ShapeError, match=rf"\[{name}\] expected at least one element"):
            getattr(alpha, name)(x, dim=0)
    with pytest.raises(ShapeError, match=r"\[max\]"):
        x.max()
    with pytest.raises(ShapeError, match=r"\[argmax\]"):
        x.argmax()


def test_integers_and_bools(engine: Engine) -> None:
    small = alpha.tensor(np.full(300, 200, np.uint8), engine=engine)
    assert small.sum().dtype == alpha.int64 and small.sum().item() == 60000
    assert alpha.tensor([True, True, False], engine=engine).sum().item() == 2
    assert alpha.tensor([2, 3], engine=engine).prod().item() == 6
    assert small.max().dtype == alpha.uint8
    assert small.cumsum(0).dtype == alpha.int64
    for name in ("mean", "var", "std", "norm"):
        with pytest.raises(DtypeError, match=rf"\[{name}\] expected float32 or float64, got uint8"):
            getattr(alpha, name)(small)


@pytest.mark.parametrize("dtype, bound", [(np.float32, 1e-7), (np.float64, 1e-14)])
@pytest.mark.parametrize("layout", ["inner", "outer", "middle", "all"])
def test_sums_are_accurate_along_every_axis(
    engine: Engine, rng: np.random.Generator, dtype: Any, bound: float, layout: str
) -> None:
    """A running float32 sum of 200,000 numbers near 1 is off by 1e-3 relative; a pairwise one by a rounding or two."""
    n = 200_000
    values = rng.uniform(0.9, 1.1, n).astype(dtype)
    exact = math.fsum(values.tolist())
    shape, axes = {"inner": ((2, n), 1), "outer": ((n, 2), 0), "middle": ((2, n, 3), 1), "all": ((n,), None)}[layout]
    axis = 0 if axes is None else axes
    x = np.moveaxis(np.broadcast_to(values, [*(m for m in shape if m != n), n]), -1, axis)
    result = alpha.sum(alpha.tensor(x.copy(), engine=engine), axes).numpy().astype(np.float64)
    assert np.abs(result / exact - 1).max() <= bound


def test_sum_of_a_tensor_laid_out_otherwise(engine: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((300, 4, 5)).transpose(2, 0, 1)
    for dim in (None, 0, 1, 2, (0, 1), (1, 2)):
        assert_close(alpha.sum(alpha.tensor(x, engine=engine), dim), np.sum(x, dim), rtol=1e-11, atol=1e-11)


def test_variance_without_correction(engine: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 6)).astype(np.float32)
    t = alpha.tensor(x, engine=engine)
    assert_close(t.var(1, unbiased=False), x.astype(np.float64).var(1), rtol=1e-5)
    assert gradcheck_on(engine, lambda a: alpha.var(a, 1, unbiased=False), x)
    assert np.isnan(alpha.ones(1, engine=engine).var().item())
    # Two passes: a large mean does not eat the variance.
    assert_close((t.double() + 1e6).var(), x.astype(np.float64).var(ddof=1), rtol=1e-8)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(engine: Engine, rng: np.random.Generator, name: str) -> None:
    x = rng.permutation(24).reshape(2, 3, 4).astype(np.float32)
    t = alpha.tensor(x, engine=engine)
    assert getattr(alpha, name)(t).item() == getattr(np, name)(x)
    for dim in (0, 1, -1):
        values, indices = getattr(alpha, name)(t, dim)
        np.testing.assert_array_equal(values.numpy(), getattr(np, name)(x, dim))
        np.testing.assert_array_equal(indices.numpy(), getattr(np, f"arg{name}")(x, dim))
        assert indices.dtype == alpha.int64
        kept, index = getattr(alpha, name)(t, dim, keepdim=True)
        assert kept.shape == index.shape == np.max(x, dim, keepdims=True).shape
        assert gradcheck_on(engine, lambda a, d=dim: getattr(alpha, name)(a, d)[0], x)
        assert gradcheck_on(engine, lambda a, d=dim: getattr(alpha, name)(a, d, keepdim=True)[0], x.transpose(2, 0, 1))
    assert gradcheck_on(engine, getattr(alpha, name), x)
    assert getattr(alpha, f"arg{name}")(t).item() == getattr(np, f"arg{name}")(x)
    assert getattr(alpha, f"arg{name}")(t, 1, keepdim=True).shape == (2, 1, 4)


@pytest.mark.needs("torch")
def test_ties_and_nan_are_pytorchs(engine: Engine) -> None:
    import torch

    values = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]], np.float32)
    for case in (lambda x: x.max(), lambda x: x.min(), lambda x: x.max(1)[0].sum(), lambda x: x.prod()):
        x = alpha.tensor(values, requires_grad=True, engine=engine)
        y = torch.tensor(values, requires_grad=True)
        case(x).backward()
        case(y).backward()
        assert_close(x.grad, y.grad)
    broken = np.array([1.0, np.nan, 3.0], np.float32)
    t = alpha.tensor(broken, engine=engine)
    assert math.isnan(t.max().item()) and t.max(0)[1].item() == torch.tensor(broken).max(0)[1].item() == 1
    assert t.argmin().item() == 1


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_product_with_zeros(engine: Engine, zeros: int) -> None:
    x = np.array([[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]])
    x[0, :zeros] = 0
    assert gradcheck_on(engine, lambda a: alpha.prod(a, 1), x)
    assert gradcheck_on(engine, alpha.prod, x)


def test_any_and_all(engine: Engine) -> None:
    x = np.array([[True, False], [True, True]])
    t = alpha.tensor(x, engine=engine)
    assert t.any().item() is True and t.all().item() is False
    assert t.all(0).tolist() == [True, False]
    assert t.any(1, keepdim=True).shape == (2, 1)
    assert alpha.any(alpha.tensor([0.0, 2.0], engine=engine)).item() is True


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "prod", "norm", "logsumexp"])
def test_an_empty_list_of_axes_names_all(engine: Engine, name: str) -> None:
    """As in PyTorch, and before as after a call has told the engine of no axes."""
    x = alpha.tensor(np.arange(1.0, 7).reshape(2, 3), engine=engine)
    function = getattr(alpha, name)
    expected = function(x)
    engine.reduce("sum", x, (), False)
    for axes in ((), [], (), []):
        found = function(x, dim=axes)
        assert found.shape == () and found.item() == expected.item()
        assert function(x, dim=axes, keepdim=True).shape == (1, 1)
    leaf = alpha.tensor(np.arange(1.0, 7).reshape(2, 3), requires_grad=True, engine=engine)
    function(leaf, dim=()).backward()
    assert leaf.grad is not None and leaf.grad.shape == (2, 3)


@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all_over_an_empty_list_of_axes_take_each_by_itself(engine: Engine, name: str) -> None:
    x = alpha.tensor([[0.0, 2.0]], engine=engine)
    assert getattr(alpha, name)(x, ()).tolist() == [[False, True]]


@given(shape=array_shapes(min_dims=1, max_dims=3, max_side=5), descending=st.booleans(), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sort(engine: Engine, shape: tuple[int, ...], descending: bool, data: Any) -> None:
    x = np.random.default_rng(len(shape)).integers(0, 4, shape)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    values, indices = alpha.sort(alpha.tensor(x, engine=engine), dim, descending)
    # Stable both ways: sort keys of which no two are equal.
    positions = np.arange(x.shape[dim]).reshape([-1 if a == dim % x.ndim else 1 for a in range(x.ndim)])
    keys = (-x if descending else x) * 1000 + positions
    order = np.argsort(keys, axis=dim)
    np.testing.assert_array_equal(indices.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, dim))


def test_sort_gradient(engine: Engine, rng: np.random.Generator) -> None:
    x = rng.permutation(24).reshape(2, 3, 4).astype(np.float64)
    for descending in (False, True):
        for dim in (0, 1, 2):
            assert gradcheck_on(engine, lambda a, d=dim, r=descending: alpha.sort(a, d, r), x)


def test_cumsum(engine: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4, 2)).astype(np.float32)
    for dim in (0, 1, -1):
        assert_close(alpha.tensor(x, engine=engine).cumsum(dim), x.astype(np.float64).cumsum(dim))
        assert gradcheck_on(engine, lambda a, d=dim: alpha.cumsum(a, d), x.T)
    long = np.full(300_000, 0.1, np.float32)
    total = alpha.tensor(long, engine=engine).cumsum(0)[-1].item()
    assert abs(total / (300_000 * float(np.float32(0.1))) - 1) < 1e-7


@pytest.mark.needs("torch")
def test_logsumexp_of_large_and_infinite_numbers(engine: Engine) -> None:
    import torch

    rows = [[1000.0, 1000.0], [-1000.0, -1001.0], [-math.inf, -math.inf], [math.inf, 0.0], [-math.inf, 1.0]]
    x = alpha.tensor(rows, requires_grad=True, engine=engine)
    y = torch.tensor(rows, requires_grad=True)
    assert_close(alpha.logsumexp(x, 1), torch.logsumexp(y, 1))
    alpha.logsumexp(x[:2], 1).sum().backward()
    torch.logsumexp(y[:2], 1).sum().backward()
    assert_close(x.grad, y.grad)


@pytest.mark.parametrize("p", [1, 2, 3, 2.5, 0.5, -1, -math.inf, math.inf])
def test_norms(engine: Engine, rng: np.random.Generator, p: float) -> None:
    x = rng.uniform(0.5, 2, (3, 4)) * rng.choice([-1, 1], (3, 4))
    t = alpha.tensor(x, engine=engine)
    for dim in (None, 0, 1):
        expected = np.linalg.norm(x.ravel() if dim is None else x, p, dim)
        assert_close(alpha.norm(t, p, dim), expected, rtol=1e-12)
        assert gradcheck_on(engine, lambda a, d=dim: alpha.norm(a, p, d), x)
    with pytest.raises(ArgumentError, match=r"\[norm\] expected p as a number"):
        alpha.norm(t, math.nan)


def test_norm_at_zero_has_no_gradient(engine: Engine) -> None:
    x = alpha.zeros(3, requires_grad=True, engine=engine)
    alpha.norm(x).backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]


def test_axis_errors(engine: Engine) -> None:
    x = alpha.zeros(2, 3, engine=engine)
    with pytest.raises(ShapeError, match=r"\[sum\] expected an axis in -2..1 of a tensor of 2 axes, got 2"):
        x.sum(2)
    with pytest.raises(ShapeError, match=r"\[mean\] expected different axes"):
        x.mean((0, -2))
    with pytest.raises(ShapeError, match=r"\[argmax\] expected an axis as an int"):
        x.argmax(1.0)


# -- NumPy's names, dtypes and corrections -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "var", "std", "max", "min", "argmax", "argmin", "any", "all", "logsumexp", "norm"]
)
def test_reductions_take_numpys_names(engine: Engine, rng: np.random.Generator, name: str) -> None:
    x = alpha.tensor(rng.normal(size=(2, 3)), engine=engine)
    function = getattr(alpha, name)
    expected, found = function(x, dim=1, keepdim=True), function(x, axis=1, keepdims=True)
    pairs = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    for one, other in pairs:
        assert other.shape == (2, 1)
        np.testing.assert_array_equal(np.asarray(other), np.asarray(one))
    with pytest.raises(ArgumentError, match=rf"\[{name}\] expected dim or axis, got both"):
        function(x, dim=1, axis=1)
    with pytest.raises(ArgumentError, match=rf"\[{name}\] expected keepdim or keepdims, got both"):
        function(x, keepdim=True, keepdims=True)


def test_what_is_found_along_an_axis_has_names(engine: Engine) -> None:
    x = alpha.tensor([[3.0, 1.0], [2.0, 5.0]], engine=engine)
    found = x.max(1)
    assert found.values.tolist() == [3, 5] and found.indices.tolist() == [0, 1] and found[0] is found.values
    assert x.min(dim=0).indices.tolist() == [1, 0] and x.sort(0, descending=True).values.tolist() == [[3, 5], [2, 1]]
    assert x.sort(axis=1, stable=True).indices.tolist() == [[1, 0], [0, 1]]
    assert alpha.max(x, -x).tolist() == x.tolist() and alpha.min(x, -x).tolist() == (-x).tolist()


def test_sums_in_another_dtype_and_variances_with_a_correction(engine: Engine, rng: np.random.Generator) -> None:
    ints = alpha.tensor([[1, 2], [3, 5]], engine=engine)
    for name in ("sum", "mean", "prod"):
        found = getattr(ints, name)(0, dtype=alpha.float64)
        assert found.dtype == alpha.float64
        np.testing.assert_allclose(np.asarray(found), getattr(np, name)(np.asarray(ints), 0))
    assert ints.cumsum(0, dtype="float32").dtype == alpha.float32 and ints.cumsum(axis=1).tolist() == [[1, 3], [3, 8]]
    values = rng.normal(size=(4, 3))
    x = alpha.tensor(values, engine=engine, requires_grad=True)
    for by in (0, 1, 2):
        np.testing.assert_allclose(np.asarray(x.var(0, correction=by)), values.var(0, ddof=by))
        np.testing.assert_allclose(np.asarray(x.std(correction=by)), values.std(ddof=by))
    assert gradcheck_on(engine, lambda x: x.std(1, correction=0), values)
    with pytest.raises(ArgumentError, match=r"\[var\] expected correction as a number, got '1.5'"):
        x.var(correction="1.5")
