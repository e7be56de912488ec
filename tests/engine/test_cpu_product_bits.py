"""The bits of a product of matrices on the CPU: the same for any number of the engine's threads, and of BLAS's."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import alpha
from tests.tiers import FLOAT_NAMES

SHAPES = [(70, 999, 33), (7, 1200, 333), (129, 700, 65), (101, 99, 103), (3, 300, 1001), (17, 1200, 12), (61, 67, 63)]
"""Rows, depth and columns: all but the last two BLAS divides between its threads."""

BATCHED = [*SHAPES, (1, 30000, 1), (1, 200, 300), (150, 100, 1)]
"""Those of the matrices in batches: BLAS divides vectors' products too."""

PROGRAM = """
import hashlib, sys
import numpy as np
import alpha

rng, digest = np.random.default_rng(0), hashlib.sha256()
engine = alpha.engine("cpu", threads=int(sys.argv[1]))
for batch, (rows, depth, columns) in eval(sys.argv[2]):
    x, y = rng.standard_normal((*batch, rows, depth)), rng.standard_normal((*batch[1:], depth, columns))
    for dtype in ("float32", "float64"):
        for left in (x, x.swapaxes(-1, -2).copy().swapaxes(-1, -2)):
            for right in (y, y.swapaxes(-1, -2).copy().swapaxes(-1, -2)):
                a, b = engine.from_numpy(left.astype(dtype)), engine.from_numpy(right.astype(dtype))
                digest.update(np.ascontiguousarray(engine.matmul(a, b)).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_the_bits_depend_on_no_number_of_threads() -> None:
    digests, products = set(), [*(((), shape) for shape in SHAPES), *(((2, 3), shape) for shape in BATCHED)]
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", PROGRAM, threads, repr(products)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("shape", [*SHAPES, (2, 70000, 2), (65, 64, 64), (300, 2, 500), (260, 513, 250)])
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_products_of_any_layout(shape: tuple[int, int, int], dtype: str) -> None:
    """Each sum of K products is within K + 1 roundings of the sum of their magnitudes."""
    rows, depth, columns = shape
    engine, rng = alpha.engine("cpu", threads=2), np.random.default_rng(1)
    x, y = (rng.standard_normal((n + 3, m + 5)).astype(dtype) for n, m in ((rows, depth), (depth, columns)))
    a, b = x[1:-2, 2:-3], y[1:-2, 2:-3]
    exact, bound = a.astype(np.longdouble) @ b, (depth + 1) * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b))
    for left in (x, np.asfortranarray(x)):
        for right in (y, np.asfortranarray(y)):
            first, second = (engine.from_numpy(whole)[1:-2, 2:-3] for whole in (left, right))
            assert (np.abs(np.asarray(engine.matmul(first, second)) - exact) <= bound).all()


@pytest.mark.parametrize("shape", BATCHED)
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_products_of_batches(shape: tuple[int, int, int], dtype: str) -> None:
    """Batch axes are broadcast on both sides; the bound is that of one product."""
    rows, depth, columns = shape
    engine, rng = alpha.engine("cpu", threads=2), np.random.default_rng(2)
    for first, second in (((2,), ()), ((3, 1), (2,)), ((), (2, 1))):
        x = rng.standard_normal((*first, depth, rows)).astype(dtype)
        y = rng.standard_normal((*second, depth, columns)).astype(dtype)
        a, b = engine.from_numpy(x), engine.from_numpy(y)
        left = a.strided(0, (*first, rows, depth), (*a.strides[:-2], a.strides[-1], a.strides[-2]))
        x = x.swapaxes(-1, -2)
        bound = (depth + 1) * np.finfo(dtype).eps * np.matmul(np.abs(x), np.abs(y))
        result = np.asarray(engine.matmul(left, b))
        assert result.shape == bound.shape
        assert (np.abs(result - np.matmul(x.astype(np.longdouble), y.astype(np.longdouble))) <= bound).all()


def test_inference_keeps_no_copy_of_what_is_multiplied() -> None:
    """An activation is not a layer's filters, of which inference keeps a packed copy."""
    engine = alpha.engine("cpu", threads=2)
    x, y = (engine.from_numpy(np.ones((600, 600), np.float32)) for _ in range(2))
    with alpha.no_grad():
        for other in (y, alpha.transpose(y, 0, 1)):
            alpha.matmul(alpha.reshape(x, (2, 300, 600)), other)
    assert not x.storage.cache
    assert not y.storage.cache
