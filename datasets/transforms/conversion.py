"""Transforms from PIL images and arrays to tensors, between dtypes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.arguments import flag
from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms.base import Images, ImageTransform, check_batch
from alpha.dtypes import DtypeLike, as_dtype, float32
from alpha.tensor import Tensor


class FloatPixels(ImageTransform):
    """uint8 pixels of a batch 0..255 as float32 in [0, 1]."""

    takes_batches = takes_parts = True
    scales = True
    """Whether white becomes 1."""

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        check_batch(type(self).__name__, images)
        if images.dtype != np.uint8:
            return images
        made: Images = np.divide(images, np.float32(255), dtype=np.float32)
        return made


class ToTensor(FloatPixels):
    """A PIL image, or an array (H, W, C) or (H, W), as a tensor; uint8 becomes float32 in [0, 1].

    The tensor is (H, W, C), or (C, H, W) under ``alpha.set_image_layout("NCHW")``.
    """

    makes_tensors = True

    def on_image(self, image: Any) -> Tensor:
        return F.to_tensor(image)


class ToImage(FloatPixels):
    """A PIL image, an array (H, W, C) or (H, W), or a tensor as a tensor of the same values; layout as for ToTensor."""

    makes_tensors = takes_parts = True
    scales = False

    def on_image(self, image: Any) -> Tensor:
        return F.to_image(image)

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        return images


class PILToTensor(ImageTransform):
    """A PIL image as a tensor of the same values; layout as for ToTensor."""

    def on_image(self, image: Any) -> Tensor:
        return F.pil_to_tensor(image)


class ToDtype(FloatPixels):
    """A tensor in another dtype; with ``scale`` white stays white (255 of uint8, 1.0 of floats)."""

    def __init__(self, dtype: DtypeLike = float32, scale: bool = False) -> None:
        self.dtype, self.scale = as_dtype(dtype, type(self).__name__), flag(type(self).__name__, "scale", scale)

    @property
    def takes_batches(self) -> bool:  # type: ignore[override]
        """Whether it scales to float32."""
        return self.scale and self.dtype == float32

    @property
    def makes_tensors(self) -> bool:  # type: ignore[override]
        """Whether it does in a batch what ToTensor does."""
        return self.takes_batches

    def on_image(self, image: Any) -> Tensor:
        return F.to_dtype(image, self.dtype, self.scale)


class ConvertImageDtype(ToDtype):
    """A tensor in another dtype; white stays white (255 of uint8, 1.0 of floats)."""

    def __init__(self, dtype: DtypeLike = float32) -> None:
        super().__init__(dtype, scale=True)


class ToPILImage(ImageTransform):
    """A tensor, or an array (H, W, C) or (H, W), as a PIL image; floats in [0, 1] become uint8."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def on_image(self, image: Any) -> Any:
        return F.to_pil_image(image, self.mode)
