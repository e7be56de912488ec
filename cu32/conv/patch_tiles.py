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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.cu32 import costs, tf32
from alpha.cu32.base import DeviceEngine, Launch
from alpha.cu32.compiler import Source
from alpha.cu32.conv import patches, tables, tensor_cores
from alpha.cu32.conv.problem import Problem
from alpha.cu32.conv.rectangles import Rectangle, covered
from alpha.cu32.conv.tables import Array, Classes
from alpha.cu32.conv.tiles import Tiles, depth_and_width, sizes
from alpha.cu32.costs import LATENCY, Chip, Covered, Kernel, Lengths, Tile, TilePlan
from alpha.cu32.structs import KernelStruct
from alpha.geometry import Geometry
from alpha.tensor import Tensor

PATCH_TILE = KernelStruct("conv_patch.cuh", "PatchTile")
PATCH_TABLES = KernelStruct("conv_patch.cuh", "PatchTables")

DEPTH = 16
"""Channels that a patch has; the kernel says the same."""

TOGETHER = 8
"""Images that a tile has a multiple of: as many rows as a fragment reads at once."""

TILES = {Tile(256, 128, 16, 8, DEPTH): 600.0, Tile(256, 64, 16, 8, DEPTH): 600.0, Tile(128, 128, 16, 8, DEPTH): 600.0}
"""Tiles, and multiply-adds per cycle and multiprocessor with each where the caches keep up, about.

All warps have 64 x 64 sums.
"""

RESIDENT = 256
"""Threads of a multiprocessor, by their registers."""

CONTENTION = 8
"""One cycle in so many that bringing operands takes is not hidden behind the multiply-adds."""

STATIC = 3072
"""Bytes of shared memory that a block has beside panels and patches, the driver's own counted in."""

_PIXEL, _MEMORY = DEPTH * 4, 28.0
"""Bytes of a pixel, and how many of them the second-level cache brings in a cycle, when tiles are compared."""


class Line(NamedTuple):
    """Along one axis: where members of a class, so many, and their taps lie among the patch's pixels.

    Attributes:
        extent: pixels.
        before: from the first pixel to the first member's first tap, as a step of the source index.
        pixel: from a pixel to the next, the same.
        origin: the pixel of the first member's first tap.
        step, tap: from a member to the next, and from a tap to the next, in pixels.
    """

    extent: int
    before: int
    pixel: int
    origin: int
    step: int
    tap: int


def line(classes: Classes, taps: int, members: int) -> Line:
    """The pixels are as near to each other as members and taps need it. Without taps there are none."""
    if not taps:
        return Line(0, 0, 1, 0, 0, 0)
    step, tap = (classes.member_step if members > 1 else 0), (classes.step_a if taps > 1 else 0)
    pixel = math.gcd(step, tap) or 1
    before = max(0, -step) * (members - 1) + max(0, -tap) * (taps - 1)
    extent = (abs(step) * (members - 1) + abs(tap) * (taps - 1)) // pixel + 1
    return Line(extent, before, pixel, before // pixel, step // pixel, tap // pixel)


@dataclass(frozen=True)
class PatchTiles:
    """A list of tiles, the longest sums first.

    Attributes:
        tiles: (tiles, fields) int32 for a kernel.
        taps, pixels: of each, the taps, and the pixels of its patch times images.
        products: pairs of row and tap.
    """

    tiles: Array
    taps: Array
    pixels: Array
    products: int

    @property
    def largest(self) -> int:
        """Rows of the largest patch."""
        return int(self.pixels.max())


class _Pair(NamedTuple):
    """A class of rows and one of columns, their taps, and what tiles of theirs are made of.

    Attributes:
        axes: the classes of both axes.
        numbers: which classes.
        images: N.
        rows: of a tile.
        capacity: rows that a patch may have.
    """

    axes: tuple[Classes, Classes]
    numbers: tuple[int, int]
    images: int
    rows: int
    capacity: int

    @property
    def taps(self) -> tuple[int, int]:
        """Along both axes."""
        down, across = (int(axis.taps[number]) for axis, number in zip(self.axes, self.numbers, strict=True))
        return down, across

    @property
    def size(self) -> tuple[int, int]:
        """Members along both axes."""
        down, across = (int(axis.size[number]) for axis, number in zip(self.axes, self.numbers, strict=True))
        return down, across

    def lines(self, down: int, across: int) -> tuple[Line, Line]:
        """Those of so many members."""
        if not math.prod(self.taps):
            return line(self.axes[0], 0, down), line(self.axes[1], 0, across)
        return line(self.axes[0], self.taps[0], down), line(self.axes[1], self.taps[1], across)

    def pitch(self, down: int, across: int) -> int:
        """Images of a tile of so many positions: as evenly as there is room for them; 0 if there is none."""
        pixels = math.prod(one.extent for one in self.lines(down, across))
        taps, most = math.prod(self.taps), self.rows // (down * across)
        if pixels:
            most = min(most, self.capacity // pixels, taps * self.rows // pixels)
        most = most // TOGETHER * TOGETHER
        return _whole(-(-self.images // -(-self.images // most))) if most else 0

    def price(self, columns: int) -> Callable[[int, int], float]:
        """What so many positions cost, of all images and one chunk: cycles to multiply, and to bring what that needs."""
        taps = math.prod(self.taps)
        multiplying = max(1, taps) * self.rows * columns * DEPTH / 600

        def of(down: int, across: int) -> float:
            pitch = self.pitch(down, across)
            if not pitch:
                return math.inf
            pixels = math.prod(one.extent for one in self.lines(down, across))
            return -(-self.images // pitch) * (multiplying + pixels * pitch * _PIXEL / _MEMORY)

        return of

    def entries(self, rectangle: Rectangle) -> Array:
        """The tiles of a grid of equal rectangles."""
        pitch = self.pitch(rectangle.down, rectangle.across)
        down, across = self.lines(rectangle.down, rectangle.across)
        image, r, c = (
            index.ravel()
            for index in np.meshgrid(
                np.arange(0, self.images, pitch),
                rectangle.row + rectangle.down * np.arange(rectangle.rows),
                rectangle.column + rectangle.across * np.arange(rectangle.columns),
                indexing="ij",
            )
        )
        rows, columns = self.axes
        members = rows.start[self.numbers[0]] + r, columns.start[self.numbers[1]] + c
        values = {
            "taps_down": self.taps[0] if down.extent else 0,
            "taps_across": self.taps[1] if across.extent else 0,
            "first_tap_down": rows.first_b[self.numbers[0]],
            "first_tap_across": columns.first_b[self.numbers[1]],
            "member_down": members[0],
            "member_across": members[1],
            "down": rectangle.down,
            "across": rectangle.across,
            "image": image,
            "images": np.minimum(pitch, self.images - image),
            "pitch": pitch,
            "height": down.extent,
            "width": across.extent,
            "source_down": rows.first_a[members[0]] - down.before,
            "source_across": columns.first_a[members[1]] - across.before,
            "pixel_down": down.pixel,
            "pixel_across": across.pixel,
            "origin_down": down.origin,
            "origin_across": across.origin,
            "step_down": down.step,
            "step_across": across.step,
            "tap_down": down.tap,
            "tap_across": across.tap,
        }
        table = np.empty((len(image), len(values)), np.int32)
        for place, field_ in enumerate(PATCH_TILE.fields):
            table[:, place] = values[field_.name]
        return table


def _whole(images: int) -> int:
    return -(-images // TOGETHER) * TOGETHER


@caches.kept
def patch_tiles(geometry: Geometry, forward: bool, images: int, tile: Tile, capacity: int) -> PatchTiles | None:
    """Covers each class's positions by tiles, for the least time; None where a patch has no room for one position."""
    axes = patches.classes(geometry, forward)
    found, products = [], 0
    for numbers in np.ndindex(len(axes[0].taps), len(axes[1].taps)):
        pair = _Pair(axes, (numbers[0], numbers[1]), images, tile.rows, capacity)
        rectangles = covered(*pair.size, tile.rows // TOGETHER, pair.price(tile.columns))
        if rectangles is None:
            return None
        found += [pair.entries(rectangle) for rectangle in rectangles]
        products += math.prod(pair.size) * math.prod(pair.taps)
    table = np.concatenate(found)
    named = {one.name: table[:, place].astype(np.int64) for place, one in enumerate(PATCH_TILE.fields)}
    taps = named["taps_down"] * named["taps_across"]
    pixels = named["height"] * named["width"] * named["pitch"]
    order = np.lexsort((named["image"], -taps))  # tiles that share pixels one after the other
    return PatchTiles(np.ascontiguousarray(table[order]), taps[order], pixels[order], products * images)


@dataclass(frozen=True)
class PatchPlan(TilePlan):
    """One by tiles with patches.

    Attributes:
        capacity: rows that a patch may have.
        second_cache_bytes: what the second-level cache brings the multiprocessors.
    """

    capacity: int = field(kw_only=True)
    second_cache_bytes: float = field(kw_only=True)

    __hash__ = TilePlan.__hash__


class Patches(Tiles):
    """Problems whose factors may be rounded to TF32, of enough channels, whose patches fit into shared memory."""

    name = "patches"
    file = "conv_patch_tf32"

    def serves(self, problem: Problem) -> bool:
        return problem.high and tensor_cores.serves(problem)

    def source(self, plan: TilePlan) -> Source:
        return _source(plan.problem.operator, plan.tile, plan.problem.wide)

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[TilePlan]:
        found: list[TilePlan] = []
        for tile, rate in TILES.items():
            capacity = _capacity(chip, tile, problem.wide)
            listed = _listed(problem, tile, capacity)
            if listed is not None and capacity > 0:
                found += _plans(problem, chip, _Covering(listed, tile, rate, capacity), self.name, parts)
        return sorted(found, key=lambda plan: plan.price)

    def issued(self, plan: TilePlan) -> int:
        return _of(plan).products * plan.problem.group_in * plan.problem.out_channels

    def prepared(self, engine: DeviceEngine, plan: TilePlan) -> tuple[Launch, list[Tensor]]:
        problem, listed = plan.problem, _of(plan)
        geometry, forward, tile = problem.geometry, problem.forward, plan.tile
        key = ("patch tiles", geometry, forward, problem.images, tile, plan.capacity)  # type: ignore[attr-defined]
        place = engine.constant(key, lambda: listed.tiles)
        held = [table for table in patches.gather_tables(engine, place, geometry, forward)]
        tiles, _, row_members, _, column_members = (table.address for table in held)
        addresses = PATCH_TABLES.pack(tiles=tiles, row_members=row_members, column_members=column_members)
        column_tiles = math.ceil(depth_and_width(problem)[1] / tile.columns)
        grid = (len(listed.tiles) * problem.groups * column_tiles, plan.parts)
        constants = (addresses, sizes(plan, column_tiles), listed.largest * DEPTH)
        shared = _shared_bytes(tile, listed.largest, problem.wide)
        return Launch(self.source(plan), self.file, grid, tile.threads, 4, constants, shared=shared), held


def _source(operator: str, tile: Tile, wide: bool) -> Source:
    return tensor_cores.gather_source(Patches.file, operator, tile, wide)


SOURCES = tuple(_source(operator, tile, False) for operator in Patches.operators for tile in TILES)


def _listed(problem: Problem, tile: Tile, capacity: int) -> PatchTiles | None:
    return patch_tiles(problem.geometry, problem.forward, problem.images, tile, capacity)


def _of(plan: TilePlan) -> PatchTiles:
    """A plan's tiles, which there are."""
    assert isinstance(plan, PatchPlan)
    listed = _listed(plan.problem, plan.tile, plan.capacity)
    assert listed is not None
    return listed


def _shared_bytes(tile: Tile, pixels: int, wide: bool) -> int:
    """Dynamic shared memory: two panels, two patches, and the places of a patch's rows."""
    return 2 * tile.columns * DEPTH * 4 + pixels * (2 * _PIXEL + (8 if wide else 4))


def _capacity(chip: Chip, tile: Tile, wide: bool) -> int:
    """Rows that a patch may have, so that as many blocks fit a multiprocessor as their registers let."""
    room = min(chip.shared_per_block, chip.shared_per_multiprocessor * tile.threads // RESIDENT)
    return (room - STATIC - _shared_bytes(tile, 0, wide)) // (_shared_bytes(tile, 1, wide) - _shared_bytes(tile, 0, wide))


class _Covering(NamedTuple):
    """A problem's tiles of one size, and their rate."""

    listed: PatchTiles
    tile: Tile
    rate: float
    capacity: int


def _plans(problem: Problem, chip: Chip, made: _Covering, name: str, parts: int | None) -> list[TilePlan]:
    """Those of one tile, for numbers of parts that do not cut a chunk of channels."""
    listed, tile = made.listed, made.tile
    depth, width = depth_and_width(problem)
    chunks, across = -(-depth // DEPTH), -(-width // tile.columns) * problem.groups
    counts = sorted(Counter(listed.taps.tolist()).items(), reverse=True)
    steps = int(listed.taps.sum()) * chunks * across
    nbytes = float(_PIXEL * chunks * across * (int(listed.pixels.sum()) + int(listed.taps.sum()) * tile.columns))
    kernel = _kernel(chip, made, nbytes / max(1, steps))
    useful = problem.products / max(1, steps * tile.rows * tile.columns * DEPTH)

    def cut(number: int) -> Covered:
        whole = -(-chunks // number) * number
        return Covered(kernel, tuple((tiles * across, taps * whole) for taps, tiles in counts))

    numbers = {parts} if parts else {one.parts for one in costs.plans(problem, chip, name, [cut(1)])}
    found = []
    for number in numbers:
        for plan in costs.plans(problem, chip, name, [cut(number)], number) if parts or number <= chunks else ():
            what = {"tile": tile, "load": plan.load, "blocks": plan.blocks, "useful": useful}
            found.append(PatchPlan(problem, name, plan.cycles, plan.parts, **what, capacity=made.capacity, second_cache_bytes=nbytes))
    return found


def _kernel(chip: Chip, made: _Covering, nbytes: float) -> Kernel:
    """As fast as its rate where the multiprocessor is full; slower where the caches cannot bring so many bytes a step."""
    tile = made.tile
    resident = RESIDENT // tile.threads
    rate = min(made.rate, 0.9 * tf32.PEAK.get(chip.capability, tf32.OTHER_PEAK))
    multiplying, bringing = tile.rows * tile.columns * DEPTH / rate, nbytes / chip.l2
    full = max(multiplying + bringing / CONTENTION, bringing)
    warps = resident * tile.threads / costs.WARP
    return Kernel(tile, tf32.LOAD, DEPTH, full * warps / (warps + LATENCY), resident)
