"""FakeData, DatasetFolder and VisionDataset: their samples, batches of them, and misuse."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.datasets import DataLoader, DatasetFolder, FakeData, VisionDataset, transforms
from alpha.errors import AlphaError
from benchmarks.torchvision_models import torchvision_models


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Files of two classes, at several depths, and some that do not count."""
    for name, value in (("birds", 1), ("ants", 2)):
        (tmp_path / name / "deep").mkdir(parents=True)
        for place, path in enumerate(("b.npy", "a.NPY", "deep/c.npy")):
            with open(tmp_path / name / path, "wb") as file:
                np.save(file, np.full(3, 10 * value + place, np.float32))
        (tmp_path / name / "notes.txt").write_text("no array")
    return tmp_path


def test_files_are_found_loaded_and_collated(root: Path) -> None:
    data = DatasetFolder(root, np.load, (".npy",), transform=lambda x: x + 0.5, target_transform=lambda label: -label)
    assert data.classes == ["ants", "birds"] and data.class_to_idx == {"ants": 0, "birds": 1}
    assert data.targets == [0, 0, 0, 1, 1, 1] and len(data) == 6
    assert [data[place][0].tolist() for place in (0, 1, 2, -1)] == [[value] * 3 for value in (21.5, 20.5, 22.5, 12.5)]
    assert data[3][1] == -1
    (x, y), *_ = DataLoader(data, batch_size=4)
    assert x.shape == (4, 3) and np.asarray(y).tolist() == [0, 0, 0, -1]
    lines = repr(data).splitlines()
    assert lines[:3] == ["Dataset DatasetFolder", "    Number of datapoints: 6", f"    Root location: {root}"]


@pytest.mark.needs("torch", "torchvision")
@pytest.mark.parametrize("options", [{"extensions": (".npy",)}, {"is_valid_file": lambda path: "deep" in path}])
def test_the_files_are_torchvisions(root: Path, options: Any) -> None:
    torchvision_models()
    theirs = importlib.import_module("torchvision.datasets").DatasetFolder(str(root), np.load, **options)
    mine = DatasetFolder(str(root), np.load, **options)
    assert (mine.samples, mine.targets, mine.classes) == (theirs.samples, theirs.targets, theirs.classes)
    assert (mine.class_to_idx, mine.root) == (theirs.class_to_idx, theirs.root)


def test_a_subclass_chooses_classes(root: Path) -> None:
    class Birds(DatasetFolder):
        def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
            return ["birds"], {"birds": 7}

    assert Birds(root, np.load, (".npy",)).targets == [7, 7, 7]


def test_fake_images_follow_from_their_index() -> None:
    data = FakeData(20, (3, 8, 9), 4)
    image, label = data[3]
    assert image.shape == (8, 9, 3) and 0 <= label < 4 and 0 <= image.min() < 20 and 235 < image.max() <= 255
    assert (data[3][0] == image).all() and (data[4][0] != image).any()
    assert (FakeData(20, (3, 8, 9), 4, random_offset=2)[1][0] == image).all()
    assert {label for _, label in FakeData(200, (1, 1, 1), 4)} == {0, 1, 2, 3}
    tensors = FakeData(20, (3, 8, 9), 4, transforms.ToTensor())
    np.testing.assert_array_equal(np.asarray(tensors[3][0]), image / np.float32(255))
    x, y = next(iter(DataLoader(tensors, batch_size=6)))
    np.testing.assert_array_equal(np.asarray(x)[3], image / np.float32(255))
    assert x.shape == (6, 8, 9, 3) and y[3].item() == label
    one_by_one = FakeData(20, (1, 8, 9), 4, transforms.Compose([transforms.RandomEqualize(), transforms.ToTensor()]))
    assert next(iter(DataLoader(one_by_one, batch_size=5)))[0].shape == (5, 8, 9, 1)
    assert FakeData(5, (3, 4, 4), 2, target_transform=str)[0][1] in ("0", "1")
    assert repr(data) == "FakeData(20 images of (3, 8, 9), 4 classes)"


class Numbers(VisionDataset):
    """The numbers 0, 1 and 2 with their squares."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        pair = index, index**2
        return pair if self.transforms is None else self.transforms(*pair)

    def extra_repr(self) -> str:
        return "Power: 2"


def test_transforms_of_a_users_data_set() -> None:
    assert Numbers()[2] == (2, 4)
    assert Numbers(transform=str)[2] == ("2", 4) and Numbers(target_transform=str)[2] == (2, "4")
    assert Numbers(transforms=lambda x, y: (y, x))[2] == (4, 2)
    assert repr(Numbers("here", target_transform=abs)).splitlines()[1:] == [
        "    Number of datapoints: 3",
        "    Root location: here",
        "    Power: 2",
        "    StandardTransform",
        "    Target transform: <built-in function abs>",
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda root: DatasetFolder(root / "no", np.load, (".npy",)), "expected a folder of classes, got .*no: give"),
        (lambda root: DatasetFolder(root / "ants" / "deep", np.load, (".npy",)), "expected a folder for each class"),
        (lambda root: DatasetFolder(root, np.load, (".png",)), r"expected files \(.png\) in every class's folder"),
        (lambda root: DatasetFolder(root, np.load), "expected one of extensions and is_valid_file, got neither"),
        (lambda root: DatasetFolder(root, np.load, (".npy",), is_valid_file=bool), "is_valid_file, got both"),
        (lambda root: DatasetFolder(root, None, (".npy",)), "expected a loader to call, got None"),  # type: ignore[arg-type]
        (lambda root: DatasetFolder(root, np.load, (".npy",))[6], r"\[DatasetFolder\] expected an index below 6"),
        (lambda root: FakeData(-1), "expected size >= 0, got -1"),
        (lambda root: FakeData(image_size=(3, 4)), r"expected image_size as channels, height and width, got \(3, 4\)"),
        (lambda root: FakeData(num_classes=0), "expected num_classes >= 1, got 0"),
        (lambda root: FakeData(3)[3], "expected an index below 3"),
        (lambda root: Numbers(transforms=divmod, transform=abs), "got both: leave one out"),
    ],
)
def test_misuse_says_what_was_expected(root: Path, call: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(AlphaError, match=message):
        call(root)
    assert len(DatasetFolder(root, np.load, (".png",), allow_empty=True)) == 0
    assert alpha.get_image_layout() == "NHWC"
