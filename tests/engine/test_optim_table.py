"""Every optimizer beside PyTorch's, option by option, for 12 steps in float64, and what all have in common."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.engine import Engine

pytestmark = pytest.mark.needs("torch")

# Odd shapes: no axes, one element, more axes than a matrix, a row.
SHAPES = [(3,), (5, 7), (), (2, 3, 3, 5), (1, 4)]
DECAY = {"weight_decay": 0.1}

TABLE: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "maximize": True, **DECAY}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True, **DECAY}),
    ("Adam", {"lr": 0.1, "amsgrad": True, **DECAY}),
    ("Adam", {"lr": 0.1, "maximize": True, "foreach": False, "fused": False}),
    ("Adam", {"lr": 0.1, "decoupled_weight_decay": True, "amsgrad": True, "maximize": True, **DECAY}),
    ("AdamW", {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.6)}),
    ("AdamW", {"lr": 0.1, "maximize": True, **DECAY}),
    ("RMSprop", {"maximize": True, **DECAY}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.6, "momentum": 0.5, "centered": True, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.5, "eps": 1e-3, **DECAY}),
    ("Adagrad", {"maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.6, "eps": 1e-3, "maximize": True, **DECAY}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.1, "betas": (0.7, 0.8), "eps": 1e-3, "maximize": True, **DECAY}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.1, "momentum_decay": 0.1, "maximize": True, **DECAY}),
    ("NAdam", {"lr": 0.1, "betas": (0.6, 0.7), "decoupled_weight_decay": True, **DECAY}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.1, "betas": (0.5, 0.6), "eps": 1e-3, "maximize": True, **DECAY}),
    ("RAdam", {"lr": 0.1, "betas": (0.9, 0.95), "decoupled_weight_decay": True, **DECAY}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.05, "alpha": 0.5, "t0": 4, "maximize": True, **DECAY}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-4, 1e-2), "d": 2.0, "maximize": True, **DECAY}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.7), "step_sizes": (0.08, 0.3), "maximize": True}),
]
table = pytest.mark.parametrize(("kind", "options"), TABLE)
KINDS = tuple(dict.fromkeys(kind for kind, _ in TABLE))


@pytest.fixture(autouse=True)
def _float64_in_pytorch() -> Iterator[None]:
    """PyTorch keeps some of its optimizers' numbers in its default dtype."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


class Pair:
    """Our optimizer and PyTorch's on the same parameters, in two groups of different options."""

    def __init__(self, engine: Engine, kind: str, options: dict[str, Any], named: bool = False) -> None:
        import torch

        rng = np.random.default_rng(3)
        start = [rng.standard_normal(shape) for shape in SHAPES]
        self.engine = engine
        self.ours = [engine.from_numpy(a).requires_grad_() for a in start]
        self.theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
        second: dict[str, Any] = {"lr": 0.03} | ({"weight_decay": 0.2} if "weight_decay" in options else {})
        made = []
        for module, params in ((optim, self.ours), (torch.optim, self.theirs)):
            given: list[Any] = [(f"p{i}", p) for i, p in enumerate(params)] if named else list(params)
            groups = [{"params": given[:3]}, {"params": given[3:], **second, "name": "the others"}]
            made.append(getattr(module, kind)(groups, **options))
        self.optimizer, self.reference = made
        self.rng = np.random.default_rng(4)

    def step(self) -> None:
        import torch

        for i, (our, their) in enumerate(zip(self.ours, self.theirs, strict=True)):
            grad = self.rng.standard_normal(our.shape)
            rests = i == 1 and self.optimizer.steps % 3 == 1
            our.grad = None if rests else self.engine.from_numpy(grad)
            their.grad = None if rests else torch.tensor(grad)
        self.optimizer.step()
        self.reference.step()

    def compare(self) -> None:
        for our, their in zip(self.ours, self.theirs, strict=True):
            np.testing.assert_allclose(our.detach().numpy(), their.detach().numpy(), rtol=1e-11, atol=1e-12)


@table
def test_twelve_steps_are_pytorchs(engine: Engine, kind: str, options: dict[str, Any]) -> None:
    pair = Pair(engine, kind, options)
    for _ in range(12):
        pair.step()
        pair.compare()


@table
def test_pytorchs_state_is_taken_in_midway(engine: Engine, kind: str, options: dict[str, Any]) -> None:
    """Its keys are ours; numbers are in tensors there. Our own state does as well, through a pickle."""
    pair = Pair(engine, kind, options)
    for _ in range(4):
        pair.step()
    theirs = pair.reference.state_dict()
    assert set(theirs["state"]) == set(pair.optimizer.state_dict()["state"])
    for number, values in pair.optimizer.state_dict()["state"].items():
        assert set(theirs["state"][number]) <= set(values)
    for group, ours in zip(theirs["param_groups"], pair.optimizer.state_dict()["param_groups"], strict=True):
        assert set(group) == set(ours)
    groups = [{"params": pair.ours[:3]}, {"params": pair.ours[3:], "name": ""}]
    pair.optimizer = getattr(optim, kind)(groups, lr=7.0).load_state_dict(theirs)
    pair.step()
    ours = pickle.loads(pickle.dumps(copy.deepcopy(pair.optimizer.state_dict())))
    pair.optimizer = getattr(optim, kind)(groups, lr=7.0).load_state_dict(ours)
    for _ in range(3):
        pair.step()
        pair.compare()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.5, "history_size": 3, "max_iter": 7},
        {"max_iter": 4, "line_search_fn": "strong_wolfe"},
        {"lr": 0.02, "max_iter": 12, "max_eval": 9, "line_search_fn": "strong_wolfe", "history_size": 2},
        {"lr": 40.0, "max_iter": 3, "line_search_fn": "strong_wolfe", "tolerance_change": 1e-12},
    ],
)
def test_lbfgs_is_pytorchs(engine: Engine, options: dict[str, Any]) -> None:
    """Twelve steps down a curved valley, over a pickle in the middle."""
    import torch

    start = [np.array([[-0.8], [1.1]]), np.array([0.3, -0.6, 0.9])]
    ours = [engine.from_numpy(a).requires_grad_() for a in start]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
    optimizer, reference = optim.LBFGS(ours, **options), torch.optim.LBFGS(theirs, **options)

    def valley(params: list[Any], made: Any) -> Any:
        def closure() -> Any:
            made.zero_grad()
            (x, y), z = params[0].reshape(2), params[1]
            loss = (1 - x) ** 2 + 20 * (y - x * x) ** 2 + ((z - x) ** 4).sum() + (z * z).sum() * 0.1
            loss.backward()
            return loss

        return closure

    for step in range(12):
        first = optimizer.step(valley(ours, optimizer))
        expected = reference.step(valley(theirs, reference))
        # Near the minimum each iteration multiplies roundings: gradients near 0 are subtracted, and divided by.
        tolerance = 1e-10 if step < 3 else 1e-6
        assert first.item() == pytest.approx(expected.item(), rel=tolerance, abs=1e-13)
        for our, their in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(our.detach().numpy(), their.detach().numpy(), rtol=tolerance, atol=tolerance)
        if step == 3:
            state = pickle.loads(pickle.dumps(optimizer.state_dict()))
            optimizer = optim.LBFGS(ours, **options).load_state_dict(state)
        if step == 6:
            optimizer = optim.LBFGS(ours).load_state_dict(reference.state_dict())
    assert optimizer.steps == 5  # PyTorch's state does not count steps


@pytest.mark.parametrize("kind", [*KINDS, "LBFGS"])
def test_defaults_and_arguments_are_pytorchs(engine: Engine, kind: str) -> None:
    import inspect

    import torch

    ours, theirs = getattr(optim, kind), getattr(torch.optim, kind)
    parameters = [
        [(p.name, p.kind) for p in inspect.signature(one.__init__).parameters.values()] for one in (ours, theirs)
    ]
    assert parameters[0] == parameters[1]
    leaf = alpha.zeros(1, engine=engine, requires_grad=True)
    assert ours([leaf]).defaults == theirs([torch.nn.Parameter(torch.zeros(1))]).defaults
