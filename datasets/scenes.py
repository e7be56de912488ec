"""Scenes: handwritten digits of several sizes and colours on a textured background, with the class of every pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.composed import Dataset, position_of
from alpha.datasets.dataset import ArrayDataset, Batch, FloatImages, Labels
from alpha.datasets.transforms import ToUnitRange

Array = np.ndarray[Any, Any]

_LEAST_SIZE = 20
_TRIES = 8  # places looked at for a digit before it is left out
_PATCHES = 6  # patches of the background's texture along a side
_GRAIN = 12.0  # grey levels, the standard deviation of the noise over everything
_SCALE = ToUnitRange()


class DigitScenes(Dataset):
    """Colour images ``size`` x ``size`` x 3 of several digits, and as large maps of classes: 0 background, digit + 1.

    Digits do not overlap; each is resized to between a fifth and two fifths of the image. A pixel is a digit's where
    its ink covers at least half of it. Scene i comes from the digits, ``size``, ``each`` and (seed, i) alone: a longer
    data set begins with a shorter one's scenes. All are made at once.

    Args:
        digits: where the digits come from; light on dark, the first channel counts. Train and test scenes are
            apart if these are.
        count: number of scenes.
        size: height and width.
        seed: of everything random.
        digits_per_scene: fewest and most digits in a scene; those for which no free place is found are left out.

    Attributes:
        images: (count, size, size, 3) uint8.
        labels: (count, size, size) uint8.
        classes: "background" and the digits' names.

    A batch has the images scaled to [-1, 1] and the maps as int64.
    """

    def __init__(
        self,
        digits: ArrayDataset,
        count: int,
        size: int = 80,
        *,
        seed: int = 0,
        digits_per_scene: tuple[int, int] = (2, 5),
    ) -> None:
        if count < 1 or size < _LEAST_SIZE or not 1 <= digits_per_scene[0] <= digits_per_scene[1]:
            raise errors.ArgumentError(
                f"[DigitScenes] expected count >= 1, size >= {_LEAST_SIZE} and digits_per_scene as fewest and "
                f"most from 1 on, got {count}, {size} and {digits_per_scene}"
            )
        self.digits = digits
        self.digits_per_scene = digits_per_scene
        self.classes = ("background", *digits.classes)
        self.images: np.ndarray[Any, np.dtype[np.uint8]] = np.empty((count, size, size, 3), np.uint8)
        self.labels: np.ndarray[Any, np.dtype[np.uint8]] = np.zeros((count, size, size), np.uint8)
        for index in range(count):
            self._make(index, np.random.default_rng((seed, index)))

    takes_parts = True
    """Whether ``batch`` takes a rank's part of a batch: nothing is drawn."""

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[FloatImages, Labels]:
        """One image (size, size, 3) in [-1, 1] and its map (size, size)."""
        position = position_of("DigitScenes", index, len(self))
        images, labels = self.batch(np.array([position]), np.random.default_rng())
        return images[0], labels[0]

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
        """The images and maps at ``indices``; nothing is drawn from ``rng``."""
        return _SCALE(self.images[indices], rng), self.labels[indices].astype(np.int64)

    def __repr__(self) -> str:
        count, *image = self.images.shape
        return f"DigitScenes({count} scenes of {tuple(image)}, {len(self.classes)} classes)"

    def _make(self, index: int, rng: np.random.Generator) -> None:
        """Draws a scene: background, digits, grain."""
        labels = self.labels[index]
        scene = _background(len(labels), rng)
        taken = np.zeros(labels.shape, bool)
        for _ in range(rng.integers(self.digits_per_scene[0], self.digits_per_scene[1] + 1)):
            self._add_digit(scene, labels, taken, rng)
        scene += _GRAIN * rng.standard_normal(scene.shape, np.float32)
        self.images[index] = np.rint(scene).clip(0, 255)

    def _add_digit(self, scene: Array, labels: Array, taken: Array, rng: np.random.Generator) -> None:
        """Draws a digit of random size and colour at a random free place; none where no such is found."""
        size = len(labels)
        chosen, side = rng.integers(len(self.digits)), int(rng.integers(size // 5, 2 * size // 5 + 1))
        colour = rng.random(3)
        colour *= 255 / colour.max()
        for top, left in rng.integers(0, size - side + 1, (_TRIES, 2)):
            box = slice(top, top + side), slice(left, left + side)
            if not taken[box].any():
                ink = _resized(self.digits.images[chosen, :, :, :1] / np.float32(255), side)
                scene[box] += ink * (colour - scene[box])
                labels[box][ink[:, :, 0] >= 0.5] = self.digits.labels[chosen] + 1
                taken[box] = True
                return


def _background(size: int, rng: np.random.Generator) -> Array:
    """A dark colour with smooth patches of other ones, (size, size, 3) float32."""
    patches = rng.uniform(0, 110, 3) + rng.uniform(-45, 45, (_PATCHES, _PATCHES, 3))
    return _resized(patches.astype(np.float32), size)


def _resized(image: Array, side: int) -> Array:
    """An image (H, W, C) as (side, side, C), bilinearly: weight 1 - t for a pixel t pixels away."""
    height, width = (_weights(length, side) for length in image.shape[:2])
    resized: Array = np.einsum("ih,hwc,jw->ijc", height, image, width, optimize=True)
    return resized


def _weights(length: int, side: int) -> Array:
    """(side, length): how much of each pixel goes into each of the result's; pixels' centres lie at i + 0.5."""
    places = ((np.arange(side) + 0.5) * (length / side) - 0.5).clip(0, length - 1)
    weights: Array = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(length))).astype(np.float32)
    return weights
