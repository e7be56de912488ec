"""flat_tensor_cores: convolutions of few channels in TF32, a stem's, and input gradients that sum over as few.

A tap's own three channels would fill 3 of 32 terms of a step. So taps and channels are one sum, 147 terms for 7x7 and
three channels, which a table of offsets leads through (kernels/flat.cuh). Its terms come one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from alpha.cu32 import tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv.problem import Problem
from alpha.cu32.conv.tensor_cores import FILTERS, SHALLOWEST, STAGES, TensorCores, macros
from alpha.cu32.conv.tiles import FLAT_LIMIT, depth_and_width
from alpha.cu32.costs import WARP, Chip, Kernel, Tile, TilePlan

MOST_DEPTH = 15
"""Most channels that are summed over: of sixteen, steps of a tap's own channels are as full."""

OFFSET_BYTES = 8
"""Shared memory for the offsets of a term."""

COPY_CYCLES = 4
"""Cycles in which a warp's copy of single elements goes through the first-level cache: these are of four rows."""


def _source(operator: str, tile: Tile) -> Source:
    return Source("conv_tf32", FILTER=FILTERS[operator], FLAT=1, **macros(tile, False, False))


SOURCES = tuple(_source(operator, tile) for operator in FILTERS for tile in tf32.TILES)


class FlatTensorCores(TensorCores):
    """Problems of float32 whose factors may be rounded to TF32, and whose terms fit the table."""

    name = "flat_tensor_cores"

    def serves(self, problem: Problem) -> bool:
        depth, width = depth_and_width(problem)
        if not problem.high or problem.wide or depth > MOST_DEPTH or width < SHALLOWEST:
            return False
        if not problem.forward and (width % 4 or not problem.aligned.filters):  # filters are read four at a time
            return False
        return SHALLOWEST <= math.prod(problem.geometry.filter) * depth <= FLAT_LIMIT

    def kernels(self, problem: Problem, chip: Chip) -> Iterable[Kernel]:
        table = _table_bytes(problem)
        shared = {tile: tf32.stages(STAGES, tile.rows, tile.columns) + table for tile in tf32.TILES}
        return [_copying(kernel, problem) for kernel in tf32.fitting(chip, shared)]

    def steps(self, kernel: Kernel, taps: int, depth: int) -> int:
        return -(-taps * depth // kernel.depth)

    def source(self, plan: TilePlan, normalised: bool = False) -> Source:
        return _source(plan.problem.operator, plan.tile)

    def shared_bytes(self, plan: TilePlan, normalised: bool = False) -> int:
        return super().shared_bytes(plan) + _table_bytes(plan.problem)

    def normalises(self, engine: DeviceEngine, plan: TilePlan) -> bool:
        return False


def _table_bytes(problem: Problem) -> int:
    terms = math.prod(problem.geometry.filter) * depth_and_width(problem)[0]
    return -(-terms // tf32.DEPTH) * tf32.DEPTH * OFFSET_BYTES


def _copying(kernel: Kernel, problem: Problem) -> Kernel:
    """A kernel that takes as long as its copies of single elements where these take longest."""
    edges = kernel.tile.rows + (kernel.tile.columns if problem.forward else 0)
    return replace(kernel, step=max(kernel.step, edges * kernel.depth / WARP * COPY_CYCLES))
