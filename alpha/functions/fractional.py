"""Fractional maximum pooling: over windows that begin at random places, for sizes that do not divide each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.arguments import flag
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.drawing import rand
from alpha.functions.elementwise import floor, where
from alpha.functions.extremes import max
from alpha.functions.images import of_images
from alpha.functions.lookups import gather, take_along_dim
from alpha.functions.operands import check_tensor, numbers
from alpha.functions.pool_windows import Size, check_images, per_axis
from alpha.functions.shape import reshape, squeeze, unsqueeze
from alpha.tensor import Tensor

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]


@of_images("input", guesses=True, axes=2)
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
    *,
    layout: str | None = None,
) -> Any:
    """Maxima over windows that begin at random places, increasing over the image. Graham, arXiv 1412.6071.

    Args:
        input: (N, H, W, C), or one image (H, W, C).
        kernel_size: the windows' size.
        output_size: rows and columns of the result.
        output_ratio: instead: their share of the image's, between 0 and 1.
        return_indices: whether the pair of the maxima and their places, row * W + column, is returned.
        _random_samples: (N, C, 2) from 0 to 1: where the windows' steps begin, columns first; drawn unless given.
    """
    window = (kernel_size, output_size, output_ratio, return_indices, _random_samples)
    return _pooled("fractional_max_pool2d", 2, input, *window)


@of_images("input", axes=3)
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
    *,
    layout: str | None = None,
) -> Any:
    """``fractional_max_pool2d`` of volumes (N, D, H, W, C), or one; ``_random_samples`` (N, C, 3), depths first."""
    window = (kernel_size, output_size, output_ratio, return_indices, _random_samples)
    return _pooled("fractional_max_pool3d", 3, input, *window)


def _pooled(
    function: str,
    axes: int,
    x: Tensor,
    kernel_size: Size,
    output_size: Size | None,
    output_ratio: Any,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    check_images(function, x, axes)
    n, *sizes, c = x.shape
    kernel = per_axis(function, "kernel_size", kernel_size, axes, 1)
    outputs = _outputs(function, sizes, output_size, output_ratio)
    if any(out + k - 1 > size for out, k, size in zip(outputs, kernel, sizes, strict=True)):
        raise ShapeError(f"[{function}] expected {outputs} windows of {kernel} within x: {x.shape}: use fewer")
    if samples is None:
        samples = rand((n, c, axes), dtype=x.dtype, engine=x.engine)
    check_tensor(function, samples)
    x.engine.check_owner(function, samples)
    if samples.shape != (n, c, axes) or samples.dtype != x.dtype:
        raise ShapeError(f"[{function}] expected samples {(n, c, axes)} of {x.dtype}, got {samples.shape}")
    index: Any = 0
    for axis in range(axes):
        # (N, outputs, kernel, C), whose two middle axes lie at this axis' places among (N, *outputs, *kernel, C)
        sample = samples.detach()[:, :, axes - 1 - axis if axes == 2 else axis]
        starts = _starts(sample, sizes[axis], outputs[axis], kernel[axis])
        here = unsqueeze(starts, 2) + reshape(numbers(x.engine, kernel[axis]), (1, 1, -1, 1))
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = outputs[axis], kernel[axis]
        index = index * sizes[axis] + reshape(here, (n, *shape, c))
    index = reshape(index, (n, math.prod(outputs), math.prod(kernel), c))
    flat = gather(reshape(x, (n, math.prod(sizes), c)), 1, reshape(index, (n, index.shape[1] * index.shape[2], c)))
    values, chosen = max(reshape(flat, index.shape), 2)
    values = reshape(values, (n, *outputs, c))
    if not flag(function, "return_indices", return_indices):
        return values
    return values, reshape(squeeze(take_along_dim(index, unsqueeze(chosen, 2), 2), 2), values.shape)


def _starts(sample: Tensor, size: int, output: int, kernel: int) -> Tensor:
    """Where windows begin, (N, outputs, C): steps of a real number, rounded down from a random start on."""
    engine, sample = sample.engine, unsqueeze(sample, 1)
    places = reshape(numbers(engine, output), (1, -1, 1))
    if output == 1:
        return (sample * 0).long() + (size - kernel)
    step = (size - kernel) / (output - 1)
    found = floor((places.astype(sample.dtype) + sample) * step) - floor(sample * step)
    return where(places == output - 1, size - kernel, found.long())


def _outputs(function: str, sizes: list[int], output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    """The sizes of the result."""
    if (output_size is None) == (output_ratio is None):
        got = "neither" if output_size is None else "both"
        raise ArgumentError(f"[{function}] expected either an output_size or an output_ratio, got {got}")
    if output_size is not None:
        return per_axis(function, "output_size", output_size, len(sizes), 1)
    ratios = tuple(output_ratio) if isinstance(output_ratio, list | tuple) else (output_ratio,) * len(sizes)
    fit = [isinstance(r, float | int | np.floating | np.integer) and 0 < r < 1 for r in ratios]
    if len(fit) != len(sizes) or not all(fit):
        raise ArgumentError(
            f"[{function}] expected output_ratio in 0..1, one or {len(sizes)}, got {described(output_ratio)}"
        )
    return per_axis(function, "output_ratio", [int(n * r) for n, r in zip(sizes, ratios, strict=True)], len(sizes), 1)
