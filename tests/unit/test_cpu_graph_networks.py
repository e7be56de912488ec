"""alpha.graph on the CPU engine, of whole trainings: 50 steps have the bits of the steps themselves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.errors import AlphaError
from alpha.nn import functional as F
from tests.unit.test_cpu_graphs import assert_same, poison, seeded

__all__ = ["seeded"]

STEPS = 50
Array = np.ndarray[Any, Any]
Inputs = tuple[alpha.Tensor, ...]


class Training:
    """A network and its optimizers, and what a step does.

    Attributes:
        inputs: gives the step's inputs of a number.
        net, optimizers, more: what a step changes.
    """

    def __init__(self, net: nn.Module, optimizers: list[optim.Optimizer], inputs: Callable[[int], Inputs]) -> None:
        self.net, self.optimizers, self.inputs = net.train(), optimizers, inputs
        self.more: list[nn.Module] = []

    def step(self, *inputs: alpha.Tensor) -> Any:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.loss(*inputs)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def loss(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        return F.cross_entropy(self.net(x), y)

    def between(self, number: int) -> None:
        """What happens outside the step, before it."""

    def state(self) -> list[Any]:
        values: list[Any] = [np.array(v) for net in (self.net, *self.more) for v in net.state_dict().values()]
        for optimizer in self.optimizers:
            for p in self.net.parameters():
                values += [np.array(value) for value in optimizer.state.get(p, {}).values()]
            values.append(optimizer.steps)
        return [*values, alpha.random.get_state()]


def images(channels: int, size: int, classes: int = 5, count: int = 6) -> Callable[[int], Inputs]:
    def inputs(number: int) -> Inputs:
        rng = np.random.default_rng(number)
        x = rng.standard_normal((count, size, size, channels)).astype(np.float32)
        return alpha.tensor(x), alpha.tensor(rng.integers(0, classes, count))

    return inputs


def resnet() -> Training:
    net = nn.models.resnet18(5, base_width=4)
    return Training(net, [optim.Adam(net.parameters(), lr=1e-3)], images(3, 32))


def muon() -> Training:
    """Filters by Muon, all else by SGD; an average of the weights is kept beside."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, bias=False), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    filters = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    training = Training(net, [optim.Muon(filters, lr=0.01), optim.SGD(rest, lr=0.1, momentum=0.9)], images(3, 9))
    average = optim.swa_utils.AveragedModel(net, avg_fn=optim.swa_utils.get_ema_avg_fn(0.9))
    training.more.append(average)
    training.between = lambda number: average.update_parameters(net)  # type: ignore[method-assign]
    return training


class Adversaries(Training):
    """The discriminator's step and the generator's, as the example makes them."""

    def __init__(self) -> None:
        net = nn.models.DCGAN(image_size=16, latent_size=6, base_width=8)
        optimizers = [optim.Adam(part.parameters(), lr=2e-4) for part in (net.discriminator, net.generator)]
        super().__init__(net, list(optimizers), lambda number: (images(3, 16)(number)[0],))

    def step(self, *inputs: alpha.Tensor) -> Any:
        net: Any = self.net
        fake, losses = net(alpha.randn(len(inputs[0]), 6)), []
        for optimizer, loss in zip(
            self.optimizers, (lambda: net.discriminator_loss(inputs[0], fake), lambda: net.generator_loss(fake)),
            strict=True,
        ):  # fmt: skip
            losses.append(loss())
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
            net.discriminator.requires_grad_(len(losses) == 2)
        return losses


class Language(Training):
    """A layer of a transformer with dropout everywhere, also in its attention; the loss is one of log likelihoods."""

    def __init__(self) -> None:
        net = nn.Sequential(
            nn.Embedding(11, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True),
            nn.Linear(16, 11), nn.LogSoftmax(-1),
        )  # fmt: skip
        super().__init__(net, [optim.AdamW(net.parameters(), lr=1e-2)], self.tokens)

    def tokens(self, number: int) -> Inputs:
        rng = np.random.default_rng(number)
        text = rng.integers(0, 11, (4, 8))
        return alpha.tensor(text[:, :-1]), alpha.tensor(np.where(text[:, 1:] < 2 + number % 2, -100, text[:, 1:]))

    def loss(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        return F.nll_loss(self.net(x).reshape(-1, 11), y.reshape(-1))


class Accumulating(Training):
    """Two batches for one update, gradients clipped, and the number of right answers."""

    def __init__(self) -> None:
        net = nn.Sequential(nn.Flatten(), nn.Linear(27, 12), nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 5))
        super().__init__(net, [optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)], images(3, 3))

    def step(self, *inputs: alpha.Tensor) -> Any:
        x, y = inputs
        self.optimizers[0].zero_grad()
        total, right = alpha.zeros(()), alpha.zeros((), dtype="int64")
        for part, labels in zip(x.chunk(2), y.chunk(2), strict=True):
            logits = self.net(part)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.1) / 2
            loss.sum().backward()
            total, right = total + loss.detach(), right + (logits.argmax(1) == labels).sum()
        optim.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizers[0].step()
        return total, right


TRAININGS: dict[str, Callable[[], Training]] = {
    "resnet18": resnet,
    "muon": muon,
    "dcgan": Adversaries,
    "language": Language,
    "accumulating": Accumulating,
}


def values(results: Any) -> list[Array]:
    return [np.array(one.detach()) for one in (results if isinstance(results, tuple | list) else [results])]


def trained(name: str, graphed: bool, poisoned: bool = False, steps: int = STEPS) -> tuple[list[Any], Any]:
    """Losses and state, and the step."""
    alpha.manual_seed(5)
    training = TRAININGS[name]()
    step = alpha.graph(training.step) if graphed else training.step
    found = []
    for number in range(steps):
        training.between(number)
        if poisoned:
            poison(step)
        found += values(step(*training.inputs(number)))
    return [*found, *training.state()], step


@pytest.mark.parametrize("name", TRAININGS)
def test_fifty_steps_have_the_bits_of_the_steps_themselves(name: str) -> None:
    expected, _ = trained(name, False)
    found, step = trained(name, True)
    assert_same(expected, found)
    assert 1 <= step.captures <= 2  # labels to ignore come and go


@pytest.mark.parametrize("name", TRAININGS)
def test_they_read_nothing_that_they_have_not_written(name: str) -> None:
    expected, _ = trained(name, False, steps=6)
    found, _ = trained(name, True, poisoned=True, steps=6)
    assert_same(expected, found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_steps_of_other_dtypes(dtype: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        alpha.manual_seed(3)
        net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 5)).to(dtype)

        def step(x: alpha.Tensor, y: alpha.Tensor) -> Any:
            net.zero_grad()
            logits = net(x.to(dtype))
            loss = F.cross_entropy(logits.float(), y)
            loss.backward()
            return loss, logits.topk(2)[1], y.cumsum(0), y.sort()[0], (y == logits.argmax(1)).sum(), y.max()

        graphed, found = wrap(step), []
        for number in range(6):
            x, y = images(6, 1)(number)
            found += values(graphed(x.reshape(6, 6), y))
            found += [np.array(p.grad.float()) for p in net.parameters() if p.grad is not None]
        return found

    assert_same(run(lambda step: step), run(alpha.graph))


class TestInference:
    """A BatchNorm is folded into its convolution, and filters are packed once, until one of their tensors changes."""

    @staticmethod
    def net() -> Any:
        alpha.manual_seed(2)
        net = nn.models.resnet18(5, base_width=8).eval()
        with alpha.no_grad():
            for p in net.parameters():
                p.mul_(1.5)
        return net

    def test_it_has_the_bits_of_the_folded_network(self) -> None:
        net = self.net()
        step, x = alpha.graph(net), images(3, 32)(0)[0]
        with alpha.no_grad():
            for number in range(4):
                np.testing.assert_array_equal(step(x).numpy(), net(x).numpy(), err_msg=str(number))
        assert step.captures == 1

    @pytest.mark.parametrize("what", ["weight", "scale", "statistics", "training"])
    def test_it_follows_what_it_is_made_of(self, what: str) -> None:
        net = self.net()
        step, (x, y) = alpha.graph(net), images(3, 32)(0)

        def change() -> None:
            if what == "weight":
                net.layer2[0].conv1.weight.mul_(0.5)
            elif what == "scale":
                net.layer1[1].bn2.weight.add_(1.0)
            elif what == "statistics":
                net.bn1.running_var.mul_(2.0)
            else:
                net.train()
                with alpha.enable_grad():
                    F.cross_entropy(net(x), y).backward()
                    optim.SGD(net.parameters(), lr=0.1).step()
                net.eval()

        with alpha.no_grad():
            for _ in range(3):
                change()
                for number in range(5):
                    np.testing.assert_array_equal(step(x).numpy(), net(x).numpy(), err_msg=str(number))
        assert step.captures == 3

    def test_it_follows_an_array_that_shares_a_weight(self) -> None:
        """No version counts what is written to the array: nothing made of the weight is kept any more."""
        net = self.net()
        step, x = alpha.graph(net), images(3, 32)(0)[0]
        with alpha.no_grad():
            for _ in range(4):
                step(x)
            for shared in (net.layer1[0].conv1.weight, net.bn1.weight):
                array = shared.detach().numpy()
                for number in range(4):
                    array *= 0.5
                    np.testing.assert_array_equal(step(x).numpy(), net(x).numpy(), err_msg=str(number))

    def test_what_it_keeps_lives_though_others_drop_it(self) -> None:
        """A forward with gradients keeps no packed filters, and changes none."""
        net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3)).eval()
        step, x = alpha.graph(net), images(3, 32)(0)[0]
        with alpha.no_grad():
            expected = [step(x).numpy().copy() for _ in range(4)][-1]
        net(x)
        spoiled = [
            alpha.full((size,), np.nan) for size in (1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16) for _ in range(99)
        ]
        with alpha.no_grad():
            np.testing.assert_array_equal(step(x).numpy(), expected)
        assert step.captures == 1 and len(spoiled) == 495

    def test_replays_neither_fold_nor_pack(self) -> None:
        """Fewer kernels than in a step with gradients, whose filters change."""
        net, calls = self.net(), []
        x = images(3, 32)(0)[0]
        for recorded in (False, True):
            step = alpha.graph(net)
            with alpha.set_grad_enabled(recorded):
                for _ in range(4):
                    step(x)
            (plan,) = step._plans.values()
            calls.append(sum(getattr(part, "_count", 0) for part in plan.recorded[0].recording._parts))
        assert calls[0] < 0.7 * calls[1], calls

    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_nor_do_those_of_a_step_that_turns_gradients_off_itself(self, precision: str) -> None:
        net, counts = self.net(), []
        x = images(3, 32)(0)[0]

        def step(x: alpha.Tensor) -> Any:
            with alpha.no_grad(), alpha.autocast(alpha.bfloat16, enabled=precision == "bfloat16"):
                return net(x)

        for recorded in (False, True):
            graphed = alpha.graph(step)
            with alpha.set_grad_enabled(recorded):
                found = [np.array(graphed(x).float()) for _ in range(4)]
                np.testing.assert_array_equal(found[-1], np.array(step(x).float()))
            (plan,) = graphed._plans.values()
            counts.append(sum(getattr(part, "_count", 0) for part in plan.recorded[0].recording._parts))
        assert counts[0] == counts[1]
        with alpha.no_grad():
            net.conv1.weight.mul_(1.5)
        np.testing.assert_array_equal(np.array(graphed(x).float()), np.array(step(x).float()))

    def test_a_step_that_trains_and_then_looks_at_its_work(self) -> None:
        """What it keeps of weights is of those that it has just written."""
        found = []
        for wrap in (lambda step: step, alpha.graph):
            net = self.net()
            optimizer = optim.SGD(net.parameters(), lr=0.1)

            def step(x: alpha.Tensor, net: Any = net, optimizer: Any = optimizer) -> Any:
                optimizer.zero_grad()
                loss = (net.eval()(x) ** 2).mean()
                loss.backward()
                optimizer.step()
                with alpha.no_grad():
                    return net(x)

            graphed = wrap(step)
            found.append([np.array(graphed(images(3, 32)(0)[0])) for _ in range(9)])
        for ours, right in zip(*found, strict=True):
            np.testing.assert_allclose(ours, right, rtol=1e-3, atol=1e-5)

    def test_a_step_that_writes_to_its_weights_is_captured_too(self) -> None:
        found = []
        for wrap in (lambda step: step, alpha.graph):
            net = self.net()

            def step(x: alpha.Tensor, net: Any = net) -> Any:
                with alpha.no_grad():
                    net.conv1.weight.mul_(0.9)
                    return net(x)

            graphed = wrap(step)
            with alpha.no_grad():
                found.append([np.array(graphed(images(3, 32)(0)[0])) for _ in range(9)])
        assert graphed.captures == 2  # type: ignore[attr-defined]
        for ours, right in zip(*found, strict=True):  # unfolded
            np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5)


def test_numbers_of_one_and_expanded_ones_are_reduced_in_a_step() -> None:
    """The gradient of a sum repeats one number; a loss is summed though it is a number already."""
    w = alpha.rand(4, 3, 3, 2, requires_grad=True)
    b = alpha.rand(4, requires_grad=True)

    def step(x: alpha.Tensor) -> Any:
        w.grad = b.grad = None
        y = F.conv2d(x, w, b)
        y.sum().mean().backward()
        assert w.grad is not None and b.grad is not None
        return y.detach().argmax(-1).float().mean(), (y.detach() > 0).sum(), w.grad.clone(), b.grad.clone()

    graphed = alpha.graph(step)
    for number in range(5):
        x = images(2, 6)(number)[0]
        assert_same(values(step(x)), values(graphed(x)))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_a_ctrl_c_leaves_a_replay_undone_or_done() -> None:
    """Wherever it comes, the weights, counts and random state are those of another run, of whole steps alone."""

    class Run:
        def __init__(self) -> None:
            alpha.manual_seed(5)
            self.training = Accumulating()
            self.step, self.inputs = alpha.graph(self.training.step), self.training.inputs(0)
            for _ in range(4):
                self.step(*self.inputs)
            self.state = self.training.state()

        def go(self) -> None:
            """A step, at this run's place among the random numbers."""
            alpha.random.set_state(self.state[-1])
            self.step(*self.inputs)
            self.state = self.training.state()

    def interrupt(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    tried, whole, rng = Run(), Run(), np.random.default_rng(0)
    assert_same(whole.state, tried.state)
    undone = done = 0
    for _ in range(60):
        alpha.random.set_state(tried.state[-1])
        old = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 3e-3)))
            while True:
                tried.step(*tried.inputs)
        except KeyboardInterrupt:
            signal.signal(signal.SIGALRM, old)
        tried.state = tried.training.state()
        undone += _are_same(tried.state, whole.state)
        while not _are_same(tried.state, whole.state):
            assert whole.training.optimizers[0].steps < tried.training.optimizers[0].steps
            whole.go()
            done += 1
    assert tried.step.captures == whole.step.captures == 1
    assert undone + done


def _are_same(left: list[Any], right: list[Any]) -> bool:
    try:
        assert_same(left, right)
    except AssertionError:
        return False
    return True


def test_an_average_within_the_step_is_refused() -> None:
    """It asks the host how many networks are in it."""
    training = muon()
    average: Any = training.more[0]

    def step(*inputs: alpha.Tensor) -> Any:
        loss = training.step(*inputs)
        average.update_parameters(training.net)
        return loss

    graphed = alpha.graph(step)
    with pytest.raises(AlphaError, match="a value read by the host"):
        for number in range(3):
            graphed(*training.inputs(number))
