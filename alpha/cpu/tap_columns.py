"""Plans of convolutions and input gradients of few result channels: result rows, a filter row's taps as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpha import caches
from alpha.cpu import plans
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.convolution import AxisTable
from alpha.cpu.kernels.tap_columns import TapColumnsSizes
from alpha.cpu.plans import Problem

PRODUCTS = 128 << 10
"""Bytes of a row's products, about: they stay in the second cache."""

SOURCES = 256 << 10
"""Bytes of the source rows that a result row reads, about: they stay there for the next row."""

BAND, TASKS = 8, 32
"""Most result rows a task, and tasks at least where there are so many rows and chunks of images."""


@dataclass(frozen=True)
class TapColumnsPlan:
    """Tables and sizes; ``rows`` has offsets, ``columns`` source columns and the first number of their tap's products.

    ``packed_shape`` is (groups, panels, filter rows, depth, panel).
    """

    rows: AxisTable
    columns: AxisTable
    sizes: TapColumnsSizes
    packed_shape: tuple[int, ...]

    @property
    def tasks(self) -> int:
        """Bands of result rows times chunks of images times groups."""
        bands = math.ceil(self.sizes.rows / self.sizes.band)
        return bands * math.ceil(self.sizes.images / self.sizes.chunk) * self.sizes.groups


def serves(problem: Problem, by_output: bool) -> bool:
    """Whether result channels are fewer than a panel's, columns have several taps, and source images lie side by side.

    A convolution with strides would drop most of what it computes.
    """
    columns, images = problem.geometry.columns, problem.images
    strides, source, channels = problem.x_strides, problem.in_channels, problem.group_out
    if not by_output:
        strides, source, channels = problem.y_strides, problem.out_channels, problem.group_in
    dense = images == 1 or (strides[0] == source and strides[2] == images * source)
    few = channels < ISA.panel(problem.item) and columns.filter > 1
    width = columns.input if by_output else columns.output
    row = width * min(images, ISA.rows) * (columns.filter * channels + ISA.panel(problem.item)) * problem.item
    return dense and few and row <= plans.SCRATCH and not (by_output and columns.stride > 1)


@caches.kept
def plan(problem: Problem, by_output: bool) -> TapColumnsPlan:
    """The plan of a problem that it serves."""
    g, item = problem.geometry, problem.item
    source, target = problem.x_strides, problem.y_strides
    depth, channels = problem.group_in, problem.group_out
    size, result = g.input, g.output
    if not by_output:
        source, target, depth, channels = target, source, channels, depth
        size, result = result, size
    pairs = plans.pairs_of(g.rows, by_output), plans.pairs_of(g.columns, by_output)
    width = ISA.panel_of(g.columns.filter * channels, item)
    panels = math.ceil(g.columns.filter * channels / width)
    tap_bytes = depth * width * item
    source_image = source[0] * item if problem.images > 1 else source[2] * item
    taps = int(pairs[0].count.max())
    chunk = _chunk(problem.images, size[1] * panels * width * item, taps * size[1] * depth * item)
    rows_in_all = result[0] * math.ceil(problem.images / chunk) * problem.groups
    sizes = TapColumnsSizes(
        images=problem.images,
        chunk=chunk,
        band=max(1, min(BAND, result[0], rows_in_all // TASKS)),
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
    rows = plans.table(pairs[0], source[1] * item, tap_bytes)
    columns = plans.table(pairs[1], 1, channels * item)
    last = (problem.images - 1) * source_image + problem.groups * depth * item
    limit = plans.extent((problem.images, *size), problem.groups * depth, source, item)
    plans.check_offsets(
        "the source", (plans.sources(rows), np.array([0, (size[1] - 1) * source[2] * item])), last, limit
    )
    ends = tuple(np.array([0, (n - 1) * step * item]) for n, step in zip(result, target[1:], strict=True))
    last = ((problem.images - 1) * target[0] + problem.groups * channels) * item
    limit = plans.extent((problem.images, *result), problem.groups * channels, target, item)
    plans.check_offsets("the target", (ends[0], ends[1]), last, limit)
    return TapColumnsPlan(rows, columns, sizes, (problem.groups, panels, g.rows.filter, depth, width))


def _chunk(images: int, products: int, sources: int) -> int:
    """Images a task, of so many bytes each: equal chunks of whole tiles, or all."""
    chunks = math.ceil(max(images * products / PRODUCTS, images * sources / SOURCES))
    return min(images, math.ceil(math.ceil(images / chunks) / ISA.rows) * ISA.rows)
