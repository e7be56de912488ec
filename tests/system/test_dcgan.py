"""dcgan.py at a tiny size: what a run leaves, that it goes on to the bit, Ctrl-C, the conditional form, bad options."""

from __future__ import annotations

import csv
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

import alpha
from alpha import nn
from alpha.serialization import load_checkpoint
from tests.system.scripts import Script, arguments, environment, one_line_error

TINY = ("--dataset", "digits", "--base-width", 2, "--latent", 4, "--batch-size", 400, "--threads", 1)
"""Three steps per epoch."""
PNG = b"\x89PNG"

pytestmark = pytest.mark.needs("sklearn")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run of two epochs."""
    out = tmp_path_factory.mktemp("dcgan") / "run"
    command = arguments("dcgan.py", *TINY, "--epochs", 2, "--out", out)
    process = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    assert [line.partition(":")[0] for line in process.stdout.splitlines()[1:3]] == ["epoch 1/2", "epoch 2/2"]
    return out


def test_a_run_leaves_weights_losses_and_pictures(whole: Path) -> None:
    with open(whole / "losses.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [str(step) for step in range(1, 7)]
    assert all(0 < float(row[name]) < 10 for row in rows for name in ("discriminator", "generator"))
    for name in ("samples-epoch-1", "samples-epoch-2", "interpolation", "losses"):
        assert (whole / f"{name}.png").read_bytes().startswith(PNG), name
    assert not (whole / "samples-epoch-3.png").exists()
    net = nn.models.DCGAN(4, 2)
    net.generator.load_state_dict(alpha.load(whole / "generator.safetensors"))
    net.discriminator.load_state_dict(alpha.load(whole / "discriminator.safetensors"))
    assert load_checkpoint(whole / "checkpoint.safetensors", model=net)["progress"]["step"] == 6


def same(run: Path, whole: Path) -> bool:
    """Whether two runs left the same numbers and pictures, to the bit."""
    names = ("losses.csv", "generator.safetensors", "discriminator.safetensors", "samples-epoch-2.png")
    return all((run / name).read_bytes() == (whole / name).read_bytes() for name in names)


def test_resumes_to_the_bit(whole: Path, script: Script, tmp_path: Path) -> None:
    first = script("dcgan.py", *TINY, "--epochs", 2, "--steps", 4, "--out", "run")
    second = script("dcgan.py", "--resume", "run", "--steps", 6)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert same(tmp_path / "run", whole)


def test_ctrl_c_saves_and_says_how_to_go_on(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "a run"
    command = arguments("dcgan.py", *TINY, "--epochs", 1000, "--out", run)
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if (run / "losses.csv").exists() and (run / "losses.csv").read_text().count("\n") > 2:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    found = re.search(r"stopped after step (\d+), all saved; go on with: (.*)", stderr)
    assert found
    assert load_checkpoint(run / "checkpoint.safetensors")["progress"]["step"] == int(found[1])
    steps = max(6, int(found[1]) + 1)
    again = subprocess.run(
        [*shlex.split(found[2]), "--steps", str(steps)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    lines = (run / "losses.csv").read_text().splitlines()
    assert len(lines) == 1 + steps
    assert lines[:7] == (whole / "losses.csv").read_text().splitlines()


def test_the_conditional_form(whole: Path, script: Script, tmp_path: Path) -> None:
    process = script("dcgan.py", *TINY, "--conditional", "--steps", 2, "--out", "run")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("conditional DCGAN on digits: step 0 of 2")
    net = nn.models.DCGAN(4, 2, num_classes=10)
    net.generator.load_state_dict(alpha.load(tmp_path / "run/generator.safetensors"))
    for name in ("samples-epoch-1", "interpolation"):
        assert (tmp_path / f"run/{name}.png").read_bytes().startswith(PNG)
    refused = script("dcgan.py", "--resume", whole, "--conditional")
    assert refused.returncode == 1
    assert "[--resume] expected --conditional False, which the run was started with" in one_line_error(refused)


def test_losses_that_are_not_finite_end_the_run(script: Script) -> None:
    process = script("dcgan.py", *TINY, "--lr", "1e38", "--out", "run")
    assert process.returncode == 1
    assert re.search(r"dcgan: error: \[dcgan\] expected a finite loss at step \d+, got .*: lower --lr", process.stderr)
