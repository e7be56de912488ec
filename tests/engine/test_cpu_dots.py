"""The CPU engine's dot products: bounds, the same bits for any number of threads and launched, what is not finite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.cpu.loops.dots import FAR_BYTES
from alpha.cpu.products import DOT_PART
from alpha.launches import DOT
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]

TERMS = {"float32": 6.001, "float64": 10.001}
"""Units in the last place of the sum of absolute products: those of a sum, and a product's rounding."""


@pytest.fixture
def cpu() -> Iterator[CPUEngine]:
    engine = CPUEngine("1GB")
    yield engine
    engine.configure(threads=1)


def dotted(engine: CPUEngine, x: Array, y: Array) -> Any:
    """The product, after a look at whether launches and one, two and five threads agree to the bit."""
    found = []
    for threads in (1, 2, 5):
        engine.configure(threads=threads)
        DOT.forget()
        given = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
        found += [alpha.dot(*given).numpy(), alpha.dot(*given).numpy(), alpha.matmul(*given).numpy()]
        assert DOT.launch(*given) is not None
    assert len({one.tobytes() for one in found}) == 1 and found[0].shape == ()
    return found[0]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize(
    "length", [0, 1, 15, 16, 17, 64, 257, 1027, 2 * DOT_PART - 1, 5 * DOT_PART + 77, FAR_BYTES // 8]
)
def test_bounds_and_bits(cpu: CPUEngine, rng: np.random.Generator, length: int, dtype: str) -> None:
    x, y = (rng.standard_normal(length).astype(dtype) for _ in range(2))
    products = x.astype(np.longdouble) * y
    exact, unit = products.sum(), np.finfo(dtype).eps / 2
    assert abs(dotted(cpu, x, y) - exact) <= 2 * abs(exact) * unit + TERMS[dtype] * unit * np.abs(products).sum()


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_vectors_and_rows_of_any_stride(cpu: CPUEngine, rng: np.random.Generator, dtype: str) -> None:
    x, y = (alpha.tensor(rng.standard_normal((60, 7)).astype(dtype), engine=cpu) for _ in range(2))
    for one, other in (
        (x[:, 2], y[:, 3]),
        (x[::2, 0], y[5:35, 6]),
        (x[3], y[:, 0][:7]),
        (y[0, :1].expand(60), x[:, 1]),
    ):
        wanted = float(one.numpy().astype(np.float64) @ other.numpy())
        tolerance = 50 * float(np.finfo(dtype).eps)
        assert alpha.dot(one, other).item() == pytest.approx(wanted, rel=tolerance, abs=tolerance)
        for found in (one.unsqueeze(0) @ other, other @ one.unsqueeze(1), one.unsqueeze(0) @ other.unsqueeze(1)):
            assert found.numpy() == pytest.approx(wanted, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("length", [50, 1000, 3 * DOT_PART])
def test_what_is_not_finite(cpu: CPUEngine, length: int) -> None:
    ones = np.ones(length, np.float32)
    for values, wanted in (([np.inf], np.inf), ([-np.inf], -np.inf), ([np.nan], np.nan), ([np.inf, -np.inf], np.nan)):
        x = ones.copy()
        x[7 : 7 + len(values)] = values
        np.testing.assert_array_equal(dotted(cpu, x, ones), np.float32(wanted))
    x = np.zeros(length, np.float32)
    x[:2], x[-2:], x[length // 2] = 3e38, -3e38, 1.5
    y = 2 * ones
    y[length // 2] = 0
    assert dotted(cpu, x, y) == 0  # 6e38 is no float32
