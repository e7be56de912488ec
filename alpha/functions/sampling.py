"""Images and volumes sampled at places of a grid, and grids of affine maps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from alpha.arguments import flag
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_widest
from alpha.functions.elementwise import abs, floor, logical_and, where
from alpha.functions.images import of_images
from alpha.functions.joining import stack
from alpha.functions.linalg import matmul
from alpha.functions.lookups import index_select
from alpha.functions.nothing import nothing
from alpha.functions.operands import check_float, numbers
from alpha.functions.reduction import sum
from alpha.functions.shape import reshape, transpose
from alpha.layout import is_channels_first
from alpha.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")

Tap = tuple[Tensor, Tensor | float, Tensor | None]
"""Positions along an axis, the weight of what is there, and which of them are inside; None: all."""


# -- coordinates -------------------------------------------------------------------------------------------------


@pointwise
def _from_corners(place, size):  # type: ignore[no-untyped-def]
    """-1 is the first element's centre, 1 the last one's."""
    return (place + 1) * (0.5 * (size - 1))


@pointwise
def _from_edges(place, size):  # type: ignore[no-untyped-def]
    """-1 is the first element's outer edge, 1 the last one's."""
    return (place + 1) * (0.5 * size) - 0.5


@pointwise
def _at_border(place, last):  # type: ignore[no-untyped-def]
    """The nearest place inside; no gradient beyond."""
    return where(place > 0, where(place < last, place, last), 0.0)


@pointwise
def _mirrored(place, low, span):  # type: ignore[no-untyped-def]
    """The place reflected at low and low + span until it lies between them."""
    distance = abs(place - low)
    turns = floor(distance / span)
    rest = distance - turns * span
    return low + where(turns - 2 * floor(0.5 * turns) == 0, rest, span - rest)


@pointwise
def _index(place, last):  # type: ignore[no-untyped-def]
    """A place that is safe to follow; 0 for one outside."""
    return where(place >= 0, where(place <= last, place, 0.0), 0.0)


@pointwise
def _is_inside(place, last):  # type: ignore[no-untyped-def]
    return where(place >= 0, place <= last, False)


@pointwise
def _share(value, weight, inside):  # type: ignore[no-untyped-def]
    """Not a product with the mask: what stands for a place outside may be infinite."""
    return where(inside, value * weight, 0.0)


@_share.gradient
def _(grad, value, weight, inside):  # type: ignore[no-untyped-def]
    return where(inside, grad * weight, 0.0), where(inside, grad * value, 0.0), None


@pointwise
def _rounded(place):  # type: ignore[no-untyped-def]
    """The nearest whole number, of two the even one."""
    whole = floor(place + 0.5)
    odd = whole - 2 * floor(0.5 * whole) != 0
    return where(place + 0.5 == whole, where(odd, whole - 1, whole), whole)


@pointwise
def _cubic(distance):  # type: ignore[no-untyped-def]
    """Keys' kernel with the slope -0.75 at 1, of a distance up to 2."""
    near = (1.25 * distance - 2.25) * distance * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    return where(distance <= 1, near, far)


# -- sampling ----------------------------------------------------------------------------------------------------


@in_widest
@of_images("input")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """Images sampled at places: (N, H, W, C) and a grid (N, OH, OW, 2) to (N, OH, OW, C); volumes alike, with 3.

    Args:
        grid: the places' (column, row), or (column, row, depth), from -1 to 1 across the image.
        mode: ``"bilinear"``: between 4 pixels (8 of volumes); ``"nearest"``; ``"bicubic"``: between 16, of images.
        padding_mode: what lies outside: ``"zeros"``; ``"border"``: the nearest pixel; ``"reflection"``: the image
            mirrored.
        align_corners: whether -1 and 1 are the corner pixels' centres, or their outer edges.
    """
    name = "grid_sample"
    check_float(name, input, grid)
    input.engine.check_owner(name, grid)
    if input.dtype != grid.dtype:
        raise DtypeError(f"[{name}] expected input and grid of one dtype, got {input.dtype} and {grid.dtype}: cast one")
    axes = input.ndim - 2
    if axes not in (2, 3) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0] or grid.shape[-1] != axes:
        raise ShapeError(
            f"[{name}] expected images (N, H, W, C) and a grid (N, OH, OW, 2), or volumes and a grid of 3, got "
            f"{input.shape} and {grid.shape}"
        )
    if not isinstance(mode, str) or mode not in _MODES or (mode == "bicubic" and axes == 3):
        raise ArgumentError(f"[{name}] expected mode as one of {_MODES}, the last of images, got {described(mode)}")
    if not isinstance(padding_mode, str) or padding_mode not in _PADDINGS:
        raise ArgumentError(f"[{name}] expected padding_mode as one of {_PADDINGS}, got {described(padding_mode)}")
    corners = align_corners is not None and flag(name, "align_corners", align_corners)
    sizes, n, c = input.shape[1:-1], input.shape[0], input.shape[-1]
    if 0 in sizes:
        raise ShapeError(f"[{name}] expected images with pixels, got {input.shape}")
    if not grid.numel() or not c:
        return nothing((*grid.shape[:-1], c), input, grid)
    places = [grid[..., axes - 1 - axis] for axis in range(axes)]
    taps = [_taps(p, size, mode, padding_mode, corners) for p, size in zip(places, sizes, strict=True)]
    sample = reshape(numbers(input.engine, n), (n, *(1,) * axes))
    indices, weights, masks = [], [], []
    for choice in itertools.product(*taps):
        index = sample
        for (position, _, _), size in zip(choice, sizes, strict=True):
            index = index * size + position
        indices.append(index)
        weights.append(math.prod([share for _, share, _ in choice]))
        masks.append([inside for _, _, inside in choice if inside is not None])
    insides = [reduce(logical_and, mask) for mask in masks if mask]
    return _weighted(reshape(input, (-1, c)), indices, weights, insides, grid)


def _weighted(rows: Tensor, indices: list[Tensor], weights: list[Any], insides: list[Tensor], grid: Tensor) -> Tensor:
    """The weighted sum of the rows that several indices name, of those inside alone."""
    count, places = len(indices), grid.shape[:-1]
    values = index_select(rows, 0, reshape(stack(indices), (-1,)))
    values = reshape(values, (count, *places, rows.shape[1]))
    mask = reshape(stack(insides), (count, *places, 1)) if insides else None
    if not isinstance(weights[0], Tensor):
        found = values[0] if mask is None else where(mask[0], values[0], 0.0)
        return found + nothing((1,), grid) if grid.requires_grad else found  # whose gradient is 0
    weight = reshape(stack(weights), (count, *places, 1))
    return sum(values * weight if mask is None else _share(values, weight, mask), 0)


def _taps(place: Tensor, size: int, mode: str, padding: str, corners: bool) -> list[Tap]:
    """The positions along an axis that a place is made of, each with its weight."""
    place = (_from_corners if corners else _from_edges)(place, float(size))
    if mode == "bicubic":
        base = floor(place.detach())
        return [_tap(base + k, _cubic(abs(place - (base + k))), size, padding, corners) for k in range(-1, 3)]
    place = _padded(place, size, padding, corners)
    if mode == "nearest":
        return [_tap(_rounded(place.detach()), 1.0, size, "zeros", corners)]
    base = floor(place.detach())
    share = place - base
    return [_tap(base, 1 - share, size, "zeros", corners), _tap(base + 1, share, size, "zeros", corners)]


def _tap(position: Tensor, weight: Tensor | float, size: int, padding: str, corners: bool) -> Tap:
    """A position, which may lie outside, as a tap."""
    position, last = _padded(position, size, padding, corners), float(size - 1)
    return _index(position, last).long(), weight, _is_inside(position, last)


def _padded(place: Tensor, size: int, padding: str, corners: bool) -> Tensor:
    """The place inside the image for one outside it."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        place = _mirrored(place, low, span) if span else place * 0.0
    return _at_border(place, float(size - 1))


def affine_grid(
    theta: Tensor, size: Sequence[int], align_corners: bool | None = None, *, layout: str | None = None
) -> Tensor:
    """The grid (N, H, W, 2), for ``grid_sample``, that affine maps (N, 2, 3) make of an image's places; 3 of volumes.

    ``size``: the shape of the images (N, H, W, C), or (N, C, H, W) with the layout "NCHW"; volumes alike with maps
    (N, 3, 4). ``align_corners``: as for ``grid_sample``.
    """
    name = "affine_grid"
    check_float(name, theta)
    shape = tuple(size) if isinstance(size, Sequence) else ()
    axes = len(shape) - 2
    if (
        axes not in (2, 3)
        or any(not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1 for n in shape)
        or theta.shape != (shape[0], axes, axes + 1)
    ):
        raise ShapeError(
            f"[{name}] expected maps (N, 2, 3) and the size of N images, or (N, 3, 4) and that of volumes, got "
            f"{theta.shape} and {described(size)}"
        )
    lengths = shape[2:] if is_channels_first(name, layout) else shape[1:-1]
    corners = align_corners is not None and flag(name, "align_corners", align_corners)

    def places() -> np.ndarray[Any, Any]:
        sides = [np.linspace(-1, 1, n) if corners and n > 1 else np.zeros(n) for n in lengths]
        if not corners:
            sides = [(2 * np.arange(n) + 1) / n - 1 for n in lengths]
        grids = np.meshgrid(*sides, indexing="ij")
        found: np.ndarray[Any, Any] = np.stack([*grids[::-1], np.ones(lengths)], -1).reshape(-1, axes + 1)
        return found.astype(theta.dtype)

    base = theta.engine.constant((name, tuple(lengths), corners, theta.dtype), places)
    return reshape(matmul(base, transpose(theta, 1, 2)), (shape[0], *lengths, axes))
