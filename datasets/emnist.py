"""EMNIST (Cohen, Afshar, Tapson, van Schaik, arXiv 1702.05373): handwritten letters and digits in MNIST's idx files."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alpha import errors
from alpha.conversion import tensor
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.mnist import IMAGES_MAGIC, LABELS_MAGIC, existing, read_idx
from alpha.datasets.transforms import ToUnitRange
from alpha.tensor import Tensor

_SIDE = 28
_FOLDERS = ("EMNIST/raw", "emnist", ".")
_URL = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
_MD5 = "58c8d27c78d21e728a6bc7b3cc06412e"

_ALL = sorted(string.digits + string.ascii_letters)
_MERGED = [name for name in _ALL if name not in set("cijklmopsuvwxyz")]  # small letters that look like capital ones
CLASSES = {
    "byclass": _ALL,
    "bymerge": _MERGED,
    "balanced": _MERGED,
    "letters": ["N/A", *string.ascii_lowercase],
    "digits": list(string.digits),
    "mnist": list(string.digits),
}


class EMNIST(ArrayDataset):
    """One of EMNIST's six splits: 28 x 28 x 1 images of digits and letters. They lie on their side, as they are stored.

    Args:
        root: the folder that holds the idx files (``.gz`` or unpacked) itself, or in ``EMNIST/raw`` or ``emnist``; by
            default $ALPHA_DATA, then ./data.
        split: "byclass" (62 classes), "bymerge" or "balanced" (47), "letters" (labels from 1 on), "digits" or "mnist".
        train: the training or the test images.
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        download: fetch the files of all splits (560 MB) where they are absent.

    Raises:
        ArgumentError: another split. DataError: files missing, truncated or corrupt, or a download that failed.
    """

    def __init__(
        self,
        root: files.Root = None,
        split: str = "byclass",
        train: bool = True,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = True,
    ) -> None:
        if split not in CLASSES:
            raise errors.ArgumentError(f"[EMNIST] expected split as one of {', '.join(CLASSES)}, got {split!r}")
        self.split, self.train = split, bool(train)
        images_name, labels_name = _names(split, self.train)
        folder = _locate((images_name, labels_name), root, download)
        labels = read_idx("EMNIST", folder / labels_name, LABELS_MAGIC, (None,))
        images = read_idx("EMNIST", folder / images_name, IMAGES_MAGIC, (len(labels), _SIDE, _SIDE))
        if labels.max(initial=0) >= len(CLASSES[split]):
            raise errors.DataError(
                f"[EMNIST] expected labels below {len(CLASSES[split])} in {folder / labels_name}, got {labels.max()}: "
                f"{files.corrupt_advice(folder)}"
            )
        transform = ToUnitRange() if transform is None else transform
        super().__init__(images[..., None], labels, CLASSES[split], transform, target_transform)

    @property
    def data(self) -> Tensor:
        """The images as they are stored, (n, 28, 28) uint8."""
        return tensor(self.images[..., 0])

    @property
    def targets(self) -> Tensor:
        """The labels, int64."""
        return tensor(self.labels)


def _names(split: str, train: bool) -> tuple[str, str]:
    """The files of images and of labels."""
    begin = f"emnist-{split}-{'train' if train else 'test'}"
    return f"{begin}-images-idx3-ubyte", f"{begin}-labels-idx1-ubyte"


def _locate(names: tuple[str, str], root: files.Root, download: bool) -> Path:
    """The folder that holds a file of the split, downloaded where there is none."""
    looked = [place / folder for place in files.roots(root) for folder in _FOLDERS]
    for folder in looked:
        if any(existing(folder / name) for name in names):
            return folder
    if not download:
        raise files.missing("EMNIST", "EMNIST", looked, "download=False was asked for")
    every = [f"{name}.gz" for split in CLASSES for train in (True, False) for name in _names(split, train)]
    try:
        with files.staging(looked[0].parent.parent) as stage:
            files.download(_URL, stage / "gzip.zip", _MD5)
            files.unzip(stage / "gzip.zip", every, stage / "raw")
            for name in every:
                files.publish(stage / "raw" / name, looked[0] / name)
    except files.Unavailable as error:
        raise files.missing("EMNIST", "EMNIST", looked, f"the download failed ({error})") from error
    return looked[0]
