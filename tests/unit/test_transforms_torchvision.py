"""Transforms and grids beside torchvision's: bit-equal on PIL images, to rounding on tensors."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import alpha
from alpha.datasets import transforms
from alpha.datasets.transforms import functional as ours
from alpha.datasets.transforms import policies
from alpha.utils import make_grid, save_image

pytestmark = pytest.mark.needs("torch", "torchvision")

Make = Callable[[Any], Any]


@pytest.fixture(scope="module")
def torchvision() -> Any:
    """torchvision without its compiled operators, whose builds are for one PyTorch each."""
    library = importlib.import_module("torch").library
    register = library.register_fake
    library.register_fake = lambda *arguments, **options: lambda function: function
    try:
        importlib.import_module("torchvision.transforms.v2")
        return importlib.import_module("torchvision")
    finally:
        library.register_fake = register


@pytest.fixture(autouse=True, params=["NHWC", "NCHW"])
def layout(request: pytest.FixtureRequest) -> Iterator[str]:
    with alpha.set_image_layout(request.param):
        yield request.param


def picture(mode: str = "RGB", height: int = 13, width: int = 18) -> Image.Image:
    channels = len(mode)
    rng = np.random.default_rng(len(mode))
    pixels = rng.integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels if channels > 1 else pixels[..., 0])


def values(image: Any) -> Any:
    """An image's values (H, W, C) or (H, W) of either side."""
    if isinstance(image, alpha.Tensor):
        array = np.asarray(image)
        return np.moveaxis(array, -3, -1) if alpha.get_image_layout() == "NCHW" else array
    if hasattr(image, "detach"):
        return np.moveaxis(image.numpy(), -3, -1)
    return np.asarray(image)


CORNERS = [[0, 0], [17, 0], [17, 12], [0, 12]]

PIL_CASES: dict[str, Make] = {
    "resize": lambda F: lambda x: F.resize(x, [7, 11]),
    "resize the shorter side": lambda F: lambda x: F.resize(x, 20, max_size=25),
    "resize by bicubic": lambda F: lambda x: F.resize(x, [29, 7], F.InterpolationMode.BICUBIC),
    "resize by nearest": lambda F: lambda x: F.resize(x, [29, 7], F.InterpolationMode.NEAREST),
    "crop": lambda F: lambda x: F.crop(x, 3, -2, 8, 30),
    "center_crop": lambda F: lambda x: F.center_crop(x, [6, 9]),
    "center_crop beyond": lambda F: lambda x: F.center_crop(x, [20, 9]),
    "resized_crop": lambda F: lambda x: F.resized_crop(x, 2, 3, 7, 9, [12, 12]),
    "pad": lambda F: lambda x: F.pad(x, [1, 2, 3, 4], 7),
    "pad by reflection": lambda F: lambda x: F.pad(x, [4, 2], padding_mode="reflect"),
    "pad by the edge": lambda F: lambda x: F.pad(x, 3, padding_mode="edge"),
    "horizontal_flip": lambda F: F.hflip,
    "vertical_flip": lambda F: F.vflip,
    "rotate": lambda F: lambda x: F.rotate(x, 33),
    "rotate by bilinear": lambda F: lambda x: F.rotate(x, -20, F.InterpolationMode.BILINEAR, expand=True),
    "rotate about a corner": lambda F: lambda x: F.rotate(x, 15, center=[0, 0], fill=[9]),
    "brightness": lambda F: lambda x: F.adjust_brightness(x, 1.4),
    "contrast": lambda F: lambda x: F.adjust_contrast(x, 0.6),
    "saturation": lambda F: lambda x: F.adjust_saturation(x, 1.7),
    "hue": lambda F: lambda x: F.adjust_hue(x, -0.2),
    "grey": lambda F: lambda x: F.rgb_to_grayscale(x, 3),
    "invert": lambda F: F.invert,
    "solarize": lambda F: lambda x: F.solarize(x, 100.0),
    "posterize": lambda F: lambda x: F.posterize(x, 3),
    "blur": lambda F: lambda x: F.gaussian_blur(x, [3, 5], [0.7, 1.3]),
    "rotate by bilinear with a fill": lambda F: lambda x: F.rotate(x, 20, F.InterpolationMode.BILINEAR, fill=[50]),
    "affine": lambda F: lambda x: F.affine(x, 20, [2, -1], 1.2, [10, -5]),
    "affine by bilinear": lambda F: lambda x: F.affine(x, -40, [0, 3], 0.7, [12], F.InterpolationMode.BILINEAR),
    "affine with a fill": lambda F: lambda x: F.affine(x, 10, [1, 0], 0.6, [0, 20], fill=[70], center=[3, 4]),
    "affine with half a fill": lambda F: (
        lambda x: F.affine(x, 10, [1, 0], 0.6, [0, 20], F.InterpolationMode.BILINEAR, fill=[70])
    ),
    "perspective": lambda F: lambda x: F.perspective(x, CORNERS, [[2, 1], [15, 3], [17, 11], [0, 10]]),
    "perspective by nearest": lambda F: (
        lambda x: F.perspective(
            x, CORNERS, [[2, 1], [15, 3], [17, 11], [0, 10]], F.InterpolationMode.NEAREST, fill=[70]
        )
    ),
    "perspective by coefficients": lambda F: (
        lambda x: F.perspective(x, None, None, coefficients=[1.1, 0.1, -1.0, 0.02, 0.9, 0.5, 0.003, -0.002], fill=[9])
    ),
    "sharpness": lambda F: lambda x: F.adjust_sharpness(x, 2.5),
    "smoothness": lambda F: lambda x: F.adjust_sharpness(x, 0.3),
    "autocontrast": lambda F: F.autocontrast,
    "equalize": lambda F: F.equalize,
}

ROUNDED = {
    "resize",
    "resize the shorter side",
    "resize by bicubic",
    "resized_crop",
    "rotate by bilinear",
    "hue",
    "blur",
    "rotate by bilinear with a fill",
    "affine by bilinear",
    "affine with half a fill",
    "perspective",
    "perspective by coefficients",
    "sharpness",
    "smoothness",
    "autocontrast",
}
"""Whose uint8 results may differ by one level: torchvision has fixed-point code for some."""

WARPED = ("rotate", "affine", "perspective")


def of_theirs(torchvision: Any) -> Any:
    functional = torchvision.transforms.v2.functional
    functional.InterpolationMode = torchvision.transforms.InterpolationMode
    return functional


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", PIL_CASES)
def test_pil_images(torchvision: Any, name: str, mode: str) -> None:
    if name == "grey" and mode == "L":
        pytest.skip("torchvision's result for them has changed between versions")
    mine, theirs = (PIL_CASES[name](F)(picture(mode)) for F in (ours, of_theirs(torchvision)))
    assert mine.mode == theirs.mode
    difference = np.abs(values(mine).astype(int) - values(theirs).astype(int))
    assert difference.max() <= (1 if name == "blur" else 0)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", PIL_CASES)
def test_tensors(torchvision: Any, name: str, dtype: str) -> None:
    if dtype == "float32" and name == "solarize":
        pytest.skip("of another threshold")
    x = picture()
    theirs = torchvision.transforms.v2.functional.pil_to_tensor(x)
    mine = ours.pil_to_tensor(x)
    if dtype == "float32":
        theirs, mine = theirs / 255, ours.to_dtype(mine, "float32", scale=True)
    np.testing.assert_array_equal(values(mine), values(theirs))
    made, expected = PIL_CASES[name](ours)(mine), PIL_CASES[name](of_theirs(torchvision))(theirs)
    assert str(made.dtype) == dtype and values(made).shape == values(expected).shape
    difference = np.abs(values(made).astype(np.float64) - values(expected))
    limit = 1 if name in ROUNDED else 0
    if dtype == "float32":  # torchvision computes warped places in float32
        limit = (1e-5 if name.startswith(WARPED) else 2e-6) * max(1, np.abs(values(expected)).max())
    assert (difference > limit).mean() <= (0.01 if name.startswith(WARPED) else 0)  # ties of nearest pixels


@pytest.mark.parametrize("source", ["uint8", "float32", "int32", "int64", "float64"])
@pytest.mark.parametrize("target", ["uint8", "float32", "int32", "float64"])
def test_dtypes(torchvision: Any, source: str, target: str) -> None:
    torch = importlib.import_module("torch")
    if source.startswith("float") and target == "int32":
        pytest.skip("torchvision refuses some of them")
    x = np.random.default_rng(0).integers(0, 256, (4, 5, 3))
    array = (
        (x / 255).astype(source)
        if source.startswith("float")
        else (x << (0 if source == "uint8" else 20)).astype(source)
    )
    placed = np.moveaxis(array, 2, 0)
    mine = alpha.tensor(array if alpha.get_image_layout() == "NHWC" else placed)
    convert = torchvision.transforms.v2.functional.to_dtype
    expected = convert(torch.from_numpy(placed.copy()), getattr(torch, target), scale=True)
    made = transforms.ToDtype(target, scale=True)(mine)
    np.testing.assert_allclose(values(made), values(expected), rtol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_to_tensor_and_normalize(torchvision: Any, mode: str) -> None:
    steps = [["ToTensor", {}], ["Normalize", {"mean": [0.4] * len(mode), "std": [0.2] * len(mode)}]]
    made, expected = (
        module.Compose([getattr(module, name)(**options) for name, options in steps])(picture(mode))
        for module in (transforms, torchvision.transforms)
    )
    np.testing.assert_array_equal(values(made), values(expected))
    again = transforms.ToPILImage()(transforms.ToTensor()(picture(mode)))
    assert again.mode == mode and np.array_equal(values(again), values(picture(mode)))


OPERATIONS = {name: [0.27, -0.12] if name.startswith("Shear") else [0.6, -0.3] for name in policies.OPERATIONS} | {
    "TranslateX": [3.4, -2.0],
    "TranslateY": [1.0],
    "Rotate": [12.0, -20.0],
    "Posterize": [5.0],
    "Solarize": [0.4],
}


@pytest.mark.parametrize("pil", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_augmentations(torchvision: Any, name: str, pil: bool) -> None:
    theirs = torchvision.transforms.v2.AutoAugment()._apply_image_or_video_transform
    functional, nearest = torchvision.transforms.v2.functional, torchvision.transforms.InterpolationMode.NEAREST
    mine, image = (
        (picture(), picture()) if pil else (ours.pil_to_tensor(picture()), functional.pil_to_tensor(picture()))
    )
    for value in OPERATIONS[name]:
        made = policies.operate(mine, name, value, transforms.InterpolationMode.NEAREST, None)
        expected = theirs(image, name, value, interpolation=nearest, fill={torchvision.transforms.v2.functional: None})
        difference = np.abs(values(made).astype(int) - values(expected).astype(int))
        assert (difference > (0 if pil else 1)).mean() <= (
            0.02 if name in ("Rotate", "ShearX", "ShearY") else 0
        )  # ties


@pytest.mark.parametrize(
    ("name", "ranges", "count"),
    [
        ("AutoAugment", policies.usual_ranges, 10),
        ("RandAugment", policies.usual_ranges, 31),
        ("TrivialAugmentWide", policies.wide_ranges, 31),
        ("AugMix", policies.mixing_ranges, 10),
    ],
)
def test_strengths_of_augmentations(torchvision: Any, name: str, ranges: Any, count: int) -> None:
    space = getattr(torchvision.transforms.v2, name)._AUGMENTATION_SPACE
    found = ranges(48, 32)
    assert {operation for operation in space if operation not in policies.PLAIN} == set(found)
    for operation, (strengths, signed) in space.items():
        expected = strengths(count, 32, 48)
        if expected is not None:
            mine = [policies.strength(found[operation], place, count) for place in range(count)]
            mine = [round(value) for value in mine] if operation == "Posterize" else mine
            np.testing.assert_allclose(mine, expected.numpy(), rtol=1e-6, atol=1e-6)
            assert signed == found[operation][2]


def test_policies_are_torchvisions(torchvision: Any) -> None:
    for policy in torchvision.transforms.AutoAugmentPolicy:
        expected = torchvision.transforms.AutoAugment(policy).policies
        assert list(policies.POLICIES[transforms.AutoAugmentPolicy(policy.value)]) == expected


@pytest.mark.parametrize("dtype", ["PIL", "uint8", "float32"])
@pytest.mark.parametrize("name", ["AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"])
def test_augmentations(name: str, dtype: str) -> None:
    """They keep an image's kind and size, draw from alpha's generator, and change most images."""
    image: Any = picture()
    if dtype != "PIL":
        image = ours.to_dtype(ours.pil_to_tensor(image), dtype, scale=True)
    transform = getattr(transforms, name)()
    alpha.manual_seed(3)
    made = [transform(image) for _ in range(20)]
    for result in made:
        assert type(result) is type(image) and values(result).shape == values(image).shape
        assert values(result).dtype == values(image).dtype
    assert sum((values(result) != values(image)).any() for result in made) > 10
    alpha.manual_seed(3)
    assert (values(transform(image)) == values(made[0])).all()


def test_mixing_without_changes_gives_the_image() -> None:
    """The shares of a mixture add up to 1."""
    image = ours.to_dtype(ours.pil_to_tensor(picture()), "float32", scale=True)
    mixed = transforms.AugMix(severity=1, mixture_width=4, all_ops=False)
    mixed._step = lambda image, *rest: image  # type: ignore[method-assign]
    np.testing.assert_allclose(values(mixed(image)), values(image), rtol=1e-5)


def spread(draw: Callable[[], Any], count: int = 400) -> Any:
    return np.stack([np.asarray(draw(), np.float64).ravel() for _ in range(count)])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RandomAffine", ([-20.0, 30.0], [0.1, 0.3], [0.5, 2.0], [-5.0, 5.0, 1.0, 9.0], [40, 30])),
        ("RandomAffine", ([0.0, 0.0], None, None, [2.0, 3.0], [40, 30])),
        ("RandomPerspective", (40, 31, 0.6)),
    ],
)
def test_random_parameters_are_distributed_as_torchvisions(torchvision: Any, name: str, arguments: Any) -> None:
    importlib.import_module("torch").manual_seed(0)
    alpha.manual_seed(0)

    def flat(parameters: Any) -> Any:
        return np.concatenate([np.ravel(part) for part in parameters])

    mine, theirs = (
        spread(lambda side=side: flat(getattr(side, name).get_params(*arguments)))
        for side in (transforms, torchvision.transforms)
    )
    width = theirs.max(0) - theirs.min(0)
    for statistic in (np.mean, np.min, np.max):
        assert (np.abs(statistic(mine, 0) - statistic(theirs, 0)) <= 0.12 * width + 1e-9).all()


def test_elastic_offsets_are_distributed_as_torchvisions(torchvision: Any) -> None:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    alpha.manual_seed(0)
    size, image = (64, 48), torch.zeros(3, 64, 48)
    for options in ({}, {"alpha": [20.0, 80.0], "sigma": [1.0, 3.0]}, {"sigma": 0.0}):
        twin, mine = torchvision.transforms.v2.ElasticTransform(**options), transforms.ElasticTransform(**options)
        expected = twin.make_params([image])["displacement"].numpy()
        found = np.asarray(mine.get_params(mine.alpha, mine.sigma, size))
        assert found.shape == expected.shape and found.dtype == expected.dtype
        np.testing.assert_allclose(found.std((0, 1, 2)), expected.std((0, 1, 2)), rtol=0.35)


@pytest.mark.parametrize("pil", [True, False])
def test_elastic_displacement(torchvision: Any, pil: bool) -> None:
    torch = importlib.import_module("torch")
    offsets = np.random.default_rng(4).uniform(-0.3, 0.3, (1, 13, 18, 2)).astype(np.float32)
    functional = torchvision.transforms.v2.functional
    mine, theirs = (
        (picture(), picture()) if pil else (ours.pil_to_tensor(picture()), functional.pil_to_tensor(picture()))
    )
    for mode in ("bilinear", "nearest"):
        for fill in (None, [30]):
            found = ours.elastic(mine, alpha.tensor(offsets), mode, fill)
            interpolation = torchvision.transforms.InterpolationMode(mode)
            expected = functional.elastic(theirs, torch.from_numpy(offsets), interpolation, fill)
            difference = np.abs(values(found).astype(int) - values(expected).astype(int))
            assert (difference > 1).mean() <= (0 if mode == "bilinear" else 0.01)


@pytest.mark.parametrize(
    "transform",
    [
        transforms.RandomAffine(30, (0.2, 0.1), (0.8, 1.2), 10),
        transforms.RandomPerspective(p=1.0),
        transforms.ElasticTransform(sigma=1.0),
        transforms.RandomAdjustSharpness(3.0, p=1.0),
        transforms.RandomAutocontrast(p=1.0),
        transforms.RandomEqualize(p=1.0),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_random_transforms(transform: Any) -> None:
    pale = picture("RGB", 30, 40).point(lambda value: 40 + value // 2)
    for image in (pale, ours.pil_to_tensor(pale)):
        alpha.manual_seed(1)
        made = transform(image)
        assert values(made).shape == values(image).shape and (values(made) != values(image)).any()
        alpha.manual_seed(1)
        assert (values(transform(image)) == values(made)).all()
        if hasattr(transform, "p"):
            assert type(transform)(*([3.0] if "Sharp" in repr(transform) else []), p=0.0)(image) is image


def test_linear_transformation(torchvision: Any) -> None:
    torch = importlib.import_module("torch")
    rng = np.random.default_rng(0)
    matrix, mean, x = rng.standard_normal((60, 60)), rng.standard_normal(60), rng.standard_normal((2, 3, 4, 5))
    expected = torchvision.transforms.LinearTransformation(torch.from_numpy(matrix), torch.from_numpy(mean))(
        torch.from_numpy(x)
    )
    transform = transforms.LinearTransformation(alpha.tensor(matrix), mean)
    np.testing.assert_allclose(np.asarray(transform(alpha.tensor(x))), expected.numpy(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(transform(alpha.tensor(x[0]))), expected.numpy()[0], rtol=1e-12)


def test_the_names_of_version_2_are_those_of_version_1(torchvision: Any) -> None:
    from alpha.datasets.transforms import v2

    assert v2.Compose is transforms.Compose and v2.functional is ours
    ours_alone = {"AlternatingFlip", "ImageTransform", "Images", "PADDING_MODES", "ToUnitRange", "Transform"}
    assert set(v2.__all__) - ours_alone <= {*dir(torchvision.transforms.v2), *dir(torchvision.transforms)}


GRIDS: list[dict[str, Any]] = [
    {},
    {"nrow": 3, "padding": 1, "pad_value": 0.5},
    {"normalize": True},
    {"normalize": True, "scale_each": True, "nrow": 2},
    {"normalize": True, "value_range": (0.2, 0.7)},
]


@pytest.mark.parametrize("shape", [(7, 3, 5, 6), (4, 1, 3, 3), (1, 3, 4, 4), (3, 4, 5), (1, 4, 5), (4, 5)])
@pytest.mark.parametrize("options", GRIDS)
def test_grids(torchvision: Any, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    torch = importlib.import_module("torch")
    x = np.random.default_rng(1).random(shape).astype(np.float32)
    mine = x if alpha.get_image_layout() == "NCHW" or x.ndim == 2 else np.moveaxis(x, -3, -1)
    expected = torchvision.utils.make_grid(torch.from_numpy(x.copy()), **options)
    np.testing.assert_allclose(values(make_grid(alpha.tensor(mine), **options)), values(expected), rtol=0, atol=2e-7)
    if x.ndim == 4:
        made = make_grid([alpha.tensor(image) for image in mine], **options)
        np.testing.assert_allclose(values(made), values(expected), rtol=0, atol=2e-7)


def test_saved_images(torchvision: Any) -> None:
    torch = importlib.import_module("torch")
    x = np.random.default_rng(2).uniform(-0.1, 1.1, (5, 3, 4, 4)).astype(np.float32)
    mine, theirs = io.BytesIO(), io.BytesIO()
    images = alpha.tensor(x if alpha.get_image_layout() == "NCHW" else np.moveaxis(x, 1, 3))
    save_image(images, mine, format="png", nrow=3)
    torchvision.utils.save_image(torch.from_numpy(x), theirs, format="png", nrow=3)
    np.testing.assert_array_equal(values(Image.open(mine)), values(Image.open(theirs)))
