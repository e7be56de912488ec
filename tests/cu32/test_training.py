"""Whole training steps on cu32: the CPU engine's losses, two runs alike to the bit, no waits, the graph's replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.cu32.base import DeviceEngine
from alpha.engine import Engine
from alpha.errors import EngineError

Array = np.ndarray[Any, Any]
Step = Callable[[alpha.Tensor, alpha.Tensor], alpha.Tensor]
STEPS = 5


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Random numbers of each test's own."""
    state = alpha.random.get_state()
    yield
    alpha.random.set_state(state)


class Training:
    """A ResNet18 of reduced width with an optimizer and a schedule, and the same few batches, on an engine."""

    def __init__(
        self, engine: Engine, dtype: str = "float32", optimizer: Callable[..., optim.Optimizer] = optim.Adam
    ) -> None:
        alpha.manual_seed(3)
        self.net = nn.models.resnet18(10, base_width=4).to(engine).to(dtype).train()
        self.optimizer = optimizer(self.net.parameters(), lr=1e-3)
        self.schedule = optim.CosineAnnealingLR(self.optimizer, 2 * STEPS)
        rng = np.random.default_rng(4)
        images = rng.uniform(-1, 1, (STEPS, 6, 16, 16, 3)).astype(dtype)
        labels = rng.integers(0, 10, (STEPS, 6))
        self.batches = [(engine.from_numpy(x), engine.from_numpy(y)) for x, y in zip(images, labels, strict=True)]

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def run(self, step: Step | None = None) -> list[float]:
        """The losses of all steps, read at the end."""
        alpha.manual_seed(5)
        losses = [(step or self.step)(x, y) for x, y in self.batches]
        return [float(loss.item()) for loss in losses]

    def state(self) -> dict[str, Array]:
        return {name: tensor.numpy().copy() for name, tensor in self.net.state_dict().items()}


def test_losses_are_the_cpu_engines(cu32: DeviceEngine) -> None:
    """In float64, where five steps of Adam (which divides gradients by their size) leave rounding small."""
    losses = [Training(engine, "float64").run() for engine in (alpha.engine("cpu"), cu32)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-8)


def test_float32_losses_are_the_cpu_engines(cu32: DeviceEngine) -> None:
    """Sums run in another order, and each step makes the difference a few times larger: 5e-6 is the bound on one."""
    losses = [Training(engine, optimizer=optim.SGD).run() for engine in (alpha.engine("cpu"), cu32)]
    assert losses[1][0] == pytest.approx(losses[0][0], rel=5e-6)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_two_runs_are_identical_to_the_bit(cu32: DeviceEngine) -> None:
    first, second = Training(cu32), Training(cu32)
    assert first.run() == second.run()
    state = second.state()
    for name, value in first.state().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)


def test_a_graphed_step_is_the_step_to_the_bit(cu32: DeviceEngine) -> None:
    plain, graphed = Training(cu32), Training(cu32)
    step = alpha.graph(graphed.step)
    assert graphed.run(step) == plain.run()
    assert step.captures == 1
    assert graphed.schedule.get_last_lr() == plain.schedule.get_last_lr()
    state = plain.state()
    for name, value in graphed.state().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)
    graphed.net.eval()
    plain.net.eval()
    x = plain.batches[0][0]
    np.testing.assert_array_equal(graphed.net(x).detach().numpy(), plain.net(x).detach().numpy())


def test_a_steady_step_takes_no_memory_and_does_not_wait(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(cu32)
    for x, y in training.batches[:3]:
        training.step(x, y)
    held = cu32.memory.held

    def refuse(*_: object) -> Any:
        raise AssertionError("a step took memory, or waited for the device")

    for method in ("allocate", "release", "synchronize", "download"):
        monkeypatch.setattr(type(cu32.device), method, refuse)
    for x, y in training.batches[3:]:
        training.step(x, y)
    assert cu32.memory.held == held


def test_state_moves_between_engines(cu32: DeviceEngine, tmp_path: Any) -> None:
    """A run goes on on the other engine, through a checkpoint and through state_dicts."""
    from alpha.serialization import load_checkpoint, save_checkpoint

    first = Training(cu32)
    first.run()
    save_checkpoint(tmp_path / "checkpoint", model=first.net, optimizer=first.optimizer, scheduler=first.schedule)
    second = Training(alpha.engine("cpu"))
    load_checkpoint(tmp_path / "checkpoint", model=second.net, optimizer=second.optimizer, scheduler=second.schedule)
    for name, value in first.state().items():
        np.testing.assert_array_equal(second.state()[name], value, err_msg=name)
    third = Training(cu32)
    third.net.load_state_dict(second.net.state_dict())
    third.optimizer.load_state_dict(second.optimizer.state_dict())
    third.schedule.load_state_dict(second.schedule.state_dict())
    assert third.run() == first.run()


def test_moving_a_network_keeps_its_values_and_its_optimizer(cu32: DeviceEngine) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LeakyReLU())
    before = {name: tensor.numpy().copy() for name, tensor in net.state_dict().items()}
    parameters = list(net.parameters())
    assert net.cuda() is net and all(tensor.engine is cu32 for tensor in (*net.parameters(), *net.buffers()))
    optimizer = optim.SGD(net.parameters(), lr=0.0, momentum=0.9)
    net(cu32.from_numpy(np.ones((2, 3), np.float32))).sum().backward()
    optimizer.step()
    assert all(old is new for old, new in zip(parameters, net.parameters(), strict=True))
    net.cpu()
    for name, tensor in net.state_dict().items():
        if "running" not in name and "tracked" not in name:
            np.testing.assert_array_equal(tensor.numpy(), before[name], err_msg=name)


def test_gradients_flow_between_engines(cu32: DeviceEngine) -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True, engine="cpu")
    y = (x * 3).to("cu32")
    assert y.engine is cu32
    z = (y * y).cpu() + x
    z.sum().backward()
    assert x.grad is not None and x.grad.engine is x.engine
    assert x.grad.tolist() == [19.0, 37.0]
    assert y.cuda() is y and x.cpu() is x


def test_tensors_of_two_engines_do_not_mix(cu32: DeviceEngine) -> None:
    here, there = alpha.ones(2, 2, engine="cpu"), alpha.ones(2, 2, engine=cu32)
    label = alpha.tensor([0, 1], engine="cpu")
    calls: list[Callable[[], Any]] = [
        lambda: here + there,
        lambda: there @ here,
        lambda: nn.functional.cross_entropy(there, label),
        lambda: there[label],
        lambda: nn.Linear(2, 2)(there),
        lambda: alpha.where(here > 0, there, there),
        lambda: alpha.concat([here, there]),
    ]
    for call in calls:
        with pytest.raises(EngineError, match=r"expected tensors of one engine, got (cpu and cu32:0|cu32:0 and cpu): "):
            call()
