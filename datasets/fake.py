"""FakeData: images of random pixels with random labels, for trying out what is around a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.arguments import whole
from alpha.datasets.dataset import Batch, Samples, placed
from alpha.datasets.transforms.base import takes_parts
from alpha.datasets.transforms.functional import to_pil_image
from alpha.errors import ArgumentError, described


class FakeData(Samples):
    """Images of random pixels, which a sample's index and ``random_offset`` decide, with random labels.

    Without a transform a sample is an array (H, W, C) of 0..255, with one it is what that makes of the PIL image, or of
    a batch; see ``datasets.transforms``.

    Args:
        size: how many.
        image_size: channels, height and width.
        num_classes: labels lie in 0..num_classes - 1.
        transform: as for ``ArrayDataset``.
        target_transform: from a label to anything.
        random_offset: data sets of different ones have different images.
    """

    def __init__(
        self,
        size: int = 1000,
        image_size: Sequence[int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        random_offset: int = 0,
    ) -> None:
        self.size = whole("FakeData", "size", size, 0)
        if not isinstance(image_size, Sequence) or len(image_size) != 3:
            raise ArgumentError(
                f"[FakeData] expected image_size as channels, height and width, got {described(image_size)}"
            )
        channels, height, width = (whole("FakeData", "image_size", side, 1) for side in image_size)
        self.image_size = (channels, height, width)
        self.num_classes = whole("FakeData", "num_classes", num_classes, 1)
        self.random_offset = whole("FakeData", "random_offset", random_offset, 0)
        self.transform, self.target_transform = transform, target_transform

    def __len__(self) -> int:
        return self.size

    @property
    def takes_parts(self) -> bool:
        """Whether ``batch`` takes a rank's part of a batch, as its transform does or does not."""
        return takes_parts(self.transform)

    def _drawn(self, index: int) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], int]:
        rng = np.random.default_rng(index + self.random_offset)
        channels, height, width = self.image_size
        pixels = rng.integers(0, 256, (height, width, channels), np.uint8)
        return pixels, int(rng.integers(self.num_classes))

    def picture(self, index: int) -> tuple[Any, int]:
        """One image as Pillow's, and its label."""
        pixels, label = self._drawn(index)
        return to_pil_image(pixels), label

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
        """The images at ``indices``, transformed together: float32 (n, H, W, C), and int64 labels (n,)."""
        drawn = [self._drawn(int(index)) for index in indices]
        images: Any = np.stack([pixels for pixels, _ in drawn])
        if self.transform is not None:
            images = np.asarray(self.transform(images, rng))
        return placed(images, self.transform), np.array([label for _, label in drawn], np.int64)

    def __repr__(self) -> str:
        return f"FakeData({self.size} images of {self.image_size}, {self.num_classes} classes)"
