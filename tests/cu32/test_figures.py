"""A device's own speeds: kept by its name, taken by the cost model, refused where they cannot be a device's."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alpha.cu32 import costs, figures
from alpha.cu32.costs import Chip
from alpha.cu32.figures import Figures
from alpha.errors import ArgumentError
from alpha.geometry import Geometry
from tests.cu32.test_planner import H100, LAYER, plan

MEASURED = Figures(fma_gflops=60_000.0, memory_gb_per_s=4000.0, l2_gb_per_s=6000.0)
NAME, PLACE = "NVIDIA H200", (132, 1_980_000_000)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files of these tests alone."""
    monkeypatch.setenv("ALPHA_CACHE", str(tmp_path))


def chip_of(name: str, multiprocessors: int = PLACE[0]) -> Chip:
    """What the engine makes of a device."""
    device: Any = SimpleNamespace(**{**vars(H100), "name": name, "multiprocessors": multiprocessors})
    found: Chip = Chip.of.__wrapped__(device)
    return found


def test_the_cost_model_takes_what_was_measured() -> None:
    usual = chip_of(NAME)
    assert (usual.l2, usual.memory, usual.fmas) == (costs.L2, costs.MEMORY, 128.0)
    figures.write(NAME, *PLACE, MEASURED, measured_by="a test")
    found = chip_of(NAME)
    cycles = PLACE[0] * PLACE[1]
    assert found.fmas == pytest.approx(60e12 / 2 / cycles)
    assert found.memory == pytest.approx(4e12 / cycles) and found.l2 == pytest.approx(6e12 / cycles)
    assert chip_of("NVIDIA H100") == replace(usual, name="NVIDIA H100")  # of others nothing is known


def test_a_slower_memory_costs_more() -> None:
    thin = replace(LAYER, geometry=Geometry.make((16, 16), (1, 1), (1, 1), (0, 0)))  # bound by memory
    slow = H100.measured(replace(MEASURED, memory_gb_per_s=400.0))
    assert plan(thin, slow).cycles > 2 * plan(thin, H100.measured(MEASURED)).cycles
    slow = H100.measured(replace(MEASURED, l2_gb_per_s=1000.0))
    assert plan(LAYER, slow).cycles > 2 * plan(LAYER, H100.measured(MEASURED)).cycles
    slow = H100.measured(replace(MEASURED, fma_gflops=20_000.0))
    assert plan(LAYER, slow).cycles > 2 * plan(LAYER, H100.measured(MEASURED)).cycles


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e9, math.inf, math.nan])
@pytest.mark.parametrize("name", figures.SPEEDS)
def test_what_no_device_reaches_is_refused(name: str, value: float) -> None:
    with pytest.raises(ArgumentError, match=rf"^\[figures\] expected {name}"):
        figures.write(NAME, *PLACE, replace(MEASURED, **{name: value}))
    assert figures.read(NAME, *PLACE) is None


def spoilt() -> dict[str, str]:
    """Contents that are no figures of the device."""
    figures.write(NAME, *PLACE, MEASURED)
    content = json.loads(figures.path(NAME).read_text())
    changes: dict[str, dict[str, Any]] = {
        "another device": {"device": "NVIDIA H100"},
        "other parts of it": {"multiprocessors": 16},
        "text": {"fma_gflops": "fast"},
        "nothing": {"memory_gb_per_s": None},
        "too much": {"l2_gb_per_s": 1e12},
    }
    found = {name: json.dumps({**content, **change}) for name, change in changes.items()}
    return {**found, "cut": json.dumps(content)[:40], "empty": "", "a list": "[]", "bytes": "\x00\x01"}


KINDS = ("another device", "other parts of it", "text", "nothing", "too much", "cut", "empty", "a list", "bytes")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_none_of_ours_is_ignored_with_a_warning(kind: str) -> None:
    text = spoilt()[kind]
    figures.path(NAME).write_text(text)
    with pytest.warns(RuntimeWarning, match=r"^\[figures\] expected the speeds of NVIDIA H200 in "):
        found = chip_of(NAME)
    assert found == chip_like_h100()
    figures.write(NAME, *PLACE, MEASURED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.read(NAME, *PLACE) == MEASURED


def chip_like_h100() -> Chip:
    """With the usual constants."""
    return replace(H100, name=NAME)
