"""The ORL database of faces (Samaria & Harter, WACV 1994): 40 people, 10 images each, 92 x 112 grey pixels, as PGM."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.transforms import ToUnitRange

_FOLDERS = (".", "orl_faces", "att_faces")
_HEADER = re.compile(rb"P5(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)\s")
"""Magic, width, height, largest value, each behind white space or comments; then one white space and the pixels."""

Grey = np.ndarray[Any, np.dtype[np.uint8]]


class ORLFaces(ArrayDataset):
    """Faces from folders s1, s2, ... of PGM files 1.pgm, 2.pgm, ...: one class per person, images H x W x 1.

    Every person's images are split: the first ``train_images`` of them train, the others test. Any tree of folders and
    PGM files of this form will do, with as many people and images as there are.

    Args:
        root: the folder that holds the people's folders itself, or in ``orl_faces`` or ``att_faces``; by default
            $ALPHA_DATA, then ./data. There is no download.
        train: the training or the test images.
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        train_images: images of each person that train, in the order of their numbers.
        seed: of a random order of each person's images before the split; None keeps the numbers' order.
        reduce: side of the blocks of pixels that are averaged to one; divides height and width. 2 gives 46 x 56.

    Raises:
        DataError: no such folders, a person without training or test images, a file that is no 8-bit PGM, images of
            several sizes. ArgumentError: sizes that do not fit.
    """

    def __init__(
        self,
        root: files.Root = None,
        train: bool = True,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        train_images: int = 7,
        seed: int | None = None,
        reduce: int = 1,
    ) -> None:
        if train_images < 1 or reduce < 1:
            raise errors.ArgumentError(
                f"[ORLFaces] expected train_images >= 1 and reduce >= 1, got {train_images} and {reduce}"
            )
        people = _people(root)
        images: list[Grey] = []
        labels: list[int] = []
        for label, folder in enumerate(people):
            chosen = _split(folder, train, train_images, None if seed is None else (seed, label))
            images += [_reduced(_read_pgm(file), reduce, file) for file in chosen]
            labels += [label] * len(chosen)
        sizes = {image.shape for image in images}
        if len(sizes) != 1:
            raise errors.DataError(f"[ORLFaces] expected images of one size, got {sorted(sizes)}: cut them alike")
        super().__init__(
            np.stack(images)[..., None],
            labels,
            tuple(folder.name for folder in people),
            ToUnitRange() if transform is None else transform,
            target_transform,
        )


def _people(root: files.Root) -> list[Path]:
    """The folders s1, s2, ... of the first place that has any, by their numbers."""
    looked = [place / folder for place in files.roots(root) for folder in _FOLDERS]
    for place in looked:
        found = [path for path in place.glob("s*") if path.is_dir() and path.name[1:].isdecimal()]
        if found:
            return sorted(found, key=lambda path: int(path.name[1:]))
    places = ", ".join(map(str, looked))
    raise errors.DataError(
        f"[ORLFaces] expected folders s1, s2, ... of faces in one of {places}, got none: unpack the ORL database of "
        "faces there, or give its place with root=DIR"
    )


def _split(folder: Path, train: bool, train_images: int, seed: tuple[int, int] | None) -> list[Path]:
    """A person's training or test images."""
    found = [path for path in folder.glob("*.pgm") if path.stem.isdecimal()]
    if len(found) <= train_images:
        raise errors.DataError(
            f"[ORLFaces] expected more than {train_images} images 1.pgm, 2.pgm, ... in {folder}, got {len(found)}: "
            "some must be left to test; use fewer train_images"
        )
    found.sort(key=lambda path: int(path.stem))
    if seed is not None:
        found = [found[place] for place in np.random.default_rng(seed).permutation(len(found))]
    return found[:train_images] if train else found[train_images:]


def _read_pgm(path: Path) -> Grey:
    """The pixels (H, W) of a binary PGM file of at most 255 grey levels."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise errors.DataError(f"[ORLFaces] expected a PGM file in {path}, got {files.one_line(error)}") from error
    match = _HEADER.match(content)
    if match is None or int(match[3]) > 255:
        raise errors.DataError(
            f"[ORLFaces] expected a binary PGM file (P5) of 8 bits in {path}, got one that begins {content[:20]!r}: "
            "replace or remove it"
        )
    width, height = int(match[1]), int(match[2])
    size = len(content) - match.end()
    if size != width * height or size == 0:
        raise errors.DataError(
            f"[ORLFaces] expected {width} x {height} pixels in {path}, got {size} bytes: replace or remove it"
        )
    return np.frombuffer(content, np.uint8, offset=match.end()).reshape(height, width)


def _reduced(image: Grey, factor: int, path: Path) -> Grey:
    """Means of blocks of factor x factor pixels, rounded."""
    height, width = image.shape
    if height % factor or width % factor:
        raise errors.ArgumentError(
            f"[ORLFaces] expected reduce to divide height and width, got {factor} for {height} x {width} in {path}"
        )
    blocks = image.reshape(height // factor, factor, width // factor, factor)
    reduced: Grey = np.rint(blocks.mean((1, 3))).astype(np.uint8)
    return reduced
