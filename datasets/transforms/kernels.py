"""Geometry and colours of pixels (..., H, W, C) in NumPy, as torchvision computes them of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.datasets.transforms.base import Array, Size
from alpha.dtypes import is_float
from alpha.errors import ShapeError

_GREY = (0.2989, 0.587, 0.114)  # how much red, green and blue weigh


# -- sizes -----------------------------------------------------------------------------------------------------------


def resized(image: Array, size: Size, interpolation: str, antialias: bool) -> Array:
    """The image at another size; ``antialias`` widens the filter where it gets smaller, as Pillow always does."""
    height, width = image.shape[-3:-1]
    if (height, width) == size:
        return image.copy()
    if interpolation.startswith("nearest"):
        rows, columns = (
            _nearest(old, new, interpolation == "nearest-exact") for old, new in zip((height, width), size, strict=True)
        )
        return image[..., rows[:, None], columns, :]
    work = image if is_float(image.dtype) else image.astype(np.float32)
    down, across = (
        _weights(old, new, interpolation, antialias).astype(work.dtype)
        for old, new in zip((height, width), size, strict=True)
    )
    *outer, _, _, channels = image.shape
    narrow = across @ work  # (..., H, new width, C)
    flat = narrow.reshape(*outer, height, size[1] * channels)
    return in_dtype(image.dtype, (down @ flat).reshape(*outer, *size, channels))


def _nearest(old: int, new: int, exact: bool) -> Array:
    """The pixels that are nearest to ``new`` places along ``old`` pixels."""
    places: Array = np.floor((np.arange(new) + (0.5 if exact else 0.0)) * (old / new)).astype(np.int64)
    return places.clip(0, old - 1)


@lru_cache(64)
def _weights(old: int, new: int, interpolation: str, antialias: bool) -> Array:
    """(new, old): how much of each pixel goes into each of the result's; pixels' centres lie at i + 0.5."""
    scale = old / new
    wide = max(scale, 1.0) if antialias else 1.0
    reach, curve = (1.0, _triangle) if interpolation == "bilinear" else (2.0, _cubic(-0.5 if antialias else -0.75))
    centres = scale * (np.arange(new) + 0.5)
    weights = np.zeros((new, old))
    if antialias:  # the filter ends with the image
        first = np.maximum((centres - reach * wide + 0.5).astype(np.int64), 0)
        last = np.minimum((centres + reach * wide + 0.5).astype(np.int64), old)
        places = np.arange(old)
        values = curve((places + 0.5 - centres[:, None]) / wide)
        weights = np.where((places >= first[:, None]) & (places < last[:, None]), values, 0.0)
        return np.asarray(weights / weights.sum(1, keepdims=True))
    start = np.floor(centres - 0.5).astype(np.int64)
    for step in range(1 - int(reach), int(reach) + 1):  # pixels beyond the edge are the edge's
        place = start + step
        np.add.at(weights, (np.arange(new), place.clip(0, old - 1)), curve(place + 0.5 - centres))
    return weights


def _triangle(x: Array) -> Array:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(a: float) -> Callable[[Array], Array]:
    """The cubic convolution of Keys (1981)."""

    def curve(x: Array) -> Array:
        x = np.abs(x)
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))

    return curve


def cropped(image: Array, top: int, left: int, height: int, width: int) -> Array:
    """A window of the image; what lies outside of it is 0."""
    inside = image[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0), :]
    if inside.shape[-3:-1] == (height, width):
        return inside.copy()
    out = np.zeros((*image.shape[:-3], height, width, image.shape[-1]), image.dtype)
    y, x = max(-top, 0), max(-left, 0)
    out[..., y : y + inside.shape[-3], x : x + inside.shape[-2], :] = inside
    return out


def padded(image: Array, sides: Sequence[int], mode: str, fill: Any) -> Array:
    """The image with ``sides`` (left, top, right, bottom) pixels around it; negative ones are cut off."""
    height, width = image.shape[-3:-1]
    left, top, right, bottom = (max(side, 0) for side in sides)
    cut_left, cut_top, cut_right, cut_bottom = (max(-side, 0) for side in sides)
    image = image[..., cut_top : height - cut_bottom, cut_left : width - cut_right, :]
    if mode == "constant":
        shape = (*image.shape[:-3], image.shape[-3] + top + bottom, image.shape[-2] + left + right, image.shape[-1])
        out = np.empty(shape, image.dtype)
        out[:] = colour_of(fill, image.dtype)
        out[..., top : top + image.shape[-3], left : left + image.shape[-2], :] = image
        return out
    least = {"reflect": 1, "symmetric": 0}.get(mode, -image.shape[-3] - image.shape[-2])
    if max(top, bottom) + least > image.shape[-3] or max(left, right) + least > image.shape[-2]:
        raise ShapeError(
            f"[pad] expected less padding than the image has pixels for {mode!r}, got {tuple(sides)} for "
            f"{image.shape[-3]} x {image.shape[-2]}: use less padding"
        )
    around = [(0, 0)] * (image.ndim - 3) + [(top, bottom), (left, right), (0, 0)]
    return np.pad(image, around, mode=mode)  # type: ignore[call-overload, no-any-return]


def colour_of(fill: Any, dtype: np.dtype[Any]) -> Array:
    """A fill, one number or one per channel, in an image's dtype."""
    return np.asarray(0 if fill is None else fill).astype(dtype)


def sampled(image: Array, matrix: Sequence[float], size: Size, interpolation: str, fill: Any) -> Array:
    """The image under an affine map: pixel (x, y) of the result is taken at ``matrix`` times (x, y, 1), both from the
    middles of the images; places outside are ``fill``, or where they are interpolated 0."""
    height, width = image.shape[-3:-1]
    a, b, c, d, e, f = matrix
    x = np.arange(size[1]) - (size[1] - 1) * 0.5
    y = (np.arange(size[0]) - (size[0] - 1) * 0.5)[:, None]
    across, down = a * x + b * y + c + (width - 1) * 0.5, d * x + e * y + f + (height - 1) * 0.5
    return sampled_at(image, across, down, interpolation, fill)


def sampled_at(image: Array, across: Array, down: Array, interpolation: str, fill: Any) -> Array:
    """The image's colours at the columns ``across`` and the rows ``down``, both (new height, new width).

    Places outside are ``fill``. Where a place lies between pixels inside and outside, those outside count as 0; with a
    fill the result is then mixed with it once more, by the share that lies outside, as torchvision does.
    """
    height, width = image.shape[-3:-1]
    size = across.shape
    if interpolation == "nearest":
        columns, rows = np.rint(across).astype(np.int64), np.rint(down).astype(np.int64)
        inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
        out = image[..., rows.clip(0, height - 1), columns.clip(0, width - 1), :]
        return np.where(inside[..., None], out, colour_of(fill, image.dtype))
    mask = np.zeros(size)
    work = image if is_float(image.dtype) else image.astype(np.float32)
    out = np.zeros((*image.shape[:-3], *size, image.shape[-1]), work.dtype)
    left, top = np.floor(across).astype(np.int64), np.floor(down).astype(np.int64)
    for dy in (0, 1):
        for dx in (0, 1):
            rows, columns = top + dy, left + dx
            weight = (1 - np.abs(down - rows)) * (1 - np.abs(across - columns))
            weight = weight * ((columns >= 0) & (columns < width) & (rows >= 0) & (rows < height))
            mask += weight
            taken = work[..., rows.clip(0, height - 1), columns.clip(0, width - 1), :]
            out += taken * weight[..., None].astype(work.dtype)
    if fill is not None:
        inside = mask[..., None].astype(work.dtype)
        out = out * inside + (1 - inside) * np.asarray(fill, work.dtype)
    return in_dtype(image.dtype, out)


# -- colours ---------------------------------------------------------------------------------------------------------


def top_of(dtype: np.dtype[Any]) -> float:
    """White: 1 of floats, the largest of integers."""
    return 1.0 if is_float(dtype) else float(np.iinfo(dtype).max)


def scaled(image: Array, dtype: np.dtype[Any]) -> Array:
    """The image in another dtype, white for white."""
    if image.dtype == dtype:
        return image
    if is_float(image.dtype):
        if is_float(dtype):
            return image.astype(dtype)
        return (image * (top_of(dtype) + 1.0 - 1e-3)).astype(dtype)
    if is_float(dtype):
        return np.asarray(image.astype(dtype) / dtype.type(top_of(image.dtype)))
    old, new = (round(math.log2(top_of(kind) + 1)) for kind in (image.dtype, dtype))
    shifted: Array = image.astype(dtype) << (new - old) if new > old else (image >> (old - new)).astype(dtype)
    return shifted


def grey(image: Array, whole: bool = True) -> Array:
    """(..., H, W, 1): the brightness of colours, rounded down of integers unless fractions are wanted."""
    if image.shape[-1] == 1:
        return image.copy() if whole else image.astype(computed_in(image))
    weights = np.asarray(_GREY, computed_in(image))
    light: Array = sum(image[..., k : k + 1] * weights[k] for k in range(3))
    return light.astype(image.dtype) if whole else light


def blended(image: Array, other: Any, factor: float) -> Array:
    """``factor`` of the image and the rest of another, within black and white; rounded down of integers."""
    work = computed_in(image)
    mixed: Array = image.astype(work) * work.type(factor) + np.asarray(other).astype(work) * work.type(1.0 - factor)
    return mixed.clip(0, top_of(image.dtype)).astype(image.dtype)


def brightened(image: Array, factor: float) -> Array:
    """All colours times a factor."""
    return blended(image, 0.0, factor)


def contrasted(image: Array, factor: float) -> Array:
    """Colours farther from, or closer to, the image's mean brightness."""
    light = grey(image, whole=False)
    if not is_float(image.dtype):
        light = np.floor(light)
    return blended(image, light.mean((-3, -2, -1), keepdims=True), factor)


def saturated(image: Array, factor: float) -> Array:
    """Colours farther from, or closer to, the pixel's brightness."""
    if image.shape[-1] == 1:
        return image.copy()
    light = grey(image, whole=False)
    return blended(image, light if is_float(image.dtype) else np.floor(light), factor)


def hue_shifted(image: Array, factor: float) -> Array:
    """Colours turned around the circle of hues by ``factor`` of it."""
    if image.shape[-1] == 1:
        return image.copy()
    hsv = _to_hsv(scaled(image, computed_in(image)))
    hsv[..., 0] = (hsv[..., 0] + factor) % 1.0
    return scaled(_from_hsv(hsv), image.dtype)


def _to_hsv(rgb: Array) -> Array:
    """Hue, saturation and value, each in [0, 1]."""
    r, g, b = np.moveaxis(rgb, -1, 0)
    high, low = rgb.max(-1), rgb.min(-1)
    span = high - low
    plain = span == 0
    divisor = np.where(plain, 1, span)
    red, green, blue = (high - r) / divisor, (high - g) / divisor, (high - b) / divisor
    hue = np.where(high == r, blue - green, np.where(high == g, 2 + red - blue, 4 + green - red))
    hue = np.where(plain, 0, hue / 6 + 1) % 1.0
    return np.stack([hue, span / np.where(plain, 1, high), high], -1)


def _from_hsv(hsv: Array) -> Array:
    """Red, green and blue: each is v - v s max(0, min(k, 4 - k, 1)) for k = (n + 6 h) mod 6, n = 5, 3, 1."""
    h, s, v = (hsv[..., k : k + 1] for k in range(3))
    k = (np.asarray([5, 3, 1], hsv.dtype) + 6 * h) % 6
    rgb: Array = v - v * s * np.minimum(np.minimum(k, 4 - k), 1).clip(0)
    return rgb.clip(0, 1)


def blurred(image: Array, size: Size, sigma: tuple[float, float]) -> Array:
    """Means weighted by a Gaussian, ``size`` and ``sigma`` across and down; the image is mirrored beyond its edges."""
    work = image if is_float(image.dtype) else image.astype(np.float32)
    for axis, length, width in ((-2, size[0], sigma[0]), (-3, size[1], sigma[1])):
        places = np.arange(length) - (length - 1) / 2
        weights = np.exp(-0.5 * (places / width) ** 2)
        weights = (weights / weights.sum()).astype(work.dtype)
        wide = padded(work, _sides(axis, length // 2), "reflect", 0)
        windows = np.lib.stride_tricks.sliding_window_view(wide, length, axis=axis)
        work = windows @ weights
    return in_dtype(image.dtype, work)


def _sides(axis: int, count: int) -> tuple[int, int, int, int]:
    """Padding on both ends of one axis."""
    return (count, 0, count, 0) if axis == -2 else (0, count, 0, count)


def computed_in(image: Array) -> np.dtype[Any]:
    """The dtype in which colours are computed."""
    return image.dtype if is_float(image.dtype) else np.dtype(np.float32)


def in_dtype(dtype: np.dtype[Any], values: Array) -> Array:
    """Values in an image's dtype, rounded and within it."""
    if is_float(dtype):
        return values.astype(dtype, copy=False)
    return np.rint(values).clip(0, top_of(dtype)).astype(dtype)
