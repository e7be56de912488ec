"""Random numbers of the CPU's loops: the definitions' bits, for all sizes, places and numbers of threads."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from alpha.cpu import random
from alpha.cpu.engine import CPUEngine
from alpha.cpu.loops.random import TASK
from alpha.launches import RANDOM
from alpha.random import Draw
from tests.tiers import FLOAT_NAMES

SIZES = [(), (0,), (1,), (2,), (3,), (31,), (33,), (64,), (3, 5461), (4 * TASK,), (4 * TASK + 1,), (100_001,)]
PLACES = [(0, 0), (42, 7), (2**64 - 1, 2**64 - 3), (0x123456789ABCDEF, 2**32 - 5)]
ALMOST_1 = float(np.nextafter(np.float32(1), np.float32(2)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize(
    ("distribution", "first", "second"),
    [
        ("uniform", 0.0, 1.0),
        ("uniform", -1.0, 2.5),
        ("uniform", 1.0, ALMOST_1),
        ("uniform", 2.0, 2.0),
        ("normal", 0.0, 1.0),
        ("normal", 3.0, 0.1),
        ("normal", 1e30, 1e-30),
    ],
)
def test_the_numbers_are_those_of_the_definition(
    distribution: str, first: float, second: float, dtype: str, threads: int
) -> None:
    engine = CPUEngine(threads=threads)
    for shape in SIZES:
        for seed, offset in PLACES:
            draw = Draw(distribution, shape, np.dtype(dtype), first, second, seed, offset)
            found, expected = engine.random(draw).numpy(), draw.numpy()
            assert found.shape == shape and found.dtype == dtype
            assert found.tobytes() == expected.tobytes(), (shape, seed, offset)


def test_nothing_is_written_beyond_the_result() -> None:
    engine = CPUEngine(threads=1)
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for size in range(1, 70):
            whole = engine.empty((256,), dtype)
            engine.fill(whole, 7)
            plan, place = random._plan(size, dtype.itemsize), whole.address + 64 * dtype.itemsize
            record = struct.pack("qqQQdd", plan.record.address, place, 1, 1, 1.0, 0.0)
            random._loop("normal", 8 * dtype.itemsize).alone(record)
            found = whole.numpy()
            assert (found[:64] == 7).all() and (found[64 + size :] == 7).all() and (found[64 : 64 + size] != 7).all()


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_a_draw_from_another_place_is_a_launch(distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = CPUEngine(threads=1)
    RANDOM.forget()
    engine.random(Draw(distribution, (3, 5), np.dtype(np.float32), -1.0, 2.0, 1, 2))
    monkeypatch.setattr(random, "_plan", lambda *_: pytest.fail("went the long way"))
    for seed, offset in PLACES:
        draw = Draw(distribution, (3, 5), np.dtype(np.float32), -1.0, 2.0, seed, offset)
        assert engine.random(draw).numpy().tobytes() == draw.numpy().tobytes()
