"""ImageFolder: one folder of images per class, decoded when needed; the layout in which ILSVRC2012 is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.dataset import Batch, Samples
from alpha.datasets.generator import BatchGenerator
from alpha.datasets.transforms.base import makes_tensors, pillow, takes_parts

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""A random crop's share of the image's area, and its width over height (Szegedy et al., arXiv 1409.4842)."""

_TRIES = 10
_MARGIN = 8 / 7
"""Length of the shorter side before a centred crop, relative to the crop's: 256 for 224."""


class ImageFolder(Samples):
    """Images under ``root/CLASS/...``; classes are the folders in alphabetical order.

    With a transform of torchvision's kind, one that makes tensors or takes one image, a sample is what that makes of
    the whole image in RGB. Otherwise samples are squares of ``size`` for batches. Decoding is slow: give DataLoader
    some ``num_workers``. Needs Pillow (``pip install 'dragon-alpha[images]'``).

    Args:
        root: the folder of the classes' folders, searched to any depth.
        transform: from one PIL image to anything; or from a uint8 batch (n, size, size, 3) and a generator to a batch
            of n images, and None leaves the values 0..255. An integer here is the size.
        target_transform: from a label to anything; images then come one by one.
        loader: from a file's path to an image, instead of Pillow's decoding to RGB; images then come one by one.
        is_valid_file: whether a path is one of an image, instead of by its extension.
        allow_empty: whether a class may have no images.
        size: side of the squares.
        augment: a crop of random area, aspect ratio and place, mirrored every other time; else the centre.

    Attributes:
        samples, imgs: (file, class) of every image, by class and name. targets: the classes alone.
        classes: the names of the classes. class_to_idx: the label of each.

    Raises:
        DataError: no such folder, no classes, a class without images; while reading, a file that is no image.
    """

    def __init__(
        self,
        root: str | Path,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        size: int = 224,
        augment: bool = False,
    ) -> None:
        if isinstance(transform, int):
            size, transform = transform, None
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise errors.ArgumentError(f"[ImageFolder] expected size >= 1, got {size!r}")
        self.root, self.size, self.augment, self.transform = Path(root), size, augment, transform
        self.target_transform, self.loader = target_transform, loader
        if loader is None:
            pillow("ImageFolder")
        if not self.root.is_dir():
            raise errors.DataError(f"[ImageFolder] expected a folder of classes, got {root}: give one that exists")
        folders = sorted(path for path in self.root.iterdir() if path.is_dir())
        self.classes = tuple(path.name for path in folders)
        found = [_images(folder, is_valid_file) for folder in folders]
        self.samples = [(file, label) for label, images in enumerate(found) for file in images]
        if not folders:
            raise errors.DataError(f"[ImageFolder] expected a folder for each class in {root}, got none")
        if not all(found) and not allow_empty:
            raise errors.DataError(
                f"[ImageFolder] expected images ({', '.join(EXTENSIONS)}) in every class's folder, got none in "
                f"{folders[[bool(images) for images in found].index(False)]}: add some, or remove the folder"
            )

    @property
    def imgs(self) -> list[tuple[Path, int]]:
        """(file, class) of every image."""
        return self.samples

    @property
    def targets(self) -> list[int]:
        """The classes of all images."""
        return [label for _, label in self.samples]

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class's name."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def prepares_batches(self) -> bool:
        """Whether samples are squares for batches."""
        return super().prepares_batches and not makes_tensors(self.transform) and self.loader is None

    @property
    def takes_parts(self) -> bool:
        """Whether ``batch`` takes a rank's part of a batch, as its transform does or does not."""
        return takes_parts(self.transform)

    def picture(self, index: int) -> tuple[Any, int]:
        """One whole image, and its label."""
        file, label = self.samples[index]
        if self.loader is not None:
            return self.loader(str(file)), label
        try:
            with pillow("ImageFolder").open(file) as image:
                return image.convert("RGB"), label
        except (OSError, SyntaxError, ValueError) as error:
            raise _unreadable(file, error) from error

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
        """The images at ``indices``: float32 (n, size, size, 3), and int64 labels (n,).

        What ``augment`` draws for an image depends on the sizes of those before it, so that of a rank's part the
        headers of the batch's other files are read too.
        """
        chosen = [self.samples[index] for index in indices]
        before, after = self._others(indices, rng)
        self._skip(before, rng)
        images = np.stack([self._read(file, rng) for file, _ in chosen])
        self._skip(after, rng)
        if self.transform is not None:
            images = np.asarray(self.transform(images, rng))
        return np.ascontiguousarray(images, np.float32), np.array([label for _, label in chosen], np.int64)

    def _others(self, indices: Any, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """The indices of the batch's images before and after a rank's part, where ``augment`` draws for them."""
        if not (self.augment and isinstance(rng, BatchGenerator) and rng.is_part):
            return [], []
        if not np.array_equal(rng.places[rng.rows], indices):
            raise errors.ArgumentError(
                "[ImageFolder.batch] expected the indices of the generator's part of the batch, got others: leave "
                "takes_parts out of a data set that calls this one with other indices than its own"
            )
        return rng.places[: rng.rows.start].tolist(), rng.places[rng.rows.stop :].tolist()

    def _skip(self, indices: list[int], rng: np.random.Generator) -> None:
        """Draws what ``augment`` draws for images that are another rank's."""
        for index in indices:
            with self._opened(self.samples[index][0]) as image:
                random_box(image.size, rng)
            rng.random()

    @contextmanager
    def _opened(self, file: Path) -> Iterator[Any]:
        """An image whose pixels are not read yet."""
        try:
            with pillow("ImageFolder").open(file) as image:
                # A JPEG is decoded no larger than is wanted, which saves most of the time.
                image.draft("RGB", (2 * self.size, 2 * self.size))
                yield image
        except (OSError, SyntaxError, ValueError) as error:
            raise _unreadable(file, error) from error

    def _read(self, file: Path, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
        with self._opened(file) as image:
            box = random_box(image.size, rng) if self.augment else centred_box(image.size)
            bilinear = pillow("ImageFolder").Resampling.BILINEAR
            pixels = image.convert("RGB").resize((self.size, self.size), bilinear, box)
        array = np.asarray(pixels)
        return array[:, ::-1] if self.augment and rng.random() < 0.5 else array

    def __repr__(self) -> str:
        return f"ImageFolder({len(self)} images as {self.size} x {self.size}, {len(self.classes)} classes)"


Box = tuple[float, float, float, float]


def random_box(size: tuple[int, int], rng: np.random.Generator) -> Box:
    """A part of an image (width, height): of 8 to 100 % of its area, of an aspect ratio of 3/4 to 4/3, anywhere."""
    width, height = size
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        across, down = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if across <= width and down <= height:
            left, top = rng.uniform(0, width - across), rng.uniform(0, height - down)
            return left, top, left + across, top + down
    return centred_box(size, 1.0)


def centred_box(size: tuple[int, int], margin: float = _MARGIN) -> Box:
    """The square in an image's middle, whose side is the shorter one's over ``margin``."""
    width, height = size
    side = min(size) / margin
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _images(folder: Path, is_valid: Callable[[str], bool] | None) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.is_file())
    if is_valid is not None:
        return sorted(file for file in files if is_valid(str(file)))
    return sorted(file for file in files if file.suffix.lower() in EXTENSIONS)


def _unreadable(file: Path, error: Exception) -> errors.DataError:
    return errors.DataError(f"[ImageFolder] expected an image in {file}, got {error}: replace or remove the file")
