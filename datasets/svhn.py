"""SVHN (Netzer et al., "Reading digits in natural images with unsupervised feature learning", 2011): house numbers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.transforms import ToUnitRange

_SIDE = 32
_URL = "http://ufldl.stanford.edu/housenumbers/"
_MD5 = {
    "train": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test": "eb5a983be6a315427106f1b164d9cef3",
    "extra": "a93ce644f1a588dc4d68dda5feec44a7",
}


class SVHN(ArrayDataset):
    """SVHN's cropped digits: 73,257 training, 26,032 test and 531,131 extra images, 32 x 32 x 3, of 10 classes.

    Args:
        root: the folder that holds (or gets) ``train_32x32.mat`` and its like; by default $ALPHA_DATA, then ./data.
        split: "train", "test" or "extra".
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        download: fetch the file (182, 64 or 1330 MB) where it is absent.

    Raises:
        ArgumentError: another split, or no SciPy, which reads the file. DataError: a file missing or corrupt, or a
            download that failed.

    Source: http://ufldl.stanford.edu/housenumbers/
    """

    def __init__(
        self,
        root: files.Root = None,
        split: str = "train",
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = True,
    ) -> None:
        if split not in _MD5:
            raise errors.ArgumentError(f"[SVHN] expected split as one of {', '.join(_MD5)}, got {split!r}")
        self.split = split
        images, labels = _read(_locate(split, root, download))
        transform = ToUnitRange() if transform is None else transform
        super().__init__(images, labels, tuple("0123456789"), transform, target_transform)


def _locate(split: str, root: files.Root, download: bool) -> Path:
    """The split's file, downloaded where it is absent."""
    name = f"{split}_32x32.mat"
    looked = [place / name for place in files.roots(root)]
    for path in looked:
        if path.is_file():
            return path
    if not download:
        raise files.missing("SVHN", "SVHN", looked, "download=False was asked for")
    try:
        with files.staging(looked[0].parent) as stage:
            files.download(_URL + name, stage / name, _MD5[split])
            files.publish(stage / name, looked[0])
    except files.Unavailable as error:
        raise files.missing("SVHN", "SVHN", looked, f"the download failed ({error})") from error
    return looked[0]


def _read(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images (n, 32, 32, 3) and labels of a file, in which the digit 0 has the label 10."""
    try:
        matlab = importlib.import_module("scipy.io")
    except ImportError as error:
        raise errors.ArgumentError(f"[SVHN] expected SciPy, got {error}: pip install scipy") from error
    advice = files.corrupt_advice(path)
    try:
        content = matlab.loadmat(path)
        images, labels = content["X"], content["y"].reshape(-1)
    except Exception as error:  # corrupt bytes make the reader raise nearly anything
        raise errors.DataError(
            f"[SVHN] expected images X and labels y in {path}, got {files.one_line(error)}: {advice}"
        ) from error
    if images.dtype != np.uint8 or images.shape != (_SIDE, _SIDE, 3, len(labels)) or not len(labels):
        raise errors.DataError(
            f"[SVHN] expected uint8 images (32, 32, 3, n) in {path}, got {images.dtype} {images.shape}: {advice}"
        )
    if labels.min() < 0 or labels.max() > 10:
        raise errors.DataError(f"[SVHN] expected labels 1..10 in {path}, got {labels.min()}..{labels.max()}: {advice}")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10
