"""What a network held is free when the last reference is gone: no cycle waits for Python's garbage collector."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.nn import functional as F


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def network() -> Any:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))


def images() -> Any:
    return alpha.tensor(np.random.default_rng(0).standard_normal((2, 4, 4, 3)).astype(np.float32))


def trained(net: Any, make: Callable[[Any], Any] = lambda parameters: optim.SGD(parameters, lr=0.1)) -> Any:
    optimizer = make(net.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(images()), alpha.tensor([0, 1])).backward()
        optimizer.step()
    return optimizer


def saved(net: Any) -> None:
    file = io.BytesIO()
    alpha.save(net.state_dict(), file)
    file.seek(0)
    net.load_state_dict(alpha.load(file))


def optimizer_state(net: Any) -> None:
    optimizer = trained(net, optim.AdamW)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def clipped(net: Any) -> None:
    net(images()).sum().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    nn.utils.clip_grad_value_(net.parameters(), 0.1)


def initialised(net: Any) -> None:
    for p in net.parameters():
        nn.init.normal_(p)
        nn.init.zeros_(p)


def graphed(net: Any) -> None:
    step = alpha.graph(lambda x: net(x).sum())
    for _ in range(4):
        step(images())


def scheduled(net: Any) -> None:
    schedule = optim.lr_scheduler.CosineAnnealingLR(trained(net), 10)
    schedule.step()
    schedule.load_state_dict(schedule.state_dict())


def averaged(net: Any) -> None:
    average = optim.swa_utils.AveragedModel(net)
    average.update_parameters(net)


def refused(net: Any) -> None:
    """An error leaves its traceback to whoever caught it, and nothing else."""
    try:
        net(alpha.zeros(2, 5))
    except alpha.errors.AlphaError:
        return
    raise AssertionError("expected an error")


def autocast(net: Any) -> None:
    with alpha.autocast("bfloat16"):
        net(images()).sum().backward()


def scaled(net: Any) -> None:
    scaler, optimizer = alpha.amp.GradScaler(), optim.SGD(net.parameters(), lr=0.1)
    scaler.scale(net(images()).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


USES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda net: None,
    "a call": lambda net: net(images()),
    "training": trained,
    "float64": lambda net: net.double(),
    "halves": lambda net: net.half().float(),
    "bfloat16": lambda net: net.bfloat16(),
    "to an engine": lambda net: net.to("numpy").to("cpu"),
    "a state of its own": lambda net: net.load_state_dict(net.state_dict()),
    "a file": saved,
    "an optimizer's state": optimizer_state,
    "gradients to zero": lambda net: (net(images()).sum().backward(), net.zero_grad(set_to_none=False)),
    "clipped gradients": clipped,
    "initialisation": initialised,
    "evaluation": lambda net: (net.eval(), net(images()), net.train()),
    "no gradients": lambda net: net.requires_grad_(False)(images()),
    "a copy": copy.deepcopy,
    "a captured step": graphed,
    "a schedule": scheduled,
    "an average": averaged,
    "an error": refused,
    "weight norm": lambda net: nn.utils.parametrizations.weight_norm(net[4])(alpha.zeros(1, 64)),
    "spectral norm": lambda net: nn.utils.parametrizations.spectral_norm(net[4])(alpha.zeros(1, 64)),
    "a vector": lambda net: nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(net.parameters()), net.parameters()
    ),
    "autocast": autocast,
    "a checkpoint": lambda net: alpha.checkpoint(net, images()).sum().backward(),
    "a scaler": scaled,
    "a hook": lambda net: (net.register_forward_hook(lambda *_: None), net(images())),
}


@pytest.mark.parametrize("name", USES)
def test_a_network_is_freed_with_its_last_reference(name: str) -> None:
    USES[name](network())  # what is compiled at the first use leaves garbage of its own
    gc.collect()
    net = network()
    USES[name](net)
    held = [weakref.ref(one) for one in (net, *net.parameters(), *net.buffers())]
    before = alpha.engine("cpu").memory.in_use
    del net
    assert not [one() for one in held if one() is not None]
    assert alpha.engine("cpu").memory.in_use < before
