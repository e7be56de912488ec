"""Transforms of whole batches, of which some take one image too: scaling, crops, mirroring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from alpha import errors
from alpha.arguments import flag
from alpha.datasets.generator import BatchGenerator, draw_rows
from alpha.datasets.transforms import functional as F
from alpha.datasets.transforms.arguments import check_padding_mode, pair, sides_of
from alpha.datasets.transforms.base import Images, ImageTransform, check_batch, draws, size_of

Places = np.ndarray[Any, np.dtype[np.int64]]


class _Batches(ImageTransform):
    """A transform of batches."""

    takes_batches = True


@dataclass(frozen=True)
class ToUnitRange(_Batches):
    """uint8 pixels 0..255 to float32 in [-1, 1]: x / 127.5 - 1, rounded once."""

    takes_parts = True

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        check_batch("ToUnitRange", images)
        if images.dtype != np.uint8:
            raise errors.DtypeError(
                f"[ToUnitRange] expected uint8 pixels, got {images.dtype}: use it once, before any other scaling"
            )
        # x - 127.5 is exact in float32, so the division rounds only once and 0 and 255 give exactly -1 and 1.
        scaled = np.subtract(images, np.float32(127.5), dtype=np.float32)
        scaled /= np.float32(127.5)
        return scaled


class Normalize(_Batches):
    """(x - mean) / std for each channel, in float32.

    uint8 pixels of a batch are scaled to [0, 1] first, so the usual published constants fit; float32 images are taken
    as they are. One image is a tensor of floats; ``inplace`` writes the result into it.
    """

    takes_parts = True

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.inplace = flag("Normalize", "inplace", inplace)
        self.mean = _channel_values("mean", mean)
        self.std = _channel_values("std", std)
        if not (self.std > 0).all():
            raise errors.ArgumentError(f"[Normalize] expected std > 0, got {std}: leave constant channels out")

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        check_batch("Normalize", images)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values.size not in (1, images.shape[3]):
                raise errors.ShapeError(
                    f"[Normalize] expected {name} with 1 or images.shape[3] values, got {values.size} values and "
                    f"images: {images.shape}: give one value per channel"
                )
        n, h, w, c = images.shape
        scale = np.float32(255.0) if images.dtype == np.uint8 else np.float32(1.0)
        # A whole row of pixels at once: with the few channels as innermost loop NumPy is several times slower.
        mean, std = (np.broadcast_to(values * scale, (w, c)).reshape(w * c) for values in (self.mean, self.std))
        normalized: Images = np.subtract(images.reshape(n, h, w * c), mean, dtype=np.float32)
        normalized /= std
        return normalized.reshape(n, h, w, c)

    def on_image(self, image: Any) -> Any:
        return F.normalize(image, self.mean.tolist(), self.std.tolist(), self.inplace)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean.tolist()}, std={self.std.tolist()})"


class RandomCrop(ImageTransform):
    """A window of ``size`` at a random place of each image, after ``padding`` pixels were added on every side.

    Args:
        size: height and width of the result, or one number for both.
        padding: pixels added first: on each side, across and down, or left, top, right and bottom.
        pad_if_needed: add what is missing where an image is smaller than the window.
        fill: the colour of padding for the mode "constant".
        padding_mode: what they are, by torchvision's names: ``"constant"``: zeros, which are black for uint8 pixels and
            mid-grey after ToUnitRange; ``"edge"``: the pixel at the edge; ``"reflect"``: the image mirrored at the
            pixel at its edge; ``"symmetric"``: mirrored at the edge itself.

    A batch is taken with one number of padding, black or mirrored.

    Raises:
        ShapeError: the window is larger than the padded image, or the image too small to be mirrored.
    """

    takes_parts = True

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = pair("RandomCrop", "size", size)
        sides = sides_of("RandomCrop", 0 if padding is None else padding)
        if min(sides) < 0:
            raise errors.ArgumentError(f"[RandomCrop] expected padding >= 0, got {padding}: use a smaller size instead")
        check_padding_mode("RandomCrop", padding_mode)
        self.sides, self.padding = sides, sides[0]
        self.pad_if_needed, self.fill = flag("RandomCrop", "pad_if_needed", pad_if_needed), fill
        self.padding_mode = padding_mode

    @property
    def takes_batches(self) -> bool:  # type: ignore[override]
        """Whether the padding is one number, and black or mirrored."""
        return len(set(self.sides)) == 1 and not self.pad_if_needed and not np.any(self.fill)

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """First row, first column, height and width of a random window of an image."""
        (rows, columns), (height, width) = size_of("RandomCrop", img), output_size
        if height > rows or width > columns:
            raise errors.ShapeError(
                f"[RandomCrop] expected a window inside the padded image, got size {output_size} and an image of "
                f"{rows} x {columns}: use a smaller size or more padding"
            )
        rng = draws()
        return int(rng.integers(rows - height + 1)), int(rng.integers(columns - width + 1)), height, width

    def on_image(self, image: Any) -> Any:
        if any(self.sides):
            image = F.pad(image, self.sides, self.fill, self.padding_mode)
        if self.pad_if_needed:
            rows, columns = size_of("RandomCrop", image)
            down, across = max(self.size[0] - rows, 0), max(self.size[1] - columns, 0)
            if down or across:
                image = F.pad(image, (across, down), self.fill, self.padding_mode)
        return F.crop(image, *self.get_params(image, self.size))

    def draw(self, images: Images, rng: np.random.Generator) -> tuple[Places, Places]:
        """The first row and the first column of each image's window in the padded image."""
        check_batch("RandomCrop", images)
        n, h, w, _ = images.shape
        p, (height, width) = self.padding, self.size
        down, across = h + 2 * p - height, w + 2 * p - width
        if down < 0 or across < 0:
            raise errors.ShapeError(
                f"[RandomCrop] expected a window inside the padded image, got size {self.size}, padding {p} and "
                f"images: {images.shape}: use a smaller size or more padding"
            )
        tops = draw_rows(rng, n, lambda count: rng.integers(0, down + 1, count))
        return tops, draw_rows(rng, n, lambda count: rng.integers(0, across + 1, count))

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        tops, lefts = self.draw(images, rng)
        n, h, w, c = images.shape
        p, (height, width) = self.padding, self.size
        # Columns and channels as one axis: a row of a window is then one contiguous run.
        padded = self.padded(images).reshape(n, h + 2 * p, (w + 2 * p) * c)
        windows = sliding_window_view(padded, (height, width * c), axis=(1, 2))
        cropped: Images = windows[np.arange(n), tops, lefts * c]
        return cropped.reshape(n, height, width, c)

    def padded(self, images: Images) -> Images:
        """The images with the pixels that are added to them."""
        n, h, w, c = images.shape
        p, least = self.padding, {"reflect": self.padding + 1, "symmetric": self.padding}.get(self.padding_mode, 0)
        if p and self.padding_mode != "constant":
            if min(h, w) < max(least, 1):
                raise errors.ShapeError(
                    f"[RandomCrop] expected images of {max(least, 1)} pixels or more a side for padding {p} by "
                    f"{self.padding_mode}, got images: {images.shape}: use less padding"
                )
            places = [np.pad(np.arange(side), p, mode=self.padding_mode) for side in (h, w)]  # type: ignore[call-overload]
            return images[:, places[0][:, None], places[1]]
        padded = np.zeros((n, h + 2 * p, w + 2 * p, c), images.dtype)
        padded[:, p : p + h, p : p + w] = images
        return padded

    def __repr__(self) -> str:
        mode = "" if self.padding_mode == "constant" else f", padding_mode={self.padding_mode!r}"
        return f"RandomCrop(size={self.size}, padding={self.padding}{mode})"


@dataclass(frozen=True)
class RandomHorizontalFlip(_Batches):
    """Mirrors each image, left to right, with probability ``p``."""

    p: float = 0.5
    takes_parts = True

    def __post_init__(self) -> None:
        if not isinstance(self.p, Real) or not 0 <= self.p <= 1:
            raise errors.ArgumentError(
                f"[RandomHorizontalFlip] expected 0 <= p <= 1, got {self.p}: p is the probability of a mirrored image"
            )

    def draw(self, images: Images, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which images are mirrored."""
        check_batch("RandomHorizontalFlip", images)
        return draw_rows(rng, len(images), rng.random) < self.p

    def on_image(self, image: Any) -> Any:
        return F.horizontal_flip(image) if draws().random() < self.p else image

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        return _mirrored(images, self.draw(images, rng))


@dataclass(frozen=True)
class AlternatingFlip(_Batches):
    """Mirrors each image, left to right, in every other epoch; a random half of the images in the even ones.

    So two epochs in a row show all images both as they are and mirrored, where independent flips show a quarter of them
    twice as they are. Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", arXiv 2404.00498.

    Which half follows from the loader's seed and a sample's index: a worker process and a resumed run mirror the same.

    Raises:
        ArgumentError: a generator other than a loader's, or images that are not the batch's one by one.
    """

    takes_parts = True

    def draw(self, images: Images, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which images are mirrored."""
        check_batch("AlternatingFlip", images)
        if not isinstance(rng, BatchGenerator):
            raise errors.ArgumentError(
                f"[AlternatingFlip] expected a BatchGenerator, which knows the epoch, got {type(rng).__name__}: use a "
                "DataLoader, whose generators are such"
            )
        if len(images) != len(rng.indices):
            raise errors.ArgumentError(
                f"[AlternatingFlip] expected the batch's {len(rng.indices)} images, got {len(images)}: flip before any "
                "are left out"
            )
        return rng.sample_bits() ^ (rng.epoch % 2 == 1)

    def on_batch(self, images: Images, rng: np.random.Generator) -> Images:
        return _mirrored(images, self.draw(images, rng))


def _mirrored(images: Images, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Images:
    flipped = images.copy()
    flipped[chosen] = images[chosen, :, ::-1]
    return flipped


def _channel_values(name: str, values: float | Sequence[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        array = np.atleast_1d(np.asarray(values, np.float32))
    except (TypeError, ValueError):
        array = np.empty((0, 0), np.float32)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise errors.ArgumentError(f"[Normalize] expected {name} as one number per channel, got {values!r}: use a list")
    return array
