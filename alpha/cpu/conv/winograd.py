"""winograd, winograd3, winograd4: Winograd's products, for tiles of 2 x 2, 3 x 3 and 4 x 4 results.

Their images may be bfloat16 in memory. ``winograd_words`` is the first of them with transformed inputs and filters
rounded to bfloat16, where products may be of such factors. Filter gradients are in ``winograd_gradient``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alpha import caches
from alpha.composed.arrays import cast
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call, filter_numbers
from alpha.cpu.conv.blocking import MIN_TASKS
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import check_offsets, extent
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import pairs as pair_kernels
from alpha.cpu.kernels import winograd as kernels
from alpha.cpu.kernels import winograd_stages
from alpha.cpu.kernels.pairs import WORD
from alpha.cpu.kernels.winograd import PLAIN, Halves, WinogradSizes, operations
from alpha.cpu.kernels.winograd_forms import FORMS, Form
from alpha.cpu.kernels.winograd_stages import StageSizes
from alpha.dtypes import DType, float32, is_brain
from alpha.errors import EngineError
from alpha.geometry import Axis
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

VALUES_BYTES = 160 << 10
"""About how many bytes of transformed inputs a task has: they stay in the L2 cache while every filter uses them."""

MAX_ROWS = 48
"""Most tiles times images per task."""

STAGED_BYTES = 12 << 20
"""With so many bytes of filters or more, reading them for each task's few rows costs more than stages do."""

STAGED_VALUES = 24 << 20
"""Most bytes of transformed inputs at a time: about what the last cache holds."""

CHUNK_BYTES = 256 << 10
"""About how many bytes of rows a task of the staged products has: they stay in the L2 cache."""

GROUP_BYTES = 128 << 10
"""About how many bytes its panels have at one place: they stay in the L2 cache too."""


@dataclass(frozen=True)
class WinogradPlan:
    """Tables and sizes of a convolution (``by_output``) or an input gradient.

    Attributes:
        form: the matrices.
        halves: what of it is bfloat16.
        rows_from: offsets of each tile row's source rows, -1 outside.
        rows_to: offsets of its target rows, -1 outside; ``columns_from`` and ``columns_to`` likewise.
        packed_shape: (all groups' panels, places, depth, panel width) of the transformed filters.
        macs: products that it computes.
        stages: where inputs, products and results are stages of their own, their sizes for some images after others.
    """

    form: Form
    halves: Halves
    rows_from: Array
    rows_to: Array
    columns_from: Array
    columns_to: Array
    sizes: WinogradSizes
    packed_shape: tuple[int, ...]
    by_output: bool
    macs: int
    stages: tuple[StageSizes, ...]

    def product_tasks(self, stages: StageSizes) -> int:
        """Tasks of a stage's products."""
        return (
            self.form.places * math.ceil(stages.rows / stages.chunk) * math.ceil(self.packed_shape[0] / stages.panels)
        )

    @cached_property
    def tasks(self) -> int:
        """Groups of tiles times chunks of images, without stages."""
        tiles = len(self.rows_to) * len(self.columns_to)
        return math.ceil(tiles / self.sizes.tiles) * math.ceil(self.sizes.images / self.sizes.chunk)


def serves(problem: Problem, results: int = 2) -> bool:
    """Whether the algorithm can compute it: a form exists, float32, the source's images are neighbours."""
    source = problem.sides[0]
    fits = problem.item == 4 and (problem.images == 1 or source.strides[0] == source.channels * problem.groups)
    return fits and form_of(problem, results) is not None


def form_of(problem: Problem, results: int) -> Form | None:
    """The form for both axes with ``results`` results per run of taps; None if there is none."""
    by_output, axes = problem.by_output, (problem.geometry.rows, problem.geometry.columns)
    if any(axis.dilation > 1 and axis.stride > 1 for axis in axes):
        return None
    keys = {(by_output, axis.filter, axis.stride, 0 if by_output else axis.padding[0] % axis.stride) for axis in axes}
    key = keys.pop()
    return None if keys else FORMS[results].get(key)


@caches.kept
def plan(problem: Problem, results: int = 2, halves: Halves = PLAIN) -> WinogradPlan:
    """The plan of a problem that it serves."""
    form = form_of(problem, results)
    if form is None:
        raise EngineError(f"[winograd] expected a problem that has a form, got {problem.geometry}: ask serves first")
    g, groups, by_output = problem.geometry, problem.groups, problem.by_output
    read, factor, written = [2 if is_half else problem.item for is_half in halves]
    reads, writes = problem.sides
    depth, channels = reads.channels, writes.channels
    source, target = [step * read for step in reads.strides], [step * written for step in writes.strides]
    rows_from, rows_to = tile_offsets(g.rows, form, by_output, source[1], target[1])
    columns_from, columns_to = tile_offsets(g.columns, form, by_output, source[2], target[2])
    tiles = len(rows_to) * len(columns_to)
    chunk, together = _blocking(problem.images, tiles, form.places * groups * depth * factor)
    width = ISA.panel(problem.item)
    sizes = WinogradSizes(
        images=problem.images,
        chunk=chunk,
        tiles=together,
        tile_columns=len(columns_to),
        groups=groups,
        depth=depth,
        channels=channels,
        panel=width,
        source_image=source[0],
        target_image=target[0],
    )
    limit = extent((problem.images, *reads.size), groups * depth, reads.strides, read)
    run = (problem.images - 1) * source[0] + groups * depth * read
    check_offsets("the source", (inside(rows_from), inside(columns_from)), run, limit)
    limit = extent((problem.images, *writes.size), groups * channels, writes.strides, written)
    run = (problem.images - 1) * target[0] + groups * channels * written
    check_offsets("the target", (inside(rows_to), inside(columns_to)), run, limit)
    shape = (groups * math.ceil(channels / width), form.places, depth, width)
    macs = form.places * tiles * problem.images * groups * depth * channels
    stages = _stages(sizes, tiles, form.places, factor, math.prod(shape) * factor)
    offsets = rows_from, rows_to, columns_from, columns_to
    return WinogradPlan(form, halves, *offsets, sizes, shape, by_output, macs, stages)


def _stages(sizes: WinogradSizes, tiles: int, places: int, factor: int, filter_bytes: int) -> tuple[StageSizes, ...]:
    """The stages of a problem that is faster with them. A tile's inputs are then whole vectors."""
    row, lanes = sizes.depth * factor, ISA.lanes(4)
    unit = lanes // math.gcd(lanes, sizes.depth)  # images of whole vectors
    if filter_bytes < STAGED_BYTES or sizes.images % unit or sizes.groups > 1:
        return ()
    at_a_time = max(1, STAGED_VALUES // (places * tiles * row * unit)) * unit
    parts = math.ceil(sizes.images / at_a_time)
    images = math.ceil(sizes.images / parts / unit) * unit
    return tuple(
        _stage(first, min(images, sizes.images - first), tiles, row, sizes.panel)
        for first in range(0, sizes.images, images)
    )


def _stage(first: int, images: int, tiles: int, row: int, panel: int) -> StageSizes:
    """The stage of some images with ``row`` bytes of channels per pixel."""
    rows = tiles * images
    most = max(ISA.rows, CHUNK_BYTES // row // ISA.rows * ISA.rows)
    chunk = math.ceil(rows / math.ceil(rows / most) / ISA.rows) * ISA.rows
    # A cache line between places keeps them in different sets of the caches.
    step = math.ceil(rows * row / 64) * 64 + 64
    return StageSizes(first, images, tiles, rows, chunk, max(1, GROUP_BYTES // (row * panel)), step)


def tile_offsets(axis: Axis, form: Form, by_output: bool, source_step: int, target_step: int) -> tuple[Array, Array]:
    """Offsets that tiles read and write along an axis, -1 outside.

    Taps ``dilation`` apart combine results that far apart: each remainder of the dilation has separate tiles.
    """
    sizes, first = (axis.input, axis.output), -axis.padding[0]
    if not by_output:
        sizes, first = (axis.output, axis.input), axis.padding[0] // axis.stride
    phases = np.arange(min(axis.dilation, sizes[1]), dtype=np.int64)
    results = -(-(sizes[1] - phases) // axis.dilation)
    tiles = -(-results // form.result_step)
    phase = np.repeat(phases, tiles)[:, None]
    tile = (np.arange(len(phase), dtype=np.int64) - np.repeat(np.cumsum(tiles) - tiles, tiles))[:, None]
    inputs = form.first_input + form.input_step * tile + np.arange(form.inputs)
    read = first + phase + axis.dilation * inputs
    write = phase + axis.dilation * (form.result_step * tile + np.arange(form.results))
    return (
        np.where((read >= 0) & (read < sizes[0]), read * source_step, -1),
        np.where(write < sizes[1], write * target_step, -1),
    )


def inside(offsets: Array) -> Array:
    """The offsets without those of positions outside."""
    return offsets[offsets >= 0]


def _blocking(images: int, tiles: int, nbytes: int) -> tuple[int, int]:
    """Images and tiles per task, in equal chunks and whole register tiles; ``nbytes``: per tile and image."""
    rows = VALUES_BYTES // nbytes
    rows = max(ISA.rows, min(MAX_ROWS, rows) // ISA.rows * ISA.rows)
    if images > rows:
        chunks = math.ceil(images / rows)
        return math.ceil(images / chunks / ISA.rows) * ISA.rows, 1
    return images, max(1, min(rows // images, tiles // MIN_TASKS))


class Winograd(Algorithm):
    """Winograd's algorithm: products of sums of inputs with sums of filters, fewer than there are pairs of numbers.

    ``results``: results per run of taps along an axis.
    """

    operators = (FORWARD, INPUT_GRAD)
    exact = False
    reads_halves = True
    title = " by Winograd's products"

    def __init__(self, name: str, results: int) -> None:
        self.name, self.results = name, results

    def serves(self, problem: Problem) -> bool:
        return serves(problem, self.results)

    def plan(self, problem: Problem) -> WinogradPlan:
        return plan(problem, self.results, PLAIN._replace(factors=self.rounds))

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = self.plan(problem)
        factor = 2 if self.rounds else 4
        s, panels, places = planned.sizes, planned.packed_shape[0], planned.form.places
        tiles, depth = len(planned.rows_to) * len(planned.columns_to), s.depth * factor // 4
        vectors = tiles * s.images * s.groups * s.depth / ISA.lanes(4)
        transforms = vectors * operations(planned.form.b)
        transforms += tiles * s.images * panels * ISA.vectors * operations(planned.form.a)
        transforms *= figures.transform_cycles_per_operation
        filter_bytes = math.prod(planned.packed_shape) * factor
        packing = costs.packing(filter_bytes, factor, packs, figures)
        if planned.stages:
            chunks = sum(math.ceil(stages.rows / stages.chunk) for stages in planned.stages)
            terms, made = costs.terms(math.ceil(tiles * s.images / chunks), figures.fmas_per_cycle)
            products = chunks * panels * places * (terms * depth + made * figures.tile_cycles)
            values = places * tiles * s.images * (factor * s.depth + 4 * s.channels)
            moved = costs.moved(2 * values, values / len(planned.stages), figures)
            computing = products + transforms + moved
            return costs.with_reading(computing, len(planned.stages), filter_bytes, figures) + packing
        groups = math.ceil(tiles / s.tiles)
        terms, made = costs.in_chunks(s.images, s.chunk, figures.fmas_per_cycle, factor=s.tiles)
        products = groups * panels * places * (terms * depth + made * figures.tile_cycles)
        passes = groups * math.ceil(s.images / s.chunk)
        return costs.with_reading(products + transforms, passes, filter_bytes, figures) + packing

    def describe(self, problem: Problem) -> str:
        planned = self.plan(problem)
        cut = f"tasks of {planned.sizes.tiles} tiles x {planned.sizes.chunk} images"
        if planned.stages:
            cut = f"in stages, {planned.stages[0].chunk} rows per task"
        return f"{planned.macs / 1e9:.4g} G products instead, {cut}"

    def tasks(self, problem: Problem) -> int:
        """Tasks; with stages, those of the first stage's products."""
        planned = self.plan(problem)
        return planned.product_tasks(planned.stages[0]) if planned.stages else planned.tasks

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        halves = Halves(is_brain(call.source.dtype), self.rounds, is_brain(call.out.dtype))
        planned, w = plan(problem, self.results, halves), call.other
        shape = planned.packed_shape
        if self.rounds:
            shape = (*shape[:2], shape[2] // 2, shape[3])
        kind: DType = WORD if self.rounds else float32
        how = planned.form.name + " of words" * self.rounds
        packed = filters.kept(engine, w, shape, how, lambda packed: _transform(engine, w, planned, packed), dtype=kind)
        if planned.stages:
            return sum(_run_stages(engine, planned, stages, call, packed) for stages in planned.stages)
        macs: int = engine.launch(
            kernels.winograd, *_tag_and_slope(planned, call), kernels.transforms(planned.form, halves),
            planned.rows_from, planned.rows_to, planned.columns_from, planned.columns_to, planned.sizes,
            call.source.address, packed.address, *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs

    def accesses(self, problem: Problem, packs: bool) -> int:
        """Numbers read and written: tiles' inputs, transformed inputs, products, results and transformed filters."""
        planned, (source, target) = self.plan(problem), problem.sides
        tiles, form = len(planned.rows_to) * len(planned.columns_to) * problem.images, planned.form
        inputs = tiles * (form.inputs**2 + 2 * form.places) * source.channels * problem.groups
        products = 2 * tiles * form.places * target.channels * problem.groups
        results = problem.images * math.prod(target.size) * target.channels * problem.groups
        packed = math.prod(planned.packed_shape)
        return inputs + products + results + packed + (filter_numbers(problem) + packed if packs else 0)


class WinogradOfWords(Winograd):
    """The same with transformed inputs and filters rounded to bfloat16, in words of two neighbouring channels.

    For filters of 3 x 3 and stride 1. Larger tiles would not do: what rounding leaves of an error in the result is 2 %
    for tiles of 4 x 4, and 0.3 % for those of 2 x 2.
    """

    rounds = True

    def serves(self, problem: Problem) -> bool:
        axes = problem.geometry.rows, problem.geometry.columns
        fits = all(axis.filter == 3 and axis.stride == 1 for axis in axes) and problem.sides[0].channels % 2 == 0
        return problem.rounds and fits and serves(problem, self.results)


def _tag_and_slope(plan: WinogradPlan, call: Call) -> tuple[Any, Any]:
    """A number of the type of the products' factors, and the slope."""
    tag = WORD.type(0) if plan.halves.factors else np.float32(0)
    return tag, np.float32(call.slope or 0)


def _transform(engine: HostEngine, w: Tensor, plan: WinogradPlan, packed: Tensor) -> None:
    """The transformed filters in the plan's panels."""
    kernel = kernels.pack_by_output if plan.by_output else kernels.pack_by_input
    w = engine.dense(cast(engine, w, float32), range(4))
    made = engine.empty(plan.packed_shape) if plan.halves.factors else packed
    engine.launch(
        kernel, np.float32(0), kernels.transforms(plan.form, plan.halves), w.address, plan.sizes, made.address
    )
    if made is not packed:
        panels, places, depth, width = plan.packed_shape
        words = panels * places * (depth // 2)
        engine.launch(
            pair_kernels.pair_rows, np.float32(0), 4, made.address, panels * places, depth, width, packed.address,
            tasks=-(-words // pair_kernels.TASK_ROWS),
        )  # fmt: skip


def _run_stages(engine: HostEngine, plan: WinogradPlan, stages: StageSizes, call: Call, w: Tensor) -> int:
    """Computes some images in stages: all inputs, then all products, then all results."""
    form, places, (tag, slope) = (
        kernels.transforms(plan.form, plan.halves),
        plan.form.places,
        _tag_and_slope(plan, call),
    )
    values = engine.empty((places * stages.step // 4,))
    products = engine.empty((plan.packed_shape[0] * places * stages.rows * plan.sizes.panel,))
    engine.launch(
        winograd_stages.inputs, form, plan.rows_from, plan.columns_from, plan.sizes, stages,
        call.source.address, values.address, tasks=stages.tiles,
    )  # fmt: skip
    macs: int = engine.launch(
        winograd_stages.products, tag, form, plan.sizes, stages, values.address, w.address,
        products.address, tasks=plan.product_tasks(stages),
    )  # fmt: skip
    engine.launch(
        winograd_stages.results, slope, form, plan.rows_to, plan.columns_to, plan.sizes, stages,
        products.address, *call.result_arguments, tasks=stages.tiles,
    )  # fmt: skip
    return macs
