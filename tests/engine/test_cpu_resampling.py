"""The CPU engine's resampling against the definition: any layout, past the caches too, the same bits on any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.cpu import resampling, streaming
from alpha.cpu.engine import CPUEngine
from alpha.cpu.loops import pixels
from alpha.engine import IMAGE_ORDER, WeightedPairs

Array = np.ndarray[Any, Any]
ENGINES = [CPUEngine(threads=threads) for threads in (1, 3)]


def random_pairs(rng: np.random.Generator, length: int) -> tuple[WeightedPairs, Array]:
    """Up to four sources for each of some positions, and the same as a matrix."""
    positions = int(rng.integers(1, 12))
    counts = rng.integers(0, 5, positions)
    owners, sources = np.repeat(np.arange(positions), counts), rng.integers(0, length, counts.sum())
    weights = rng.integers(-3, 4, len(sources)).astype(np.float64)
    matrix = np.zeros((positions, length))
    np.add.at(matrix, (owners, sources), weights)
    return WeightedPairs.make(owners, sources, weights, positions), matrix


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_random_images(seed: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small integers, whose sums are exact whatever their order."""
    if large:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    rng = np.random.default_rng(seed)
    n, h, w = (int(k) for k in rng.integers(1, 9, 3))
    channels = int(rng.choice([1, 3, 16, 24, 64, 100, 1500]))
    x = rng.integers(-9, 10, (n, h, w, channels)).astype(rng.choice(["float32", "float64"]))
    (rows, down), (columns, across) = random_pairs(rng, h), random_pairs(rng, w)
    expected = np.einsum("ph,qw,nhwc->npqc", down, across, x.astype(np.float64))
    for engine in ENGINES:
        for order in (None, IMAGE_ORDER, (3, 1, 0, 2)):
            image = engine.empty(x.shape, x.dtype, order)
            engine.copy(engine.from_numpy(x), image)
            np.testing.assert_array_equal(np.asarray(engine.resample(image, rows, columns)), expected)
    resampling._plan.cache_clear()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("pairs", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_pixel_or_two_by_two(dtype: str, pairs: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nearest and bilinear interpolation make of images has code of its own."""
    if large:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
        monkeypatch.setattr(pixels, "LONG_PIECE_BYTES", 1 << 10)
    rng = np.random.default_rng(pairs)
    for channels in (1, 5, 64, 1030):
        x = rng.integers(-9, 10, (3, 7, 6, channels)).astype(dtype)
        axes, matrices = [], []
        for length in (7, 6):
            owners, sources = np.repeat(np.arange(20), pairs), rng.integers(0, length, 20 * pairs)
            weights = rng.integers(-3, 4, len(sources)) if pairs == 2 else np.ones(len(sources))
            matrix = np.zeros((20, length))
            np.add.at(matrix, (owners, sources), weights)
            axes.append(WeightedPairs.make(owners, sources, weights.astype(np.float64), 20))
            matrices.append(matrix)
        expected = np.einsum("ph,qw,nhwc->npqc", *matrices, x.astype(np.float64))
        for engine in ENGINES:
            for order in (None, IMAGE_ORDER):
                image = engine.empty(x.shape, x.dtype, order)
                engine.copy(engine.from_numpy(x), image)
                np.testing.assert_array_equal(np.asarray(engine.resample(image, *axes)), expected)
    resampling._plan.cache_clear()


@pytest.mark.parametrize("large", [False, True])
def test_pixels_of_which_each_is_read_once(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over windows that do not overlap, some of them empty, in pieces that end anywhere."""
    if large:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
        monkeypatch.setattr(pixels, "LONG_PIECE_BYTES", 1 << 10)
    rng = np.random.default_rng(2)
    for channels in (1, 64, 1030):
        x = rng.integers(-9, 10, (2, 12, 9, channels)).astype(np.float32)
        axes, matrices = [], []
        for length in (12, 9):
            owners = np.sort(rng.integers(0, 5, length))
            axes.append(WeightedPairs.make(owners, rng.permutation(length), np.ones(length), 5))
            assert axes[-1].reads_once
            matrices.append(np.zeros((5, length)))
            np.add.at(matrices[-1], (owners, axes[-1].sources), 1)
        expected = np.einsum("ph,qw,nhwc->npqc", *matrices, x.astype(np.float64))
        for engine in ENGINES:
            for order in (None, IMAGE_ORDER):
                image = engine.empty(x.shape, x.dtype, order)
                engine.copy(engine.from_numpy(x), image)
                np.testing.assert_array_equal(np.asarray(engine.resample(image, *axes)), expected)
    resampling._plan.cache_clear()


def test_threads_change_no_bits() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 40, 50, 64)).astype(np.float32)
    rows, columns = random_pairs(rng, 40)[0], random_pairs(rng, 50)[0]
    one, three = (np.asarray(engine.resample(engine.from_numpy(x), rows, columns)).tobytes() for engine in ENGINES)
    assert one == three


def test_a_pixel_that_is_only_moved_keeps_its_bits() -> None:
    x = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-45], np.float32).reshape(1, 1, 6, 1).repeat(20, 3)
    once = WeightedPairs.make(np.arange(1), np.zeros(1, np.int64), np.ones(1), 1)
    back = WeightedPairs.make(np.arange(6), np.arange(6)[::-1].copy(), np.ones(6), 6)
    found = np.asarray(ENGINES[0].resample(ENGINES[0].from_numpy(x), once, back))
    np.testing.assert_array_equal(found.view(np.int32), x[:, :, ::-1].view(np.int32))
