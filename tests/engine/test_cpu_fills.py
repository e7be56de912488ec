"""Tensors of one number on the CPU: every byte is written, and none beyond, on one thread and on several."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from alpha import dtypes
from alpha.cpu import fills
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA

SHAPES = [(), (0,), (1,), (3,), (5, 7), (65_537,), (1100, 1003), (2800, 2801)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_values(dtype: np.dtype[np.generic], threads: int) -> None:
    engine = CPUEngine(threads=threads)
    values = [0, 1, True] + ([-0.0, 0.1, math.nan, math.inf, 1e300] if dtypes.is_float(dtype) else [])
    for shape in SHAPES:
        for value in values[: 3 if math.prod(shape) > 1e6 else None]:
            with np.errstate(over="ignore"):
                expected = np.full(shape, value, dtype)
            assert engine.full(shape, value, dtype).numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("streams", [False, True])
def test_nothing_is_written_beyond(streams: bool) -> None:
    engine = CPUEngine(threads=1)
    room = engine.empty((4096,), dtypes.uint8)
    assert room.address % ISA.bytes == 0
    for size in [*range(70), 255, 256, 257, 511, 1024, 1031]:
        engine.fill(room, 9)
        plan = fills._plan(size)
        fills._loop(streams).alone(struct.pack("qq8s", plan.record.address, room.address + 512, bytes(range(1, 9))))
        found = room.numpy()
        assert (found[:512] == 9).all() and (found[512 + size :] == 9).all()
        assert found[512 : 512 + size].tobytes() == (bytes(range(1, 9)) * 200)[:size]


def test_the_order_of_axes() -> None:
    engine = CPUEngine(threads=1)
    x = engine.full((2, 3, 4), 1.5, dtypes.float32, (2, 0, 1))
    assert x.memory_order() == (2, 0, 1) and (x.numpy() == 1.5).all()
