"""Plans of the filter gradient of few input channels: positions of each axis in classes by their trim."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpha import caches
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.few_channels import FewSizes, Trims
from alpha.cpu.plans import RUN_CHANNELS, Problem, check_offsets, contiguous_runs, extent, image_part
from alpha.geometry import Axis, stretches

DEPTH = 64
"""Positions times images summed at a time, about: x's copy and dy stay in the first cache."""

IMAGES = 8
"""Most images of them: whole images often lie a power of two apart, and the first cache has so many ways."""

MOST_TRIMS = 64
"""Pairs of an axis' trims: more, where a filter is about as large as its input, are sums too many."""


@dataclass(frozen=True)
class FewPlan:
    """Tables and sizes."""

    rows: Trims
    columns: Trims
    sizes: FewSizes
    parts: int
    macs: int


def serves(problem: Problem) -> bool:
    """Whether a problem has few channels, and not many trims."""
    g = problem.geometry
    if problem.group_in >= RUN_CHANNELS:
        return False
    return _different(g.rows) * _different(g.columns) <= MOST_TRIMS


def _different(axis: Axis) -> int:
    """Different trims of an axis, the empty one too."""
    pairs = axis.pairs_by_output
    taps = pairs.count[stretches(pairs, 1).index]
    return int(np.count_nonzero(taps)) + int(not taps.all())


@caches.kept
def plan(problem: Problem) -> FewPlan:
    """The plan of a problem that ``serves`` accepts."""
    g, item = problem.geometry, problem.item
    x_image, x_row, x_column = (s * item for s in problem.x_strides)
    y_image, y_row, y_column = (s * item for s in problem.y_strides)
    rows, columns = _trims(g.rows, x_row, y_row), _trims(g.columns, x_column, y_column)
    part = image_part(problem, problem.out_channels * g.rows.filter * g.columns.filter * problem.group_in * item)
    chunk = min(part, IMAGES)
    taps = int(rows.taps.sum()) * int(columns.taps.sum())
    widest = int(rows.taps.max(initial=0)) * int(columns.taps.max(initial=0)) * problem.group_in
    sizes = FewSizes(
        images=problem.images,
        part=part,
        chunk=chunk,
        together=max(1, min(math.prod(g.output), DEPTH // chunk)),
        in_channels=problem.group_in,
        out_channels=problem.group_out,
        panel=ISA.panel(item),
        item=item,
        x_image=x_image,
        x_tap_row=g.rows.dilation * x_row,
        x_tap_column=g.columns.dilation * x_column,
        dy_image=y_image,
        joined=contiguous_runs(problem),
        copy_row=math.ceil((widest * item + ISA.bytes) / 64) * 64,
        sums=taps * problem.group_in * problem.group_out,
    )
    x_limit = extent((problem.images, *g.input), problem.in_channels, problem.x_strides, item)
    x_last = (problem.images - 1) * x_image + problem.in_channels * item
    reach = [
        np.concatenate([trims.source, trims.source + (np.repeat(trims.taps, np.diff(trims.start)) - 1) * step])
        for trims, step in ((rows, sizes.x_tap_row), (columns, sizes.x_tap_column))
    ]
    check_offsets("x", (reach[0], reach[1]), x_last, x_limit)
    y_limit = extent((problem.images, *g.output), problem.out_channels, problem.y_strides, item)
    check_offsets(
        "dy", (rows.other, columns.other), (problem.images - 1) * y_image + problem.out_channels * item, y_limit
    )
    macs = g.macs(problem.images, problem.in_channels, problem.out_channels, problem.groups)
    return FewPlan(rows, columns, sizes, math.ceil(problem.images / part), macs)


def _trims(axis: Axis, source_step: int, other_step: int) -> Trims:
    """The distinct trims of an axis that are not empty, each with its positions."""
    pairs = axis.pairs_by_output
    alike = stretches(pairs, 1)
    some = pairs.count[alike.index] > 0
    index, outputs = alike.index[some], np.flatnonzero(pairs.count)
    start = np.append(0, np.cumsum(alike.number[some]))
    return Trims(
        pairs.other[index], pairs.count[index], start, pairs.first[outputs] * source_step, outputs * other_step
    )
