"""DigitScenes: maps that match the pixels, sizes, seeds, what a loader makes of them, and misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.datasets import ArrayDataset, DataLoader, DigitScenes, scenes
from alpha.errors import ArgumentError

Array = np.ndarray[Any, Any]


def shapes(*labels: int) -> ArrayDataset:
    """A whole square for label 0, its left half for label 1."""
    images = np.full((len(labels), 8, 8, 1), 255, np.uint8)
    images[np.array(labels) == 1, :, 4:] = 0
    return ArrayDataset(images, np.array(labels), ("square", "half"))


@pytest.fixture
def without_grain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels are their digit's colour, whose brightest channel is 255, or the background's, which is below 160."""
    monkeypatch.setattr(scenes, "_GRAIN", 0.0)


@pytest.mark.usefixtures("without_grain")
def test_a_pixel_has_its_digits_class() -> None:
    data = DigitScenes(shapes(0, 0), 20, 60)
    assert data.classes == ("background", "square", "half")
    assert data.images.shape == (20, 60, 60, 3) and data.labels.shape == (20, 60, 60)
    assert set(np.unique(data.labels)) == {0, 1}
    np.testing.assert_array_equal(data.images.max(3) == 255, data.labels == 1)
    assert data.images[data.labels == 0].max() < 160


@pytest.mark.usefixtures("without_grain")
def test_digits_keep_their_class_and_shape() -> None:
    data = DigitScenes(shapes(0, 1), 60, 60, digits_per_scene=(1, 1))
    sides: list[int] = []
    for labels in data.labels:
        (label,) = set(np.unique(labels)) - {0}
        rows, columns = (np.flatnonzero((labels == label).any(axis)) for axis in (1, 0))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert (labels > 0).sum() == height * width, "a rectangle without holes"
        assert abs(width - (height if label == 1 else height / 2)) <= 1
        sides.append(int(height))
    assert min(sides) >= 12 and max(sides) <= 24 and len(set(sides)) > 6


@pytest.mark.usefixtures("without_grain")
@pytest.mark.parametrize(("ink", "expected"), [(127, {0}), (128, {0, 1})])
def test_half_of_the_ink_makes_a_pixel_a_digits(ink: int, expected: set[int]) -> None:
    digits = ArrayDataset(np.full((1, 8, 8, 1), ink, np.uint8), [0])
    assert set(np.unique(DigitScenes(digits, 2, 40).labels)) == expected


@pytest.mark.usefixtures("without_grain")
def test_digits_lie_apart() -> None:
    """Each is a square of one colour; where none overlap, their areas add up."""
    data = DigitScenes(shapes(0), 30, 50, digits_per_scene=(4, 4))
    found = []
    for image, labels in zip(data.images, data.labels, strict=True):
        colours, areas = np.unique(image[labels > 0], axis=0, return_counts=True)
        assert all(round(area**0.5) ** 2 == area for area in areas)
        found.append(len(colours))
    assert max(found) == 4 and min(found) >= 1


def test_seeds() -> None:
    digits = shapes(0, 1)
    data, longer = DigitScenes(digits, 3, 40, seed=5), DigitScenes(digits, 5, 40, seed=5)
    np.testing.assert_array_equal(data.images, longer.images[:3])
    np.testing.assert_array_equal(data.labels, longer.labels[:3])
    assert len({image.tobytes() for image in longer.images}) == 5
    other = DigitScenes(digits, 3, 40, seed=6)
    assert not any((a == b).all() for a, b in zip(data.images, other.images, strict=True))


def test_a_loader_gives_images_and_maps() -> None:
    data = DigitScenes(shapes(0, 1), 5, 40)
    (x, y), (rest, _) = DataLoader(data, 3)
    assert x.shape == (3, 40, 40, 3) and x.dtype == np.float32 and rest.shape[0] == 2
    assert y.shape == (3, 40, 40) and y.dtype == np.int64
    np.testing.assert_allclose(x, data.images[:3] / 127.5 - 1, atol=1e-7)
    np.testing.assert_array_equal(y, data.labels[:3])
    image, labels = data[-1]
    np.testing.assert_array_equal(image, np.asarray(rest)[1])
    np.testing.assert_array_equal(labels, data.labels[4])
    with pytest.raises(IndexError, match=r"\[DigitScenes\] expected an index below 5, got 5"):
        data[5]
    assert repr(data) == "DigitScenes(5 scenes of (40, 40, 3), 3 classes)"


@pytest.mark.needs("torch")
def test_resizing_is_bilinear(rng: np.random.Generator) -> None:
    import torch

    image = rng.random((5, 7, 3)).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(image.transpose(2, 0, 1))[None], (16, 16), mode="bilinear"
    )
    # Four products and sums of numbers below 1, in float32.
    np.testing.assert_allclose(scenes._resized(image, 16), expected[0].numpy().transpose(1, 2, 0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("arguments", [(0, 40), (1, 19), (1, 40, (0, 2)), (1, 40, (3, 2))])
def test_misuse(arguments: tuple[Any, ...]) -> None:
    count, size, *digits = arguments
    with pytest.raises(
        ArgumentError, match=r"^\[DigitScenes\] expected count >= 1, size >= 20 and digits_per_scene as fewest"
    ):
        DigitScenes(shapes(0), count, size, **({"digits_per_scene": digits[0]} if digits else {}))
