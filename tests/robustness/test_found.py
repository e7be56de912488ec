"""Faults that the campaign found, each with its smallest case."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.nn import functional as F


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_zero_writes_every_dtype(engine: Engine, dtype: str) -> None:
    base = alpha.tensor(np.ones((2, 3), dtype), engine=engine)
    view = base[:, 1]
    assert view.zero_() is view
    assert base.tolist() == np.array([[1, 0, 1]] * 2, dtype).tolist()


def test_std_is_one_function() -> None:
    """What is done for special cases of ``alpha.std`` holds for the method too."""
    assert alpha.Tensor.std is alpha.std


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", [0.1, -0.3, 1234567.8, 1e-20])
def test_equal_numbers_do_not_vary(engine: Engine, number: float, dtype: str) -> None:
    """Their mean is rounded; their variance is 0 all the same, and so is its gradient."""
    for length in (2, 3, 7, 100, 1001):
        x = alpha.tensor(np.full((2, length), number, dtype), engine=engine).requires_grad_()
        for function in (alpha.var, alpha.std):
            y = function(x, 1)
            y.sum().backward()
            assert not y.any().item()
        assert x.grad is not None and not x.grad.any().item()


def test_products_of_the_others_do_not_overflow_beside_a_zero(engine: Engine) -> None:
    def gradient(values: list[float], dim: object) -> list[float]:
        x = alpha.tensor(np.array(values, np.float32), engine=engine).requires_grad_()
        alpha.prod(x, dim).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    assert gradient([-1.0, 0.0, -3e38, 3e38], 0) == [0.0, np.inf, 0.0, 0.0]
    assert gradient([1e31, 0.0, 1e31], None) == [0.0, np.inf, 0.0]
    assert gradient([3.0] * 200 + [0.0, 0.0], 0) == [0.0] * 202
    assert gradient([-3.0, 2.0], ()) == gradient([-3.0, 2.0], None) == [2.0, -3.0], "no axes are all"


@pytest.mark.parametrize("chunks", [2**63, 10**9])
def test_pieces_of_nothing_are_not_made_without_end(engine: Engine, chunks: int) -> None:
    with pytest.raises(alpha.errors.ArgumentError, match="expected at most"):
        alpha.chunk(alpha.zeros((2, 0), engine=engine), chunks, 1)


@pytest.mark.parametrize("function", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_weight_of_no_class_does_not_reach_an_ignored_row(engine: Engine, function: str, reduction: str) -> None:
    """An ignored row counts for class 0 within; the others come out as without it."""
    rows = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    labels, found = np.array([2, -100, 1]), []
    for kept in (slice(None), [0, 2]):
        x = alpha.tensor(rows[kept], engine=engine).requires_grad_()
        weight = alpha.tensor(np.array([np.inf, 1, 2, 3], np.float32), engine=engine)
        target = alpha.tensor(labels[kept], engine=engine)
        loss = getattr(F, function)(x, target, reduction=reduction, weight=weight)
        loss.sum().backward()
        assert x.grad is not None
        found.append((loss.sum().item(), x.grad.numpy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    assert not found[0][1][1].any()
    np.testing.assert_allclose(found[0][1][[0, 2]], found[1][1], rtol=1e-6)


def test_an_infinite_scale_of_cross_entropy_is_pytorchs(engine: Engine) -> None:
    x = alpha.tensor(np.array([[0.5, 1.0, 0.0]], np.float32), engine=engine).requires_grad_()
    loss = F.cross_entropy(x, alpha.tensor(np.array([1]), engine=engine), reduction="none")
    loss.backward(alpha.tensor(np.array([np.inf], np.float32), engine=engine))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.array([[np.inf, np.nan, np.inf]], np.float32))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: alpha.pad(x, (1, 1), value=-3),
        lambda x: alpha.pad(x, (1, 1), value=np.int64(256)),
        lambda x: x.fill_(300),
        lambda x: x.to("float32").fill_(1e300),
        lambda x: x.to("int32") ** 2**31,
    ],
)
def test_numbers_that_a_dtype_does_not_hold(engine: Engine, call: Callable[[alpha.Tensor], object]) -> None:
    with pytest.raises(alpha.errors.ArgumentError):
        call(alpha.tensor(np.array([1, 0], np.uint8), engine=engine))
