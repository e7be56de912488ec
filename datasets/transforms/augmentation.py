"""Automatic augmentation: operations drawn from a list, by a policy that was found or by chance alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import errors
from alpha.arguments import flag, number, whole
from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms.arguments import InterpolationMode, interpolation_name
from alpha.datasets.transforms.base import Array, ImageTransform, draws, is_pil, pixels, size_of, tensor_of
from alpha.datasets.transforms.policies import (
    PLAIN,
    POLICIES,
    AutoAugmentPolicy,
    Range,
    mixing_ranges,
    operate,
    strength,
    usual_ranges,
    wide_ranges,
)

_PLACES = 10
"""How many strengths AutoAugment and AugMix choose from."""
_DEEPEST = 3
"""The longest chain of AugMix where none is given."""


class _Augmentation(ImageTransform):
    """What the four have in common: the operations' interpolation and fill."""

    def __init__(self, interpolation: Any, fill: Any) -> None:
        name = interpolation_name(type(self).__name__, interpolation, ("nearest", "bilinear", "bicubic"))
        self.interpolation, self.fill = InterpolationMode(name), fill

    def _step(
        self, image: Any, operation: str, ranges: dict[str, Range], place: int, count: int, rng: np.random.Generator
    ) -> Any:
        """An operation of the strength at a place of its range, of either sign where it has two."""
        value = 0.0
        if operation not in PLAIN:
            value = strength(ranges[operation], place, count)
            if ranges[operation][2] and rng.random() < 0.5:
                value = -value
        return operate(image, operation, value, self.interpolation, self.fill)

    def _ranges(self, image: Any, ranges: Any) -> dict[str, Range]:
        height, width = size_of(type(self).__name__, image)
        return dict(ranges(width, height))


class AutoAugment(_Augmentation):
    """Two operations in a row, of a pair drawn from a policy that was searched (Cubuk et al., arXiv 1805.09501).

    Args:
        policy: the data set for which it was searched.
        interpolation, fill: as for ``functional.affine``.
    """

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        if not isinstance(policy, AutoAugmentPolicy):
            raise errors.ArgumentError(
                f"[AutoAugment] expected a policy of AutoAugmentPolicy, got {errors.described(policy)}"
            )
        self.policy = policy

    def on_image(self, image: Any) -> Any:
        rng, ranges = draws(), self._ranges(image, usual_ranges)
        pairs = POLICIES[self.policy]
        for operation, p, place in pairs[int(rng.integers(len(pairs)))]:
            if rng.random() < p:
                image = self._step(image, operation, ranges, place or 0, _PLACES, rng)
        return image


class RandAugment(_Augmentation):
    """Several operations in a row, each drawn anew, all of one strength (Cubuk et al., arXiv 1909.13719).

    Args:
        num_ops: how many.
        magnitude: the strength's place, from 0 on.
        num_magnitude_bins: how many places there are.
        interpolation, fill: as for ``functional.affine``.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops = whole("RandAugment", "num_ops", num_ops, 0)
        self.num_magnitude_bins = whole("RandAugment", "num_magnitude_bins", num_magnitude_bins, 2)
        self.magnitude = whole("RandAugment", "magnitude", magnitude, 0, num_magnitude_bins - 1)

    def on_image(self, image: Any) -> Any:
        rng, ranges = draws(), self._ranges(image, usual_ranges)
        operations = (*PLAIN[:-1], *ranges)
        for _ in range(self.num_ops):
            operation = operations[int(rng.integers(len(operations)))]
            image = self._step(image, operation, ranges, self.magnitude, self.num_magnitude_bins, rng)
        return image


class TrivialAugmentWide(_Augmentation):
    """One operation of random strength, within wide ranges (Mueller and Hutter, arXiv 2103.10158).

    Args:
        num_magnitude_bins: how many strengths there are.
        interpolation, fill: as for ``functional.affine``.
    """

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = whole("TrivialAugmentWide", "num_magnitude_bins", num_magnitude_bins, 2)

    def on_image(self, image: Any) -> Any:
        rng, ranges = draws(), self._ranges(image, wide_ranges)
        operations = (*PLAIN[:-1], *ranges)
        operation = operations[int(rng.integers(len(operations)))]
        place = int(rng.integers(self.num_magnitude_bins))
        return self._step(image, operation, ranges, place, self.num_magnitude_bins, rng)


class AugMix(_Augmentation):
    """The image mixed with several chains of operations on it (Hendrycks et al., arXiv 1912.02781).

    Args:
        severity: strengths are drawn from the first so many of 10.
        mixture_width: how many chains.
        chain_depth: how many operations a chain has; -1 draws from 1 to 3.
        alpha: the parameter of the Dirichlet distributions of the shares.
        all_ops: whether brightness, contrast, colour and sharpness are among the operations.
        interpolation, fill: as for ``functional.affine``.
    """

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.severity = whole("AugMix", "severity", severity, 1, _PLACES)
        self.mixture_width = whole("AugMix", "mixture_width", mixture_width, 1)
        self.chain_depth = whole("AugMix", "chain_depth", chain_depth)
        self.alpha, self.all_ops = number("AugMix", "alpha", alpha), flag("AugMix", "all_ops", all_ops)
        if not self.alpha > 0:
            raise errors.ArgumentError(f"[AugMix] expected alpha > 0, got {alpha}")

    def on_image(self, image: Any) -> Any:
        original = F.pil_to_tensor(image) if is_pil(image) else image
        rng, ranges = draws(), self._ranges(original, mixing_ranges)
        left_out = () if self.all_ops else ("Brightness", "Color", "Contrast", "Sharpness")
        operations = [name for name in ("AutoContrast", "Equalize", *ranges) if name not in left_out]
        kept, changed = rng.dirichlet([self.alpha] * 2)
        array = pixels("AugMix", original)
        mixed: Array = array * np.float32(kept)
        for share in rng.dirichlet([self.alpha] * self.mixture_width) * changed:
            chain = original
            for _ in range(self.chain_depth if self.chain_depth > 0 else int(rng.integers(1, _DEEPEST + 1))):
                operation = operations[int(rng.integers(len(operations)))]
                chain = self._step(chain, operation, ranges, int(rng.integers(self.severity)), _PLACES, rng)
            mixed = mixed + pixels("AugMix", chain) * np.float32(share)
        made = tensor_of(mixed.astype(array.dtype), original)
        return F.to_pil_image(made) if is_pil(image) else made
