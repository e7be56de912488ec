"""The bits of a product of matrices on the CPU: the same for any number of the engine's threads, and of BLAS's."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import alpha

SHAPES = [(70, 999, 33), (7, 1200, 333), (129, 700, 65), (17, 1200, 12), (61, 67, 63)]
"""Rows, depth and columns: those of the first three BLAS divides between its threads, the others it does not."""

PROGRAM = """
import hashlib, sys
import numpy as np
import alpha

rng, digest = np.random.default_rng(0), hashlib.sha256()
engine = alpha.engine("cpu", threads=int(sys.argv[1]))
for rows, depth, columns in eval(sys.argv[2]):
    x, y = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    for dtype in ("float32", "float64"):
        for left in (x, np.asfortranarray(x)):
            for right in (y, np.asfortranarray(y)):
                a, b = engine.from_numpy(left.astype(dtype)), engine.from_numpy(right.astype(dtype))
                digest.update(np.ascontiguousarray(engine.matmul(a, b)).tobytes())
print(digest.hexdigest())
"""


def test_the_bits_depend_on_no_number_of_threads() -> None:
    digests = set()
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", PROGRAM, threads, repr(SHAPES)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("shape", [*SHAPES, (2, 70000, 2), (65, 64, 64), (300, 2, 500)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
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
