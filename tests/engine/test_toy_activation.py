"""An activation in one file: one definition gives results, gradient and layer on every engine, and each a kernel."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn, optim
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.engine import Engine
from alpha.testing import assert_close, gradcheck
from tests.tiers import FLOAT_NAMES

pytestmark = pytest.mark.parametrize("engine", ["cpu", "cu32", "numpy", "toy"], indirect=True)


# -- what a newcomer writes --------------------------------------------------------------------------------------


@alpha.pointwise
def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (1 + abs(x))


class Softsign(nn.Module):
    """x / (1 + |x|)."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        result: Tensor = softsign(x)
        return result


# -- what it is then good for ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_values_and_gradient(engine: Engine, rng: np.random.Generator, dtype: str) -> None:
    values, grad = (rng.standard_normal((3, 4, 5)).astype(dtype) for _ in range(2))
    x = alpha.tensor(values.transpose(1, 0, 2), engine=engine, requires_grad=True)
    y = softsign(x)
    y.backward(alpha.tensor(grad.transpose(1, 0, 2), engine=engine))
    assert_close(y, (values / (1 + abs(values))).transpose(1, 0, 2))
    assert_close(x.grad, (grad / (1 + abs(values)) ** 2).transpose(1, 0, 2))


def test_results_and_gradient_are_one_program_each(
    engine: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On cu32 each is one launch, of a kernel that is generated."""
    ran: list[str] = []
    run = engine.pointwise

    def note(function: str, *rest: Any) -> Any:
        ran.append(function)
        return run(function, *rest)

    x = alpha.tensor(rng.standard_normal((3, 5)), engine=engine, requires_grad=True)
    grad = alpha.tensor(np.ones((3, 5)), engine=engine)
    launched = launches(engine, monkeypatch)
    monkeypatch.setattr(engine, "pointwise", note)
    softsign(x).backward(grad)
    assert ran == ["softsign"] * 2
    if isinstance(engine, DeviceEngine):
        assert launched == ["pointwise"] * 2


def launches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sources whose kernels run on the CUDA engine from now on."""
    names: list[str] = []
    if isinstance(engine, DeviceEngine):
        launch = engine.launch_packed

        def note(source: Source, *rest: Any) -> None:
            names.append(source.name)
            launch(source, *rest)

        monkeypatch.setattr(engine, "launch_packed", note)
    return names


def test_the_gradient_is_the_functions(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.uniform(0.5, 2, (3, 4)) * rng.choice([-1, 1], (3, 4)), engine=engine, requires_grad=True)
    assert gradcheck(softsign, x)
    assert gradcheck(lambda x: softsign(softsign(x) * x), x)


def test_without_elements_and_outside_the_graph(engine: Engine) -> None:
    x = alpha.zeros((0, 3), engine=engine, requires_grad=True)
    softsign(x).sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)
    with alpha.no_grad():
        assert not softsign(x).requires_grad


def test_a_network_with_the_layer_trains(engine: Engine, rng: np.random.Generator) -> None:
    alpha.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 16), Softsign(), nn.Linear(16, 3)).to(engine)
    points = rng.standard_normal((48, 4)).astype(np.float32)
    x, labels = alpha.tensor(points, engine=engine), alpha.tensor(points[:, :3].argmax(1), engine=engine)
    optimizer = optim.Adam(net.parameters(), lr=0.05)

    def step(x: Tensor, labels: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    captured = alpha.graph(step)  # on cu32 a replay from the third step on
    losses = [captured(x, labels).item() for _ in range(25)]
    assert losses[-1] < losses[0] / 3
    assert "Softsign" in repr(net)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert_close(other(x), net(x), rtol=0, atol=0)
