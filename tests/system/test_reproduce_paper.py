"""reproduce_paper.py at a tiny size: what it leaves, that it goes on to the bit, and how it compares curves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.system.scripts import EXAMPLES, Script, arguments, device_environment, environment, one_line_error

TINY = (
    *("--dataset", "digits", "--base-width", 4, "--batch-size", 200, "--threads", 1),
    *("--steps", 60, "--every", 5, "--checkpoint-every", 2),
)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs of either side, with a published curve."""
    folder = tmp_path_factory.mktemp("paper")
    for name in ("alpha", "pytorch"):
        (folder / f"{name}-loss.csv").write_text("0, 2.3\n10,1.9\n20,1.5\n")
    command = arguments("reproduce_paper.py", *TINY, "--runs", 2, "--out", folder / "out", "--reference", folder)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "| Dragon-Alpha |" in done.stdout and "| PyTorch |" in done.stdout
    return folder / "out"


def result(folder: Path, side: str, run: int) -> dict[str, Any]:
    return dict(json.loads((folder / f"{side}-{run}" / "result.json").read_text()))


@pytest.mark.needs("sklearn", "torch")
def test_both_sides_start_alike_and_are_told_apart(experiment: Path) -> None:
    for run in range(2):
        ours, theirs = result(experiment, "alpha", run), result(experiment, "torch", run)
        assert [step for step, _ in ours["losses"]] == list(range(0, 60, 5))
        # The same weights and batch; the networks' dropout draws other numbers.
        assert ours["losses"][0][1] == pytest.approx(theirs["losses"][0][1], abs=0.2)
        assert ours["steps"] == theirs["steps"] == 60
        for side in (ours, theirs):
            assert 0 <= side["test_accuracy"] <= 100 and 0 <= side["train_accuracy"] <= 100
            assert side["s_per_epoch"] > 0 and side["file_mb"] > 0.1
    assert result(experiment, "alpha", 0)["losses"] != result(experiment, "alpha", 1)["losses"]
    report = json.loads((experiment / "report.json").read_text())
    seconds = {side: np.mean(found["s_per_epoch"]) for side, found in report["sides"].items()}
    assert report["ratio"] == pytest.approx(seconds["torch"] / seconds["alpha"])
    assert (experiment / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (experiment / "report.md").read_text().count("| Dragon-Alpha |") == 1


@pytest.mark.needs("sklearn", "torch")
def test_what_was_stopped_goes_on_to_the_bit(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = arguments("reproduce_paper.py", *TINY, "--runs", 1, "--out", out)
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not (out / "alpha-0" / "checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr
    assert process.returncode == 130 and "go on with: " in stderr
    again = subprocess.run(
        arguments("reproduce_paper.py", "--resume", out), env=environment(), capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    for side in ("alpha", "torch"):
        assert result(out, side, 0)["losses"] == result(experiment, side, 0)["losses"]


@pytest.mark.needs("sklearn", "torch")
def test_more_runs_join_those_that_are_there(experiment: Path, script: Script, tmp_path: Path) -> None:
    out = shutil.copytree(experiment, tmp_path / "out")
    done = script("reproduce_paper.py", "--resume", out, "--runs", 3)
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert [len(report["losses"][side]) for side in ("alpha", "torch")] == [3, 3]
    for side in ("alpha", "torch"):
        assert result(out, side, 0) == result(experiment, side, 0)
        assert result(out, side, 2)["losses"] != result(out, side, 1)["losses"]
    fewer = script("reproduce_paper.py", "--resume", out, "--runs", 2)
    assert fewer.returncode == 1 and "[--runs] expected at least the 3" in one_line_error(fewer)


@pytest.mark.needs("sklearn", "torch")
def test_results_alone_can_be_gone_on_with(experiment: Path, script: Script, tmp_path: Path) -> None:
    """Weights and checkpoints of a long experiment need not be kept: the runs that are left draw theirs again."""
    out = tmp_path / "out"
    for name in ("settings.json", "alpha-0/result.json", "torch-0/result.json", "alpha-1/result.json"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(experiment / name, out / name)
    done = script("reproduce_paper.py", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert not (out / "weights-0.npz").exists()
    assert result(out, "torch", 1)["losses"] == result(experiment, "torch", 1)["losses"]


@pytest.mark.needs("sklearn", "torch")
def test_fewer_epochs_of_pytorch_on_a_busy_machine(script: Script, tmp_path: Path) -> None:
    options = ("--dataset", "digits", "--base-width", 4, "--batch-size", 200, "--threads", 1, "--every", 2)
    epochs = ("--epochs", 2, "--torch-epochs", 1, "--runs", 1, "--busy")
    done = script("reproduce_paper.py", *options, *epochs, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "times as fast" not in done.stdout and "test accuracy is" not in done.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["command"].endswith("--torch-epochs 1 --runs 1 --batch-size 200 --every 2 --busy --threads 1")
    assert "ratio" not in report and "accuracy" not in report and "s_per_epoch" not in report["sides"]["alpha"]
    ours, theirs = (result(tmp_path / "out", side, 0) for side in ("alpha", "torch"))
    assert ours["steps"] == 2 * theirs["steps"] and len(ours["losses"]) > len(theirs["losses"])
    assert [line.split(" | ")[1:3] for line in report["text"].splitlines()[2:4]] == [["2", "-"], ["1", "-"]]
    assert report["curves"]["windows"] == 1


@pytest.mark.needs("sklearn", "torch")
def test_bad_input_is_told_in_one_line(experiment: Path, script: Script, tmp_path: Path) -> None:
    for options, message in (
        (
            ("--resume", experiment, "--epochs", 3),
            r"[--resume] expected the settings it was started with, got --epochs",
        ),
        (("--resume", tmp_path), "[--resume] expected a folder of reproduce_paper.py"),
        (("--out", experiment), "[--out] expected a new folder"),
        (("--reference", tmp_path), "[--reference] expected rows of step and loss"),
        (("--torch-epochs", 26), "[--torch-epochs] expected at most --epochs 25 against torch, got 26 against torch"),
        (
            ("--torch-epochs", 3, "--against", "none"),
            "[--torch-epochs] expected at most --epochs 25 against torch, got 3",
        ),
    ):
        process = script("reproduce_paper.py", *options)
        assert process.returncode == 1
        assert message in one_line_error(process)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of train and val, of few images of several sizes in three classes."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 2)):
        for label, name in enumerate(("ant", "bee", "cow")):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(80 * label, 80 * label + 90, (70 + i, 90 - i, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "images"


@pytest.mark.needs("torch")
def test_a_folder_of_images(pictures: Path, script: Script, tmp_path: Path) -> None:
    """ILSVRC2012's form, small: decoded by a process of its own, both sides on the same images and weights."""
    options = ("--model", "vgg16", "--dataset", "imagefolder", "--data", pictures, "--size", 64, "--workers", 1)
    small = ("--base-width", 4, "--batch-size", 6, "--epochs", 1, "--every", 1, "--runs", 1, "--threads", 1)
    out, copy = tmp_path / "out", tmp_path / "copy.json"
    process = script("reproduce_paper.py", *options, *small, "--out", out, "--json", copy)
    assert process.returncode == 0, process.stderr
    ours, theirs = result(out, "alpha", 0), result(out, "torch", 0)
    assert ours["steps"] == theirs["steps"] == 3
    assert ours["losses"][0][1] == pytest.approx(theirs["losses"][0][1], abs=0.1)  # ln 3, but for dropout
    with np.load(out / "weights-0.npz") as weights:
        shapes = [weights[f"classifier.{index}.weight"].shape for index in (0, 3, 6)]
    assert shapes == [(64 * 4, 8 * 4 * 2 * 2), (32 * 4, 64 * 4), (3, 32 * 4)]  # ILSVRC2012's head, for maps of 2 x 2
    report = json.loads(copy.read_text())
    assert report == json.loads((out / "report.json").read_text())
    assert str(tmp_path) not in copy.read_text()
    assert report["command"].startswith("python examples/reproduce_paper.py --model vgg16 --dataset imagefolder")
    assert report["text"] in (out / "report.md").read_text()


@pytest.mark.needs("sklearn", "torch")
def test_the_larger_head_on_small_images(script: Script, tmp_path: Path) -> None:
    options = (*TINY, "--steps", 1, "--base-width", 1, "--model", "vgg16", "--head", "ilsvrc2012", "--runs", 1)
    process = script("reproduce_paper.py", *options, "--out", tmp_path / "out")
    assert process.returncode == 0, process.stderr
    first = [result(tmp_path / "out", side, 0)["losses"][0][1] for side in ("alpha", "torch")]
    assert first[0] == pytest.approx(first[1], abs=0.1)  # ln 10, but for dropout
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["settings"]["head"] == "ilsvrc2012" and "--head ilsvrc2012" in report["command"]
    settings = {name: value for name, value in report["settings"].items() if name != "head"}
    (tmp_path / "out/settings.json").write_text(json.dumps(settings))
    older = script("reproduce_paper.py", "--resume", tmp_path / "out")
    assert older.returncode == 1
    assert "[--resume] expected an experiment of this version, got no head in" in one_line_error(older)


@pytest.mark.slow
def test_on_a_gpu(pictures: Path, script: Script, tmp_path: Path) -> None:
    """The same experiment on the CUDA engine: the test driver's, or a real one; its losses are the CPU's."""
    env = device_environment()
    data = ("--dataset", "imagefolder", "--data", pictures, "--size", 32)
    small = ("--base-width", 4, "--batch-size", 6, "--steps", 2, "--every", 1, "--runs", 1, "--against", "none")
    found = {}
    for engine in ("cpu", "cu32"):
        process = script("reproduce_paper.py", *data, *small, "--engine", engine, "--out", tmp_path / engine, env=env)
        assert process.returncode == 0, process.stderr
        assert "| Dragon-Alpha |" in process.stdout
        found[engine] = result(tmp_path / engine, "alpha", 0)
    losses = [[loss for _, loss in found[engine]["losses"]] for engine in found]
    assert losses[0] == pytest.approx(losses[1], abs=0.1) and found["cu32"]["peak_mib"] > 0


def test_a_folder_of_images_is_checked_before_anything_is_trained(
    pictures: Path, script: Script, tmp_path: Path
) -> None:
    (pictures / "val" / "cow").rename(pictures / "val" / "dog")
    folder = ("--dataset", "imagefolder", "--data", pictures)
    for options, message in (
        (folder, "[--data] expected the same classes to train on and to test with, got 'cow' in one only"),
        (("--dataset", "imagefolder"), "[--data] expected the folder that holds train and val, got none"),
        (("--dataset", "digits", "--size", 64), "[--size] expected --dataset imagefolder, got digits"),
    ):
        process = script("reproduce_paper.py", *options, "--runs", 1, "--out", tmp_path / "out")
        assert process.returncode == 1
        assert message in one_line_error(process)


def test_the_band_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import reproduce_paper

    theirs = np.repeat([[1.0, 2.0], [3.0, 2.0]], reproduce_paper.WINDOW, axis=1)
    ours = np.repeat([[4.0, 2.0], [3.0, 5.0]], reproduce_paper.WINDOW, axis=1)
    found = reproduce_paper.compare(ours, theirs)
    # PyTorch's runs are 1, 1, 0 and 0 from their means: 0.707 in the root mean square; ours are 1.5 from them.
    assert found["torch_rms_spread"] == pytest.approx(0.5**0.5)
    assert found["rms_distance"] == pytest.approx(1.5)
    assert (found["windows"], found["inside"]) == (2, 1)
    # Accuracies of 60 and 62 are 1 from their mean: the band goes from 59 to 63.
    accuracy = reproduce_paper.compare_accuracy([58.0, 59.0], [60.0, 62.0])
    assert accuracy == {"ours": 58.5, "torch": 61.0, "torch_band": [59.0, 63.0], "inside": False}
    for name in ("reproduce_paper", "paper_sides", "resuming", "run_folder", "common"):
        sys.modules.pop(name, None)
