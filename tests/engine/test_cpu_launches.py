"""Launches of the CPU engine: what they compute, what they decline, and that they leave nothing behind."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu import launches
from alpha.cpu.engine import CPUEngine
from alpha.cpu.launches import Entry, launch
from alpha.errors import OutOfMemoryError
from alpha.expressions.program import Program
from alpha.tensor import Storage, Tensor


@pytest.fixture
def engine() -> CPUEngine:
    return CPUEngine(memory="64MB", threads=1)


def _program() -> tuple[Any, Program]:
    """x * y + a, and its program, which has not been launched yet."""
    function = alpha.pointwise(lambda x, y, a: x * y + a)
    return function, function.trace((alpha.ones(1), alpha.ones(1), 1.0)).program


def _pair(engine: CPUEngine, *shape: int) -> tuple[Tensor, Tensor]:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return alpha.tensor(values, engine=engine), alpha.tensor(values[..., ::-1].copy(), engine=engine)


def test_a_launch_computes_what_the_engine_does(engine: CPUEngine) -> None:
    function, program = _program()
    for shape in ((32,), (5, 7), (3, 1), (40_000,)):
        x, y = _pair(engine, *shape)
        assert program.launch(x, y, 2.0) is None  # nothing is known of such tensors yet
        wanted = function(x, y, 2.0)
        for number in (2.0, 2):
            found = program.launch_outside(x, y, number)
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
            assert found.storage is not wanted.storage
            for name in set(Tensor.__slots__) - {"__weakref__", "storage", "_array"}:
                assert getattr(found, name) == getattr(wanted, name), name


def test_several_results_come_as_a_tuple(engine: CPUEngine) -> None:
    x, y = _pair(engine, 33)
    x.requires_grad_()
    y.requires_grad_()
    function = alpha.pointwise(lambda x, y: alpha.exp(x * -0.01) * y)
    grads = []
    for _ in range(3):
        function(x, y).backward(alpha.ones(33, engine=engine))
        assert x.grad is not None and y.grad is not None
        grads.append((x.grad.numpy().copy(), y.grad.numpy().copy()))
        x.grad = y.grad = None
    for one, other in grads[1:]:
        np.testing.assert_array_equal(one, grads[0][0])
        np.testing.assert_array_equal(other, grads[0][1])
    np.testing.assert_allclose(grads[0][1], np.exp(x.detach().numpy() * -0.01), rtol=1e-6)


def test_what_a_launch_declines(engine: CPUEngine) -> None:
    function, program = _program()
    x, y = _pair(engine, 4, 6)
    function(x, y, 1.0)
    assert program.launch(x, y, 1.0) is not None
    elsewhere = alpha.tensor(x.numpy(), engine=CPUEngine(threads=1))
    unfinished: Any = object.__new__(Tensor)
    for given in (
        (x, y), (x, y, 1.0, 1.0), (x, 1.0, y), (x, None, 1.0), (x, y, "1"), (x, y, True), (x, y, np.float64(1)),
        (x, y, 10**400), (x, alpha.ones(6, 4, engine=engine), 1.0), (x, y.double(), 1.0), (x, elsewhere, 1.0),
        (x, y.transpose(0, 1), 1.0), (x, unfinished, 1.0), (x, y.numpy(), 1.0), (),
    ):  # fmt: skip
        assert program.launch(*given) is None, given
    leaf, view = x.clone().requires_grad_(), alpha.ones(2, 4, 6, engine=engine)[0]
    for tensor in (leaf, view):
        assert program.launch(tensor, y, 1.0) is not None
        assert program.launch_outside(tensor, y, 1.0) is None
    parameter = alpha.nn.Parameter(x)
    assert type(program.launch(parameter, y, 1.0)) is Tensor
    with pytest.raises(TypeError):
        program.launch(x, y, number=1.0)


def test_several_threads_are_not_for_a_launch(engine: CPUEngine) -> None:
    function, program = _program()
    x, y = _pair(engine, 1 << 17)
    wanted = function(x, y, 1.0).numpy().copy()
    assert program.launch(x, y, 1.0) is not None
    engine.configure(threads=2)
    assert program.launch(x, y, 1.0) is None
    np.testing.assert_array_equal(function(x, y, 1.0).numpy(), wanted)


def test_a_launch_forgets_old_layouts_for_new_ones(engine: CPUEngine) -> None:
    function, program = _program()
    for size in range(1, 2 * launches.MOST_ENTRIES):
        x, y = _pair(engine, size)
        wanted = x.numpy() * y.numpy() + 1
        for _ in range(2):
            np.testing.assert_array_equal(function(x, y, 1.0).numpy(), wanted)
        assert len(program.launched) <= launches.MOST_ENTRIES


def test_a_tensor_that_changes_while_the_result_is_made_is_declined(engine: CPUEngine) -> None:
    x = alpha.ones(8, engine=engine)
    function = alpha.pointwise(lambda x: x * 3 + 1)
    function(x)
    (entry,) = function.trace((x,)).program.launched.values()
    other = alpha.ones(9, engine=engine)

    def make(given: CPUEngine) -> Storage:
        x.storage = other.storage
        return given.allocate(64)

    changing = launch(1, 0, 1, [entry._replace(make=make)], False)
    assert changing is not None and changing(x) is None


def test_errors_and_interrupts_while_the_result_is_made(engine: CPUEngine) -> None:
    x = alpha.ones(300_000, engine=engine)
    function = alpha.pointwise(lambda x: x * 5 + 1)
    program = function.trace((x,)).program
    held = [function(x)]
    with pytest.raises(OutOfMemoryError):
        while True:
            held.append(program.launch(x))
    held.clear()
    assert program.launch(x) is not None
    (entry,) = program.launched.values()

    def interrupt(_: CPUEngine) -> Storage:
        raise KeyboardInterrupt

    interrupted = launch(1, 0, 1, [entry._replace(make=interrupt)], False)
    assert interrupted is not None
    with pytest.raises(KeyboardInterrupt):
        interrupted(x)


def test_launches_leave_nothing_behind(engine: CPUEngine) -> None:
    function, program = _program()
    x, y = _pair(engine, 32)
    function(x, y, 1.0)
    (entry,) = program.launched.values()
    kept = (x, y, x.storage, x.shape, entry, entry.like, entry.plan, engine, Tensor, Storage)
    gc.collect()
    before, in_use = [sys.getrefcount(one) for one in kept], engine.memory.in_use
    for _ in range(1000):
        program.launch(x, y, 1.0)
        program.launch(x, None, 1.0)
        program.launch(x, y, 10**400)
    gc.collect()
    assert [sys.getrefcount(one) for one in kept] == before
    assert engine.memory.in_use == in_use


def test_an_interpreter_that_keeps_attributes_elsewhere_has_no_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "_method", lambda *_: None)
    function, program = _program()
    x = alpha.ones(11)
    for _ in range(2):
        np.testing.assert_array_equal(function(x, x, 1.0).numpy(), np.full(11, 2, np.float32))
    assert program.launch(x, x, 1.0) is None
    assert isinstance(next(iter(program.launched.values())), Entry)
