"""Faults that the campaign found, each with its smallest case."""

from __future__ import annotations

import numpy as np
import pytest

import alpha
from alpha.engine import Engine


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_zero_writes_every_dtype(engine: Engine, dtype: str) -> None:
    base = alpha.tensor(np.ones((2, 3), dtype), engine=engine)
    view = base[:, 1]
    assert view.zero_() is view
    assert base.tolist() == np.array([[1, 0, 1]] * 2, dtype).tolist()


def test_std_is_one_function(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done for special cases of ``alpha.std`` holds for the method too."""
    calls = []
    monkeypatch.setattr("alpha.functions.std", lambda *args: calls.append(args))
    x = alpha.tensor(np.ones(3, np.float32), engine=engine)
    x.std(0, unbiased=False, keepdim=True)
    assert calls == [(x, 0, False, True)]
