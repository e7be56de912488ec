"""The arguments of functions of images, checked."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.transforms.base import Size, is_pil, pixels, size_of

PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


class InterpolationMode(enum.Enum):
    """How pixels between pixels are made."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_RESAMPLING = {"nearest-exact": "nearest"}
_BY_NUMBER = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def interpolation_name(function: str, mode: Any, allowed: Sequence[str] = ()) -> str:
    """The name of an interpolation, of which Pillow's numbers are others."""
    value = mode.value if isinstance(mode, InterpolationMode) else _BY_NUMBER.get(mode, mode)
    names = tuple(allowed) or tuple(known.value for known in InterpolationMode)
    if value not in names:
        raise errors.ArgumentError(
            f"[{function}] expected interpolation as one of {', '.join(names)}, got {errors.described(mode)}"
        )
    return str(value)


def resized_size(function: str, old: Size, size: Any, max_size: int | None) -> Size:
    """The size that ``size`` asks for: both sides, or the shorter one, the longer one at most ``max_size``."""
    given = (size,) if is_whole_number(size) else tuple(size)
    if len(given) not in (1, 2) or not all(is_whole_number(side) and side >= 1 for side in given):
        raise errors.ArgumentError(
            f"[{function}] expected size >= 1 or a pair of them, got {errors.described(size)}: give (height, width)"
        )
    if len(given) == 2:
        return int(given[0]), int(given[1])
    height, width = old
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = int(given[0]), int(given[0] * long / short)
    if max_size is not None:
        if max_size <= given[0]:
            raise errors.ArgumentError(f"[{function}] expected max_size above size {given[0]}, got {max_size}")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def is_whole_number(value: Any) -> bool:
    """Whether a value is an int of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def pair(function: str, name: str, value: Any) -> Size:
    """A positive integer for both sides, or one for each."""
    sides = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    sides = sides * 2 if len(sides) == 1 else sides
    whole = all(is_whole_number(side) and side >= 1 for side in sides)
    if len(sides) != 2 or not whole:
        raise errors.ArgumentError(
            f"[{function}] expected {name} >= 1 or a pair of them, got {errors.described(value)}: give whole numbers"
        )
    return int(sides[0]), int(sides[1])


def sides_of(function: str, padding: Any) -> tuple[int, int, int, int]:
    """Padding as left, top, right and bottom."""
    given = tuple(padding) if isinstance(padding, Sequence) and not isinstance(padding, str) else (padding,)
    if len(given) not in (1, 2, 4) or not all(is_whole_number(side) for side in given):
        raise errors.ArgumentError(
            f"[{function}] expected padding as 1, 2 or 4 whole numbers, got {errors.described(padding)}"
        )
    left, top, right, bottom = (given * 4)[:4] if len(given) < 4 else given
    return int(left), int(top), int(right), int(bottom)


def check_padding_mode(function: str, mode: Any) -> None:
    """Raises ArgumentError for what is none."""
    if mode not in PADDING_MODES:
        raise errors.ArgumentError(
            f"[{function}] expected padding_mode {', '.join(PADDING_MODES)}, got {mode!r}: name one of them"
        )


def channels_of(img: Any) -> int:
    """How many channels an image has."""
    return len(img.getbands()) if is_pil(img) else int(pixels("channels_of", img).shape[-1])


def get_dimensions(img: Any) -> list[int]:
    """Channels, height and width of an image."""
    return [channels_of(img), *size_of("get_dimensions", img)]


def get_image_size(img: Any) -> list[int]:
    """Width and height of an image."""
    return list(size_of("get_image_size", img)[::-1])
