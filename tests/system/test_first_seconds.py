"""The benchmark of a training's first seconds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from alpha import cache
from alpha.errors import EngineError
from benchmarks import common, first_seconds


@pytest.mark.parametrize("network", first_seconds.NETWORKS)
def test_a_process_tells_its_seconds(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernels that this machine has kept."""
    monkeypatch.setitem(first_seconds.NETWORKS, network, 2)
    kept = os.environ.get("ALPHA_CACHE", str(cache.directory("cpu").parent))
    found = first_seconds.first_seconds(common.ROOT, network, kept, 1)
    assert set(found) == set(first_seconds.PHASES)
    assert all(seconds > 0 for seconds in found.values())
    assert found["until first step"] >= found["import"] + found["first step"]


def test_a_failing_process_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"expected a training of resnet18, got an error(.|\n)*ImportError"):
        (tmp_path / "alpha.py").write_text("raise ImportError('no such engine')")
        first_seconds.first_seconds(tmp_path, "resnet18", str(tmp_path), 1)


def test_cold_comes_before_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cold process has a new folder for kernels, and two warm ones have it after that."""
    calls: list[tuple[str, str]] = []

    def timed(source: Path, network: str, folder: str, threads: int) -> dict[str, float]:
        assert (source, threads) == (common.ROOT, 1)
        calls.append((network, folder))
        seconds = 20.0 if calls.count((network, folder)) == 1 else 1.0
        return dict.fromkeys(first_seconds.PHASES, seconds)

    monkeypatch.setattr(first_seconds, "first_seconds", timed)
    file = tmp_path / "result.json"
    assert first_seconds.main(["--repeats", "2", "--threads", "1", "--json", str(file)]) == 0
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"]
    assert [(row["network"], row["state"]) for row in rows] == [
        (network, state) for network in first_seconds.NETWORKS for state in ("cold", "warm")
    ]
    assert [row["median_s"]["first step"] for row in rows] == [20.0, 1.0, 20.0, 1.0]
    assert [len(row["times_ms"]["import"]) for row in rows] == [2, 4, 2, 4]
    assert "resnet18, batch 128" in capsys.readouterr().out
