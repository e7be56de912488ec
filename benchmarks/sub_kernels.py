"""A transposed convolution as kernel segregation computed it before one launch did all: a convolution a sub-kernel.

The filter is split by its taps' remainder of the stride into stride x stride sub-kernels, and each is convolved with
the source at stride 1 into an output of its own. The outputs have one size, that of the largest, so where the result's
size is no multiple of the stride some have rows and columns that nobody wants. They are interleaved to the result,
which leaves those out. Tida et al. (arXiv 2502.20493) set out from this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from alpha.geometry import Axis, Geometry


@dataclass(frozen=True)
class SubKernel:
    """The part of a filter's axis that makes every stride-th element of the result, and the convolution that does so.

    ``taps`` are those of the filter, the last first: a transposed convolution meets the source in reverse.
    """

    taps: range
    axis: Axis


def sub_kernels(size: int, filter: int, stride: int, padding: int, result: int) -> list[SubKernel]:
    """An axis's, by the remainder that their elements of the result have.

    Args:
        size, result: elements of the source, and of the result.
        filter, stride, padding: as ``conv_transpose2d`` has them.

    Raises:
        ArgumentError: where a sub-kernel has no tap, or leaves elements of the source out: generators have no such.
    """
    found, elements = [], math.ceil(result / stride)
    for remainder in range(stride):
        first_source, first_tap = divmod(remainder + padding, stride)
        taps = range(first_tap, filter, stride)[::-1]
        low = len(taps) - 1 - first_source
        high = elements + len(taps) - 1 - size - low
        found.append(SubKernel(taps, Axis(size, len(taps), 1, (low, high))))
    return found


def sub_geometries(axes: list[SubKernel]) -> list[tuple[SubKernel, SubKernel, Geometry]]:
    """Rows' and columns' sub-kernels of a square problem in all combinations, and the convolution of each."""
    return [(rows, columns, Geometry(rows.axis, columns.axis)) for rows, columns in product(axes, axes)]


def elements(result: int, stride: int) -> int:
    """Elements of all sub-kernels' outputs along an axis: at least the result's, and less than a stride more."""
    return stride * math.ceil(result / stride)
