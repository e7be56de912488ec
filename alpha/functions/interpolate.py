"""Resizing images (N, H, W, C): to the nearest pixel, or bilinearly; PyTorch's names and coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.arguments import Shape, flag, number
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.conv import MAX_STEP
from alpha.functions.images import of_images
from alpha.functions.operands import call, check_float, check_room
from alpha.functions.resampling import Axes, Axis, Resample
from alpha.tensor import Tensor

__all__ = ["interpolate"]

Size = int | Sequence[int]
Scale = float | Sequence[float]


@of_images("x", guesses=True)
def interpolate(
    x: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """Images of another height and width, (N, H, W, C) to (N, OH, OW, C).

    Args:
        x: (N, H, W, C).
        size: OH and OW, one int or (rows, columns).
        scale_factor: instead of a size: OH = floor(H * factor), OW alike; one number or (rows, columns).
        mode: ``"nearest"``: output row i is input row floor(i / factor). ``"bilinear"``: it lies at
            (i + 0.5) / factor - 0.5 between two input rows.
        align_corners: of ``"bilinear"``: whether corner pixels' centres coincide: row i lies at
            i * (H - 1) / (OH - 1).

    The factor is OH / H where a size is given.
    """
    check_float("interpolate", x)
    if x.ndim != 4 or min(x.shape[1:3]) < 1:
        raise ShapeError(f"[interpolate] expected images (N, H, W, C), got {x.shape}: add the missing axes")
    if not isinstance(mode, str) or mode not in ("nearest", "bilinear"):
        raise ArgumentError(f'[interpolate] expected mode "nearest" or "bilinear", got {described(mode)}')
    if mode == "nearest" and align_corners is not None:
        raise ArgumentError(
            f'[interpolate] expected align_corners with mode="bilinear" alone, got {described(align_corners)} with '
            '"nearest": leave it out'
        )
    align_corners = None if align_corners is None else flag("interpolate", "align_corners", align_corners)
    plain = (size is None or type(size) is int) and (scale_factor is None or type(scale_factor) in (int, float))
    rows, columns = axes = (_known_axes if plain else _axes)(x.shape[1:3], size, scale_factor)
    check_room(x.engine, (x.shape[0], rows.output, columns.output, x.shape[3]), x.dtype)
    if rows.output == rows.input and columns.output == columns.input:
        return x.clone()
    return call(Resample, x, axes, "nearest" if mode == "nearest" else "corners" if align_corners else "bilinear")


def _axes(inputs: Shape, size: Size | None, scale_factor: Scale | None) -> Axes:
    if (size is None) == (scale_factor is None):
        got = "neither" if size is None else "both"
        raise ArgumentError(f"[interpolate] expected either a size or a scale_factor, got {got}")
    if size is not None:
        outputs: tuple[int, ...] = _two("size", size, int)
        ratios = [n / m if m <= MAX_STEP else 0.0 for n, m in zip(inputs, outputs, strict=True)]
    else:
        factors = [number("interpolate", "scale_factor", f) for f in _two("scale_factor", scale_factor, (int, float))]
        outputs = tuple([math.floor(min(n * factor, MAX_STEP + 1)) for n, factor in zip(inputs, factors, strict=True)])
        ratios = [1 / factor for factor in factors]
    if min(outputs) < 1:
        raise ArgumentError(
            f"[interpolate] expected a result of at least one pixel, got {outputs[0]} x {outputs[1]}: use a larger "
            "scale_factor"
        )
    if max(outputs) > MAX_STEP:
        raise ArgumentError(
            f"[interpolate] expected a result of at most {MAX_STEP} rows and columns, got size {described(size)} and "
            f"scale_factor {described(scale_factor)} for images of {inputs[0]} x {inputs[1]}"
        )
    rows, columns = zip(inputs, outputs, ratios, strict=True)
    return Axis(*rows), Axis(*columns)


_known_axes = lru_cache(maxsize=1024, typed=True)(_axes)
"""For a plain int or float: of others, equal values may be of types that are none."""


def _two(name: str, value: Any, kind: Any) -> tuple[Any, Any]:
    """(rows, columns) of a positive number or a pair of them."""
    both = tuple(value) if isinstance(value, list | tuple) else (value, value)
    kinds = (*(kind if isinstance(kind, tuple) else (kind,)), np.integer, *((np.floating,) if kind is not int else ()))
    if len(both) != 2 or any(isinstance(n, bool) or not isinstance(n, kinds) or not 0 < n < math.inf for n in both):
        raise ArgumentError(
            f"[interpolate] expected {name} as a positive number or (rows, columns), got {described(value)}"
        )
    return both if kind is not int else (int(both[0]), int(both[1]))
