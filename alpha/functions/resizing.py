"""Resizing sequences, images and volumes: to the nearest pixel, linearly, cubically, by means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.arguments import Shape, flag, number
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.autocasting import in_float32
from alpha.functions.conv import INPUTS, MAX_STEP
from alpha.functions.images import of_images
from alpha.functions.operands import call, check_float, check_room
from alpha.functions.pool_windows import by_planes
from alpha.functions.resampling import Axis, Resample
from alpha.tensor import Tensor

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

Size = int | Sequence[int]
Scale = float | Sequence[float]

_MODES: dict[str, tuple[str, tuple[int, ...]]] = {
    "nearest": ("nearest", (1, 2, 3)),
    "nearest-exact": ("nearest-exact", (1, 2, 3)),
    "area": ("mean", (1, 2, 3)),
    "linear": ("linear", (1,)),
    "bilinear": ("linear", (2,)),
    "bicubic": ("cubic", (2,)),
    "trilinear": ("linear", (3,)),
}
"""For each mode the kind of resampling, and the numbers of axes that it is for."""

_ALONE = Axis(1, 1, 1.0)
"""The axis of images of one row or column."""


@in_float32
@of_images("input", guesses=True)
def interpolate(
    input: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    *,
    layout: str | None = None,
) -> Tensor:
    """Images of another height and width, (N, H, W, C) to (N, OH, OW, C); sequences and volumes alike.

    Args:
        input: (N, L, C), (N, H, W, C) or (N, D, H, W, C).
        size: OH and OW, one int or one per axis.
        scale_factor: instead of a size: OH = floor(H * factor), OW alike; one number or one per axis.
        mode: ``"nearest"``: output row i is input row floor(i / factor); ``"nearest-exact"``: that in which its centre
            lies. ``"linear"`` (of sequences), ``"bilinear"`` (images), ``"trilinear"`` (volumes): it lies at
            (i + 0.5) / factor - 0.5 between two input rows. ``"bicubic"`` (images): between four. ``"area"``: means of
            ``adaptive_avg_pool2d``'s windows.
        align_corners: of the linear and cubic modes: whether corner pixels' centres coincide: row i lies at
            i * (H - 1) / (OH - 1).
        recompute_scale_factor: whether the factor is OH / H even where a ``scale_factor`` is given.
        antialias: of bilinear and bicubic: whether shrinking takes in all pixels, as Pillow does.

    The factor is OH / H where a size is given.
    """
    check_float("interpolate", input)
    axes = input.ndim - 2
    if axes not in INPUTS or min(input.shape[1:-1]) < 1:
        raise ShapeError(
            f"[interpolate] expected images (N, H, W, C), sequences or volumes, got {input.shape}: add the missing axes"
        )
    kind = _kind(mode, axes, align_corners, antialias)
    recompute = flag("interpolate", "recompute_scale_factor", recompute_scale_factor or False)
    if recompute and size is not None:
        raise ArgumentError("[interpolate] expected recompute_scale_factor with a scale_factor alone, got a size")
    plain = (size is None or type(size) is int) and (scale_factor is None or type(scale_factor) in (int, float))
    found = (_known_axes if plain else _axes)(input.shape[1:-1], size, scale_factor, recompute)
    check_room(input.engine, (input.shape[0], *(axis.output for axis in found), input.shape[-1]), input.dtype)
    if all(axis.output == axis.input for axis in found) and not antialias:
        return input.clone()
    return by_planes(input, found, _ALONE, lambda x, rows, columns: call(Resample, x, (rows, columns), kind))


def _kind(mode: Any, axes: int, align_corners: Any, antialias: Any) -> str:
    """The kind of resampling for a mode and its options."""
    if not isinstance(mode, str) or mode not in _MODES:
        raise ArgumentError(f"[interpolate] expected mode as one of {', '.join(_MODES)}, got {described(mode)}")
    kind, fitting = _MODES[mode]
    if axes not in fitting:
        fits = ", ".join(name for name, (_, counts) in _MODES.items() if axes in counts)
        raise ArgumentError(f'[interpolate] expected a mode of {INPUTS[axes]}, got "{mode}": use one of {fits}')
    if kind not in ("linear", "cubic") and align_corners is not None:
        raise ArgumentError(
            f'[interpolate] expected align_corners with mode="bilinear" and its like alone, got '
            f'{described(align_corners)} with "{mode}": leave it out'
        )
    if flag("interpolate", "antialias", antialias):
        if mode not in ("bilinear", "bicubic"):
            raise ArgumentError(f'[interpolate] expected antialias with "bilinear" or "bicubic" alone, got "{mode}"')
        kind = f"smooth {kind}"
    corners = align_corners is not None and flag("interpolate", "align_corners", align_corners)
    return f"{kind}, corners" if corners else kind


def _axes(inputs: Shape, size: Size | None, scale_factor: Scale | None, recompute: bool) -> tuple[Axis, ...]:
    if (size is None) == (scale_factor is None):
        got = "neither" if size is None else "both"
        raise ArgumentError(f"[interpolate] expected either a size or a scale_factor, got {got}")
    if size is not None:
        outputs: Shape = tuple(int(n) for n in _per_axis("size", size, len(inputs), int))
        ratios = [n / m if m <= MAX_STEP else 0.0 for n, m in zip(inputs, outputs, strict=True)]
    else:
        given = _per_axis("scale_factor", scale_factor, len(inputs), (int, float))
        factors = [number("interpolate", "scale_factor", f) for f in given]
        outputs = tuple([math.floor(min(n * factor, MAX_STEP + 1)) for n, factor in zip(inputs, factors, strict=True)])
        ratios = [1 / factor for factor in factors]
    if min(outputs) < 1:
        raise ArgumentError(
            f"[interpolate] expected a result of at least one pixel, got {' x '.join(map(str, outputs))}: use a larger "
            "scale_factor"
        )
    if max(outputs) > MAX_STEP:
        raise ArgumentError(
            f"[interpolate] expected a result of at most {MAX_STEP} rows and columns, got size {described(size)} and "
            f"scale_factor {described(scale_factor)} for images of {' x '.join(map(str, inputs))}"
        )
    if recompute:
        ratios = [n / m for n, m in zip(inputs, outputs, strict=True)]
    return tuple(Axis(*axis) for axis in zip(inputs, outputs, ratios, strict=True))


_known_axes = lru_cache(maxsize=1024, typed=True)(_axes)
"""For a plain int or float: of others, equal values may be of types that are none."""


def _per_axis(name: str, value: Any, axes: int, kind: Any) -> tuple[Any, ...]:
    """A positive number for each axis, from one or one per axis."""
    found = tuple(value) if isinstance(value, list | tuple) else (value,) * axes
    kinds = (*(kind if isinstance(kind, tuple) else (kind,)), np.integer, *((np.floating,) if kind is not int else ()))
    if len(found) != axes or any(
        isinstance(n, bool) or not isinstance(n, kinds) or not 0 < n < math.inf for n in found
    ):
        raise ArgumentError(
            f"[interpolate] expected {name} as a positive number or one for each of {axes} axes, got {described(value)}"
        )
    return found


def upsample(
    input: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """``interpolate``, by its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners, layout=layout)


def upsample_nearest(
    input: Tensor, size: Size | None = None, scale_factor: Scale | None = None, *, layout: str | None = None
) -> Tensor:
    """``interpolate`` with the mode ``"nearest"``."""
    return interpolate(input, size, scale_factor, layout=layout)


def upsample_bilinear(
    input: Tensor, size: Size | None = None, scale_factor: Scale | None = None, *, layout: str | None = None
) -> Tensor:
    """``interpolate`` with the mode ``"bilinear"`` and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True, layout=layout)
