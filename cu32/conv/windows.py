"""window and threefold_window: Sk-dilated-V2 on the tensor cores by blocks that own neighbouring taps of a filter row.

Such a block walks along the rows of the output, so many images at a time. One panel of dy serves all its taps, and the
columns of x under them, its window, slide: a step brings only the new ones. So the second-level cache brings a third
to a half of what it brings where each tap has blocks of its own, which is what these are bound by in TF32.

The kernels are kernels/conv_window_tf32.cu and conv_window_threefold.cu.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha import caches
from alpha.cu32 import costs, tf32
from alpha.cu32.base import MAX_GRID_YZ, DeviceEngine, Launch
from alpha.cu32.compiler import Source
from alpha.cu32.conv import tables
from alpha.cu32.conv.problem import WIDE, Call, Problem
from alpha.cu32.conv.tensor_cores import SHALLOWEST, STAGES, macros
from alpha.cu32.conv.tiles_gradient import Leaping, TilesGradient, run_joined
from alpha.cu32.costs import LATENCY, WARP, Chip, Covered, Kernel, Lengths, Tile, TilePlan
from alpha.cu32.parts import together
from alpha.cu32.structs import KernelStruct
from alpha.cu32.tf32 import DEPTH
from alpha.geometry import Axis
from alpha.tensor import Tensor

SLIDING = KernelStruct("conv_window.cuh", "Sliding")

MOST_TAPS = 3
"""Taps of a block: the sums of more find no registers."""

SQUARE, TALL = Tile(64, 64, 8, 4, DEPTH), Tile(128, 64, 8, 8, DEPTH)
RESIDENT = {tf32.LOAD: {SQUARE: 3, TALL: 2}, tf32.THREEFOLD: {SQUARE: 2}}
"""Tiles of output by input channels, a tap's, by load; and the blocks whose registers fit into one multiprocessor."""

RATES = {tf32.LOAD: 560.0, tf32.THREEFOLD: 145.0}
"""Multiply-adds per cycle and multiprocessor where neither shared memory nor the caches hold them up, about."""

WARP_ROWS = 64
"""Output channels of a warp; the kernels say the same."""

FURTHEST = 2**30
"""Columns must be nearer than that to the first one, the padding's too: kernels count them in 32 bits."""


def _source(file: str, tile: Tile, taps: int, wide: bool, normalised: bool) -> Source:
    return Source(file, TAPS=taps, **macros(tile, wide, normalised))


SOURCES = tuple(
    _source(file, tile, taps, False, normalised)
    for file, load in (("conv_window_tf32", tf32.LOAD), ("conv_window_threefold", tf32.THREEFOLD))
    for tile in RESIDENT[load]
    for taps in range(2, MOST_TAPS + 1)
    for normalised in (False, True)
)


# -- what a block walks along ----------------------------------------------------------------------------------------


class TapRun(NamedTuple):
    """Neighbouring taps of a filter row, and a block's walk along a row of the output.

    Attributes:
        output, positions: the output columns at which one of the taps meets x.
        column: the one of x under the first tap at the first of them; it may lie in the padding.
        taps: how many they are.
        met: pairs of tap and position inside x.
        brought: columns of x that are brought on the way.
        slots: panels of x that shared memory must hold, the walk beginning again at its end.
    """

    output: int
    positions: int
    column: int
    taps: int
    met: int
    brought: int
    slots: int


def taps_of_run(axis: Axis) -> int:
    """Taps of a block: as few as make no more runs than the most would."""
    return -(-axis.filter // -(-axis.filter // MOST_TAPS))


@caches.kept
def tap_runs(axis: Axis) -> tuple[TapRun, ...]:
    """A filter row's taps in runs."""
    step = taps_of_run(axis)
    return tuple(_tap_run(axis, range(tap, min(tap + step, axis.filter))) for tap in range(0, axis.filter, step))


def _tap_run(axis: Axis, taps: range) -> TapRun:
    leaps = [leap for leap in map(axis.leap, taps) if leap]
    first, stop = min((leap.start for leap in leaps), default=0), max((leap.stop for leap in leaps), default=0)
    column, span = axis.source(first, taps.start), (len(taps) - 1) * axis.dilation + 1
    begins = column + np.arange(stop - first, dtype=np.int64) * axis.stride
    low, high = np.maximum(begins, 0), np.minimum(begins + span, axis.input)
    size = np.maximum(high - low, 0)
    new = size.copy()
    new[1:] = np.maximum(high[1:] - np.maximum(low[1:], high[:-1]), 0)
    held = size + sum(np.roll(new, -ahead) for ahead in range(1, STAGES))
    met = sum(map(len, leaps))
    return TapRun(first, stop - first, column, len(taps), met, int(new.sum()), int(held.max(initial=1)))


def _run_array(axis: Axis) -> np.ndarray[Any, Any]:
    """(runs, 4) int32 for a kernel: output, positions, column, taps."""
    return np.array([run[:4] for run in tap_runs(axis)], np.int32)


@dataclass(frozen=True)
class Walk:
    """What the blocks of one tile of channels do together: a sum over filter rows and runs of taps.

    Attributes:
        steps: of each filter row's runs, in order.
        met: pairs of a step and a tap that is inside x.
        brought: panels of x.
        slots: the ring's, of the run that needs most.
    """

    steps: tuple[int, ...]
    met: int
    brought: int
    slots: int

    @cached_property
    def total(self) -> int:
        """All steps."""
        return sum(self.steps)

    def panel_bytes(self, tile: Tile) -> int:
        """What is brought to shared memory."""
        return (self.total * tile.rows + self.brought * tile.columns) * DEPTH * 4


@caches.kept
def _walk(rows: Axis, columns: Axis, images: int) -> Walk:
    runs = tap_runs(columns)
    lines = [count * -(-images // DEPTH) for count in tables.by_tap(rows).count.tolist()]
    return Walk(
        tuple(number * run.positions for number in lines for run in runs),
        sum(lines) * sum(run.met for run in runs),
        sum(lines) * sum(run.brought for run in runs),
        max(run.slots for run in runs),
    )


def walk_of(problem: Problem) -> Walk:
    """The walk of a problem's tiles."""
    return _walk(problem.geometry.rows, problem.geometry.columns, problem.images)


def _tiles(problem: Problem, tile: Tile) -> tuple[int, int]:
    """Tiles along a group's input channels, and along its output channels."""
    return -(-problem.group_in // tile.columns), -(-problem.group_out // tile.rows)


# -- plans -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowPlan(TilePlan):
    """One by tiles for several taps at once."""

    __hash__ = TilePlan.__hash__

    @property
    def choice(self) -> str:
        return f"windows of {taps_of_run(self.problem.geometry.columns)} taps, {super().choice}"

    @property
    def second_cache(self) -> int:
        problem: Problem = self.problem
        across, down = _tiles(problem, self.tile)
        return walk_of(problem).panel_bytes(self.tile) * across * down * problem.groups


class _Launch(NamedTuple):
    """What a plan's launches have in common."""

    source: Source
    shared: int
    grid: tuple[int, int, int]
    sizes: bytes


class WindowGradient(TilesGradient):
    """Filter gradients whose factors may be rounded to TF32, of enough channels and images."""

    name = "window"
    file = "conv_window_tf32"
    loads: ClassVar[str] = tf32.LOAD

    def serves(self, problem: Problem) -> bool:
        return problem.high and _serves(problem)

    def normalises(self, engine: DeviceEngine, plan: TilePlan) -> bool:
        return True

    def kernels(self, problem: Problem, chip: Chip) -> Iterable[Kernel]:
        found = [tile for tile in RESIDENT[self.loads] if not (tile is TALL and _wide(problem))]  # it would spill
        walk = walk_of(problem)
        fitting = [tile for tile in found if _shared_bytes(walk, tile) <= chip.shared_per_block]
        return [_kernel(chip, tile, walk, self.loads) for tile in fitting]

    def lengths(self, problem: Problem, kernel: Kernel) -> Lengths:
        across, down = _tiles(problem, kernel.tile)
        return tuple((across * down * problem.groups, steps) for steps in walk_of(problem).steps)

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[TilePlan]:
        kernels = (Covered(kernel, self.lengths(problem, kernel)) for kernel in self.kernels(problem, chip))
        return [_window_plan(plan) for plan in costs.plans(problem, chip, self.name, kernels, parts)]

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        taps = taps_of_run(plan.problem.geometry.columns)
        return _source(self.file, plan.tile, taps, _wide(plan.problem), normalised)

    def shared_bytes(self, plan: TilePlan, normalised: bool = False) -> int:
        return _shared_bytes(walk_of(plan.problem), plan.tile)

    def run(self, engine: DeviceEngine, plan: TilePlan, call: Call) -> int:
        problem: Problem = plan.problem
        normalised = call.before is not None
        launch = engine.kept_launch((plan, normalised), lambda: self._tabled(engine, plan, normalised))
        run_joined(engine, plan, call, launch)
        return tables.leap_products(problem.geometry, problem.images) * problem.group_in * problem.out_channels

    def _tabled(self, engine: DeviceEngine, plan: TilePlan, normalised: bool) -> tuple[Launch, list[Tensor]]:
        """A plan's launch, and the tables that it reads."""
        made, g = _launch(self, plan, normalised), plan.problem.geometry
        held = [
            engine.constant(("runs", g.rows), tables.by_tap(g.rows).array),
            engine.constant(("tap runs", g.columns), lambda: _run_array(g.columns)),
        ]
        kernel = Leaping(made.source, self.file, plan.tile.threads, made.shared, normalised)
        return kernel.launch(made.grid, [*[table.address for table in held], made.sizes]), held


class ThreefoldWindowGradient(WindowGradient):
    """The same in float32, of long sums."""

    name = "threefold_window"
    file = "conv_window_threefold"
    loads = tf32.THREEFOLD

    def serves(self, problem: Problem) -> bool:
        return problem.threefold and _serves(problem)


def _serves(problem: Problem) -> bool:
    """Whether there are taps to share a window, and a half of a step's images and of a tile."""
    columns = problem.geometry.columns
    return (
        problem.vector
        and columns.filter > 1
        and min(problem.images, problem.group_in, problem.group_out) >= SHALLOWEST
        and columns.output * columns.stride + columns.extent + columns.padding[0] < FURTHEST
        and problem.geometry.filter[0] * len(tap_runs(columns)) <= MAX_GRID_YZ
    )


def _wide(problem: Problem) -> bool:
    """Whether offsets take 64 bits: places of images beyond the last are counted, though nothing is read there."""
    return problem.wide or 2 * DEPTH * max(problem.x_strides[0], problem.y_strides[0]) >= WIDE


def _window_plan(plan: TilePlan) -> WindowPlan:
    """The same plan of a walk, whose steps are of several taps but of fewer at the edges."""
    problem, tile = plan.problem, plan.tile
    across, down = _tiles(problem, tile)
    computed = walk_of(problem).met * DEPTH * tile.rows * tile.columns * across * down * problem.groups
    return WindowPlan(
        problem,
        plan.algorithm,
        plan.cycles,
        plan.parts,
        tile=tile,
        load=plan.load,
        blocks=plan.blocks,
        useful=problem.products / max(1, computed),
    )


def _shared_bytes(walk: Walk, tile: Tile) -> int:
    """The stages of dy, and the ring of x."""
    return (STAGES * tile.rows + walk.slots * tile.columns) * DEPTH * 4


def _kernel(chip: Chip, tile: Tile, walk: Walk, load: str) -> Kernel:
    """As long as a mean step's products take, or its reads of shared memory, or until the caches have brought it."""
    steps = max(1, walk.total)
    panels, taps = walk.panel_bytes(tile) / steps, walk.met / steps
    count = 3 if load == tf32.THREEFOLD else 1
    rate = min(RATES[load], 0.9 * tf32.PEAK.get(chip.capability, tf32.OTHER_PEAK) / count)
    across = tf32.THREADS // WARP * WARP_ROWS // tile.rows  # warps side by side
    # A warp reads 32 elements at once, of the 64 output channels by 8 terms once, of its input channels for each tap.
    fragments = (WARP_ROWS + taps * tile.columns / across) * 8 / WARP
    shared = DEPTH / 8 * tf32.THREADS / WARP * fragments + panels / 128
    full = max(taps * tile.rows * tile.columns * DEPTH / rate, shared, panels / chip.l2)
    held = chip.shared_per_multiprocessor // (_shared_bytes(walk, tile) + 2048)  # as for all of the tensor cores'
    resident = max(1, min(held, RESIDENT[load][tile]))
    warps = resident * tf32.THREADS / WARP
    return Kernel(tile, load, DEPTH, full * warps / (warps + LATENCY), resident)


@caches.kept
def _launch(algorithm: WindowGradient, plan: TilePlan, normalised: bool) -> _Launch:
    p: Problem = plan.problem
    in_tiles, out_tiles = _tiles(p, plan.tile)
    (x_image, x_row, x_column), (y_image, y_row, y_column) = p.x_strides, p.y_strides
    (height, width), columns = p.geometry.filter, p.geometry.columns
    runs = len(tap_runs(columns))
    sizes = SLIDING.pack(
        images=p.images,
        in_width=p.group_in,
        out_width=p.group_out,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        filter_columns=width,
        runs=runs,
        columns=columns.input,
        stride=columns.stride,
        dilation=columns.dilation,
        slots=walk_of(p).slots,
        x_image=x_image,
        x_row=x_row,
        x_column=x_column,
        x_step_row=x_row * p.geometry.rows.stride,
        y_image=y_image,
        y_row=y_row,
        y_column=y_column,
        parts=plan.parts,
        together=together(plan.parts),
        part_stride=p.results,
        aligned=p.group_in % 4 == 0,
    )
    grid = (p.groups * out_tiles * in_tiles, height * runs, plan.parts)
    return _Launch(algorithm.source(plan, normalised), algorithm.shared_bytes(plan), grid, sizes)
