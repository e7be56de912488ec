"""ArrayDataset, and how single samples of a user's own data set become a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import errors
from alpha.datasets import ArrayDataset, BatchedDataset, transforms
from alpha.datasets.dataset import collate, fetch
from alpha.datasets.transforms import Images


def generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(0))


def make(n: int = 10, transform: transforms.Transform | None = None) -> ArrayDataset:
    images = generator().integers(0, 256, (n, 4, 5, 3), dtype=np.uint8)
    return ArrayDataset(images, np.arange(n) % 3, ("a", "b", "c"), transform)


def test_a_batch_is_float32_and_contiguous_with_int64_labels() -> None:
    data = make()
    indices = np.array([7, 2, 2, 9])
    x, y = data.batch(indices, generator())
    assert x.dtype == np.float32 and y.dtype == np.int64 and x.flags.c_contiguous
    np.testing.assert_array_equal(x, data.images[indices])
    np.testing.assert_array_equal(y, [1, 2, 2, 0])


def test_a_transform_sees_the_whole_batch_as_uint8() -> None:
    seen: list[Images] = []

    def record(images: Images, rng: np.random.Generator) -> Images:
        seen.append(images)
        return images[:, ::2, ::-1].astype(np.float64)

    x, _ = make(transform=record).batch(np.arange(6), generator())
    assert [(images.shape, images.dtype) for images in seen] == [((6, 4, 5, 3), np.dtype(np.uint8))]
    assert x.shape == (6, 2, 5, 3) and x.dtype == np.float32 and x.flags.c_contiguous


def test_a_transform_that_loses_images_is_named() -> None:
    data = make(transform=lambda images, rng: images[:-1])
    with pytest.raises(errors.ShapeError, match=r"\[ArrayDataset.batch\] expected 4 images .* got \(3, 4, 5, 3\)"):
        data.batch(np.arange(4), generator())


def test_an_item_is_one_transformed_image_and_an_int() -> None:
    data = make(transform=transforms.ToUnitRange())
    image, label = data[4]
    np.testing.assert_array_equal(image, (data.images[4] - np.float32(127.5)) / np.float32(127.5))
    assert label == 1 and type(label) is int
    np.testing.assert_array_equal(data[-1][0], data[9][0])
    assert [label for _, label in data] == data.labels.tolist()
    for index in (10, -11):
        with pytest.raises(IndexError, match=rf"expected an index below 10, got {index}"):
            data[index]


def test_a_random_item_depends_on_the_global_seed_and_the_index() -> None:
    data = make(transform=transforms.RandomCrop(4, 8))
    alpha.manual_seed(1)
    first = [data[i][0] for i in range(10)]
    again = [data[i][0] for i in range(10)]
    alpha.manual_seed(2)
    other = [data[i][0] for i in range(10)]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_classes_are_the_numbers_by_default() -> None:
    data = ArrayDataset(np.zeros((3, 2, 2, 1), np.uint8), [2, 0, 1])
    assert data.classes == ("0", "1", "2") and len(data) == 3
    assert repr(data) == "ArrayDataset(3 images of (2, 2, 1), 3 classes)"


@pytest.mark.parametrize(
    ("images", "labels", "error", "message"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), [0, 1], errors.DtypeError, "expected uint8 images, got float32"),
        (np.zeros((2, 4, 4), np.uint8), [0, 1], errors.ShapeError, r"expected images \(n, H, W, C\), got \(2, 4, 4\)"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0.0, 1.0], errors.DtypeError, "expected integer labels, got float64"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0, 1, 1], errors.ShapeError, r"got labels: \(3,\) and 2 images"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0, 2], errors.ArgumentError, r"expected labels in 0..1, got 0..2"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0, -1], errors.ArgumentError, r"expected labels in 0..1, got -1..0"),
    ],
)
def test_arrays_that_do_not_fit(images: Any, labels: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ArrayDataset(images, labels, ("a", "b"))


class Squares:
    """A user's own data set: nothing but the protocol."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.full((2, 3, 1), index * index, np.float64), np.int32(index)


def test_single_samples_are_stacked() -> None:
    data = Squares()
    assert not isinstance(data, BatchedDataset) and isinstance(make(), BatchedDataset)
    x, y = fetch(data, np.array([3, 1]), generator())
    assert x.dtype == np.float32 and x.flags.c_contiguous and y.dtype == np.int64
    np.testing.assert_array_equal(x, np.array([9.0, 1.0]).reshape(2, 1, 1, 1) * np.ones((2, 2, 3, 1)))
    np.testing.assert_array_equal(y, [3, 1])


def test_a_label_for_each_pixel() -> None:
    maps = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    images = np.ones((2, 2, 3, 1), np.float32)
    for x, y in (
        collate(list(zip(images, maps, strict=True))),
        fetch(Ready(images, maps), np.array([0, 1]), generator()),
    ):
        np.testing.assert_array_equal(x, images)
        np.testing.assert_array_equal(y, maps)
        assert y.dtype == np.int64
    with pytest.raises(errors.ShapeError, match=r"labels: \(2, 3, 2\): return one of each for every index, or a label"):
        fetch(Ready(images, maps.transpose(0, 2, 1)), np.array([0, 1]), generator())
    with pytest.raises(errors.ShapeError, match=r"expected labels of one shape, got \(\) and \(2, 3\) in one batch"):
        collate([(images[0], 1), (images[1], maps[1])])
    with pytest.raises(errors.DtypeError, match=r"expected an integer label, got float64 of shape \(2, 3\): return"):
        collate([(images[0], maps[0] / 2)])


class Ready(Squares):
    """A user's own data set that prepares whole batches."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.made = images, labels

    def batch(self, indices: Any, rng: np.random.Generator) -> Any:
        return self.made


def test_a_batch_of_ones_own_gets_the_right_dtypes() -> None:
    data = Ready(np.ones((2, 3, 1, 4)).transpose(0, 2, 3, 1), [1, 0])
    x, y = fetch(data, np.array([0, 1]), generator())
    assert x.dtype == np.float32 and x.flags.c_contiguous and x.shape == (2, 1, 4, 3) and y.dtype == np.int64
    with pytest.raises(errors.ShapeError, match=r"expected 3 images and labels from Ready.batch, got \(2, 1,"):
        fetch(data, np.array([0, 1, 2]), generator())
    with pytest.raises(errors.DtypeError, match=r"expected integer labels from Ready.batch, got float64"):
        fetch(Ready(np.ones((2, 3)), [0.5, 1.0]), np.array([0, 1]), generator())


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([np.zeros((2, 2, 1))], errors.ArgumentError, "to give .image, label., got ndarray as sample 0"),
        ([(np.zeros((2, 2, 1)), 0), (np.zeros((3, 2, 1)), 0)], errors.ShapeError, r"\(2, 2, 1\) and \(3, 2, 1\)"),
        ([(np.zeros((2, 2, 1)), 0.5)], errors.DtypeError, "expected an integer label, got float64"),
        ([(np.zeros((2, 2, 1)), [1, 2])], errors.DtypeError, r"got int64 of shape \(2,\)"),
    ],
)
def test_samples_that_make_no_batch(samples: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        collate(samples)
