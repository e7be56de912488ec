"""Plans of depthwise convolutions: blocks of rows that the second cache holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu import plans
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.depthwise import DepthwiseSizes
from alpha.cpu.kernels.positions import Patterns
from alpha.cpu.plans import Problem
from alpha.cpu.positions import blocks_of, patterns_of

Array = np.ndarray[Any, Any]

CHUNK_BYTES = 128 << 10
"""Of a chunk of images under all taps of a position, about: the second cache holds them for the next positions.

Long runs of images matter more than holding whole rows of the map: runs often lie a power of two apart, in few sets of
the caches.
"""

MOST_ROWS = 1024
"""Of a block."""

SUMMED_ROWS = 64
"""Of a block of the filter gradient, whose x and dy meet every group of taps while the caches hold them."""

PARTS = 8
"""Of the filter gradient, each with sums of its own: never by thread count, so that the order of sums is the same."""


@dataclass(frozen=True)
class DepthwisePlan:
    """Tables and sizes; ``blocks`` is a table of ``Block``."""

    blocks: Array
    rows: Patterns
    columns: Patterns
    sizes: DepthwiseSizes

    @property
    def packed_shape(self) -> tuple[int, int, int]:
        """(vectors of channels, taps, lanes) of the packed filters."""
        lanes = ISA.lanes(self.sizes.item)
        return math.ceil(self.sizes.channels / lanes), self.sizes.taps, lanes

    @property
    def parts_shape(self) -> tuple[int, int, int]:
        """(parts, taps, channels up to whole pairs of vectors) of the filter gradient's sums."""
        lanes = 2 * ISA.lanes(self.sizes.item)
        return min(PARTS, len(self.blocks)), self.sizes.taps, math.ceil(self.sizes.channels / lanes) * lanes


def serves(problem: Problem) -> bool:
    """Whether each channel has one filter, and its own."""
    return problem.groups == problem.in_channels == problem.out_channels and problem.groups > 1


@lru_cache(maxsize=1024)
def plan(problem: Problem, by_output: bool, summed: bool = False) -> DepthwisePlan:
    """The plan of a convolution (``by_output``), an input gradient, or, as the convolution's sums, a filter's."""
    _ = plans.forward(problem) if by_output else plans.input_grad(problem)  # checks the offsets
    g, item = problem.geometry, problem.item
    source, target = problem.x_strides, problem.y_strides
    if not by_output:
        source, target = target, source
    groups = (g.rows.by_output, g.columns.by_output) if by_output else (g.rows.by_input, g.columns.by_input)
    # Where a tap lies: its bytes in a vector of the packed filter, or its number in the sums.
    unit, most = (1, SUMMED_ROWS) if summed else (ISA.bytes, MOST_ROWS)
    rows = patterns_of(groups[0], source[1] * item, g.columns.filter * unit, target[1] * item, joined=False)
    columns = patterns_of(groups[1], source[2] * item, unit, target[2] * item, joined=False)
    taps = g.rows.filter * g.columns.filter
    chunk = max(1, min(problem.images, CHUNK_BYTES // (taps * problem.groups * item)))
    sizes = DepthwiseSizes(
        channels=problem.groups,
        taps=taps,
        rows=most,
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
    )
    return DepthwisePlan(blocks_of(rows, columns, problem.images, chunk, most), rows, columns, sizes)
