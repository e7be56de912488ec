"""train_cifar10.py: what a run leaves, and that it goes on to the bit after whatever ended it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import alpha
from alpha import nn
from alpha.serialization import load_checkpoint
from tests.system.scripts import ROOT, TINY, Script, arguments, environment, losses, one_line_error

LONG = (*TINY, "--augment", "--epochs", "3")


def start(cwd: Path, *options: object) -> subprocess.Popen[str]:
    """Starts training in the background."""
    return start_command(cwd, arguments("train_cifar10.py", *options))


def start_command(cwd: Path, command: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a command in the background."""
    return subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_step(process: subprocess.Popen[str], run: Path, step: int) -> None:
    """Waits until a run has done a step."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        rows = (run / "metrics.csv").read_text().count("\n") - 1 if (run / "metrics.csv").exists() else 0
        if rows >= step or process.poll() is not None:
            return
        time.sleep(0.002)
    pytest.fail(f"step {step} did not come in time")


@pytest.mark.needs("sklearn")
def test_a_run_leaves_all_its_files(reference: Path) -> None:
    lines = (reference / "stdout.txt").read_text().splitlines()
    assert re.fullmatch(r"test accuracy: \d+\.\d %", lines[-1])
    assert sum(line.startswith("epoch ") for line in lines) == 3
    header, *rows = (reference / "metrics.csv").read_text().splitlines()
    assert header == "step,epoch,loss,accuracy,images_per_s,lr"
    assert [row.split(",")[1] for row in rows] == [str(1 + step // 4) for step in range(12)]
    assert len(losses(reference)) == 12
    assert (reference / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((reference / "settings.json").read_text())["model"] == "resnet18"
    nn.models.resnet18(base_width=4).load_state_dict(alpha.load(reference / "model.safetensors"))
    assert load_checkpoint(reference / "checkpoint.safetensors")["progress"]["step"] == 12


def test_the_same_seed_gives_the_same_losses_and_another_gives_others(
    reference: Path, script: Script, tmp_path: Path
) -> None:
    for name, seed in (("same", 0), ("other", 1)):
        process = script("train_cifar10.py", *LONG, "--steps", 3, "--seed", seed, "--out", name)
        assert process.returncode == 0, process.stderr
    assert losses(tmp_path / "same") == losses(reference)[:3]
    assert not set(losses(tmp_path / "other")) & set(losses(reference))


@pytest.mark.parametrize("precision", ["medium", "bf16"])
def test_a_run_in_bfloat16_stays_near_float32_and_keeps_its_precision(
    reference: Path, script: Script, tmp_path: Path, precision: str
) -> None:
    first = script("train_cifar10.py", *LONG, "--steps", 2, "--precision", precision, "--out", "run")
    assert first.returncode == 0, first.stderr
    other = "float32" if precision == "bf16" else "bf16"
    refused = script("train_cifar10.py", "--resume", "run", "--precision", other)
    assert refused.returncode != 0 and f"expected --precision {precision}" in one_line_error(refused)
    second = script("train_cifar10.py", "--resume", "run", "--steps", 4)
    assert second.returncode == 0, second.stderr
    found, exact = ([float(loss) for loss in losses(folder)][:4] for folder in (tmp_path / "run", reference))
    assert len(found) == 4 and found != exact
    assert found == pytest.approx(exact, rel=0.05)
    weights = alpha.load(tmp_path / "run" / "model.safetensors")
    assert all(one.dtype in (alpha.float32, alpha.int64) for one in weights.values())


@pytest.mark.needs("sklearn")
def test_resumes_to_the_bit(reference: Path, script: Script, tmp_path: Path) -> None:
    # It stops within an epoch, and at a step that is no multiple of --checkpoint-every.
    first = script("train_cifar10.py", *LONG, "--steps", 7, "--out", "run")
    second = script("train_cifar10.py", "--resume", "run", "--steps", 12)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert losses(tmp_path / "run") == losses(reference)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert second.stdout.splitlines()[-1] == (reference / "stdout.txt").read_text().splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(
    reference: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path, *LONG, "--checkpoint-every", 1000, "--out", "a run")
    wait_for_step(process, tmp_path / "a run", 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == code
    assert "Traceback" not in stderr
    last = stderr.splitlines()[-1]
    done = len(losses(tmp_path / "a run"))
    assert 2 <= done < 12
    assert f"stopped after step {done}, all saved" in last
    # The command that the line shows, as a shell would run it.
    command = shlex.split(last.partition("go on with: ")[2])
    again = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"step {done} of 12" in again.stdout
    assert losses(tmp_path / "a run") == losses(reference)


@pytest.mark.needs("sklearn")
def test_kill_9_again_and_again_costs_only_the_steps_since_the_checkpoint(reference: Path, tmp_path: Path) -> None:
    run, options = tmp_path / "run", (*LONG, "--checkpoint-every", 1, "--out", "run")
    # The delays put the kills at different places of a step and of the checkpoint that follows it.
    for step, delay in ((1, 0.0), (3, 0.013), (6, 0.029)):
        process = start(tmp_path, *options)
        wait_for_step(process, run, step)
        time.sleep(delay)
        process.kill()
        process.communicate()
        checkpoint = load_checkpoint(run / "checkpoint.safetensors")  # whole, or this raises
        assert checkpoint["progress"]["step"] + 1 > 0
        assert checkpoint["progress"]["step"] >= len(losses(run)) - 1
        options = ("--resume", "run")
    process = start(tmp_path, *options)
    assert process.wait(timeout=240) == 0
    assert losses(run) == losses(reference)
    assert (run / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()


@pytest.mark.needs("sklearn")
def test_a_run_can_be_killed_before_its_first_step(reference: Path, tmp_path: Path) -> None:
    process = start(tmp_path, *LONG, "--out", "run")
    deadline = time.monotonic() + 240
    while not (tmp_path / "run/checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    again = start(tmp_path, "--resume", "run", "--steps", 4)
    assert again.wait(timeout=240) == 0
    assert losses(tmp_path / "run") == losses(reference)[:4]


@pytest.mark.needs("sklearn")
def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint(
    script: Script, tmp_path: Path
) -> None:
    process = script(
        "train_cifar10.py", *TINY, "--optimizer", "sgd", "--lr", "1e38", "--epochs", 3, "--out", "run",
        "--checkpoint-every", 1,
    )  # fmt: skip
    assert process.returncode == 1
    error = one_line_error(process)
    assert re.search(r"expected a finite \S+ at step \d+, got .*: lower --lr", error)
    state = load_checkpoint(tmp_path / "run/checkpoint.safetensors", model=nn.models.resnet18(base_width=4))
    assert state["progress"]["step"] < int(re.search(r"at step (\d+)", error)[1])


@pytest.mark.needs("sklearn")
def test_without_matplotlib_a_run_says_so_and_is_complete_otherwise(script: Script, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/matplotlib.py").write_text("raise ImportError('hidden')\n")
    path = f"{tmp_path / 'hidden'}:{ROOT}"
    process = script("train_cifar10.py", *TINY, "--steps", 1, "--out", "run", env={"PYTHONPATH": path})
    assert process.returncode == 0, process.stderr
    assert "loss.png was not drawn" in process.stdout
    assert process.stdout.splitlines()[-1].startswith("test accuracy: ")
    assert not (tmp_path / "run/loss.png").exists()
