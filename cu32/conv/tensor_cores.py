"""tensor_cores and threefold: the algorithm "tiles" on the tensor cores, in TF32 and in float32 of three products each.

The kernels are kernels/conv_tf32.cu, conv_threefold.cu, conv_weight_tf32.cu and conv_weight_threefold.cu.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import tf32
from alpha.cu32.compiler import Source
from alpha.cu32.conv.problem import Problem
from alpha.cu32.conv.tiles import Tiles
from alpha.cu32.conv.tiles_gradient import TilesGradient
from alpha.cu32.costs import Chip, Kernel, Tile, TilePlan

STAGES = 3
"""Stages of panels in shared memory, which are copied while earlier ones are multiplied; the kernels say the same."""

SHALLOWEST = 16
"""Fewest channels to sum over, and of the result, that fill half a stage and half a tile."""

_FILTERS = {FORWARD: "ACROSS", INPUT_GRAD: "ALONG"}


def _macros(tile: Tile, wide: bool) -> dict[str, Any]:
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    return {"TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns, **offset}


def gather_source(file: str, operator: str, tile: Tile, wide: bool) -> Source:
    """A kernel of a convolution or of an input gradient."""
    return Source(file, FILTER=_FILTERS[operator], **_macros(tile, wide))


def _gradient_source(file: str, tile: Tile, wide: bool) -> Source:
    return Source(file, **_macros(tile, wide))


SOURCES = (
    *(
        gather_source(file, operator, tile, False)
        for file in ("conv_tf32", "conv_threefold")
        for operator in _FILTERS
        for tile in tf32.TILES
    ),
    *(
        _gradient_source(file, tile, False)
        for file in ("conv_weight_tf32", "conv_weight_threefold")
        for tile in tf32.TILES
    ),
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

    def source(self, plan: TilePlan) -> Source:
        return gather_source(self.file, plan.problem.operator, plan.tile, plan.problem.wide)

    def shared_bytes(self, plan: TilePlan) -> int:
        return _shared_bytes(plan.tile)


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

    def source(self, plan: TilePlan) -> Source:
        return _gradient_source(self.file, plan.tile, plan.problem.wide)

    def shared_bytes(self, plan: TilePlan) -> int:
        return _shared_bytes(plan.tile)


class ThreefoldGradient(TensorCoresGradient):
    """Filter gradients in float32, of long sums."""

    name = "threefold"
    file = "conv_weight_threefold"
    loads = tf32.THREEFOLD

    def serves(self, problem: Problem) -> bool:
        return problem.threefold and serves(problem)
