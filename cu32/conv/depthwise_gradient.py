"""depthwise, of the filter gradient: Sk-dilated-V2 with a channel per thread: kernels/depthwise_weight.cu."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

from alpha import caches
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cu32 import costs
from alpha.cu32.base import MAX_GRID_YZ, DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import depthwise, tables
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.depthwise import ACROSS
from alpha.cu32.conv.patches import THREADS
from alpha.cu32.conv.problem import Call, Problem
from alpha.cu32.costs import Chip, Plan
from alpha.cu32.parts import sum_parts
from alpha.cu32.structs import KernelStruct
from alpha.tensor import Storage, Tensor

SIZES = KernelStruct("depthwise_weight.cu", "Sizes")

SIDES = {4: (3,), 1: (3, 5, 7)}
"""Squares of taps whose sums a thread holds, by VEC."""

WAVES = 4
"""Blocks per multiprocessor that the sums are cut for; two are resident."""

LEAST_ITEMS, MOST_ITEMS = 4, 256
"""Items of a thread: fewer don't pay for adding up, more would lose digits of float32."""


def _source(real: str, vec: int, step: int, side: int) -> Source:
    return Source("depthwise_weight", REAL=real, VEC=vec, STEP=step, SIDE=side)


SOURCES = (
    *(_source("float", vec, step, 3) for vec in (4, 1) for step in (0, 1, 2)),
    *(_source("float", 1, step, side) for step in (1, 2) for side in (5, 7)),
    _source("double", 1, 0, 3),
)


class _Blocks(NamedTuple):
    """How a problem's sums are shared out.

    Attributes:
        vec, step, side: the kernel's macros.
        width: threads along channels.
        tiles, passes: blocks along channels, and along squares of taps.
        items: what all threads together sum over.
    """

    vec: int
    step: int
    side: int
    width: int
    tiles: int
    passes: int
    items: int


class _Launch(NamedTuple):
    """What a plan's launches have in common."""

    source: Source
    grid: tuple[int, int, int]
    sizes: bytes


class DepthwiseGradient(Algorithm):
    """A thread holds the sums of a square of taps of one channel, or of four."""

    name = "depthwise"
    file: ClassVar[str] = "depthwise_weight"
    operators = (WEIGHT_GRAD,)
    always = True

    def serves(self, problem: Problem) -> bool:
        """Whether it does: its passes over the filter are the grid's second axis."""
        passes = math.prod(-(-f // min(SIDES[4])) for f in problem.geometry.filter)
        return passes <= MAX_GRID_YZ and depthwise.serves(problem)

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[Plan]:
        b = _blocks(problem)
        number = _parts(b.items, THREADS // b.width, WAVES * chip.multiprocessors / (b.tiles * b.passes))
        return [Plan(problem, self.name, costs.reading_once(problem, chip), number)]

    def describe(self, plan: Plan) -> str:
        return f"which reads its operands about once, {plan.choice}"

    def run(self, engine: DeviceEngine, plan: Plan, call: Call) -> int:
        problem: Problem = plan.problem
        made, dw = _launch(plan), call.out
        target: Tensor | Storage = dw if plan.parts == 1 else engine.scratch(plan.parts * dw.nbytes)
        engine.launch(made.source, self.file, made.grid, THREADS, call.source, call.other, target, made.sizes)
        if isinstance(target, Storage):
            sum_parts(engine, target, plan.parts, dw)
        return tables.leap_products(problem.geometry, problem.images) * problem.out_channels


def _blocks(problem: Problem) -> _Blocks:
    p, g = problem, problem.geometry
    fours = p.x_fours(p.in_channels) and p.y_fours(p.out_channels)
    side = max(g.filter)
    vec = 4 if fours and p.group_out == 1 and side <= max(SIDES[4]) else 1
    near = g.columns.dilation == 1 and g.columns.stride in (1, 2) and p.item == 4
    step = g.columns.stride if near else 0
    side = 3 if step == 0 else next((s for s in SIDES[vec] if s >= side), max(SIDES[vec]))
    width = _channel_width(p.out_channels // vec)
    tiles, passes = -(-p.out_channels // vec // width), math.prod(-(-f // side) for f in g.filter)
    items = g.output[0] * -(-g.output[1] // ACROSS[step]) * p.images
    return _Blocks(vec, step, side, width, tiles, passes, items)


def _channel_width(packs: int) -> int:
    """Threads along channels: of the powers of two up to a warp the largest that leaves the fewest idle."""
    fewest = 1 << max(0, min(3, (packs - 1).bit_length()))  # eight threads read whole lines
    return min((w for w in (32, 16, 8, 4, 2, 1) if w >= fewest), key=lambda w: -(-packs // w) * w)


def _parts(items: int, threads: int, wanted: float) -> int:
    """Parts of a sum of so many items that ``threads`` threads of a block share."""
    most, least = max(1, items // (threads * LEAST_ITEMS)), -(-items // (threads * MOST_ITEMS))
    return min(items, MAX_GRID_YZ, max(least, min(most, math.ceil(wanted))))


@caches.kept
def _launch(plan: Plan) -> _Launch:
    p, g = plan.problem, plan.problem.geometry
    b = _blocks(p)
    (x_image, x_row, x_column), (y_image, y_row, y_column) = p.x_strides, p.y_strides
    sizes = SIZES.pack(
        images=p.images,
        channels=p.out_channels,
        divisor=p.group_out,
        out_rows=g.output[0],
        out_columns=g.output[1],
        in_rows=g.input[0],
        in_columns=g.input[1],
        filter_rows=g.filter[0],
        filter_columns=g.filter[1],
        stride_row=g.rows.stride,
        stride_column=g.columns.stride,
        padding_row=g.rows.padding[0],
        padding_column=g.columns.padding[0],
        dilation_row=g.rows.dilation,
        dilation_column=g.columns.dilation,
        x_image=x_image,
        x_row=x_row,
        x_column=x_column,
        y_image=y_image,
        y_row=y_row,
        y_column=y_column,
        width=b.width,
        items=-(-b.items // plan.parts),
        part_stride=p.results,
    )
    return _Launch(_source(p.real, b.vec, b.step, b.side), (b.tiles, b.passes, plan.parts), sizes)
