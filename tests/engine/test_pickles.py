"""pickle and copy: modules with their hooks, optimizers, schedules and generators go on as the originals do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine

calls: list[nn.Module] = []


def noted(module: nn.Module, args: Any, result: Any) -> Any:
    """A hook that counts and doubles."""
    calls.append(module)
    return result * 2


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Muon"])
def test_a_run_and_its_copy_go_on_alike(engine: Engine, duplicate: Callable[[Any], Any], kind: str) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(engine)
    net[0].register_forward_hook(noted)
    matrices = [p for p in net.parameters() if kind != "Muon" or p.ndim == 2]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(optim, kind)(matrices, lr=0.1, **options)
    parts = [optim.LinearLR(optimizer), optim.StepLR(optimizer, 2)]
    schedule = optim.SequentialLR(optimizer, parts, [2])
    generator = alpha.Generator().manual_seed(3)

    def step(run: Any) -> Any:
        module, steps, rates, numbers = run
        loss = module(alpha.rand(5, 3, generator=numbers, engine=engine)).square().sum()
        steps.zero_grad()
        loss.backward()
        steps.step()
        rates.step()
        return float(loss), rates.get_last_lr()

    run = (net, optimizer, schedule, generator)
    step(run)
    other = duplicate(run)
    assert other[1].param_groups[0]["params"][0] is other[0][0].weight is not net[0].weight
    assert other[2].optimizer is other[1] and other[0][0].weight.storage is not net[0].weight.storage
    calls.clear()
    assert [step(run) for _ in range(3)] == [step(other) for _ in range(3)]
    assert calls == [net[0]] * 3 + [other[0][0]] * 3
    for name, tensor in net.state_dict().items():
        assert np.array_equal(tensor, other[0].state_dict()[name])


def test_hooks_of_copies(engine: Engine) -> None:
    """A deep copy has hooks of its own, a copy shares them and everything else, as in PyTorch."""
    net = nn.Linear(2, 2).to(engine)
    handle = net.register_forward_hook(noted)
    deep, shallow = copy.deepcopy(net), copy.copy(net)
    assert shallow.weight is net.weight and deep.weight is not net.weight
    x = alpha.ones(1, 2, engine=engine)
    calls.clear()
    handle.remove()
    for module in (net, shallow, deep):
        module(x)
    assert calls == [deep]


def test_generators_and_tensors(engine: Engine) -> None:
    generator = alpha.Generator().manual_seed(5)
    alpha.rand(3, generator=generator)
    expected = None
    for duplicate in (copy.copy, copy.deepcopy, pickled):
        drawn = alpha.rand(3, generator=duplicate(generator)).tolist()
        assert expected is None or drawn == expected
        expected = drawn
    parameter = nn.Parameter(alpha.ones(2, 3, engine=engine))
    shared = {"p": parameter, "view": parameter.detach().T, "d": alpha.float32, "place": alpha.device("cpu")}
    for duplicate in (copy.deepcopy, pickled):
        found = duplicate(shared)
        assert type(found["p"]) is nn.Parameter and found["p"].requires_grad and found["p"].engine is engine
        assert found["view"].storage is found["p"].storage is not parameter.storage
        assert found["view"].strides == shared["view"].strides
        assert found["d"] == alpha.float32 and found["place"] == alpha.device("cpu")
    borrowed = alpha.from_numpy(np.zeros(600)[:300])
    for duplicate in (copy.deepcopy, pickled):
        assert not duplicate(borrowed).storage.exported  # memory of its own
