"""Fused optimizers on the device: many tensors, chunks, alignment, two dtypes, and the numbers of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.cu32.optimizers import CHUNK, most_tensors
from alpha.cu32.programs import rules
from alpha.engine import Engine
from alpha.update_rules import UpdateRule
from tests.cu32.captures import Captured, capturing

Array = np.ndarray[Any, Any]

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    ("Adam", {"weight_decay": 0.1}),
    ("AdamW", {"lr": 0.05}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("NAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05}),
    ("Adamax", {"lr": 0.05}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
    ("ASGD", {"t0": 2}),
    ("Rprop", {}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.5}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"momentum": 0.5, "centered": True}),
]
kinds = pytest.mark.parametrize(("kind", "options"), KINDS)


def trained(engine: Engine, kind: str, options: dict[str, Any], start: list[Array], steps: int) -> list[Array]:
    """The parameters after some steps with gradients that depend on the step alone."""
    params = [engine.from_numpy(array).requires_grad_() for array in start]
    optimizer = getattr(optim, kind)(params, **options)
    for step in range(steps):
        for i, param in enumerate(params):
            param.grad = engine.from_numpy(np.sin(start[i] * (step + 1) + i).astype(start[i].dtype))
        optimizer.step()
    return [np.array(param.detach().numpy()) for param in params]


def test_the_table_fits_a_kernels_parameters() -> None:
    for rule in rules():
        program, numbers = rule.traced()
        table = (most_tensors(program) * (8 * program.tensors + 12) + 4 + 7) // 8 * 8
        assert table + 8 * len(numbers) + 8 <= 4096
        assert most_tensors(program) >= 64


@kinds
def test_more_tensors_than_one_table_holds(
    cu32: Engine, rng: np.random.Generator, kind: str, options: dict[str, Any]
) -> None:
    from alpha.cpu.engine import CPUEngine

    # 150 small ones are two launches of any optimizer; the others end before, at and after a chunk's end.
    sizes = [*rng.integers(1, 9, 150).tolist(), CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5, 0]
    start = [rng.standard_normal(size) for size in sizes]
    ours = trained(cu32, kind, options, start, 3)
    theirs = trained(CPUEngine(memory="256MB"), kind, options, start, 3)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)  # both are made of the same operations, each rounded by itself


@dataclass
class Many(UpdateRule):
    """More numbers than a kernel's parameters have room for beside a table."""

    weights: tuple[float, ...]

    states = 0

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        p, g = row
        for weight in self.weights:
            p = p * weight + g
        return (p,)


def test_a_rule_without_room_for_a_table(cu32: Engine, rng: np.random.Generator) -> None:
    rule = Many(tuple(rng.uniform(0.5, 0.6, 500).tolist()))
    p, g = rng.standard_normal((2, 7))
    wanted = p
    for weight in rule.weights:
        wanted = wanted * weight + g
    params = cu32.from_numpy(p), cu32.from_numpy(g)
    cu32.optimizer_step([params], rule)
    np.testing.assert_array_equal(params[0].numpy(), wanted)


@kinds
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_alignment_changes_no_bit(
    cu32: Engine, rng: np.random.Generator, kind: str, options: dict[str, Any], dtype: str
) -> None:
    start = rng.standard_normal(CHUNK + 77).astype(dtype)
    grads = [rng.standard_normal(start.shape).astype(dtype) for _ in range(3)]
    results = []
    for offset in (0, 1, 2, 3):
        room = cu32.from_numpy(np.zeros(len(start) + 8, dtype))
        param = room.strided(offset, start.shape, (1,))
        cu32.copy(cu32.from_numpy(start), param)
        param.requires_grad_()
        optimizer = getattr(optim, kind)([param], **options)
        for grad in grads:
            param.grad = cu32.from_numpy(grad)
            optimizer.step()
        results.append(param.detach().numpy().tobytes())
        untouched = np.concatenate([room.numpy()[:offset], room.numpy()[offset + len(start) :]])
        assert not untouched.any()
    assert len(set(results)) == 1


REPLAYED: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("AdamW", {}),
    ("RMSprop", {"momentum": 0.5}),
]


@pytest.mark.parametrize(("kind", "options"), REPLAYED)
@pytest.mark.parametrize("dtypes", [["float32"], ["float64", "float32"]])
def test_a_replay_makes_the_next_step(
    cu32: Engine, rng: np.random.Generator, kind: str, options: dict[str, Any], dtypes: list[str]
) -> None:
    start = [rng.standard_normal(50).astype(dtype) for dtype in dtypes]
    grads = [rng.standard_normal(50).astype(dtype) for dtype in dtypes]

    def made() -> tuple[list[alpha.Tensor], optim.Optimizer]:
        params = [cu32.from_numpy(array).requires_grad_() for array in start]
        for param, grad in zip(params, grads, strict=True):
            param.grad = cu32.from_numpy(grad)
        return params, getattr(optim, kind)(params, lr=0.1, **options)

    def values(params: list[alpha.Tensor]) -> list[bytes]:
        return [param.detach().numpy().tobytes() for param in params]

    wanted, eager = made()
    params, optimizer = made()
    eager.step()
    optimizer.step()  # makes the state
    captured = Captured(cu32)
    with capturing(cu32, captured):
        optimizer.step()
    _restore(cu32, params, optimizer, wanted, eager)  # what it did with zeros for live numbers is undone
    assert len(captured.values) == len(dtypes) and len(captured.kept) >= 3 * len(dtypes)
    for lr in (0.1, 0.05, 0.2):  # the schedule changes lr between steps
        for one in (eager, optimizer):
            one.param_groups[0]["lr"] = lr
        eager.step()
        captured.replay()
        replayed = dict(zip(dtypes, captured.values, strict=True))
        again = Captured(cu32)
        captured.store(cu32)
        again.rooms = captured.rooms
        counts = {param: dict(state) for param, state in optimizer.state.items()}
        with capturing(cu32, again):
            optimizer.step()  # a launch like the captured one; its arguments are not what it reads
        for param, state in counts.items():
            if "step" in state:
                assert optimizer.state[param]["step"] == state["step"] + 1
                optimizer.state[param]["step"] = state["step"]
        assert replayed == dict(zip(dtypes, captured.values, strict=True))
        assert values(params) == values(wanted)
        states = [[s.get("step") for s in one.state.values()] for one in (eager, optimizer)]
        assert states[0] == states[1]


def _restore(
    engine: Engine, params: list[alpha.Tensor], optimizer: Any, wanted: list[alpha.Tensor], eager: Any
) -> None:
    """Gives the parameters and the state, where they lie, the values of another optimizer's."""
    for param, source in zip(params, wanted, strict=True):
        engine.copy(source.detach(), param)
        for key, value in eager.state[source].items():
            if isinstance(value, alpha.Tensor):
                engine.copy(value, optimizer.state[param][key])
            else:
                optimizer.state[param][key] = value
