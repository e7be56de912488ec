"""An optimizer in one file: by a rule, or by tensors' own operations, it runs on every engine without another edit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError
from alpha.optim.state import Group
from alpha.testing import assert_close
from alpha.update_rules import UpdateRule
from alpha.updates import Plan

pytestmark = pytest.mark.parametrize("engine", ["cpu", "cu32", "numpy", "toy"], indirect=True)
Array = np.ndarray[Any, Any]


# -- what a newcomer writes --------------------------------------------------------------------------------------


@dataclass(slots=True)
class LionRule(UpdateRule):
    """One step of Lion. A row's state is the momentum.

    Attributes:
        lr: the learning rate.
        betas: how much of the momentum the direction takes, and how much of it a step keeps.
        weight_decay: lr times this share is taken off the parameter.
    """

    lr: float
    betas: tuple[float, float]
    weight_decay: float

    states: ClassVar[int] = 1

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g, m = row
        toward, kept = self.betas
        direction = alpha.sign(m * toward + g * (1 - toward))
        return p - (direction + p * self.weight_decay) * self.lr, m * kept + g * (1 - kept)


class Lion(optim.Optimizer):
    """p -= lr (sign(b1 m + (1 - b1) g) + weight_decay p), m = b2 m + (1 - b2) g. Chen et al., arXiv 2302.06675."""

    state_tensors: ClassVar[tuple[str, ...]] = ("momentum",)
    state_required: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        for beta in options["betas"]:
            self.below_one("betas", beta)

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        rule = partial(_rule, options)
        engine.optimizer_step(self.rows(plan, params, "momentum"), rule(), rule, plan)


def _rule(options: Group) -> LionRule:
    return LionRule(options["lr"], options["betas"], options["weight_decay"])


class SignSGD(optim.Optimizer):
    """p -= lr sign(g), written with tensors' own operations."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    def update(self, engine: Engine, params: list[Tensor], options: Group) -> None:
        for p in params:
            assert p.grad is not None
            p.sub_(alpha.sign(p.grad) * options["lr"])


# -- what it is then good for ------------------------------------------------------------------------------------


def parameters(engine: Engine, rng: np.random.Generator) -> list[Tensor]:
    shapes = ((3, 4), (7,), (0, 2))
    return [alpha.tensor(rng.standard_normal(shape), engine=engine, requires_grad=True) for shape in shapes]


def give_gradients(params: list[Tensor], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(p.shape) for p in params]
    for p, value in zip(params, values, strict=True):
        p.grad = alpha.tensor(value, engine=p.engine)
    return values


def test_steps_with_groups_and_a_schedule(engine: Engine, rng: np.random.Generator) -> None:
    params = parameters(engine, rng)
    groups = [{"params": params[:1], "lr": 0.1, "weight_decay": 0.5}, {"params": params[1:]}]
    optimizer = Lion(groups, lr=0.01, betas=(0.8, 0.95))
    schedule = optim.StepLR(optimizer, step_size=2, gamma=0.1)
    wanted = [np.array(p.detach()) for p in params]
    momenta = [np.zeros(p.shape) for p in params]
    for step in range(5):
        gradients = give_gradients(params, step)
        optimizer.step()
        schedule.step()
        for i, g in enumerate(gradients):
            lr, decay = ((0.1, 0.5) if i == 0 else (0.01, 0.0))[:2]
            direction = np.sign(0.8 * momenta[i] + 0.2 * g)
            wanted[i] = wanted[i] - lr * 0.1 ** (step // 2) * (direction + decay * wanted[i])
            momenta[i] = 0.95 * momenta[i] + 0.05 * g
    for p, value, momentum in zip(params, wanted, momenta, strict=True):
        assert_close(p.detach(), value)
        assert_close(optimizer.state[p]["momentum"], momentum)
    assert optimizer.steps == 5


def test_its_state_goes_out_and_in(engine: Engine, rng: np.random.Generator) -> None:
    first = parameters(engine, rng)
    one = Lion(first, lr=0.1)
    give_gradients(first, 0)
    one.step()
    second = [p.detach().clone().requires_grad_() for p in first]
    other = Lion(second, lr=0.3).load_state_dict(one.state_dict())
    for optimizer, params in ((one, first), (other, second)):
        give_gradients(params, 1)
        optimizer.step()
    for p, q in zip(first, second, strict=True):
        assert_close(q.detach(), p.detach(), rtol=0, atol=0)
    assert other.steps == one.steps == 2 and other.param_groups[0]["lr"] == 0.1
    with pytest.raises(
        CheckpointError, match=r"^\[Lion.load_state_dict\] expected the state of Lion, got that of Adam"
    ):
        other.load_state_dict(optim.Adam(second).state_dict())
    with pytest.raises(ArgumentError, match=r"^\[Lion\] expected betas in \[0, 1\), got 1.5"):
        Lion(second, betas=(0.9, 1.5))


@pytest.mark.parametrize("kind", [Lion, SignSGD])
def test_a_network_trains(engine: Engine, rng: np.random.Generator, kind: type[Lion | SignSGD]) -> None:
    alpha.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)).to(engine)
    points = rng.standard_normal((48, 4)).astype(np.float32)
    x, labels = alpha.tensor(points, engine=engine), alpha.tensor(points[:, :3].argmax(1), engine=engine)
    optimizer = kind(net.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3


def test_rows_that_do_not_fit_change_nothing(engine: Engine, rng: np.random.Generator) -> None:
    p, g, m = (alpha.tensor(rng.standard_normal(3), engine=engine) for _ in range(3))
    rule = LionRule(0.1, (0.9, 0.99), 0.0)
    for row in ((p, g), (p, g, m, m), (p, g, m[:2]), (p, g, m.float())):
        with pytest.raises((alpha.errors.ShapeError, alpha.errors.DtypeError), match=r"^\[optimizer_step\] expected"):
            engine.optimizer_step([(p, g, m), row], rule)
    assert p.version == m.version == 0


@pytest.mark.parametrize("kind", [Lion, SignSGD])
def test_a_captured_step(engine: Engine, rng: np.random.Generator, kind: type[Lion | SignSGD]) -> None:
    """A rule's numbers go into the next replay; an update, which computed with them, is captured anew."""
    params = parameters(engine, rng)[:2]
    give_gradients(params, 0)
    optimizer, one = kind(params, lr=0.5), alpha.ones((), engine=engine)

    def step(x: Tensor) -> Tensor:
        optimizer.step()
        return x

    captured, before = alpha.graph(step, warmup=1), [np.array(p.detach()) for p in params]
    for lr in (0.5, 0.5, 0.5, 0.25, 0.25, 0.25):
        optimizer.param_groups[0]["lr"] = lr
        captured(one)
    for p, start in zip(params, before, strict=True):
        assert_close(p.detach(), start - 2.25 * np.sign(np.array(p.grad)))
    assert optimizer.steps == 6
    if engine.recorder() is not None:
        assert captured.captures == (1 if kind is Lion else 2)
