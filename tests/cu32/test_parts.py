"""The sum of parts: each of its kernels and both ways of sharing out, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.cu32.base import DeviceEngine
from alpha.cu32.parts import sum_parts

# One rounding of a compensated sum, and one of each lane's.
BOUND = {"float32": 1e-6, "float64": 1e-15}


@pytest.mark.parametrize("number", [1, 2, 7, 8, 9, 33, 300])
@pytest.mark.parametrize("count", [1, 4, 5, 1000, 4099])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sum_parts(cu32: DeviceEngine, rng: np.random.Generator, dtype: str, count: int, number: int) -> None:
    """Counts that vectors divide and that they don't; few parts (one thread per element) and many (eight)."""
    parts: Any = rng.standard_normal((number, count)).astype(dtype)
    out = cu32.empty((count,), np.dtype(dtype))
    sum_parts(cu32, cu32.from_numpy(parts).storage, number, out)
    expected = parts.astype(np.longdouble).sum(0)
    assert np.abs(cu32.to_numpy(out) - expected).max() <= BOUND[dtype] * np.abs(parts).sum(0).max()


def test_more_elements_than_fill_the_device(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    """Then a thread adds all parts of its elements, however many."""
    count = 16 * 256 * cu32.device.multiprocessors + 4
    parts = rng.standard_normal((8, count)).astype(np.float32)
    out = cu32.empty((count,), np.dtype(np.float32))
    sum_parts(cu32, cu32.from_numpy(parts).storage, 8, out)
    expected = parts.astype(np.float64).sum(0)
    assert np.abs(cu32.to_numpy(out) - expected).max() <= BOUND["float32"] * np.abs(parts).sum(0).max()
