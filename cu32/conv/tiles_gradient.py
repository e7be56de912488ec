"""tiles, of the filter gradient: Sk-dilated-V2 by blocks that own a tap and a tile of channels.

The kernel is kernels/conv_weight.cu.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from alpha import caches
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cu32.base import MAX_GRID_YZ, DeviceEngine, Launch
from alpha.cu32.compiler import Source
from alpha.cu32.conv import beginnings, tables
from alpha.cu32.conv.problem import Call, Problem
from alpha.cu32.conv.tiles import DEEP, DOUBLE, LARGE, SMALL, SQUARE, TALL, TileAlgorithm
from alpha.cu32.costs import Kernel, Lengths, Tile, TilePlan
from alpha.cu32.parts import joining, together
from alpha.cu32.structs import KernelStruct
from alpha.geometry import Axis
from alpha.tensor import Tensor

LEAP = KernelStruct("leap.cuh", "Leap")

SLIM = Tile(64, 16, 8, 4)
TILES = {"VECTOR": (LARGE, TALL, DEEP, SQUARE, SMALL, SLIM), "SCALAR": (SQUARE, SMALL, SLIM)}
"""Tiles of float32 by the way the kernel loads."""

MOST_TAPS = MAX_GRID_YZ
"""Taps of a launch, which has a block for each along the grid's second axis."""


def _source(real: str, tile: Tile, load: str, wide: bool = False) -> Source:
    more: dict[str, Any] = {"TILE_DEPTH": tile.depth, **({"OFFSET": "int64"} if wide else {})}
    return Source("conv_weight", REAL=real, LOAD=load, **tile.macros, **more)


_KERNELS = [("float", tile, load) for load, listed in TILES.items() for tile in listed]
_KERNELS += [("double", DOUBLE, "SCALAR")]
SOURCES = tuple(_source(*kernel, wide) for kernel in _KERNELS for wide in (False, True))


class _Piece(NamedTuple):
    """A rectangle of a filter's taps, whose gradient one launch computes: its first tap, and its size."""

    first: tuple[int, int]
    size: tuple[int, int]


class _Launch(NamedTuple):
    """What a plan's launches have in common."""

    source: Source
    shared: int
    grid: tuple[int, int, int]
    sizes: bytes


class TilesGradient(TileAlgorithm):
    """Every filter gradient; that of a filter of very many taps in several launches."""

    name = "tiles"
    file: ClassVar[str] = "conv_weight"
    operators = (WEIGHT_GRAD,)
    tiles = TILES

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        return _source(plan.problem.real, plan.tile, plan.load, plan.problem.wide)

    def load(self, problem: Problem) -> str:
        return "VECTOR" if problem.vector else "SCALAR"

    def lengths(self, problem: Problem, kernel: Kernel) -> Lengths:
        across, down = _tiles(problem, kernel.tile)
        count = across * down * problem.groups
        terms = tables.leaps(problem.geometry, problem.images)
        return tuple((count, int(-(-number // kernel.depth))) for number in terms)

    def run(self, engine: DeviceEngine, plan: TilePlan, call: Call) -> int:
        problem: Problem = plan.problem
        dw = call.out
        height, width = problem.geometry.filter
        if height * width <= MOST_TAPS:
            self._run_piece(engine, plan, call, _Piece((0, 0), (height, width)))
        else:
            down, across = max(1, MOST_TAPS // width), min(width, MOST_TAPS)
            for row in range(0, height, down):
                for column in range(0, width, across):
                    size = (min(down, height - row), min(across, width - column))
                    found = engine.empty((dw.shape[0], *size, dw.shape[3]), dw.dtype)
                    self._run_piece(engine, plan, call._replace(out=found), _Piece((row, column), size))
                    offset = dw.offset + row * dw.strides[1] + column * dw.strides[2]
                    engine.copy(found, dw.strided(offset, found.shape, dw.strides))
        return tables.leap_products(problem.geometry, problem.images) * problem.group_in * problem.out_channels

    def _run_piece(self, engine: DeviceEngine, plan: TilePlan, call: Call, piece: _Piece) -> None:
        """The gradient of a piece of the filter, which ``call.out`` has the size of, its parts added."""
        normalised = call.before is not None
        key = plan, piece, normalised
        launch = engine.kept_launch(key, lambda: self._prepared(engine, plan, piece, normalised))
        run_joined(engine, plan, call, launch)

    def _prepared(
        self, engine: DeviceEngine, plan: TilePlan, piece: _Piece, normalised: bool
    ) -> tuple[Launch, list[Tensor]]:
        """The launch for a piece, and the tables that it reads."""
        made, g = _launch(self, plan, piece.size, normalised), plan.problem.geometry
        held = [_runs(engine, axis, tap) for axis, tap in zip((g.rows, g.columns), piece.first, strict=True)]
        kernel = Leaping(made.source, self.file, plan.tile.threads, made.shared, normalised)
        return kernel.launch(made.grid, [*[table.address for table in held], made.sizes]), held


class Leaping(NamedTuple):
    """A kernel of a filter gradient.

    Attributes:
        source, name, threads, shared: what is launched.
        normalised: whether it normalises the images that it reads.
    """

    source: Source
    name: str
    threads: int
    shared: int
    normalised: bool

    def launch(self, grid: tuple[int, int, int], constants: Sequence[int | bytes]) -> Launch:
        """Addresses of both operands, the result, its parts and counters, and what its beginning takes."""
        more, types = (beginnings.ADDRESSES, beginnings.TYPES) if self.normalised else (0, "")
        return Launch(self.source, self.name, grid, self.threads, 5 + more, constants, types, self.shared)


def run_joined(engine: DeviceEngine, plan: TilePlan, call: Call, launch: Launch) -> None:
    """Runs the kernel of a filter gradient, which adds its parts itself."""
    begins, tiles = beginnings.beginning(call.before), launch.grid[0] * launch.grid[1]
    parts = joining(engine, plan.parts, call.out, tiles)
    engine.run(launch, (call.source, call.other, call.out, *parts.tensors, *begins.tensors), *begins.numbers)


def _tiles(problem: Problem, tile: Tile) -> tuple[int, int]:
    """Tiles along a group's input channels, and along its output channels."""
    return -(-problem.group_in // tile.columns), -(-problem.group_out // tile.rows)


def _runs(engine: DeviceEngine, axis: Axis, first: int) -> Tensor:
    """What each tap of an axis meets, from a tap on."""
    table = engine.constant(("runs", axis), tables.by_tap(axis).array)
    shape = (table.shape[0] - first, *table.shape[1:])
    return table.strided(table.offset + first * table.strides[0], shape, table.strides)


@caches.kept
def _launch(algorithm: TilesGradient, plan: TilePlan, size: tuple[int, int], normalised: bool) -> _Launch:
    p = plan.problem
    in_tiles, out_tiles = _tiles(p, plan.tile)
    (x_image, x_row, x_column), (y_image, y_row, y_column) = p.x_strides, p.y_strides
    taps = size[0] * size[1]
    sizes = LEAP.pack(
        images=p.images,
        in_width=p.group_in,
        out_width=p.group_out,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        filter_columns=size[1],
        x_image=x_image,
        x_row=x_row,
        x_column=x_column,
        x_step_row=x_row * p.geometry.rows.stride,
        x_step_column=x_column * p.geometry.columns.stride,
        y_image=y_image,
        y_row=y_row,
        y_column=y_column,
        parts=plan.parts,
        together=together(plan.parts),
        part_stride=p.out_channels * taps * p.group_in,
        aligned=p.group_in % 4 == 0,
    )
    grid = (p.groups * out_tiles * in_tiles, taps, plan.parts)
    return _Launch(algorithm.source(plan, normalised), algorithm.shared_bytes(plan, normalised), grid, sizes)
