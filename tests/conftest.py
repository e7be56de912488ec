"""Fixtures every tier shares: the engines to test, a seeded generator, the data folder where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import alpha
from alpha.engine import Engine

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@pytest.fixture(params=["cpu"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine this machine has."""
    return alpha.engine(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in each run."""
    return np.random.default_rng(20230615)


@pytest.fixture
def shared_data() -> Path:
    """The folder with real data; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder shared/data with real data is not beside the repository")
    return SHARED_DATA
