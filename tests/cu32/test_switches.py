"""Switches of the CUDA engine: sync(True) waits after each launch and names the kernel, high precision is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32.base import DeviceEngine
from alpha.errors import EngineError


@pytest.fixture(autouse=True)
def switches(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The settings as they were, whatever a test does; no self-check waits for the device in between."""
    monkeypatch.setenv("ALPHA_SELFCHECK", "0")
    yield
    cu32.sync(False).check(True)
    alpha.set_float32_precision("highest")


def waits(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets one entry per wait for the device, from now on."""
    seen: list[int] = []
    plain = cu32.device.synchronize

    def counting() -> None:
        seen.append(1)
        plain()

    monkeypatch.setattr(cu32.device, "synchronize", counting)
    return seen


def test_every_launch_waits_only_while_asked_to(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cu32.from_numpy(np.ones(5, np.float32))
    seen = waits(cu32, monkeypatch)
    y = x + 1
    assert not seen
    assert cu32.sync(True) is cu32
    y = y * 3
    (y - 1).sum()
    assert len(seen) >= 3
    cu32.sync(False)
    count = len(seen)
    y = y / 2
    assert len(seen) == count
    assert y.tolist() == [3] * 5


def test_a_failing_kernel_is_named(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cu32.from_numpy(np.ones(5, np.float32))

    def fail() -> None:
        raise EngineError("[cu32] expected the work on it to finish, got: an illegal address")

    monkeypatch.setattr(cu32.device, "synchronize", fail)
    cu32.sync(True)
    with pytest.raises(EngineError, match=r"^\[cu32\] expected add_\w+ of pointwise.cu .* to finish, got: .* illegal"):
        x + 1


def test_a_graph_is_captured_and_waited_for(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cu32.from_numpy(np.ones(5, np.float32))
    step = alpha.graph(lambda x: x * 2 + 1)
    cu32.sync(True)
    for _ in range(4):
        assert step(x).tolist() == [3] * 5
    seen = waits(cu32, monkeypatch)
    step(x)
    assert step.captures == 1 and seen


def test_unchecked_steps_launch_no_checks(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    index, x = cu32.from_numpy(np.array([5, 1])), cu32.from_numpy(np.arange(3.0))
    downloads: list[Any] = []
    plain = cu32.device.download
    monkeypatch.setattr(cu32.device, "download", lambda *a: (downloads.append(a), plain(*a)))
    cu32.check(False)
    assert x[index].tolist() == [0, 1]  # the element out of range is another one
    assert len(downloads) == 1  # the values, and no flags
    cu32.check(True)
    x[index - 4]
    x.tolist()
    assert len(downloads) == 3


def test_precision_is_what_the_process_says(cu32: DeviceEngine) -> None:
    assert cu32.precision == "highest"
    alpha.set_float32_precision("high")
    assert cu32.precision == "high"


def test_a_graph_is_captured_anew_in_another_precision(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    step = alpha.graph(lambda x: x @ x)
    exact = [step(x).numpy() for _ in range(4)][-1]
    alpha.set_float32_precision("high")
    fast = [step(x).numpy() for _ in range(4)][-1]
    assert step.captures == 2
    np.testing.assert_array_equal(fast, (x @ x).numpy())
    alpha.set_float32_precision("highest")
    np.testing.assert_array_equal(step(x).numpy(), exact)
    assert step.captures == 2
