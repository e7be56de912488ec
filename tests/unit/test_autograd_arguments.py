"""PyTorch's arguments of alpha.autograd: grad, backward, gradcheck and its like, Variable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import autograd
from alpha.errors import ArgumentError, CheckError, GraphError


def doubles(*shape: int, seed: int = 0) -> alpha.Tensor:
    return alpha.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


def two(x: alpha.Tensor, w: alpha.Tensor) -> tuple[alpha.Tensor, ...]:
    return (x @ w).tanh(), (x * x).sum(), x.detach()


class Wrong(alpha.Function):
    """3 x, with a gradient of one's choice."""

    def forward(self, x: alpha.Tensor, slope: Any) -> alpha.Tensor:
        self.slope = slope
        return x * 3

    def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
        return grad * self.slope()


class Careless(alpha.Function):
    """x and 2 x, with a gradient that takes what is missing for ones."""

    def forward(self, x: alpha.Tensor) -> tuple[alpha.Tensor, alpha.Tensor]:
        return x * 1, x * 2

    def backward(self, first: Any, second: Any) -> alpha.Tensor:
        first = second * 0 + 1 if first is None else first
        return first + (second * 2 if second is not None else 0)


@pytest.mark.parametrize("fast", [False, True])
def test_right_gradients_pass(fast: bool) -> None:
    x, w = doubles(3, 2), doubles(2, 2, seed=1)
    assert autograd.gradcheck(two, (x, w), fast_mode=fast, check_grad_dtypes=True)
    assert autograd.gradgradcheck(two, [x, w], fast_mode=fast, gen_non_contig_grad_outputs=True)
    assert autograd.gradgradcheck(lambda x: x**3, x, doubles(3, 2, seed=2), fast_mode=fast)
    assert autograd.gradcheck(lambda x, n: x * n, (x, 3.0), fast_mode=fast)
    assert autograd.gradcheck(lambda x: x.sum(), doubles(0, 2), fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_wrong_gradients_do_not(fast: bool) -> None:
    x = doubles(3)
    with pytest.raises(CheckError, match="differences"):
        autograd.gradcheck(lambda x: Wrong.apply(x, lambda: 3.1), x, fast_mode=fast)
    assert not autograd.gradcheck(lambda x: Wrong.apply(x, lambda: 3.1), x, fast_mode=fast, raise_exception=False)
    assert autograd.gradcheck(lambda x: Wrong.apply(x, lambda: 3.1), x, rtol=0.1, fast_mode=fast)
    slopes = iter(range(1000))
    with pytest.raises(CheckError, match="two walks"):
        autograd.gradcheck(lambda x: Wrong.apply(x, lambda: 3 + 1e-6 * next(slopes)), x, fast_mode=fast)
    slopes = iter(range(1000))
    wobbling = lambda x: Wrong.apply(x, lambda: 3 + 1e-6 * next(slopes))  # noqa: E731
    assert autograd.gradcheck(wobbling, x, nondet_tol=1e-4, fast_mode=fast)
    with pytest.raises(CheckError, match="outside the graph"):
        autograd.gradcheck(lambda x: x.detach() * 2, x, fast_mode=fast)


def test_results_without_a_gradient() -> None:
    x = doubles(3)
    with pytest.raises(CheckError):
        autograd.gradcheck(Careless.apply, x)
    assert autograd.gradcheck(two, (x.detach().reshape(1, 3), doubles(3, 2)), check_undefined_grad=True)


@pytest.mark.parametrize(
    "options",
    [
        {"check_batched_grad": True},
        {"check_forward_ad": True},
        {"check_batched_forward_grad": True},
        {"check_backward_ad": False},
        {"masked": True},
        {"eps": 0.0},
    ],
)
def test_what_there_is_not_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"^\[gradcheck\]"):
        autograd.gradcheck(lambda x: x * 2, doubles(2), **options)


def test_what_second_gradients_have_not_is_refused() -> None:
    for options in ({"check_fwd_over_rev": True}, {"check_rev_over_rev": False}):
        with pytest.raises(ArgumentError, match=r"^\[gradgradcheck\]"):
            autograd.gradgradcheck(lambda x: x * 2, doubles(2), **options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="requires grad"):
        autograd.gradcheck(lambda x: x * 2, alpha.randn(2))
    with pytest.warns(UserWarning, match="float64"):
        autograd.gradcheck(lambda x: x * 2, alpha.ones(2, requires_grad=True), eps=1e-2, rtol=0.1)


# -- grad and backward ---------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients_match_pytorch(create_graph: bool) -> None:
    import torch

    x, starts = np.arange(1.0, 7).reshape(2, 3), np.random.default_rng(0).standard_normal((4, 2, 3))
    found = []
    for package in (alpha, torch):
        leaf = package.tensor(x, requires_grad=True)
        unused = package.tensor(x, requires_grad=True)
        options = {"is_grads_batched": True, "create_graph": create_graph, "allow_unused": True}
        found.append(package.autograd.grad(leaf**3, (leaf, unused), package.tensor(starts), **options))
    np.testing.assert_allclose(np.asarray(found[0][0].detach()), found[1][0].detach().numpy(), 1e-12)
    assert found[0][1] is None and found[1][1] is None
    assert found[0][0].requires_grad == create_graph


def test_batched_gradients_need_one_batch() -> None:
    x = doubles(2)
    for starts in (None, alpha.ones((), dtype="float64"), alpha.ones((0, 2), dtype="float64")):
        with pytest.raises(ArgumentError, match="axis in front"):
            autograd.grad(x * 2, x, starts, is_grads_batched=True)


def test_mappings_of_inputs() -> None:
    x, y = doubles(2), doubles(2, seed=1)
    found = autograd.grad((x * y).sum(), {"x": x, "y": y})
    assert list(found) == ["x", "y"]
    np.testing.assert_array_equal(np.asarray(found["x"]), np.asarray(y.detach()))
    autograd.backward((x * y).sum(), inputs={"x": x})
    assert x.grad is not None and y.grad is None


def test_older_arguments_warn() -> None:
    x = doubles(2)
    with pytest.warns(FutureWarning, match="only_inputs"):
        autograd.grad((x * 2).sum(), x, only_inputs=False)
    with pytest.warns(FutureWarning, match="use grad_tensors"):
        autograd.backward(x * 2, grad_variables=alpha.ones(2, dtype="float64"))
    assert x.grad is not None and x.grad.tolist() == [2, 2]
    with pytest.warns(FutureWarning), pytest.raises(ArgumentError, match="grad_tensors alone"):
        autograd.backward(x * 2, alpha.ones(2), grad_variables=alpha.ones(2))
    with pytest.raises(GraphError):
        autograd.grad((x * 2).sum(), doubles(2))


def test_variables_are_tensors() -> None:
    x = alpha.ones(2)
    v = autograd.Variable(x, requires_grad=True)
    assert type(v) is alpha.Tensor and v.requires_grad and not x.requires_grad
    v.detach().fill_(3.0)
    assert x.tolist() == [3, 3]  # one memory
    assert isinstance(x, autograd.Variable) and not isinstance(3, autograd.Variable)
    with pytest.raises(ArgumentError, match="expected a tensor"):
        autograd.Variable([1.0])


def test_modes_take_pytorchs_argument() -> None:
    with alpha.no_grad():
        assert alpha.enable_grad(orig_func=alpha.is_grad_enabled)()
    assert not alpha.no_grad(orig_func=alpha.is_grad_enabled)()
