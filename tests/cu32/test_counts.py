"""What a step asks of a GPU is as the committed counts have it: launches, bytes, memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import counts
from tests.system.scripts import ROOT, environment

EXACT = (
    "launches",
    "launches by kernel",
    "BatchNorm, MiB",
    "second cache, GB",
    "parts, MiB",
)
"""What depends on the program alone."""


@pytest.mark.slow
def test_a_step_asks_for_what_the_committed_counts_say(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    command = [sys.executable, "-m", "benchmarks.gpu.counts", "--json", str(file)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found, held = json.loads(file.read_text()), json.loads(counts.RESULT.read_text())
    for precision in ("float32", "TF32"):
        assert {name: found[precision][name] for name in EXACT} == {name: held[precision][name] for name in EXACT}, (
            "python -m benchmarks.gpu.counts --json benchmarks/gpu/counts.json writes them anew"
        )
        # The pool lends whichever of several blocks it finds first, and so may hold a little more or less.
        for name in [name for name in found[precision] if name.startswith("memory")]:
            assert found[precision][name] == pytest.approx(held[precision][name], rel=0.02)
    assert found["main loops, % of products"] == held["main loops, % of products"]
    assert "| launches |" in done.stdout


def test_shares_are_read_from_the_table() -> None:
    found: dict[str, Any] = counts.shares()
    assert set(found) == set(counts.LOOPS)
    assert all(50 < share < 100 for tiles in found.values() for share in tiles.values())
