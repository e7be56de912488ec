"""Functions of one image that change its size or move its pixels."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.transforms import kernels
from alpha.datasets.transforms.arguments import (
    InterpolationMode,
    check_padding_mode,
    interpolation_name,
    pair,
    resized_size,
    sides_of,
)
from alpha.datasets.transforms.base import Array, Size, by_kind, is_pil, pillow, pixels, size_of, tensor_of
from alpha.datasets.transforms.functional_conversion import pil_pixels
from alpha.tensor import Tensor


def resample(name: str) -> Any:
    """Pillow's filter of a name."""
    return getattr(pillow("resize").Resampling, "NEAREST" if name == "nearest-exact" else name.upper())


def resize(
    img: Any,
    size: int | Sequence[int],
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """The image at another size: (height, width), or the length of its shorter side."""
    new = resized_size("resize", size_of("resize", img), size, max_size)
    on_tensors = ("nearest", "nearest-exact", "bilinear", "bicubic")
    name = interpolation_name("resize", interpolation, () if is_pil(img) else on_tensors)
    return by_kind(
        "resize",
        img,
        lambda pic: pic.resize(new[::-1], resample(name)),
        lambda array: kernels.resized(array, new, name, bool(antialias)),
    )


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A window of the image; what lies outside of it is black."""
    return by_kind(
        "crop",
        img,
        lambda pic: pic.crop((left, top, left + width, top + height)),
        lambda array: kernels.cropped(array, top, left, height, width),
    )


def center_crop(img: Any, output_size: int | Sequence[int]) -> Any:
    """The middle of the image, with black around it where it is smaller."""
    height, width = pair("center_crop", "output_size", output_size)
    rows, columns = size_of("center_crop", img)
    if width > columns or height > rows:
        across, down = max(width - columns, 0), max(height - rows, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        rows, columns = size_of("center_crop", img)
    return crop(img, round((rows - height) / 2), round((columns - width) / 2), height, width)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A window of the image at another size."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def pad(img: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """The image with pixels around it: one number for all sides, two across and down, or left, top, right, bottom."""
    sides = sides_of("pad", padding)
    check_padding_mode("pad", padding_mode)

    def on_pil(pic: Any) -> Any:
        if padding_mode == "constant" and min(sides) >= 0:
            colour = tuple(fill) if isinstance(fill, list) else fill
            if isinstance(colour, tuple) and len(colour) == 1:
                colour = colour[0]
            bands = len(pic.getbands())
            if isinstance(colour, numbers.Number) and bands > 1:
                colour = (colour,) * bands
            return pillow("pad", "ImageOps").expand(pic, border=sides, fill=0 if colour is None else colour)
        image = pillow("pad")
        array = kernels.padded(pil_pixels(pic), sides, padding_mode, fill)
        return image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)

    return by_kind("pad", img, on_pil, lambda array: kernels.padded(array, sides, padding_mode, fill))


def horizontal_flip(img: Any) -> Any:
    """The image mirrored, left to right."""
    turn = pillow("horizontal_flip").Transpose.FLIP_LEFT_RIGHT if is_pil(img) else None
    return by_kind("horizontal_flip", img, lambda pic: pic.transpose(turn), lambda array: array[..., ::-1, :])


def vertical_flip(img: Any) -> Any:
    """The image mirrored, top to bottom."""
    turn = pillow("vertical_flip").Transpose.FLIP_TOP_BOTTOM if is_pil(img) else None
    return by_kind("vertical_flip", img, lambda pic: pic.transpose(turn), lambda array: array[..., ::-1, :, :])


hflip, vflip = horizontal_flip, vertical_flip


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Any:
    """The image turned counterclockwise by an angle in degrees, about its middle or ``center`` (x, y).

    ``expand`` makes the result as large as the turned image; ``fill`` is what comes from outside, by default black.
    """
    allowed = ("nearest", "bilinear", "bicubic") if is_pil(img) else ("nearest", "bilinear")
    name = interpolation_name("rotate", interpolation, allowed)

    def on_pil(pic: Any) -> Any:
        return pic.rotate(angle, resample(name), expand, center, fillcolor=pil_fill("rotate", pic, fill))

    def on_pixels(array: Array) -> Array:
        height, width = array.shape[-3:-1]
        if center is None and angle % 90 == 0 and (angle % 180 == 0 or expand or height == width):
            return np.rot90(array, int(angle // 90), (-3, -2))
        x, y = (0.0, 0.0) if center is None else (center[0] - width / 2, center[1] - height / 2)
        turn = math.radians(angle % 360)
        cos, sin = math.cos(turn), math.sin(turn)
        # Row-major x' = cos x - sin y + c, where y points down: clockwise in places is counterclockwise in pictures.
        matrix = (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
        size = _turned_size(height, width, matrix) if expand else (height, width)
        return kernels.sampled(array, matrix, size, name, fill)

    return by_kind("rotate", img, on_pil, on_pixels)


def _turned_size(height: int, width: int, matrix: Sequence[float]) -> Size:
    """Height and width of the pixels that the corners of a turned image span, as Pillow counts them."""
    a, b, c, d, e, f = matrix
    corners = [(x * width / 2, y * height / 2) for x in (-1, 1) for y in (-1, 1)]
    across = [a * x + b * y + c + width / 2 for x, y in corners]
    down = [d * x + e * y + f + height / 2 for x, y in corners]
    lengths = []
    for places in (down, across):  # cut off at a ten-thousandth of a pixel
        high, low = (math.trunc(value / 1e-4) * 1e-4 for value in (max(places), min(places)))
        lengths.append(math.ceil(high) - math.floor(low))
    return lengths[0], lengths[1]


def pil_fill(function: str, pic: Any, fill: Any) -> Any:
    """A fill as Pillow takes it: a number, or a tuple of one for each band."""
    if fill is None:
        return None
    bands = len(pic.getbands())
    values = tuple(fill) if isinstance(fill, Sequence) else (fill,)
    if len(values) == 1 and bands > 1:
        values *= bands
    if len(values) != bands:
        raise errors.ArgumentError(
            f"[{function}] expected fill with 1 or {bands} numbers, got {errors.described(fill)}"
        )
    whole = tuple(int(value) if pic.mode != "F" else value for value in values)
    return whole[0] if bands == 1 else whole


def five_crop(img: Any, size: int | Sequence[int]) -> tuple[Any, ...]:
    """The four corners, top left, top right, bottom left and bottom right, and the middle."""
    height, width = pair("five_crop", "size", size)
    rows, columns = size_of("five_crop", img)
    if height > rows or width > columns:
        raise errors.ShapeError(f"[five_crop] expected an image of {height} x {width} or more, got {rows} x {columns}")
    corners = [(top, left) for top in (0, rows - height) for left in (0, columns - width)]
    return (*(crop(img, top, left, height, width) for top, left in corners), center_crop(img, (height, width)))


def ten_crop(img: Any, size: int | Sequence[int], vertical_flip: bool = False) -> tuple[Any, ...]:
    """``five_crop`` of the image and of its mirror image."""
    mirrored = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(mirrored, size)


def erase(img: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """The tensor with ``v`` in a window from row i and column j on, h rows high and w columns wide."""
    array = pixels("erase", img).copy()
    value = pixels("erase", v) if isinstance(v, Tensor) and v.ndim >= 3 else np.asarray(v)
    array[..., i : i + h, j : j + w, :] = value
    made = tensor_of(array, img)
    if inplace:
        img.copy_(made)
        return img
    return made
