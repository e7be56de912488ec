"""tiles: ConvV2 and KS-deconv-V2 by blocks that own a tile of rows of one trim by channels: kernels/conv.cu.

One list of tiles over all classes of equal trim makes one launch, whose blocks sum over just the taps of their class.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from alpha import caches
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import costs
from alpha.cu32.base import DeviceEngine, Launch
from alpha.cu32.compiler import Source
from alpha.cu32.conv import beginnings, endings, patches, tables
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.problem import Call, Problem
from alpha.cu32.costs import COPIED, Chip, Covered, Kernel, Lengths, Moving, Tile, TilePlan, float_kernel
from alpha.cu32.parts import joining, together
from alpha.cu32.structs import KernelStruct
from alpha.tensor import Tensor

GATHER = KernelStruct("tile.cuh", "Gather")

FLAT_LIMIT = 1024
"""Taps times channels that conv.cu's table of offsets holds."""

PENALTY = {"VECTOR": 1.0, "FLAT": 1.2, "SCALAR": 1.3}
"""What loading one element at a time costs."""

LARGE, TALL, SQUARE, NARROW, SMALL = (
    Tile(128, 128, 8, 8),
    Tile(128, 64, 8, 8),
    Tile(64, 64, 8, 4),
    Tile(128, 32, 8, 4),
    Tile(64, 32, 8, 4),
)
DEEP = Tile(64, 64, 8, 4, 32)
"""With half as many barriers as SQUARE, where there are channels for it."""
DOUBLE = Tile(64, 64, 4, 4)
TILES = {
    "VECTOR": (LARGE, TALL, DEEP, SQUARE, NARROW, SMALL),
    "FLAT": (DEEP, SQUARE, NARROW, SMALL),
    "SCALAR": (LARGE, SQUARE, SMALL),
}
"""Tiles of float32 by the way the kernel loads."""

_FILTERS = {FORWARD: "BY_DEPTH", INPUT_GRAD: "BY_WIDTH"}


def _source(operator: str, real: str, tile: Tile, load: str, wide: bool = False) -> Source:
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    return Source(
        "conv", REAL=real, LOAD=load, FILTER=_FILTERS[operator], **tile.macros, TILE_DEPTH=tile.depth, **offset
    )


def _spills(tile: Tile, load: str) -> bool:
    """Whether offsets of 64 bits are more than a kernel of float32 has registers for."""
    return tile is LARGE and load == "SCALAR"


_KERNELS = [("float", tile, load) for load, listed in TILES.items() for tile in listed]
_KERNELS += [("double", DOUBLE, load) for load in ("FLAT", "SCALAR")]
SOURCES = tuple(
    _source(operator, real, tile, load, wide)
    for real, tile, load in _KERNELS
    for operator in _FILTERS
    for wide in (False, True)
    if not (wide and (load == "FLAT" or _spills(tile, load)))  # FLAT's table of offsets holds 32 bits
)


class _Launch(NamedTuple):
    """What a plan's launches have in common."""

    source: Source
    shared: int
    tiles: Any
    grid: tuple[int, int]
    sizes: bytes
    macs: int


class TileAlgorithm(Algorithm):
    """Blocks that compute tiles of a result, in float32 and float64.

    Attributes:
        tiles: those of float32, by the way the kernel loads.
        moving: how operands reach shared memory.
    """

    tiles: ClassVar[Mapping[str, Sequence[Tile]]]
    moving: ClassVar[Moving] = COPIED

    @abstractmethod
    def load(self, problem: Problem) -> str:
        """The way operands are read."""

    @abstractmethod
    def lengths(self, problem: Problem, kernel: Kernel) -> Lengths:
        """The blocks of one part."""

    @abstractmethod
    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        """The kernel's source for a plan; ``normalised``: of one that normalises what it reads."""

    def kernels(self, problem: Problem, chip: Chip) -> Iterable[Kernel]:
        """The kernels that serve a problem on a device."""
        load = self.load(problem)
        if problem.item == 8:
            return [float_kernel(chip, DOUBLE, load, 2 * PENALTY[load], 2, self.moving)]
        return [float_kernel(chip, tile, load, PENALTY[load], None, self.moving) for tile in self.tiles[load]]

    def shared_bytes(self, plan: TilePlan, normalised: bool = False) -> int:
        """Dynamic shared memory of a block."""
        return 0

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[TilePlan]:
        kernels = (Covered(kernel, self.lengths(problem, kernel)) for kernel in self.kernels(problem, chip))
        return costs.plans(problem, chip, self.name, kernels, parts)

    def describe(self, plan: TilePlan) -> str:
        return plan.choice


class _Bound(NamedTuple):
    """What is the same at each launch of a plan.

    Attributes:
        launch: what is launched.
        down, across: tiles of rows, and tiles along all channels, of the result.
        issued: multiply-adds.
    """

    launch: Launch
    down: int
    across: int
    issued: int


class Tiles(TileAlgorithm):
    """Every convolution and input gradient."""

    name = "tiles"
    file: ClassVar[str] = "conv"
    tiles = TILES

    def kernels(self, problem: Problem, chip: Chip) -> Iterable[Kernel]:
        found = super().kernels(problem, chip)
        return [one for one in found if not (problem.wide and _spills(one.tile, one.load))]

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        p = plan.problem
        return _source(p.operator, p.real, plan.tile, plan.load, p.wide)

    def load(self, problem: Problem) -> str:
        depth = problem.group_in if problem.forward else problem.group_out
        shallow = depth < 8 or not problem.vector
        if shallow and not problem.wide and math.prod(problem.geometry.filter) * depth <= FLAT_LIMIT and depth % 8:
            return "FLAT"
        return "VECTOR" if problem.vector else "SCALAR"

    def lengths(self, problem: Problem, kernel: Kernel) -> Lengths:
        g, tile = problem.geometry, kernel.tile
        depth, width = depth_and_width(problem)
        listed = tables.tiles(g.rows, g.columns, problem.forward, problem.images, tile.rows)
        counts = sorted(Counter(listed.taps.tolist()).items(), reverse=True)
        across = -(-width // tile.columns) * problem.groups
        return tuple((number * across, self.steps(kernel, taps, depth)) for taps, number in counts)

    def steps(self, kernel: Kernel, taps: int, depth: int) -> int:
        """The steps of a block of so many taps, each of so many summed channels."""
        return -(-taps * depth // kernel.depth) if kernel.load == "FLAT" else taps * -(-depth // kernel.depth)

    def run(self, engine: DeviceEngine, plan: TilePlan, call: Call) -> int:
        begins = beginnings.beginning(call.before)
        normalised = call.before is not None
        bound = engine.kept_launch((plan, normalised), lambda: self._bound(engine, plan, normalised))
        parts = joining(engine, plan.parts, call.out, bound.launch.grid[0])
        ending = call.ending
        if ending is None:
            tensors, numbers = endings.NOTHING[plan.problem.operator]
        else:
            ending.taken = True
            tensors, numbers = ending.arguments(engine, bound.down, bound.across, parts.counters)
        images = call.source, call.other, call.out, call.bias
        engine.run(bound.launch, (*images, *parts.tensors, *begins.tensors, *tensors), *numbers, *begins.numbers)
        return bound.issued

    def _bound(self, engine: DeviceEngine, plan: TilePlan, normalised: bool) -> tuple[_Bound, list[Tensor]]:
        """What is the same at each launch, and the tables that it reads."""
        launch, held = self.prepared(engine, plan, normalised)
        across = _across(plan)
        return _Bound(launch, launch.grid[0] // across, across, self.issued(plan)), held

    def issued(self, plan: TilePlan) -> int:
        """The multiply-adds of a plan."""
        return _launch(self, plan).macs

    def prepared(self, engine: DeviceEngine, plan: TilePlan, normalised: bool) -> tuple[Launch, list[Tensor]]:
        """A plan's launch, and the tables that it reads; ``normalised``: its kernel is to normalise what it reads."""
        problem, made = plan.problem, _launch(self, plan, normalised)
        rows, columns = problem.geometry.rows, problem.geometry.columns
        place = engine.constant(
            made.tiles,
            lambda: tables.tiles(rows, columns, problem.forward, problem.images, plan.tile.rows).tiles,
        )
        held = patches.gather_tables(engine, place, problem.geometry, problem.forward)
        kernel = Gathering(made.source, self.file, plan.tile.threads, made.shared, normalised)
        return kernel.launch(problem, made.grid, (patches.addresses(held), made.sizes)), held


class Gathering(NamedTuple):
    """A kernel of a convolution or an input gradient.

    Attributes:
        source, name, threads, shared: what is launched.
        normalised: whether it normalises what it reads.
    """

    source: Source
    name: str
    threads: int
    shared: int
    normalised: bool

    def launch(self, problem: Problem, grid: tuple[int, int], constants: Sequence[int | bytes]) -> Launch:
        """Addresses of images, filters, result, bias, parts, counters, and what its beginning and its end take."""
        addresses, types = 6 + endings.ADDRESSES[problem.operator], endings.TYPES[problem.operator]
        if self.normalised:
            addresses, types = addresses + beginnings.ADDRESSES, types + beginnings.TYPES
        return Launch(self.source, self.name, grid, self.threads, addresses, constants, types, self.shared)


def _across(plan: TilePlan) -> int:
    """Tiles along all channels of the result."""
    problem: Problem = plan.problem
    return -(-depth_and_width(problem)[1] // plan.tile.columns) * problem.groups


def depth_and_width(problem: Problem) -> tuple[int, int]:
    """Channels that are summed over, and channels of the result, of a group."""
    both = problem.group_in, problem.group_out
    return both if problem.forward else both[::-1]


@caches.kept
def _launch(algorithm: Tiles, plan: TilePlan, normalised: bool = False) -> _Launch:
    problem = plan.problem
    g, forward = problem.geometry, problem.forward
    column_tiles = math.ceil(depth_and_width(problem)[1] / plan.tile.columns)
    listed = tables.tiles(g.rows, g.columns, forward, problem.images, plan.tile.rows)
    return _Launch(
        algorithm.source(plan, normalised),
        algorithm.shared_bytes(plan, normalised),
        ("tiles", g, forward, problem.images, plan.tile.rows),
        (len(listed.tiles) * problem.groups * column_tiles, plan.parts),
        sizes(plan, column_tiles),
        listed.products * problem.group_in * problem.out_channels,
    )


def sizes(plan: TilePlan, column_tiles: int) -> bytes:
    """The sizes and strides of a convolution or an input gradient."""
    p = plan.problem
    rows, columns = patches.classes(p.geometry, p.forward)
    source, target = (side.strides for side in p.sides)
    (depth, width), per_tap = depth_and_width(p), p.group_in
    per_filter = math.prod(p.geometry.filter) * per_tap
    row = p.geometry.filter[1] * per_tap
    return GATHER.pack(
        images=p.images,
        depth=depth,
        width=width,
        groups=p.groups,
        column_tiles=column_tiles,
        a_image=source[0],
        a_row=source[1],
        a_column=source[2],
        a_tap_row=rows.step_a * source[1],
        a_tap_column=columns.step_a * source[2],
        b_depth=1 if p.forward else per_filter,
        b_width=per_filter if p.forward else 1,
        b_group=p.group_out * per_filter,
        b_row=row,
        b_column=per_tap,
        b_tap_row=rows.step_b * row,
        b_tap_column=columns.step_b * per_tap,
        out_image=target[0],
        out_row=target[1],
        out_column=target[2],
        part_stride=p.results,
        parts=plan.parts,
        together=together(plan.parts),
        aligned=width % 4 == 0 and (p.aligned.y if p.forward else p.aligned.x),
        accumulate=p.adds,
    )
