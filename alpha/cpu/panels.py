"""Plans of convolutions and input gradients of few images and large filters, of which each task reads its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu import plans
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.panels import PanelSizes
from alpha.cpu.kernels.positions import Patterns
from alpha.cpu.plans import BLOCK, Problem
from alpha.cpu.positions import ROWS, blocks_of, patterns_of

Array = np.ndarray[Any, Any]

PACKED_BYTES = 256 << 10
"""Of the filters that a task works on at once, about: they stay in the second cache while they meet all rows."""

LEAST_PANELS = 8
"""Fewer tasks would leave threads without."""

LEAST_BYTES = 1 << 20
"""Of the filters: smaller ones stay in the second cache once they are packed, whoever does it."""


@dataclass(frozen=True)
class PanelPlan:
    """Tables and sizes; ``blocks`` is a table of ``Block``."""

    blocks: Array
    rows: Patterns
    columns: Patterns
    sizes: PanelSizes
    packed_shape: tuple[int, ...]
    """Of filters that are packed before."""
    macs: int

    @property
    def tasks(self) -> int:
        """Panels."""
        return self.sizes.groups * self.sizes.channels // self.sizes.panel


def serves(problem: Problem, by_output: bool) -> bool:
    """Whether panels and vectors are whole, panels enough for threads to share, and filters large."""
    depth, channels = problem.group_in, problem.group_out
    if not by_output:
        depth, channels = channels, depth
    panel = ISA.panel(problem.item)
    whole = depth % ISA.lanes(problem.item) == 0 and channels % panel == 0
    nbytes = math.prod(problem.geometry.filter) * problem.groups * depth * channels * problem.item
    return whole and problem.groups * channels // panel >= LEAST_PANELS and nbytes >= LEAST_BYTES


@lru_cache(maxsize=1024)
def plan(problem: Problem, by_output: bool) -> PanelPlan:
    """The plan of a convolution (``by_output``) or an input gradient that it serves."""
    gather = plans.forward(problem) if by_output else plans.input_grad(problem)  # it has checked the offsets
    g, item, panel = problem.geometry, problem.item, gather.sizes.panel
    source, target = (problem.x_strides, problem.y_strides)
    groups = (g.rows.by_output, g.columns.by_output)
    if not by_output:
        source, target = target, source
        groups = (g.rows.by_input, g.columns.by_input)
    rows = patterns_of(groups[0], source[1] * item, g.columns.filter, target[1] * item, joined=False)
    columns = patterns_of(groups[1], source[2] * item, 1, target[2] * item, joined=False)
    taps, lanes, depth = g.rows.filter * g.columns.filter, ISA.lanes(item), gather.sizes.depth
    parts = math.ceil(depth / max(lanes, PACKED_BYTES // (taps * panel * item)))
    depth_block = math.ceil(depth / parts / lanes) * lanes
    sizes = PanelSizes(
        groups=problem.groups,
        depth=depth,
        channels=gather.sizes.channels,
        panel=panel,
        rows=ROWS,
        taps=taps,
        tap_block=max(1, BLOCK // (depth_block * panel * item)),
        depth_block=depth_block,
        item=item,
        source_image=source[0] * item,
        target_image=target[0] * item,
    )
    blocks = blocks_of(rows, columns, problem.images, problem.images, ROWS)
    return PanelPlan(blocks, rows, columns, sizes, gather.packed_shape, gather.macs)
