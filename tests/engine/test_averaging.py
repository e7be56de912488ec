"""AveragedModel: the definition in float64, PyTorch's, state and misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError


def network(engine: Engine) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).to(engine)


def draw(rng: np.random.Generator, engine: Engine, *shape: int) -> alpha.Tensor:
    return alpha.tensor(rng.standard_normal(shape).astype(np.float32), engine=engine)


def shake(net: nn.Module, rng: np.random.Generator, engine: Engine) -> None:
    """Moves all weights and BatchNorm's statistics."""
    with alpha.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter + draw(rng, engine, *parameter.shape))
    net.train()(draw(rng, engine, 5, 4, 4, 3))


@pytest.mark.parametrize("use_buffers", [False, True])
def test_the_average_is_exponential(engine: Engine, use_buffers: bool) -> None:
    rng, net = np.random.default_rng(0), network(engine)
    ema = optim.AveragedModel(net, 0.9, use_buffers)
    expected: dict[str, np.ndarray] = {}
    averaged = {name for name, _ in net.named_parameters()}
    averaged |= {name for name, b in net.named_buffers() if use_buffers and b.dtype.kind == "f"}
    for _ in range(4):
        shake(net, rng, engine)
        ema.update_parameters(net)
        for name, tensor in net.state_dict().items():
            now = np.array(tensor, np.float64)
            expected[name] = 0.9 * expected[name] + 0.1 * now if name in expected and name in averaged else now
    for name, tensor in ema.module.state_dict().items():
        np.testing.assert_allclose(np.array(tensor), expected[name], rtol=1e-5, atol=1e-6)
    assert int(ema.n_averaged) == 4
    assert not any(p.requires_grad for p in ema.parameters()) and all(p.requires_grad for p in net.parameters())


@pytest.mark.needs("torch")
def test_pytorch_averages_alike(engine: Engine) -> None:
    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    ours, theirs = nn.Linear(3, 2).to(engine), torch.nn.Linear(3, 2)
    ema = optim.AveragedModel(ours, 0.8)
    torch_ema = AveragedModel(theirs, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    rng = np.random.default_rng(0)
    for _ in range(3):
        weight, bias = rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal(2).astype(np.float32)
        ours.load_state_dict({"weight": weight, "bias": bias})
        theirs.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        ema.update_parameters(ours)
        torch_ema.update_parameters(theirs)
    state = torch_ema.state_dict()
    assert set(ema.state_dict()) == set(state)
    for name, tensor in ema.state_dict().items():
        np.testing.assert_allclose(np.array(tensor), state[name].numpy(), rtol=1e-6)


def test_it_runs_as_the_network_and_keeps_its_state(engine: Engine) -> None:
    rng, net = np.random.default_rng(0), network(engine)
    ema = optim.AveragedModel(net)
    shake(net, rng, engine)
    ema.update_parameters(net)
    x = draw(rng, engine, 2, 4, 4, 3)
    np.testing.assert_array_equal(np.array(ema.eval()(x)), np.array(net.eval()(x)))
    other = optim.AveragedModel(network(engine))
    other.load_state_dict(ema.state_dict())
    np.testing.assert_array_equal(np.array(other.eval()(x)), np.array(ema(x)))
    assert int(other.n_averaged) == 1


def test_misuse_says_what_was_expected(engine: Engine) -> None:
    with pytest.raises(ArgumentError, match=r"\[AveragedModel\] expected decay in 0..1, got 2"):
        optim.AveragedModel(nn.Linear(3, 2), 2)
    ema = optim.AveragedModel(nn.Linear(3, 2).to(engine))
    with pytest.raises(ShapeError, match=r"\[AveragedModel.update_parameters\] expected the network"):
        ema.update_parameters(nn.Linear(2, 2).to(engine))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["mean", "swa", "swa of lists", "ema", "ema of lists", "one's own"])
@pytest.mark.parametrize("use_buffers", [False, True])
def test_swa_utils_average_as_pytorchs(engine: Engine, kind: str, use_buffers: bool) -> None:
    import torch
    from torch.optim import swa_utils as theirs

    if use_buffers and kind == "swa of lists":
        pytest.skip("PyTorch 2.13 divides integer buffers there, which it no longer allows")

    def options(module: Any) -> dict[str, Any]:
        return {
            "mean": {},
            "swa": {"avg_fn": module.get_swa_avg_fn()},
            "swa of lists": {"multi_avg_fn": module.get_swa_multi_avg_fn()},
            "ema": {"avg_fn": module.get_ema_avg_fn(0.8)},
            "ema of lists": {"multi_avg_fn": module.get_ema_multi_avg_fn(0.8)},
            "one's own": {"avg_fn": lambda average, new, n: average * 0.3 + new * 0.7 / (n + 1)},
        }[kind]

    with torch.random.fork_rng():
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2, track_running_stats=use_buffers))
    ours = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=use_buffers)).to(engine)
    average = optim.swa_utils.AveragedModel(ours, use_buffers=use_buffers, **options(optim.swa_utils))
    expected = theirs.AveragedModel(net, use_buffers=use_buffers, **options(theirs))
    rng = np.random.default_rng(0)
    for _ in range(4):
        state = {k: torch.from_numpy(rng.random(tuple(v.shape))).to(v.dtype) for k, v in net.state_dict().items()}
        net.load_state_dict(state)
        ours.load_state_dict({k: v.numpy() for k, v in state.items()})
        average.update_parameters(ours)
        expected.update_parameters(net)
    assert int(average.n_averaged) == 4
    for (name, tensor), their in zip(average.state_dict().items(), expected.state_dict().values(), strict=True):
        if tensor.dtype.kind == "f":
            np.testing.assert_allclose(np.array(tensor), their.numpy(), rtol=1e-5, err_msg=name)


@pytest.mark.needs("torch")
def test_update_bn_is_pytorchs(engine: Engine) -> None:
    import torch

    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((n, 3)).astype(np.float32) for n in (4, 7, 5)]
    ours = nn.Sequential(nn.BatchNorm1d(3, momentum=0.3), nn.ReLU()).to(engine).eval()
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(3, momentum=0.3), torch.nn.ReLU()).eval()
    optim.swa_utils.update_bn([(alpha.tensor(x), None) for x in batches], ours, device=engine)
    torch.optim.swa_utils.update_bn([(torch.from_numpy(x), None) for x in batches], net)
    for mine, their in zip(ours.state_dict().values(), net.state_dict().values(), strict=True):
        np.testing.assert_allclose(np.array(mine), their.numpy(), rtol=1e-5, atol=1e-6)
    assert not ours.training and ours[0].momentum == 0.3
    optim.swa_utils.update_bn([], nn.Linear(2, 2))  # nothing to do
