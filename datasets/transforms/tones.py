"""Tones of pixels (..., H, W, C) in NumPy, as torchvision computes them of tensors: sharpness, contrast, histograms."""

from __future__ import annotations

import numpy as np

from alpha.datasets.transforms.base import Array
from alpha.datasets.transforms.kernels import blended, computed_in, scaled, top_of
from alpha.dtypes import is_float, uint8

_SMOOTHING = 1 / 13
"""The weight of each neighbour in the smoothed image; the pixel itself has five times as much."""


def sharpened(image: Array, factor: float) -> Array:
    """The image moved away from its smoothed self, or for a factor below 1 closer to it; the outermost pixels stay."""
    height, width = image.shape[-3:-1]
    if height <= 2 or width <= 2:
        return image.copy()
    work = image.astype(computed_in(image))
    windows = [work[..., i : height - 2 + i, j : width - 2 + j, :] for i in range(3) for j in range(3)]
    weight = work.dtype.type(_SMOOTHING)
    inner = sum(window * weight for window in windows) + windows[4] * (4 * weight)
    smooth = work.copy()
    smooth[..., 1:-1, 1:-1, :] = inner if is_float(image.dtype) else np.rint(inner)
    return blended(image, smooth, factor)


def stretched(image: Array) -> Array:
    """Each channel stretched so that its darkest colour becomes black and its brightest white; flat channels stay."""
    dtype = computed_in(image)
    top = dtype.type(top_of(image.dtype))
    low, high = (np.asarray(edge(image, (-3, -2), keepdims=True), dtype) for edge in (np.min, np.max))
    flat = low == high
    scale = np.where(flat, dtype.type(1), (high - low) / top)
    made: Array = ((image - np.where(flat, dtype.type(0), low)) / scale).clip(0, top).astype(image.dtype)
    return made


def equalized(image: Array) -> Array:
    """Each channel's colours moved so that all 256 are about equally frequent; floats are rounded to those."""
    if image.dtype != uint8:
        return scaled(equalized(scaled(image, uint8)), image.dtype)
    *outer, height, width, channels = image.shape
    planes = np.moveaxis(image, -1, -3).reshape(-1, height * width).astype(np.int64)
    places = np.arange(len(planes))[:, None]
    counts = np.bincount((planes + 256 * places).ravel(), minlength=256 * len(planes)).reshape(-1, 256)
    brightest = planes.max(1, keepdims=True) if planes.size else np.zeros_like(places)
    step = (height * width - np.take_along_axis(counts, brightest, 1)) // 255
    before = np.cumsum(counts, 1) - counts  # how many pixels are darker
    table = ((before + step // 2) // np.maximum(step, 1)).clip(0, 255)
    moved = np.where(step > 0, np.take_along_axis(table, planes, 1), planes).astype(uint8)
    return np.moveaxis(moved.reshape(*outer, channels, height, width), -3, -1)
