"""Pictures of tensors: several images as one grid, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from alpha import errors
from alpha.arguments import number, whole
from alpha.conversion import tensor as make_tensor
from alpha.datasets.transforms.base import Array, channels_first, pillow
from alpha.tensor import Tensor


def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images side by side as one image, of 3 channels where they have 1.

    Args:
        tensor: a batch (n, H, W, C), or (n, C, H, W) under ``alpha.set_image_layout("NCHW")``, a list of images of one
            shape, or one image, which comes back without padding; (H, W) is one image too.
        nrow: images in a row.
        padding: pixels between them and around.
        normalize: bring values from ``value_range`` into [0, 1]; by default from the least to the largest.
        value_range: (least, largest).
        scale_each: by each image's own least and largest.
        pad_value: the colour of padding.
    """
    images, like = _batch("make_grid", tensor)
    across, gap = whole("make_grid", "nrow", nrow, 1), whole("make_grid", "padding", padding, 0)
    fill = number("make_grid", "pad_value", pad_value)
    if images.shape[-1] == 1:
        images = images.repeat(3, -1)
    if normalize:
        images = _normalized(images, value_range, scale_each)
    if len(images) == 1:
        return _placed(images[0], like)
    n, height, width, channels = images.shape
    columns = min(across, n)
    rows = -(-n // columns)
    grid = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, channels), fill, images.dtype)
    for place, image in enumerate(images):
        top, left = (height + gap) * (place // columns) + gap, (width + gap) * (place % columns) + gap
        grid[top : top + height, left : left + width] = image
    return _placed(grid, like)


def save_image(
    tensor: Tensor | Sequence[Tensor], fp: str | Path | IO[bytes], format: str | None = None, **kwargs: Any
) -> None:
    """Writes an image, or a grid of several (``kwargs`` are ``make_grid``'s), to a file; 0 is black and 1 is white.

    The format is that of the file's extension unless it is named. Needs Pillow.
    """
    grid, _ = _batch("save_image", make_grid(tensor, **kwargs))
    colours = (grid[0] * 255 + 0.5).clip(0, 255).astype(np.uint8)
    pillow("save_image").fromarray(colours).save(fp, format=format)


def _batch(function: str, images: Any) -> tuple[Array, Tensor]:
    """Images as (n, H, W, C), and a tensor on whose engine they are."""
    given = list(images) if isinstance(images, list | tuple) else [images]
    if not given or not all(isinstance(image, Tensor) for image in given):
        raise errors.ArgumentError(
            f"[{function}] expected a tensor or a list of tensors, got {errors.described(images)}: make them with "
            "alpha.tensor()"
        )
    if len({image.shape for image in given}) > 1:
        raise errors.ShapeError(f"[{function}] expected images of one shape, got several: resize them")
    array = np.asarray(given[0]) if isinstance(images, Tensor) else np.stack([np.asarray(image) for image in given])
    first = channels_first()
    if array.ndim == 2:
        array = array[None] if first else array[..., None]
    if array.ndim == 3:
        array = array[None]
    if array.ndim != 4 or not array.size:
        raise errors.ShapeError(f"[{function}] expected a batch of images or one, got {given[0].shape}")
    return np.moveaxis(array, 1, 3) if first else array, given[0]


def _placed(image: Array, like: Tensor) -> Tensor:
    return make_tensor(np.moveaxis(image, 2, 0) if channels_first() else image, engine=like.engine)


def _normalized(images: Array, value_range: Any, scale_each: bool) -> Array:
    if value_range is not None:
        if not isinstance(value_range, tuple) or len(value_range) != 2:
            raise errors.ArgumentError(
                f"[make_grid] expected value_range as a tuple (least, largest), got {errors.described(value_range)}"
            )
        low, high = (number("make_grid", "value_range", value) for value in value_range)
        least, most = np.asarray(low), np.asarray(high)
    else:
        axes = (1, 2, 3) if scale_each else (0, 1, 2, 3)
        least, most = images.min(axes, keepdims=True), images.max(axes, keepdims=True)
    span = np.maximum(most - least, 1e-5)
    normalized: Array = ((images.clip(least, most) - least) / span).astype(images.dtype)
    return normalized
