"""tensor_cores and threefold: the algorithm "tiles" on the tensor cores, in TF32 and in float32 of three products each.

The kernels are kernels/conv_tf32.cu, conv_threefold.cu, conv_weight_tf32.cu and conv_weight_threefold.cu.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import beginnings
from alpha.cu32.conv.problem import Problem
from alpha.cu32.conv.tiles import Tiles
from alpha.cu32.conv.tiles_gradient import TilesGradient
from alpha.cu32.costs import Chip, Kernel, Tile, TilePlan

STAGES = 3
"""Stages of panels in shared memory, which are copied while earlier ones are multiplied; the kernels say the same."""

STATIC = 2048
"""Bytes of shared memory that a block has beside its stages, at most: its rows, and the driver's own."""

SHALLOWEST = 16
"""Fewest channels to sum over, and of the result, that fill half a stage and half a tile."""

LARGE = Tile(128, 128, 16, 8, tf32.DEPTH)
"""The tile of which a filter gradient in float32 has no register to normalise what it reads."""

FILTERS = {FORWARD: "ACROSS", INPUT_GRAD: "ALONG"}
"""The filter's layout, by what is computed."""


def macros(tile: Tile, wide: bool, normalised: bool) -> dict[str, Any]:
    """What kernels of a tile are compiled with, for offsets of 64 bits, and for images that they normalise."""
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    before = beginnings.MACROS if normalised else {}
    return {"TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns, **offset, **before}


def gather_source(file: str, operator: str, tile: Tile, wide: bool, normalised: bool) -> Source:
    """A kernel of a convolution or of an input gradient."""
    return Source(file, FILTER=FILTERS[operator], **macros(tile, wide, normalised))


def variants(operators: Iterable[str]) -> list[tuple[str, bool]]:
    """Each operator, and whether its kernel normalises what it reads, as that of an input gradient never does."""
    return [(one, normalised) for one in operators for normalised in (False, True) if one == FORWARD or not normalised]


def _gradient_source(file: str, tile: Tile, wide: bool, normalised: bool) -> Source:
    return Source(file, **macros(tile, wide, normalised))


SOURCES = (
    *(
        gather_source(file, operator, tile, False, normalised)
        for file in ("conv_tf32", "conv_threefold")
        for operator, normalised in variants(FILTERS)
        for tile in tf32.TILES
    ),
    *(
        _gradient_source(file, tile, False, False)
        for file in ("conv_weight_tf32", "conv_weight_threefold")
        for tile in tf32.TILES
    ),
    *(_gradient_source("conv_weight_threefold", tile, False, True) for tile in tf32.TILES if tile != LARGE),
)


def serves(problem: Problem) -> bool:
    """Whether a problem's channels fill the tensor cores, and may be read four at a time."""
    return problem.vector and min(problem.group_in, problem.group_out) >= SHALLOWEST


def _shared_bytes(tile: Tile) -> int:
    return tf32.stages(STAGES, tile.rows, tile.columns)


def _kernels(chip: Chip, load: str) -> list[Kernel]:
    """Those whose stages fit the device."""
    return tf32.fitting(chip, {tile: _shared_bytes(tile) for tile in tf32.TILES}, load)


class TensorCores(Tiles):
    """Problems whose factors may be rounded to TF32, of enough channels."""

    name = "tensor_cores"
    file = "conv_tf32"
    loads: ClassVar[str] = tf32.LOAD

    def serves(self, problem: Problem) -> bool:
        return problem.high and serves(problem)

    def kernels(self, problem: Problem, chip: Chip) -> Iterable[Kernel]:
        return _kernels(chip, self.loads)

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        return gather_source(self.file, plan.problem.operator, plan.tile, plan.problem.wide, normalised)

    def shared_bytes(self, plan: TilePlan, normalised: bool = False) -> int:
        problem: Problem = plan.problem
        table = beginnings.table_bytes(problem.group_in, tf32.DEPTH) if normalised else 0
        return _shared_bytes(plan.tile) + table

    def normalises(self, engine: DeviceEngine, plan: TilePlan) -> bool:
        problem: Problem = plan.problem
        room = engine.device.shared_per_block - STATIC
        return problem.group_in <= beginnings.MOST_CHANNELS and self.shared_bytes(plan, True) <= room


class Threefold(TensorCores):
    """Problems in float32, of enough channels and of long sums."""

    name = "threefold"
    file = "conv_threefold"
    loads = tf32.THREEFOLD

    def serves(self, problem: Problem) -> bool:
        return problem.threefold and serves(problem)


class TensorCoresGradient(TilesGradient):
    """The same of filter gradients."""

    name = "tensor_cores"
    file = "conv_weight_tf32"
    loads: ClassVar[str] = tf32.LOAD

    def serves(self, problem: Problem) -> bool:
        return problem.high and serves(problem)

    def kernels(self, problem: Problem, chip: Chip) -> Iterable[Kernel]:
        return _kernels(chip, self.loads)

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        return _gradient_source(self.file, plan.tile, plan.problem.wide, normalised)

    def shared_bytes(self, plan: TilePlan, normalised: bool = False) -> int:
        return _shared_bytes(plan.tile)


class ThreefoldGradient(TensorCoresGradient):
    """Filter gradients in float32, of long sums.

    In TF32 these blocks, which own one tap, leave normalising to a pass: their loops are bound by their instructions.
    """

    name = "threefold"
    file = "conv_weight_threefold"
    loads = tf32.THREEFOLD

    def serves(self, problem: Problem) -> bool:
        return problem.threefold and serves(problem)

    def normalises(self, engine: DeviceEngine, plan: TilePlan) -> bool:
        return plan.tile != LARGE
