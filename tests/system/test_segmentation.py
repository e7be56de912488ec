"""segment_digits.py at a tiny size: what it leaves, also after Ctrl-C; and the scores it reports."""

from __future__ import annotations

import argparse
import csv
import importlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from tests.system.scripts import EXAMPLES, Script, arguments, environment, one_line_error

PNG = b"\x89PNG"
TINY = (
    *("--dataset", "digits", "--scenes", 24, "--test-scenes", 7, "--size", 24, "--base-width", 2, "--batch-size", 8),
    *("--threads", 1, "--out", "run"),
)


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples' modules can be imported."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def metrics(folder: Path) -> list[dict[str, float]]:
    with open(folder / "metrics.csv") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.mark.needs("sklearn")
def test_leaves_scores_weights_and_a_picture(script: Script, tmp_path: Path) -> None:
    process = script("segment_digits.py", *TINY, "--epochs", 3, "--lr", 0.02)
    assert process.returncode == 0, process.stderr
    rows = metrics(tmp_path / "run")
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[2]["loss"] < rows[0]["loss"]
    lines = process.stdout.splitlines()
    for row, line in zip(rows, lines[:3], strict=True):
        assert 0 <= row["mean_iou"] <= row["pixel_accuracy"] <= 1 and row["images_per_s"] > 0
        match = re.fullmatch(r"epoch \d/3: loss (.*), pixel accuracy (.*) %, mean IoU (.*) %, \d+ images/s", line)
        assert match
        expected = row["loss"], 100 * row["pixel_accuracy"], 100 * row["mean_iou"]
        assert [float(number) for number in match.groups()] == pytest.approx(expected, abs=0.051)
    assert lines[3] == "metrics.csv, model.safetensors and scenes.png are in run"
    assert (tmp_path / "run/scenes.png").read_bytes().startswith(PNG)
    state = alpha.load(tmp_path / "run/model.safetensors")
    assert state["classifier.weight"].shape == (11, 1, 1, 8)


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """What is started hears them, even where a shell has the tests ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.needs("sklearn")
@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_leaves_what_there_is(tmp_path: Path) -> None:
    command = arguments("segment_digits.py", *TINY, "--epochs", 100_000)
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run/metrics.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert metrics(tmp_path / "run")
    assert (tmp_path / "run/scenes.png").read_bytes().startswith(PNG)
    assert "classifier.weight" in alpha.load(tmp_path / "run/model.safetensors")


def test_a_batch_of_one_is_refused(script: Script, tmp_path: Path) -> None:
    process = script("segment_digits.py", *TINY, "--batch-size", 23)
    assert process.returncode == 1
    message = one_line_error(process)
    assert "[--batch-size] expected batches of at least 2 of the 24 scenes, got a last one of 1: BatchNorm" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.needs("sklearn")
@pytest.mark.usefixtures("examples")
def test_train_and_test_share_neither_digits_nor_backgrounds() -> None:
    options = argparse.Namespace(dataset="digits", data=None, scenes=4, test_scenes=4, size=24, batch_size=2, seed=3)
    train, test = importlib.import_module("segment_digits").load_scenes(options)
    assert len(train.digits) == 1437 and len(test.digits) == 360
    images: list[set[bytes]] = [{image.tobytes() for image in part.digits.images} for part in (train, test)]
    assert not images[0] & images[1]
    assert not any((a == b).all() for a, b in zip(train.images, test.images, strict=True))


@pytest.mark.usefixtures("examples")
def test_scores() -> None:
    """A small matrix by hand, and a large one from the definition, set by set."""
    scores: Any = importlib.import_module("confusion")
    counts = scores.confusion(np.array([[0, 0, 1], [1, 1, 3]]), np.array([[0, 1, 1], [1, 0, 3]]), 5)
    expected = np.zeros((5, 5), int)
    expected[0, 0] = expected[0, 1] = expected[1, 0] = expected[3, 3] = 1
    expected[1, 1] = 2
    np.testing.assert_array_equal(counts, expected)
    assert scores.pixel_accuracy(counts) == pytest.approx(4 / 6)
    assert scores.mean_iou(counts) == pytest.approx((1 / 3 + 2 / 4 + 1) / 3), "classes 2 and 4 do not count"
    rng = np.random.default_rng(0)
    truth, answer = rng.integers(0, 6, (2, 4, 9, 7)).astype(np.uint8)
    counts = scores.confusion(truth, answer, 6)
    shares = [((truth == c) & (answer == c)).sum() / ((truth == c) | (answer == c)).sum() for c in range(6)]
    assert scores.mean_iou(counts) == pytest.approx(np.mean(shares))
    assert scores.pixel_accuracy(counts) == pytest.approx((truth == answer).mean())
