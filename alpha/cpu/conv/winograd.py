"""winograd, winograd3, winograd4: Winograd's products, for tiles of 2 x 2, 3 x 3 and 4 x 4 results, in float32.

Their filter gradients are in ``winograd_gradient``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from alpha import caches
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import costs, filters
from alpha.cpu.conv.algorithm import Algorithm, Call, filter_numbers
from alpha.cpu.conv.blocking import MIN_TASKS
from alpha.cpu.conv.problem import Problem
from alpha.cpu.conv.tables import check_offsets, extent
from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import winograd as kernels
from alpha.cpu.kernels import winograd_stages
from alpha.cpu.kernels.winograd import WinogradSizes, operations
from alpha.cpu.kernels.winograd_forms import FORMS, Form
from alpha.cpu.kernels.winograd_stages import StageSizes
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
        rows_from: offsets of each tile row's source rows, -1 outside.
        rows_to: offsets of its target rows, -1 outside; ``columns_from`` and ``columns_to`` likewise.
        packed_shape: (all groups' panels, places, depth, panel width) of the transformed filters.
        macs: products that it computes.
        stages: where inputs, products and results are stages of their own, their sizes for some images after others.
    """

    form: Form
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
def plan(problem: Problem, results: int = 2) -> WinogradPlan:
    """The plan of a problem that it serves."""
    form = form_of(problem, results)
    if form is None:
        raise EngineError(f"[winograd] expected a problem that has a form, got {problem.geometry}: ask serves first")
    g, item, groups, by_output = problem.geometry, problem.item, problem.groups, problem.by_output
    reads, writes = problem.sides
    depth, channels = reads.channels, writes.channels
    source, target = ([step * item for step in side.strides] for side in problem.sides)
    rows_from, rows_to = tile_offsets(g.rows, form, by_output, source[1], target[1])
    columns_from, columns_to = tile_offsets(g.columns, form, by_output, source[2], target[2])
    tiles = len(rows_to) * len(columns_to)
    chunk, together = _blocking(problem.images, tiles, form.places * groups * depth)
    width = ISA.panel(item)
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
    limit = extent((problem.images, *reads.size), groups * depth, reads.strides, item)
    run = (problem.images - 1) * source[0] + groups * depth * item
    check_offsets("the source", (inside(rows_from), inside(columns_from)), run, limit)
    limit = extent((problem.images, *writes.size), groups * channels, writes.strides, item)
    run = (problem.images - 1) * target[0] + groups * channels * item
    check_offsets("the target", (inside(rows_to), inside(columns_to)), run, limit)
    shape = (groups * math.ceil(channels / width), form.places, depth, width)
    macs = form.places * tiles * problem.images * groups * depth * channels
    stages = _stages(sizes, tiles, form.places, math.prod(shape) * item)
    return WinogradPlan(form, rows_from, rows_to, columns_from, columns_to, sizes, shape, by_output, macs, stages)


def _stages(sizes: WinogradSizes, tiles: int, places: int, filter_bytes: int) -> tuple[StageSizes, ...]:
    """The stages of a problem that is faster with them. A tile's inputs are then whole vectors."""
    row = sizes.depth * 4
    unit = ISA.bytes // math.gcd(ISA.bytes, row)  # images of whole vectors
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


def _blocking(images: int, tiles: int, numbers: int) -> tuple[int, int]:
    """Images and tiles per task, in equal chunks and whole register tiles; ``numbers``: per tile and image."""
    rows = VALUES_BYTES // (numbers * 4)
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
    title = " by Winograd's products"

    def __init__(self, name: str, results: int) -> None:
        self.name, self.results = name, results

    def serves(self, problem: Problem) -> bool:
        return serves(problem, self.results)

    def plan(self, problem: Problem) -> WinogradPlan:
        return plan(problem, self.results)

    def cycles(self, problem: Problem, packs: bool, figures: Figures) -> float:
        planned = plan(problem, self.results)
        s, panels, places = planned.sizes, planned.packed_shape[0], planned.form.places
        tiles = len(planned.rows_to) * len(planned.columns_to)
        vectors = tiles * s.images * s.groups * s.depth / ISA.lanes(4)
        transforms = vectors * operations(planned.form.b)
        transforms += tiles * s.images * panels * ISA.vectors * operations(planned.form.a)
        transforms *= figures.transform_cycles_per_operation
        filter_bytes = math.prod(planned.packed_shape) * 4
        packing = costs.packing(filter_bytes, 4, packs, figures)
        if planned.stages:
            chunks = sum(math.ceil(stages.rows / stages.chunk) for stages in planned.stages)
            terms, made = costs.terms(math.ceil(tiles * s.images / chunks), figures.fmas_per_cycle)
            products = chunks * panels * places * (terms * s.depth + made * figures.tile_cycles)
            values = 4 * places * tiles * s.images * (s.depth + s.channels)
            moved = costs.moved(2 * values, values / len(planned.stages), figures)
            computing = products + transforms + moved
            return costs.with_reading(computing, len(planned.stages), filter_bytes, figures) + packing
        groups = math.ceil(tiles / s.tiles)
        terms, made = costs.in_chunks(s.images, s.chunk, figures.fmas_per_cycle, factor=s.tiles)
        products = groups * panels * places * (terms * s.depth + made * figures.tile_cycles)
        passes = groups * math.ceil(s.images / s.chunk)
        return costs.with_reading(products + transforms, passes, filter_bytes, figures) + packing

    def describe(self, problem: Problem) -> str:
        planned = plan(problem, self.results)
        cut = f"tasks of {planned.sizes.tiles} tiles x {planned.sizes.chunk} images"
        if planned.stages:
            cut = f"in stages, {planned.stages[0].chunk} rows per task"
        return f"{planned.macs / 1e9:.4g} G products instead, {cut}"

    def tasks(self, problem: Problem) -> int:
        """Tasks; with stages, those of the first stage's products."""
        planned = plan(problem, self.results)
        return planned.product_tasks(planned.stages[0]) if planned.stages else planned.tasks

    def run(self, engine: HostEngine, problem: Problem, call: Call) -> int:
        planned = plan(problem, self.results)
        w = call.other
        packed = filters.kept(
            engine, w, planned.packed_shape, planned.form.name, lambda packed: _transform(engine, w, planned, packed)
        )
        if planned.stages:
            return sum(_run_stages(engine, planned, stages, call, packed) for stages in planned.stages)
        macs: int = engine.launch(
            kernels.winograd, call.tag, kernels.transforms(planned.form), planned.rows_from, planned.rows_to,
            planned.columns_from, planned.columns_to, planned.sizes, call.source.address, packed.address,
            *call.result_arguments, tasks=planned.tasks,
        )  # fmt: skip
        return macs

    def accesses(self, problem: Problem, packs: bool) -> int:
        """Numbers read and written: tiles' inputs, transformed inputs, products, results and transformed filters."""
        planned, (source, target) = plan(problem, self.results), problem.sides
        tiles, form = len(planned.rows_to) * len(planned.columns_to) * problem.images, planned.form
        inputs = tiles * (form.inputs**2 + 2 * form.places) * source.channels * problem.groups
        products = 2 * tiles * form.places * target.channels * problem.groups
        results = problem.images * math.prod(target.size) * target.channels * problem.groups
        packed = math.prod(planned.packed_shape)
        return inputs + products + results + packed + (filter_numbers(problem) + packed if packs else 0)


def _transform(engine: HostEngine, w: Tensor, plan: WinogradPlan, packed: Tensor) -> None:
    """The transformed filters in the plan's panels."""
    kernel = kernels.pack_by_output if plan.by_output else kernels.pack_by_input
    w = engine.dense(w, range(4))
    engine.launch(kernel, w.dtype.type(0), kernels.transforms(plan.form), w.address, plan.sizes, packed.address)


def _run_stages(engine: HostEngine, plan: WinogradPlan, stages: StageSizes, call: Call, w: Tensor) -> int:
    """Computes some images in stages: all inputs, then all products, then all results."""
    form, places = kernels.transforms(plan.form), plan.form.places
    values = engine.empty((places * stages.step // 4,))
    products = engine.empty((plan.packed_shape[0] * places * stages.rows * plan.sizes.panel,))
    engine.launch(
        winograd_stages.inputs, form, plan.rows_from, plan.columns_from, plan.sizes, stages,
        call.source.address, values.address, tasks=stages.tiles,
    )  # fmt: skip
    macs: int = engine.launch(
        winograd_stages.products, call.tag, places, plan.sizes, stages, values.address, w.address,
        products.address, tasks=plan.product_tasks(stages),
    )  # fmt: skip
    engine.launch(
        winograd_stages.results, call.tag, form, plan.rows_to, plan.columns_to, plan.sizes, stages,
        products.address, *call.result_arguments, tasks=stages.tiles,
    )  # fmt: skip
    return macs
