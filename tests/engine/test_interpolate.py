"""Resizing images against float64 NumPy and PyTorch: coordinates, values, gradients, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha import nn
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.resampling import Axis, pairs, sources
from tests.engine.checks import gradcheck_on
from tests.engine.test_nn_layers import compare
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]
FACTORS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.0001, 1.1, 1.3, 1.7, 2.0, 2.3, 3.0, 3.3, 7.7, 1 / 3, 2 / 3)
MODES: list[dict[str, Any]] = [
    {"mode": "nearest"},
    {"mode": "bilinear"},
    {"mode": "bilinear", "align_corners": False},
    {"mode": "bilinear", "align_corners": True},
]
SIZES: list[tuple[tuple[int, int, int, int], dict[str, Any]]] = [
    ((2, 3, 5, 3), {"scale_factor": 2}),
    ((2, 3, 5, 3), {"scale_factor": (3.0, 1.0)}),
    ((1, 4, 5, 2), {"scale_factor": (1.7, 0.6)}),
    ((3, 5, 4, 1), {"size": (7, 9)}),
    ((2, 6, 7, 3), {"size": (3, 2)}),
    ((2, 1, 1, 5), {"size": (4, 3)}),
    ((2, 5, 3, 2), {"size": 1}),
    ((1, 4, 3, 2), {"size": (4, 3)}),
    ((1, 5, 4, 2), {"scale_factor": 1.1}),
]


def bilinear(x: Array, size: tuple[int, int], factors: tuple[float, float], corners: bool) -> Array:
    """Each output pixel from its four neighbours, one by one."""
    n, h, w, c = x.shape
    y = np.zeros((n, *size, c))
    for i in range(size[0]):
        for j in range(size[1]):
            (a, b, t), (d, e, s) = (
                place(k, length, wanted, factor, corners)
                for k, length, wanted, factor in zip((i, j), (h, w), size, factors, strict=True)
            )
            top = (1 - s) * x[:, a, d] + s * x[:, a, e]
            y[:, i, j] = (1 - t) * top + t * ((1 - s) * x[:, b, d] + s * x[:, b, e])
    return y


def place(i: int, length: int, wanted: int, factor: float, corners: bool) -> tuple[int, int, float]:
    """Two neighbours and the share of the second."""
    if corners:
        s = i * (length - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        s = max(0.0, (i + 0.5) / factor - 0.5)
    low = min(math.floor(s), length - 1)
    return low, min(low + 1, length - 1), min(s - low, 1.0)


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(5, 7), (2, 3), (1, 1), (9, 4)], ids=str)
def test_bilinear(engine: Engine, rng: np.random.Generator, size: Any, dtype: Any, corners: bool) -> None:
    x = rng.normal(size=(2, 3, 4, 3)).astype(dtype)
    y = F.interpolate(alpha.tensor(x, engine=engine), size, mode="bilinear", align_corners=corners)
    expected = bilinear(x.astype(np.float64), size, (size[0] / 3, size[1] / 4), corners)
    # Two products of sums of two terms, with weights rounded once: a few units in the last place.
    limits = {"rtol": 1e-14, "atol": 1e-14} if dtype == np.float64 else {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(np.asarray(y), expected, **limits)


@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize(("shape", "size"), SIZES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_nearest_takes_whole_pixels(
    engine: Engine, rng: np.random.Generator, shape: Any, size: Any, dtype: Any, image_order: bool
) -> None:
    x = rng.normal(size=shape).astype(dtype)
    x[0, 0, 0, 0] = np.inf  # goes where it belongs, and nowhere else
    y = F.interpolate(alpha.tensor(x, engine=engine).contiguous(IMAGE_ORDER if image_order else None), **size)
    factors = np.broadcast_to(size.get("scale_factor", 1.0), 2)
    height, width = size.get("size", [math.floor(n * f) for n, f in zip(shape[1:3], factors, strict=True)]) if not (
        isinstance(size.get("size"), int)
    ) else (size["size"],) * 2  # fmt: skip
    ratios = [n / m for n, m in zip(shape[1:3], (height, width), strict=True)] if "size" in size else 1 / factors
    rows, columns = (
        [i if m == n else min(math.floor(i * r), n - 1) for i in range(m)]
        for n, m, r in zip(shape[1:3], (height, width), ratios, strict=True)
    )
    np.testing.assert_array_equal(np.asarray(y), x[:, rows][:, :, columns])


def test_a_result_has_memory_of_its_own(engine: Engine) -> None:
    x = alpha.ones((1, 2, 3, 1), engine=engine)
    for mode in MODES:
        y = F.interpolate(x, (2, 3), **mode)
        y.fill_(5)
        assert np.asarray(x).max() == 1


# -- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("shape", "size"), SIZES, ids=str)
def test_gradients(engine: Engine, rng: np.random.Generator, shape: Any, size: Any, mode: Any) -> None:
    assert gradcheck_on(engine, lambda x: F.interpolate(x, **size, **mode), rng.normal(size=shape))


# -- against PyTorch ---------------------------------------------------------------------------------------------


LARGE: list[tuple[tuple[int, int, int, int], dict[str, Any]]] = [  # longer axes
    ((1, 40, 2, 3), {"size": (75, 35)}),
    ((1, 3, 70, 1), {"scale_factor": (12.0, 0.6)}),
    ((1, 70, 2, 1), {"size": (2, 1)}),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("shape", "size"), SIZES + LARGE, ids=str)
def test_layer_matches_pytorch(engine: Engine, rng: np.random.Generator, shape: Any, size: Any, mode: Any) -> None:
    import torch

    ours, theirs = nn.Upsample(**size, **mode), torch.nn.Upsample(**size, **mode)
    compare(engine, torch, rng, ours, theirs, rng.normal(size=shape))


def cases(length: int) -> list[tuple[Axis, dict[str, Any]]]:
    """Results of one axis by size and by factor, with PyTorch's arguments for a second axis that stays."""
    found = [(Axis(length, n, length / n), {"size": (n, 1)}) for n in range(1, 70)]
    for factor in FACTORS:
        if math.floor(length * factor):
            axis = Axis(length, math.floor(length * factor), 1 / factor)
            found.append((axis, {"scale_factor": (factor, 1.0)}))
    return found


def weights(axis: Axis, corners: bool) -> Array:
    """(output, input): what each output position takes of each input position."""
    made = pairs(axis, "linear, corners" if corners else "linear", False)
    matrix = np.zeros((axis.output, axis.input))
    np.add.at(matrix, (np.repeat(np.arange(axis.output), np.diff(made.starts)), made.sources), made.weights)
    return matrix


@pytest.mark.needs("torch")
@pytest.mark.parametrize("lengths", [range(1, 12), range(12, 24), (31, 32, 33, 47, 64)], ids=str)
def test_coordinates_are_pytorchs(lengths: Any) -> None:
    import torch

    for length in lengths:
        # float32: in float64 PyTorch's own layouts, and its value and gradient, disagree where i * ratio is near whole.
        pixels = torch.arange(length, dtype=torch.float32).reshape(1, 1, length, 1)
        unit = torch.eye(length, dtype=torch.float64).reshape(length, 1, length, 1)
        for axis, options in cases(length):
            theirs = torch.nn.functional.interpolate(pixels, mode="nearest", **options)
            np.testing.assert_array_equal(sources(axis), theirs.numpy().ravel(), err_msg=str(axis))
            for corners in (False, True):
                theirs = torch.nn.functional.interpolate(unit, mode="bilinear", align_corners=corners, **options)
                expected = theirs.numpy()[:, 0, :, 0].T
                # Positions up to 70 rounded a few times to 53 bits.
                np.testing.assert_allclose(weights(axis, corners), expected, atol=1e-13, err_msg=str(axis))


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "[interpolate] expected either a size or a scale_factor, got neither"),
        ({"size": 2, "scale_factor": 2}, "[interpolate] expected either a size or a scale_factor, got both"),
        ({"size": 0}, "[interpolate] expected size as a positive number or one for each of 2 axes, got 0"),
        ({"size": 2.5}, "[interpolate] expected size as a positive number or one for each of 2 axes, got 2.5"),
        (
            {"size": (2, 2, 2)},
            "[interpolate] expected size as a positive number or one for each of 2 axes, got (2, 2, 2)",
        ),
        (
            {"scale_factor": -1},
            "[interpolate] expected scale_factor as a positive number or one for each of 2 axes, got -1",
        ),
        (
            {"scale_factor": math.inf},
            "[interpolate] expected scale_factor as a positive number or one for each of 2 axes",
        ),
        ({"scale_factor": 0.2}, "[interpolate] expected a result of at least one pixel, got 0 x 0: "),
        (
            {"size": 2, "mode": "linear"},
            '[interpolate] expected a mode of images (N, H, W, C), got "linear": use one of',
        ),
        (
            {"size": 2, "align_corners": True},
            '[interpolate] expected align_corners with mode="bilinear" and its like alone, got',
        ),
    ],
)
def test_bad_options(engine: Engine, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        F.interpolate(alpha.ones((1, 4, 4, 1), engine=engine), **options)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_bad_images_and_layers(engine: Engine) -> None:
    with pytest.raises(
        ShapeError, match=r"\[interpolate\] expected images \(N, H, W, C\), sequences or volumes, got \(4, 4\)"
    ):
        F.interpolate(alpha.ones((4, 4), engine=engine), 2)
    with pytest.raises(DtypeError, match=r"\[interpolate\] expected float32 or float64, got int64: cast it"):
        F.interpolate(alpha.ones((1, 4, 4, 1), engine=engine).long(), 2)
    with pytest.raises(ArgumentError, match=r"\[Upsample\] expected either a size or a scale_factor, got neither"):
        nn.Upsample()
    with pytest.raises(ArgumentError, match=r'\[Upsample\] expected mode as one of "nearest", "linear", '):
        nn.Upsample(2, mode="lanczos")
    assert repr(nn.Upsample(scale_factor=2)) == "Upsample(scale_factor=2, mode='nearest')"
