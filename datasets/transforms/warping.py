"""Transforms that warp images at random: affine maps, perspective, elastic displacement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.arguments import number
from alpha.conversion import tensor
from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms import kernels
from alpha.datasets.transforms.arguments import InterpolationMode, interpolation_name
from alpha.datasets.transforms.base import ImageTransform, Size, draws, size_of
from alpha.datasets.transforms.composition import probability
from alpha.datasets.transforms.geometry import angles, span
from alpha.tensor import Tensor


class RandomAffine(ImageTransform):
    """The image turned, moved, enlarged and sheared at random.

    Args:
        degrees: the least and the most angle, or one number for both signs of it.
        translate: the most of the width and of the height by which it moves, each within 0..1.
        scale: the least and the most factor of its size.
        shear: degrees by which columns lean, least and most, or one number for both signs of it; four numbers are for
            columns and then for rows.
        interpolation, fill, center: as for ``functional.affine``.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = angles("RandomAffine", "degrees", degrees)
        self.translate = None if translate is None else _shares(translate)
        self.scale = None if scale is None else span("RandomAffine", "scale", scale)
        if self.scale is not None and self.scale[0] <= 0:
            raise errors.ArgumentError(f"[RandomAffine] expected scale > 0, got {scale}")
        self.shear = None if shear is None else _shears(shear)
        name = interpolation_name("RandomAffine", interpolation, ("nearest", "bilinear", "bicubic"))
        self.interpolation = InterpolationMode(name)
        self.fill, self.center = fill, center

    @staticmethod
    def get_params(
        degrees: Sequence[float],
        translate: Sequence[float] | None,
        scale_ranges: Sequence[float] | None,
        shears: Sequence[float] | None,
        img_size: Sequence[int],
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """A random angle, translation, scale and shear for an image of ``img_size`` (width, height)."""
        rng = draws()
        angle = rng.uniform(degrees[0], degrees[1])
        most = (
            (0.0, 0.0) if translate is None else [share * side for share, side in zip(translate, img_size, strict=True)]
        )
        moved = round(rng.uniform(-most[0], most[0])), round(rng.uniform(-most[1], most[1]))
        scale = 1.0 if scale_ranges is None else rng.uniform(scale_ranges[0], scale_ranges[1])
        leaning = (*(shears or ()), 0.0, 0.0, 0.0, 0.0)[:4]
        shear = rng.uniform(leaning[0], leaning[1]), rng.uniform(leaning[2], leaning[3])
        return angle, moved, scale, shear

    def on_image(self, image: Any) -> Any:
        size = size_of("RandomAffine", image)[::-1]
        chosen = self.get_params(self.degrees, self.translate, self.scale, self.shear, size)
        return F.affine(image, *chosen, interpolation=self.interpolation, fill=self.fill, center=self.center)


def _shares(translate: Any) -> tuple[float, float]:
    given = tuple(translate) if isinstance(translate, Sequence) and not isinstance(translate, str) else ()
    shares = tuple(number("RandomAffine", "translate", share) for share in given)
    if len(shares) != 2 or not all(0 <= share <= 1 for share in shares):
        raise errors.ArgumentError(
            f"[RandomAffine] expected translate as two numbers within 0..1, got {errors.described(translate)}"
        )
    return shares[0], shares[1]


def _shears(shear: Any) -> tuple[float, ...]:
    if isinstance(shear, Sequence) and len(shear) == 4 and not isinstance(shear, str):
        columns, rows = (span("RandomAffine", "shear", part, -math.inf) for part in (shear[:2], shear[2:]))
        return (*columns, *rows)
    return angles("RandomAffine", "shear", shear)


class RandomPerspective(ImageTransform):
    """The image seen from a random place, with probability ``p``.

    Args:
        distortion_scale: how far each corner moves at most: 1 is as far as the middle.
        interpolation, fill: as for ``functional.perspective``.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ) -> None:
        self.p, self.fill = probability("RandomPerspective", p), fill
        self.distortion_scale = number("RandomPerspective", "distortion_scale", distortion_scale)
        if not 0 <= self.distortion_scale <= 1:
            raise errors.ArgumentError(
                f"[RandomPerspective] expected distortion_scale within 0..1, got {distortion_scale}"
            )
        name = interpolation_name("RandomPerspective", interpolation, ("nearest", "bilinear", "bicubic"))
        self.interpolation = InterpolationMode(name)

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """The image's corners (x, y), from the top left one clockwise, and random places for them."""
        rng = draws()
        across, down = (int(distortion_scale * (side // 2)) for side in (width, height))
        inward = [(int(rng.integers(across + 1)), int(rng.integers(down + 1))) for _ in range(4)]
        corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        moved = [[abs(x - dx), abs(y - dy)] for (x, y), (dx, dy) in zip(corners, inward, strict=True)]
        return corners, moved

    def on_image(self, image: Any) -> Any:
        if draws().random() >= self.p:
            return image
        height, width = size_of("RandomPerspective", image)
        start, end = self.get_params(width, height, self.distortion_scale)
        return F.perspective(image, start, end, self.interpolation, self.fill)


class ElasticTransform(ImageTransform):
    """The image with each pixel taken from a random place nearby, neighbours from places nearby each other.

    The offsets are uniform random numbers, smoothed by a Gaussian whose window of 8 sigma + 1 pixels must be smaller
    than twice the image (Simard, Steinkraus and Platt, "Best practices for convolutional neural networks", 2003).

    Args:
        alpha: how far at most, in half pixels, before smoothing; across and down, or one number for both.
        sigma: the Gaussian's widths in pixels, for the offsets across and those down, or one for both; 0 for none.
        interpolation, fill: as for ``functional.elastic``.
    """

    def __init__(
        self,
        alpha: float | Sequence[float] = 50.0,
        sigma: float | Sequence[float] = 5.0,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ) -> None:
        self.alpha, self.sigma = _pair("alpha", alpha), _pair("sigma", sigma)
        if min(self.sigma) <= 0 and any(self.sigma):
            raise errors.ArgumentError(f"[ElasticTransform] expected sigma > 0, or 0 for no smoothing, got {sigma}")
        name = interpolation_name("ElasticTransform", interpolation, ("nearest", "bilinear"))
        self.interpolation, self.fill = InterpolationMode(name), fill

    @staticmethod
    def get_params(alpha: Sequence[float], sigma: Sequence[float], size: Size) -> Tensor:
        """Random offsets (1, H, W, 2) for an image of ``size`` (height, width), for ``functional.elastic``."""
        rng = draws()
        axes = []
        for strength, width, side in zip(alpha, sigma, size[::-1], strict=True):
            offsets = rng.uniform(-1, 1, (*size, 1)).astype(np.float32)
            if width > 0:
                length = int(8 * width + 1) // 2 * 2 + 1
                offsets = kernels.blurred(offsets, (length, length), (sigma[0], sigma[1]))
            axes.append(offsets * np.float32(strength / side))
        return tensor(np.concatenate(axes, -1)[None])

    def on_image(self, image: Any) -> Any:
        offsets = self.get_params(self.alpha, self.sigma, size_of("ElasticTransform", image))
        return F.elastic(image, offsets, self.interpolation, self.fill)


def _pair(name: str, value: Any) -> tuple[float, float]:
    """Two numbers, or one for both."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    given = given * 2 if len(given) == 1 else given
    if len(given) != 2:
        raise errors.ArgumentError(
            f"[ElasticTransform] expected {name} as one number or two, got {errors.described(value)}"
        )
    return number("ElasticTransform", name, given[0]), number("ElasticTransform", name, given[1])
