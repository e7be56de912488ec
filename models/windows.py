"""Windows of maps (N, H, W, C): split into them, shifted around the edges, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha import Tensor
from alpha import functions as F

_APART = -100.0
"""What the score of two pixels that should not attend to each other gains: torchvision's number."""


@dataclass(frozen=True)
class WindowPlan:
    """How maps of a size are split.

    Attributes:
        size: height and width of the maps. padded: those of the least multiple of the window that holds them.
        window: rows and columns of a window.
        shift: how far the windows lie from a grid that begins at the corner; 0 along an axis of one window.
    """

    size: tuple[int, int]
    padded: tuple[int, int]
    window: tuple[int, int]
    shift: tuple[int, int]

    @classmethod
    def of(cls, size: Sequence[int], window: tuple[int, int], shift: tuple[int, int]) -> WindowPlan:
        """The plan for maps of a size."""
        padded = tuple(-(-n // step) * step for n, step in zip(size, window, strict=True))
        moved = tuple(0 if step >= n else by for n, step, by in zip(padded, window, shift, strict=True))
        return cls((size[0], size[1]), (padded[0], padded[1]), window, (moved[0], moved[1]))

    @property
    def grid(self) -> tuple[int, int]:
        """How many windows there are down and across."""
        return self.padded[0] // self.window[0], self.padded[1] // self.window[1]

    def mask(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(windows, 1, L, L): 0 for two pixels of a window that are neighbours in the maps, below 0 for others."""
        return _mask(self)


@lru_cache(64)
def _mask(plan: WindowPlan) -> np.ndarray[Any, np.dtype[np.float32]]:
    regions = [np.zeros(n, np.int64) for n in plan.padded]
    for region, step, by in zip(regions, plan.window, plan.shift, strict=True):
        region[len(region) - step :] = 1
        region[len(region) - by :] = 2  # what came around the edge
    labels = 3 * regions[0][:, None] + regions[1]
    (rows, columns), (height, width) = plan.grid, plan.window
    windows = labels.reshape(rows, height, columns, width).transpose(0, 2, 1, 3).reshape(rows * columns, 1, -1)
    return np.where(windows[..., :, None] == windows[..., None, :], 0.0, _APART).astype(np.float32)


def split(maps: Tensor, plan: WindowPlan) -> Tensor:
    """(N, H, W, C) as (N, windows, L, C), the pixels of a window by rows."""
    n, height, width, channels = maps.shape
    below, right = plan.padded[0] - height, plan.padded[1] - width
    if below or right:
        maps = F.pad(maps, (0, 0, 0, right, 0, below))
    if any(plan.shift):
        maps = F.roll(maps, (-plan.shift[0], -plan.shift[1]), (1, 2))
    (rows, columns), (tall, wide) = plan.grid, plan.window
    cells = maps.reshape(n, rows, tall, columns, wide, channels).permute(0, 1, 3, 2, 4, 5)
    return cells.reshape(n, rows * columns, tall * wide, channels)


def joined(windows: Tensor, plan: WindowPlan) -> Tensor:
    """(N, windows, L, C) as the maps (N, H, W, C) that were split."""
    n, channels = windows.shape[0], windows.shape[-1]
    (rows, columns), (tall, wide) = plan.grid, plan.window
    cells = windows.reshape(n, rows, columns, tall, wide, channels).permute(0, 1, 3, 2, 4, 5)
    maps = cells.reshape(n, *plan.padded, channels)
    if any(plan.shift):
        maps = F.roll(maps, plan.shift, (1, 2))
    return maps[:, : plan.size[0], : plan.size[1]]


def offset_numbers(window: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(L, L): the number of the offset from one pixel of a window to another, by rows and then by columns."""
    rows, columns = (axis.reshape(-1) for axis in np.indices(window))
    down, across = rows[:, None] - rows + window[0] - 1, columns[:, None] - columns + window[1] - 1
    return np.asarray(down * (2 * window[1] - 1) + across, np.int64)
