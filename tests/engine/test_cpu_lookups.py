"""The CPU engine's lookups along an axis, against NumPy: any layout, the same bits with any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.cpu import lookups, streaming
from alpha.cpu.engine import CPUEngine
from alpha.errors import IndexingError
from alpha.records import RangeCheck
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
    part = table.strided(0, (2, 3, 4, 3), table.strides)  # the last two axes are no longer one
    index = np.random.default_rng(0).integers(0, 3, (2, 2, 4, 3))
    assert not lookups.lines_along(part.shape, part.strides, index.shape, 1, 4, 0).serves
    expected = np.take_along_axis(x[..., :3], index, 1)
    np.testing.assert_array_equal(engine.gather_along(part, engine.from_numpy(index), 1), expected)


@pytest.mark.parametrize("rows", [2, 3, 5, 70])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_columns_by_one_list_of_indices(dtype: str, rows: int) -> None:
    """Lists longer than those that are turned into offsets at a time, negative indices, repeated ones, any layout."""
    rng = np.random.default_rng(rows)
    for length in (1, 3, 511, 1029):
        x = (10 * rng.standard_normal((rows, 37))).astype(dtype)
        index = rng.integers(-37, 37, length)
        for engine in ENGINES:
            for order in ([0, 1], [1, 0]):
                table, at = in_order(engine, x, order), engine.from_numpy(index)
                np.testing.assert_array_equal(engine.take_entries(table, at, 1, True), x[:, index])
                if dtype.startswith("float"):
                    values = rng.standard_normal((rows, length)).astype(dtype)
                    assert engine.add_entries(table, engine.from_numpy(index % 37), 1, engine.from_numpy(values))
                    expected = x.copy()
                    np.add.at(expected, (slice(None), index % 37), values)
                    np.testing.assert_array_equal(np.asarray(table), expected)
                assert engine.take_entries(table, engine.from_numpy(np.append(index, 37)), 1, True) is None
                assert engine.take_entries(table, engine.from_numpy(np.append(index, -38)), 1, True) is None
                assert engine.take_entries(table, engine.from_numpy(np.append(index, -1)), 1, True, False) is None


def test_an_index_out_of_range_is_left_out_where_numbers_are_added() -> None:
    for engine in ENGINES:
        table = engine.full((5, 4), 0, np.dtype(np.float32))
        index = engine.from_numpy(np.array([0, 9, -3, 3]))
        assert engine.add_entries(table, index, 1, engine.full((5, 4), 1, np.dtype(np.float32)))
        np.testing.assert_array_equal(np.asarray(table), np.tile(np.array([1, 0, 0, 1], np.float32), (5, 1)))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16_384, 40_003, 1 << 20])
def test_indices_are_checked_in_parts(count: int) -> None:
    """Whatever part an index lies in, on any number of threads: the first out of range is told, all others mended."""
    given = np.random.default_rng(count).integers(-50, 50, count)
    given[given % 10 == 7] = -99
    mended = np.where(given == -99, 0, given % 50)
    outside = RangeCheck(IndexingError, "got {value} at {position}")
    for engine in ENGINES:
        index = engine.from_numpy(given)
        np.testing.assert_array_equal(engine.check_range(index, -50, 50, outside, -99), mended)
        assert engine.check_labels(engine.from_numpy(mended), 50, outside, -99)[1] is False
        labels, ignores = engine.check_labels(engine.from_numpy(np.where(given == -99, -99, mended)), 50, outside, -99)
        np.testing.assert_array_equal(labels, mended)
        assert ignores == (-99 in given)
        for place in {0, count // 2, count - 1}:
            bad = given.copy()
            bad[place:] = np.where(bad[place:] % 2, 2**62, -(2**63))
            with pytest.raises(IndexingError, match=rf"got {bad[place]} at {place}$"):
                engine.check_range(engine.from_numpy(bad), -50, 50, outside, -99)
            try:
                engine.check(False)
                expected = np.where(np.arange(count) < place, mended, 0)
                np.testing.assert_array_equal(
                    engine.check_range(engine.from_numpy(bad), -50, 50, outside, -99), expected
                )
            finally:
                engine.check(True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(3, 40), (1, 40_000), (40_000,), (5, 1029), (2, 3, 7, 1), (70, 1)])
def test_what_is_kept_of_an_index_for_the_gradient(shape: tuple[int, ...], dtype: str) -> None:
    """Lines longer than a task and than what is checked at a time; larger tables; the same bits on all threads."""
    rng = np.random.default_rng(len(shape))
    axis = len(shape) - 1 - (shape[-1] == 1 and len(shape) > 2)
    table = [n + (a != axis) if len(shape) == 2 and dtype == "float64" else n for a, n in enumerate(shape)]
    x, dy = ((10 * rng.standard_normal(size)).astype(dtype) for size in (table, shape))
    index = rng.integers(-shape[axis], shape[axis], shape)
    positions = list(np.indices(shape))
    positions[axis] = index
    expected, found = np.zeros(table, dtype), []
    np.add.at(expected, tuple(positions), dy)
    outside = RangeCheck(IndexingError, "got {value} at {position}")
    for engine in ENGINES:
        given = engine.from_numpy(x)
        taken, kept = engine.gather_along_kept(given, engine.from_numpy(index), axis, outside)
        np.testing.assert_array_equal(taken, x[tuple(positions)])
        order = range(len(shape))
        grad = engine.gather_along_grad(engine.from_numpy(dy), kept, axis, tuple(table), order)
        np.testing.assert_array_equal(grad, expected)
        engine.scatter_along(grad, kept, engine.from_numpy(dy), axis)
        found.append(np.asarray(grad).tobytes())
        bad = index.copy()
        bad[(-1,) * len(shape)] = shape[axis]
        with pytest.raises(IndexingError, match=f"got {shape[axis]} at {index.size - 1}"):
            engine.gather_along_kept(given, engine.from_numpy(bad), axis, outside)
    assert found[0] == found[1]
    empty = engine.from_numpy(np.zeros((*shape[:axis], 0, *shape[axis + 1 :]), np.int64))
    _, kept = engine.gather_along_kept(given, empty, axis, outside)
    nothing = engine.empty(empty.shape, np.dtype(dtype))
    assert not np.asarray(engine.gather_along_grad(nothing, kept, axis, tuple(table), order)).any()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("shape", [(9, 700), (2, 5, 1100), (40, 7, 3), (6, 1), (300, 5)])
def test_entries_are_overwritten_by_threads(
    shape: tuple[int, ...], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of equal indices counts, on any number of threads, past the caches too; a wrong one changes nothing."""
    if large:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    rng = np.random.default_rng(sum(shape))
    for dtype in ("float32", "int64"):
        for axis in range(len(shape)):
            n = shape[axis]
            index = rng.integers(-n, n, 2 * n)
            size = (*shape[:axis], 2 * n, *shape[axis + 1 :])
            x, values = ((100 * rng.standard_normal(one)).astype(dtype) for one in (shape, size))
            expected, place = x.copy(), (slice(None),) * axis
            for k, entry in enumerate(index):
                expected[(*place, entry)] = values[(*place, k)]
            for engine in ENGINES:
                table = engine.from_numpy(x)
                assert engine.put_entries(table, engine.from_numpy(index), axis, engine.from_numpy(values))
                np.testing.assert_array_equal(table, expected)
                np.testing.assert_array_equal(
                    engine.take_entries(table, engine.from_numpy(index), axis, True), np.take(expected, index % n, axis)
                )
                job = lookups.lines_of_entries(
                    lookups.PUT_ENTRIES, x.shape, table.strides, (2 * n,), axis, x.itemsize, 3
                )
                wrong = np.zeros(1, np.int64)
                bad = engine.from_numpy(np.append(index[:-1], n))
                looked = lookups.Looked(bad, table, engine.from_numpy(values + 1))
                engine.look_up(lookups.PUT_ENTRIES, job, looked, wrong.ctypes.data)
                assert wrong[0] == 1
                np.testing.assert_array_equal(table, expected)
    lookups.lines_of_entries.cache_clear()
