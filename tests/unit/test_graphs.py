"""alpha.graph: an engine without captures, arguments, results; float32 precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.errors import ArgumentError, EngineError, GraphError


class Pair(NamedTuple):
    """A result with names."""

    loss: alpha.Tensor
    extra: Any


def test_an_engine_that_captures_nothing_calls_the_step_each_time() -> None:
    from alpha.numpy_engine import NumPyEngine

    calls, engine = [], NumPyEngine()
    weight = engine.from_numpy(np.ones(3)).requires_grad_()
    optimizer = optim.SGD([weight], lr=0.5)

    def step(x: alpha.Tensor) -> alpha.Tensor:
        calls.append(1)
        optimizer.zero_grad()
        loss = (x * weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    graphed = alpha.graph(step)
    losses = [graphed(engine.from_numpy(np.ones(3))) for _ in range(4)]
    assert [loss.item() for loss in losses] == [3, 1.5, 0, -1.5] and len(calls) == 4
    assert not losses[0].requires_grad and graphed.captures == 0
    assert "test_an_engine" in repr(graphed)


def test_results_of_any_nesting() -> None:
    def step(x: alpha.Tensor) -> Pair:
        return Pair(x * 2, {"a": [x, None], "b": (x + 1,)})

    result = alpha.graph(step)(alpha.ones(2))
    assert isinstance(result, Pair) and result.loss.tolist() == [2, 2]
    assert result.extra["a"][0].tolist() == [1, 1] and result.extra["a"][1] is None
    assert result.extra["b"][0].tolist() == [2, 2]
    assert alpha.graph(lambda: None)() is None


def test_wrong_arguments_say_so() -> None:
    x = alpha.ones(2)
    with pytest.raises(ArgumentError, match=r"^\[graph\] expected a function, got 3$"):
        alpha.graph(3)  # type: ignore[arg-type]
    for warmup in (0, True, 1.5):
        with pytest.raises(ArgumentError, match=r"^\[graph\] expected warmup >= 1, got"):
            alpha.graph(abs, warmup)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^\[graph\] expected tensors as the step's arguments, got ndarray"):
        alpha.graph(lambda x: x)(np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^\[graph\] expected a step that returns tensors.* got float"):
        alpha.graph(lambda x: x.sum().item())(x)
    with pytest.raises(GraphError, match=r"^\[graph\] expected arguments outside the graph"):
        alpha.graph(lambda x: x)(alpha.ones(2, requires_grad=True))


def test_two_engines_as_arguments() -> None:
    from alpha.cpu.engine import CPUEngine

    with pytest.raises(EngineError, match=r"^\[graph\] expected tensors of one engine"):
        alpha.graph(lambda x, y: x)(alpha.ones(2), CPUEngine(memory="16MB").from_numpy(np.ones(2)))


@pytest.fixture
def precision() -> Iterator[None]:
    """The precision as it was, whatever a test does."""
    yield
    alpha.set_float32_precision("highest")


def test_precision(precision: None) -> None:
    x = alpha.tensor(np.random.default_rng(0).normal(size=(33, 65)).astype(np.float32))
    assert alpha.get_float32_precision() == "highest"
    exact = (x @ x.T).numpy()
    alpha.set_float32_precision("high")
    assert alpha.get_float32_precision() == "high" == x.engine.precision
    np.testing.assert_array_equal((x @ x.T).numpy(), exact)  # the CPU engine computes in float32 all the same


@pytest.mark.parametrize("value", ["lowest", "tf32", "", None, 32])
def test_other_precisions_are_refused(value: Any, precision: None) -> None:
    with pytest.raises(ArgumentError, match=r'^\[set_float32_precision\] expected "ieee", "highest", "high" or "me'):
        alpha.set_float32_precision(value)
    assert alpha.get_float32_precision() == "highest"
