"""SVHN, STL-10, EMNIST and torchvision's arguments of all data sets, from small files in their formats."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import alpha
from alpha import datasets, errors
from alpha.datasets import emnist, files, transforms

RNG = np.random.default_rng(5)


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """EMNIST's split of letters, 5 images."""
    folder = tmp_path / "EMNIST" / "raw"
    folder.mkdir(parents=True)
    images, labels = RNG.integers(0, 256, (5, 28, 28), np.uint8), np.array([1, 26, 3, 4, 5], np.uint8)
    (folder / "emnist-letters-train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (folder / "emnist-letters-train-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path


def test_emnist(letters: Path) -> None:
    data = datasets.EMNIST(letters, "letters", transform=transforms.ToTensor(), download=False)
    assert len(data) == 5 and data.targets.tolist() == [1, 26, 3, 4, 5] and data.data.shape == (5, 28, 28)
    assert data.classes[26] == "z" and len(emnist.CLASSES["bymerge"]) == 47 and len(emnist.CLASSES["byclass"]) == 62
    image, label = data[1]
    assert image.shape == (28, 28, 1) and label == 26
    np.testing.assert_allclose(np.asarray(image)[..., 0], data.data[1].numpy() / 255, rtol=1e-6)
    with pytest.raises(errors.ArgumentError, match=r"\[EMNIST\] expected split as one of byclass, .*, got 'capital'"):
        datasets.EMNIST(letters, "capital")
    with pytest.raises(errors.DataError, match=r"expected EMNIST in one of .*download=False was asked for"):
        datasets.EMNIST(letters, "digits", download=False)
    labels = letters / "EMNIST" / "raw" / "emnist-letters-train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.array([1, 2, 3, 4, 27], np.uint8)))
    with pytest.raises(errors.DataError, match=r"expected labels below 27 in .*, got 27"):
        datasets.EMNIST(letters, "letters", download=False)
    labels.write_bytes(idx(np.array([1, 2], np.uint8)))
    with pytest.raises(errors.DataError, match=r"expected an idx file of shape \(2, 28, 28\)"):
        datasets.EMNIST(letters, "letters", download=False)
    labels.write_bytes(b"\0\0\x08\x01\0\0")
    with pytest.raises(errors.DataError, match="expected an idx file of shape"):
        datasets.EMNIST(letters, "letters", download=False)


def test_emnist_is_taken_out_of_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, target: Path, md5: str) -> None:
        with zipfile.ZipFile(target, "w") as pack:
            for split in emnist.CLASSES:
                for part in ("train", "test"):
                    begin = f"gzip/emnist-{split}-{part}"
                    pack.writestr(f"{begin}-images-idx3-ubyte.gz", gzip.compress(idx(np.zeros((3, 28, 28), np.uint8))))
                    pack.writestr(f"{begin}-labels-idx1-ubyte.gz", gzip.compress(idx(np.ones(3, np.uint8))))
            pack.writestr("gzip/emnist-mapping.txt", "")

    monkeypatch.setattr(files, "download", fetch)
    assert datasets.EMNIST(tmp_path, "digits", train=False).labels.tolist() == [1, 1, 1]
    assert len(list((tmp_path / "EMNIST" / "raw").iterdir())) == 24
    assert datasets.EMNIST(tmp_path, "mnist", download=False).labels.tolist() == [1, 1, 1]


@pytest.mark.needs("scipy")
def test_svhn(tmp_path: Path) -> None:
    from scipy.io import savemat

    images = RNG.integers(0, 256, (4, 32, 32, 3), np.uint8)
    file = tmp_path / "test_32x32.mat"
    savemat(file, {"X": images.transpose(1, 2, 3, 0), "y": np.array([[1], [10], [9], [10]], np.uint8)})
    data = datasets.SVHN(tmp_path, "test", download=False)
    np.testing.assert_array_equal(data.data, images)
    assert data.targets == [1, 0, 9, 0] and data.classes[0] == "0"
    with pytest.raises(errors.ArgumentError, match=r"\[SVHN\] expected split as one of train, test, extra, got 'all'"):
        datasets.SVHN(tmp_path, "all")
    with pytest.raises(errors.DataError, match="expected SVHN in one of"):
        datasets.SVHN(tmp_path, "train", download=False)
    file.write_bytes(b"no file of MATLAB's")
    with pytest.raises(errors.DataError, match=r"\[SVHN\] expected images X and labels y in"):
        datasets.SVHN(tmp_path, "test", download=False)
    savemat(file, {"X": images[..., :1], "y": [1, 2, 3, 4]})
    with pytest.raises(errors.DataError, match=r"expected uint8 images \(32, 32, 3, n\)"):
        datasets.SVHN(tmp_path, "test", download=False)


@pytest.fixture
def stl(tmp_path: Path) -> Path:
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for name, count in (("train", 4), ("test", 2), ("unlabeled", 3)):
        images = RNG.integers(0, 256, (count, 96, 96, 3), np.uint8)
        np.save(tmp_path / f"{name}.npy", images)
        (folder / f"{name}_X.bin").write_bytes(images.transpose(0, 3, 2, 1).tobytes())  # planes of columns
        (folder / f"{name}_y.bin").write_bytes(bytes(range(1, count + 1)))
    (folder / "class_names.txt").write_text("\n".join(["airplane", "bird", *map(str, range(8))]))
    (folder / "fold_indices.txt").write_text("3 1 \n" * 10)
    return tmp_path


def test_stl10(stl: Path) -> None:
    train = datasets.STL10(stl, download=False)
    np.testing.assert_array_equal(train.data, np.load(stl / "train.npy"))
    assert train.targets == [0, 1, 2, 3] and train.classes[1] == "bird"
    assert datasets.STL10(stl, folds=9, download=False).targets == [3, 1]
    unlabeled = datasets.STL10(stl, "train+unlabeled", download=False)
    assert unlabeled.targets == [0, 1, 2, 3, -1, -1, -1] and unlabeled[6][1] == -1
    np.testing.assert_array_equal(datasets.STL10(stl, "unlabeled").data, np.load(stl / "unlabeled.npy"))
    faults: list[tuple[Callable[[], Any], str]] = [
        (lambda: datasets.STL10(stl, "all"), "expected split as one of train, test"),
        (lambda: datasets.STL10(stl, folds=10), "expected folds <= 9"),
        (lambda: datasets.STL10(stl / "none", download=False), "expected STL-10 in one of"),
    ]
    for name, content, message in (
        ("test_y.bin", b"\x01", "expected 2 labels 1..10"),
        ("test_X.bin", b"\x01", "expected a multiple of 27648 bytes"),
        ("fold_indices.txt", b"4\n" * 10, r"expected indices in line 1 .* outside of 0..3"),
    ):
        (stl / "stl10_binary" / name).write_bytes(content)
        split, folds = ("train", 0) if name.startswith("fold") else ("test", None)
        with pytest.raises(errors.DataError, match=message):
            datasets.STL10(stl, split, folds, download=False)
    for fault, message in faults:
        with pytest.raises(errors.AlphaError, match=message):
            fault()


# -- torchvision's arguments -----------------------------------------------------------------------------------------


def test_an_image_folder_as_torchvision_has_it(tmp_path: Path) -> None:
    for name, colour in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (9, 7), colour).save(tmp_path / name / "1.png")
        (tmp_path / name / "2.raw").write_bytes(b"")
    data = datasets.ImageFolder(tmp_path, transforms.ToTensor(), lambda label: -label)
    image, label = data[1]
    assert image.shape == (7, 9, 3) and image[0, 0].tolist() == [0, 0, 1] and label == -1
    assert data.class_to_idx == {"cat": 0, "dog": 1} and data.targets == [0, 1] and data.imgs is data.samples
    resized = transforms.Compose([transforms.Resize((4, 4)), transforms.ToTensor()])
    with alpha.set_image_layout("NCHW"):
        x, y = next(iter(datasets.DataLoader(datasets.ImageFolder(str(tmp_path), transform=resized), batch_size=2)))
        assert x.shape == (2, 3, 4, 4) and y.tolist() == [0, 1]
    raw = datasets.ImageFolder(tmp_path, loader=lambda path: path[-5:], is_valid_file=lambda path: path.endswith("raw"))
    assert raw[1] == ("2.raw", 1)
    (tmp_path / "empty").mkdir()
    assert len(datasets.ImageFolder(tmp_path, 4, allow_empty=True)) == 2


def test_mnists_attributes_are_tensors_and_cifars_an_array(tmp_path: Path) -> None:
    digits = datasets.Digits(size=8, channels=1)
    assert digits.data.dtype == np.uint8 and digits.targets[:3] == digits.labels[:3].tolist()
    assert digits.class_to_idx["7"] == 7
    data = datasets.ArrayDataset(np.zeros((2, 3, 3, 1), np.uint8), [0, 1], ["a", "b"], None, lambda label: "ab"[label])
    image, label = data[1]
    assert image.size == (3, 3) and image.mode == "L" and label == "b"
