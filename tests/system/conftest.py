"""Fixtures of the system tests: scripts run as a user runs them, and a run to compare with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.system.scripts import TINY, Script, arguments, environment


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs an example in an empty folder to its end: ``script("evaluate.py", run, env={...})``."""

    def run(name: str, *options: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments(name, *options),
            cwd=tmp_path,
            env=environment(**(env or {})),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run of 12 steps in 3 epochs, with augmentation."""
    out = tmp_path_factory.mktemp("reference") / "run"
    command = arguments("train_cifar10.py", *TINY, "--augment", "--epochs", 3, "--out", out)
    process = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    (out / "stdout.txt").write_text(process.stdout)
    return out
