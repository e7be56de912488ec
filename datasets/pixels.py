"""Pixels: a batch whose crop, mirroring and scaling are decided, and left for the engine to carry out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpha.datasets.transforms.base import Images, Transform, makes_tensors
from alpha.datasets.transforms.batches import (
    AlternatingFlip,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    ToUnitRange,
)
from alpha.datasets.transforms.composition import batch_steps
from alpha.datasets.transforms.conversion import FloatPixels
from alpha.engine import Engine
from alpha.layout import get_image_layout
from alpha.tensor import Tensor

Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Pixels:
    """uint8 images and what makes float32 ones of them; ``tensor`` gives what the transforms would give, to the bit.

    Attributes:
        images: (n, H, W, C) uint8, padded where pixels outside are not black.
        places: (n, 3) int32: of each result in its image: first row, first column, step to the next column (1 or -1).
        size: height and width of the results; what lies outside an image is black.
        mean, divisor: (C,) float32; a result is (pixel - mean) / divisor.
    """

    images: Images
    places: np.ndarray[Any, np.dtype[np.int32]]
    size: tuple[int, int]
    mean: Floats
    divisor: Floats
    channels_first: bool = False

    def rows(self, rows: slice) -> Pixels:
        """Some of the images."""
        return replace(self, images=self.images[rows], places=self.places[rows])

    def tensor(self, engine: Engine) -> Tensor:
        """The finished batch (n, *size, C), or with ``channels_first`` (n, C, *size), float32."""
        upload = engine.from_numpy
        made = engine.images_to_float(upload(self.images), upload(self.places), self.size, self.mean, self.divisor)
        return made.permute(0, 3, 1, 2) if self.channels_first else made


def plan(images: Images, transform: Transform | None, rng: np.random.Generator) -> Pixels | None:
    """The batch that the transform would make, drawing from ``rng`` as it would; None, and nothing is drawn, where it
    is more than one crop, mirroring, and one scaling at the end."""
    steps = batch_steps(transform)
    scales = steps and type(steps[-1]) in (ToUnitRange, Normalize, FloatPixels)
    scale = _scale(steps.pop() if scales else None, images.shape[3])
    if scale is None or {type(step) for step in steps} - {RandomCrop, RandomHorizontalFlip, AlternatingFlip}:
        return None
    crops = [step for step in steps if isinstance(step, RandomCrop)]
    if len(crops) > 1:  # the second would have to pad with what the first cut off
        return None
    n, *size, _ = images.shape
    top, left, right = np.zeros((3, n), np.int32)
    seen = images
    if crops and crops[0].padding_mode != "constant":  # padded here: the engine knows black alone, and flips commute
        seen = crops[0].padded(images)
        top += crops[0].padding
        left += crops[0].padding
    right += 1  # the direction in the image of going right in the result
    for step in steps:
        if isinstance(step, RandomCrop):
            tops, lefts = step.draw(images, rng)
            top += tops - step.padding
            left += right * (lefts - step.padding)
            size = list(step.size)
        elif isinstance(step, RandomHorizontalFlip | AlternatingFlip):
            chosen = step.draw(images, rng)
            left += chosen * right * (size[1] - 1)
            right[chosen] *= -1
    channels_first = makes_tensors(transform) and get_image_layout() == "NCHW"
    return Pixels(
        seen,
        np.stack([top, left, right], 1),
        (size[0], size[1]),
        *scale,
        channels_first,
    )


def _scale(step: Transform | None, channels: int) -> tuple[Floats, Floats] | None:
    """(mean, divisor) for each channel of a scaling of uint8 pixels; None where it does not fit the channels."""
    if isinstance(step, Normalize):
        values = step.mean * np.float32(255), step.std * np.float32(255)
        if any(value.size not in (1, channels) for value in values):
            return None
    else:
        shift, divisor = (0, 1) if step is None else (0, 255) if isinstance(step, FloatPixels) else (127.5, 127.5)
        values = np.full(1, shift, np.float32), np.full(1, divisor, np.float32)
    return np.resize(values[0], channels), np.resize(values[1], channels)
