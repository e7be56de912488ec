"""``alpha.amp``: the scaler of gradients is PyTorch's; autocast can only be switched off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import amp, nn, optim
from alpha.errors import ArgumentError, CheckpointError

OPTIONS = {"init_scale": 1024.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}


def train(package: Any, optimizers: Any, scaler: Any, tensor: Any, unscales: bool) -> list[float]:
    """Scales and weights over steps, two of which have a gradient that is not finite."""
    net = package.Linear(2, 1, bias=False)
    net.weight.data.copy_(tensor([[1.0, -2.0]]))
    opt = optimizers.SGD(net.parameters(), lr=0.1)
    found: list[float] = []
    for value in (1.0, 2.0, float("inf"), 3.0, float("nan"), 1.0, 1.0, 1.0, 1.0):
        opt.zero_grad()
        scaler.scale(net(tensor([[value, 1.0]])).sum()).backward()
        if unscales:
            scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        found += [scaler.get_scale(), *net.weight.detach().flatten().tolist()]
    return found


@pytest.mark.needs("torch")
@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_the_scaler_is_pytorchs(enabled: bool, unscales: bool) -> None:
    import torch

    theirs = torch.amp.GradScaler("cpu", **OPTIONS, enabled=enabled)
    ours = amp.GradScaler("cpu", **OPTIONS, enabled=enabled)
    expected = train(torch.nn, torch.optim, theirs, torch.tensor, unscales)
    np.testing.assert_allclose(train(nn, optim, ours, alpha.tensor, unscales), expected, rtol=1e-6, equal_nan=True)
    assert ours.state_dict() == theirs.state_dict() and ours.is_enabled() == theirs.is_enabled()


def test_several_losses_and_a_new_scale() -> None:
    scaler = amp.GradScaler(init_scale=8.0)
    one = alpha.ones(1)
    assert [x.item() for x in scaler.scale([one, one * 2])] == [8.0, 16.0] and type(scaler.scale((one,))) is tuple
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0
    scaler.update(alpha.tensor(3.0))
    state = scaler.state_dict()
    other = amp.GradScaler()
    other.load_state_dict(state)
    assert other.state_dict() == state and other.get_scale() == 3.0
    for wrong in ({}, None, {**state, "scale": "much"}):
        with pytest.raises((CheckpointError, ArgumentError), match=r"\[GradScaler\] expected"):
            other.load_state_dict(wrong)  # type: ignore[arg-type]
        assert other.state_dict() == state


def test_gradients_with_a_graph_are_scaled_outside_it() -> None:
    net = nn.Linear(1, 1)
    scaler = amp.GradScaler(init_scale=8.0)
    scaler.scale(net(alpha.ones(1, 1)).square().sum()).backward(create_graph=True)
    before = np.asarray(net.weight.grad.detach()) / 8  # type: ignore[union-attr]
    scaler.unscale_(optim.SGD(net.parameters(), lr=0.1))
    np.testing.assert_allclose(np.asarray(net.weight.grad.detach()), before, rtol=1e-6)  # type: ignore[union-attr]


def test_wrong_order() -> None:
    net = nn.Linear(1, 1)
    opt, scaler = optim.SGD(net.parameters(), lr=0.1), amp.GradScaler()
    with pytest.raises(ArgumentError, match=r"\[GradScaler.update\] expected a step before it, got none"):
        scaler.update()
    scaler.scale(net(alpha.ones(1, 1)).sum()).backward()
    scaler.unscale_(opt)
    with pytest.raises(ArgumentError, match=r"expected one call between updates, got one after another unscale_"):
        scaler.unscale_(opt)
    scaler.step(opt)
    with pytest.raises(ArgumentError, match=r"\[GradScaler.step\] expected one call between updates, got another"):
        scaler.step(opt)
    with pytest.raises(ArgumentError, match=r"got one after a step"):
        scaler.unscale_(opt)
    with pytest.raises(ArgumentError, match=r"\[GradScaler.scale\] expected a tensor, or several, got 3"):
        scaler.scale(3)
    for options in ({"init_scale": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"growth_interval": 0}):
        with pytest.raises(ArgumentError, match=r"\[GradScaler\] expected"):
            amp.GradScaler(**options)


def test_autocast_is_off_or_refused() -> None:
    with alpha.autocast("cpu", enabled=False), alpha.cuda.amp.autocast(enabled=False):
        assert (alpha.ones(2, 2) @ alpha.ones(2, 2)).dtype == alpha.float32

    @alpha.autocast("cuda", dtype=alpha.bfloat16, enabled=False)
    def twice(x: alpha.Tensor) -> alpha.Tensor:
        return x * 2

    assert twice(alpha.ones(1)).tolist() == [2.0]
    for options in ({}, {"dtype": alpha.bfloat16}, {"enabled": True}):
        with pytest.raises(ArgumentError, match=r"\[autocast\] expected enabled=False, got True"):
            alpha.autocast("cpu", **options)
