"""The CUDA engine's images: uint8 pixels are uploaded, and cropped, mirrored and scaled on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.engine import IMAGE_ORDER
from alpha.errors import ShapeError
from alpha.tensor import Tensor

SOURCES = (Source("images"),)
BLOCK = 256


class ImageOperations(DeviceEngine):
    """A quarter of the bytes to upload, and nothing for the host to convert."""

    finishes_images = True

    def images_to_float(
        self,
        images: Tensor,
        places: Tensor,
        size: tuple[int, int],
        mean: np.ndarray[Any, Any],
        divisor: np.ndarray[Any, Any],
    ) -> Tensor:
        n, height, width, channels = images.shape
        if places.shape != (n, 3) or n * channels >= 2**31:
            raise ShapeError(
                f"[images_to_float] expected places ({n}, 3) for fewer than 2**31 rows of channels, got "
                f"{places.shape} and images: {images.shape}"
            )
        out = self.empty((n, *size, channels), order=IMAGE_ORDER)
        if out.numel():
            scale = np.stack([mean, divisor]).astype(np.float32)
            self.launch(
                SOURCES[0],
                "images_to_float",
                size[0] * size[1],
                min(BLOCK, -(-n * channels // 32) * 32),
                self.dense(images, (0, 1, 2, 3)),
                self.dense(places, (0, 1)),
                self.constant(("images", scale.tobytes()), lambda: scale),
                out,
                n,
                channels,
                height,
                width,
                size[1],
            )
        return out
