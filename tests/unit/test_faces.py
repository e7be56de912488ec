"""ORLFaces: what it finds in a tree of PGM files, how it splits and reduces, and misuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alpha.datasets import DataLoader, ORLFaces
from alpha.errors import ArgumentError, DataError


def pixels(person: int, number: int) -> np.ndarray[Any, Any]:
    """6 x 4 pixels that tell whose they are: person in the left half, number in the right one."""
    image = np.full((6, 4), 10 * person, np.uint8)
    image[:, 2:] = number
    return image


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three people of four images; s10 sorts behind s2 and 10.pgm behind 2.pgm."""
    for person in (1, 2, 10):
        folder = tmp_path / f"s{person}"
        folder.mkdir()
        for number in (1, 2, 9, 10):
            (folder / f"{number}.pgm").write_bytes(b"P5 4 6 255\n" + pixels(person, number).tobytes())
        (folder / "notes.txt").write_text("no image")
    (tmp_path / "README").write_text("s1, s2, s10")
    (tmp_path / "s1" / "1.pgm").write_bytes(b"P5\n# made by hand\n4 6\n255\n" + pixels(1, 1).tobytes())
    return tmp_path


def test_splits_each_persons_images(root: Path) -> None:
    train, test = ORLFaces(root, train_images=3), ORLFaces(root, False, train_images=3)
    assert train.classes == test.classes == ("s1", "s2", "s10")
    assert train.images.shape == (9, 6, 4, 1) and test.images.shape == (3, 6, 4, 1)
    np.testing.assert_array_equal(train.labels, np.repeat(np.arange(3), 3))
    for place, (person, number) in enumerate((p, n) for p in (1, 2, 10) for n in (1, 2, 9)):
        np.testing.assert_array_equal(train.images[place, ..., 0], pixels(person, number))
    assert test.images[:, 0, 3, 0].tolist() == [10, 10, 10]


def test_a_seed_draws_another_split(root: Path) -> None:
    splits = []
    for seed in range(6):
        parts = [ORLFaces(root, train, train_images=2, seed=seed) for train in (True, False)]
        for person in range(3):
            numbers = [set(part.images[part.labels == person, 0, 3, 0].tolist()) for part in parts]
            assert numbers[0] | numbers[1] == {1, 2, 9, 10} and not numbers[0] & numbers[1]
        splits.append(parts[0].images.tobytes())
    assert splits[0] == ORLFaces(root, train_images=2, seed=0).images.tobytes()
    assert len(set(splits)) > 1


def test_reduces_by_means_of_blocks(root: Path) -> None:
    file = root / "s1" / "1.pgm"
    values = np.arange(24, dtype=np.uint8).reshape(6, 4)
    file.write_bytes(b"P5 4 6 255\n" + values.tobytes())
    image = ORLFaces(root, train_images=1, reduce=2).images[0, ..., 0]
    expected = np.rint(values.reshape(3, 2, 2, 2).mean((1, 3)))
    np.testing.assert_array_equal(image, expected)


def test_the_folder_may_be_named_and_pixels_are_scaled(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outer = tmp_path_factory.mktemp("outer")
    (outer / "orl_faces").symlink_to(root)
    ((x, y),) = DataLoader(ORLFaces(outer, train_images=3), 9)
    assert x.shape == (9, 6, 4, 1) and y.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    np.testing.assert_allclose(np.array(x)[3, 0, 0, 0], 20 / 127.5 - 1, rtol=1e-6)


def test_pixels_that_look_like_white_space_stay(root: Path) -> None:
    image = np.full((6, 4), ord("\n"), np.uint8)
    image[0, 0] = ord("#")
    (root / "s1" / "1.pgm").write_bytes(b"P5 4 6 255\n" + image.tobytes())
    np.testing.assert_array_equal(ORLFaces(root, train_images=1).images[0, ..., 0], image)


def test_misuse_says_what_was_expected(root: Path) -> None:
    with pytest.raises(DataError, match=r"\[ORLFaces\] expected folders s1, s2, ... of faces in one of .*nowhere"):
        ORLFaces(root / "nowhere")
    with pytest.raises(DataError, match=r"expected more than 4 images 1.pgm, 2.pgm, ... in .*s1, got 4"):
        ORLFaces(root, train_images=4)
    with pytest.raises(ArgumentError, match="expected train_images >= 1 and reduce >= 1, got 0 and 1"):
        ORLFaces(root, train_images=0)
    with pytest.raises(ArgumentError, match=r"expected reduce to divide height and width, got 4 for 6 x 4 in .*1.pgm"):
        ORLFaces(root, train_images=1, reduce=4)
    file = root / "s2" / "1.pgm"
    for content, message in (
        (b"P2 4 6 255\n1 2 3", r"expected a binary PGM file \(P5\) of 8 bits in .*1.pgm, got one that begins b'P2"),
        (b"P5 4 6 65535\n" + bytes(48), r"expected a binary PGM file \(P5\) of 8 bits"),
        (b"P5 4 6 255\n" + bytes(23), r"expected 4 x 6 pixels in .*1.pgm, got 23 bytes"),
        (b"P5 4 6 255\n" + bytes(25), r"expected 4 x 6 pixels in .*1.pgm, got 25 bytes"),
        (b"P5 0 6 255\n", r"expected 0 x 6 pixels"),
        (b"", r"got one that begins b''"),
        (b"P5 6 4 255\n" + bytes(24), r"expected images of one size, got \[\(4, 6\), \(6, 4\)\]"),
    ):
        file.write_bytes(content)
        with pytest.raises(DataError, match=message):
            ORLFaces(root, train_images=3)


def test_the_real_faces(shared_data: Path) -> None:
    if not (shared_data / "orl_faces").is_dir():
        pytest.skip("the ORL faces are not in shared/data")
    train, test = (ORLFaces(shared_data, part, reduce=2) for part in (True, False))
    assert train.images.shape == (280, 56, 46, 1) and test.images.shape == (120, 56, 46, 1)
    assert train.classes[0] == "s1" and train.classes[39] == "s40"
    assert (np.bincount(train.labels) == 7).all() and (np.bincount(test.labels) == 3).all()
