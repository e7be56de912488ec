"""Gradients of several devices by NCCL, whose calls the test plays: one set of bits, and nothing through the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.scripts import device_environment

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.slow


def test_devices_that_send_to_each_other_have_one_set_of_bits() -> None:
    environment = {**device_environment(), "ALPHA_EMULATOR_DEVICES": "4", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cu32.nccl_program"], cwd=ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for shards, ranks in ((4, (1, 2, 4)), (6, (1, 3))):
        results = [found[f"{shards} {n} {sharded}"] for n in ranks for sharded in (False, True)]
        assert len({digest for result in results for digest in result["digests"]}) == 1
    for ranks in (1, 2, 4):
        all_get, one_gets = found[f"4 {ranks} False"], found[f"4 {ranks} True"]
        assert all_get["sent"] == 3 * 2 * (ranks - 1) * all_get["nbytes"]  # three steps, 2 (n - 1) / n of them per rank
        assert one_gets["sent"] == 3 * (ranks - 1) * one_gets["nbytes"]
