"""The benchmark of algorithms: what counts as a good choice, runs that go on, and their page of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alpha.errors import ArgumentError
from benchmarks import algorithms, report
from benchmarks.algorithms import Row

ROWS = [
    Row("a", "forward", "images", 1.5, (1.0, 1.04, 9.0), True),
    Row("a", "forward", "winograd", 1.4, (1.0, 1.0, 1.0), False),
    Row("b", "forward", "images", 1.5, (1.0, 1.0, 1.0), False),
    Row("b", "forward", "winograd", 1.4, (1.1, 1.1, 0.9), True),
    Row("b", "weight gradient", "taps", 1.4, (3.0,), True),
]


def test_a_choice_is_judged_by_medians() -> None:
    assert algorithms.near(ROWS) == (2, 3)
    assert [algorithms.loss(found) for found in algorithms.problems_of(ROWS)] == pytest.approx([1.04, 1.1, 1.0])
    assert algorithms.summary(ROWS).endswith("2 of 3 choices; the worst takes 1.100 times the best one's time")
    assert algorithms.choices(ROWS)[1][1] == ["b", "forward", "winograd", "images", "1.10", "1.00", "1.100"]


def test_a_slow_algorithm_has_two_turns() -> None:
    assert algorithms._waiting({"fast": [], "slow": []}) == ["fast", "slow"]
    assert algorithms._waiting({"fast": [1.0, 1.1], "near": [1.4, 1.4], "slow": [1.6, 1.7]}) == ["fast", "near"]
    assert algorithms._waiting({"fast": [1.0, 1.1], "slow": [9.0]}) == ["fast", "slow"]


def test_a_run_that_was_cut_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[str, str]] = []

    def measure(engine: Any, layer: Any, batch: int, operator: str) -> list[Row]:
        if len(measured) == 5:
            measured.append(("", ""))
            raise KeyboardInterrupt
        measured.append((layer.name, operator))
        return [row._replace(layer=layer.name, operator=operator) for row in ROWS[:2]]

    monkeypatch.setattr(algorithms, "measure_operator", measure)
    file = tmp_path / "result.json"
    with pytest.raises(KeyboardInterrupt):
        algorithms.main(["--json", str(file)])
    assert len(json.loads(file.read_text())["rows"]) == 5
    algorithms.main(["--json", str(file)])
    assert len(measured) == len(set(measured)) == 25  # the one that was cut has no name
    assert "within 5 % of the best: 24 of 24 choices" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="expected a file of a run with these options"):
        algorithms.main(["--json", str(file), "--batch-size", "3"])
    result = json.loads(file.read_text())
    page = report.document([report.Report("result.json", result)])
    assert "## Choices of algorithms, suite resnet18, " in page and "24 of 24 choices" in page
    assert "the worst takes 1.040" in page
