"""The CPU engine's indexing by masks, against NumPy: every number's size, any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.cpu.engine import CPUEngine

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((3,), 1), ((100_003,), 1), ((300, 401), 2), ((300, 401), 1), ((5, 7, 11), 2), ((70_000, 2), 1), ((4, 0), 1)
)  # fmt: skip
"""Shapes, and how many of their first axes the mask covers."""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(dtype: str, share: float, threads: int) -> None:
    engine, rng = CPUEngine(threads=threads), np.random.default_rng(0)
    for shape, axes in SHAPES:
        array = rng.integers(0, 100, shape).astype(dtype)
        mask: Array = np.asarray(rng.random(shape[:axes]) < share)
        index = (engine.from_numpy(mask), *(slice(None) for _ in shape[axes:]))
        np.testing.assert_array_equal(engine.gather(engine.from_numpy(array), index), array[mask])
        values = rng.integers(0, 100, array[mask].shape).astype(dtype)
        row = rng.integers(0, 100, shape[axes:]).astype(dtype)
        for value in (values, row, np.asarray(1, dtype)):
            out, expected = engine.from_numpy(array), array.copy()
            engine.scatter(out, index, engine.from_numpy(value), False)
            expected[mask] = value
            np.testing.assert_array_equal(np.asarray(out), expected)
        out, expected = engine.from_numpy(array), array.copy()
        engine.scatter(out, index, engine.from_numpy(values), True)
        expected[mask] += values
        np.testing.assert_array_equal(np.asarray(out), expected)
        engine.scatter(out, index, 1, False)
        expected[mask] = 1
        np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_masks_over_other_layouts(threads: int) -> None:
    """Transposed tensors and masks, and views with gaps, whose other numbers stay as they are."""
    engine, rng = CPUEngine(threads=threads), np.random.default_rng(1)
    array, mask = rng.random((301, 203), np.float32), rng.random((301, 203)) < 0.5
    for transposed in (False, True):
        x, chosen = engine.from_numpy(array.T).transpose(0, 1), engine.from_numpy(mask)
        if transposed:
            chosen = engine.from_numpy(mask.T).transpose(0, 1)
        np.testing.assert_array_equal(engine.gather(x, (chosen,)), array[mask])
        engine.scatter(x, (chosen,), 5.0, False)
        np.testing.assert_array_equal(np.asarray(x), np.where(mask, np.float32(5), array))
    whole = engine.from_numpy(array)
    engine.scatter(whole[:, :100], (engine.from_numpy(mask[:, :100].copy()),), -1.0, False)
    expected = array.copy()
    expected[:, :100][mask[:, :100]] = -1
    np.testing.assert_array_equal(np.asarray(whole), expected)


def test_bits_pass_unchanged() -> None:
    """Integers pass through the kernels as floats of their size, among them what are signalling NaN."""
    bits = np.tile(np.array([0x7F800001, 0xFFC12345, 1, 2], np.uint32).view(np.int32), 1000)
    mask = np.random.default_rng(0).random(4000) < 0.5
    engine = CPUEngine(threads=1)
    found = engine.gather(engine.from_numpy(bits), (engine.from_numpy(mask),))
    np.testing.assert_array_equal(found, bits[mask])
    out = engine.from_numpy(np.zeros(4000, np.int32))
    engine.scatter(out, (engine.from_numpy(mask),), found, False)
    np.testing.assert_array_equal(np.asarray(out), np.where(mask, bits, 0))
