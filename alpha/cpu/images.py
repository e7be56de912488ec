"""Results of operations on images: how they lie, and how their pixels are divided into tasks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import Shape
from alpha.cpu import streaming
from alpha.cpu.base import HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.loops import pixels
from alpha.cpu.loops.pixels import PixelPlan
from alpha.engine import IMAGE_ORDER
from alpha.tensor import Tensor, dense_strides

FEWEST = 8
"""Channels below which images are copied into image order, where all of theirs are one run."""


class ImagePlan(NamedTuple):
    """A result: its elements, bytes, shape and strides, and what a kernel reads first."""

    elements: int
    nbytes: int
    shape: Shape
    strides: Shape
    streams: bool
    """Whether it may be written past the caches: it is large, and each pixel begins at a whole vector."""
    pixels: PixelPlan

    def empty(self, engine: HostEngine, dtype: np.dtype[Any]) -> Tensor:
        """A tensor for the result."""
        return Tensor(engine.allocate(self.nbytes), 0, self.shape, self.strides, dtype)


def image_plan(
    shape: Shape,
    strides: Shape,
    size: tuple[int, int],
    item: int,
    in_image_order: bool = True,
    read_once: bool = False,
) -> ImagePlan:
    """The plan for images of a shape and strides, as ``in_runs`` gives them, whose results have a height and width.

    Args:
        in_image_order: whether the results always lie so; else those of images that lie one after another do as these.
        read_once: as in ``pixels.plan``.
    """
    result = (shape[0], *size, shape[3])
    runs, _, _ = pixels.runs_of(shape, strides)
    steps = dense_strides(result, IMAGE_ORDER if in_image_order or runs == 1 else None)
    nbytes = math.prod(result) * item
    streams = streaming.streams(nbytes, nbytes) and not any(step * item % ISA.bytes for step in steps[:3])
    planned = pixels.plan(shape, strides, size, steps, item, read_once)
    return ImagePlan(math.prod(result), nbytes, result, steps, streams, planned)


def in_runs(engine: HostEngine, x: Tensor) -> Tensor:
    """The images, or a copy in image order of those whose numbers do not lie in runs that are worth it."""
    images, _, _, channels = x.shape
    if (x.strides[3] != 1 and channels > 1) or (channels < FEWEST and images > 1):
        return engine.dense(x, IMAGE_ORDER)
    return x
