"""Transforms of sizes and places: resizing, crops, mirroring, padding, turning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpha import errors
from alpha.arguments import flag, number
from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms.arguments import (
    InterpolationMode,
    check_padding_mode,
    interpolation_name,
    pair,
    resized_size,
    sides_of,
)
from alpha.datasets.transforms.base import ImageTransform, draws, size_of
from alpha.datasets.transforms.composition import probability

_TRIES = 10


class Resize(ImageTransform):
    """The image at another size.

    Args:
        size: (height, width), or the length of the shorter side.
        interpolation: an ``InterpolationMode``, or its name.
        max_size: the longer side is at most so long, where ``size`` is the shorter one.
        antialias: widen the filter where the image gets smaller; PIL images always are.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        resized_size("Resize", (1, 1), size, max_size)
        self.size = size
        self.interpolation = InterpolationMode(interpolation_name("Resize", interpolation))
        self.max_size, self.antialias = max_size, antialias

    def on_image(self, image: Any) -> Any:
        return F.resize(image, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(ImageTransform):
    """The middle of the image, with black around it where it is smaller."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = pair("CenterCrop", "size", size)

    def on_image(self, image: Any) -> Any:
        return F.center_crop(image, self.size)


class FiveCrop(ImageTransform):
    """The four corners and the middle, as a tuple of five images."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = pair("FiveCrop", "size", size)

    def on_image(self, image: Any) -> Any:
        return F.five_crop(image, self.size)


class TenCrop(ImageTransform):
    """The four corners and the middle of the image and of its mirror image, as a tuple of ten images."""

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        self.size, self.vertical_flip = pair("TenCrop", "size", size), flag("TenCrop", "vertical_flip", vertical_flip)

    def on_image(self, image: Any) -> Any:
        return F.ten_crop(image, self.size, self.vertical_flip)


class RandomResizedCrop(ImageTransform):
    """A window of random area, shape and place at a given size (Szegedy et al., arXiv 1409.4842).

    Args:
        size: height and width of the result, or one number for both.
        scale: the window's share of the image's area, least and most.
        ratio: its width over its height, least and most.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size = pair("RandomResizedCrop", "size", size)
        self.scale, self.ratio = span("RandomResizedCrop", "scale", scale), span("RandomResizedCrop", "ratio", ratio)
        if self.ratio[0] <= 0:
            raise errors.ArgumentError(f"[RandomResizedCrop] expected ratio > 0, got {ratio}")
        self.interpolation = InterpolationMode(interpolation_name("RandomResizedCrop", interpolation))
        self.antialias = antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        """First row, first column, height and width of a random window of an image; its middle where none fits."""
        height, width = size_of("RandomResizedCrop", img)
        rng = draws()
        for _ in range(_TRIES):
            area = height * width * rng.uniform(scale[0], scale[1])
            shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
        h, w = height, width
        if width / height < min(ratio):
            h = round(width / min(ratio))
        elif width / height > max(ratio):
            w = round(height * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def on_image(self, image: Any) -> Any:
        window = self.get_params(image, self.scale, self.ratio)
        return F.resized_crop(image, *window, self.size, self.interpolation, self.antialias)


class RandomVerticalFlip(ImageTransform):
    """Mirrors the image, top to bottom, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("RandomVerticalFlip", p)

    def on_image(self, image: Any) -> Any:
        return F.vertical_flip(image) if draws().random() < self.p else image


class Pad(ImageTransform):
    """The image with pixels around it; see RandomCrop for the modes.

    Args:
        padding: one number for all sides, two across and down, or left, top, right, bottom.
        fill: the colour for the mode "constant", one number or one per channel.
    """

    def __init__(self, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> None:
        sides_of("Pad", padding)
        check_padding_mode("Pad", padding_mode)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def on_image(self, image: Any) -> Any:
        return F.pad(image, self.padding, self.fill, self.padding_mode)


class RandomRotation(ImageTransform):
    """The image turned by a random angle.

    Args:
        degrees: the least and the most, or one number for both signs of it.
        interpolation, expand, center, fill: as for ``functional.rotate``.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        self.degrees = angles("RandomRotation", "degrees", degrees)
        name = interpolation_name("RandomRotation", interpolation, ("nearest", "bilinear", "bicubic"))
        self.interpolation = InterpolationMode(name)
        self.expand, self.center, self.fill = flag("RandomRotation", "expand", expand), center, fill

    def on_image(self, image: Any) -> Any:
        angle = draws().uniform(*self.degrees)
        return F.rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)


def span(function: str, name: str, value: Any, least: float = 0.0) -> tuple[float, float]:
    """A least and a most number; ArgumentError for anything else."""
    pair = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    if len(pair) != 2:
        raise errors.ArgumentError(f"[{function}] expected {name} as a pair of numbers, got {errors.described(value)}")
    low, high = (number(function, name, side) for side in pair)
    if not least <= low <= high:
        raise errors.ArgumentError(f"[{function}] expected {name} as least and most >= {least}, got {pair}")
    return low, high


def angles(function: str, name: str, value: Any) -> tuple[float, float]:
    """A least and a most angle, which one number gives by both signs of it."""
    if isinstance(value, Sequence):
        return span(function, name, value, -math.inf)
    most = number(function, name, value)
    if most < 0:
        raise errors.ArgumentError(f"[{function}] expected {name} >= 0 or a pair, got {value}")
    return -most, most
