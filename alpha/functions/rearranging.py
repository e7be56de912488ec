"""Pixels and channels of images rearranged: blocks of pixels as channels and back, groups of channels shuffled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from alpha.arguments import whole
from alpha.errors import ShapeError
from alpha.functions.images import of_images
from alpha.functions.operands import check_tensor
from alpha.functions.shape import permute, reshape
from alpha.tensor import Tensor

__all__ = ["channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(input: Tensor, upscale_factor: int, *, layout: str | None = None) -> Tensor:
    """Each pixel's C r^2 channels as r x r pixels of C channels: (..., H, W, C r^2) to (..., H r, W r, C).

    Shi et al., arXiv 1609.05158. Channels (c r + row) r + column become pixel (row, column) of channel c, as PyTorch's.
    """
    factor = whole("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    return _of_images("pixel_shuffle", _spread, input, factor, layout)


def pixel_unshuffle(input: Tensor, downscale_factor: int, *, layout: str | None = None) -> Tensor:
    """The reverse of ``pixel_shuffle``: (..., H r, W r, C) to (..., H, W, C r^2)."""
    factor = whole("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    return _of_images("pixel_unshuffle", _gathered, input, factor, layout)


def _of_images(function: str, move: Callable[..., Tensor], x: Any, factor: int, layout: str | None) -> Tensor:
    """Images with any number of axes of the batch, as a function of those with one."""
    check_tensor(function, x)
    if x.ndim < 3:
        raise ShapeError(f"[{function}] expected images (..., H, W, C), got {x.shape}: add the missing axes")
    batch = x.shape[:-3]
    found = move(reshape(x, (math.prod(batch), *x.shape[-3:])), factor, layout=layout)
    return reshape(found, (*batch, *found.shape[1:]))


@of_images("x")
def _spread(x: Tensor, r: int, *, layout: str | None = None) -> Tensor:
    n, h, w, c = x.shape
    if c % (r * r):
        raise ShapeError(f"[pixel_shuffle] expected channels divisible by {r} ** 2, got x: {x.shape}")
    c //= r * r
    return reshape(permute(reshape(x, (n, h, w, c, r, r)), (0, 1, 4, 2, 5, 3)), (n, h * r, w * r, c))


@of_images("x")
def _gathered(x: Tensor, r: int, *, layout: str | None = None) -> Tensor:
    n, h, w, c = x.shape
    if h % r or w % r:
        raise ShapeError(f"[pixel_unshuffle] expected a height and width divisible by {r}, got x: {x.shape}")
    pixels = permute(reshape(x, (n, h // r, r, w // r, r, c)), (0, 1, 3, 5, 2, 4))
    return reshape(pixels, (n, h // r, w // r, c * r * r))


@of_images("input")
def channel_shuffle(input: Tensor, groups: int, *, layout: str | None = None) -> Tensor:
    """Channels in another order: the first of each group, then the second of each, ... of (N, ..., C)."""
    check_tensor("channel_shuffle", input)
    groups = whole("channel_shuffle", "groups", groups, 1)
    *others, c = input.shape if input.ndim > 2 else (0, 1)
    if input.ndim < 3 or c % groups:
        raise ShapeError(
            f"[channel_shuffle] expected x (N, ..., C) with C divisible by groups {groups}, got {input.shape}"
        )
    split = reshape(input, (*others, groups, c // groups))
    axes = (*range(len(others)), len(others) + 1, len(others))
    return reshape(permute(split, axes), input.shape)


native_channel_shuffle = channel_shuffle  # PyTorch's other name
