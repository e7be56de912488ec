"""patches: ConvV2 and KS-deconv-V2 in TF32 by tiles that are rectangles of positions times images.

A tile's positions are of one class of rows x one of columns, so their taps are the same and no product is with a zero
of padding; and they are neighbours, so their taps share pixels. These, the tile's patch, come to shared memory once for
16 channels, where the algorithm "tensor_cores" brings every pixel as often as it meets a tap: of a filter of 3 x 3 and
tiles of 4 x 4 positions, four times as many. Tiles of 256 rows halve what is brought of the filter. The kernel is
kernels/conv_patch_tf32.cu.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from alpha.cu32 import costs, tf32
from alpha.cu32.base import DeviceEngine, Launch
from alpha.cu32.compiler import Source
from alpha.cu32.conv import beginnings, patches, tensor_cores
from alpha.cu32.conv.patch_lists import DEPTH, PIXEL, RATE, PatchTiles, patch_tiles
from alpha.cu32.conv.problem import Problem
from alpha.cu32.conv.tiles import Gathering, Tiles, depth_and_width, sizes
from alpha.cu32.costs import LATENCY, Chip, Covered, Kernel, Tile, TilePlan
from alpha.cu32.structs import KernelStruct
from alpha.tensor import Tensor

PATCH_TABLES = KernelStruct("conv_patch.cuh", "PatchTables")

TILES = {Tile(256, 128, 16, 8, DEPTH): RATE, Tile(256, 64, 16, 8, DEPTH): 550.0, Tile(128, 128, 16, 8, DEPTH): RATE}
"""Tiles, and multiply-adds per cycle and multiprocessor with each where the caches keep up, about.

All warps have 64 x 64 sums. Those of the second bring twice as many pieces of a patch each, which takes instructions.
"""

RESIDENT = 256
"""Threads of a multiprocessor, by their registers."""

CONTENTION = 8
"""One cycle in so many that bringing operands takes is not hidden behind the multiply-adds."""

STATIC = 3072
"""Bytes of shared memory that a block has beside panels and patches, the driver's own counted in."""


@dataclass(frozen=True)
class PatchPlan(TilePlan):
    """One by tiles with patches.

    Attributes:
        capacity: rows that a patch may have, pixels times images.
        brought: bytes that the second-level cache brings the multiprocessors.
    """

    capacity: int = field(kw_only=True)
    brought: int = field(kw_only=True)

    __hash__ = TilePlan.__hash__

    @property
    def second_cache(self) -> int:
        return self.brought

    @property
    def listed(self) -> PatchTiles:
        """Its tiles."""
        found = _listed(self.problem, self.tile, self.capacity)
        assert found is not None  # a plan is made where there are some
        return found


class Patches(Tiles):
    """Problems whose factors may be rounded to TF32, of enough channels, whose patches fit into shared memory."""

    name = "patches"
    file = "conv_patch_tf32"

    def serves(self, problem: Problem) -> bool:
        return problem.high and tensor_cores.serves(problem)

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        return _source(plan.problem.operator, plan.tile, plan.problem.wide, normalised)

    def normalises(self, engine: DeviceEngine, plan: TilePlan) -> bool:
        problem: Problem = plan.problem
        return problem.group_in <= beginnings.MOST_CHANNELS

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[TilePlan]:
        found = [plan for tile in TILES for plan in _plans(problem, chip, tile, parts)]
        return sorted(found, key=lambda plan: plan.price)

    def issued(self, plan: TilePlan) -> int:
        assert isinstance(plan, PatchPlan)  # it is the algorithm's own
        problem: Problem = plan.problem
        return plan.listed.products * problem.group_in * problem.out_channels

    def prepared(self, engine: DeviceEngine, plan: TilePlan, normalised: bool) -> tuple[Launch, list[Tensor]]:
        assert isinstance(plan, PatchPlan)
        problem, listed, tile = plan.problem, plan.listed, plan.tile
        geometry, forward = problem.geometry, problem.forward
        key = ("patch tiles", geometry, forward, problem.images, tile, plan.capacity)
        place = engine.constant(key, lambda: listed.tiles)
        held = patches.gather_tables(engine, place, geometry, forward)
        tiles, _, row_members, _, column_members = (table.address for table in held)
        addresses = PATCH_TABLES.pack(tiles=tiles, row_members=row_members, column_members=column_members)
        column_tiles = math.ceil(depth_and_width(problem)[1] / tile.columns)
        grid = (len(listed.tiles) * problem.groups * column_tiles, plan.parts)
        constants = (addresses, sizes(plan, column_tiles), listed.largest * DEPTH)
        shared = _shared_bytes(tile, listed.largest, problem.wide) + (_table_bytes(problem) if normalised else 0)
        kernel = Gathering(self.source(plan, normalised), self.file, tile.threads, shared, normalised)
        return kernel.launch(problem, grid, constants), held


def _source(operator: str, tile: Tile, wide: bool, normalised: bool) -> Source:
    return tensor_cores.gather_source(Patches.file, operator, tile, wide, normalised)


SOURCES = tuple(
    _source(operator, tile, False, normalised)
    for operator, normalised in tensor_cores.variants(Patches.operators)
    for tile in TILES
)


def _listed(problem: Problem, tile: Tile, capacity: int) -> PatchTiles | None:
    return patch_tiles(problem.geometry, problem.forward, problem.images, tile, capacity)


def _row_bytes(wide: bool) -> int:
    """Shared memory for a patch's row: in two patches, and its place in the source."""
    return 2 * PIXEL + (8 if wide else 4)


def _shared_bytes(tile: Tile, rows: int, wide: bool) -> int:
    """Dynamic shared memory: two panels, and what patches of so many rows take."""
    return 2 * tile.columns * PIXEL + rows * _row_bytes(wide)


def _table_bytes(problem: Problem) -> int:
    """Shared memory for what channels are normalised by, where their number lets kernels do so."""
    channels = problem.group_in if problem.forward else 0
    return beginnings.table_bytes(channels, DEPTH) if 0 < channels <= beginnings.MOST_CHANNELS else 0


def _capacity(chip: Chip, tile: Tile, problem: Problem) -> int:
    """Rows that a patch may have, so that as many blocks fit a multiprocessor as their registers let."""
    room = min(chip.shared_per_block, chip.shared_per_multiprocessor * tile.threads // RESIDENT) - STATIC
    room -= _table_bytes(problem)
    return (room - _shared_bytes(tile, 0, problem.wide)) // _row_bytes(problem.wide)


def _plans(problem: Problem, chip: Chip, tile: Tile, parts: int | None) -> list[PatchPlan]:
    """Those of a tile, by default for numbers of parts that leave each of them some channels."""
    capacity = _capacity(chip, tile, problem)
    listed = _listed(problem, tile, capacity) if capacity > 0 else None
    if listed is None:
        return []
    depth, width = depth_and_width(problem)
    chunks, across = -(-depth // DEPTH), -(-width // tile.columns) * problem.groups
    taps, pixels = int(listed.taps.sum()), int(listed.pixels.sum())
    nbytes = PIXEL * chunks * across * (pixels + taps * tile.columns)
    steps = max(1, taps * chunks * across)
    kernel = _kernel(chip, tile, nbytes / steps)
    counts = sorted(Counter(listed.taps.tolist()).items(), reverse=True)

    def planned(number: int, parts: int | None) -> list[TilePlan]:
        """With steps that so many parts have equal shares of, as they are cut between two patches."""
        whole = -(-chunks // number) * number
        lengths = tuple((tiles * across, taps * whole) for taps, tiles in counts)
        return costs.plans(problem, chip, Patches.name, [Covered(kernel, lengths)], parts)

    numbers = {plan.parts for plan in planned(1, parts)}
    made = [planned(number, number)[0] for number in numbers if parts or number <= chunks]
    return [
        PatchPlan(
            problem,
            Patches.name,
            plan.cycles,
            plan.parts,
            tile=tile,
            load=plan.load,
            blocks=plan.blocks,
            useful=problem.products / (steps * tile.rows * tile.columns * DEPTH),
            capacity=capacity,
            brought=nbytes,
        )
        for plan in made
    ]


def _kernel(chip: Chip, tile: Tile, nbytes: float) -> Kernel:
    """As fast as its rate where the multiprocessor is full; slower where the caches must bring many bytes a step."""
    resident = RESIDENT // tile.threads
    rate = min(TILES[tile], 0.9 * tf32.PEAK.get(chip.capability, tf32.OTHER_PEAK))
    multiplying, bringing = tile.rows * tile.columns * DEPTH / rate, nbytes / chip.l2
    full = max(multiplying + bringing / CONTENTION, bringing)
    warps = resident * tile.threads / costs.WARP
    return Kernel(tile, tf32.LOAD, DEPTH, full * warps / (warps + LATENCY), resident)
