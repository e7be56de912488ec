"""Reading and writing by index tensors and masks on cu32 against NumPy: repeated places, vectors, views."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from alpha.cu32 import indexing
from alpha.cu32.strided import plan
from alpha.dtypes import ALL
from alpha.engine import Engine
from alpha.errors import DtypeError
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
WHOLE = slice(None)


def host(x: Tensor) -> Array:
    return np.array(x.engine.to_numpy(x))


def on(engine: Engine, index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(engine.from_numpy(entry) if isinstance(entry, np.ndarray) else entry for entry in index)


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)


def indices(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, tuple[Any, ...]]:
    """Keys for a tensor of four axes; most select places more than once, over several chunks of sorted neighbours."""
    a, b, c, d = shape
    rows = rng.integers(0, a, 150)
    return {
        "rows": (rows, WHOLE, WHOLE, WHOLE),
        "middle": (WHOLE, rng.integers(0, b, (4, 5)), WHOLE, WHOLE),
        "last": (WHOLE, WHOLE, WHOLE, rng.integers(0, d, 70)),
        "two together": (WHOLE, rng.integers(0, b, (3, 1)), rng.integers(0, c, (1, 30)), WHOLE),
        "two apart": (rng.integers(0, a, 40), WHOLE, rng.integers(0, c, 40), slice(1, None, 2)),
        "an int apart": (1, WHOLE, rng.integers(0, c, 9), None, slice(None, None, -1)),
        "all four": tuple(rng.integers(0, n, 200) for n in shape),
        "one place": (np.full(200, a - 1), 0, WHOLE, WHOLE),
        "nothing": (np.zeros(0, np.int64), WHOLE, WHOLE, WHOLE),
        "mask": (WHOLE, rng.uniform(size=(b, c)) < 0.4, WHOLE),
        "whole mask": (rng.uniform(size=shape) < 0.4,),
        "empty mask": (np.zeros((a, b), np.bool_), WHOLE, WHOLE),
        "mask and int": (np.arange(a) > 1, WHOLE, WHOLE, 2),
        "mask and tensor": (np.arange(a) < 2, np.array([1, 0]), WHOLE, WHOLE),
    }


NAMES = tuple(indices(np.random.default_rng(0), (3, 4, 5, 8)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_as_numpy_has_it(cu32: Engine, rng: np.random.Generator, dtype: Any, name: str) -> None:
    for shape in ((3, 4, 5, 8), (3, 4, 5, 7)):
        index = indices(rng, shape)[name]
        x = draw(rng, shape, dtype)
        t, key = cu32.from_numpy(x), on(cu32, index)
        found = cu32.gather(t, key)
        assert found.is_contiguous()
        np.testing.assert_array_equal(host(found), x[index])
        values = draw(rng, x[index].shape, dtype)
        for source in (values, values[..., :1], dtype.type(1)):
            given = cu32.from_numpy(source) if isinstance(source, np.ndarray) else source.item()
            wanted = x.copy()
            wanted[index] = source
            written = cu32.from_numpy(x)
            cu32.scatter(written, key, given, False)
            np.testing.assert_array_equal(host(written), wanted)
            wide = x.astype(np.float64) if dtype == np.float32 else x.copy()
            np.add.at(wide, index, source)
            added = cu32.from_numpy(x)
            cu32.scatter(added, key, given, True)
            # One rounding of a sum in float64, whose partial sums NumPy takes in another order.
            tolerance = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-13}.get(dtype, 0)
            np.testing.assert_allclose(host(added), wide.astype(dtype), rtol=tolerance, atol=20 * tolerance)


@pytest.mark.parametrize("name", ["rows", "two apart", "all four", "mask", "last"])
def test_views_permuted_and_misaligned(cu32: Engine, rng: np.random.Generator, name: str) -> None:
    shape = (3, 4, 5, 8)
    index = indices(rng, shape)[name]
    for order, shift in (((1, 2, 0, 3), 0), ((3, 2, 1, 0), 0), ((0, 1, 2, 3), 1)):
        block = draw(rng, (shift + 480,), np.float32)
        inner = block[shift:].reshape([shape[a] for a in order])
        x = inner.transpose(np.argsort(order))
        strides = tuple(s // 4 for s in x.strides)
        t = cu32.from_numpy(block).strided(shift, shape, strides)
        np.testing.assert_array_equal(host(cu32.gather(t, on(cu32, index))), x[index])
        values = draw(rng, x[index].shape[::-1], np.float32).T
        np.add.at(x, index, values)
        cu32.scatter(t, on(cu32, index), cu32.from_numpy(values), True)
        np.testing.assert_allclose(host(t), x, rtol=1e-5, atol=1e-5)  # NumPy adds in float32


def test_the_last_of_equal_places_counts(cu32: Engine, rng: np.random.Generator) -> None:
    index = rng.integers(0, 5, 3000)
    values = np.arange(3000 * 4, dtype=np.float32).reshape(3000, 4)
    t = cu32.from_numpy(np.zeros((5, 4), np.float32))
    cu32.scatter(t, on(cu32, (index, WHOLE)), cu32.from_numpy(values), False)
    last = [np.flatnonzero(index == row)[-1] for row in range(5)]
    np.testing.assert_array_equal(host(t), values[last])


@pytest.mark.parametrize("places", [1, 3, 1000])
def test_sums_are_accurate_and_the_same_in_every_run(cu32: Engine, rng: np.random.Generator, places: int) -> None:
    index = rng.integers(0, places, 2500)
    values = rng.standard_normal((2500, 6)).astype(np.float32)
    wanted = np.zeros((places, 6))
    np.add.at(wanted, index, values.astype(np.float64))
    runs = []
    for _ in range(2):
        t = cu32.from_numpy(np.zeros((places, 6), np.float32))
        cu32.scatter(t, on(cu32, (index, WHOLE)), cu32.from_numpy(values), True)
        runs.append(host(t))
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_allclose(runs[0], wanted, rtol=1.2e-7, atol=1e-12)  # one rounding


def test_in_pieces(cu32: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beyond 32 bits takes several launches; here the bound is 300 elements."""
    indexing._rows_plan.cache_clear()
    monkeypatch.setattr(indexing, "plan", functools.partial(plan, limit=300))
    try:
        for name in NAMES:
            test_as_numpy_has_it(cu32, rng, np.dtype(np.float32), name)
    finally:
        indexing._rows_plan.cache_clear()


def test_writing_by_a_mask_does_not_make_the_host_wait(
    cu32: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, mask = draw(rng, (6, 5), np.float32), rng.uniform(size=(6, 5)) < 0.5
    t, held = cu32.from_numpy(x), cu32.from_numpy(mask)
    values = cu32.from_numpy(x[mask] * 2)
    with monkeypatch.context() as patch:
        patch.setattr(cu32, "to_numpy", lambda _: pytest.fail("the host waited"))
        cu32.scatter(t, (held,), values, True)
        cu32.scatter(t, (cu32.elementwise("logical_not", held),), 0, False)
    np.testing.assert_allclose(host(t), np.where(mask, 3 * x, 0), rtol=1e-6)


def test_other_dtypes_are_no_indices(cu32: Engine) -> None:
    x = cu32.from_numpy(np.zeros(3, np.float32))
    with pytest.raises(DtypeError, match=r"\[index\] expected int64 or bool, got int32"):
        cu32.gather(x, (cu32.from_numpy(np.zeros(1, np.int32)),))
