"""MNIST (LeCun, Cortes, Burges) and Fashion-MNIST (Xiao, Rasul, Vollgraf, arXiv 1708.07747) in their idx files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from alpha import errors
from alpha.conversion import tensor
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.transforms import ToUnitRange
from alpha.tensor import Tensor

_SIDE = 28
_IMAGES, _LABELS = "{split}-images-idx3-ubyte", "{split}-labels-idx1-ubyte"
IMAGES_MAGIC, LABELS_MAGIC = b"\0\0\x08\x03", b"\0\0\x08\x01"  # unsigned bytes, 3 axes or 1
_COUNTS = {"train": 60_000, "t10k": 10_000}


@dataclass(frozen=True)
class Layout:
    """Where one of the two data sets lies and comes from.

    Both use the same file names, so ``first_labels``, how the labels of each split begin, tells which one a folder
    holds. ``folders`` are tried below the root in this order; the first is where a download goes.
    """

    title: str
    folders: tuple[str, ...]
    classes: tuple[str, ...]
    first_labels: dict[str, bytes]
    url: str
    md5: dict[str, str]
    counts: dict[str, int]


class MNIST(ArrayDataset):
    """MNIST: 60,000 training and 10,000 test images of handwritten digits, 28 x 28 x 1.

    Args:
        root: the folder that holds the idx files (``.gz`` or unpacked) itself, or in ``MNIST/raw`` or ``mnist``; by
            default $ALPHA_DATA, then ./data.
        train: the training or the test images.
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        download: fetch the two files where they are absent, through torchvision where that is installed.

    Raises:
        DataError: files missing, truncated, corrupt or of the other data set, or a download that failed.
    """

    layout: ClassVar[Layout] = Layout(
        title="MNIST",
        folders=("MNIST/raw", "mnist", "."),
        classes=tuple("0123456789"),
        first_labels={"train": bytes([5, 0, 4, 1, 9, 2, 1, 3, 1, 4]), "t10k": bytes([7, 2, 1, 0, 4, 1, 4, 9, 5, 9])},
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        md5={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        counts=_COUNTS,
    )

    def __init__(
        self,
        root: files.Root = None,
        train: bool = True,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = True,
    ) -> None:
        function, layout, split = type(self).__name__, self.layout, "train" if train else "t10k"
        folder = _locate(function, layout, root, train, download)
        count = layout.counts[split]
        labels = read_idx(function, folder / _LABELS.format(split=split), LABELS_MAGIC, (count,))
        images = read_idx(function, folder / _IMAGES.format(split=split), IMAGES_MAGIC, (count, _SIDE, _SIDE))
        _check_labels(function, layout, split, folder, labels)
        super().__init__(
            images[..., None],
            labels,
            layout.classes,
            ToUnitRange() if transform is None else transform,
            target_transform,
        )

    @property
    def data(self) -> Tensor:
        """The images as they are stored, (n, 28, 28) uint8."""
        return tensor(self.images[..., 0])

    @property
    def targets(self) -> Tensor:
        """The labels, int64."""
        return tensor(self.labels)


class FashionMNIST(MNIST):
    """Fashion-MNIST: Zalando's articles in MNIST's format; below the root in ``FashionMNIST/raw`` or ``fashion-mnist``.

    Arguments and errors as for MNIST. Source: https://github.com/zalandoresearch/fashion-mnist
    """

    layout = Layout(
        title="Fashion-MNIST",
        folders=("FashionMNIST/raw", "fashion-mnist", "."),
        classes=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        first_labels={"train": bytes([9, 0, 0, 3, 0, 2, 7, 2, 5, 5]), "t10k": bytes([9, 2, 1, 1, 6, 1, 4, 6, 5, 7])},
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        md5={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        counts=_COUNTS,
    )


def _locate(function: str, layout: Layout, root: files.Root, train: bool, download: bool) -> Path:
    """The folder that holds a file of the split, downloaded where there is none."""
    split = "train" if train else "t10k"
    names = [pattern.format(split=split) for pattern in (_IMAGES, _LABELS)]
    places = files.roots(root)
    looked = [place / folder for place in places for folder in layout.folders]
    for folder in looked:
        if any(existing(folder / name) for name in names):
            return folder
    if not download:
        raise files.missing(function, layout.title, looked, "download=False was asked for")
    try:
        _download(function, layout, looked[0], train, [f"{name}.gz" for name in names])
    except files.Unavailable as error:
        raise files.missing(function, layout.title, looked, f"the download failed ({error})") from error
    return looked[0]


def _download(function: str, layout: Layout, folder: Path, train: bool, names: list[str]) -> None:
    with files.staging(folder.parent.parent) as stage:
        raw = stage / "torchvision" / function / "raw"
        if not (files.through_torchvision(function, train, stage / "torchvision") and _has_all(raw, names)):
            raw = stage
            for name in names:
                files.download(layout.url + name, raw / name, layout.md5[name])
        for name in names:
            files.publish(raw / name, folder / name)


def _has_all(folder: Path, names: list[str]) -> bool:
    return all((folder / name).is_file() for name in names)


def existing(path: Path) -> Path | None:
    """The idx file as it is or with .gz, whichever exists."""
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    return None


def read_idx(
    function: str, path: Path, magic: bytes, shape: tuple[int | None, ...]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of an idx file (magic, big-endian int32 sizes, data) as an array of exactly this shape.

    None stands for as many images as the file says that it has.
    """
    found = existing(path)
    if found is None:
        raise errors.DataError(
            f"[{function}] expected the file {path} or {path.name}.gz, got neither: {files.corrupt_advice(path.parent)}"
        )
    advice = files.corrupt_advice(found)
    length = len(magic) + 4 * len(shape)
    try:
        with gzip.open(found) if found.suffix == ".gz" else found.open("rb") as file:
            header = file.read(length)
            sizes = np.frombuffer(header[len(magic) :].ljust(4 * len(shape), b"\0"), ">i4")
            known = tuple(int(told) if size is None else size for size, told in zip(shape, sizes, strict=True))
            size = max(int(np.prod(known)), 0)
            content = file.read(size + 1)  # no more than that, whatever the file unpacks to
    except (OSError, EOFError, zlib.error) as error:
        raise errors.DataError(
            f"[{function}] expected an idx file in {found}, got {files.one_line(error)}: {advice}"
        ) from error
    if header != magic + np.array(known, ">i4").tobytes() or min(known) < 0:
        raise errors.DataError(
            f"[{function}] expected an idx file of shape {known} in {found}, got a header {header!r}: {advice}"
        )
    if len(content) != size:
        got = f"{length + len(content)} bytes" if len(content) < size else "more"
        raise errors.DataError(f"[{function}] expected {length + size} bytes in {found}, got {got}: {advice}")
    return np.frombuffer(content, np.uint8).reshape(known)


def _check_labels(function: str, layout: Layout, split: str, folder: Path, labels: np.ndarray[Any, Any]) -> None:
    """The labels are in range and begin as this data set's do."""
    top = len(layout.classes) - 1
    if labels.max() > top:
        raise errors.DataError(
            f"[{function}] expected labels in 0..{top} in {folder}, got {labels.max()}: {files.corrupt_advice(folder)}"
        )
    begin = layout.first_labels[split]
    if labels[: len(begin)].tobytes() != begin:
        raise errors.DataError(
            f"[{function}] expected {layout.title} in {folder}, got labels that begin {labels[: len(begin)].tolist()}: "
            f"another data set has the same file names; keep this one's in {layout.folders[0]}"
        )
