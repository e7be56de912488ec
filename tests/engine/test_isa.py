"""Every instruction path that this processor can run computes the same convolutions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from alpha.cpu.isa import ISA, PATHS
from alpha.errors import ArgumentError
from alpha.mempool import SLACK

ROOT = Path(__file__).resolve().parent.parent.parent
AVAILABLE = PATHS[PATHS.index(ISA) :] if "ALPHA_CPU_ISA" not in os.environ else (ISA,)
SCRIPT = """
import sys
import numpy as np
import alpha
from alpha.cpu.isa import ISA
from tests.engine.test_conv import PICKED, check
assert ISA.name == sys.argv[1]
for case in PICKED:
    for dtype in (np.float32, np.float64):
        check(alpha.engine("cpu"), case, dtype, image_order=True)
print("held")
"""


def run(path: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    """The picked convolutions, or another script, in a process that is made to take a path."""
    environment = {**os.environ, "ALPHA_CPU_ISA": path, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, path]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path.name for path in AVAILABLE if path is not ISA])
def test_other_paths(path: str) -> None:
    process = run(path)
    assert process.stdout == "held\n", process.stderr


def test_reads_over_the_end_of_a_row_stay_within_the_pools_slack() -> None:
    assert max(path.bytes * path.vectors for path in PATHS) <= SLACK


def test_a_path_that_is_not_there_is_told() -> None:
    process = run("sve")
    assert process.returncode != 0
    assert ArgumentError.__name__ in process.stderr
    assert "expected ALPHA_CPU_ISA to be one of" in process.stderr
