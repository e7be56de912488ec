"""What the system tests share: how to run an example, small settings, what its output must look like."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
Script = Callable[..., subprocess.CompletedProcess[str]]

TINY = (
    *("--dataset", "digits", "--base-width", "4", "--batch-size", "400"),
    *("--checkpoint-every", "2", "--threads", "1"),
)
"""Four steps per epoch of a network that takes no time; dropout is on, as the paper has it.

One thread: on a busy machine two would wait for each other.
"""


def arguments(script: str, *options: object) -> list[str]:
    """The command that runs an example."""
    return [sys.executable, str(EXAMPLES / script), *map(str, options)]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, in which the packages of this repository are found, installed or not."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def losses(run: Path) -> list[str]:
    """The loss column of a run's metrics.csv, to the last digit; its steps must be 1, 2, 3, ..."""
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    return [row["loss"] for row in rows]


def one_line_error(process: subprocess.CompletedProcess[str]) -> str:
    """The error that ends a failed script: the only line on stderr beside progress bars, and no traceback."""
    assert "Traceback" not in process.stderr, process.stderr
    lines = [line for line in process.stderr.splitlines() if line.strip() and "images" not in line]
    assert len(lines) == 1, process.stderr
    return lines[0]


def device_environment() -> dict[str, str]:
    """What lets a process of its own find the driver that these tests use; skips where there is none."""
    from tests.cuda_on_cpu import build, preload

    reason = preload.load()
    if reason is not None:
        pytest.skip(f"cu32: {reason}")
    if preload.emulated() is None:
        return dict(os.environ)
    return {**os.environ, "LD_LIBRARY_PATH": str(build.driver().parent), "ALPHA_NVCC": str(build.HERE / "nvcc")}
