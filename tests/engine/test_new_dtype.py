"""A dtype is a row of the table: float16 is added, used on the reference engine, and taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import alpha
from alpha import dtypes
from alpha.engine import Engine
from alpha.errors import CheckpointError, DtypeError

HALF = np.dtype(np.float16)


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The reference engine while there is a float16."""
    row = dtypes.Info(dtypes.FLOAT, HALF, dtypes.float32, "F16", "half", digits=11, tolerance=(1e-2, 1e-2))
    with monkeypatch.context() as patch:
        patch.setitem(dtypes.TABLE, HALF, row)
        yield alpha.engine("numpy")


def test_without_its_row_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(DtypeError, match="got float16"):
        alpha.zeros(2, dtype="float16")
    assert "float16" not in dtypes.names()


def test_tensors_of_it_are_made_and_converted(half: Engine) -> None:
    x = alpha.tensor(np.array([0.1, 2, -np.inf], np.float16), engine=half)
    assert x.dtype == HALF and x.nbytes == 6
    assert alpha.ones(2, 3, dtype="float16", engine=half).sum().item() == 6
    assert alpha.arange(4, dtype=HALF, engine=half).tolist() == [0, 1, 2, 3]
    assert x.double().tolist() == [float(np.float16(0.1)), 2, -np.inf]
    assert alpha.tensor([1.5, 7], engine=half).astype("float16").dtype == HALF
    with pytest.raises(alpha.errors.ArgumentError, match="a number that float16 holds, got 70000"):
        alpha.full(2, 70000, dtype=HALF, engine=half)


def test_it_is_promoted(half: Engine) -> None:
    x = alpha.tensor(np.array([0.5, 2], np.float16), engine=half)
    assert (x + 1).dtype == (x * 2.5).dtype == (x > 0).float().astype(HALF).dtype == HALF
    for other, met in {"bool": HALF, "uint8": HALF, "int64": HALF, "float32": "float32", "float64": "float64"}.items():
        assert (x + alpha.ones(2, dtype=other, engine=half)).dtype == met
        scalar = alpha.ones((), dtype=other, engine=half)
        assert (x + scalar).dtype == HALF
        assert (scalar + x).tolist() == [1.5, 3]


def test_sums_are_added_up_in_its_accumulator(half: Engine) -> None:
    x = alpha.full(5000, 0.1, dtype=HALF, engine=half)
    assert x.sum().dtype == HALF and x.mean().dtype == HALF
    # Added up in float16 the sum would stay at 256, to which 0.1 is nothing.
    assert x.sum().item() == np.float16(5000 * float(np.float16(0.1)))
    assert x.cumsum(0)[-1].item() == x.sum().item()


def test_gradients_flow_through_it(half: Engine) -> None:
    x = alpha.tensor(np.array([0.5, 2], np.float16), requires_grad=True, engine=half)
    (x.float() * 3).sum().backward()
    assert x.grad is not None and x.grad.dtype == HALF and x.grad.tolist() == [3, 3]


def test_random_numbers_of_it_have_its_digits(half: Engine) -> None:
    alpha.manual_seed(0)
    drawn = alpha.rand(1000, dtype="float16", engine=half)
    assert drawn.dtype == HALF
    values = drawn.numpy().astype(np.float64)
    assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.05
    assert np.array_equal(values * 2**11, np.round(values * 2**11))
    alpha.testing.assert_close(alpha.randn(4000, dtype=HALF, engine=half).float().std(), 1, rtol=0.05)


def test_it_is_saved_and_loaded(half: Engine, tmp_path: Path) -> None:
    x = alpha.tensor(np.array([[0.1, 2], [-3, np.inf]], np.float16), engine=half)
    alpha.save({"x": x}, tmp_path / "x.safetensors")
    loaded = alpha.load(tmp_path / "x.safetensors", engine=half)["x"]
    assert loaded.dtype == HALF
    np.testing.assert_array_equal(loaded.numpy(), x.numpy())


def test_its_files_are_refused_without_its_row(half: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    alpha.save({"x": alpha.ones(2, dtype=HALF, engine=half)}, path)
    with monkeypatch.context() as patch:
        patch.delitem(dtypes.TABLE, HALF)
        with pytest.raises((CheckpointError, DtypeError), match="float16"):
            alpha.load(path, engine=half)


def test_results_of_it_are_compared_with_its_tolerance(half: Engine) -> None:
    x = alpha.tensor(np.array([1, 2], np.float16), engine=half)
    alpha.testing.assert_close(x, [1.009, 2.0])
    with pytest.raises(AssertionError):
        alpha.testing.assert_close(x, [1.1, 2.0])
