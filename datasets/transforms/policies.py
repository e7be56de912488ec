"""What automatic augmentation chooses from: operations with their ranges, and the policies that AutoAugment found."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms.base import is_pil, pixels
from alpha.datasets.transforms.kernels import top_of

Step = tuple[str, float, int | None]
"""An operation, its probability, and the place of its strength in the range."""
Range = tuple[float, float, bool]
"""An operation's weakest and strongest form, and whether either sign is drawn."""


class AutoAugmentPolicy(enum.Enum):
    """The data sets for which AutoAugment's authors searched policies."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


PLAIN = ("Identity", "AutoContrast", "Equalize", "Invert")
"""Operations without a strength."""
_COLOURS = ("Brightness", "Color", "Contrast", "Sharpness")
_SHEARS = ("ShearX", "ShearY")


def _ranges(shear: float, shifts: Sequence[float], angle: float, colour: float, bits: tuple[float, float]) -> Any:
    return {
        **dict.fromkeys(_SHEARS, (0.0, shear, True)),
        "TranslateX": (0.0, shifts[0], True),
        "TranslateY": (0.0, shifts[1], True),
        "Rotate": (0.0, angle, True),
        **dict.fromkeys(_COLOURS, (0.0, colour, True)),
        "Posterize": (*bits, False),
        "Solarize": (1.0, 0.0, False),
    }


def usual_ranges(width: int, height: int) -> dict[str, Range]:
    """What AutoAugment and RandAugment use for an image: degrees, pixels, factors beyond 1, bits, shares of white."""
    return dict(_ranges(0.3, (150 / 331 * width, 150 / 331 * height), 30.0, 0.9, (8, 4)))


def wide_ranges(width: int, height: int) -> dict[str, Range]:
    """What TrivialAugmentWide uses, whatever the image's size."""
    return dict(_ranges(0.99, (32.0, 32.0), 135.0, 0.99, (8, 2)))


def mixing_ranges(width: int, height: int) -> dict[str, Range]:
    """What AugMix uses for an image."""
    return dict(_ranges(0.3, (width / 3, height / 3), 30.0, 0.9, (4, 0)))


def strength(found: Range, place: int, count: int) -> float:
    """A range's strength at one of ``count`` equally spaced places."""
    weakest, strongest, _ = found
    return weakest + (strongest - weakest) * place / (count - 1) if count > 1 else weakest


def operate(image: Any, operation: str, value: float, interpolation: Any, fill: Any) -> Any:
    """What an operation of a strength makes of an image."""
    return OPERATIONS[operation](image, value, interpolation, fill)


def _warped(image: Any, shift: tuple[int, int], shear: tuple[float, float], mode: Any, fill: Any) -> Any:
    """Sheared about the top left corner, or moved."""
    center = [0.0, 0.0] if any(shear) else None
    return F.affine(image, 0.0, shift, 1.0, [math.degrees(math.atan(part)) for part in shear], mode, fill, center)


def _solarized(image: Any, share: float) -> Any:
    return F.solarize(image, share * (255.0 if is_pil(image) else top_of(pixels("solarize", image).dtype)))


OPERATIONS: dict[str, Callable[[Any, float, Any, Any], Any]] = {
    "Identity": lambda image, value, mode, fill: image,
    "ShearX": lambda image, value, mode, fill: _warped(image, (0, 0), (value, 0.0), mode, fill),
    "ShearY": lambda image, value, mode, fill: _warped(image, (0, 0), (0.0, value), mode, fill),
    "TranslateX": lambda image, value, mode, fill: _warped(image, (int(value), 0), (0.0, 0.0), mode, fill),
    "TranslateY": lambda image, value, mode, fill: _warped(image, (0, int(value)), (0.0, 0.0), mode, fill),
    "Rotate": lambda image, value, mode, fill: F.rotate(image, value, mode, fill=fill),
    "Brightness": lambda image, value, mode, fill: F.adjust_brightness(image, 1.0 + value),
    "Color": lambda image, value, mode, fill: F.adjust_saturation(image, 1.0 + value),
    "Contrast": lambda image, value, mode, fill: F.adjust_contrast(image, 1.0 + value),
    "Sharpness": lambda image, value, mode, fill: F.adjust_sharpness(image, 1.0 + value),
    "Posterize": lambda image, value, mode, fill: F.posterize(image, round(value)),
    "Solarize": lambda image, value, mode, fill: _solarized(image, value),
    "AutoContrast": lambda image, value, mode, fill: F.autocontrast(image),
    "Equalize": lambda image, value, mode, fill: F.equalize(image),
    "Invert": lambda image, value, mode, fill: F.invert(image),
}


def _policy(text: str) -> tuple[tuple[Step, Step], ...]:
    """Pairs of steps, a line each; a step is an operation, tenths of its probability, and its strength or a dash."""
    found = []
    for line in text.strip().splitlines():
        words = line.split()
        steps = [
            (name, int(tenths) / 10, None if place == "-" else int(place))
            for name, tenths, place in (words[:3], words[3:])
        ]
        found.append((steps[0], steps[1]))
    return tuple(found)


POLICIES = {
    AutoAugmentPolicy.IMAGENET: _policy("""
        Posterize 4 8 Rotate 6 9
        Solarize 6 5 AutoContrast 6 -
        Equalize 8 - Equalize 6 -
        Posterize 6 7 Posterize 6 6
        Equalize 4 - Solarize 2 4
        Equalize 4 - Rotate 8 8
        Solarize 6 3 Equalize 6 -
        Posterize 8 5 Equalize 10 -
        Rotate 2 3 Solarize 6 8
        Equalize 6 - Posterize 4 6
        Rotate 8 8 Color 4 0
        Rotate 4 9 Equalize 6 -
        Equalize 0 - Equalize 8 -
        Invert 6 - Equalize 10 -
        Color 6 4 Contrast 10 8
        Rotate 8 8 Color 10 2
        Color 8 8 Solarize 8 7
        Sharpness 4 7 Invert 6 -
        ShearX 6 5 Equalize 10 -
        Color 4 0 Equalize 6 -
        Equalize 4 - Solarize 2 4
        Solarize 6 5 AutoContrast 6 -
        Invert 6 - Equalize 10 -
        Color 6 4 Contrast 10 8
        Equalize 8 - Equalize 6 -
    """),
    AutoAugmentPolicy.CIFAR10: _policy("""
        Invert 1 - Contrast 2 6
        Rotate 7 2 TranslateX 3 9
        Sharpness 8 1 Sharpness 9 3
        ShearY 5 8 TranslateY 7 9
        AutoContrast 5 - Equalize 9 -
        ShearY 2 7 Posterize 3 7
        Color 4 3 Brightness 6 7
        Sharpness 3 9 Brightness 7 9
        Equalize 6 - Equalize 5 -
        Contrast 6 7 Sharpness 6 5
        Color 7 7 TranslateX 5 8
        Equalize 3 - AutoContrast 4 -
        TranslateY 4 3 Sharpness 2 6
        Brightness 9 6 Color 2 8
        Solarize 5 2 Invert 0 -
        Equalize 2 - AutoContrast 6 -
        Equalize 2 - Equalize 6 -
        Color 9 9 Equalize 6 -
        AutoContrast 8 - Solarize 2 8
        Brightness 1 3 Color 7 0
        Solarize 4 5 AutoContrast 9 -
        TranslateY 9 9 TranslateY 7 9
        AutoContrast 9 - Solarize 8 3
        Equalize 8 - Invert 1 -
        TranslateY 7 9 AutoContrast 9 -
    """),
    AutoAugmentPolicy.SVHN: _policy("""
        ShearX 9 4 Invert 2 -
        ShearY 9 8 Invert 7 -
        Equalize 6 - Solarize 6 6
        Invert 9 - Equalize 6 -
        Equalize 6 - Rotate 9 3
        ShearX 9 4 AutoContrast 8 -
        ShearY 9 8 Invert 4 -
        ShearY 9 5 Solarize 2 6
        Invert 9 - AutoContrast 8 -
        Equalize 6 - Rotate 9 3
        ShearX 9 4 Solarize 3 3
        ShearY 8 8 Invert 7 -
        Equalize 9 - TranslateY 6 6
        Invert 9 - Equalize 6 -
        Contrast 3 3 Rotate 8 4
        Invert 8 - TranslateY 0 2
        ShearY 7 6 Solarize 4 8
        Invert 6 - Rotate 8 4
        ShearY 3 7 TranslateX 9 3
        ShearX 1 6 Invert 6 -
        Solarize 7 2 TranslateY 6 7
        ShearY 8 4 Invert 8 -
        ShearX 7 9 TranslateY 8 3
        ShearY 8 5 AutoContrast 7 -
        ShearX 7 2 Invert 1 -
    """),
}
"""Pairs of steps by data set, of which one is drawn per image: Cubuk et al., arXiv 1805.09501, tables 7 to 9."""
