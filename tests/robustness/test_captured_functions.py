"""Every function in a captured step: replays with other numbers have the function's own bits, or it is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import GraphError
from tests.robustness.functions import RECORDS, Record
from tests.robustness.values import Array, is_float, lengths, several
from tests.unit.test_cpu_graphs import poison

CALLS = 5
"""With the default warm-up, three of them are replays."""


def drawn(record: Record, seed: int) -> list[Array]:
    """Arguments of ordinary numbers."""
    rng = np.random.default_rng(seed)
    arguments: list[Array] = []
    for spec in record.shapes:
        shape = lengths(spec)
        if "@" in spec:
            arguments.append(rng.integers(0, lengths(spec.partition("@")[2])[0], shape))
        elif spec.endswith("?"):
            arguments.append(rng.integers(0, 2, shape).astype(np.bool_))
        else:
            arguments.append(rng.uniform(0.5, 1.5, shape).astype(np.float32))
    return arguments


def step_of(record: Record) -> Callable[..., Any]:
    """The function's results, and the gradients of their sum."""

    def step(*given: Any) -> Any:
        leaves = [
            x.detach().requires_grad_(record.gradient and is_float(spec))
            for spec, x in zip(record.shapes, given, strict=True)
        ]
        results = several(record.ours(*leaves))
        for y in results:
            if y.requires_grad:
                y.sum().backward(retain_graph=True)
        return [*(y.detach() for y in results), *(x.grad for x in leaves if x.grad is not None)]

    return step


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_replays_have_the_functions_bits(record: Record) -> None:
    engine, step = alpha.engine("cpu"), step_of(record)
    graphed = alpha.graph(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(CALLS):
            arguments = drawn(record, call)
            state = alpha.random.get_state()
            expected = step(*[alpha.tensor(x, engine=engine) for x in arguments])
            alpha.random.set_state(state)
            poison(graphed)
            try:
                found = graphed(*[alpha.tensor(x, engine=engine) for x in arguments])
            except GraphError:
                assert call < CALLS - 1, "refused by a replay alone"
                return
            assert len(found) == len(expected)
            for ours, right in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours.numpy(), right.numpy(), err_msg=f"call {call}")
