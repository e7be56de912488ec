"""Functions of one image that warp it: affine maps, perspective, elastic displacement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.arguments import number
from alpha.datasets.transforms import kernels
from alpha.datasets.transforms.arguments import InterpolationMode, interpolation_name
from alpha.datasets.transforms.base import Array, by_kind, is_pil, pillow
from alpha.datasets.transforms.functional_conversion import pil_pixels
from alpha.datasets.transforms.functional_geometry import pil_fill, resample
from alpha.tensor import Tensor


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Any:
    """The image turned, moved, enlarged and sheared, about its middle or ``center`` (x, y).

    Args:
        angle: clockwise, in degrees.
        translate: pixels to the right and down, after all else.
        scale: the factor of both sides, above 0.
        shear: degrees by which columns and rows lean; one number is for columns alone, a list of one for both.
        fill: what comes from outside, by default black.
    """
    allowed = ("nearest", "bilinear", "bicubic") if is_pil(img) else ("nearest", "bilinear")
    name = interpolation_name("affine", interpolation, allowed)
    moved, size = _pair("translate", translate), number("affine", "scale", scale)
    if not 0 < size < math.inf:
        raise errors.ArgumentError(f"[affine] expected scale > 0, got {scale}")
    lean = tuple(shear) if isinstance(shear, Sequence) and not isinstance(shear, str) else (shear, 0.0)
    leaning = _pair("shear", lean * 2 if len(lean) == 1 else lean)
    turned = number("affine", "angle", angle)

    def on_pil(pic: Any) -> Any:
        middle = (pic.width * 0.5, pic.height * 0.5) if center is None else _pair("center", center)
        matrix = inverse_affine(middle, turned, moved, size, leaning)
        where, how = pillow("affine").Transform.AFFINE, resample(name)
        return pic.transform(pic.size, where, matrix, how, fillcolor=pil_fill("affine", pic, fill))

    def on_pixels(array: Array) -> Array:
        height, width = array.shape[-3:-1]
        x, y = (0.0, 0.0) if center is None else _pair("center", center)
        middle = (0.0, 0.0) if center is None else (x - width * 0.5, y - height * 0.5)
        matrix = inverse_affine(middle, turned, moved, size, leaning)
        return kernels.sampled(array, matrix, (height, width), name, fill)

    return by_kind("affine", img, on_pil, on_pixels)


def _pair(name: str, value: Any) -> tuple[float, float]:
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    if len(given) != 2:
        raise errors.ArgumentError(f"[affine] expected {name} as two numbers, got {errors.described(value)}")
    return number("affine", name, given[0]), number("affine", name, given[1])


def inverse_affine(
    center: tuple[float, float],
    angle: float,
    translate: tuple[float, float],
    scale: float,
    shear: tuple[float, float],
) -> tuple[float, float, float, float, float, float]:
    """The matrix (a, b, c; d, e, f) that takes places of the result to places of the image.

    Forward it is T R Y X S about the center: S scales, X shears x by -tan(shear x) y, Y shears y by -tan(shear y) x,
    R turns, T moves. R Y X has determinant 1, so that its inverse is its adjugate.
    """
    turn, across, down = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a, c = math.cos(turn - down) / math.cos(down), math.sin(turn - down) / math.cos(down)
    b, d = -a * math.tan(across) - math.sin(turn), -c * math.tan(across) + math.cos(turn)
    matrix = (d / scale, -b / scale, -c / scale, a / scale)
    x, y = -center[0] - translate[0], -center[1] - translate[1]
    first = matrix[0] * x + matrix[1] * y + center[0]
    second = matrix[2] * x + matrix[3] * y + center[1]
    return matrix[0], matrix[1], first, matrix[2], matrix[3], second


def perspective(
    img: Any,
    startpoints: Sequence[Sequence[float]] | None,
    endpoints: Sequence[Sequence[float]] | None,
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
    coefficients: Sequence[float] | None = None,
) -> Any:
    """The image seen from elsewhere.

    Args:
        startpoints: the corners (x, y) of a quadrangle in the image.
        endpoints: where they come to lie.
        fill: what comes from outside, by default black.
        coefficients: in place of the points, (a, ..., h): a place (x, y) of the result shows the image's
            ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)).
    """
    allowed = ("nearest", "bilinear", "bicubic") if is_pil(img) else ("nearest", "bilinear")
    name = interpolation_name("perspective", interpolation, allowed)
    numbers = _perspective_numbers(startpoints, endpoints, coefficients)

    def on_pil(pic: Any) -> Any:
        where, how = pillow("perspective").Transform.PERSPECTIVE, resample(name)
        return pic.transform(pic.size, where, numbers, how, fillcolor=pil_fill("perspective", pic, fill))

    def on_pixels(array: Array) -> Array:
        height, width = array.shape[-3:-1]
        x, y = np.arange(width) + 0.5, (np.arange(height) + 0.5)[:, None]
        a, b, c, d, e, f, g, h = numbers
        depth = g * x + h * y + 1
        return kernels.sampled_at(
            array, (a * x + b * y + c) / depth - 0.5, (d * x + e * y + f) / depth - 0.5, name, fill
        )

    return by_kind("perspective", img, on_pil, on_pixels)


def _perspective_numbers(startpoints: Any, endpoints: Any, coefficients: Any) -> tuple[float, ...]:
    """The eight numbers of a perspective, given or such that the end points show the start points."""
    if coefficients is not None:
        if startpoints is not None or endpoints is not None:
            raise errors.ArgumentError("[perspective] expected points or coefficients, got both: leave one out")
        given = np.asarray(coefficients, np.float64)
        if given.shape != (8,):
            raise errors.ArgumentError(f"[perspective] expected 8 coefficients, got {errors.described(coefficients)}")
        return tuple(given.tolist())
    start, end = (np.asarray(points if points is not None else (), np.float64) for points in (startpoints, endpoints))
    if start.shape != (4, 2) or end.shape != (4, 2):
        raise errors.ArgumentError(
            "[perspective] expected startpoints and endpoints as four pairs (x, y) each, got "
            f"{errors.described(startpoints)} and {errors.described(endpoints)}"
        )
    # u (g x + h y + 1) = a x + b y + c for each point (x, y) that shows u, and likewise for v, is linear in a, ..., h.
    equations = np.zeros((8, 8))
    equations[0::2, 0:2], equations[0::2, 2], equations[0::2, 6:] = end, 1, -start[:, :1] * end
    equations[1::2, 3:5], equations[1::2, 5], equations[1::2, 6:] = end, 1, -start[:, 1:] * end
    found = np.linalg.lstsq(equations, start.ravel(), rcond=None)[0]
    return tuple(found.astype(np.float32).tolist())  # torchvision's digits, so that ties of pixels fall as there


def elastic(
    inpt: Any,
    displacement: Tensor,
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
) -> Any:
    """The image with each pixel taken from a place nearby.

    Args:
        displacement: (1, H, W, 2) floats: how far to the right and down, in halves of the image's width and height.
        fill: what comes from outside, by default black.
    """
    name = interpolation_name("elastic", interpolation, ("nearest", "bilinear"))
    if not isinstance(displacement, Tensor):
        raise errors.ArgumentError(f"[elastic] expected displacement as a tensor, got {errors.described(displacement)}")
    offsets = np.asarray(displacement)

    def on_pixels(array: Array) -> Array:
        height, width = array.shape[-3:-1]
        if offsets.shape != (1, height, width, 2):
            raise errors.ShapeError(f"[elastic] expected a displacement (1, {height}, {width}, 2), got {offsets.shape}")
        across = np.arange(width) + offsets[0, ..., 0] * (width * 0.5)
        down = np.arange(height)[:, None] + offsets[0, ..., 1] * (height * 0.5)
        return kernels.sampled_at(array, across, down, name, fill)

    return by_kind("elastic", inpt, through_pixels("elastic", on_pixels), on_pixels)


elastic_transform = elastic


def through_pixels(function: str, on_pixels: Callable[[Array], Array]) -> Callable[[Any], Any]:
    """A function of pixels as one of a PIL image, whose mode the result has."""

    def on_pil(pic: Any) -> Any:
        array = on_pixels(pil_pixels(pic))
        return pillow(function).fromarray(array[..., 0] if array.shape[-1] == 1 else array)

    return on_pil
