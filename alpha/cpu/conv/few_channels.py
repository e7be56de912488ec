"""few_channels: filter gradients with few input channels; a trim's taps and channels are a product's columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from alpha import caches
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.blocking import image_part
from alpha.cpu.conv.problem import RUN_CHANNELS, Problem
from alpha.cpu.conv.tables import check_offsets, extent
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import few_channels as kernels
from alpha.cpu.kernels.few_channels import FewChannelsSizes, Trims
from alpha.geometry import Axis, stretches

DEPTH = 64
"""About how many positions times images are summed at a time: x's copy and dy stay in the L1 cache."""

MAX_IMAGES = 8
"""Most images among them: images often lie a power of two apart, and a set of the L1 cache has so many lines."""

MAX_TRIMS = 64
"""Most pairs of row and column trims: more (a filter about as large as its input) would need too many sums."""


@dataclass(frozen=True)
class FewChannelsPlan:
    """Tables and sizes."""

    rows: Trims
    columns: Trims
    sizes: FewChannelsSizes
    groups: int
    parts: int
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Parts of the images times groups."""
        return self.parts * self.groups


def serves(problem: Problem) -> bool:
    """Whether a problem has few channels, and not many trims."""
    g = problem.geometry
    if problem.group_in >= RUN_CHANNELS:
        return False
    return _different(g.rows) * _different(g.columns) <= MAX_TRIMS


def _different(axis: Axis) -> int:
    """Number of different trims of an axis, including the empty one."""
    pairs = axis.pairs_by_output
    taps = pairs.count[stretches(pairs, 1).index]
    return int(np.count_nonzero(taps)) + int(not taps.all())


@caches.kept
def plan(problem: Problem) -> FewChannelsPlan:
    """The plan of a problem that ``serves`` accepts."""
    g, item = problem.geometry, problem.item
    x_image, x_row, x_column = (s * item for s in problem.x_strides)
    y_image, y_row, y_column = (s * item for s in problem.y_strides)
    rows, columns = _trims(g.rows, x_row, y_row), _trims(g.columns, x_column, y_column)
    part = image_part(problem, problem.out_channels * g.rows.filter * g.columns.filter * problem.group_in * item)
    chunk = min(part, MAX_IMAGES)
    taps = int(rows.taps.sum()) * int(columns.taps.sum())
    widest = int(rows.taps.max(initial=0)) * int(columns.taps.max(initial=0)) * problem.group_in
    sizes = FewChannelsSizes(
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
        joined=problem.contiguous_runs,
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
    return FewChannelsPlan(rows, columns, sizes, problem.groups, math.ceil(problem.images / part), problem.macs)


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


class FewChannels(Algorithm):
    """One product per class of positions with the same trim."""

    name = "few_channels"
    operators = (WEIGHT_GRAD,)

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def plan(self, problem: Problem) -> FewChannelsPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        g, s = problem.geometry, problem
        taps = g.rows.filter * g.columns.filter  # of the widest trim
        columns = taps * s.group_in
        panels, vectors = math.ceil(columns / ISA.panel(s.item)), math.ceil(columns / ISA.lanes(s.item))
        term = costs.terms(s.group_out, figures.outer_fmas_per_cycle)[0]
        copies = figures.gather_cycles_per_vector * vectors
        return s.groups * g.useful / taps * s.images * (panels * term + copies)

    def describe(self, problem: Problem) -> str:
        return "all taps and channels of a trim as columns"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned, dw = plan(problem), call.out
        parts = filters.parts_of(engine, dw, planned.parts)
        sums = engine.operand(parts).reshape(planned.parts, problem.groups, problem.group_out, dw.shape[1], -1)
        macs: int = engine.launch(
            kernels.few_channels, call.tag, planned.rows, planned.columns, planned.sizes, call.source.address,
            call.other.address, sums, tasks=planned.tasks,
        )  # fmt: skip
        filters.sum_parts(engine, parts, dw)
        return macs
