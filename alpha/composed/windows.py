"""The parts of a window's input and output sides that meet under each of its taps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.geometry import Geometry
    from alpha.tensor import Tensor


def windows(
    geometry: Geometry, x: Tensor, *outputs: Tensor
) -> Iterator[tuple[tuple[int, int], Tensor, tuple[Tensor, ...]]]:
    """For each tap that meets anything its row and column, and the views that meet: of x, and of each output.

    x is (N, IH, IW, C), the outputs (N, OH, OW, any). No tap meets padding.
    """
    down, across = geometry.rows, geometry.columns
    for row in down.reaching:
        for column in across.reaching:
            rows, columns = down.leap(row), across.leap(column)
            if rows and columns:
                first = down.source(rows.start, row), across.source(columns.start, column)
                steps, size = (down.stride, across.stride), (len(rows), len(columns))
                met = tuple(_part(y, (rows.start, columns.start), (1, 1), size) for y in outputs)
                yield (row, column), _part(x, first, steps, size), met


def _part(x: Tensor, first: tuple[int, int], steps: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """A view of some rows and columns of images (N, H, W, C), ``steps`` apart."""
    images, down, across, channels = x.strides
    strides = images, down * steps[0], across * steps[1], channels
    return x.strided(x.offset + first[0] * down + first[1] * across, (x.shape[0], *size, x.shape[3]), strides)
