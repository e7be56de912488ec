"""TF32 on the tensor cores: where it serves, and which of its kernels computes a convolution.

A factor is rounded to 10 bits of mantissa, to nearest (``cvt.rna.tf32``), so it is off by at most 2**-11 of itself and
a product by at most 2**-10 of its own; sums are float32. cuBLAS and cuDNN round, or cut off, at the same bit.

What to expect of a Hopper GPU: mma.sync reaches some 60 to 65 % of the peak of TF32, which takes Hopper's own wgmma.
With 64 x 64 sums a warp the reads of shared memory, 32 wavefronts for every 32 instructions, and the copies into it
ask for nearly as many cycles as the instructions do; so about 250 to 300 TFLOP/s on an H100 where tiles of 128 x 128
fill the device, four to five times its float32.
"""

from __future__ import annotations

import math
from typing import Any

from cu32 import tables
from cu32.base import DeviceEngine
from cu32.compiler import Source
from cu32.driver import Device
from cu32.planner import Plan, Problem, Tile

LOAD = "TF32"
"""How a plan of these kernels names its loads."""

OLDEST = (8, 0)
"""The first compute capability with TF32 and asynchronous copies."""

THREADS = 128
"""Threads a block of every kernel here: four warps."""

DEPTH = 32
"""Depth of a stage: kernels/tensor_core.cuh says the same."""

SHALLOWEST = 16
"""Fewest channels to sum over, and of the result, that fill half a stage and half a tile."""

LEAST_STEPS = 8
"""Least stages a part of a split sum."""

TILES = {Tile(128, 128, 16, 8): 600.0, Tile(128, 64, 8, 8): 480.0, Tile(64, 64, 8, 4): 330.0}
"""Tiles of the convolutions, and multiply-adds a cycle and multiprocessor with each, about."""

_PASS = 5000
"""Cycles of one more launch, which adds parts."""

_BYTES = 16
"""Bytes a cycle that a multiprocessor's share of memory moves."""

_FILTERS = {"forward": "ACROSS", "input_grad": "ALONG"}


def _source(operator: str, tile: Tile, wide: bool) -> Source:
    macros: dict[str, Any] = {"TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns}
    if wide:
        macros["OFFSET"] = "int64"
    if operator == "weight_grad":
        return Source("conv_weight_tf32", **macros)
    return Source("conv_tf32", FILTER=_FILTERS[operator], **macros)


SOURCES = tuple(_source(operator, tile, False) for operator in (*_FILTERS, "weight_grad") for tile in TILES)


def enabled(engine: DeviceEngine) -> bool:
    """Whether the engine may round operands to TF32, and its device can."""
    return engine.precision == "high" and engine.device.capability >= OLDEST


def shared_bytes(tile: int) -> int:
    """Dynamic shared memory of a block of gemm_tf32."""
    return _stages(3 if tile == 128 else 4, tile, tile)


def _stages(number: int, rows: int, columns: int) -> int:
    """Bytes of so many stages' panels, in the layout that takes more."""
    return number * DEPTH * (rows + 8 + columns + 8) * 4


def serves(engine: DeviceEngine, problem: Problem) -> bool:
    """Whether a convolution runs on the tensor cores: allowed, aligned, and with channels enough to fill them."""
    deep = min(problem.in_channels, problem.out_channels) >= SHALLOWEST
    return enabled(engine) and problem.vector and problem.real == "float" and deep


def plan(problem: Problem, device: Device) -> Plan:
    """The tile and the parts that finish first, by a model of whole waves of blocks."""
    fitting = {t: rate for t, rate in TILES.items() if _stages(3, t.rows, t.columns) <= device.shared_per_block}
    found = []
    for tile, rate in fitting.items():
        blocks, steps, longest = _work(problem, tile)
        step = tile.rows * tile.columns * DEPTH / rate
        for parts in _parts(problem, longest):
            waves = -(-blocks * parts // device.multiprocessors)
            cycles = max(waves * steps / (blocks * parts), longest / parts) * step
            if parts > 1:
                cycles += _PASS + 4 * _results(problem) * (2 * parts + 1) / (_BYTES * device.multiprocessors)
            useful = _products(problem) / max(1, steps * tile.rows * tile.columns * DEPTH)
            found.append(Plan(problem, tile, LOAD, parts, blocks * parts, cycles, useful))
    return min(found, key=lambda candidate: candidate.cycles)


def kernel(plan: Plan) -> tuple[Source, str, int]:
    """What a plan of ``plan`` launches: the source, the kernel, its dynamic shared memory."""
    p = plan.problem
    source = _source(p.operator, plan.tile, p.wide)
    return source, source.name, _stages(3, plan.tile.rows, plan.tile.columns)


def _parts(problem: Problem, longest: int) -> list[int]:
    most = longest // LEAST_STEPS if problem.splits else 1
    return [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n == 1 or n <= most]


def _work(problem: Problem, tile: Tile) -> tuple[int, int, int]:
    """Blocks of one part, the stages of all of them, and of the longest."""
    g = problem.geometry
    if problem.operator == "weight_grad":
        count = -(-problem.out_channels // tile.rows) * -(-problem.in_channels // tile.columns) * problem.groups
        steps = -(-tables.leaps(g, problem.images) // DEPTH)
    else:
        forward = problem.operator == "forward"
        depth, width = (problem.in_channels, problem.out_channels)[:: 1 if forward else -1]
        count = -(-width // tile.columns) * problem.groups
        steps = tables.tiles(g.rows, g.columns, forward, problem.images, tile.rows).taps * -(-depth // DEPTH)
    return steps.size * count, int(steps.sum()) * count, int(steps.max())


def _products(problem: Problem) -> int:
    """Multiply-adds asked for."""
    p = problem
    return p.geometry.macs(p.images, p.in_channels * p.groups, p.out_channels * p.groups, p.groups)


def _results(problem: Problem) -> int:
    """Elements of the result."""
    g = problem.geometry
    if problem.operator == "weight_grad":
        return problem.out_channels * problem.groups * problem.in_channels * math.prod(g.filter)
    forward = problem.operator == "forward"
    channels = problem.out_channels if forward else problem.in_channels
    return problem.images * math.prod(g.output if forward else g.input) * channels * problem.groups
