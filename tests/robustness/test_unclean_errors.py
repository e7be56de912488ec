"""Whatever a public function is given, it returns a result or raises an AlphaError that names it, and does so at once.

``tests.robustness.hostile`` calls each with hostile values; here run a share of them, other ones for each argument.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, OutOfMemoryError, ShapeError, described
from tests.robustness import hostile

ROOT = Path(__file__).resolve().parents[2]
SHARE = int(os.environ.get("ALPHA_HOSTILE_SHARE", "64"))
"""One in so many of the calls is tried; 1 tries all, in some minutes."""


def test_every_public_function_is_tried() -> None:
    functions, layers = hostile.covered()
    assert not functions and not layers
    methods = set(hostile.Samples(alpha.engine("cpu")).methods())
    methods_alone = {
        name: value for name, value in vars(alpha.Tensor).items() if value is not getattr(alpha, name, None)
    }
    named = {name for name, value in methods_alone.items() if callable(value) and not name.startswith("_")}
    without_arguments = {
        name for name in named if len(hostile.inspect.signature(getattr(alpha.Tensor, name)).parameters) < 2
    }
    # ``dense`` and ``cuda`` make engines and memory of their own, ``to_device`` takes its arguments by place alone; the
    # others call what they are given.
    assert named - methods - without_arguments - {"dense", "cuda", "to_device", "apply_", "map_", "map2_"} == set()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits on memory are the system's own")
def test_hostile_arguments_end_in_results_or_clean_errors(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    command = [sys.executable, "-m", "tests.robustness.hostile", "--share", str(SHARE), "--progress", str(progress)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    last = progress.read_text().strip() if progress.exists() else "nothing"
    assert run.returncode == 0, f"ended with {run.returncode} while trying {last}: {run.stderr[-2000:]}"
    failures = [json.loads(line) for line in run.stdout.splitlines()]
    assert not failures, "\n".join(map(str, failures[:50]))


def test_what_the_runner_counts_as_unclean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner tells clean ends from others: else it could not fail."""

    def raises(error: BaseException) -> Callable[[], None]:
        def run() -> None:
            raise error

        return run

    assert hostile.attempt(lambda: 1, {}) is None
    assert hostile.attempt(raises(ArgumentError("[f] expected more, got less")), {}) is None
    for error in (ArgumentError("more"), TypeError("a"), MemoryError(), RecursionError(), OverflowError("b")):
        assert hostile.attempt(raises(error), {}) is not None
    monkeypatch.setattr(hostile, "SECONDS", 0.0)
    assert "took" in str(hostile.attempt(lambda: sum(range(10**5)), {}))


# -- smallest cases ----------------------------------------------------------------------------------------------


def at_once(call: Callable[[], Any], *kinds: type[AlphaError]) -> str:
    """The message of the error, which came within a second of this thread's time.

    A collection of what other tests have left may take as long, so none begins meanwhile.
    """
    gc.disable()
    try:
        start = time.thread_time()
        with pytest.raises(kinds) as caught:
            call()
        assert time.thread_time() - start < 1
    finally:
        gc.enable()
    return str(caught.value)


def test_sizes_beyond_the_cap_are_refused_with_figures_and_nothing_is_tried(cpu: Engine) -> None:
    x = alpha.zeros(2, 4, 4, 3)
    small = alpha.zeros(1)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: alpha.one_hot(alpha.tensor([0, 1]), 2**40),
        lambda: alpha.tile(x, (2**40, 1, 1, 1)),
        lambda: alpha.pad(x, (2**40, 0)),
        lambda: alpha.expand(small, (2**40,)) + 1,
        lambda: alpha.tensor(np.broadcast_to(np.int64(0), (2**40,)), dtype=alpha.float64),
        lambda: alpha.tensor(np.broadcast_to(np.float32(0), (2**40,))),
        lambda: F.interpolate(x, size=2**30),
        lambda: F.interpolate(x, scale_factor=2.0**20),
        lambda: F.adaptive_avg_pool2d(x, 2**30),
        lambda: F.conv_transpose2d(x, alpha.zeros(3, 1, 1, 2), stride=2**20),
        lambda: F.conv_transpose3d(alpha.zeros(1, 2, 2, 2, 3), alpha.zeros(3, 1, 1, 1, 2), stride=2**20),
        lambda: nn.Linear(2**20, 2**30),
        lambda: nn.Embedding(2**40, 2),
        lambda: nn.Conv2d(2**20, 2**20, 3),
    )
    for call in calls:
        assert "cap" in at_once(call, OutOfMemoryError)


def test_shapes_beyond_what_can_be_counted(engine: Engine) -> None:
    x = alpha.zeros(1, engine=engine)
    for shape in ((2**40, 2**40), (2**63,), (10**30,), (0, 2**70), (1,) * 65, (10**400,)):
        at_once(lambda shape=shape: alpha.expand(x, shape), ShapeError)
        at_once(lambda shape=shape: alpha.reshape(x, shape), ShapeError)
        at_once(lambda shape=shape: alpha.tile(x, shape), ShapeError)


@pytest.mark.parametrize(
    "value", [0, -1, 2**31, 2**63, 10**30, 1.0, True, None, "1", float("nan"), (1, 2, 3, 4), 1j, []]
)
def test_steps_of_convolutions_and_windows(value: Any, cpu: Engine) -> None:
    x, w = alpha.zeros(2, 4, 4, 3), alpha.zeros(2, 3, 3, 3)
    pool: tuple[Callable[[], Any], ...] = (
        lambda: F.max_pool2d(x, value),
        lambda: F.avg_pool2d(x, value),
        lambda: F.max_pool2d(x, 2, dilation=value),
    )
    conv: tuple[Callable[[], Any], ...] = (
        lambda: F.conv2d(x, w, stride=value),
        lambda: F.conv2d(x, w, dilation=value),
        lambda: F.conv2d(x, w, groups=value),
        lambda: F.conv_transpose2d(x, w, stride=value),
        lambda: nn.Conv2d(3, 2, value),
        lambda: nn.Conv2d(3, 2, 3, groups=value),
    )
    for call in pool + conv:
        at_once(call, ArgumentError, ShapeError)


NUMBERS = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "longdouble",
)  # fmt: skip


def test_numpy_scalars_of_every_kind_are_numbers(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], engine=engine)
    for kind in NUMBERS:
        one = np.dtype(kind).type(1)
        assert (x + one).tolist() == (x * 2 - x + one).tolist() == [2.0, 3.0]
        if np.dtype(kind).kind in "iu":
            assert alpha.sum(x, one - one).item() == 3 and x.reshape(one, one + one).shape == (1, 2)
            assert len(alpha.split(x, one)) == 2 and alpha.tile(x, one).shape == (2,)
            image = alpha.zeros(1, 4, 4, 1, engine=engine)
            assert F.max_pool2d(image, one + one, stride=one).shape == (1, 3, 3, 1)
            assert F.conv2d(image, image, stride=one, padding=one, groups=one).shape == (1, 3, 3, 1)
        else:
            assert F.leaky_relu(-x, one).tolist() == [-1.0, -2.0]
    for other in (np.str_("a"), np.datetime64("2020-01-01"), np.void(b"a"), np.bytes_(b"a")):
        at_once(lambda other=other: x + other, DtypeError)


def test_numbers_beyond_int64_and_float(engine: Engine) -> None:
    x = alpha.tensor([1.0], engine=engine)
    assert (x + 10**30).item() == pytest.approx(1e30)
    at_once(lambda: x + 10**400, ArgumentError)
    at_once(lambda: x * 10**5000, ArgumentError)
    at_once(lambda: F.leaky_relu(x, 10**400), ArgumentError)


def test_lists_that_make_no_array(engine: Engine) -> None:
    endless: list[Any] = []
    endless.append(endless)
    nested: list[Any] = [0]
    for _ in range(5000):
        nested = [nested]
    for data in (
        endless,
        nested,
        [[1], [1, 2]],
        ["a"],
        [None],
        {1},
        {"a": 1},
        object(),
        (n for n in (1,)),
        [10**30],
    ):
        at_once(lambda data=data: alpha.tensor(data, engine=engine), ArgumentError, DtypeError)
    at_once(lambda: alpha.tensor(["1"], dtype=alpha.float32, engine=engine), DtypeError)
    at_once(lambda: alpha.tensor([1j], dtype=alpha.float32, engine=engine), DtypeError)


def test_values_in_messages_are_short_and_never_fail() -> None:
    endless: list[Any] = []
    endless.append(endless)
    nested: list[Any] = []
    for _ in range(10000):
        nested = [nested]

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    for value in (10**5000, endless, nested, Rude(), "a" * 10**6, list(range(10**5))):
        assert 0 < len(described(value)) < 300
    assert described(1.5) == "1.5" and described("a") == "'a'"


def test_no_memory_for_numpy_is_an_out_of_memory_error() -> None:
    """NumPy's MemoryError beside the pool comes as ours."""

    class Greedy:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
            return np.empty(2**60, np.uint8)

    at_once(lambda: alpha.tensor(Greedy()), OutOfMemoryError)
