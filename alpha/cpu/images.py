"""The CPU engine's images: what ``datasets`` does to uint8 pixels with its own transforms, as one engine call."""

from __future__ import annotations

import numpy as np

from alpha.cpu.base import Array, HostEngine
from alpha.tensor import Tensor


class ImageOperations(HostEngine):
    """Whole batches by NumPy's indexing; the transforms are faster, so the loader does not ask for it."""

    def images_to_float(
        self, images: Tensor, places: Tensor, size: tuple[int, int], mean: Array, divisor: Array
    ) -> Tensor:
        pixels, (tops, lefts, steps) = self.array(images), self.array(places).T[..., None]
        _, height, width, _ = pixels.shape
        rows, columns = tops + np.arange(size[0]), lefts + steps * np.arange(size[1])
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        clipped = rows.clip(0, height - 1)[:, :, None], columns.clip(0, width - 1)[:, None, :]
        taken = np.where(inside[..., None], pixels[np.arange(len(pixels))[:, None, None], *clipped], 0)
        return self.from_numpy((taken.astype(np.float32) - mean) / divisor)
