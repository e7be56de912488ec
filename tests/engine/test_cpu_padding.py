"""The CPU engine's padding against NumPy, its gradient against the definition, with any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.composed import padding
from alpha.cpu import copies, streaming
from alpha.cpu import padding as padded
from alpha.cpu.engine import CPUEngine
from alpha.cpu.kernels import copies as kernels
from alpha.cpu.padding import MOST_AXES
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")
MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Our modes and NumPy's."""


def random_case(seed: int, mode: str) -> tuple[Array, tuple[int, ...], tuple[int, ...], list[int]]:
    """An array, what is put before and behind its axes, and an order in which they lie in memory."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, MOST_AXES + 2))
    shape = [int(n) for n in rng.choice([1, 2, 3, 5, 17, 40], ndim)]
    most = {"constant": 5, "reflect": -1, "replicate": 7, "circular": 0}[mode]
    before, after = (
        [int(rng.integers(0, 1 + (most if most > 0 else min(n + most, 9)))) if rng.random() < 0.7 else 0 for n in shape]
        for _ in range(2)
    )
    array = rng.integers(0, 100, shape).astype(rng.choice(DTYPES))
    return array, tuple(before), tuple(after), [int(axis) for axis in rng.permutation(ndim)]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 3])
def test_random_padding(mode: str, threads: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``large``: past the caches, a few rows per task, which x and what lies beside it share."""
    if large:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
        monkeypatch.setattr(copies, "STREAMED_ROW_BYTES", 0)
        monkeypatch.setattr(kernels, "TASK_BYTES", 1 << 10)
    padded._padding.cache_clear()
    engine = CPUEngine(threads=threads)
    for seed in range(60):
        array, before, after, order = random_case(seed, mode)
        x = engine.empty(array.shape, array.dtype, order)
        engine.copy(engine.from_numpy(array), x)
        found = engine.pad(x, before, after, mode, 1)
        options: dict[str, Any] = {"constant_values": 1} if mode == "constant" else {}
        counts = list(zip(before, after, strict=True))
        np.testing.assert_array_equal(np.asarray(found), np.pad(array, counts, MODES[mode], **options))
    padded._padding.cache_clear()


def test_what_lies_beside_rows_shares_their_tasks() -> None:
    wanted = padded._padding((500, 40, 8), (320, 8, 1), (0, 2, 0), (0, 2, 0), "reflect", 4)
    body, before, behind = ([int(n) for n in wanted.copies.record[1 + 11 * k :][:11]] for k in range(3))
    pieces = [kernels.Piece(*words) for words in (body, before, behind)]
    assert [piece.first for piece in pieces] == [0, 0, 0]
    assert [piece.units for piece in pieces] == [500, 1000, 1000]
    assert [piece.block for piece in pieces] == [pieces[0].block * share for share in (1, 2, 2)]
    assert wanted.copies.tasks == -(-500 // pieces[0].block) > 1


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "constant"])
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_random_gradients(mode: str, dtype: str) -> None:
    """Small integers, whose sums are exact whatever their order."""
    engines, reference = [CPUEngine(threads=n) for n in (1, 3)], alpha.engine("numpy")
    for seed in range(60):
        array, before, after, order = random_case(seed, mode)
        shape = [n + a + b for n, a, b in zip(array.shape, before, after, strict=True)]
        dy = np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)
        expected = padding.pad_grad(reference, reference.from_numpy(dy), before, after, mode)
        for engine in engines:
            gradient = engine.empty(dy.shape, dy.dtype, order)
            engine.copy(engine.from_numpy(dy), gradient)
            found = engine.pad_grad(gradient, before, after, mode)
            np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_threads_change_no_bits_of_a_gradient() -> None:
    dy = np.random.default_rng(0).standard_normal((700, 900)).astype(np.float32)
    found = [
        np.asarray(engine.pad_grad(engine.from_numpy(dy), (200, 100), (190, 300), mode)).tobytes()
        for mode in ("reflect", "replicate")
        for engine in (CPUEngine(threads=1), CPUEngine(threads=3))
    ]
    assert found[0] == found[1] and found[2] == found[3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_padded_with_a_number(dtype: str) -> None:
    engine = CPUEngine(threads=1)
    found = engine.pad(engine.from_numpy(np.zeros((0, 3), dtype)), (2, 1), (1, 0), "constant", 1)
    np.testing.assert_array_equal(np.asarray(found), np.ones((3, 4), dtype))
