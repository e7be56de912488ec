"""few_channels: filter gradients with few channels on one side, a stem's or a generator's last layer's.

Columns of a tile are (tap, channel) pairs of that side, 27 of 32 for 3x3 and three channels, where a tap's own three
would fill 3 of 16 columns or of 64 rows (kernels/few_weight.cu). Memory has to read the other side once, 4 * channels
bytes per position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha import caches
from alpha.conv.problem import WEIGHT_GRAD
from alpha.cu32 import costs
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import patches, tables
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.problem import Call, Problem
from alpha.cu32.costs import Chip, Plan, Tile
from alpha.cu32.parts import sum_parts
from alpha.cu32.structs import KernelStruct
from alpha.tensor import Storage, Tensor

FEW_WEIGHT = KernelStruct("few_weight.cu", "FewWeight")

TILES = {
    "VECTOR": (
        Tile(64, 32, 8, 4, 32),
        Tile(64, 64, 8, 4, 32),
        Tile(128, 32, 8, 4, 32),
        Tile(64, 16, 8, 4, 32),
        Tile(32, 32, 4, 4, 32),
    ),
    "SCALAR": (Tile(64, 32, 8, 4, 32),),
}
"""Tiles by the way the many channels are read: those by (tap, channel) pairs; of equally useful ones the first is
taken."""

MOST_FEW = 7
"""Most channels whose pairs the kernel gathers: eight fill half a tile of a tap's own, and come in fours."""

RESIDENT = 512
"""Threads that a multiprocessor holds at 128 registers each."""

MOST_PARTS, PARTS_BYTES = 65536, 256 << 20
"""What a launch's second extent stays below, and most bytes that parts may take."""

LEAST_TERMS, MOST_TERMS = 256, 4096
"""Terms of a part of its sum: fewer don't pay for adding parts, more would lose digits of float32."""


def _source(tile: Tile, load: str) -> Source:
    return Source("few_weight", LOAD=load, **tile.macros)


SOURCES = tuple(_source(tile, load) for load, listed in TILES.items() for tile in listed)


@dataclass(frozen=True)
class FewPlan(Plan):
    """``terms``: at most so many of a sum are in a part."""

    tile: Tile = field(kw_only=True)
    load: str = field(kw_only=True)
    terms: int = field(kw_only=True)

    __hash__ = Plan.__hash__

    @property
    def identity(self) -> dict[str, str | int]:
        return {**super().identity, "rows": self.tile.rows, "columns": self.tile.columns, "terms": self.terms}


class _Launch(NamedTuple):
    """What a plan's launches have in common."""

    source: Source
    grid: tuple[int, int]
    tiles: Any
    sizes: bytes


class FewChannels(Algorithm):
    """Up to seven channels on one side, in float32."""

    name = "few_channels"
    file: ClassVar[str] = "few_weight"
    operators = (WEIGHT_GRAD,)
    always = True

    def serves(self, problem: Problem) -> bool:
        fewest = min(problem.in_channels, problem.out_channels)
        if problem.groups != 1 or fewest > MOST_FEW or problem.item != 4 or problem.wide:
            return False
        parts = sum(-(-terms // MOST_TERMS) for terms in _class_terms(problem))
        return parts < MOST_PARTS and problem.results * problem.item * parts <= PARTS_BYTES

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[FewPlan]:
        many, columns, load = _many(problem), _columns(problem), _load(problem)
        tile = _tile(many, columns, load)
        tiles = -(-many // tile.rows) * -(-columns // tile.columns)
        slots = chip.multiprocessors * (RESIDENT // tile.threads) // tiles
        terms = _part_terms(_class_terms(problem), slots, PARTS_BYTES // (problem.results * problem.item))
        # Those with most taps are first; if none has any, one writes zeros.
        number = max(1, int((_listed(problem, terms).taps > 0).sum()))
        cycles = costs.reading_once(problem, chip)
        return [FewPlan(problem, self.name, cycles, number, tile=tile, load=load, terms=terms)]

    def describe(self, plan: FewPlan) -> str:
        return f"which reads its operands about once, tiles of {plan.tile.rows} x {plan.tile.columns}, {plan.choice}"

    def run(self, engine: DeviceEngine, plan: FewPlan, call: Call) -> int:
        problem: Problem = plan.problem
        made, dw = _launch(plan), call.out
        place = engine.constant(made.tiles, lambda: _listed(problem, plan.terms).tiles)
        held = patches.gather_tables(engine, place, problem.geometry, _from_inputs(problem))
        target: Tensor | Storage = dw if plan.parts == 1 else engine.scratch(plan.parts * dw.nbytes)
        both = (call.source, call.other) if _from_inputs(problem) else (call.other, call.source)
        engine.launch(
            made.source,
            self.file,
            made.grid,
            plan.tile.threads,
            *both,
            target,
            patches.addresses(held),
            made.sizes,
        )
        if isinstance(target, Storage):
            sum_parts(engine, target, plan.parts, dw)
        products = tables.leap_products(problem.geometry, problem.images)
        return products * problem.in_channels * problem.out_channels


def _from_inputs(problem: Problem) -> bool:
    """Whether it is x that has few channels."""
    return problem.in_channels <= problem.out_channels


def _many(problem: Problem) -> int:
    """Channels of the other side."""
    return max(problem.in_channels, problem.out_channels)


def _columns(problem: Problem) -> int:
    """(tap, channel) pairs of the side with few channels."""
    return math.prod(problem.geometry.filter) * min(problem.in_channels, problem.out_channels)


def _load(problem: Problem) -> str:
    """How the many channels are read."""
    fours = problem.y_fours if _from_inputs(problem) else problem.x_fours
    return "VECTOR" if fours(_many(problem)) else "SCALAR"


def _tile(rows: int, columns: int, load: str) -> Tile:
    """The tile with the fewest products that are not asked for."""
    return min(TILES[load], key=lambda t: -(-rows // t.rows) * t.rows * -(-columns // t.columns) * t.columns)


def _class_terms(problem: Problem) -> list[int]:
    """Positions times images of every pair of classes that has taps."""
    rows, columns = patches.classes(problem.geometry, _from_inputs(problem))
    sizes = (classes.size[classes.taps > 0] for classes in (rows, columns))
    return [int(n) * problem.images for n in np.multiply.outer(*sizes).ravel()]


def _part_terms(sizes: list[int], slots: int, most_parts: int) -> int:
    """Terms of a part, so that the parts of all classes are resident at once where none gets too long."""
    room = min(max(1, slots - len(sizes)), max(1, most_parts - len(sizes)))
    return min(MOST_TERMS, max(LEAST_TERMS, -(-sum(sizes) // room)))


def _listed(problem: Problem, terms: int) -> tables.TileList:
    """The parts of all classes."""
    g = problem.geometry
    return tables.tiles(g.rows, g.columns, _from_inputs(problem), problem.images, terms)


@caches.kept
def _launch(plan: FewPlan) -> _Launch:
    p, tile = plan.problem, plan.tile
    column_tiles = -(-_columns(p) // tile.columns)
    return _Launch(
        _source(tile, plan.load),
        (-(-_many(p) // tile.rows) * column_tiles, plan.parts),
        ("tiles", p.geometry, _from_inputs(p), p.images, plan.terms),
        _sizes(p, column_tiles),
    )


def _sizes(problem: Problem, column_tiles: int) -> bytes:
    """The sizes and strides; x is the side with few channels, y the one with many."""
    p, g, inputs = problem, problem.geometry, _from_inputs(problem)
    rows, columns = patches.classes(g, inputs)
    channel, tap = math.prod(g.filter) * p.in_channels, p.in_channels
    x, y = (p.x_strides, p.y_strides) if inputs else (p.y_strides, p.x_strides)
    x_image, x_row, x_column = x
    y_image, y_row, y_column = y
    return FEW_WEIGHT.pack(
        images=p.images,
        x_channels=min(p.in_channels, p.out_channels),
        y_channels=_many(p),
        column_tiles=column_tiles,
        filter_rows=g.filter[0],
        filter_columns=g.filter[1],
        x_image=x_image,
        x_row=x_row,
        x_column=x_column,
        x_step_row=x_row * rows.member_step,
        x_step_column=x_column * columns.member_step,
        x_tap_row=x_row * rows.step_a,
        x_tap_column=x_column * columns.step_a,
        y_image=y_image,
        y_row=y_row,
        y_column=y_column,
        y_step_row=y_row * rows.index_step,
        y_step_column=y_column * columns.index_step,
        tap_row=rows.step_b or 1,
        tap_column=columns.step_b or 1,
        out_row=channel if inputs else 1,
        out_tap=tap,
        out_channel=1 if inputs else channel,
        part_stride=p.results,
    )
