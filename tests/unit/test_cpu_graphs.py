"""alpha.graph on the CPU engine: replays equal the step to the bit, read nothing that they have not written, and say
what they cannot repeat."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.cpu.engine import CPUEngine
from alpha.cpu.graphs import Recorder
from alpha.errors import ArgumentError, GraphError, IndexingError
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]
Batch = tuple[alpha.Tensor, alpha.Tensor]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers in each test, and the process's own after it."""
    state = alpha.random.get_state()
    alpha.manual_seed(7)
    yield
    alpha.random.set_state(state)


def poison(step: Any) -> None:
    """Fills a graphed step's memory with NaN."""
    for recorder in step._recorders.values():
        assert isinstance(recorder, Recorder)
        spans = [(one.address, one.nbytes) for one in recorder._pool._segments]
        spans += [(arena._segment.address, arena.nbytes) for arena in recorder._pool._arenas]
        for address, nbytes in spans:
            ctypes.memset(address, 0xFF, nbytes)


class Job:
    """A network, its optimizer, and a training step."""

    def __init__(self, net: nn.Module, optimizer: Any, shape: tuple[int, ...], classes: int = 5) -> None:
        self.net, self.shape, self.classes = net.train(), shape, classes
        self.optimizer = optimizer(net.parameters())
        self.schedule = optim.ExponentialLR(self.optimizer, 0.97)

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        optim.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss

    def state(self) -> list[Any]:
        """All that a step changes, as host values."""
        entries = [self.optimizer.state.get(p, {}) for p in self.net.parameters()]
        moments = [np.array(value) for entry in entries for value in entry.values()]
        return [
            *[np.array(value) for value in self.net.state_dict().values()], *moments, self.optimizer.steps,
            self.schedule.get_last_lr(), alpha.random.get_state(),
        ]  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 5))


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(54, 16), nn.ReLU(), nn.Linear(16, 5),
    )  # fmt: skip


class Residual(nn.Module):
    """Batch norms, small and large ones, with shortcuts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.other = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=None)
        self.head = nn.Linear(8, 5)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        h = F.relu(self.norm(self.first(x)))
        h = self.other(self.second(h), h, "relu")
        out: alpha.Tensor = self.head(h.mean((1, 2)))
        return out


class Block(nn.Module):
    """A block of a language model's kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mix, self.head = (
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Dropout(0.1)),
            nn.Linear(16, 5),
        )

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        h = self.embed(x)
        q, k, v = (
            part.reshape(*part.shape[:2], 2, 8).permute(0, 2, 1, 3) for part in self.qkv(self.norm(h)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(seen.permute(0, 2, 1, 3).reshape(*x.shape, 16))
        out: alpha.Tensor = self.head((h + self.mix(h)).mean(1))
        return out


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (12,)),
    "lenet": (lenet, (16, 16, 1)),
    "small norms": (Residual, (6, 5, 3)),
    "large norms": (Residual, (60, 50, 3)),
    "block": (Block, (7,)),
}
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.05),
    "momentum": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda params: optim.Adam(params, lr=0.01),
    "adamw": lambda params: optim.AdamW(params, lr=0.01),
}


def job(name: str, optimizer: str = "adam") -> Job:
    make, shape = NETS[name]
    alpha.manual_seed(3)
    return Job(make(), OPTIMIZERS[optimizer], shape)


def batches(shape: tuple[int, ...], count: int, size: int = 8, classes: int = 5) -> list[Batch]:
    rng, found = np.random.default_rng(2), []
    for _ in range(count):
        x = rng.integers(0, 11, (size, 7)) if shape == (7,) else rng.normal(size=(size, *shape)).astype(np.float32)
        found.append((alpha.tensor(x), alpha.tensor(rng.integers(0, classes, size))))
    return found


def play(name: str, optimizer: str, graphed: bool, count: int, poisoned: bool = False) -> tuple[list[Any], Any]:
    """Losses and state of a job's steps, and the step."""
    one = job(name, optimizer)
    step = alpha.graph(one.step) if graphed else one.step
    losses = []
    for x, y in batches(one.shape, count):
        if poisoned:
            poison(step)
        losses.append(step(x, y).item())
    return [losses, *one.state()], step


def assert_same(left: list[Any], right: list[Any]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_equal(other, one)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETS)
def test_replays_equal_the_step_to_the_bit(name: str, optimizer: str) -> None:
    if optimizer not in ("adam", "momentum") and name != "mlp":
        pytest.skip("one network is enough for all optimizers")
    count = 50 if name == "mlp" else 12
    expected, _ = play(name, optimizer, False, count)
    found, step = play(name, optimizer, True, count)
    assert_same(expected, found)
    assert step.captures == 1


@pytest.mark.parametrize("name", NETS)
def test_a_replay_reads_nothing_that_it_has_not_written(name: str) -> None:
    expected, _ = play(name, "adam", False, 8)
    found, _ = play(name, "adam", True, 8, poisoned=True)
    assert_same(expected, found)


def test_replays_run_no_python_of_the_step() -> None:
    calls, one = [], job("mlp")

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        calls.append(1)
        return one.step(x, y)

    graphed = alpha.graph(step)
    for x, y in batches(one.shape, 6):
        graphed(x, y)
    assert len(calls) == 3  # two calls to warm up, one capture
    assert graphed.captures == 1


def test_two_shapes_in_turn_and_other_threads() -> None:
    engine = alpha.engine("cpu")
    before = engine.threads

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        one, losses = job("large norms"), []
        step = wrap(one.step)
        data = zip(batches(one.shape, 9), batches(one.shape, 9, size=3), strict=True)
        for number, pair in enumerate(data):
            engine.configure(threads=1 + number // 3 % 2)
            losses += [step(x, y).item() for x, y in pair]
        return [losses, *one.state()]

    try:
        assert_same(run(lambda step: step), run(alpha.graph))
    finally:
        engine.configure(threads=before)


def test_what_changes_between_replays_counts() -> None:
    """The learning rate, a loaded state, weights written from outside, gradients dropped, evaluation in between."""

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        one = job("small norms")
        step, net = wrap(one.step), one.net
        losses: list[float] = []
        assert isinstance(net, Residual)

        def go(count: int) -> None:
            losses.extend(step(x, y).item() for x, y in batches(one.shape, count))

        go(4)
        one.optimizer.param_groups[0]["lr"] = 0.3
        go(1)
        saved = one.optimizer.state_dict()
        go(2)
        one.optimizer.load_state_dict(saved)
        go(3)
        with alpha.no_grad():
            net.head.weight.mul_(0.5)
            net.first.weight.copy_(net.first.weight * 2)
        go(2)
        for param in one.net.parameters():
            param.grad = None
        go(2)
        one.net.eval()
        losses.append(one.net(batches(one.shape, 1)[0][0]).sum().item())
        one.net.train()
        go(2)
        return [losses, *one.state()]

    assert_same(run(lambda step: step), run(alpha.graph))


def test_gradients_added_up_over_calls() -> None:
    """The update is outside the step: gradients are there after a replay, and add to those of the one before."""

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        one = job("lenet")

        def part(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = F.cross_entropy(one.net(x), y)
            loss.backward()
            return loss

        step, seen = wrap(part), []
        for x, y in batches(one.shape, 6):
            one.optimizer.zero_grad()
            step(x, y)
            step(x, y)
            seen += [np.array(p.grad) for p in one.net.parameters()]
            one.optimizer.step()
        return seen

    assert_same(run(lambda step: step), run(alpha.graph))


def test_labels_to_ignore_come_and_go() -> None:
    """A loss without any takes another way: each has a capture of its own."""

    def run(wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        one = job("mlp")
        step, losses = wrap(one.step), []
        for number, (x, y) in enumerate(batches(one.shape, 16)):
            labels = y.numpy().copy()
            if number // 4 % 2:
                labels[0] = -100
            losses.append(step(x, alpha.tensor(labels)).item())
        return [losses, *one.state()], step

    expected, _ = run(lambda step: step)
    found, step = run(alpha.graph)
    assert_same(expected, found)
    assert step.captures == 2


@pytest.mark.parametrize("name", ["mlp", "small norms", "large norms"])
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_label_out_of_range_leaves_all_as_it_was(name: str, at: int) -> None:
    one = job(name)
    step = alpha.graph(one.step)
    for number, (x, y) in enumerate(batches(one.shape, 7)):
        if number == at:
            before = one.state()
            labels = y.numpy().copy()
            labels[3] = 99
            with pytest.raises(ArgumentError, match=r"^\[cross_entropy\] expected labels in 0..4 .* got 99 at row 3"):
                step(x, alpha.tensor(labels))
            if step.captures:
                assert_same(before, one.state())
        step(x, y)


def test_values_that_lead_elsewhere_are_the_steps() -> None:
    """Batch norm saves its argument where the result does not tell it well enough: found out in each replay."""

    def run(wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        one = job("large norms")
        step, losses = wrap(one.step), []
        assert isinstance(one.net, Residual) and one.net.norm.bias is not None
        for number, (x, y) in enumerate(batches(one.shape, 9)):
            if number in (4, 7):
                with alpha.no_grad():
                    one.net.norm.bias.add_(1000.0 if number == 4 else -1000.0)
            losses.append(step(x, y).item())
        return [losses, *one.state()], step

    expected, _ = run(lambda step: step)
    found, step = run(alpha.graph)
    assert_same(expected, found)
    assert step.captures == 2


def test_an_error_of_the_step_itself_comes_where_it_would() -> None:
    class Broken(RuntimeError):
        """What a schedule raises."""

    def rate(step: int) -> float:
        if step == 6:
            raise Broken
        return 0.9**step

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        one = job("mlp", "momentum")
        one.schedule = optim.LambdaLR(one.optimizer, rate)  # type: ignore[assignment]
        step, losses = wrap(one.step), []
        for x, y in batches(one.shape, 9):
            try:
                losses.append(step(x, y).item())
            except Broken:
                losses.append("broken")
        return [losses, *one.state()]

    assert_same(run(lambda step: step), run(alpha.graph))


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "item": (lambda x: x.sum().item(), "a value read by the host: return the tensor"),
    "if": (lambda x: x if x.sum() > 0 else -x, "a value read by the host"),
    "numpy": (lambda x: x.numpy() and None, "a value read by the host"),
    "own function": (lambda x: alpha.tensor(np.sin(x.numpy())), "a value read by the host"),
    "mask": (lambda x: x[x > 0].sum(), "gather, which NumPy computes"),
    "upload": (lambda x: x + np.ones(3, np.float32), "data from the host: make the tensor outside the step"),
    "tensor": (lambda x: x + alpha.tensor([1.0]), "data from the host"),
    "wait": (lambda x: x.engine.synchronize(), "a wait for the device: synchronise outside"),
    "as many as there are": (alpha.nonzero, "a value read by the host"),
    "generator": (lambda x: x + alpha.rand(3, generator=alpha.Generator()), "random numbers of a generator"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_repeated_is_said(name: str) -> None:
    call, message = REFUSED[name]
    step, x = alpha.graph(call, warmup=1), alpha.ones(3)
    with pytest.raises(GraphError, match=rf"^\[graph\] expected a step that stays on cpu, got {message}"):
        for _ in range(2):
            step(x)
    assert type(x.engine) is CPUEngine and x.engine.capture is None
    assert alpha.graph(lambda x: x * 2)(x).tolist() == [2, 2, 2]


def test_indices_that_are_computed_in_the_step() -> None:
    table = alpha.tensor(np.arange(20, dtype=np.float32).reshape(10, 2))

    def step(x: alpha.Tensor) -> alpha.Tensor:
        return F.embedding(x + 1, table) + table[alpha.arange(3)]

    graphed = alpha.graph(step)
    for start in range(6):
        x = alpha.tensor(np.arange(start, start + 3))
        np.testing.assert_array_equal(graphed(x).numpy(), step(x).numpy())
    with pytest.raises(IndexingError, match="got 10"):
        graphed(alpha.tensor(np.array([1, 9, 3])))
    np.testing.assert_array_equal(graphed(x).numpy(), step(x).numpy())


def test_random_numbers_and_their_state() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        alpha.manual_seed(5)
        step = wrap(lambda x: F.dropout(x, 0.3, training=True) + alpha.rand(3, 4) + alpha.randn(3, 4))
        found = [np.array(step(alpha.ones(3, 4))) for _ in range(6)]
        return [*found, alpha.random.get_state()]

    assert_same(run(lambda step: step), run(alpha.graph))


def test_other_threads_find_the_engine_as_ever() -> None:
    found: list[Any] = []
    x = alpha.ones(3)

    def other() -> None:
        found.append((alpha.tensor([1.0, 2.0]) + 1).tolist())
        found.append(alpha.sort(x)[0].numpy().tolist())

    def step(value: alpha.Tensor) -> alpha.Tensor:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return value * 2

    graphed = alpha.graph(step)
    assert [graphed(x).tolist() for _ in range(4)] == [[2, 2, 2]] * 4
    assert found == [[2, 3], [1, 1, 1]] * 3


def test_memory_is_counted_and_comes_back() -> None:
    engine = CPUEngine(memory="64MB")
    gc.collect()
    before = engine.memory.in_use

    def run() -> None:
        weight = engine.from_numpy(np.ones((256, 256), np.float32)).requires_grad_()
        optimizer = optim.SGD([weight], lr=0.1)

        def step(x: alpha.Tensor) -> alpha.Tensor:
            optimizer.zero_grad()
            loss: alpha.Tensor = alpha.tanh(x @ weight).sum()
            loss.backward()
            optimizer.step()
            return loss

        graphed, x = alpha.graph(step), engine.from_numpy(np.ones((64, 256), np.float32))
        for _ in range(4):
            graphed(x)
        assert graphed.captures == 1 and engine.memory.in_use > before
        held = engine.memory.held
        for _ in range(4):
            graphed(x)
        assert engine.memory.held == held

    run()
    gc.collect()
    assert engine.memory.in_use == before


def test_a_step_within_another_is_a_part_of_it() -> None:
    inner = alpha.graph(lambda x: x * 2)
    outer = alpha.graph(lambda x: inner(x) + 1)
    assert [outer(alpha.ones(3)).tolist() for _ in range(5)] == [[3, 3, 3]] * 5
    assert outer.captures == 1


def test_inference_follows_weights_that_change() -> None:
    net = Residual().eval()
    step = alpha.graph(net)
    x = batches((6, 5, 3), 1)[0][0]
    with alpha.inference_mode():
        for number in range(6):
            np.testing.assert_array_equal(step(x).numpy(), net(x).numpy())
            if number == 3:
                net.first.weight.mul_(2.0)


def test_another_autocast_is_another_step() -> None:
    x, w = alpha.ones(4, 8), alpha.ones(8, 3)
    step = alpha.graph(lambda x: x @ w)
    for _ in range(4):
        assert step(x).dtype == alpha.get_default_dtype()
    assert step.captures == 1
    with alpha.autocast("bfloat16"):
        assert step(x).dtype == alpha.bfloat16
    assert step(x).dtype == alpha.get_default_dtype()
    assert step.captures == 1
