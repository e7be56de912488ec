"""ImageFolder: one folder of images per class, decoded when needed; the layout in which ILSVRC2012 is stored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.dataset import Batch, Samples
from alpha.datasets.transforms import Transform

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""A random crop's share of the image's area, and its width over height (Szegedy et al., arXiv 1409.4842)."""

_TRIES = 10
_MARGIN = 8 / 7
"""Length of the shorter side before a centred crop, relative to the crop's: 256 for 224."""


class ImageFolder(Samples):
    """Images under ``root/CLASS/...``, as RGB squares of ``size``; classes are the folders in alphabetical order.

    Decoding is slow: give DataLoader some ``workers``. Needs Pillow (``pip install 'dragon-alpha[images]'``).

    Args:
        root: the folder of the classes' folders, searched to any depth.
        size: side of the images that come out.
        augment: a crop of random area, aspect ratio and place, mirrored every other time; else the centre.
        transform: from a uint8 batch (n, size, size, 3) to a batch of n images; None leaves the values 0..255.

    Attributes:
        samples: (file, class) of every image, by class and name.
        classes: the names of the classes.

    Raises:
        DataError: no such folder, no classes, a class without images; while reading, a file that is no image.
    """

    def __init__(
        self, root: str | Path, size: int = 224, *, augment: bool = False, transform: Transform | None = None
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise errors.ArgumentError(f"[ImageFolder] expected size >= 1, got {size!r}")
        self.root, self.size, self.augment, self.transform = Path(root), size, augment, transform
        _pillow()
        if not self.root.is_dir():
            raise errors.DataError(f"[ImageFolder] expected a folder of classes, got {root}: give one that exists")
        folders = sorted(path for path in self.root.iterdir() if path.is_dir())
        self.classes = tuple(path.name for path in folders)
        self.samples = [(file, label) for label, folder in enumerate(folders) for file in _images(folder)]
        if not folders:
            raise errors.DataError(f"[ImageFolder] expected a folder for each class in {root}, got none")
        counts = np.bincount([label for _, label in self.samples], minlength=len(folders))
        if not counts.all():
            raise errors.DataError(
                f"[ImageFolder] expected images ({', '.join(EXTENSIONS)}) in every class's folder, got none in "
                f"{folders[int(counts.argmin())]}: add some, or remove the folder"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
        """The images at ``indices``: float32 (n, size, size, 3), and int64 labels (n,)."""
        chosen = [self.samples[index] for index in indices]
        images = np.stack([self._read(file, rng) for file, _ in chosen])
        if self.transform is not None:
            images = np.asarray(self.transform(images, rng))
        return np.ascontiguousarray(images, np.float32), np.array([label for _, label in chosen], np.int64)

    def _read(self, file: Path, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
        image_module = _pillow()
        try:
            with image_module.open(file) as image:
                # A JPEG is decoded no larger than is wanted, which saves most of the time.
                image.draft("RGB", (2 * self.size, 2 * self.size))
                box = random_box(image.size, rng) if self.augment else centred_box(image.size)
                pixels = image.convert("RGB").resize((self.size, self.size), image_module.Resampling.BILINEAR, box)
        except (OSError, SyntaxError, ValueError) as error:
            raise errors.DataError(
                f"[ImageFolder] expected an image in {file}, got {error}: replace or remove the file"
            ) from error
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


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in EXTENSIONS and file.is_file())


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise errors.ArgumentError(
            f"[ImageFolder] expected Pillow, got {error}: pip install 'dragon-alpha[images]'"
        ) from error
    return Image
