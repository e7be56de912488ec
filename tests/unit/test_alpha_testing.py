"""The checks themselves: what they accept, what they refuse, what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import AlphaError, ArgumentError, CheckError
from alpha.testing import DIRECTIONS, MOST_ELEMENTS, assert_close, gradcheck


class Cube(alpha.Function):
    """x ** 3, with a backward that may be wrong at one place."""

    def forward(self, x: alpha.Tensor, wrong: tuple[int, ...] | None = None, by: float = 1e-3) -> alpha.Tensor:
        self.save(x)
        self.wrong, self.by = wrong, by
        return x * x * x

    def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
        (x,) = self.saved
        out = grad * x * x * 3
        if self.wrong is not None:
            out[self.wrong] = out[self.wrong] * (1 + self.by)
        return out


# -- assert_close ------------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
def test_equal_values_of_every_kind() -> None:
    import torch

    values = [[1.0, 2.0], [3.0, 4.0]]
    kinds = [
        alpha.tensor(values),
        alpha.tensor(values, requires_grad=True),
        np.array(values),
        np.array(values, np.float32),
        torch.tensor(values, requires_grad=True),
        values,
    ]
    for a in kinds:
        for b in kinds:
            assert_close(a, b)
    assert_close(1.0, alpha.tensor(1.0))
    assert_close(alpha.tensor([True, False]), [True, False])


def test_tolerances_follow_the_coarser_dtype() -> None:
    one = np.ones(3)
    assert_close((one * (1 + 5e-6)).astype(np.float32), one)
    assert_close(one, (one * (1 + 5e-6)).astype(np.float32))
    with pytest.raises(CheckError):
        assert_close((one * (1 + 3e-5)).astype(np.float32), one)
    assert_close(one * (1 + 5e-13), one)
    with pytest.raises(CheckError):
        assert_close(one * (1 + 1e-10), one)
    assert_close(one * 1.09, one, rtol=0.1)
    assert_close(one + 0.09, one, rtol=0, atol=0.1)
    with pytest.raises(CheckError):
        assert_close(one + 0.11, one, rtol=0, atol=0.1)


def test_integers_must_be_equal() -> None:
    big = 2**62
    assert_close(np.array([big]), np.array([big]))
    with pytest.raises(CheckError):
        assert_close(np.array([big + 1]), np.array([big]))
    with pytest.raises(CheckError):
        assert_close([True], [False])
    assert_close(np.array([100]), np.array([101]), rtol=0.1)


def test_nan_and_infinity() -> None:
    assert_close([math.nan, math.inf, -math.inf], [math.nan, math.inf, -math.inf])
    for wrong in ([math.nan], [math.inf], [-math.inf]):
        for right in ([1.0], [0.0]):
            with pytest.raises(CheckError):
                assert_close(wrong, right)
            with pytest.raises(CheckError):
                assert_close(right, wrong)
    with pytest.raises(CheckError):
        assert_close([math.inf], [-math.inf], rtol=1.0)


def test_shapes_must_be_equal() -> None:
    with pytest.raises(CheckError, match=r"\[assert_close\] expected shape \(2, 1\), got \(2,\)"):
        assert_close(np.ones(2), np.ones((2, 1)))
    assert_close(np.ones((0, 3)), np.ones((0, 3)))


def test_the_message_names_the_worst_places() -> None:
    expected = np.array([[1.0, 100.0], [0.001, 5.0]])
    actual = expected.copy()
    actual[0, 1] += 3
    actual[1, 0] += 0.5
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, expected)
    message = str(caught.value)
    assert "got 2 of 4 beyond" in message
    assert "largest absolute error 3 at (0, 1) (103 instead of 100)" in message
    assert "largest relative error 500 at (1, 0) (0.501 instead of 0.001)" in message
    assert isinstance(caught.value, AlphaError) and "\n" not in message


# -- gradcheck ---------------------------------------------------------------------------------------------------


def test_a_right_gradient_passes() -> None:
    assert gradcheck(Cube.apply, np.linspace(0.5, 2, 6).reshape(2, 3)) is True
    assert gradcheck(Cube.apply, alpha.tensor([[1.0], [2.0]]))
    assert gradcheck(lambda x, y: (x * y, x + y), np.ones(2), np.array(3.0))


@pytest.mark.parametrize("by", [1e-3, -1.0, math.nan, math.inf])
def test_a_wrong_gradient_is_found_and_named(by: float) -> None:
    with pytest.raises(
        CheckError, match=r"\[gradcheck\] expected the gradient .* at \(1, 2\) of input 0 \(shape \(2, 3\)\)"
    ):
        gradcheck(lambda x: Cube.apply(x, (1, 2), by), np.linspace(0.5, 2, 6).reshape(2, 3))


def test_the_input_is_named() -> None:
    with pytest.raises(AssertionError, match=r"of input 2 "):
        gradcheck(lambda x, n, y: x * n + Cube.apply(y, (0,)), np.ones(1), 3, np.ones(1))


def test_large_inputs_are_checked_along_directions() -> None:
    calls = 0

    def counted(x: alpha.Tensor, wrong: Any = None) -> alpha.Tensor:
        nonlocal calls
        calls += 1
        return Cube.apply(x, wrong, 0.5)

    large = np.random.default_rng(0).uniform(1, 2, (MOST_ELEMENTS, 3))
    assert gradcheck(counted, large)
    assert calls == 2 * DIRECTIONS + 2
    with pytest.raises(CheckError, match="along random direction 0 of input 0"):
        gradcheck(lambda x: counted(x, (7, 1)), large)


def test_inputs_are_left_alone() -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True)
    gradcheck(lambda a: a * 2, x)
    assert x.grad is None and x.dtype == alpha.float32 and x.version == 0


def test_integers_and_others_pass_through() -> None:
    index = alpha.tensor([1, 0, 1])
    seen: list[Any] = []

    def function(x: alpha.Tensor, i: alpha.Tensor, name: str) -> alpha.Tensor:
        seen.append((i, name))
        return x[i] * 2

    assert gradcheck(function, np.array([1.0, 2.0]), index, "name")
    assert all(i is index and name == "name" for i, name in seen)


def test_float64_and_memory_order_reach_the_function() -> None:
    def function(x: alpha.Tensor) -> alpha.Tensor:
        assert x.dtype == alpha.float64 and x.strides == (1, 2)
        return x * 2

    assert gradcheck(function, np.asfortranarray(np.ones((2, 3), np.float32)))


def test_an_input_without_influence() -> None:
    assert gradcheck(lambda x, y: x * 2 + y.detach() * 0, np.ones(2), np.ones(2))
    with pytest.raises(CheckError, match="of input 1"):
        gradcheck(lambda x, y: x * y.detach(), np.ones(2), np.ones(2))


def test_functions_that_cannot_be_checked() -> None:
    with pytest.raises(ArgumentError, match=r"\[gradcheck\] expected a float tensor or array among the inputs"):
        gradcheck(lambda n: n, 3)
    with pytest.raises(CheckError, match=r"\[gradcheck\] expected a result in the graph"):
        gradcheck(lambda x: x.detach() * 2, np.ones(2))
    with pytest.raises(CheckError, match=r"\[gradcheck\] expected one result for the same inputs"):
        gradcheck(lambda x: x * alpha.rand(2, dtype=alpha.float64), np.ones(2))


def test_the_same_seed_gives_the_same_check() -> None:
    weights: list[float] = []

    def function(x: alpha.Tensor) -> alpha.Tensor:
        y = x * 1
        if y.requires_grad:
            y.register_hook(lambda g: weights.append(g.tolist()))
        return y

    for seed in (1, 1, 2):
        gradcheck(function, np.ones(3), seed=seed)
    assert weights[0] == weights[1] != weights[2]
