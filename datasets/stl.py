"""STL-10 (Coates, Lee, Ng, "An analysis of single-layer networks in unsupervised feature learning", AISTATS 2011)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors
from alpha.arguments import whole
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.transforms import ToUnitRange

_SIDE = 96
_FOLDER = "stl10_binary"
_URL = "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz"
_MD5 = "91f7769df0f17e558f3565bffb0c7dfb"
_NAMES = ("class_names.txt", "fold_indices.txt", "train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")
_PARTS = {
    "train": ("train",),
    "test": ("test",),
    "unlabeled": ("unlabeled",),
    "train+unlabeled": ("train", "unlabeled"),
}


class STL10(ArrayDataset):
    """STL-10: 5,000 training and 8,000 test images, 96 x 96 x 3, of 10 classes, and 100,000 without labels.

    Args:
        root: the folder that holds (or gets) ``stl10_binary``; by default $ALPHA_DATA, then ./data.
        split: "train", "test", "unlabeled", whose labels are -1, or "train+unlabeled".
        folds: number 0..9 of the training set's fold of 1,000 images to take alone; None takes all.
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        download: fetch the files (2.6 GB) where they are absent.

    Raises:
        ArgumentError: another split or fold. DataError: files missing or corrupt, or a download that failed.

    Source: https://cs.stanford.edu/~acoates/stl10/
    """

    least_label = -1

    def __init__(
        self,
        root: files.Root = None,
        split: str = "train",
        folds: int | None = None,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = True,
    ) -> None:
        if split not in _PARTS:
            raise errors.ArgumentError(f"[STL10] expected split as one of {', '.join(_PARTS)}, got {split!r}")
        self.split, self.folds = split, None if folds is None else whole("STL10", "folds", folds, 0, 9)
        folder = _locate(root, download)
        parts = [_read(folder, part) for part in _PARTS[split]]
        if self.folds is not None and "train" in _PARTS[split]:
            images, labels = parts[0]
            chosen = _fold(folder, self.folds, len(labels))
            parts[0] = images[chosen], labels[chosen]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        classes = _text(folder / "class_names.txt").split()
        transform = ToUnitRange() if transform is None else transform
        super().__init__(images, labels, classes, transform, target_transform)


def _locate(root: files.Root, download: bool) -> Path:
    """The data set's folder, downloaded where it is absent."""
    looked = [place if place.name == _FOLDER else place / _FOLDER for place in files.roots(root)]
    for folder in looked:
        if folder.is_dir():
            return folder
    if not download:
        raise files.missing("STL10", "STL-10", looked, "download=False was asked for")
    try:
        with files.staging(looked[0].parent) as stage:
            files.download(_URL, stage / "archive.tar.gz", _MD5)
            files.unpack(stage / "archive.tar.gz", _FOLDER, (*_NAMES, "unlabeled_X.bin"), stage / _FOLDER)
            files.publish(stage / _FOLDER, looked[0])
    except files.Unavailable as error:
        raise files.missing("STL10", "STL-10", looked, f"the download failed ({error})") from error
    return looked[0]


def _read(folder: Path, part: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images (n, 96, 96, 3), stored as planes of columns, and labels from 0 on; -1 where there are none."""
    pixels = _bytes(folder / f"{part}_X.bin")
    size = 3 * _SIDE * _SIDE
    if not len(pixels) or len(pixels) % size:
        raise errors.DataError(
            f"[STL10] expected a multiple of {size} bytes in {folder / f'{part}_X.bin'}, got {len(pixels)}: "
            f"{files.corrupt_advice(folder)}"
        )
    images = np.ascontiguousarray(pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 3, 2, 1))
    if part == "unlabeled":
        return images, np.full(len(images), -1)
    labels = _bytes(folder / f"{part}_y.bin").astype(np.int64) - 1
    if len(labels) != len(images) or labels.min() < 0 or labels.max() > 9:
        raise errors.DataError(
            f"[STL10] expected {len(images)} labels 1..10 in {folder / f'{part}_y.bin'}, got {len(labels)}: "
            f"{files.corrupt_advice(folder)}"
        )
    return images, labels


def _fold(folder: Path, number: int, count: int) -> np.ndarray[Any, Any]:
    """The indices of a fold's images."""
    lines = _text(folder / "fold_indices.txt").splitlines()
    try:
        chosen = np.array(lines[number].split(), np.int64)
        if not chosen.size or chosen.min() < 0 or chosen.max() >= count:
            raise ValueError(f"indices outside of 0..{count - 1}")
    except (IndexError, ValueError) as error:
        raise errors.DataError(
            f"[STL10] expected indices in line {number + 1} of {folder / 'fold_indices.txt'}, got "
            f"{files.one_line(error)}: {files.corrupt_advice(folder)}"
        ) from error
    return chosen


def _bytes(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        return np.fromfile(path, np.uint8)
    except OSError as error:
        raise errors.DataError(
            f"[STL10] expected the file {path}, got {files.one_line(error)}: {files.corrupt_advice(path.parent)}"
        ) from error


def _text(path: Path) -> str:
    return _bytes(path).tobytes().decode("ascii", "replace")
