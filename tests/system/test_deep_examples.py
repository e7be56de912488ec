"""The examples of deep architectures at a tiny size: mnist_mlp.py, rbm_mnist.py, sdae_faces.py."""

from __future__ import annotations

import csv
import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from tests.system.scripts import EXAMPLES, Script, one_line_error

PNG = b"\x89PNG"


@pytest.mark.needs("sklearn")
def test_a_network_learns_digits(script: Script) -> None:
    process = script(
        "mnist_mlp.py", "--dataset", "digits", "--hidden", 64, "--epochs", 8, "--lr", 0.003, "--threads", 1
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"epoch {n}/8" for n in range(1, 9)]
    match = re.fullmatch(r"test accuracy: (\d+\.\d) %", lines[-1])
    assert match
    assert float(match[1]) >= 90  # 96 with the default seed; chance is 10


@pytest.mark.needs("sklearn")
@pytest.mark.parametrize("options", [(), ("--persistent", "--k", 2)], ids=["CD", "PCD"])
def test_a_machine_leaves_weights_curves_and_pictures(script: Script, tmp_path: Path, options: tuple[Any, ...]) -> None:
    process = script(
        "rbm_mnist.py", "--dataset", "digits", "--hidden", 24, "--epochs", 3, "--out", "rbm", "--threads", 1, *options
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("epoch 3: reconstruction error 0.")
    with open(tmp_path / "rbm/free_energy.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    errors = [float(row["error"]) for row in rows]
    assert errors[2] < errors[0]
    for name in ("filters", "reconstructions", "free_energy"):
        assert (tmp_path / f"rbm/{name}.png").read_bytes().startswith(PNG)
    state = alpha.load(tmp_path / "rbm/model.safetensors")
    assert state["weight"].shape == (24, 64) and ("particles" in state) == bool(options)


@pytest.fixture
def made_up_faces(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Five people of four images, 20 x 16 pixels: everybody's own blobs, with noise."""
    for person in range(1, 6):
        folder = tmp_path / "orl_faces" / f"s{person}"
        folder.mkdir(parents=True)
        face = rng.integers(0, 2, (5, 4)).repeat(4, axis=0).repeat(4, axis=1) * 200
        for number in range(1, 5):
            pixels = (face + rng.integers(0, 40, face.shape)).astype(np.uint8)
            (folder / f"{number}.pgm").write_bytes(b"P5 16 20 255\n" + pixels.tobytes())
    return tmp_path


def test_faces_are_restored_and_recognised(script: Script, made_up_faces: Path, tmp_path: Path) -> None:
    process = script(
        "sdae_faces.py", "--data", made_up_faces, "--train-images", 3, "--hidden", 32, 16, "--pretrain", 1,
        "--fine-tune", 3, "--units", 16, "--epochs", 5, "--seeds", 2, "--out", "faces", "--threads", 1,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    report = json.loads((tmp_path / "faces/report.json").read_text())
    names = {"whole", "block", "scarf", "sunglasses", "occluded"}
    restorers = ("autoencoder", "plain MLP")
    assert set(report["accuracy"]) == names | {f"{name}, {by}" for name in names for by in restorers}
    assert len(report["seeds"]) == 2
    for name, value in report["accuracy"].items():
        assert value == pytest.approx(sum(seed[name] for seed in report["seeds"]) / 2)
        assert 0 <= value <= 100
    occluded = report["accuracy"]["occluded"]
    assert report["gain"] == {by: pytest.approx(report["accuracy"][f"occluded, {by}"] - occluded) for by in restorers}
    assert (tmp_path / "faces/faces.png").read_bytes().startswith(PNG)
    assert f"seed 1: whole {report['seeds'][1]['whole']:.1f} %" in process.stdout


def test_faces_that_are_missing_are_one_line(script: Script, tmp_path: Path) -> None:
    process = script("sdae_faces.py", "--data", tmp_path, "--out", "faces")
    assert process.returncode == 1
    assert "[ORLFaces] expected folders s1, s2, ... of faces" in one_line_error(process)
    assert not (tmp_path / "faces").exists()


@pytest.mark.parametrize("kind", ["block", "scarf", "sunglasses"])
def test_occlusions_cover_a_part(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    occlusion = importlib.import_module("occlusion")
    faces = np.full((50, 56, 46), 2.0, np.float32)
    covered = occlusion.occlude(faces, kind, np.random.default_rng(0))
    assert (faces == 2).all()
    share = (covered != 2).mean((1, 2))
    low, high = {"block": (0.25, 0.25), "scarf": (0.33, 0.47), "sunglasses": (0.08, 0.2)}[kind]
    assert low - 0.01 <= share.min() and share.max() <= high + 0.01
    assert len({image.tobytes() for image in covered}) > 40, "each has its own"
    assert covered[covered != 2].min() >= 0 and covered[covered != 2].max() <= 1
    if kind == "scarf":
        assert (covered[:, :30] == 2).all() and (covered[:, 37:] != 2).all()
