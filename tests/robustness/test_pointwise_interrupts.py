"""Point-wise functions after an interrupt anywhere in their tracing, planning and calling, and on several threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha.cpu import pointwise
from alpha.testing import assert_close
from tests.robustness.inject import interrupt

FILES = (
    "alpha/expressions/derivative.py",
    "alpha/expressions/functions.py",
    "alpha/expressions/graph.py",
    "alpha/expressions/program.py",
    "alpha/expressions/symbols.py",
    "alpha/cpu/pointwise.py",
    "alpha/cpu/loops/loop.py",
    "alpha/cpu/loops/machine.py",
)
STEP = 43
"""One of this many lines is interrupted: to interrupt all would take minutes."""


def _fresh() -> Callable[..., alpha.Tensor]:
    """A function that is not traced yet."""
    return alpha.pointwise(lambda x, a: x * alpha.exp(-a * x * x) + alpha.where(x > 0, x, a))


def _gradient(function: Callable[..., alpha.Tensor], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = alpha.tensor(values, requires_grad=True)
    y = function(x, 0.5)
    y.backward(alpha.tensor(np.ones_like(values)))
    assert x.grad is not None
    return np.concatenate([y.detach().numpy(), x.grad.numpy()])


def test_a_function_is_whole_after_an_interrupt_anywhere() -> None:
    values = np.linspace(-2, 2, 37, dtype=np.float32)
    wanted = _gradient(_fresh(), values)
    gc.collect()
    in_use = alpha.engine("cpu").memory.in_use
    at = 0
    while True:
        function = _fresh()
        pointwise.compiled_loop.cache_clear()  # so that it is written and loaded anew
        place = interrupt(lambda f=function: _gradient(f, values), at, *FILES)  # type: ignore[misc]
        assert_close(_gradient(function, values), wanted, rtol=0, atol=0)
        if place is None:
            break
        at += STEP
    assert at > 10 * STEP
    gc.collect()
    assert alpha.engine("cpu").memory.in_use == in_use


def test_threads_that_trace_one_function_at_once_agree() -> None:
    values = np.linspace(-2, 2, 101, dtype=np.float32)
    wanted = _gradient(_fresh(), values)
    for _ in range(10):
        function, found = _fresh(), []
        threads = [
            threading.Thread(target=lambda f=function, r=found: r.append(_gradient(f, values)))  # type: ignore[misc]
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        for one in found:
            np.testing.assert_array_equal(one, wanted)
