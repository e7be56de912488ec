"""The list of the kernels that trainings need, and the command that makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alpha.cpu.ahead import TRAININGS
from alpha.cpu.isa import ISA, PATHS
from alpha.errors import EngineError
from benchmarks import trained_kernels
from benchmarks.first_seconds import NETWORKS


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_the_list_has_what_a_training_needs(network: str) -> None:
    """Nine tenths of it, at least: which algorithms are fast depends on the processor."""
    needed = {json.dumps(kernel) for kernel in trained_kernels.needed(network, ISA.name)}
    listed = {json.dumps(kernel) for kernel in json.loads(TRAININGS.read_text("utf-8"))[ISA.name][network]}
    assert len(needed) > 5
    assert len(needed & listed) >= 0.9 * len(needed | listed), (
        f"expected the listed kernels, got {needed ^ listed}: python -m benchmarks.trained_kernels writes the list anew"
    )


def test_the_command_writes_all_paths_and_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def needed(network: str, path: str) -> list[Any]:
        return [[f"alpha.{network}", ["2 int64"]], [f"alpha.{path}", []]]

    monkeypatch.setattr(trained_kernels, "needed", needed)
    assert trained_kernels.main(["--out", str(tmp_path / "list.json")]) == 0
    text = (tmp_path / "list.json").read_text()
    assert json.loads(text) == {path.name: {name: needed(name, path.name) for name in NETWORKS} for path in PATHS}
    assert trained_kernels.text(json.loads(text)) == text


def test_the_kept_list_is_as_the_command_writes_it() -> None:
    text = TRAININGS.read_text("utf-8")
    assert trained_kernels.text(json.loads(text)) == text


def test_a_failing_training_is_told() -> None:
    with pytest.raises(EngineError, match=r"expected a training of resnet18, got an error(.|\n)*ALPHA_CPU_ISA"):
        trained_kernels.needed("resnet18", "none")
