"""winograd, winograd3, winograd4 of filter gradients: blocks of channels, and parts of the tiles and images."""

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
from alpha.cpu.conv.blocking import MIN_TASKS, PART_BYTES, PARTS
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import Array, check_offsets, extent
from alpha.cpu.conv.winograd import Winograd, form_of, inside, tile_offsets
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import winograd_gradient as kernels
from alpha.cpu.kernels.winograd import operations
from alpha.cpu.kernels.winograd_forms import Form, transposed
from alpha.cpu.kernels.winograd_gradient import GradientSizes
from alpha.dtypes import is_brain
from alpha.errors import EngineError

IN_BLOCK, OUT_BLOCKS = 128, (128, 64, 32)
"""About how many channels of x and of dy a task has: a slice's sums and their terms about fit into the L2 cache. Fewer
channels of dy where there would be few tasks."""

ROWS = 32
"""About how many tiles times images are multiplied and summed at a time."""

PART_UNITS = 3
"""How often a part adds to its sums at least."""


@dataclass(frozen=True)
class GradientPlan:
    """Tables and sizes.

    Attributes:
        form: the convolution's matrices.
        rows_from: offsets of each tile row's rows of x, -1 outside; ``columns_from`` likewise.
        rows_to: offsets of its rows of dy, -1 outside; ``columns_to`` likewise.
        units: how often sums are added to, by all parts.
        shape: of the sums of a part: groups, blocks of dy's channels and of x's, places, panels, channels, panel.
        macs: products that it computes.
    """

    form: Form
    rows_from: Array
    rows_to: Array
    columns_from: Array
    columns_to: Array
    sizes: GradientSizes
    units: int
    shape: tuple[int, ...]
    macs: int

    @cached_property
    def tasks(self) -> int:
        """Parts of pairs of blocks of channels."""
        return self.sizes.parts * math.prod(self.shape[:3])


def serves(problem: Problem, results: int = 2) -> bool:
    """Whether the algorithm can compute it: a form exists, float32, images are neighbours."""
    contiguous = (problem.in_channels, problem.out_channels) == (problem.x_strides[0], problem.y_strides[0])
    fits = problem.item == 4 and (problem.images == 1 or contiguous)
    return fits and form_of(problem, results) is not None


@caches.kept
def plan(problem: Problem, results: int = 2, are_halves: bool = False) -> GradientPlan:
    """The plan of a problem that it serves; ``are_halves``: of images of bfloat16."""
    form = form_of(problem, results)
    if form is None:
        raise EngineError(f"[winograd] expected a problem that has a form, got {problem.geometry}: ask serves first")
    g, item, read = problem.geometry, problem.item, 2 if are_halves else problem.item
    x_steps, dy_steps = ([s * read for s in strides] for strides in (problem.x_strides, problem.y_strides))
    rows_from, rows_to = tile_offsets(g.rows, form, True, x_steps[1], dy_steps[1])
    columns_from, columns_to = tile_offsets(g.columns, form, True, x_steps[2], dy_steps[2])
    sides = (
        ("x", (rows_from, columns_from), x_steps[0], g.input, problem.in_channels, problem.x_strides),
        ("dy", (rows_to, columns_to), dy_steps[0], g.output, problem.out_channels, problem.y_strides),
    )
    for name, (rows, columns), step, size, channels, strides in sides:
        run = (problem.images - 1) * step + channels * read
        limit = extent((problem.images, *size), channels, strides, read)
        check_offsets(name, (inside(rows), inside(columns)), run, limit)
    tiles, panel = len(rows_to) * len(columns_to), ISA.panel(item)
    panels = math.ceil(problem.group_in / math.ceil(problem.group_in / IN_BLOCK) / panel)
    in_blocks = math.ceil(problem.group_in / (panels * panel))
    chunk = math.ceil(problem.images / math.ceil(problem.images / ROWS))
    together = max(1, min(ROWS // chunk, tiles))
    units = math.ceil(tiles / together) * math.ceil(problem.images / chunk)
    for most in OUT_BLOCKS:
        out_blocks = math.ceil(problem.group_out / most)
        out_block = math.ceil(problem.group_out / out_blocks)
        shape = (problem.groups, out_blocks, in_blocks, form.places, panels, out_block, panel)
        blocks = math.prod(shape[:3])
        parts = _parts(blocks, units, math.prod(shape) * item)
        if parts * blocks >= MIN_TASKS:
            break
    sizes = GradientSizes(
        images=problem.images,
        chunk=chunk,
        tiles=together,
        tile_columns=len(columns_to),
        groups=problem.groups,
        in_channels=problem.group_in,
        out_channels=problem.group_out,
        in_block=panels * panel,
        out_block=out_block,
        parts=parts,
        x_image=problem.in_channels * read,  # also of one image, whatever its stride
        dy_image=problem.out_channels * read,
    )
    macs = form.places * tiles * problem.images * problem.in_channels * problem.group_out
    return GradientPlan(form, rows_from, rows_to, columns_from, columns_to, sizes, units, shape, macs)


def _parts(blocks: int, units: int, nbytes: int) -> int:
    """Parts for about PARTS tasks; independent of the number of threads, for the same order of sums everywhere."""
    return max(1, min(math.ceil(PARTS / blocks), units // PART_UNITS, PART_BYTES // nbytes))


class WinogradGradient(Algorithm):
    """Sums of products of transformed tiles of x and dy, transformed once at the end.

    ``results``: of a run of taps along an axis.
    """

    operators = (WEIGHT_GRAD,)
    exact = False
    reads_halves = True
    title = Winograd.title

    def __init__(self, name: str, results: int) -> None:
        self.name, self.results = name, results

    def serves(self, problem: Problem) -> bool:
        return serves(problem, self.results)

    def plan(self, problem: Problem) -> GradientPlan:
        return plan(problem, self.results)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = plan(problem, self.results)
        s, form, (_, out_blocks, in_blocks, places, _, out_block, panel) = planned.sizes, planned.form, planned.shape
        images = len(planned.rows_to) * len(planned.columns_to) * s.images
        products, (whole, rest) = 0.0, divmod(s.in_channels, panel)
        narrow = 0 < rest <= ISA.lanes(4)
        for vectors, count in ((ISA.vectors, whole + (rest > 0) - narrow), (1, narrow)):
            term, made = costs.terms(out_block, figures.outer_fmas_per_cycle, vectors)
            summed = out_block * vectors * figures.sum_cycles_per_vector
            added = planned.units * (made * figures.tile_cycles + summed)
            products += out_blocks * count * places * (images * term + added)
        x_vectors, dy_vectors = (math.ceil(channels / ISA.lanes(4)) for channels in (s.in_channels, s.out_channels))
        transforms: float = out_blocks * x_vectors * operations(form.b)
        transforms += in_blocks * dy_vectors * operations(transposed(form.a))
        transforms *= images * figures.transform_cycles_per_operation
        # Sums are read and written one after another: the processor fetches them ahead of the products.
        values = 4 * min(s.tiles * s.chunk, images) * (s.in_block + out_block)
        block_sums = 4 * places * s.in_block * out_block
        kept = max(map(len, kernels.slices_of(form))) * values * len(form.b)
        spilled = costs.spilled(2 * places * values, kept, figures)
        transforms += out_blocks * in_blocks * planned.units * spilled
        sums = 4 * math.prod(planned.shape[1:])
        moved = costs.moved((s.parts + 1) * sums, s.parts * sums, figures)
        if s.parts == 1:
            moved = costs.moved(2 * sums, block_sums, figures)
        inverse = s.out_channels * x_vectors * operations(transposed(form.g)) * figures.transform_cycles_per_operation
        return s.groups * (products + transforms + inverse + moved) + figures.launch_cycles

    def describe(self, problem: Problem) -> str:
        planned = plan(problem, self.results)
        return f"{planned.macs / 1e9:.4g} G products instead, {planned.sizes.parts} parts of the tiles and images"

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem, self.results, is_brain(call.source.dtype))
        parts = planned.sizes.parts
        if parts == 1:
            return self._sum(engine, planned, call, 0)
        sums, partial = engine.empty(planned.shape), engine.empty((parts, *planned.shape))
        macs = self._sum(engine, planned, call, partial.address)
        filters.sum_parts(engine, partial, sums)
        engine.launch(
            kernels.filters, np.float32(0), kernels.transforms(planned.form), planned.sizes, sums.address,
            call.out.address, tasks=problem.out_channels,
        )  # fmt: skip
        return macs

    def _sum(self, engine: HostEngine, planned: GradientPlan, call: Call, target: int) -> int:
        """Sums of parts at an address, or, of a single one, the filters; returns the products."""
        macs: int = engine.launch(
            kernels.sums, np.float32(0), kernels.transforms(planned.form, is_brain(call.source.dtype)),
            planned.rows_from, planned.rows_to, planned.columns_from, planned.columns_to, planned.sizes,
            call.source.address, call.other.address, target, call.out.address, tasks=planned.tasks,
        )  # fmt: skip
        return macs
