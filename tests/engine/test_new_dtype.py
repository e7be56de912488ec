"""A dtype is a row of the table: an 8-bit float is added, used on the reference engine, and taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import alpha
from alpha import dtypes
from alpha.engine import Engine
from alpha.errors import CheckpointError, DtypeError

QUARTER = np.dtype(ml_dtypes.float8_e5m2)
NAME = "float8_e5m2"


@pytest.fixture(params=["numpy", "cpu"])
def quarter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine while there is such a dtype."""
    row = dtypes.Info(
        dtypes.FLOAT, QUARTER, dtypes.float32, "F8_E5M2", "", digits=3, tolerance=(0.3, 0.1), computed=dtypes.float32
    )
    with monkeypatch.context() as patch:
        patch.setitem(dtypes.TABLE, QUARTER, row)
        patch.setattr(dtypes, "STORED", dtypes.STORED | {QUARTER})
        yield alpha.engine(request.param)


def test_without_its_row_there_is_none() -> None:
    with pytest.raises(DtypeError, match=f"got {NAME}"):
        alpha.zeros(2, dtype=NAME)
    assert NAME not in dtypes.names()


def test_tensors_of_it_are_made_and_converted(quarter: Engine) -> None:
    x = alpha.tensor(np.array([0.1, 2, -np.inf], QUARTER), engine=quarter)
    assert x.dtype == QUARTER and x.nbytes == 3
    assert alpha.ones(2, 3, dtype=QUARTER, engine=quarter).sum().item() == 6
    assert alpha.arange(4, dtype=QUARTER, engine=quarter).tolist() == [0, 1, 2, 3]
    assert x.double().tolist() == [0.09375, 2, -np.inf]
    with pytest.raises(alpha.errors.ArgumentError, match=f"a number that {NAME} holds, got 70000"):
        alpha.full(2, 70000, dtype=QUARTER, engine=quarter)


def test_it_is_computed_with(quarter: Engine) -> None:
    x = alpha.tensor(np.array([0.5, 2], QUARTER), engine=quarter)
    assert (x + 1).dtype == (x * 2.5).dtype == (x > 0).float().astype(QUARTER).dtype == QUARTER
    assert (x + alpha.ones(2, engine=quarter)).dtype == alpha.float32
    assert (x + x).tolist() == [1, 4]


def test_gradients_flow_through_it(quarter: Engine) -> None:
    x = alpha.tensor(np.array([0.5, 2], QUARTER), requires_grad=True, engine=quarter)
    (x.float() * 3).sum().backward()
    assert x.grad is not None and x.grad.dtype == QUARTER and x.grad.tolist() == [3, 3]


def test_it_is_saved_and_loaded(quarter: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, x = tmp_path / "x.safetensors", alpha.tensor(np.array([[0.1, 2], [-3, np.inf]], QUARTER), engine=quarter)
    alpha.save({"x": x}, path)
    loaded = alpha.load(path, engine=quarter)["x"]
    assert loaded.dtype == QUARTER
    np.testing.assert_array_equal(loaded.float().numpy(), x.float().numpy())
    with monkeypatch.context() as patch:
        patch.delitem(dtypes.TABLE, QUARTER)
        with pytest.raises((CheckpointError, DtypeError), match=r"F8_E5M2|float8"):
            alpha.load(path, engine=quarter)
