"""Transforms of colours: jitter, grey, blur, erasing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.arguments import flag, number, whole
from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms.arguments import channels_of, pair
from alpha.datasets.transforms.base import ImageTransform, draws, pixels, tensor_of
from alpha.datasets.transforms.composition import probability
from alpha.datasets.transforms.geometry import span

_TRIES = 10


class ColorJitter(ImageTransform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    Args:
        brightness, contrast, saturation: the least and the most factor, or one number for 1 minus and plus it.
        hue: the least and the most shift within -0.5..0.5, or one number for both signs of it.
    """

    def __init__(self, brightness: Any = None, contrast: Any = None, saturation: Any = None, hue: Any = None) -> None:
        self.brightness = _jitter("brightness", brightness, 1.0, 0.0, math.inf)
        self.contrast = _jitter("contrast", contrast, 1.0, 0.0, math.inf)
        self.saturation = _jitter("saturation", saturation, 1.0, 0.0, math.inf)
        self.hue = _jitter("hue", hue, 0.0, -0.5, 0.5)

    def on_image(self, image: Any) -> Any:
        rng = draws()
        changes: list[tuple[Callable[[Any, float], Any], tuple[float, float] | None]] = [
            (F.adjust_brightness, self.brightness),
            (F.adjust_contrast, self.contrast),
            (F.adjust_saturation, self.saturation),
            (F.adjust_hue, self.hue),
        ]
        for place in rng.permutation(len(changes)):
            change, factors = changes[place]
            if factors is not None:
                image = change(image, rng.uniform(*factors))
        return image


def _jitter(name: str, value: Any, middle: float, least: float, most: float) -> tuple[float, float] | None:
    """The least and the most of one factor; None where it stays as it is."""
    if value is None:
        return None
    if isinstance(value, Sequence):
        low, high = span("ColorJitter", name, value, least)
    else:
        around = number("ColorJitter", name, value)
        if around < 0:
            raise errors.ArgumentError(f"[ColorJitter] expected {name} >= 0 or a pair, got {value}")
        low, high = max(middle - around, least) if name != "hue" else -around, middle + around
    if low < least or high > most:
        raise errors.ArgumentError(
            f"[ColorJitter] expected {name} within {least}..{most}, got {errors.described(value)}"
        )
    return None if low == high == middle else (low, high)


class Grayscale(ImageTransform):
    """The image's brightness, in 1 channel or 3 equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise errors.ArgumentError(f"[Grayscale] expected num_output_channels 1 or 3, got {num_output_channels!r}")
        self.num_output_channels = num_output_channels

    def on_image(self, image: Any) -> Any:
        return F.rgb_to_grayscale(image, self.num_output_channels)


class RandomGrayscale(ImageTransform):
    """With probability ``p`` the image's brightness, in as many channels as it has."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = probability("RandomGrayscale", p)

    def on_image(self, image: Any) -> Any:
        if draws().random() >= self.p:
            return image
        return F.rgb_to_grayscale(image, channels_of(image))


class GaussianBlur(ImageTransform):
    """Means weighted by a Gaussian of random width.

    Args:
        kernel_size: odd, across and down, or one for both.
        sigma: the least and the most width in pixels, or one number.
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: Any = (0.1, 2.0)) -> None:
        self.kernel_size = pair("GaussianBlur", "kernel_size", kernel_size)
        if any(side % 2 == 0 for side in self.kernel_size):
            raise errors.ArgumentError(f"[GaussianBlur] expected an odd kernel_size, got {kernel_size}")
        self.sigma = span("GaussianBlur", "sigma", sigma if isinstance(sigma, Sequence) else (sigma, sigma))
        if self.sigma[0] <= 0:
            raise errors.ArgumentError(f"[GaussianBlur] expected sigma > 0, got {sigma}")

    def on_image(self, image: Any) -> Any:
        return F.gaussian_blur(image, self.kernel_size, draws().uniform(*self.sigma))


class RandomErasing(ImageTransform):
    """With probability ``p`` a rectangle of a tensor replaced (Zhong et al., arXiv 1708.04896).

    Args:
        scale: the rectangle's share of the image's area, least and most.
        ratio: its height over its width, least and most.
        value: what comes there: a number, one per channel, or "random" for normal random numbers.
        inplace: write into the tensor.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0.0,
        inplace: bool = False,
    ) -> None:
        self.p = probability("RandomErasing", p)
        self.scale, self.ratio = span("RandomErasing", "scale", scale), span("RandomErasing", "ratio", ratio)
        if self.scale[1] > 1 or self.ratio[0] <= 0:
            raise errors.ArgumentError(
                f"[RandomErasing] expected scale within 0..1 and ratio > 0, got {scale} and {ratio}"
            )
        if isinstance(value, str) and value != "random":
            raise errors.ArgumentError(f'[RandomErasing] expected value as numbers or "random", got {value!r}')
        self.value, self.inplace = value, flag("RandomErasing", "inplace", inplace)

    def on_image(self, image: Any) -> Any:
        height, width, channels = pixels("RandomErasing", image).shape[-3:]
        values = () if isinstance(self.value, str) else tuple(np.atleast_1d(self.value).tolist())
        if values and len(values) not in (1, channels):
            raise errors.ArgumentError(
                f"[RandomErasing] expected value with 1 or {channels} numbers, got {len(values)}: give one per channel"
            )
        rng = draws()
        if rng.random() >= self.p:
            return image
        for _ in range(_TRIES):
            area = height * width * rng.uniform(*self.scale)
            shape = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if h < height and w < width:
                fill = np.asarray(values) if values else rng.standard_normal((h, w, channels), np.float32)
                window = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
                return F.erase(image, *window, tensor_of(fill) if fill.ndim == 3 else fill, self.inplace)
        return image


class RandomInvert(ImageTransform):
    """White for black, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("RandomInvert", p)

    def on_image(self, image: Any) -> Any:
        return F.invert(image) if draws().random() < self.p else image


class RandomSolarize(ImageTransform):
    """Colours from ``threshold`` on inverted, with probability ``p``."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold, self.p = number("RandomSolarize", "threshold", threshold), probability("RandomSolarize", p)

    def on_image(self, image: Any) -> Any:
        return F.solarize(image, self.threshold) if draws().random() < self.p else image


class RandomPosterize(ImageTransform):
    """The highest ``bits`` of each colour alone, with probability ``p``."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits, self.p = whole("RandomPosterize", "bits", bits, 0, 8), probability("RandomPosterize", p)

    def on_image(self, image: Any) -> Any:
        return F.posterize(image, self.bits) if draws().random() < self.p else image


class RandomAdjustSharpness(ImageTransform):
    """With probability ``p`` sharper by a factor, or for one below 1 smoother; see ``functional.adjust_sharpness``."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self.sharpness_factor = number("RandomAdjustSharpness", "sharpness_factor", sharpness_factor)
        if not self.sharpness_factor >= 0:
            raise errors.ArgumentError(
                f"[RandomAdjustSharpness] expected sharpness_factor >= 0, got {sharpness_factor}"
            )
        self.p = probability("RandomAdjustSharpness", p)

    def on_image(self, image: Any) -> Any:
        return F.adjust_sharpness(image, self.sharpness_factor) if draws().random() < self.p else image


class RandomAutocontrast(ImageTransform):
    """Each channel stretched from black to white, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("RandomAutocontrast", p)

    def on_image(self, image: Any) -> Any:
        return F.autocontrast(image) if draws().random() < self.p else image


class RandomEqualize(ImageTransform):
    """All levels of each channel made about equally frequent, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("RandomEqualize", p)

    def on_image(self, image: Any) -> Any:
        return F.equalize(image) if draws().random() < self.p else image
