"""Tensors of one number and of progressions on the CPU: every byte is written, and none beyond, on any threads."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import dtypes
from alpha.cpu import fills, streaming
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA
from alpha.cpu.loops import progression
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError

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
        job = struct.pack("qq8sq", plan.record.address, room.address + 512, bytes(range(1, 9)), 0)
        fills._loop(streams).alone(job)
        found = room.numpy()
        assert (found[:512] == 9).all() and (found[512 + size :] == 9).all()
        assert found[512 : 512 + size].tobytes() == (bytes(range(1, 9)) * 200)[:size]


def test_the_order_of_axes() -> None:
    engine = CPUEngine(threads=1)
    x = engine.full((2, 3, 4), 1.5, dtypes.float32, (2, 0, 1))
    assert x.memory_order() == (2, 0, 1) and (x.numpy() == 1.5).all()


def test_a_tensor_that_is_there_is_filled_within_its_bounds() -> None:
    for engine in (CPUEngine(threads=1), CPUEngine(threads=2)):
        room = engine.full((3_000_000,), 1, dtypes.float32)
        part = room.strided(5, (1_000_003, 2), (2, 1))
        engine.fill(part, -2.5)
        found = room.numpy()
        assert (found[5:2_000_011] == -2.5).all() and (found[:5] == 1).all() and (found[2_000_011:] == 1).all()


def test_a_number_becomes_what_numpy_makes_of_it() -> None:
    for dtype in dtypes.ALL:
        for value in (0, 1, True, 2.5, 255, -0.0, 1e300, -math.inf, math.nan, np.float32(0.1), np.int64(7)):
            if not dtypes.is_float(dtype) and not (dtypes.is_bool(dtype) or float(value) in (0, 1, 7, 255)):
                continue
            with np.errstate(all="ignore"):
                assert fills.pattern(value, dtype) == np.full(8 // dtype.itemsize, value, dtype).tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_launches_of_full_like(dtype: np.dtype[np.generic]) -> None:
    """Numbers that are equal but differ in bits or type, an infinity, other shapes and orders: each has its own."""
    values = [0, 1, True, *([0.0, -0.0, 0.1, math.inf, math.nan] if dtypes.is_float(dtype) else [])]
    for engine in (CPUEngine(threads=1), CPUEngine(threads=2)):
        for shape in ((), (0, 3), (5,), (7, 9), (600, 1000)):
            x = engine.full(shape, 1, dtype)
            for value in values * 3:
                found = alpha.full_like(x, value)
                assert found.dtype == dtype and found.shape == shape and found.storage is not x.storage
                assert found.numpy().tobytes() == np.full(shape, value, dtype).tobytes()
        turned = engine.full((7, 9), 1, dtype).T
        assert [alpha.ones_like(turned).strides for _ in range(3)] == [turned.strides] * 3
        assert alpha.full_like(x, 1, dtype=dtypes.float32).dtype == dtypes.float32


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_launches_of_full(dtype: np.dtype[np.generic]) -> None:
    values: list[Any] = [0, 1, True, False]
    if dtypes.is_float(dtype):
        values += [0.0, -0.0, 0.1, 1e-42, -2.5, 2**60 + 1, math.inf, -math.inf, math.nan, dtypes.limits(dtype)[1]]
    elif not dtypes.is_bool(dtype):
        values += dtypes.limits(dtype)
    for engine in (CPUEngine(threads=1), CPUEngine(threads=2)):
        for shape in ((), (0, 3), (5,), (7, 9), (600, 1003)):
            for value in values * 2:
                found, expected = alpha.full(shape, value, dtype=dtype, engine=engine), np.full(shape, value, dtype)
                assert found.dtype == dtype and found.shape == shape and found.engine is engine
                assert found.numpy().tobytes() == expected.tobytes(), value


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_diagonals(dtype: np.dtype[np.generic]) -> None:
    """In one task and in several, on any threads, kept in the caches and written past them, at first and once known."""
    shapes = [(1, 1), (3, 3), (2, 5), (5, 2), (300, 1), (1, 300), (0, 3), (0, 0), (700, 1003), (1003, 700)]
    for engine in (CPUEngine(threads=1), CPUEngine(threads=2)):
        for rows, columns in (*shapes, (4003, streaming.STREAMED_BYTES // 4000 // dtype.itemsize)):
            expected = np.eye(rows, columns, dtype=dtype)
            for _ in range(3):
                found = alpha.eye(rows, columns, dtype=dtype, engine=engine)
                assert found.dtype == dtype and found.shape == (rows, columns) and found.is_contiguous()
                assert found.numpy().tobytes() == expected.tobytes()
        assert alpha.eye(3, dtype=dtype, engine=engine).tolist() == np.eye(3, dtype=dtype).tolist()


@pytest.mark.parametrize("streams", [False, True])
def test_nothing_is_written_beyond_a_diagonal(streams: bool) -> None:
    engine = CPUEngine(threads=1)
    room = engine.empty((8192,), dtypes.uint8)
    for dtype in dtypes.ALL:
        for rows, columns in ((1, 1), (3, 7), (7, 3), (1, 31), (31, 1), (11, 13), (29, 30)):
            engine.fill(room, 9)
            plan, expected = fills._diagonal(rows, columns, dtype), np.eye(rows, columns, dtype=dtype).tobytes()
            fills._diagonal_loop(dtype.itemsize, streams).alone(
                struct.pack("qq", plan.record.address, room.address + 64)
            )
            found = room.numpy()
            assert (found[:64] == 9).all() and (found[64 + len(expected) :] == 9).all()
            assert found[64 : 64 + len(expected)].tobytes() == expected


def test_shapes_of_diagonals_are_checked_after_a_launch_too() -> None:
    for _ in range(3):
        assert alpha.eye(2, 1).tolist() == [[1], [0]]
        for shape in ((True,), (2.0,), (2, True), (-1,), (2**40, 2**40), ((2, 1),), (None,)):
            with pytest.raises(ShapeError, match=r"\[eye\]"):
                alpha.eye(*shape)  # type: ignore[arg-type]
    assert alpha.eye(2, requires_grad=True).requires_grad and not alpha.eye(2).requires_grad


def test_numbers_that_a_dtype_does_not_hold_are_errors_after_a_launch_too() -> None:
    beyond = [(dtypes.float32, 1e300), (dtypes.float32, -3.5e38), (dtypes.uint8, 256), (dtypes.uint8, -1)]
    for dtype, value in [*beyond, (dtypes.int32, 2**31), (dtypes.int64, 2**63), (dtypes.float64, 10**400)]:
        x = alpha.full((3, 5), 1, dtype=dtype)
        alpha.full_like(x, 0)
        for _ in range(2):
            with pytest.raises(ArgumentError):
                alpha.full((3, 5), value, dtype=dtype)
            with pytest.raises(ArgumentError):
                alpha.full_like(x, value)


def test_shapes_of_creators() -> None:
    """Lengths, a tuple, a list, and what is none of these, before and after a launch."""
    for _ in range(2):
        for made in (alpha.zeros(2, 3), alpha.zeros((2, 3)), alpha.ones([2, 3]), alpha.full([2, 3], 1.0)):
            assert made.shape == (2, 3) and made.dtype == dtypes.float32
        assert alpha.full(2, 1.0).shape == alpha.zeros(2).shape == alpha.zeros(np.int64(2)).shape == (2,)
        assert alpha.zeros(3, dtype=None).dtype == dtypes.float32 and alpha.full(3, 0).dtype == dtypes.int64
        assert alpha.ones(2, 3, requires_grad=True).requires_grad and not alpha.ones(2, 3).requires_grad
        for shape in ((-1,), (2.0,), (True,), ((2, (3,)),), ("2",)):
            with pytest.raises(ShapeError):
                alpha.zeros(*shape)


PROGRESSIONS: list[tuple[int | float, int | float]] = [
    (0, 1), (-7, 3), (5, -2), (2**62, 2**60), (2**40, 1), (0.0, 0.1), (-1.5, 1e-3), (1e16, 0.3), (1e308, 1e306),
]  # fmt: skip


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("streams", [False, True])
def test_progressions(dtype: np.dtype[np.generic], streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as numbers made by NumPy, piece by piece."""
    if streams:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    engines = [CPUEngine(threads=1), CPUEngine(threads=3)]
    for first, step in PROGRESSIONS:
        for count in (0, 1, 2, 7, 33, 1000, progression.TASK, 3 * progression.TASK + 5):
            with np.errstate(all="ignore"):
                expected = Engine.progression(engines[0], first, step, count, dtype).numpy().tobytes()
                for engine in engines:
                    assert engine.progression(first, step, count, dtype).numpy().tobytes() == expected


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.int32, dtypes.float32, dtypes.float64], ids=str)
def test_arange_is_numpys(dtype: np.dtype[np.generic]) -> None:
    for given in ((10,), (0, 100_000), (5, -70_000, -3), (0.0, 1000.0, 0.1), (-1.0, 1.0, 1e-5)):
        if isinstance(given[-1], float) and not dtypes.is_float(dtype):
            continue
        expected = np.arange(*given).astype(dtype)
        np.testing.assert_array_equal(alpha.arange(*given, dtype=dtype), expected)
