"""The CPU engine's lookups along an axis, against NumPy: any layout, the same bits with any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.cpu import lookups
from alpha.cpu.engine import CPUEngine
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
ENGINES = [CPUEngine(threads=threads) for threads in (1, 3)]


def in_order(engine: CPUEngine, array: Array, order: list[int]) -> Tensor:
    """The array as a tensor whose axes lie in memory in an order."""
    out = engine.empty(array.shape, array.dtype, order)
    engine.copy(engine.from_numpy(array), out)
    return out


@pytest.mark.parametrize("seed", range(40))
def test_random_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 5))
    shape = [int(n) for n in rng.choice([1, 2, 3, 5, 17, 40], ndim)]
    axis, order = int(rng.integers(ndim)), [int(a) for a in rng.permutation(ndim)]
    sizes = [n if rng.random() < 0.7 else max(1, n - 1) for n in shape]
    sizes[axis] = int(rng.integers(1, 30))
    dtype = rng.choice(["float32", "float64", "int64", "int32", "uint8"])
    x, values = ((10 * rng.standard_normal(size)).astype(dtype) for size in (shape, sizes))
    index, rows = rng.integers(0, shape[axis], sizes), rng.integers(0, shape[axis], 7)
    found = []
    for engine in ENGINES:
        table, at = in_order(engine, x, order), engine.from_numpy(index)
        part = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(sizes))]
        np.testing.assert_array_equal(engine.gather_along(table, at, axis), np.take_along_axis(part, index, axis))
        engine.scatter_along(table, at, engine.from_numpy(values), axis)
        expected, places = x.copy(), list(np.indices(sizes))
        places[axis] = index
        np.add.at(expected, tuple(places), values)
        np.testing.assert_array_equal(np.asarray(table), expected)  # each sum in the order of the indices
        entries: Any = tuple(engine.from_numpy(rows) if a == axis else slice(None) for a in range(ndim))
        added = np.take(expected, rows, axis)
        np.testing.assert_array_equal(engine.gather(table, entries), added)
        engine.scatter(table, entries, engine.from_numpy(added), True)
        np.add.at(expected, (slice(None),) * axis + (rows,), added)
        np.testing.assert_array_equal(np.asarray(table), expected)
        found.append(np.array(np.asarray(table)).tobytes())
    assert found[0] == found[1]


def test_looking_up_changes_no_bits() -> None:
    """Integers pass through the kernels as floats of their size, among them what are signalling NaN."""
    bits = np.array([0x7F800001, 0xFFC12345, 1, 2], np.uint32).view(np.int32)
    table = np.tile(bits, 1 << 12)
    for engine in ENGINES:
        index = engine.from_numpy(np.arange(len(table))[::-1].copy())
        found = engine.gather_along(engine.from_numpy(table), index, 0)
        np.testing.assert_array_equal(found, table[::-1])


def test_axes_with_gaps_go_the_default_way() -> None:
    engine = ENGINES[0]
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    table = engine.from_numpy(x)
    part = table.view(0, (2, 3, 4, 3), table.strides)  # the last two axes are no longer one
    index = np.random.default_rng(0).integers(0, 3, (2, 2, 4, 3))
    assert not lookups.lines_along(part.shape, part.strides, index.shape, 1, 4, 0).serves
    expected = np.take_along_axis(x[..., :3], index, 1)
    np.testing.assert_array_equal(engine.gather_along(part, engine.from_numpy(index), 1), expected)
