"""Every recipe under bad input and faults: one line that says what to do, and the last checkpoint whole.

Options that contradict the recipe, data that is absent or damaged, a full disk, Ctrl-C in any epoch, and resuming with
another recipe.
"""

from __future__ import annotations

import pickle
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from alpha.serialization import load_checkpoint
from tests.system.scripts import TINY, Script, arguments, environment, losses, one_line_error
from tests.system.test_training import start_command, wait_for_step

TRAIN = "train_cifar10.py"
RECIPES = ("paper", "modern", "fast")
EPOCHS, STEPS_PER_EPOCH = 3, 4
LENGTHS = pytest.mark.parametrize("recipe", RECIPES)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``wholes(recipe)``: the folder of an uninterrupted run of three epochs."""
    folder = tmp_path_factory.mktemp("wholes")

    def whole(recipe: str) -> Path:
        if not (folder / recipe).exists():
            command = arguments(TRAIN, *options(recipe), "--out", folder / recipe)
            done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr
        return folder / recipe

    return whole


def options(recipe: str) -> tuple[object, ...]:
    """A small run of a recipe."""
    return (*TINY, "--recipe", recipe, "--epochs", EPOCHS)


@pytest.mark.parametrize(
    ("recipe", "given", "message"),
    [
        ("fast", ("--optimizer", "adam"), "expected no --optimizer with the recipe fast, which has its own, got adam"),
        ("fast", ("--schedule", "one-cycle"), "expected no --schedule with the recipe fast, which has its own, got o"),
        ("modern", ("--style", "paper"), "expected no --style with the recipe modern, which has its own, got paper"),
        ("modern", ("--model", "vgg16"), "expected --model resnet18 or resnet34 with the recipe modern, got vgg16"),
    ],
)
def test_options_that_contradict_a_recipe(
    script: Script, tmp_path: Path, recipe: str, given: Sequence[str], message: str
) -> None:
    process = script(TRAIN, *TINY, "--recipe", recipe, *given, "--out", "run")
    assert process.returncode == 1 and not (tmp_path / "run").exists()
    error = one_line_error(process)
    assert error.startswith(f"train_cifar10: error: [--recipe] {message}") and "--recipe out" in error


def test_an_unknown_recipe_names_those_there_are(script: Script) -> None:
    process = script(TRAIN, "--recipe", "slow")
    assert process.returncode == 2
    assert re.search(r"argument --recipe: invalid choice: 'slow' \(choose from .*paper.*fast", one_line_error(process))


@LENGTHS
def test_a_folder_without_cifar10(script: Script, tmp_path: Path, recipe: str) -> None:
    (tmp_path / "file").write_text("not a folder")  # below which nothing can be downloaded
    process = script(TRAIN, "--recipe", recipe, "--data", "file/data", "--out", "run")
    assert process.returncode == 1
    error = one_line_error(process)
    assert "[CIFAR10] expected CIFAR-10 in one of file/data/cifar-10-batches-py, got none: " in error
    assert "supply the data with DATA=DIR" in error


def damaged_files(folder: Path) -> dict[str, str]:
    """CIFAR-10's files with one that is damaged, in each of the ways by name; returns what the errors say."""
    pixels, labels = np.zeros((10_000, 3072), np.uint8), [0] * 10_000
    whole = pickle.dumps({"data": pixels, "labels": labels}, protocol=4)
    damaged = {
        "cut off": whole[: len(whole) // 2],
        "empty": b"",
        "no pickle": b"<html>" + whole[6:],
        "too few": pickle.dumps({"data": pixels[:9_999], "labels": labels}, protocol=4),
        "labels out of range": pickle.dumps({"data": pixels, "labels": [10] * 10_000}, protocol=4),
    }
    for name, content in damaged.items():
        batches = folder / name / "cifar-10-batches-py"
        batches.mkdir(parents=True)
        (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {n}" for n in range(10)]}))
        for number in (1, 2):
            (batches / f"data_batch_{number}").write_bytes(whole if number == 1 else content)
    return {
        "too few": r"expected uint8 pixels \(10000, 3072\)",
        "labels out of range": r"expected 10000 labels in 0\.\.9",
    }


@LENGTHS
def test_a_damaged_batch_file(script: Script, tmp_path: Path, recipe: str) -> None:
    messages = damaged_files(tmp_path / "data")
    folders = sorted((tmp_path / "data").iterdir())
    for folder in folders if recipe == "paper" else folders[:1]:  # the files are read alike
        process = script(TRAIN, "--recipe", recipe, "--data", folder, "--out", folder.name)
        assert process.returncode == 1
        error = one_line_error(process)
        expected = messages.get(folder.name, r"expected .*")
        assert re.search(rf"\[CIFAR10\] {expected}.*data_batch_2.*, got .*: delete .* or supply", error), error
        assert not (tmp_path / folder.name / "checkpoint.safetensors").exists()
    shutil.rmtree(tmp_path / "data")  # 300 MB


@pytest.mark.needs("sklearn")
@pytest.mark.slow
@LENGTHS
def test_ctrl_c_in_every_epoch(wholes: Callable[[str], Path], tmp_path: Path, recipe: str) -> None:
    """A run that is stopped in one epoch after another, and goes on each time with the command that it names."""
    whole, run, done = wholes(recipe), tmp_path / "run", 0
    command = arguments(TRAIN, *options(recipe), "--checkpoint-every", 1000, "--out", "run")
    for epoch in range(EPOCHS):
        process = start_command(tmp_path, command)
        wait_for_step(process, run, max(epoch * STEPS_PER_EPOCH, done) + 1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        assert "Traceback" not in stderr, stderr
        if process.returncode == 0 or "the training is done and saved" in stderr:
            assert done  # it was too quick for the signal in its last steps
            break
        assert process.returncode == 130, stderr
        done, last = len(losses(run)), stderr.splitlines()[-1]
        assert f"stopped after step {done}, all saved" in last
        assert load_checkpoint(run / "checkpoint.safetensors")["progress"]["step"] == done
        command = shlex.split(last.partition("go on with: ")[2])
    else:
        process = start_command(tmp_path, command)
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
    if process.returncode == 0:
        assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert losses(run) == losses(whole)


@pytest.mark.needs("sklearn")
@pytest.mark.slow
@LENGTHS
def test_resuming_with_another_recipe(wholes: Callable[[str], Path], script: Script, recipe: str) -> None:
    whole = wholes(recipe)
    before = (whole / "checkpoint.safetensors").read_bytes()
    for other in (name for name in RECIPES if name != recipe):
        process = script(TRAIN, "--resume", whole, "--recipe", other)
        assert process.returncode == 1
        expected = f"[--resume] expected --recipe {recipe}, which the run was started with, got {other}: leave --recipe"
        assert expected in one_line_error(process)
    assert (whole / "checkpoint.safetensors").read_bytes() == before


def with_full_disk(limit: int, cwd: Path, *given: object) -> subprocess.CompletedProcess[str]:
    """Training whose files can hold so many bytes each: as on a disk that is full then, writing fails."""
    return subprocess.run(
        arguments(TRAIN, *given), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip


@pytest.mark.needs("sklearn")
@pytest.mark.slow
@LENGTHS
def test_a_full_disk(script: Script, tmp_path: Path, recipe: str) -> None:
    """At the first checkpoint, at a later one, and between checkpoints, where only metrics.csv grows."""
    small = (*TINY, "--recipe", recipe, "--epochs", 40)
    first = with_full_disk(10_000, tmp_path, *small, "--out", "full")
    assert first.returncode == 1
    assert re.search(r"\[save_checkpoint\] expected to write .*, got .*: free space or choose", one_line_error(first))
    assert not (tmp_path / "full/checkpoint.safetensors").exists()

    run = tmp_path / "run"
    begun = script(TRAIN, *small, "--steps", 20, "--out", "run")
    assert begun.returncode == 0, begun.stderr
    before, rows = (run / "checkpoint.safetensors").read_bytes(), losses(run)
    limit = max((run / name).stat().st_size for name in ("settings.json", "metrics.csv")) + 150
    for every, message in ((1, r"\[save_checkpoint\] expected to write"), (1000, r"\[metrics.csv\] expected to write")):
        process = with_full_disk(limit, tmp_path, "--resume", "run", "--steps", 60, "--checkpoint-every", every)
        assert process.returncode == 1
        assert re.search(rf"error: {message} .*: free space", one_line_error(process)), process.stderr
        assert (run / "checkpoint.safetensors").read_bytes() == before
        assert not list(run.glob(".*.tmp"))
    resumed = script(TRAIN, "--resume", "run", "--steps", 24)
    assert resumed.returncode == 0, resumed.stderr
    assert losses(run)[:20] == rows and len(losses(run)) == 24
