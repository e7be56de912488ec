"""Transforms made of others: several in a row, one of several, some of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.transforms.base import Images, ImageTransform, draws, makes_tensors, takes_batches, takes_parts
from alpha.datasets.transforms.batches import Normalize
from alpha.datasets.transforms.conversion import FloatPixels


class Compose(ImageTransform):
    """Applies several transforms in order, to one image, or to a batch, all drawing from the one generator.

    A batch is taken where all of them take one.
    """

    def __init__(self, transforms: Iterable[Any]) -> None:
        self.transforms = _listed("Compose", transforms)

    @property
    def takes_batches(self) -> bool:  # type: ignore[override]
        """Whether all of them do."""
        return all(map(takes_batches, self.transforms))

    @property
    def makes_tensors(self) -> bool:  # type: ignore[override]
        """Whether one of them does."""
        return any(map(makes_tensors, self.transforms))

    @property
    def takes_parts(self) -> bool:  # type: ignore[override]
        """Whether all of them do."""
        return all(map(takes_parts, self.transforms))

    def on_image(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        for transform in batch_steps(self):
            images = transform(images, rng)
        return images

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"


def batch_steps(transform: Any) -> list[Any]:
    """The transforms of batches that a transform is, one after another.

    A conversion to floats in [0, 1] is put off until the end, or left to a Normalize, which then scales and shifts
    uint8 pixels in one pass; mirrored and cut out are the uint8 pixels.
    """
    flat = _flattened(transform)
    steps = [step for step in flat if not makes_tensors(step)]
    scales = any(isinstance(step, FloatPixels) and step.scales for step in flat)
    if scales and not any(isinstance(step, Normalize) for step in steps):
        steps.append(FloatPixels())
    return steps


def _flattened(transform: Any) -> list[Any]:
    if type(transform) is Compose:
        return [step for part in transform.transforms for step in _flattened(part)]
    return [] if transform is None else [transform]


class Lambda(ImageTransform):
    """Calls a function with the image."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise errors.ArgumentError(f"[Lambda] expected a function, got {errors.described(lambd)}")
        self.lambd = lambd

    def on_image(self, image: Any) -> Any:
        return self.lambd(image)


class RandomApply(ImageTransform):
    """Applies several transforms in order, or with probability 1 - p none of them."""

    def __init__(self, transforms: Iterable[Any], p: float = 0.5) -> None:
        self.transforms, self.p = _listed("RandomApply", transforms), probability("RandomApply", p)

    def on_image(self, image: Any) -> Any:
        if draws().random() < self.p:
            for transform in self.transforms:
                image = transform(image)
        return image


class RandomChoice(ImageTransform):
    """Applies one of several transforms, each with its probability in ``p``, by default an equal one."""

    def __init__(self, transforms: Iterable[Any], p: Sequence[float] | None = None) -> None:
        self.transforms = _listed("RandomChoice", transforms)
        weights = np.ones(len(self.transforms)) if p is None else np.asarray(p, np.float64)
        if weights.shape != (len(self.transforms),) or not weights.size or (weights < 0).any() or not weights.any():
            raise errors.ArgumentError(
                f"[RandomChoice] expected one transform or more and a probability for each, got "
                f"{len(self.transforms)} and {errors.described(p)}"
            )
        self.p = (weights / weights.sum()).tolist()

    def on_image(self, image: Any) -> Any:
        return self.transforms[int(draws().choice(len(self.transforms), p=self.p))](image)


class RandomOrder(ImageTransform):
    """Applies several transforms, in a random order."""

    def __init__(self, transforms: Iterable[Any]) -> None:
        self.transforms = _listed("RandomOrder", transforms)

    def on_image(self, image: Any) -> Any:
        for place in draws().permutation(len(self.transforms)):
            image = self.transforms[place](image)
        return image


def probability(function: str, value: Any) -> float:
    """A probability; ArgumentError for anything else."""
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise errors.ArgumentError(f"[{function}] expected 0 <= p <= 1, got {errors.described(value)}")
    return float(value)


def _listed(function: str, transforms: Any) -> tuple[Any, ...]:
    if not isinstance(transforms, Iterable):
        raise errors.ArgumentError(f"[{function}] expected a list of transforms, got {transforms!r}: give a list")
    listed = tuple(transforms)
    for transform in listed:
        if not callable(transform):
            raise errors.ArgumentError(
                f"[{function}] expected transforms that can be called, got {transform!r}: pass objects, not names"
            )
    return listed
