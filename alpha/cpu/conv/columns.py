"""columns: a filter row's taps and channels as the columns of the products, for few result channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from alpha import caches
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call, filter_numbers
from alpha.cpu.conv.blocking import SCRATCH
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import check_offsets, extent, pairs_of, sources, table
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import columns as kernels
from alpha.cpu.kernels import filters as filter_kernels
from alpha.cpu.kernels.columns import ColumnsSizes
from alpha.cpu.kernels.tables import COUNT, AxisTable
from alpha.tensor import Tensor

PRODUCTS = 128 << 10
"""About how many bytes a row's products take: they stay in the L2 cache."""

SOURCES = 256 << 10
"""About how many bytes of source rows a result row reads: they stay in the L2 cache for the next row."""

MAX_TASK_ROWS, MIN_TASKS = 8, 32
"""Most result rows per task, and fewest tasks where rows and chunks of images suffice for them."""


@dataclass(frozen=True)
class ColumnsPlan:
    """Tables and sizes; ``rows`` has offsets, ``columns`` source columns and the first number of their tap's products.

    ``packed_shape`` is (groups, panels, filter rows, depth, panel).
    """

    rows: AxisTable
    columns: AxisTable
    sizes: ColumnsSizes
    packed_shape: tuple[int, ...]

    @cached_property
    def tasks(self) -> int:
        """Bands of result rows times chunks of images times groups."""
        bands = math.ceil(self.sizes.rows / self.sizes.band)
        return bands * math.ceil(self.sizes.images / self.sizes.chunk) * self.sizes.groups


def serves(problem: Problem) -> bool:
    """Whether there are fewer result channels than a panel has, several tap columns, and neighbouring source images.

    A convolution with strides would discard most of what is computed.
    """
    columns, images = problem.geometry.columns, problem.images
    (size, depth, strides), (_, channels, _) = problem.sides
    source = depth * problem.groups
    dense = images == 1 or (strides[0] == source and strides[2] == images * source)
    narrow = channels < ISA.panel(problem.item) and columns.filter > 1
    row = size[1] * min(images, ISA.rows) * (columns.filter * channels + ISA.panel(problem.item)) * problem.item
    return dense and narrow and row <= SCRATCH and not (problem.by_output and columns.stride > 1)


@caches.kept
def plan(problem: Problem) -> ColumnsPlan:
    """The plan of a problem that it serves."""
    g, item = problem.geometry, problem.item
    (size, depth, source), (result, channels, target) = problem.sides
    pairs = pairs_of(g.rows, problem.by_output), pairs_of(g.columns, problem.by_output)
    width = ISA.panel_of(g.columns.filter * channels, item)
    panels = math.ceil(g.columns.filter * channels / width)
    tap_bytes = depth * width * item
    source_image = source[0] * item if problem.images > 1 else source[2] * item
    taps = int(pairs[0].count.max())
    chunk = _chunk(problem.images, size[1] * panels * width * item, taps * size[1] * depth * item)
    rows_in_all = result[0] * math.ceil(problem.images / chunk) * problem.groups
    sizes = ColumnsSizes(
        images=problem.images,
        chunk=chunk,
        band=max(1, min(MAX_TASK_ROWS, result[0], rows_in_all // MIN_TASKS)),
        rows=result[0],
        columns=result[1],
        source_columns=size[1],
        groups=problem.groups,
        depth=depth,
        channels=channels,
        panels=panels,
        panel=width,
        item=item,
        source_image=source_image,
        source_column=source[2] * item,
        target_image=target[0] * item,
        target_row=target[1] * item,
        target_column=target[2] * item,
        most_taps=g.rows.filter,
        panel_bytes=g.rows.filter * tap_bytes,
    )
    rows = table(pairs[0], source[1] * item, tap_bytes)
    columns = table(pairs[1], 1, channels * item)
    last = (problem.images - 1) * source_image + problem.groups * depth * item
    limit = extent((problem.images, *size), problem.groups * depth, source, item)
    check_offsets("the source", (sources(rows), np.array([0, (size[1] - 1) * source[2] * item])), last, limit)
    target_offsets = tuple(np.array([0, (n - 1) * step * item]) for n, step in zip(result, target[1:], strict=True))
    last = ((problem.images - 1) * target[0] + problem.groups * channels) * item
    limit = extent((problem.images, *result), problem.groups * channels, target, item)
    check_offsets("the target", (target_offsets[0], target_offsets[1]), last, limit)
    return ColumnsPlan(rows, columns, sizes, (problem.groups, panels, g.rows.filter, depth, width))


def _chunk(images: int, products: int, sources: int) -> int:
    """Images per task: equal chunks of whole tiles, or all; ``products``, ``sources``: bytes per image."""
    chunks = math.ceil(max(images * products / PRODUCTS, images * sources / SOURCES))
    return min(images, math.ceil(math.ceil(images / chunks) / ISA.rows) * ISA.rows)


class Columns(Algorithm):
    """Products of source rows with all taps of a filter row, added where they belong; some are discarded."""

    name = "columns"
    exact = False

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def plan(self, problem: Problem) -> ColumnsPlan:
        return plan(problem)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = plan(problem)
        s, whole = planned.sizes, planned.sizes.chunk == planned.sizes.images
        vectors = s.panel // ISA.lanes(s.item)
        runs, factor = (1, s.source_columns) if whole else (s.source_columns, 1)
        terms, tiles = costs.in_chunks(s.images, s.chunk, figures.fmas_per_cycle, vectors, factor)
        taps = int(planned.rows.pairs[COUNT].sum())
        products = s.panels * runs * (terms * taps * s.depth + tiles * s.rows * figures.tile_cycles)
        sums = s.columns + int(planned.columns.pairs[COUNT].sum())
        added = s.images * s.rows * s.channels * sums * figures.scatter_cycles_per_number
        nbytes = math.prod(planned.packed_shape) * s.item
        return float(s.groups * (products + added)) + costs.packing(nbytes, s.item, packs, figures)

    def describe(self, problem: Problem) -> str:
        return f"a filter row's taps as columns, {plan(problem).sizes.chunk} images per task"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem)
        packed = _packed(engine, call, planned.packed_shape, problem.by_output)
        macs: int = engine.launch(
            kernels.columns, call.tag, planned.rows, planned.columns, planned.sizes, call.source.address,
            packed.address, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs

    def accesses(self, problem: Problem, packs: bool) -> int:
        """Numbers read and written, with the source rows, and the products that are made of them and added."""
        g, (source, target) = problem.geometry, problem.sides
        numbers, width = problem.images * problem.groups, source.size[1]
        met = g.rows.useful * width * numbers * source.channels
        made = target.size[0] * numbers * target.channels * (width * g.columns.filter + g.columns.useful)
        results = math.prod(target.size) * numbers * target.channels
        return met + made + results + filter_numbers(problem) * (3 if packs else 1)


def _packed(engine: HostEngine, call: Call, shape: tuple[int, ...], by_output: bool) -> Tensor:
    """The filters' rows in the plan's panels, whose columns are taps and result channels."""
    groups, _, taps, depth, _ = shape

    def pack(packed: Tensor) -> None:
        w = call.other
        if by_output:
            (first, rows, columns, inner), (step, *steps) = w.shape, w.strides
            of_group = first // groups
            turned = w.strided(
                w.offset, (groups, columns, of_group, rows, inner),
                (of_group * step, steps[1], step, steps[0], steps[2]),
            )  # fmt: skip
            source = filters.dense_array(engine, turned).reshape(groups, -1, taps, depth)
            engine.launch(filter_kernels.pack_by_output, source, engine.operand(packed))
        else:
            source = filters.dense_array(engine, w).reshape(groups, depth, taps, -1)
            engine.launch(filter_kernels.pack_by_input, source, engine.operand(packed))

    how = "rows by output" if by_output else "rows by input"
    return filters.kept(engine, call.other, shape, how, pack, call.reused)
