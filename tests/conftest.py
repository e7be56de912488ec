"""Fixtures every tier shares: the engines to test, a seeded generator, the data folder where there is one."""

from __future__ import annotations

import gc
import inspect
import os
import signal
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import alpha
from alpha.cpu import figures, planner
from alpha.cpu.engine import CPUEngine
from alpha.cu32.base import DeviceEngine
from alpha.engine import Engine
from tests.cuda_on_cpu import preload
from tests.cuda_on_cpu.blocks import Watch
from tests.toy_engine import ToyEngine

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
_all = False  # whether everything is to be tested
ENGINES = os.environ.get("ALPHA_TEST_ENGINES", "cpu,cu32,numpy").split(",")
"""Which engines the ``engine`` fixture has; "toy" is one more."""
NUMPY_TOO = (
    "test_conv.py", "test_dtypes.py", "test_norm.py", "test_pointwise.py", "test_pooling.py", "test_recurrent.py",
    "test_suite.py", "test_sync_norm.py", "test_toy_activation.py", "test_toy_optimizer.py",
)  # fmt: skip
"""Files whose tests the NumPy engine runs too where ``$ALPHA_TEST_ENGINES`` is not set: they hold most of what is
written through the core. With ``ALPHA_TEST_ENGINES=numpy`` it runs all files."""

alpha.register_engine("toy", ToyEngine)
os.environ.setdefault("ALPHA_COMPILE_AHEAD", "0")  # each of pytest's processes compiles, which is enough for the cores
# PyTorch's threads sleep while they wait: beside other processes on the same cores, looking for work in a loop takes
# most of the oracles' time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


# -- tiers -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--tier``: how much is tested."""
    parser.addoption(
        "--tier",
        choices=("quick", "all"),
        help="quick: what takes minutes in a fresh checkout, with nothing optional installed. all: everything; what is "
        "not installed is an error. Without it: everything; what is not installed is skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Notes the tier for what has no configuration at hand, and lets interrupts through.

    A shell starts what runs in its background with SIGINT ignored, and the children of the tests would ignore it too.
    """
    global _all
    _all = config.getoption("--tier") == "all"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Tells the garbage collector that the tests themselves stay: with all of them, a collection takes half a second.

    Many tests ask for collections, some at each line of what they interrupt.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Chooses the tests of the tier, by the packages that they need, their engines and their time."""
    tier = config.getoption("--tier")
    if "ALPHA_TEST_ENGINES" not in os.environ:
        _keep(config, items, [item for item in items if _engine(item) != "numpy" or item.path.name in NUMPY_TOO])
    if tier == "quick":
        _keep(config, items, [item for item in items if not (_needed(item) or _is_slow(item))])
        return
    missing = sorted({name for item in items for name in _needed(item) if find_spec(name) is None})
    if tier == "all" and missing:
        raise pytest.UsageError(
            f"[--tier all] expected {', '.join(missing)} to be installed, as an oracle of the tests: make test-all "
            "installs what they need"
        )
    for item in items:
        for name in set(_needed(item)) & set(missing):
            item.add_marker(pytest.mark.skip(reason=f"{name} is not installed"))


def _keep(config: pytest.Config, items: list[pytest.Item], chosen: list[pytest.Item]) -> None:
    """Deselects all tests but the chosen ones."""
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def _engine(item: pytest.Item) -> object:
    """The name of the engine that a test's fixture ``engine`` has, if it has one."""
    return item.callspec.params.get("engine") if hasattr(item, "callspec") else None


def _needed(item: pytest.Item) -> list[str]:
    """The optional packages that a test is marked as needing."""
    return [name for mark in item.iter_markers("needs") for name in mark.args]


def _is_slow(item: pytest.Item) -> bool:
    """Whether a test is marked so, or runs on the CUDA engine, whose test driver takes a minute to build."""
    cuda = _engine(item) == "cu32" or "cu32" in getattr(item, "fixturenames", ())
    return cuda or item.get_closest_marker("slow") is not None


# -- engines -----------------------------------------------------------------------------------------------------


def cuda_engine() -> DeviceEngine:
    """The engine of the GPU, or of the driver that stands in for it.

    Where there is neither, the test is skipped with the reason; with ``--tier all`` it fails.
    """
    reason = preload.load()
    if reason is not None:
        (pytest.fail if _all else pytest.skip)(f"cu32: {reason}")
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


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """What a test draws from Dragon-Alpha's generator is the same in each run, so that a failure can be repeated."""
    alpha.manual_seed(20230615)


@pytest.fixture(autouse=True)
def _no_garbage(request: pytest.FixtureRequest) -> None:
    """A test that reads how much memory is in use begins without what earlier tests left to the garbage collector.

    The traceback of an expected error holds the tensors of its test; the next collection, which may come anywhere,
    would free them in the midst of what is measured.
    """
    read = inspect.unwrap(request.function).__code__.co_names
    if "in_use" in read or "peak" in read:
        gc.collect()


@pytest.fixture(autouse=True)
def _settings_stay() -> Iterator[None]:
    """The CPU engine's cap and threads are after a test what they were before it, for the tests that come next."""
    engine = alpha.engine("cpu")
    cap, threads = engine.memory.cap, engine.threads
    yield
    if (engine.memory.cap, engine.threads) != (cap, threads):
        engine.configure(memory=cap, threads=threads)


@pytest.fixture
def same_figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU engine chooses its algorithms by one processor's figures, whichever this machine has."""
    same = figures.shipped("znver5", "avx512")
    monkeypatch.setattr(figures, "known", lambda: same)
    planner.forget()
    yield
    monkeypatch.undo()
    planner.forget()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine, or those that ``$ALPHA_TEST_ENGINES`` asks for; skipped where it cannot run. See ``NUMPY_TOO``."""
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
