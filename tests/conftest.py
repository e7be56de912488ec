"""Fixtures every tier shares: the engines to test, a seeded generator, the data folder where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.cu32.base import DeviceEngine
from alpha.engine import Engine
from tests.cuda_on_cpu import preload
from tests.cuda_on_cpu.blocks import Watch

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
ENGINES = os.environ.get("ALPHA_TEST_ENGINES", "cpu,cu32").split(",")
"""Which engines the ``engine`` fixture has."""


def cuda_engine() -> DeviceEngine:
    """The engine of the GPU, or of the driver that stands in for it; skips with the reason where there is neither."""
    reason = preload.load()
    if reason is not None:
        pytest.skip(f"cu32: {reason}")
    return cast(DeviceEngine, alpha.engine("cu32"))


@cache
def watch() -> Watch | None:
    """Watches the memory of the engine on the test driver."""
    library = preload.emulated()
    return Watch(cuda_engine().memory, library) if library is not None else None


def watched_engine() -> Iterator[DeviceEngine]:
    """The engine; a test that wrote where nothing may be written fails after it."""
    found = cuda_engine()
    watching = watch()
    yield found
    if watching is not None and (failures := watching.failures()):
        pytest.fail("the test's kernels made " + "; ".join(failures))


@pytest.fixture
def cu32() -> Iterator[DeviceEngine]:
    """The CUDA engine; tests with it are skipped where it cannot run."""
    yield from watched_engine()


@pytest.fixture
def cpu() -> CPUEngine:
    """The CPU engine, for what it alone has: threads, arrays that share a tensor's memory, counters."""
    return cast(CPUEngine, alpha.engine("cpu"))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine, or those that ``$ALPHA_TEST_ENGINES`` asks for; skipped where it cannot run."""
    if request.param == "cu32":
        yield from watched_engine()
    else:
        yield alpha.engine(request.param)


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
