"""Loops over shards within alpha.graph, on one rank: what a replay sets, and mistakes. Several ranks: test_nccl.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import distributed as dist
from alpha import nn, optim
from alpha.cu32.base import DeviceEngine
from alpha.errors import GraphError
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers in each test, and the process's own after it."""
    state = alpha.random.get_state()
    alpha.manual_seed(7)
    yield
    alpha.random.set_state(state)


def alone(function: Callable[[], Any]) -> Any:
    """The function's result on a rank that is alone."""
    return dist.run_in_threads(function, 1, timeout=60)[0]


class Model:
    """A small classifier with two heads, wrapped; ``before`` is called in each step ahead of its loop."""

    def __init__(self, engine: DeviceEngine, before: Callable[[], object] = lambda: None) -> None:
        self.net = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)]).to(engine)
        self.par = dist.DataParallel(self.net, shards=2)
        self.optimizer = optim.SGD(self.par.parameters(), lr=0.1)
        self.head = 0
        self.before = before
        rng = np.random.default_rng(0)
        self.x = engine.from_numpy(rng.normal(size=(6, 6)).astype(np.float32))
        self.y = engine.from_numpy(rng.integers(0, 3, 6))

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> None:
        self.optimizer.zero_grad()
        self.before()
        for px, py in self.par.split(x, y):
            self.par.backward(F.cross_entropy(self.net[self.head](px), py))
        self.optimizer.step()


def test_a_replay_tells_its_own_loss_rows_and_gradients(cu32: DeviceEngine) -> None:
    def run(graphed: bool) -> list[Any]:
        model, found = Model(cu32), []
        step = alpha.graph(model.step) if graphed else model.step
        for place in range(6):
            step(model.x * (1 + place), model.y)
            found += [model.par.loss, model.par.rows]
            found += [None if p.grad is None else p.grad.numpy().tolist() for p in model.net.parameters()]
        assert not graphed or step.captures == 1
        return found

    assert alone(lambda: run(True)) == alone(lambda: run(False))


def test_a_request_to_stop_is_seen_in_a_replay(cu32: DeviceEngine) -> None:
    def run() -> list[bool]:
        model, found = Model(cu32), []
        step = alpha.graph(model.step)
        for place in range(6):
            if place == 4:
                model.par.request_stop()
            step(model.x, model.y)
            found.append(model.par.stopping)
        assert step.captures == 1
        return found

    assert alone(run) == [False] * 4 + [True] * 2


def test_the_loss_cannot_be_read_within_the_step(cu32: DeviceEngine) -> None:
    def run() -> None:
        model = Model(cu32)

        def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
            model.step(x, y)
            assert model.par.loss is not None

        graphed = alpha.graph(step, warmup=1)
        with pytest.raises(GraphError, match="expected a step that stays on"):
            graphed(model.x, model.y)

    alone(run)


def test_what_is_drawn_before_the_loop_must_stay_as_much(cu32: DeviceEngine) -> None:
    def run(before: Callable[[list[int]], object]) -> None:
        calls: list[int] = []
        model = Model(cu32, lambda: before(calls))
        step = alpha.graph(model.step, warmup=1)
        step(model.x, model.y)
        place = alpha.random.get_state()
        with pytest.raises(
            GraphError, match=r"\[split\] expected a captured step whose loop begins as in the call before"
        ):
            step(model.x, model.y)
        assert alpha.random.get_state()["seed"] == place["seed"]
        model.before = lambda: None
        model.step(model.x, model.y)  # the network is usable

    alone(lambda: run(lambda calls: (calls.append(1), alpha.rand(8 * len(calls), engine=cu32))))


def test_a_batch_that_an_error_left_unused_is_not_the_next_steps(cu32: DeviceEngine) -> None:
    """The batch is shared out ahead of a step; where the step ends before its loop, another one shares out its own."""

    def run() -> None:
        def fail() -> None:
            raise ValueError("not now")

        model = Model(cu32)
        step = alpha.graph(model.step, warmup=1)
        step(model.x, model.y)
        model.before = fail
        with pytest.raises(ValueError, match="not now"):
            step(model.x, model.y)
        assert not model.par.ahead
        model.before = lambda: None
        other = alpha.graph(model.step, warmup=1)
        for _ in range(3):
            other(model.x[:4], model.y[:4])
            assert model.par.rows == 4
        step(model.x, model.y)
        assert model.par.rows == 6 and other.captures == 1 and not model.par.ahead

    alone(run)


def test_a_capture_that_uses_other_parameters_than_its_rehearsal_is_an_error(cu32: DeviceEngine) -> None:
    def run() -> None:
        model = Model(cu32)
        step = alpha.graph(model.step, warmup=1)
        step(model.x, model.y)
        model.head = 1
        with pytest.raises(GraphError, match=r"\[split\] expected shards that use the parameters"):
            step(model.x, model.y)

    alone(run)


def test_an_error_in_a_replay_leaves_the_random_sequence_where_it_is(cu32: DeviceEngine) -> None:
    """Dropout in a shard draws from the shard's own sequence; an interrupt there must not leave it in force."""

    def run() -> None:
        model = Model(cu32)
        is_failing = [False]

        def interrupt() -> None:
            if is_failing[0]:
                raise KeyboardInterrupt

        def forward(x: alpha.Tensor) -> alpha.Tensor:
            alpha.steps.run_now_and_on_replay(interrupt)
            return alpha.dropout(x, 0.5)

        model.net[0].register_forward_pre_hook(lambda _, inputs: (forward(inputs[0]),))
        step = alpha.graph(model.step)
        for _ in range(4):
            step(model.x, model.y)
        before = alpha.random.get_state()
        is_failing[0] = True
        with pytest.raises(KeyboardInterrupt):
            step(model.x, model.y)
        assert alpha.random.get_state()["seed"] == before["seed"]
        is_failing[0] = False
        step(model.x, model.y)

    alone(run)
