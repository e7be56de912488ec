"""alpha.graph on cu32: replays equal the step to the bit; what cannot be captured is said; memory stays apart."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.cu32.base import Constants, DeviceEngine
from alpha.errors import ArgumentError, EngineError, GraphError, IndexingError

Array = np.ndarray[Any, Any]
Batch = tuple[alpha.Tensor, alpha.Tensor]


class Net:
    """A small classifier with dropout, Adam and a schedule, always begun from the same numbers."""

    def __init__(self, engine: DeviceEngine, optimizer: Callable[..., optim.Optimizer] = optim.Adam) -> None:
        rng = np.random.default_rng(1)
        self.first = engine.from_numpy(rng.normal(0, 0.4, (6, 16)).astype(np.float32)).requires_grad_()
        self.second = engine.from_numpy(rng.normal(0, 0.4, (16, 4)).astype(np.float32)).requires_grad_()
        self.optimizer = optimizer([self.first, self.second], lr=0.02)
        self.schedule = optim.ExponentialLR(self.optimizer, 0.9)

    def loss(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        hidden = alpha.dropout(alpha.tanh(x @ self.first), 0.25)
        return nn.functional.cross_entropy(hidden @ self.second, y)

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def state(self) -> dict[str, Any]:
        """All that a step changes, as host values."""
        entries = [self.optimizer.state.get(p, {}) for p in (self.first, self.second)]
        return {
            "parameters": [p.detach().numpy() for p in (self.first, self.second)],
            "gradients": [p.grad.numpy() for p in (self.first, self.second) if p.grad is not None],
            "moments": [value.numpy() for entry in entries for value in entry.values() if hasattr(value, "numpy")],
            "counts": [value for entry in entries for value in entry.values() if not hasattr(value, "numpy")],
            "rates": self.schedule.get_last_lr(),
            "random": alpha.random.get_state(),
        }


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers in each test, and the process's own after it."""
    state = alpha.random.get_state()
    alpha.manual_seed(7)
    yield
    alpha.random.set_state(state)


def batches(engine: DeviceEngine, count: int, size: int = 8) -> list[Batch]:
    rng = np.random.default_rng(2)
    arrays = [(rng.normal(size=(size, 6)).astype(np.float32), rng.integers(0, 4, size)) for _ in range(count)]
    return [(engine.from_numpy(x), engine.from_numpy(y)) for x, y in arrays]


def run(net: Net, step: Callable[..., alpha.Tensor], data: list[Batch]) -> list[float]:
    alpha.manual_seed(11)
    return [float(step(x, y).item()) for x, y in data]


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    for key, value in left.items():
        np.testing.assert_equal(right[key], value, err_msg=key)


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "sgd": optim.SGD,
    "momentum": lambda params, lr: optim.SGD(params, lr, momentum=0.9, nesterov=True),
    "rmsprop": lambda params, lr: optim.RMSprop(params, lr, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("warmup", [1, 3])
def test_replays_equal_the_step_to_the_bit(cu32: DeviceEngine, name: str, warmup: int) -> None:
    data = batches(cu32, 7)
    plain, graphed = Net(cu32, OPTIMIZERS[name]), Net(cu32, OPTIMIZERS[name])
    expected = run(plain, plain.step, data)
    want = plain.state()
    step = alpha.graph(graphed.step, warmup)
    assert run(graphed, step, data) == expected
    assert step.captures == 1
    assert_same(want, graphed.state())


def test_replays_run_no_python_of_the_step(cu32: DeviceEngine) -> None:
    calls = []
    net = Net(cu32)

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        calls.append(1)
        return net.step(x, y)

    run(net, alpha.graph(step), batches(cu32, 6))
    assert len(calls) == 3  # two calls to warm up, one capture


def test_each_shape_has_its_own_capture(cu32: DeviceEngine) -> None:
    data = [batch for pair in zip(batches(cu32, 5), batches(cu32, 5, size=3), strict=True) for batch in pair]
    plain, graphed = Net(cu32), Net(cu32)
    expected = run(plain, plain.step, data)
    want = plain.state()
    step = alpha.graph(graphed.step)
    assert run(graphed, step, data) == expected
    assert step.captures == 2
    assert_same(want, graphed.state())


def test_what_changes_between_replays_counts(cu32: DeviceEngine) -> None:
    """The learning rate, a loaded state, weights written from outside."""

    def play(net: Net, step: Callable[..., alpha.Tensor]) -> list[float]:
        losses = run(net, step, batches(cu32, 4))
        net.optimizer.param_groups[0]["lr"] = 0.3
        losses += run(net, step, batches(cu32, 1))
        saved = net.optimizer.state_dict()
        losses += run(net, step, batches(cu32, 2))
        net.optimizer.load_state_dict(saved)
        losses += run(net, step, batches(cu32, 2))
        with alpha.no_grad():
            net.first.mul_(0.5)
        return losses + run(net, step, batches(cu32, 2))

    plain, graphed = Net(cu32), Net(cu32)
    expected = play(plain, plain.step)
    want = plain.state()
    step = alpha.graph(graphed.step)
    assert play(graphed, step) == expected
    assert step.captures == 2  # the loaded state lies elsewhere
    assert_same(want, graphed.state())


def test_gradients_added_up_over_calls(cu32: DeviceEngine) -> None:
    """The update is outside the step: gradients must be there after a replay, and add to those of the one before."""

    def play(net: Net, make: Callable[[Any], Any]) -> list[Array]:
        def part(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = net.loss(x, y)
            loss.backward()
            return loss

        alpha.manual_seed(3)
        step, seen = make(part), []
        for x, y in batches(cu32, 6):
            net.optimizer.zero_grad()
            step(x, y)
            step(x, y)
            assert net.first.grad is not None
            seen.append(net.first.grad.numpy())
            net.optimizer.step()
        return seen

    expected = play(Net(cu32), lambda part: part)
    np.testing.assert_equal(play(Net(cu32), alpha.graph), expected)


def test_results_are_copies_outside_the_graph(cu32: DeviceEngine) -> None:
    weight = cu32.from_numpy(np.ones(3, np.float32)).requires_grad_()

    def step(x: alpha.Tensor) -> dict[str, Any]:
        y = x * weight
        y.sum().backward()
        return {"y": y, "list": [y * 2, None], "pair": (y + 1,)}

    graphed = alpha.graph(step)
    results = [graphed(cu32.from_numpy(np.full(3, number, np.float32))) for number in range(6)]
    for number, result in enumerate(results):
        assert result["y"].tolist() == [number] * 3 and not result["y"].requires_grad
        assert result["list"][0].tolist() == [2 * number] * 3 and result["list"][1] is None
        assert result["pair"][0].tolist() == [number + 1] * 3


def test_a_capture_needs_no_tensors_of_the_callers(cu32: DeviceEngine) -> None:
    """The step's inputs and the weights' old memory may go: the graph holds what it uses."""
    net = Net(cu32)
    step = alpha.graph(net.step)
    for x, y in batches(cu32, 4):
        step(x, y)
    del x, y
    filler = [cu32.from_numpy(np.full(1000, 9, np.float32)) for _ in range(50)]
    last = batches(cu32, 5)[-1]
    state = alpha.random.get_state()
    reference = Net(cu32)
    alpha.manual_seed(7)
    expected = [reference.step(x, y).item() for x, y in [*batches(cu32, 4), last]][-1]
    alpha.random.set_state(state)
    assert step(*last).item() == expected
    assert all((tensor.numpy() == 9).all() for tensor in filler)


def test_memory_of_captures_is_counted_apart_and_comes_back(cu32: DeviceEngine) -> None:
    gc.collect()
    cu32.synchronize()
    before = cu32.memory.in_use
    data = batches(cu32, 4)
    net = Net(cu32)
    step = alpha.graph(net.step)
    run(net, step, data)
    assert cu32.memory.in_use > before
    del net, step, data
    gc.collect()
    assert cu32.memory.in_use == before


def test_steady_replays_take_no_memory(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = Net(cu32), batches(cu32, 4)
    step = alpha.graph(net.step)
    run(net, step, data)
    held = cu32.memory.held

    def refuse(*_: object) -> Any:
        raise AssertionError("a replay took memory or waited")

    monkeypatch.setattr(type(cu32.device), "allocate", refuse)
    monkeypatch.setattr(type(cu32.device), "synchronize", refuse)
    monkeypatch.setattr(type(cu32.device), "download", refuse)
    for x, y in data:
        step(x, y)
    assert cu32.memory.held == held


def cannot(net: Net) -> dict[str, tuple[Callable[..., Any], str]]:
    """Steps that no graph can hold, and what is said of them."""
    other = np.ones(4, np.float32)
    return {
        "item": (lambda x, y: net.step(x, y).item(), "a value read by the host: return the tensor"),
        "if": (lambda x, y: x if net.step(x, y) > 0 else y, "a value read by the host"),
        "numpy": (lambda x, y: net.first.detach().numpy() and None, "a value read by the host"),
        "mask": (lambda x, y: x[x > 0].sum(), "a value read by the host"),
        "upload": (lambda x, y: net.step(x, y) + other, "data from the host: make the tensor outside the step"),
        "wait": (lambda x, y: net.first.engine.synchronize(), "a wait for the device: synchronise outside"),
        "move": (lambda x, y: net.step(x, y).cpu(), "a value read by the host"),
    }


@pytest.mark.parametrize("name", ["item", "if", "numpy", "mask", "upload", "wait", "move"])
def test_what_cannot_be_captured_is_said_before_the_capture(cu32: DeviceEngine, name: str) -> None:
    net = Net(cu32)
    x, y = batches(cu32, 1)[0]
    bad, message = cannot(net)[name]
    step = alpha.graph(bad, warmup=1)
    with pytest.raises(GraphError, match=rf"^\[graph\] expected a step that stays on cu32:0, got {message}"):
        step(x, y)
    assert cu32.capture is None and cu32.pool is cu32.memory
    good = alpha.graph(net.step)  # the engine is as it was
    assert len({good(x, y).item() for _ in range(4)}) == 4


def test_a_capture_that_fails_leaves_engine_pool_and_random_numbers(cu32: DeviceEngine) -> None:
    net, data = Net(cu32), batches(cu32, 6)
    calls = []

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        calls.append(1)
        loss = net.loss(x, y)
        if len(calls) == 3:
            raise ValueError("not now")
        net.optimizer.zero_grad()
        loss.backward()
        net.optimizer.step()
        return loss

    graphed = alpha.graph(step)
    losses = [graphed(*data[0]).item(), graphed(*data[1]).item()]
    state = alpha.random.get_state()
    assert net.first.grad is not None
    gradient = net.first.grad.numpy()
    with pytest.raises(ValueError, match="not now"):
        graphed(*data[2])
    assert cu32.capture is None and cu32.pool is cu32.memory
    assert alpha.random.get_state() == state
    np.testing.assert_array_equal(net.first.grad.numpy(), gradient)
    losses += [graphed(*batch).item() for batch in data[2:]]
    plain = Net(cu32)
    plain.schedule.gamma = 1.0
    alpha.manual_seed(7)
    assert losses == [plain.step(*batch).item() for batch in data]


def test_checks_within_a_graph_are_raised_at_the_next_wait(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    step = alpha.graph(lambda index: x[index])
    good, bad = (cu32.from_numpy(np.array(values)) for values in ([0, -1], [1, 7]))
    for _ in range(4):
        np.testing.assert_array_equal(step(good).numpy(), [[0, 1, 2], [9, 10, 11]])
    result = step(bad)
    with pytest.raises(IndexingError, match=r"^\[getitem\] expected indices within axis 0 of shape \(4, 3\), got 7$"):
        result.numpy()
    np.testing.assert_array_equal(step(good).numpy(), [[0, 1, 2], [9, 10, 11]])


def test_other_threads_stay_out_of_a_capture(cu32: DeviceEngine) -> None:
    errors: list[BaseException] = []
    x = cu32.from_numpy(np.ones(3, np.float32))

    def other() -> None:
        for call in (lambda: cu32.from_numpy(np.ones(2)), lambda: x + 1, x.numpy):
            try:
                call()
            except GraphError as error:
                errors.append(error)

    def step(value: alpha.Tensor) -> alpha.Tensor:
        if cu32.capture is not None:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return value * 2

    graphed = alpha.graph(step)
    assert [graphed(x).tolist() for _ in range(4)] == [[2, 2, 2]] * 4
    assert len(errors) == 3


def test_arguments_and_results_that_are_no_tensors(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.ones(3, np.float32))
    with pytest.raises(ArgumentError, match=r"^\[graph\] expected tensors as the step's arguments, got float"):
        alpha.graph(lambda x, p: x)(x, 0.5)
    with pytest.raises(GraphError, match=r"^\[graph\] expected arguments outside the graph"):
        alpha.graph(lambda x: x)(x.detach().requires_grad_())
    with pytest.raises(ArgumentError, match=r"^\[graph\] expected a step that returns tensors.* got float"):
        alpha.graph(lambda x: 1.5, warmup=1)(x)
    with pytest.raises(EngineError, match=r"^\[graph\] expected tensors of one engine"):
        alpha.graph(lambda x, y: x)(x, alpha.tensor([1.0], engine="cpu"))


def test_a_graphed_step_within_another_is_a_part_of_it(cu32: DeviceEngine) -> None:
    inner = alpha.graph(lambda x: x * 2)
    outer = alpha.graph(lambda x: inner(x) + 1)
    x = cu32.from_numpy(np.ones(3, np.float32))
    assert [outer(x).tolist() for _ in range(5)] == [[3, 3, 3]] * 5
    assert outer.captures == 1


def _nll_loss(logits: alpha.Tensor, labels: alpha.Tensor, ignore_index: int) -> alpha.Tensor:
    return nn.functional.nll_loss(alpha.log_softmax(logits, -1), labels, ignore_index=ignore_index)


@pytest.mark.parametrize("loss_of", [nn.functional.cross_entropy, _nll_loss])
def test_clipping_counting_batches_and_ignored_labels_stay_on_the_device(
    cu32: DeviceEngine, loss_of: Callable[..., alpha.Tensor]
) -> None:
    """What once read values on the host: the norm of gradients, BatchNorm's count, the labels to be ignored."""

    def play(make: Callable[[Any], Any]) -> tuple[list[float], list[Array]]:
        alpha.manual_seed(9)
        net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 4)).to(cu32)
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x: alpha.Tensor, y: alpha.Tensor) -> tuple[alpha.Tensor, alpha.Tensor]:
            loss = loss_of(net(x), y, ignore_index=2)
            optimizer.zero_grad()
            loss.backward()
            norm = optim.clip_grad_norm_(net.parameters(), 0.3)
            optimizer.step()
            return loss, norm

        stepped = make(step)
        results = [stepped(x, y) for x, y in batches(cu32, 6)]
        numbers = [value.item() for result in results for value in result]
        return numbers, [tensor.numpy() for tensor in net.state_dict().values()]

    numbers, state = play(lambda step: step)
    again, replayed = play(alpha.graph)
    assert again == numbers
    np.testing.assert_equal(replayed, state)
    assert [value.tolist() for value in state if value.shape == ()] == [6]  # batches counted


def test_a_graph_holds_the_tables_that_it_uses(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound on tables the engine drops its own; a rehearsal drops none that the capture needs."""
    alpha.manual_seed(3)
    layer = nn.Conv2d(4, 4, 3, padding=1).to(cu32)

    def step(x: alpha.Tensor) -> alpha.Tensor:
        return alpha.max_pool2d(layer(x), 2, 2).sum()

    x = cu32.from_numpy(np.random.default_rng(5).normal(size=(2, 6, 6, 4)).astype(np.float32))
    expected = step(x).item()
    monkeypatch.setattr(cu32, "constants", Constants(most=1))
    graphed = alpha.graph(step)
    for _ in range(4):
        assert graphed(x).item() == expected
        for key in range(3):
            cu32.constant(("test", key), lambda: np.zeros(1))
        assert len(cu32.constants) == 1  # the step's own are gone
        junk = [cu32.from_numpy(np.full(64, np.nan)) for _ in range(64)]  # and their memory, were it free, is used
        del junk
    assert graphed.captures == 1


def mixed_groups(engine: DeviceEngine, name: str) -> tuple[list[alpha.Tensor], optim.Optimizer]:
    """Parameters of two dtypes in each of two groups, with an optimizer."""
    rng = np.random.default_rng(8)
    params = [
        engine.from_numpy(rng.normal(size=5).astype(dtype)).requires_grad_()
        for dtype in (np.float32, np.float64, np.float64, np.float32)
    ]
    groups = [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.1}]
    return params, OPTIMIZERS[name](groups, lr=0.05)


CHANGES: dict[str, list[dict[str, Any]]] = {
    "adam": [{"betas": (0.7, 0.9)}, {"eps": 1e-3}, {"weight_decay": 0.3}, {"lr": 0.2}],
    "adamw": [{"weight_decay": 0.3}, {"weight_decay": 0.0}, {"betas": (0.5, 0.6)}],
    "sgd": [{"weight_decay": 0.2}, {"momentum": 0.9}, {"momentum": 0.0}, {"lr": 0.0}],
    "momentum": [{"momentum": 0.5}, {"nesterov": False}, {"dampening": 0.4}, {"nesterov": True, "dampening": 0.0}],
    "rmsprop": [{"alpha": 0.5}, {"eps": 1e-2}, {"centered": False}, {"momentum": 0.0}],
}


@pytest.mark.parametrize("name", CHANGES)
def test_options_that_change_between_replays_count(cu32: DeviceEngine, name: str) -> None:
    """Numbers go into the next replay, what chooses a kernel has the step captured anew; each step counts once."""

    def play(make: Callable[[Any], Any]) -> tuple[list[Array], list[list[Any]]]:
        params, optimizer = mixed_groups(cu32, name)

        def step(x: alpha.Tensor) -> alpha.Tensor:
            optimizer.zero_grad()
            loss = sum((alpha.sin(p.double() * x).sum() for p in params), start=alpha.zeros(1, engine=cu32).double())
            loss.backward()
            optimizer.step()
            return loss.detach()

        stepped = make(step)
        x = cu32.from_numpy(np.array([1.5]))
        values, counts = [], []
        for options in [{}, {}, {}, *CHANGES[name], {}]:
            for group in optimizer.param_groups:
                group.update(options)
            for _ in range(2):
                values.append(stepped(x).numpy())
                counts.append([optimizer.state[p].get("step") for p in params if p in optimizer.state])
        return [*values, *(p.detach().numpy() for p in params)], counts

    expected, counts = play(lambda step: step)
    replayed, again = play(alpha.graph)
    np.testing.assert_equal(replayed, expected)
    assert again == counts
    if name.startswith("adam"):
        assert counts[-1] == [len(counts)] * 4
