"""What is written through an engine's core is done or not done, wherever an interrupt comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.cpu.engine import CPUEngine
from alpha.cpu.pointwise import FOUND
from alpha.engine import Epilogue, RunningStatistics
from tests.engine.test_toy_optimizer import Lion
from tests.robustness.inject import everywhere

FILES = (
    "alpha/composed/optimizers.py", "alpha/composed/normalisation.py", "alpha/update_rules.py", "alpha/updates.py",
    "alpha/expressions/rules.py", "alpha/changes.py", "alpha/numpy_engine.py", "alpha/cpu/optimizers.py",
    "alpha/cpu/arrays.py", "optim/muon.py",
)  # fmt: skip

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "adam": lambda parameters: optim.Adam(parameters, lr=0.1),
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
    "rmsprop": lambda parameters: optim.RMSprop(parameters, lr=0.1, momentum=0.9, centered=True),
    "muon": lambda parameters: optim.Muon(parameters, lr=0.1, ns_steps=1, rescale=True),
    "lion": lambda parameters: Lion(parameters, lr=0.1),
}


def _found(*tensors: alpha.Tensor) -> list[Any]:
    return [x.detach().tolist() for x in tensors] + [x.version for x in tensors]


def _stepped(name: str, place: str) -> tuple[optim.Optimizer, list[alpha.Tensor]]:
    """An optimizer that has made one step, so that there are states, and its parameters."""
    parameters = [alpha.tensor(values, engine=place, requires_grad=True) for values in ([[1.0, 2.0]], [[3.0], [4.0]])]
    optimizer = OPTIMIZERS[name](parameters)
    for parameter in parameters:
        parameter.grad = alpha.full(parameter.shape, 0.5, engine=place)
    return optimizer.step(), parameters


@pytest.mark.parametrize(("name", "place"), [*((name, "numpy") for name in OPTIMIZERS), ("lion", "cpu")])
def test_steps_of_optimizers(name: str, place: str) -> None:
    """Parameters and states both: the step after tells. Lion is a rule from outside."""

    def state(optimizer: optim.Optimizer, parameters: list[alpha.Tensor]) -> list[Any]:
        found = _found(*parameters)
        optimizer.step()
        return found + _found(*parameters)[: len(parameters)]

    def step() -> None:
        optimizer.step()

    before = state(*_stepped(name, place))
    optimizer, parameters = _stepped(name, place)
    after = state(optimizer.step(), parameters)
    seen = set()
    optimizer, parameters = _stepped(name, place)
    for line in everywhere(step, *FILES):
        found = state(optimizer, parameters)
        assert found in (before, after), line
        seen.add(found == after)
        optimizer, parameters = _stepped(name, place)
    assert seen == {False, True}


@pytest.mark.parametrize("name", ["adam", "lion"])
def test_steps_that_threads_share(name: str) -> None:
    """The CPU's loop goes over these by several threads; a copy of a parameter that is not dense goes back whole."""
    engine = CPUEngine(memory="64MB", threads=2)
    start = np.random.default_rng(1).standard_normal(FOUND + 5).astype(np.float32)
    spread = engine.from_numpy(np.zeros(14, np.float32)).strided(0, (7,), (2,))

    parameters = [x.requires_grad_() for x in (engine.from_numpy(start), spread)]
    optimizer = OPTIMIZERS[name](parameters)
    for parameter in parameters:
        parameter.grad = engine.full(parameter.shape, 0.5, parameter.dtype)
    optimizer.step()
    states = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, alpha.Tensor)]

    def found() -> list[bytes]:
        return [np.array(x.detach()).tobytes() for x in (*parameters, *states)]

    before, steps, seen = found(), 1, set()
    for line in everywhere(optimizer.step, *FILES, "alpha/cpu/workers.py"):
        now, made = found(), optimizer.steps != steps
        assert {x != y for x, y in zip(now, before, strict=True)} == {made}, line
        assert [state.get("step", optimizer.steps) for state in optimizer.state.values()] == [optimizer.steps] * 2, line
        seen.add(made)
        before, steps = now, optimizer.steps
    assert seen == {False, True}


def test_running_statistics() -> None:
    x = alpha.tensor(np.arange(12.0).reshape(4, 3), engine="numpy")
    engine = x.engine

    def prepared() -> tuple[alpha.Tensor, alpha.Tensor]:
        return alpha.zeros(3, engine=engine, dtype=x.dtype), alpha.ones(3, engine=engine, dtype=x.dtype)

    def run() -> None:
        engine.batch_norm(x, RunningStatistics(mean, var), 1e-5, Epilogue(), None)

    mean, var = prepared()
    before = _found(mean, var)
    run()
    after = _found(mean, var)
    seen = set()
    mean, var = prepared()
    for place in everywhere(run, *FILES):
        found = _found(mean, var)
        assert found in (before, after), place
        seen.add(found == after)
        mean, var = prepared()
    assert seen == {False, True}
