"""alpha.func beside torch.func: functions of functions with all of their arguments, modules as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import func, nn
from alpha.autograd import functional
from alpha.errors import ArgumentError, ShapeError

X = np.array([0.5, -1.0, 2.0])


def with_aux(x: Any) -> Any:
    return x**3, x.sum()


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [one for part in value for one in flat(part)]
    return [] if callable(value) and not hasattr(value, "detach") else [value]


def applied(result: tuple[Any, ...], *vectors: tuple[Any, ...]) -> tuple[Any, ...]:
    """A function's output, its product with each of these, and what else came with it."""
    output, product, *others = result
    return output, *[product(*some) for some in vectors], *others


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "jacrev": lambda f, x: f.jacrev(with_aux, has_aux=True)(x),
    "jacrev in chunks": lambda f, x: f.jacrev(lambda x: x**2, chunk_size=2)(x),
    "jacrev of two": lambda f, x: f.jacrev(lambda a, b: ((a * b).sum(), a), argnums=(0, 1), has_aux=True)(x, x * 2),
    "jacfwd": lambda f, x: f.jacfwd(with_aux, has_aux=True)(x),
    "jacfwd by place": lambda f, x: f.jacfwd(lambda a, b: (a * b, b), 1, True, randomness="same")(x, x * 2),
    "vjp": lambda f, x: applied(f.vjp(with_aux, x, has_aux=True), (x,)),
    "vjp without": lambda f, x: applied(f.vjp(lambda x: x**3, x), (x * 2,)),
    "jvp": lambda f, x: f.jvp(with_aux, (x,), (x * 2,), has_aux=True),
    "jvp strict": lambda f, x: f.jvp(lambda x: x**3, (x,), (x * 2,), strict=True),
    "jvp of several": lambda f, x: f.jvp(lambda a, b: (a * b, a.sum()), (x, x * 2), (x * 3, x * 4)),
    "linearize": lambda f, x: applied(f.linearize(lambda x: x**3, x), (x * 2,), (x * 3,)),
    "linearize of several": lambda f, x: applied(f.linearize(lambda a, b: (a * b, a.sum()), x, x * 2), (x, x * 3)),
    "hessian": lambda f, x: f.hessian(lambda x: (x**3).sum())(x),
    "nested": lambda f, x: f.jacrev(f.jacrev(lambda x: (x**3).sum()))(x),
}


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_calls_match_pytorch(name: str) -> None:
    import torch

    found = flat(CALLS[name](func, alpha.tensor(X)))
    expected = flat(CALLS[name](torch.func, torch.tensor(X)))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert not a.requires_grad or name.startswith("vjp")
        np.testing.assert_allclose(np.asarray(a.detach()), b.detach().numpy(), 1e-12)


def test_linearize_calls_the_function_once() -> None:
    calls: list[int] = []

    def cube(x: Any) -> Any:
        calls.append(1)
        return x**3

    output, product = func.linearize(cube, alpha.tensor(X))
    for scale in (1.0, 2.0):
        np.testing.assert_allclose(np.asarray(product(alpha.tensor(X * scale))), 3 * X**3 * scale, 1e-12)
    np.testing.assert_allclose(np.asarray(output), X**3)
    assert calls == [1]
    constant = func.linearize(lambda x: alpha.ones(2), alpha.tensor(X))[1]
    assert constant(alpha.tensor(X)).tolist() == [0, 0]
    with pytest.raises(ShapeError, match="linearize"):
        product(alpha.ones(2))


def test_bad_arguments_are_refused() -> None:
    x = alpha.tensor(X)
    with pytest.raises(ArgumentError, match="chunk_size"):
        func.jacrev(lambda x: x, chunk_size=0)
    with pytest.raises(ArgumentError, match="randomness"):
        func.jacfwd(lambda x: x, randomness="different")
    with pytest.raises(ArgumentError, match="draws no random numbers"):
        func.jacfwd(lambda x: x * alpha.rand(3).double())(x)
    assert func.jacfwd(lambda x: x * alpha.rand(3).double(), randomness="same")(x).shape == (3, 3)
    for call in (
        lambda: func.jacrev(lambda x: x, has_aux=True)(x),
        lambda: func.vjp(lambda x: x, x, has_aux=True),
        lambda: func.jvp(lambda x: (x, x, x), (x,), (x,), has_aux=True),
    ):
        with pytest.raises(ArgumentError, match="pair"):
            call()
    with pytest.raises(ArgumentError, match="depend on the inputs"):
        func.jvp(lambda x: alpha.ones(2), (x,), (x,), strict=True)
    with pytest.raises(ArgumentError, match="outer_jacobian_strategy"):
        functional.hessian(lambda x: (x**2).sum(), x, outer_jacobian_strategy="sideways")
    found = functional.hessian(lambda x: (x**2).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode")
    np.testing.assert_allclose(np.asarray(found), 2 * np.eye(3))


# -- modules -------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return self.second(self.first(x))


def test_tied_weights_are_replaced_together() -> None:
    net, x = Tied(), alpha.ones(1, 2)
    twice = alpha.tensor([[2.0, 0.0], [0.0, 2.0]])
    assert func.functional_call(net, {"first.weight": twice}, x).tolist() == [[4, 4]]
    assert func.functional_call(net, {"second.weight": twice}, x, strict=True).tolist() == [[4, 4]]
    alone = func.functional_call(net, {"second.weight": twice}, (x,), tie_weights=False)
    np.testing.assert_allclose(np.asarray(alone.detach()), 2 * np.asarray(net.first(x).detach()), 1e-6)
    with pytest.raises(ArgumentError, match="which are one"):
        func.functional_call(net, {"first.weight": twice, "second.weight": twice * 1}, x)
    with pytest.raises(ArgumentError, match=r"none for \['bias'\]"):
        func.functional_call(nn.Linear(2, 2), {"weight": twice}, x, strict=True)
    assert net.first.weight is net.second.weight


def test_stacked_modules_run_as_one() -> None:
    nets = nn.ModuleList([nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(4)]).eval()
    parameters, buffers = func.stack_module_state(nets)
    assert parameters["0.weight"].shape == (4, 2, 3) and parameters["0.weight"].requires_grad
    assert buffers["1.num_batches_tracked"].shape == (4,)
    x = alpha.randn(5, 3)

    def call(weights: Any, statistics: Any) -> Any:
        return func.functional_call(nets[0], (weights, statistics), (x,))

    names, more = list(parameters), list(buffers)
    found = func.vmap(
        lambda *given: call(
            dict(zip(names, given[: len(names)], strict=True)), dict(zip(more, given[len(names) :], strict=True))
        )
    )(*parameters.values(), *buffers.values())
    for place, net in enumerate(nets):
        np.testing.assert_allclose(np.asarray(found[place].detach()), np.asarray(net(x).detach()), 1e-6, 1e-6)
    found.sum().backward()
    assert parameters["0.weight"].grad is not None
    with pytest.raises(ArgumentError, match="one class"):
        func.stack_module_state([])
    with pytest.raises(ArgumentError, match="one class"):
        func.stack_module_state([nn.Linear(2, 2), nn.ReLU()])
    nets[1].train()
    with pytest.raises(ArgumentError, match="one mode"):
        func.stack_module_state(nets)
    frozen = [nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)]
    with pytest.raises(ArgumentError, match="require grad"):
        func.stack_module_state(frozen)


def test_batch_norms_without_running_statistics() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.BatchNorm1d(2)))
    assert func.replace_all_batch_norm_modules_(net) is net
    assert net[1][0].running_mean is None and not net[1][0].track_running_stats
    x = alpha.randn(6, 3)
    np.testing.assert_allclose(np.asarray(net.eval()(x).detach()).mean(axis=0), 0, atol=1e-5)
