"""Results of point-wise loops that are written past the caches: all of them, nothing beside them, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu import pointwise, streaming, tasks
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA
from alpha.cpu.pointwise import Plan

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((1,), (1,)),
    ((5,), (5,)),
    ((1003,), ()),
    ((40_001,), (40_001,)),
    ((7, 1), (1, 3)),
    ((9, 17), (17,)),
    ((9, 64), (9, 1)),
    ((21, 200), (200,)),
    ((3, 5, 77), (3, 1, 77)),
    ((2, 40_003), (40_003,)),
    ((300, 131), (300, 1)),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has all results written past the caches, however few bytes they have."""
    monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    monkeypatch.setattr(pointwise, "ALIGNED_BYTES", 0)
    monkeypatch.setattr(pointwise, "_plan", lambda program, function, out, *lies: Plan(program, function, out, lies))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_values(dtype: str, threads: int) -> None:
    engine = CPUEngine(threads=threads)
    rng = np.random.default_rng(0)
    for shape, other in SHAPES:
        x, y = (rng.integers(0, 9, one).astype(dtype) for one in (shape, other))
        for order in ("C", "F"):
            a = alpha.tensor(np.array(x, order=order), engine=engine)
            b = alpha.tensor(y, engine=engine)
            assert ((a - b).numpy() == x - y).all() and ((a < b).numpy() == (x < y)).all()
            for target in ("float32", "float64", "int32", "int64", "uint8", "bool"):
                assert (alpha.cast(a, target).numpy() == x.astype(target)).all()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "other"), [pair for pair in SHAPES if len(pair[0]) > 1])
def test_nothing_is_written_beyond(shape: tuple[int, ...], other: tuple[int, ...], dtype: str) -> None:
    """Rows that are not whole vectors may begin anywhere."""
    engine = CPUEngine(threads=1)
    rng = np.random.default_rng(1)
    x, y = (alpha.tensor(rng.normal(size=one).astype(dtype), engine=engine) for one in (shape, other))
    function: Any = alpha.pointwise(lambda a, b: a * b + 1)
    program = function.trace((x, y)).program
    plan = Plan(program, "test", None, [(one.shape, one.strides, one.dtype) for one in (x, y)])
    expected = np.asarray(x.numpy() * y.numpy() + 1)
    elements = expected.size
    room = engine.empty((elements + 64,), x.dtype)
    vector = ISA.lanes(x.dtype.itemsize)
    for offset in range(16, 33, vector if expected.shape[-1] % vector == 0 else 1):
        engine.fill(room, 7)
        job = plan.pack(plan.address, room.address + offset * x.dtype.itemsize, x.address, y.address)
        tasks.run(plan.loop, job, plan.tasks, 1)
        found = room.numpy()
        assert (found[:offset] == 7).all() and (found[offset + elements :] == 7).all()
        assert (found[offset : offset + elements] == expected.reshape(-1)).all()


@pytest.mark.usefixtures("always")
def test_the_mask_of_dropout_does_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for limit in (0, 1 << 40):
        monkeypatch.setattr(streaming, "STREAMED_BYTES", limit)
        alpha.manual_seed(5)
        x = alpha.ones((33, 101), engine=CPUEngine(threads=1))
        results.append(alpha.dropout(x.transpose(0, 1), 0.5).numpy())
    assert (results[0] == results[1]).all() and 0.3 < (results[0] == 0).mean() < 0.7
