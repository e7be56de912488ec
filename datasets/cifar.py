"""CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from alpha import errors
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.transforms import ToUnitRange
from alpha.datasets.unpickle import load_dict

_SIDE, _CHANNELS = 32, 3


@dataclass(frozen=True)
class Layout:
    """How one of the two data sets lies on disk and where it comes from.

    ``train`` and ``test`` give each pickle's number of images.
    """

    title: str
    folder: str
    train: dict[str, int]
    test: dict[str, int]
    meta: str
    names_key: str
    labels_key: str
    classes: int
    url: str
    md5: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every file the data set needs."""
        return (*self.train, *self.test, self.meta)


class _Cifar(ArrayDataset):
    """What the two have in common: 32 x 32 RGB images, stored as planes in pickled batches."""

    layout: ClassVar[Layout]

    def __init__(
        self,
        root: files.Root = None,
        train: bool = True,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = True,
    ) -> None:
        function, layout = type(self).__name__, self.layout
        folder = _locate(function, layout, root, train, download)
        classes = _read_classes(function, layout, folder / layout.meta)
        parts = layout.train if train else layout.test
        images = np.empty((sum(parts.values()), _SIDE, _SIDE, _CHANNELS), np.uint8)
        labels = np.empty(len(images), np.int64)
        end = 0
        for name, count in parts.items():
            part = slice(end, end := end + count)
            images[part], labels[part] = _read_batch(function, layout, folder / name, count)
        super().__init__(images, labels, classes, ToUnitRange() if transform is None else transform, target_transform)


class CIFAR10(_Cifar):
    """CIFAR-10: 50,000 training and 10,000 test images, 32 x 32 x 3, of 10 classes.

    Args:
        root: the folder that holds (or gets) ``cifar-10-batches-py``; by default $ALPHA_DATA, then ./data.
        train: the training or the test images.
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        download: fetch the files (170 MB) where they are absent, through torchvision where that is installed.

    Raises:
        DataError: files missing, truncated or corrupt, or a download that failed.

    Source: https://www.cs.toronto.edu/~kriz/cifar.html
    """

    layout = Layout(
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        train={f"data_batch_{number}": 10_000 for number in range(1, 6)},
        test={"test_batch": 10_000},
        meta="batches.meta",
        names_key="label_names",
        labels_key="labels",
        classes=10,
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
    )


class CIFAR100(_Cifar):
    """CIFAR-100: as CIFAR-10 with 100 classes (the fine labels), from the folder ``cifar-100-python``."""

    layout = Layout(
        title="CIFAR-100",
        folder="cifar-100-python",
        train={"train": 50_000},
        test={"test": 10_000},
        meta="meta",
        names_key="fine_label_names",
        labels_key="fine_labels",
        classes=100,
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
    )


def _locate(function: str, layout: Layout, root: files.Root, train: bool, download: bool) -> Path:
    """The data set's folder, downloaded where it is absent."""
    places = files.roots(root)
    # A user may also point at the data set's own folder.
    looked = [place if place.name == layout.folder else place / layout.folder for place in places]
    for folder in looked:
        if folder.is_dir():
            return folder
    if not download:
        raise files.missing(function, layout.title, looked, "download=False was asked for")
    try:
        _download(function, layout, looked[0], train)
    except files.Unavailable as error:
        raise files.missing(function, layout.title, looked, f"the download failed ({error})") from error
    return looked[0]


def _download(function: str, layout: Layout, folder: Path, train: bool) -> None:
    with files.staging(folder.parent) as stage:
        theirs = stage / "torchvision" / layout.folder
        if files.through_torchvision(function, train, theirs.parent) and theirs.is_dir():
            files.publish(theirs, folder)
            return
        archive, ours = stage / "archive.tar.gz", stage / layout.folder
        files.download(layout.url, archive, layout.md5)
        files.unpack(archive, layout.folder, layout.names, ours)
        files.publish(ours, folder)


def _read_classes(function: str, layout: Layout, path: Path) -> tuple[str, ...]:
    advice = files.corrupt_advice(path.parent)
    names = load_dict(function, path, advice).get(layout.names_key)
    if not isinstance(names, list) or len(names) != layout.classes or not all(isinstance(n, str) for n in names):
        raise errors.DataError(
            f"[{function}] expected {layout.classes} names under {layout.names_key!r} in {path}, got {_brief(names)}: "
            f"{advice}"
        )
    return tuple(names)


def _read_batch(function: str, layout: Layout, path: Path, count: int) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Images (count, 32, 32, 3) and labels of one pickled batch."""
    advice = files.corrupt_advice(path.parent)
    content = load_dict(function, path, advice)
    planes, labels = content.get("data"), content.get(layout.labels_key)
    shape = (count, _CHANNELS * _SIDE * _SIDE)
    if not isinstance(planes, np.ndarray) or planes.shape != shape:
        raise errors.DataError(
            f"[{function}] expected uint8 pixels {shape} under 'data' in {path}, got {_brief(planes)}: {advice}"
        )
    valid = isinstance(labels, list) and all(type(label) is int and 0 <= label < layout.classes for label in labels)
    if not isinstance(labels, list) or not valid or len(labels) != count:
        raise errors.DataError(
            f"[{function}] expected {count} labels in 0..{layout.classes - 1} under {layout.labels_key!r} in {path}, "
            f"got {_brief(labels)}: {advice}"
        )
    return planes.reshape(count, _CHANNELS, _SIDE, _SIDE).transpose(0, 2, 3, 1), labels


def _brief(value: Any) -> str:
    """What a value is, in a few words."""
    if value is None:
        return "none"
    if isinstance(value, np.ndarray):
        return f"an array {value.shape}"
    if isinstance(value, list):
        numbers = [item for item in value if isinstance(item, int)]
        span = f" from {min(numbers)} to {max(numbers)}" if numbers else ""
        return f"a list of {len(value)}{span}"
    return type(value).__name__
