"""The engine's families: no two share a name, and every kernel file runs under the test driver's checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from alpha.cu32.base import DeviceEngine
from alpha.cu32.engine import CUDAEngine
from tests.cuda_on_cpu import preload

ROOT = Path(__file__).resolve().parent.parent.parent


def test_no_two_families_define_the_same_name() -> None:
    owners: dict[str, list[str]] = {}
    for family in CUDAEngine.__bases__:
        for name in vars(family):
            if not name.startswith("__") and name not in ("_abc_impl",):
                owners.setdefault(name, []).append(family.__name__)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


@pytest.mark.slow
def test_every_kernel_file_passes_the_checks_for_races_and_bounds(cu32: DeviceEngine) -> None:
    """In a process of its own, whose kernels are compiled to have every access looked at; threads run last to first."""
    if preload.emulated() is None:
        pytest.skip("a real GPU's checker is compute-sanitizer: make gpu-tests")
    checks = {"ALPHA_TEST_DRIVER": "emulated", "ALPHA_EMULATOR_CHECK": "full", "ALPHA_EMULATOR_ORDER": "reverse"}
    checks["ALPHA_SELFCHECK"] = "0"  # every file is compared here, with the CPU engine
    done = subprocess.run(
        [sys.executable, "-m", "tests.cuda_on_cpu.checked"],
        cwd=ROOT,
        env=os.environ | checks,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
