"""The CPU engine's copies between layouts: every kernel against NumPy, with any number of threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu import copies
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import copies as kernels
from alpha.engine import Engine
from tests.engine.test_isa import AVAILABLE, run

Array = np.ndarray[Any, Any]
LENGTHS = (1, 2, 3, 7, 16, 17, 33, 64, 100)
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")


def random_layouts(engine: Engine, seed: int) -> tuple[alpha.Tensor, Array, alpha.Tensor]:
    """A view with gaps and axes in any order, as a tensor and as an array, and where to copy it, in another order."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 5))
    shape = [int(n) for n in rng.choice(LENGTHS, ndim)]
    shape[int(rng.integers(ndim))] *= max(1, -(-copies.SMALL // math.prod(shape)))
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
    ("shape", "source", "target", "item", "kernel"),
    [
        ((1000, 100), (1, 1000), (100, 1), 4, kernels.copy_tiles),  # a transposed matrix
        ((8, 28, 28, 64), (64 * 784, 28, 1, 784), (64 * 784, 64 * 28, 64, 1), 8, kernels.copy_tiles),  # channels last
        ((1000, 100), (200, 1), (100, 1), 1, kernels.copy_rows),  # half the columns
        ((28, 28, 8, 64), (64 * 28, 64, 64 * 784, 1), (28 * 512, 512, 64, 1), 4, kernels.copy_rows),  # image order
        ((1000, 100), (0, 1), (100, 1), 4, kernels.copy_rows),  # a row, repeated
        ((1000, 100), (100, -1), (100, 1), 4, kernels.copy_strided),  # reversed rows
        ((100_000,), (1,), (2,), 4, kernels.copy_strided),  # every other number
        ((1000, 3), (1, 1000), (3, 1), 4, kernels.copy_strided),  # too few columns for tiles
    ],
)
def test_the_kernel_that_serves(shape: Any, source: Any, target: Any, item: int, kernel: Any) -> None:
    plan = copies.planned(shape, source, target, item)
    assert plan is not None and plan.kernel is kernel
    inner = 2 if kernel is kernels.copy_tiles else 1
    assert plan.loops.shape == (3, plan.outer + inner)
    moved = math.prod(plan.loops[kernels.LENGTH].tolist())
    assert moved == math.prod(shape) * (item if kernel is kernels.copy_rows else 1)


def test_numpy_copies_what_is_dense_or_of_odd_size() -> None:
    assert copies.planned((1000, 100), (100, 1), (100, 1), 4) is None
    assert copies.planned((1000, 100), (1, 1000), (1, 1000), 4) is None
    assert copies.planned((1000, 100), (1, 1000), (100, 1), 1) is None
    assert copies.planned((1, 1), (1, 1), (1, 1), 4) is None


def test_large_results_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, where vectors are aligned and where they are not; threads share a single long row too."""
    monkeypatch.setattr(copies, "LARGE_BYTES", 0)
    engine = CPUEngine(threads=2)
    check(engine, range(100, 140))
    square = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    np.testing.assert_array_equal(alpha.tensor(square, engine=engine).T.contiguous(), square.T)


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
