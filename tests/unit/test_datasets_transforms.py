"""Transforms against their definitions, image by image."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import errors
from alpha.datasets import BatchGenerator, transforms
from alpha.datasets.transforms import Images, Transform


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def pixels(n: int, h: int, w: int, c: int) -> Images:
    return generator(7).integers(0, 256, (n, h, w, c), dtype=np.uint8)


def test_to_unit_range_is_the_correctly_rounded_formula_for_every_pixel_value() -> None:
    images = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    result = transforms.ToUnitRange()(images, generator())
    expected = (images.astype(np.float64) / 127.5 - 1).astype(np.float32)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)
    assert result.flat[0] == -1 and result.flat[255] == 1


def test_to_unit_range_refuses_pixels_that_were_scaled_before() -> None:
    with pytest.raises(errors.DtypeError, match=r"\[ToUnitRange\] expected uint8 pixels, got float32"):
        transforms.ToUnitRange()(np.zeros((1, 2, 2, 3), np.float32), generator())


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_normalize_is_its_definition(dtype: Any) -> None:
    images = pixels(3, 5, 4, 3).astype(dtype)
    mean, std = [0.4914, 0.4822, 0.4465], [0.247, 0.243, 0.261]
    result = transforms.Normalize(mean, std)(images, generator())
    values = images.astype(np.float64) / (255 if dtype == np.uint8 else 1)
    assert result.dtype == np.float32 and result.shape == images.shape
    # Three float32 roundings (constant, difference, quotient) of values of the size of 1 / 0.243, or 255 / 0.243.
    np.testing.assert_allclose(result, (values - mean) / std, rtol=4e-7, atol=1e-6)


def test_normalize_takes_one_number_for_all_channels() -> None:
    images = np.full((1, 2, 2, 3), 3, np.float32)
    assert (transforms.Normalize(1.0, 2.0)(images, generator()) == 1).all()


def test_normalize_refuses_constants_that_do_not_fit() -> None:
    with pytest.raises(errors.ArgumentError, match="expected std > 0"):
        transforms.Normalize([0.5], [0.0])
    with pytest.raises(errors.ArgumentError, match="expected mean as one number per channel"):
        transforms.Normalize([float("nan")], [1.0])
    with pytest.raises(errors.ShapeError, match=r"got 2 values and images: \(1, 4, 4, 3\)"):
        transforms.Normalize([0.5, 0.5], [1.0, 1.0])(pixels(1, 4, 4, 3), generator())


@pytest.mark.parametrize(
    ("shape", "size", "padding"),
    [((300, 5, 7, 2), (4, 6), 1), ((300, 6, 6, 3), 6, 2), ((20, 4, 5, 1), (4, 5), 0), ((50, 3, 3, 4), 1, 0)],
)
def test_random_crop_gives_each_possible_window_and_nothing_else(
    shape: tuple[int, int, int, int], size: int | tuple[int, int], padding: int
) -> None:
    images = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)  # every pixel differs, none is padding
    before = images.copy()
    result = transforms.RandomCrop(size, padding)(images, generator())
    h, w = (size, size) if isinstance(size, int) else size
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    offsets = [(i, j) for i in range(padded.shape[1] - h + 1) for j in range(padded.shape[2] - w + 1)]
    seen = set()
    for image, cropped in zip(padded, result, strict=True):
        matches = [(i, j) for i, j in offsets if np.array_equal(image[i : i + h, j : j + w], cropped)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert seen == set(offsets)  # with this seed, and these counts, every place has its turn
    np.testing.assert_array_equal(images, before)


def test_random_crop_keeps_the_dtype_and_is_contiguous() -> None:
    result = transforms.RandomCrop(32, 4)(pixels(3, 32, 32, 3), generator())
    assert result.dtype == np.uint8 and result.shape == (3, 32, 32, 3) and result.flags.c_contiguous


def test_random_crop_refuses_impossible_windows() -> None:
    with pytest.raises(errors.ShapeError, match=r"got size \(9, 9\), padding 0 and images: \(2, 8, 8, 3\)"):
        transforms.RandomCrop(9)(pixels(2, 8, 8, 3), generator())
    with pytest.raises(errors.ArgumentError, match="expected size >= 1"):
        transforms.RandomCrop(0)
    with pytest.raises(errors.ArgumentError, match="expected padding >= 0"):
        transforms.RandomCrop(4, -1)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crop_pads_as_numpy_does(mode: str) -> None:
    images, crop = pixels(60, 4, 5, 2), transforms.RandomCrop((4, 5), 3, padding_mode=mode)
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)), mode=mode)  # type: ignore[call-overload]
    tops, lefts = crop.draw(images, generator(3))
    expected = [image[top : top + 4, left : left + 5] for image, top, left in zip(padded, tops, lefts, strict=True)]
    assert len({*zip(tops.tolist(), lefts.tolist(), strict=True)}) > 20
    np.testing.assert_array_equal(crop(images, generator(3)), expected)
    assert (mode in repr(crop)) == (mode != "constant")


def test_random_crop_refuses_other_modes_and_images_too_small_to_mirror() -> None:
    with pytest.raises(errors.ArgumentError, match=r"expected padding_mode constant, edge, .*, got 'mirror'"):
        transforms.RandomCrop(4, 1, padding_mode="mirror")
    with pytest.raises(errors.ShapeError, match="expected images of 4 pixels or more a side for padding 3 by reflect"):
        transforms.RandomCrop(3, 3, padding_mode="reflect")(pixels(2, 3, 8, 3), generator())


def batch_generator(seed: int, epoch: int, indices: Any) -> BatchGenerator:
    return BatchGenerator(np.random.PCG64(epoch), seed, epoch, np.asarray(indices))


def test_alternating_flip_mirrors_each_image_in_every_other_epoch() -> None:
    images, order = pixels(1000, 3, 5, 2), generator(1).permutation(1000)
    flip = transforms.AlternatingFlip()

    def mirrored(epoch: int, seed: int = 4) -> Any:
        """By the samples' indices, whatever the order in which they come."""
        shown = np.empty_like(images)
        shuffled = np.roll(order, epoch)
        shown[shuffled] = flip(images[shuffled], batch_generator(seed, epoch, shuffled))
        chosen = (shown == images[:, :, ::-1]).all(axis=(1, 2, 3))
        assert (chosen | (shown == images).all(axis=(1, 2, 3))).all()
        return chosen

    first = mirrored(0)
    assert abs(first.sum() - 500) < 80  # five standard deviations of a fair coin
    assert abs((first[:-1] == first[1:]).sum() - 500) < 80  # neighbours are independent
    for epoch in range(1, 5):
        np.testing.assert_array_equal(mirrored(epoch), first ^ (epoch % 2 == 1))
    assert abs((mirrored(0, seed=5) == first).sum() - 500) < 80  # so are seeds


def test_alternating_flip_needs_a_loaders_generator() -> None:
    with pytest.raises(errors.ArgumentError, match="expected a BatchGenerator, which knows the epoch, got Generator"):
        transforms.AlternatingFlip()(pixels(2, 3, 3, 1), generator())
    with pytest.raises(errors.ArgumentError, match="expected the batch's 3 images, got 2"):
        transforms.AlternatingFlip()(pixels(2, 3, 3, 1), batch_generator(0, 0, [4, 5, 6]))


def test_a_batch_generator_draws_as_any_and_survives_a_copy() -> None:
    one = batch_generator(3, 8, [5, 1])
    assert one.random() == np.random.Generator(np.random.PCG64(8)).random()
    other = pickle.loads(pickle.dumps(one))
    assert (other.seed, other.epoch, other.indices.tolist()) == (3, 8, [5, 1]) and other.random() == one.random()
    assert other.sample_bits().tolist() == one.sample_bits().tolist()


def test_flip_mirrors_none_all_or_about_half() -> None:
    images = pixels(1000, 3, 5, 2)
    before = images.copy()
    never, always, half = (transforms.RandomHorizontalFlip(p)(images, generator()) for p in (0.0, 1.0, 0.5))
    np.testing.assert_array_equal(never, before)
    np.testing.assert_array_equal(always, before[:, :, ::-1])
    mirrored = (half == before[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (mirrored | (half == before).all(axis=(1, 2, 3))).all()
    assert abs(mirrored.sum() - 500) < 80  # five standard deviations of a fair coin
    np.testing.assert_array_equal(images, before)


def test_flip_refuses_what_is_no_probability() -> None:
    with pytest.raises(errors.ArgumentError, match=r"expected 0 <= p <= 1, got 1\.5"):
        transforms.RandomHorizontalFlip(1.5)


def test_compose_applies_in_order_and_draws_from_one_generator() -> None:
    images = pixels(40, 8, 8, 3)
    crop, flip, scale = transforms.RandomCrop(8, 2), transforms.RandomHorizontalFlip(), transforms.ToUnitRange()
    rng = generator(3)
    expected = scale(flip(crop(images, rng), rng), rng)
    np.testing.assert_array_equal(transforms.Compose([crop, flip, scale])(images, generator(3)), expected)
    assert not np.array_equal(transforms.Compose([crop, flip, scale])(images, generator(4)), expected)


def test_compose_refuses_what_cannot_be_called() -> None:
    with pytest.raises(errors.ArgumentError, match="expected transforms that can be called, got 'flip'"):
        transforms.Compose(["flip"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "transform",
    [
        transforms.ToUnitRange(),
        transforms.Normalize(0.5, 0.5),
        transforms.RandomCrop(2),
        transforms.RandomHorizontalFlip(),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_a_single_image_is_no_batch(transform: Transform) -> None:
    with pytest.raises(errors.ShapeError, match=r"expected a batch \(n, H, W, C\), got images: \(4, 4, 3\)"):
        transform(np.zeros((4, 4, 3), np.uint8), generator())
    assert len(transform(np.zeros((0, 4, 4, 3), np.uint8), generator())) == 0
    assert repr(transform).startswith(type(transform).__name__)


F = transforms.functional


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: transforms.RandomAffine(-1), r"\[RandomAffine\] expected degrees >= 0 or a pair, got -1"),
        (
            lambda x: transforms.RandomAffine(1, (0, 2)),
            r"expected translate as two numbers within 0\.\.1, got \(0, 2\)",
        ),
        (lambda x: transforms.RandomAffine(1, scale=(0, 1)), r"expected scale > 0, got \(0, 1\)"),
        (lambda x: transforms.RandomAffine(1, shear=[1, 2, 3]), "expected shear as a pair of numbers"),
        (lambda x: transforms.RandomAffine(1, interpolation="box"), "expected interpolation as one of nearest, bilin"),
        (lambda x: transforms.RandomPerspective(2), r"expected distortion_scale within 0\.\.1, got 2"),
        (lambda x: transforms.RandomPerspective(p=2), "expected 0 <= p <= 1, got 2"),
        (lambda x: transforms.ElasticTransform(sigma=-1), "expected sigma > 0, or 0 for no smoothing, got -1"),
        (lambda x: transforms.ElasticTransform([1, 2, 3]), "expected alpha as one number or two"),
        (transforms.ElasticTransform(), r"\[pad\] expected less padding than the image has pixels"),
        (lambda x: transforms.RandomAdjustSharpness(-1), "expected sharpness_factor >= 0, got -1"),
        (lambda x: transforms.LinearTransformation(np.eye(3), np.zeros(4)), r"got \(3, 3\) and \(4,\)"),
        (transforms.LinearTransformation(np.eye(3), np.zeros(3)), "expected images of 3 numbers"),
        (transforms.LinearTransformation(np.eye(60), np.zeros(60)), "expected floats, got uint8"),
        (lambda x: transforms.LinearTransformation(np.eye(3), np.zeros(3))(None), "expected a tensor, got NoneType"),
        (lambda x: transforms.AutoAugment("imagenet"), "expected a policy of AutoAugmentPolicy, got 'imagenet'"),
        (lambda x: transforms.RandAugment(magnitude=31), "expected magnitude <= 30, got 31"),
        (lambda x: transforms.TrivialAugmentWide(1), "expected num_magnitude_bins >= 2, got 1"),
        (lambda x: transforms.AugMix(severity=11), "expected severity <= 10, got 11"),
        (lambda x: transforms.AugMix(alpha=0), "expected alpha > 0, got 0"),
        (lambda x: F.affine(x, 0, [1], 1, 0), r"\[affine\] expected translate as two numbers, got \[1\]"),
        (lambda x: F.affine(x, 0, [1, 1], 0, 0), r"\[affine\] expected scale > 0, got 0"),
        (lambda x: F.perspective(x, [[0, 0]], [[1, 1]]), "expected startpoints and endpoints as four pairs"),
        (lambda x: F.perspective(x, None, None, coefficients=[1]), r"expected 8 coefficients, got \[1\]"),
        (lambda x: F.perspective(x, [[0, 0]] * 4, None, coefficients=[1] * 8), "points or coefficients, got both"),
        (lambda x: F.elastic(x, np.zeros((1, 4, 5, 2))), "expected displacement as a tensor"),
        (
            lambda x: F.elastic(x, alpha.zeros((1, 4, 4, 2))),
            r"expected a displacement \(1, 4, 5, 2\), got \(1, 4, 4, 2\)",
        ),
        (lambda x: F.adjust_sharpness(x, -1), r"expected sharpness_factor in 0\.0\.\.inf, got -1"),
        (lambda x: F.posterize(x, 9), "expected bits <= 8, got 9"),
    ],
)
def test_warps_and_augmentations_refuse_what_does_not_fit(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(errors.AlphaError, match=message):
        call(alpha.zeros((4, 5, 3), dtype="uint8"))
