"""Data sets: the protocol, the in-memory base class, and how single samples become a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from alpha import errors, random
from alpha.conversion import tensor
from alpha.datasets.collate import default_collate
from alpha.datasets.composed import Dataset, Subset, items, position_of
from alpha.datasets.files import one_line
from alpha.datasets.generator import BatchGenerator
from alpha.datasets.pixels import Pixels, plan
from alpha.datasets.transforms.base import Images, channels_first, draws, makes_tensors, takes_batches, takes_parts
from alpha.datasets.transforms.functional import to_pil_image
from alpha.dtypes import holds_numbers, is_integer, is_whole
from alpha.tensor import Tensor

FloatImages = np.ndarray[Any, np.dtype[np.float32]]
Labels = np.ndarray[Any, np.dtype[np.int64]]
Batch = tuple[FloatImages, Labels]
"""float32 images (n, H, W, C), contiguous, and int64 labels (n,), or for each pixel (n, H, W)."""
Collate = Callable[[list[Any]], Any]


class Made(NamedTuple):
    """A batch that was collated from samples as they are."""

    batch: Any


Fetched = tuple[FloatImages | Pixels, Labels] | Made
"""A batch of images and labels, one whose images the engine finishes, or one that is made."""

_IMAGE = "an image as an array of real numbers from dataset[index]"
_SINGLE_SAMPLE = 2  # a random stream of its own for dataset[i]; a batch is given its generator by the loader


class Indexed(Protocol):
    """What DataLoader needs at least: a length, and ``dataset[index]`` for 0 <= index < len(dataset).

    Where that gives pairs ``(image, label)`` of an array (H, W, C), the same shape for every index, and an integer, or
    (H, W) integers, one for each pixel, a batch is float32 images and int64 labels. Everything else is collated as it
    is, and so are the samples of a ``Dataset``.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


@runtime_checkable
class BatchedDataset(Protocol):
    """A data set that prepares a whole batch at once; DataLoader prefers ``batch`` over single samples.

    All randomness must come from ``rng``: then a batch does not depend on who prepares it. Where ranks share batches,
    ``alpha.distributed``, each prepares the whole of one and cuts its part out, but with ``takes_parts = True`` calls
    ``batch`` for its part alone: see ``BatchGenerator``.
    """

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch: ...


class Samples(Dataset):
    """What a data set with ``__len__``, ``batch`` and ``picture`` needs to be indexed and iterated over too."""

    transform: Any = None
    target_transform: Callable[[int], Any] | None = None

    def __len__(self) -> int:
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with __len__, got none: write one")

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
        """The transformed images and the labels at ``indices``; a subclass's part."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with batch, got none: write one")

    def picture(self, index: int) -> tuple[Any, int]:
        """One image as Pillow's, before any transform, and its label; a subclass's part."""
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with picture, got none: write one")

    @property
    def prepares_batches(self) -> bool:
        """Whether ``batch`` applies the transform, which takes whole batches; else it is given images one by one."""
        return self.target_transform is None and (self.transform is None or takes_batches(self.transform))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """One transformed image and its label.

        A transform that makes tensors, or takes no batches, gives what it gives of a PIL image; its random numbers are
        alpha's (``alpha.manual_seed``). Any other gives an array (H, W, C), and draws from alpha's global seed and the
        index, as in epoch 0: the same sample looks the same each time, in every epoch, so a data set wrapped around
        this one should pass ``batch`` on. (Where a loader seeds each sample, as it does for ranks, from that seed.)
        """
        position = position_of(type(self).__name__, index, len(self))
        if not self.prepares_batches:
            image, label = self.picture(position)
            image = image if self.transform is None else self.transform(image)
            return image, label if self.target_transform is None else self.target_transform(label)
        indices = np.array([position])
        if makes_tensors(self.transform):
            images, labels = self.batch(indices, draws())
            return tensor(images[0]), int(labels[0])
        bits = random.numpy_generator(_SINGLE_SAMPLE, position).bit_generator
        images, labels = self.batch(indices, BatchGenerator(bits, random.seed(), 0, indices))
        return images[0], int(labels[0])

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return (self[index] for index in range(len(self)))


class ArrayDataset(Samples):
    """Images held in memory, transformed a whole batch at a time.

    Args:
        images: (n, H, W, C) uint8.
        labels: (n,) integers, 0 <= label < len(classes).
        classes: a name for each label; by default the numbers themselves.
        transform: from a uint8 batch (n, H, W, C) and a generator to a batch of n images, or from one PIL image to
            anything; None leaves the values 0..255. See ``datasets.transforms``.
        target_transform: from a label to anything; images then come one by one.

    Attributes:
        data: the images as they are stored. targets: their labels as a list.
        class_to_idx: the label of each class's name.

    Raises:
        ShapeError, DtypeError, ArgumentError: arrays that do not fit each other or the above.
    """

    least_label = 0

    def __init__(
        self,
        images: np.ndarray[Any, Any],
        labels: np.ndarray[Any, Any] | Sequence[int],
        classes: Sequence[str] | None = None,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        function = type(self).__name__
        self.images: np.ndarray[Any, np.dtype[np.uint8]] = _check_images(function, np.asarray(images))
        self.labels: Labels = _check_labels(function, np.asarray(labels), len(self.images))
        top = int(self.labels.max(initial=-1))
        self.classes = tuple(map(str, range(top + 1))) if classes is None else tuple(classes)
        self.transform, self.target_transform = transform, target_transform
        if top >= len(self.classes) or int(self.labels.min(initial=0)) < self.least_label:
            raise errors.ArgumentError(
                f"[{function}] expected labels in 0..{len(self.classes) - 1}, got {self.labels.min()}..{top}: "
                "give one class name for each label"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def data(self) -> Any:
        """The images as they are stored, uint8."""
        return self.images

    @property
    def targets(self) -> Any:
        """The labels."""
        return self.labels.tolist()

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class's name."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def takes_parts(self) -> bool:
        """Whether ``batch`` takes a rank's part of a batch, as its transform does or does not."""
        return takes_parts(self.transform)

    def picture(self, index: int) -> tuple[Any, int]:
        """One image as Pillow's, and its label."""
        return to_pil_image(self.images[index]), int(self.labels[index])

    def batch(self, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Batch:
        """The images at ``indices``, transformed together: float32 (n, H, W, C), contiguous, and int64 (n,)."""
        images: Images = self.images[indices]
        if self.transform is not None:
            images = np.asarray(self.transform(images, rng))
        if images.ndim != 4 or len(images) != len(indices):
            raise errors.ShapeError(
                f"[{type(self).__name__}.batch] expected {len(indices)} images (n, H, W, C) from the transform, got "
                f"{images.shape}: check {self.transform!r}"
            )
        return placed(images, self.transform), self.labels[indices]

    def __repr__(self) -> str:
        n, *image = self.images.shape
        return f"{type(self).__name__}({n} images of {tuple(image)}, {len(self.classes)} classes)"


def placed(images: Images, transform: Any) -> FloatImages:
    """A batch (n, H, W, C) as float32 in the layout that its transform gives: that of images where it makes tensors."""
    if makes_tensors(transform) and channels_first():
        images = images.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images, np.float32)


def fetch(
    dataset: Any,
    indices: Sequence[Any] | np.ndarray[Any, np.dtype[np.int64]],
    rng: np.random.Generator,
    unfinished: bool = False,
    collate_fn: Collate | None = None,
) -> Fetched:
    """The batch at ``indices``: through the data set's own ``batch`` if it has one, else sample by sample.

    ``unfinished`` leaves the images to the engine where they lie in memory and the transform is one that it knows.
    """
    if collate_fn is None:
        whole, places = unwrapped(dataset, indices)
        if prepares_batches(whole):
            return fetch_batch(whole, np.asarray(places, np.int64), rng, unfinished)
    samples = items(dataset, np.asarray(indices).tolist() if isinstance(indices, np.ndarray) else list(indices))
    return batch_of(dataset, samples, collate_fn)


def batch_of(dataset: Any, samples: list[Any], collate_fn: Collate | None = None) -> Fetched:
    """A batch of a data set's samples."""
    if collate_fn is None and not keeps_samples(dataset) and _is_image_and_label(samples[0]):
        return collate(samples)
    return Made((collate_fn or default_collate)(samples))


def unwrapped(dataset: Any, indices: Any) -> tuple[Any, Any]:
    """The data set of which another is a subset, and these indices there."""
    while type(dataset) is Subset:
        dataset, indices = dataset.dataset, [dataset.indices[index] for index in indices]
    return dataset, indices


def prepares_batches(dataset: Any) -> bool:
    """Whether a data set, or the one of which it is a subset, prepares whole batches itself."""
    dataset, _ = unwrapped(dataset, ())
    can = isinstance(dataset, BatchedDataset) and callable(dataset.batch)
    return can and (not isinstance(dataset, Samples) or dataset.prepares_batches)


def gives_tensors(dataset: Any) -> bool:
    """Whether a data set's transform, or that of the one of which it is a subset, makes tensors."""
    whole, _ = unwrapped(dataset, ())
    return makes_tensors(getattr(whole, "transform", None))


def keeps_samples(dataset: Any) -> bool:
    """Whether a data set's samples are collated as they are: a ``Dataset``'s that prepares no batches, or a list's."""
    return isinstance(dataset, Dataset | list | tuple) and not prepares_batches(dataset)


def fetch_batch(
    dataset: BatchedDataset, indices: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator, unfinished: bool
) -> tuple[FloatImages | Pixels, Labels]:
    """The batch that a data set prepares itself, or its images for the engine to finish."""
    if unfinished and isinstance(dataset, ArrayDataset) and type(dataset).batch is ArrayDataset.batch:
        pixels = plan(dataset.images[indices], dataset.transform, rng)
        if pixels is not None:
            return pixels, dataset.labels[indices]
    return _check_batch(type(dataset).__name__, dataset.batch(indices, rng), len(indices))


def _is_image_and_label(sample: Any) -> bool:
    """Whether a sample seems to be an array of numbers, but no tensor, and a whole number or several."""
    if not isinstance(sample, tuple | list) or len(sample) != 2 or isinstance(sample[0], Tensor | str | bytes):
        return False
    try:
        image, label = (np.asarray(value) for value in sample)
    except Exception:  # NumPy, or the value's own code, may raise anything
        return False
    return holds_numbers(image.dtype) and is_whole(label.dtype) and label.shape in ((), image.shape[:2])


def collate(samples: Sequence[tuple[Any, Any]]) -> Batch:
    """Stacks (image, label) pairs to float32 images, contiguous, and int64 labels.

    Raises:
        ArgumentError: a sample is not a pair. ShapeError: images or labels of several shapes. DtypeError: an image is
            no array of numbers, a label neither an integer nor one for each pixel.
    """
    images: list[FloatImages] = []
    labels: list[Labels] = []
    for number, sample in enumerate(samples):
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            raise errors.ArgumentError(
                f"[DataLoader] expected dataset[index] to give (image, label), got {type(sample).__name__} as sample "
                f"{number} of the batch: return a pair"
            )
        images.append(_float_array(_IMAGE, sample[0]))
        labels.append(_integer_label(sample[1], images[number].shape[:2]))
        if images[number].shape != images[0].shape:
            raise errors.ShapeError(
                f"[DataLoader] expected images of one shape, got {images[0].shape} and {images[number].shape} in one "
                "batch: crop or resize them in the data set"
            )
        if labels[number].shape != labels[0].shape:
            raise errors.ShapeError(
                f"[DataLoader] expected labels of one shape, got {labels[0].shape} and {labels[number].shape} in one "
                "batch: give a number for each image, or for each pixel"
            )
    return np.stack(images), np.stack(labels)


def _check_batch(name: str, batch: Any, count: int) -> Batch:
    """What a data set's ``batch`` gave, as the dtypes a batch has; free of cost where it has them already."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise errors.ArgumentError(
            f"[DataLoader] expected (images, labels) from {name}.batch, got {type(batch).__name__}: return a pair"
        )
    images = _float_array(f"images as an array of real numbers from {name}.batch", batch[0])
    labels = _array(f"labels as an array of integers from {name}.batch", batch[1])
    if images.shape[:1] != (count,) or labels.shape not in ((count,), images.shape[:-1]):
        raise errors.ShapeError(
            f"[DataLoader] expected {count} images and labels from {name}.batch, got {images.shape} and labels: "
            f"{labels.shape}: return one of each for every index, or a label for each pixel"
        )
    if not is_whole(labels.dtype):
        raise errors.DtypeError(
            f"[DataLoader] expected integer labels from {name}.batch, got {labels.dtype}: give numbers of classes"
        )
    return np.ascontiguousarray(images), _as_int64(labels)


def _integer_label(label: Any, size: tuple[int, ...]) -> Labels:
    if type(label) is int and -(1 << 63) <= label < 1 << 63:  # most are
        return np.array(label, np.int64)
    value = _array("an integer label", label)
    if value.shape not in ((), size) or not is_whole(value.dtype):
        raise errors.DtypeError(
            f"[DataLoader] expected an integer label, got {value.dtype} of shape {value.shape}: return int(label), or "
            "integers for each pixel"
        )
    return _as_int64(value)


def _array(expected: str, value: Any) -> np.ndarray[Any, Any]:
    """``value`` as an array; its own code, or NumPy where the lengths within it differ, may raise anything."""
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:
        raise errors.ShapeError(
            f"[DataLoader] expected {expected}, got {type(value).__name__}, of which NumPy makes none "
            f"({one_line(error)}): return a NumPy array"
        ) from error


def _float_array(expected: str, value: Any) -> FloatImages:
    array = value if type(value) is np.ndarray else _array(expected, value)
    if not holds_numbers(array.dtype):
        raise errors.DtypeError(
            f"[DataLoader] expected {expected}, got {type(value).__name__} of dtype {array.dtype}: return a NumPy "
            "array of uint8 or float32"
        )
    floats: FloatImages = array.astype(np.float32, copy=False)
    return floats


def _as_int64(labels: np.ndarray[Any, Any]) -> Labels:
    if is_integer(labels.dtype) and labels.size and labels.max() > np.iinfo(np.int64).max:
        raise errors.DtypeError(
            f"[DataLoader] expected labels that fit int64, got {labels.max()}: give numbers of classes from 0 on"
        )
    numbers: Labels = labels.astype(np.int64, copy=False)
    return numbers


def _check_images(function: str, images: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if images.dtype != np.uint8:
        raise errors.DtypeError(
            f"[{function}] expected uint8 images, got {images.dtype}: keep raw pixels 0..255 here and scale them in "
            "the transform"
        )
    if images.ndim != 4:
        raise errors.ShapeError(
            f"[{function}] expected images (n, H, W, C), got {images.shape}: add a channel axis with images[..., None]"
        )
    return np.ascontiguousarray(images)


def _check_labels(function: str, labels: np.ndarray[Any, Any], count: int) -> Labels:
    if not is_integer(labels.dtype):
        raise errors.DtypeError(
            f"[{function}] expected integer labels, got {labels.dtype}: give each image the number of its class"
        )
    if labels.shape != (count,):
        raise errors.ShapeError(
            f"[{function}] expected one label per image, got labels: {labels.shape} and {count} images: cut them alike"
        )
    return cast(Labels, labels.astype(np.int64))
