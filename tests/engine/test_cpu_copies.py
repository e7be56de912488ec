"""The CPU engine's copies between layouts: every kernel against NumPy, with any number of threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu import copies, streaming
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import copies as kernels
from alpha.engine import Engine
from tests.engine.test_isa import AVAILABLE, run

Array = np.ndarray[Any, Any]
LENGTHS = (1, 2, 3, 7, 16, 17, 33, 64, 100)
SIZE = 1 << 15
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")


def random_layouts(engine: Engine, seed: int) -> tuple[alpha.Tensor, Array, alpha.Tensor]:
    """A view with gaps and axes in any order, as a tensor and as an array, and where to copy it, in another order."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 5))
    shape = [int(n) for n in rng.choice(LENGTHS, ndim)]
    shape[int(rng.integers(ndim))] *= max(1, -(-SIZE // math.prod(shape)))
    gaps = [2 if rng.random() < 0.2 else 1 for _ in shape]
    memory = rng.integers(0, 100, [n * gap for n, gap in zip(shape, gaps, strict=True)]).astype(rng.choice(DTYPES))
    key = tuple(slice(None, None, gap) for gap in gaps)
    axes = tuple(int(axis) for axis in rng.permutation(ndim))
    view, array = alpha.tensor(memory, engine=engine)[key].permute(axes), memory[key].transpose(axes)
    return view, array, engine.empty(array.shape, array.dtype, [int(axis) for axis in rng.permutation(ndim)])


def check(engine: Engine, seeds: range) -> None:
    for seed in seeds:
        view, array, out = random_layouts(engine, seed)
        engine.copy(view, out)
        np.testing.assert_array_equal(np.asarray(out), array)
        reverse = tuple(axis for axis in range(view.ndim) if axis != seed % 3)
        if reverse:
            np.testing.assert_array_equal(np.asarray(alpha.flip(view, reverse)), np.flip(array, reverse))


@pytest.mark.parametrize("threads", [1, 3])
def test_random_layouts(threads: int) -> None:
    check(CPUEngine(threads=threads), range(100))


@pytest.mark.slow
@pytest.mark.parametrize("path", [path.name for path in AVAILABLE if path is not ISA])
def test_random_layouts_on_another_path(path: str) -> None:
    script = "from tests.engine.test_cpu_copies import *; check(CPUEngine(threads=2), range(60)); print('held')"
    process = run(path, script)
    assert process.stdout == "held\n", process.stderr


@pytest.mark.parametrize(
    ("shape", "source", "target", "item", "kind"),
    [
        ((1000, 100), (1, 1000), (100, 1), 4, kernels.TILES),  # a transposed matrix
        ((8, 28, 28, 64), (64 * 784, 28, 1, 784), (64 * 784, 64 * 28, 64, 1), 8, kernels.TILES),  # channels last
        ((1000, 100), (200, 1), (100, 1), 1, kernels.ROWS),  # half the columns
        ((28, 28, 8, 64), (64 * 28, 64, 64 * 784, 1), (28 * 512, 512, 64, 1), 4, kernels.ROWS),  # image order
        ((1000, 100), (0, 1), (100, 1), 4, kernels.ROWS),  # a row, repeated
        ((1000, 100), (1, 0), (100, 1), 4, kernels.FILL),  # a column, repeated
        ((1000, 100), (100, -1), (100, 1), 4, kernels.STRIDED),  # reversed rows
        ((100_000,), (1,), (2,), 4, kernels.STRIDED),  # every other number
        ((1000, 3), (1, 1000), (3, 1), 4, kernels.STRIDED),  # too few columns for tiles
        ((1000, 100), (1, 1000), (100, 1), 1, kernels.STRIDED),  # bytes have no tiles
    ],
)
def test_how_numbers_are_copied(shape: Any, source: Any, target: Any, item: int, kind: int) -> None:
    found, loops = copies.planned_loops(copies.Copy(2, shape, 0, source, 0, target), item)
    assert found == kind
    moved = math.prod(length for length, _, _ in loops)
    assert moved == math.prod(shape) * (item if kind == kernels.ROWS else 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_lengths_that_tasks_do_not_divide(dtype: str, threads: int) -> None:
    """A prime number of numbers: dense, every other one, reversed, and one repeated."""
    engine, array = CPUEngine(threads=threads), np.arange(2 * 100_003).astype(dtype)
    x = alpha.tensor(array, engine=engine)
    for view, wanted in (
        (x[:100_003], array[:100_003]),
        (x[::2], array[::2]),
        (x[5].expand((100_003,)), np.full(100_003, array[5])),
    ):
        out = engine.empty((100_003,), array.dtype)
        engine.copy(view, out)
        np.testing.assert_array_equal(np.asarray(out), wanted)
        np.testing.assert_array_equal(np.asarray(alpha.flip(view, 0)), wanted[::-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_tensors_one_after_another(dtype: str, threads: int) -> None:
    """Along every axis, with views, empty tensors and repeated numbers among them."""
    engine, rng = CPUEngine(threads=threads), np.random.default_rng(0)
    whole = rng.integers(0, 100, (40, 60, 70)).astype(dtype)
    x = alpha.tensor(whole, engine=engine)
    for axis in range(3):
        cut = tuple(slice(None, None, 3) if a == axis else slice(None) for a in range(3))
        none = tuple(slice(0) if a == axis else slice(None) for a in range(3))
        one = x[:1, :1, :1].expand(x.shape)
        found = engine.concat([x[cut], x, x[none], one], axis)
        wanted = np.concatenate([whole[cut], whole, np.broadcast_to(whole[:1, :1, :1], whole.shape)], axis)
        np.testing.assert_array_equal(np.asarray(found), wanted)
        swapped = engine.concat([x.transpose(0, 2), x.transpose(0, 2)[cut]], axis)
        turned = whole.transpose(2, 1, 0)
        np.testing.assert_array_equal(np.asarray(swapped), np.concatenate([turned, turned[cut]], axis))
        assert swapped.memory_order() == (2, 1, 0)


def test_more_tensors_than_a_plan_has() -> None:
    engine = CPUEngine(threads=2)
    many = [alpha.tensor(np.full((3, 1 + i % 3), i, np.int32), engine=engine) for i in range(copies.MOST_COPIES + 1)]
    wanted = np.concatenate([np.asarray(x) for x in many], 1)
    np.testing.assert_array_equal(np.asarray(engine.concat(many, 1)), wanted)


def test_large_results_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, where vectors are aligned and where they are not; threads share a single long row too."""
    monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    monkeypatch.setattr(copies, "STREAMED_ROW_BYTES", 0)
    copies.plan_of.cache_clear()
    copies._flipped.cache_clear()
    engine = CPUEngine(threads=2)
    check(engine, range(100, 140))
    square = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    np.testing.assert_array_equal(alpha.tensor(square, engine=engine).T.contiguous(), square.T)
    copies.plan_of.cache_clear()
    copies._flipped.cache_clear()


def test_overlapping_memory_is_copied_as_if_it_were_not() -> None:
    engine = CPUEngine(threads=2)
    array = np.arange(300 * 300, dtype=np.float32).reshape(300, 300)
    x = alpha.tensor(array, engine=engine)
    engine.copy(x.transpose(0, 1), x)
    np.testing.assert_array_equal(np.asarray(x), array.T)


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    engine = CPUEngine(threads=1)
    out = engine.empty((300, 300))
    for shape in ((300, 299), (2, 300, 300)):
        with pytest.raises(ValueError, match="broadcast"):
            engine.copy(alpha.zeros(shape, engine=engine), out)
