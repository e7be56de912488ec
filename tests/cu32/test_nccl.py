"""Gradients of several devices by NCCL, whose calls the test plays: one set of bits, and nothing through the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.scripts import device_environment

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.slow


def run(what: str) -> Any:
    """What a function of the program found."""
    environment = {**device_environment(), "ALPHA_EMULATOR_DEVICES": "4", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cu32.nccl_program", what], cwd=ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_devices_that_send_to_each_other_have_one_set_of_bits() -> None:
    found = run("plain")
    for shards, ranks in ((4, (1, 2, 4)), (6, (1, 3))):
        results = [found[f"{shards} {n} {sharded}"] for n in ranks for sharded in (False, True)]
        assert len({digest for result in results for digest in result["digests"]}) == 1
    assert found["through the host"] == {"digests": found["4 1 False"]["digests"], "sent": 0}
    for ranks in (1, 2, 4):
        all_get, one_gets = found[f"4 {ranks} False"], found[f"4 {ranks} True"]
        # Three steps, in each 2 (n - 1) / n per rank of the gradients and of the loss, 8 bytes.
        assert all_get["sent"] == 3 * 2 * (ranks - 1) * (all_get["nbytes"] + 8)
        weights = 4 * (90 * 20 + 20 + 20 * 10 + 10)
        assert one_gets["sent"] == 3 * (ranks - 1) * (one_gets["nbytes"] + 2 * 8 + weights)


def test_captured_steps_have_the_bits_of_the_steps_themselves_on_any_number_of_devices() -> None:
    found = run("captured")
    for name in ("everything 1 False", "everything 2 False", "everything 4 False", "mlp 3 True"):
        check_captures(found[f"{name} True"])
    for same in (("everything 1", "everything 2", "everything 4"), ("mlp 1", "mlp 3")):
        results = [one for name in same for graphed in (False, True) for one in found[f"{name} False {graphed}"]]
        assert len({one["digest"] for one in results}) == 1
        assert len({json.dumps(one["losses"]) for one in results}) == 1
    sharded = [*found["mlp 3 True False"], *found["mlp 3 True True"]]
    assert len({one["digest"] for one in sharded}) == 1
    assert sharded[0]["losses"] == found["mlp 1 False False"][0]["losses"]


def check_captures(ranks: list[dict[str, Any]]) -> None:
    """Most calls were replays. A rank that did not see a shape before makes the others run the step as it is."""
    for one in ranks:
        assert 1 <= one["captures"] <= 2
        assert one["runs"] < len(one["losses"]) - 2


def test_steps_with_two_networks_and_with_gradients_added_up_are_captured_too() -> None:
    found = run("several")
    for name in ("two networks", "added up"):
        results = [
            one for ranks in ("1", "2") for graphed in (False, True) for one in found[f"{name} {ranks} {graphed}"]
        ]
        assert len({one["digest"] for one in results}) == 1
        assert all(one["captures"] for one in found[f"{name} 2 True"])
        assert not any(one["captures"] for one in found[f"{name} 2 False"])


def test_ranks_that_go_through_the_host_cannot_be_captured() -> None:
    assert all(text.startswith("[graph] expected ranks that reach each other's cu32") for text in run("refused"))
