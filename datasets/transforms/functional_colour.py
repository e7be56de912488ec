"""Functions of one image that change its colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.arguments import whole
from alpha.datasets.transforms import kernels, tones
from alpha.datasets.transforms.arguments import pair
from alpha.datasets.transforms.base import Array, by_kind, pillow
from alpha.datasets.transforms.functional_conversion import pil_pixels
from alpha.dtypes import is_float


def _factor(function: str, name: str, value: Any, least: float = 0.0, most: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least <= value <= most:
        raise errors.ArgumentError(f"[{function}] expected {name} in {least}..{most}, got {errors.described(value)}")
    return float(value)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """All colours times a factor; 0 is black."""
    factor = _factor("adjust_brightness", "brightness_factor", brightness_factor)
    return by_kind(
        "adjust_brightness",
        img,
        lambda pic: pillow("adjust_brightness", "ImageEnhance").Brightness(pic).enhance(factor),
        lambda array: kernels.brightened(array, factor),
    )


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Colours farther from the mean brightness, or for a factor below 1 closer to it."""
    factor = _factor("adjust_contrast", "contrast_factor", contrast_factor)
    return by_kind(
        "adjust_contrast",
        img,
        lambda pic: pillow("adjust_contrast", "ImageEnhance").Contrast(pic).enhance(factor),
        lambda array: kernels.contrasted(array, factor),
    )


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Colours farther from grey, or for a factor below 1 closer to it."""
    factor = _factor("adjust_saturation", "saturation_factor", saturation_factor)
    return by_kind(
        "adjust_saturation",
        img,
        lambda pic: pillow("adjust_saturation", "ImageEnhance").Color(pic).enhance(factor),
        lambda array: kernels.saturated(array, factor),
    )


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Colours turned around the circle of hues by -0.5 to 0.5 of it."""
    factor = _factor("adjust_hue", "hue_factor", hue_factor, -0.5, 0.5)

    def on_pil(pic: Any) -> Any:
        if pic.mode in ("L", "1", "I", "F"):
            return pic
        image = pillow("adjust_hue")
        hue, saturation, value = pic.convert("HSV").split()
        turned = np.array(hue) + np.array(int(factor * 255)).astype(np.uint8)  # around 256
        bands = (image.fromarray(turned.astype(np.uint8), "L"), saturation, value)
        return image.merge("HSV", bands).convert(pic.mode)

    return by_kind("adjust_hue", img, on_pil, lambda array: kernels.hue_shifted(array, factor))


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """The image's brightness, in 1 channel or 3 equal ones."""
    if num_output_channels not in (1, 3):
        raise errors.ArgumentError(
            f"[rgb_to_grayscale] expected num_output_channels 1 or 3, got {errors.described(num_output_channels)}"
        )

    def on_pil(pic: Any) -> Any:
        light = pic.convert("L")
        return light if num_output_channels == 1 else pillow("rgb_to_grayscale").merge("RGB", [light] * 3)

    return by_kind(
        "rgb_to_grayscale",
        img,
        on_pil,
        lambda array: np.repeat(kernels.grey(array), num_output_channels, -1),
    )


to_grayscale = rgb_to_grayscale


def invert(img: Any) -> Any:
    """White for black."""
    return by_kind(
        "invert",
        img,
        lambda pic: pillow("invert", "ImageOps").invert(pic),
        lambda array: np.asarray(kernels.top_of(array.dtype), array.dtype) - array,
    )


def solarize(img: Any, threshold: float) -> Any:
    """Colours from ``threshold`` on inverted."""
    return by_kind(
        "solarize",
        img,
        lambda pic: pillow("solarize", "ImageOps").solarize(pic, int(threshold)),
        lambda array: np.where(array >= threshold, np.asarray(kernels.top_of(array.dtype), array.dtype) - array, array),
    )


def posterize(img: Any, bits: int) -> Any:
    """The highest ``bits`` of each colour alone; of floats in [0, 1] the multiples of 2 ** -bits below it."""
    kept = whole("posterize", "bits", bits, 0, 8)

    def on_pixels(array: Array) -> Array:
        if is_float(array.dtype):
            levels = array.dtype.type(2**kept)
            return np.asarray(np.floor(array * levels).clip(0, levels - 1) / levels)
        if array.dtype != np.uint8:
            raise errors.DtypeError(f"[posterize] expected uint8 or float colours, got {array.dtype}")
        return array & np.uint8((0xFF << (8 - kept)) & 0xFF)

    return by_kind("posterize", img, lambda pic: pillow("posterize", "ImageOps").posterize(pic, kept), on_pixels)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """The image farther from its smoothed self, or for a factor below 1 closer to it; 0 is the smoothed image."""
    factor = _factor("adjust_sharpness", "sharpness_factor", sharpness_factor)
    return by_kind(
        "adjust_sharpness",
        img,
        lambda pic: pillow("adjust_sharpness", "ImageEnhance").Sharpness(pic).enhance(factor),
        lambda array: tones.sharpened(array, factor),
    )


def autocontrast(img: Any) -> Any:
    """Each channel stretched so that its darkest colour becomes black and its brightest white."""
    return by_kind(
        "autocontrast", img, lambda pic: pillow("autocontrast", "ImageOps").autocontrast(pic), tones.stretched
    )


def equalize(img: Any) -> Any:
    """Each channel's colours moved so that all 256 levels are about equally frequent; floats are rounded to levels."""
    return by_kind("equalize", img, lambda pic: pillow("equalize", "ImageOps").equalize(pic), tones.equalized)


def gaussian_blur(img: Any, kernel_size: int | Sequence[int], sigma: Any = None) -> Any:
    """Means weighted by a Gaussian of odd ``kernel_size`` and ``sigma``, across and down, or one for both."""
    across, down = pair("gaussian_blur", "kernel_size", kernel_size)
    if across % 2 == 0 or down % 2 == 0:
        raise errors.ArgumentError(f"[gaussian_blur] expected odd kernel sizes, got {kernel_size}")
    given = [0.15 * length + 0.35 for length in (across, down)] if sigma is None else sigma
    values = list(given) if isinstance(given, Sequence) else [given]
    values = values * 2 if len(values) == 1 else values
    if len(values) != 2 or not all(isinstance(value, int | float | np.number) and value > 0 for value in values):
        raise errors.ArgumentError(f"[gaussian_blur] expected sigma > 0 or a pair, got {errors.described(sigma)}")
    spread = (float(values[0]), float(values[1]))

    def on_pil(pic: Any) -> Any:
        array = kernels.blurred(pil_pixels(pic), (across, down), spread)
        return pillow("gaussian_blur").fromarray(array[..., 0] if array.shape[-1] == 1 else array)

    return by_kind("gaussian_blur", img, on_pil, lambda array: kernels.blurred(array, (across, down), spread))
