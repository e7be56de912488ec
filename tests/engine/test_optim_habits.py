"""What all optimizers have in common, as PyTorch's users know it: closures, hooks, names, groups, rates in tensors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError

KINDS = (
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor",
    "LBFGS", "Muon",
)  # fmt: skip


def make(kind: str, params: Any, **options: Any) -> optim.Optimizer:
    made: optim.Optimizer = getattr(optim, kind)(params, **options)
    return made


def matrix(engine: Engine, value: float = 2.0) -> alpha.Tensor:
    return alpha.full((2, 3), value, dtype="float64", engine=engine).requires_grad_()


class Sign(optim.Optimizer):
    """An optimizer as users of PyTorch write them."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @alpha.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with alpha.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["count"], state["trace"] = 0, alpha.zeros_like(p)
                state["count"] += 1
                state["trace"].mul_(0.5).add_(p.grad)
                p.sub_(state["trace"].sign() * group["lr"])
        return loss


@pytest.mark.parametrize("kind", KINDS)
def test_a_closure_gives_the_loss_and_gradients(engine: Engine, kind: str) -> None:
    param = matrix(engine)
    optimizer = make(kind, [param], lr=0.01)
    modes = []

    def closure() -> alpha.Tensor:
        modes.append(alpha.is_grad_enabled())
        optimizer.zero_grad()
        loss = (param * param).sum()
        loss.backward()
        return loss

    with alpha.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 24 and all(modes) and optimizer.steps == 1
    assert (param.detach().numpy() < 2).all()
    with pytest.raises(ArgumentError, match=rf"^\[{kind}.step\] expected a function"):
        optimizer.step(3)  # type: ignore[type-var]


@pytest.mark.parametrize("kind", ["Adam", "LBFGS", "own"])
def test_step_hooks_are_called_in_order_and_removed(engine: Engine, kind: str) -> None:
    param = matrix(engine)
    optimizer = Sign([param]) if kind == "own" else make(kind, [param])
    seen: list[Any] = []

    def closure() -> float:
        param.grad = param.detach().clone()
        seen.append("closure")
        return 3.0

    def replacing(opt: Any, args: Any, kwargs: Any) -> Any:
        assert opt is optimizer and args[0] is optimizer
        seen.append("before")
        return (optimizer, closure), kwargs

    first = optimizer.register_step_pre_hook(replacing)
    second = optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append("after"))
    assert optimizer.step(lambda: 7.0) == 3.0
    assert [seen[0], seen[1], seen[-1]] == ["before", "closure", "after"]
    first.remove()
    with second:
        optimizer.step(closure)
    seen.clear()
    optimizer.step(closure)
    assert "before" not in seen and "after" not in seen and optimizer.steps == 3


def test_state_hooks_may_replace_the_state(engine: Engine) -> None:
    optimizer = optim.SGD([matrix(engine)], lr=0.1)
    seen: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda opt: seen.append("saving"))
    optimizer.register_state_dict_post_hook(lambda opt, state: {**state, "extra": 1})
    state = optimizer.state_dict()
    assert state["extra"] == 1 and seen == ["saving"]
    with pytest.raises(CheckpointError, match="extra"):
        optimizer.load_state_dict(state)
    optimizer.register_load_state_dict_pre_hook(lambda opt, state: {k: v for k, v in state.items() if k != "extra"})
    optimizer.register_load_state_dict_pre_hook(lambda opt, state: seen.append("first"), prepend=True)
    optimizer.register_load_state_dict_post_hook(lambda opt: seen.append("loaded"))
    state["param_groups"][0]["lr"] = 0.7
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.7 and seen == ["saving", "first", "loaded"]


def test_an_optimizer_of_ones_own_steps_and_saves(engine: Engine) -> None:
    param = matrix(engine)
    optimizer = Sign([param])
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    param.grad = alpha.ones_like(param)
    optimizer.step()
    scheduler.step()
    state = pickle.loads(pickle.dumps(optimizer.state_dict()))
    other = Sign([param]).load_state_dict(state)
    other.step()
    assert other.state[param]["count"] == 2 and other.steps == 2
    np.testing.assert_allclose(param.detach().numpy(), 2 - 0.1 - 0.05)
    np.testing.assert_allclose(np.array(other.state[param]["trace"]), 1.5)


def test_named_parameters_keep_their_names(engine: Engine) -> None:
    net = nn.Linear(3, 2).to(engine)
    optimizer = optim.Adam(net.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    optim.Adam(net.parameters()).load_state_dict(optimizer.state_dict())
    groups = optim.SGD([{"params": [("weight", net.weight)], "lr": 0.5}, {"params": [("bias", net.bias)]}])
    assert [group["param_names"] for group in groups.param_groups] == [["weight"], ["bias"]]
    with pytest.raises(ArgumentError, match=r"^\[SGD\] expected a name for each parameter or for none, got 1 pairs"):
        optim.SGD([("weight", net.weight), net.bias])
    with pytest.raises(ArgumentError, match=r"^\[SGD\] expected groups that all have names"):
        optim.SGD([{"params": [("weight", net.weight)]}, {"params": [net.bias]}])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "LBFGS"])
def test_a_rate_in_a_tensor_is_read_in_each_step(engine: Engine, kind: str) -> None:
    params = [matrix(engine), matrix(engine)]
    rate = alpha.tensor(0.25, dtype="float64", engine=engine)
    optimizers = [make(kind, [params[0]], lr=rate), make(kind, [params[1]], lr=0.25)]
    schedulers = [optim.lr_scheduler.ExponentialLR(one, 0.5) for one in optimizers]
    for step in range(3):
        for param, optimizer, scheduler in zip(params, optimizers, schedulers, strict=True):
            param.grad = alpha.full((2, 3), step - 0.5, dtype="float64", engine=engine)
            optimizer.step()
            scheduler.step()
    np.testing.assert_array_equal(params[0].detach().numpy(), params[1].detach().numpy())
    assert optimizers[0].param_groups[0]["lr"] is rate or engine.name.startswith("cu32")
    assert schedulers[0].get_last_lr() == [0.25 / 8]
    state = pickle.loads(pickle.dumps(optimizers[0].state_dict()))
    optimizers[1].load_state_dict(state)
    assert float(optimizers[1].param_groups[0]["lr"]) == 0.25 / 8


def test_groups_keep_what_is_no_option_and_refuse_misspelt_ones(engine: Engine) -> None:
    params = [matrix(engine) for _ in range(3)]
    optimizer = optim.AdamW([{"params": params[0], "name": "head", "lr_scale": 2}], lr=0.1)
    optimizer.add_param_group({"params": params[1:], "betas": (0.5, 0.6)})
    assert optimizer.param_groups[0]["name"] == "head" and optimizer.param_groups[1]["betas"] == (0.5, 0.6)
    with pytest.raises(ArgumentError, match=r"got weight_decai: write weight_decay, or "):
        optimizer.add_param_group({"params": [matrix(engine)], "weight_decai": 0.1})
    with pytest.raises(ArgumentError, match=r"^\[AdamW\] expected capturable=False, got True"):
        optim.AdamW(params, capturable=True)


def test_a_state_from_before_the_newer_options_is_taken(engine: Engine) -> None:
    param = matrix(engine)
    optimizer = optim.AdamW([param], lr=0.1)
    state = optimizer.state_dict()
    group = {key: state["param_groups"][0][key] for key in ("params", "lr", "betas", "eps", "weight_decay")}
    other = optim.AdamW([param], amsgrad=True).load_state_dict({**state, "param_groups": [group]})
    assert other.param_groups[0] == optimizer.param_groups[0]
    with pytest.raises(CheckpointError, match="expected the options"):
        other.load_state_dict({**state, "param_groups": [{key: value for key, value in group.items() if key != "lr"}]})
