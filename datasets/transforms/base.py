"""What a transform is: of a whole batch of images at once, or of one image, a PIL image or a tensor."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from alpha import errors, random
from alpha.conversion import tensor
from alpha.datasets.generator import says
from alpha.dtypes import INTEGER, category
from alpha.layout import get_image_layout
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
Images = np.ndarray[Any, np.dtype[Any]]
"""A batch (n, H, W, C), uint8 or float32."""
Size = tuple[int, int]
"""Height and width."""


class Transform(Protocol):
    """Anything that takes a batch (n, H, W, C) and a generator and returns a new batch of n images.

    A loader's generator is a ``BatchGenerator``, which also knows the epoch and the samples' indices. With
    ``takes_parts = True`` a rank's part of a batch is enough: each image is made of one alone, and what is random for
    it drawn by the generator's ``for_rows``.
    """

    def __call__(self, images: Images, rng: np.random.Generator, /) -> Images: ...


class ImageTransform:
    """A transform of one image; called with a generator, of a batch of arrays, where it takes such.

    Random numbers for one image come from alpha's generator (``alpha.manual_seed``).
    """

    takes_batches = False
    """Whether it takes a batch and a generator."""
    makes_tensors = False
    """Whether it makes tensors of other images."""
    takes_parts = False
    """Whether it takes a rank's part of a batch, see ``Transform``."""

    def __call__(self, image: Any, rng: np.random.Generator | None = None) -> Any:
        return self.on_image(image) if rng is None else self.on_batch(image, rng)

    def on_image(self, image: Any) -> Any:
        """The transformed image."""
        raise errors.ArgumentError(
            f"[{type(self).__name__}] expected a batch of arrays and a generator, got one image: give it to a data "
            "set, whose loader makes batches"
        )

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        """The transformed batch (n, H, W, C)."""
        raise errors.ArgumentError(
            f"[{type(self).__name__}] expected one image, got a batch and a generator: it takes no batches"
        )

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({values})"


def takes_batches(transform: Any) -> bool:
    """Whether a transform takes a batch and a generator; a user's own does if it has two arguments without defaults."""
    if isinstance(transform, ImageTransform):
        return transform.takes_batches
    try:
        parameters = inspect.signature(transform).parameters.values()
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(places) == 2


def makes_tensors(transform: Any) -> bool:
    """Whether a transform's results are tensors by design, as ToTensor's are."""
    return isinstance(transform, ImageTransform) and transform.makes_tensors


def takes_parts(transform: Any) -> bool:
    """Whether a transform of batches, or None, takes a rank's part of one and draws as for the whole of it."""
    return transform is None or says(transform, "takes_parts", "__call__", "on_batch", "draw", "padded")


def draws() -> np.random.Generator:
    """Random numbers for one image, from alpha's generator."""
    seed, offset = random.default_generator.reserve(4)
    return np.random.Generator(np.random.Philox(key=seed, counter=offset))


def is_pil(image: Any) -> bool:
    """Whether an image is Pillow's."""
    module = sys.modules.get("PIL.Image")  # without that module there is none
    return module is not None and isinstance(image, module.Image)


def pillow(function: str, name: str = "Image") -> Any:
    """One of Pillow's modules."""
    import importlib

    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError as error:
        raise errors.ArgumentError(
            f"[{function}] expected Pillow, got {error}: pip install 'dragon-alpha[images]'"
        ) from error


def channels_first() -> bool:
    """Whether a tensor's images are (C, H, W)."""
    return get_image_layout() == "NCHW"


def pixels(function: str, image: Any) -> Array:
    """A tensor's pixels as (..., H, W, C)."""
    if not isinstance(image, Tensor):
        raise errors.ArgumentError(
            f"[{function}] expected a PIL image or a tensor, got {type(image).__name__}: convert it first, as ToTensor "
            "does with an array"
        )
    if image.ndim < 3:
        raise errors.ShapeError(
            f"[{function}] expected an image with an axis of channels, got {image.shape}: add one with unsqueeze()"
        )
    array = np.asarray(image)
    return np.moveaxis(array, -3, -1) if channels_first() else array


def tensor_of(array: Array, like: Any = None) -> Tensor:
    """Pixels (..., H, W, C) as a tensor in the layout of images, on the engine of another."""
    placed = np.moveaxis(array, -1, -3) if channels_first() else array
    return tensor(placed, engine=None if like is None else like.engine)


def by_kind(function: str, image: Any, on_pil: Callable[[Any], Any], on_pixels: Callable[[Array], Array]) -> Any:
    """What one of two functions makes of an image: of a PIL image, or of a tensor's pixels (..., H, W, C)."""
    if is_pil(image):
        return on_pil(image)
    return tensor_of(on_pixels(pixels(function, image)), image)


def size_of(function: str, image: Any) -> Size:
    """Height and width of an image."""
    if is_pil(image):
        return image.height, image.width
    height, width = pixels(function, image).shape[-3:-1]
    return height, width


def check_batch(function: str, images: Images) -> None:
    """Raises for what is no batch of images as an array."""
    if not isinstance(images, np.ndarray) or category(images.dtype) < INTEGER:
        got = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise errors.DtypeError(f"[{function}] expected a NumPy array of uint8 or float32, got {got}: convert it first")
    if images.ndim != 4:
        raise errors.ShapeError(
            f"[{function}] expected a batch (n, H, W, C), got images: {images.shape}: for one image use image[None]"
        )
