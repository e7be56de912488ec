"""The other examples at a small size: evaluate.py, compare_pytorch.py, custom_layer.py, get_data.py."""

from __future__ import annotations

import csv
import json
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.system.scripts import Script


@pytest.fixture
def made_up_cifar10(tmp_path: Path, rng: np.random.Generator) -> Iterator[Path]:
    """A folder with CIFAR-10's files, of full length, whose images are noise in a colour that tells the class."""
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    pixels = rng.integers(0, 200, (10_000, 3, 1024), np.uint8)
    labels = rng.integers(0, 10, 10_000)
    pixels += (5 * labels).astype(np.uint8)[:, None, None]
    batch = pickle.dumps({"data": pixels.reshape(10_000, 3072), "labels": labels.tolist()}, protocol=4)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(batch)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"colour {n}" for n in range(10)]}))
    yield folder.parent
    shutil.rmtree(folder.parent)  # 180 MB


def test_cifar10_is_found_trained_on_and_evaluated(made_up_cifar10: Path, script: Script) -> None:
    found = script("get_data.py", "cifar10", env={"ALPHA_DATA": str(made_up_cifar10)})
    assert found.stdout == "cifar10: 50000 training and 10000 test images\n", found.stderr
    trained = script(
        "train_cifar10.py", "--data", made_up_cifar10, "--base-width", 4, "--batch-size", 500, "--steps", 2,
        "--optimizer", "sgd", "--style", "torchvision", "--threads", 1, "--out", "run",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    last = trained.stdout.splitlines()[-1]
    assert re.fullmatch(r"test accuracy: \d+\.\d %", last)

    evaluated = script("evaluate.py", "run/model.safetensors", "--threads", 1)
    assert evaluated.returncode == 0, evaluated.stderr
    lines = evaluated.stdout.splitlines()
    assert lines[0].split() == ["class", "images", "right", "accuracy"]
    table = [re.fullmatch(r"(colour \d) +(\d+) +(\d+) +(\d+\.\d) %", line) for line in lines[1:-1]]
    assert [row[1] for row in table if row] == [f"colour {n}" for n in range(10)]
    images, right = (sum(int(row[column]) for row in table if row) for column in (2, 3))
    assert images == 10_000
    assert lines[-1] == last == f"test accuracy: {100 * right / images:.1f} %"


@pytest.mark.needs("sklearn", "torch")
@pytest.mark.parametrize(("model", "style", "optimizer"), [("resnet18", "paper", "adam"), ("vgg16", "paper", "sgd")])
def test_float64_curves_are_pytorchs(script: Script, tmp_path: Path, model: str, style: str, optimizer: str) -> None:
    process = script(
        "compare_pytorch.py", "--model", model, "--style", style, "--optimizer", optimizer, "--dataset", "digits",
        "--base-width", 8, "--batch-size", 16, "--steps", 4, "--dtype", "float64", "--threads", 1, "--out", "out",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    report = json.loads((tmp_path / "out/report.json").read_text())
    # Roundings of 1e-16 that a few steps amplify: the issue asks for 1e-8, PyTorch's own two layouts reach 1e-13.
    assert report["max_abs_diff"] <= 1e-10
    assert report["torch_spread_max"] <= 1e-10
    assert (tmp_path / "out/curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.needs("sklearn", "torch")
def test_the_comparison_writes_what_its_report_says(script: Script, tmp_path: Path) -> None:
    process = script(
        "compare_pytorch.py", "--dataset", "digits", "--base-width", 8, "--batch-size", 700, "--steps", 3,
        "--threads", 1, "--out", "out",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    with open(tmp_path / "out/losses.csv") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["step", "alpha", "torch"]
    assert [row[0] for row in rows] == ["1", "2", "3"]  # 2 steps per epoch, so the second epoch is reached
    apart = [abs(float(row[1]) - float(row[2])) for row in rows]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["max_abs_diff"] == max(apart)
    assert report["mean_abs_diff"] == pytest.approx(sum(apart) / 3)
    assert report["torch_spread_max"] >= report["torch_spread_mean"] >= 0
    assert report["torch_s_per_step"] == min(
        report["torch_contiguous_s_per_step"], report["torch_channels_last_s_per_step"]
    )
    assert report["alpha_s_per_step"] > 0
    assert report["settings"]["steps"] == 3
    assert "torch" in report["versions"]


@pytest.mark.needs("sklearn")
def test_custom_layer_is_checked_and_learns(script: Script) -> None:
    process = script("custom_layer.py", "--epochs", 3)
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0] == "gradcheck: SwishFunction's gradients are those of its values"
    match = re.fullmatch(r"test accuracy: (\d+\.\d) %", lines[-1])
    assert match
    assert float(match[1]) >= 90  # 97 with the seed in the script; chance is 10
