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
}

ROUNDED = {
    "resize",
    "resize the shorter side",
    "resize by bicubic",
    "resized_crop",
    "rotate by bilinear",
    "hue",
    "blur",
}
"""Whose uint8 results may differ by one level: torchvision has fixed-point code for some."""


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
    if dtype == "float32" and name in ("posterize", "solarize"):
        pytest.skip("of uint8 alone, or of another threshold")
    x = picture()
    theirs = torchvision.transforms.v2.functional.pil_to_tensor(x)
    mine = ours.pil_to_tensor(x)
    if dtype == "float32":
        theirs, mine = theirs / 255, ours.to_dtype(mine, "float32", scale=True)
    np.testing.assert_array_equal(values(mine), values(theirs))
    made, expected = PIL_CASES[name](ours)(mine), PIL_CASES[name](of_theirs(torchvision))(theirs)
    assert str(made.dtype) == dtype and values(made).shape == values(expected).shape
    difference = np.abs(values(made).astype(np.float64) - values(expected))
    limit = 2e-6 if dtype == "float32" else 1 if name in ROUNDED else 0
    assert (difference > limit).mean() <= (0.01 if name.startswith("rotate") else 0)  # ties of nearest pixels


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
