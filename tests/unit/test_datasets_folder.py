"""ImageFolder: what it finds, what it cuts out of images, the same batches from workers, and misuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alpha.datasets import DataLoader, ImageFolder
from alpha.datasets.folder import centred_box, random_box
from alpha.errors import ArgumentError, DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes of single-coloured images of several sizes and modes."""
    for folder, colour in (("birds", (255, 0, 0)), ("ants", (0, 0, 255))):
        (tmp_path / folder / "deep").mkdir(parents=True)
        Image.new("RGB", (40, 20), colour).save(tmp_path / folder / "wide.png")
        Image.new("RGB", (9, 31), colour).save(tmp_path / folder / "deep" / "tall.JPG", format="jpeg", quality=100)
        Image.new("L", (8, 8), 128).save(tmp_path / folder / "grey.bmp")
        (tmp_path / folder / "notes.txt").write_text("no image")
    return tmp_path


@pytest.mark.parametrize("augment", [False, True])
def test_finds_classes_and_decodes(root: Path, augment: bool) -> None:
    data = ImageFolder(root, 16, augment=augment)
    assert data.classes == ("ants", "birds") and len(data) == 6
    assert [file.name for file, _ in data.samples[:3]] == ["tall.JPG", "grey.bmp", "wide.png"]
    for index, (image, label) in enumerate(data):
        assert image.shape == (16, 16, 3) and image.dtype == np.float32 and label == index // 3
        colour = [(0, 0, 255), (255, 0, 0)][label] if index % 3 != 1 else (128, 128, 128)
        np.testing.assert_allclose(image, np.broadcast_to(colour, image.shape), atol=3)


def test_the_centre_is_cut_out(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    columns = np.repeat(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], 56, axis=0).repeat(3, axis=2)
    Image.fromarray(columns).save(tmp_path / "one" / "ramp.png")
    image, _ = ImageFolder(tmp_path, 49)[0]
    # 56 / (8 / 7) = 49 columns of the 120, without scaling: from 35.5 on, between two of the ramp's steps.
    np.testing.assert_allclose(image[0, :, 0], 2 * np.arange(35.5, 84.5), atol=1)


def test_boxes_lie_inside() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([random_box((50, 30), rng) for _ in range(2000)])
    assert boxes.min() >= 0 and boxes[:, 2].max() <= 50 and boxes[:, 3].max() <= 30
    across, down = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert (across * down / 1500).min() >= 0.08 - 1e-9
    assert (across / down).min() >= 0.75 - 1e-9 and (across / down).max() <= 4 / 3 + 1e-9
    assert centred_box((50, 30), 1.0) == (10, 0, 40, 30)
    assert random_box((1000, 1), rng) == centred_box((1000, 1), 1.0), "where no crop fits"


def test_workers_make_the_same_batches(root: Path) -> None:
    data = ImageFolder(root, 8, augment=True)
    batches = [
        [(np.array(x), np.array(y)) for x, y in DataLoader(data, 4, shuffle=True, seed=3, workers=workers)]
        for workers in (0, 2)
    ]
    assert [len(y) for _, y in batches[0]] == [4, 2]
    for one, other in zip(*batches, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_misuse_says_what_was_expected(root: Path) -> None:
    with pytest.raises(DataError, match=r"\[ImageFolder\] expected a folder of classes, got .*nowhere"):
        ImageFolder(root / "nowhere")
    with pytest.raises(DataError, match="expected a folder for each class"):
        ImageFolder(root / "ants" / "deep")
    with pytest.raises(ArgumentError, match="expected size >= 1, got 0"):
        ImageFolder(root, 0)
    (root / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected images .* in every class.s folder, got none in .*empty"):
        ImageFolder(root)
    (root / "empty").rmdir()
    (root / "ants" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"expected an image in .*broken.png.*: replace or remove the file"):
        list(ImageFolder(root, 8))
    with pytest.raises(IndexError, match=r"\[ImageFolder\] expected an index below"):
        ImageFolder(root)[100]
