"""Checks of the whole: networks that learn what they learn on the reference engine, gradients, moves, pickles."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np

from alpha import engines, random
from alpha.conversion import tensor
from alpha.dtypes import float32
from alpha.engine import Engine
from alpha.engine_suite.checks import Array, Checks, expect_equal, numbers
from alpha.tensor import Tensor
from alpha.testing import assert_close, gradcheck

CHECKS = Checks()
STEPS = 3


def _trained(engine: Engine, network: str, optimizer: str) -> list[Array]:
    """Losses and parameters of a small network after some steps; the same draws on every engine."""
    from alpha import nn, optim  # here: whoever only imports the suite need not load them

    random.manual_seed(0)
    make: dict[str, Callable[[], nn.Module]] = {
        "dense": lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4)),
        "convolutional": lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        ),
    }  # fmt: skip
    steps: dict[str, Callable[..., optim.Optimizer]] = {
        "adam": lambda parameters: optim.Adam(parameters, lr=0.01),
        "sgd": lambda parameters: optim.SGD(parameters, lr=0.05, momentum=0.9),
        "rmsprop": lambda parameters: optim.RMSprop(parameters, lr=0.005),
    }
    net = make[network]().to(engine, float32).train()
    step = steps[optimizer](net.parameters())
    x = tensor(numbers(6, 12) if network == "dense" else numbers(6, 8, 8, 3), engine=engine)
    labels = tensor(np.array([0, 1, 2, 3, 0, 1]), engine=engine)
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(net(x), labels)
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
    return [np.array(losses), *(engine.to_numpy(parameter.detach()) for parameter in net.parameters())]


@CHECKS.over(("dense", "adam"), ("dense", "sgd"), ("convolutional", "sgd"), ("convolutional", "rmsprop"))
def networks_learn(engine: Engine, network: str, optimizer: str) -> None:
    wanted = _trained(engines.engine("numpy"), network, optimizer)
    for mine, theirs in zip(_trained(engine, network, optimizer), wanted, strict=True):
        assert_close(mine, theirs, rtol=1e-3, atol=1e-4)  # rounding, carried through the steps


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "arithmetic": lambda x: (x * x + 2).sqrt() / (x.exp() + 1),
    "reductions": lambda x: x.std(0) + x.max(1)[0].sum() * x.mean(),
    "indexing": lambda x: x[1:, [0, 2, 2]] * x.sort(1)[0][:2, :3],
    "products": lambda x: (x @ x.T).cumsum(0),
    "softmax": lambda x: x.softmax(1),
}


@CHECKS.over(*FUNCTIONS)
def gradients(engine: Engine, name: str) -> None:
    gradcheck(FUNCTIONS[name], engine.from_numpy(numbers(3, 4, dtype=np.float64)))


@CHECKS.once
def tensors_move(engine: Engine) -> None:
    x = tensor(numbers(3, 4), engine="numpy", requires_grad=True)
    y = x.to(engine)
    expect_equal("the engine after .to", y.engine.name, engine.name)
    (y * 2).sum().backward()
    assert_close(x.grad, np.full((3, 4), 2, np.float32))


@CHECKS.once
def tensors_are_pickled(engine: Engine) -> None:
    """By the engine's name: it has to be registered."""
    x = tensor(numbers(3, 4), engine=engine)
    again = pickle.loads(pickle.dumps(x))
    expect_equal("the same engine", again.engine is engine, True)
    assert_close(again, x)
