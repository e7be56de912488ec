"""The planner: which tile, loads and split a convolution takes on a device, by a cost model in the open.

The model counts what a multiprocessor does: the steps of the blocks it gets, a step's FMAs at 128 a cycle, how well the
warps at hand keep it busy, and what adding the parts of a split sum costs. A plan explains itself as text;
``with planner.use(tile=(64, 64), parts=2):`` overrides the choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from alpha.errors import ArgumentError
from alpha.geometry import Geometry
from cu32 import tables

FMAS = 128
"""FMAs a cycle of a multiprocessor."""

REGISTERS = 512
"""Threads that a multiprocessor holds at 128 registers each."""

LATENCY = 3.0
"""Warps that hide nothing yet: w warps keep a multiprocessor busy w / (w + LATENCY) of the time."""

START = 2000
"""Cycles of a block before its first step and after its last."""

LAUNCH = 5000
"""Cycles of a second kernel, which adds parts."""

BYTES = 16
"""Bytes a cycle that a multiprocessor's share of memory moves."""

CACHE = 160
"""Bytes a cycle that the caches bring a multiprocessor beside its FMAs."""

LEAST_TERMS = 256
"""Least terms of a part of a split sum."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PARTS_BYTES = 256 << 20
"""Numbers of parts that are tried, and most bytes that they may take."""

FLAT_LIMIT = 1024
"""Taps times channels that conv.cu's table of offsets holds."""

PENALTY = {"VECTOR": 1.0, "FLAT": 1.2, "SCALAR": 1.3}
"""What loading one element at a time costs."""


@dataclass(frozen=True)
class Tile:
    """A block's rows and columns, and a thread's: down x across sums."""

    rows: int
    columns: int
    down: int
    across: int

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.rows * self.columns // (self.down * self.across)

    @property
    def depth(self) -> int:
        """Terms of the sum a step; the kernels say the same."""
        return 8 if self.across == 8 else 16

    @property
    def macros(self) -> dict[str, Any]:
        """What the kernels are compiled with."""
        return {
            "TILE_ROWS": self.rows,
            "TILE_COLUMNS": self.columns,
            "TILE_DOWN": self.down,
            "TILE_ACROSS": self.across,
        }


LARGE, TALL, SQUARE, NARROW, SMALL, SLIM = (
    Tile(128, 128, 8, 8),
    Tile(128, 64, 8, 8),
    Tile(64, 64, 8, 4),
    Tile(128, 32, 8, 4),
    Tile(64, 32, 8, 4),
    Tile(64, 16, 8, 4),
)
DOUBLE = Tile(64, 64, 4, 4)
GATHER = {
    "VECTOR": (LARGE, TALL, SQUARE, NARROW, SMALL),
    "FLAT": (SQUARE, NARROW, SMALL),
    "SCALAR": (LARGE, SQUARE, SMALL),
}
"""Tiles of conv.cu by the way it loads."""

LEAP = {"VECTOR": (LARGE, TALL, SQUARE, SMALL, SLIM), "SCALAR": (SQUARE, SMALL, SLIM)}
"""Tiles of conv_weight.cu."""


@dataclass(frozen=True)
class Problem:
    """What a plan is made for: channels are those of one group.

    Attributes:
        operator: "forward", "input_grad" or "weight_grad".
        vector: whether channel counts, strides and addresses allow four channels to be read at once.
        wide: whether offsets need 64 bits.
        splits: whether the sum may be cut into parts.
    """

    operator: str
    geometry: Geometry
    images: int
    in_channels: int
    out_channels: int
    groups: int
    real: str
    vector: bool
    wide: bool
    splits: bool


@dataclass(frozen=True)
class Plan:
    """A choice, and what the model thinks of it."""

    problem: Problem
    tile: Tile
    load: str
    parts: int
    blocks: int
    cycles: float
    useful: float

    def __str__(self) -> str:
        p, t = self.problem, self.tile
        return (
            f"{p.operator} of {p.images} x {p.geometry.input}, "
            f"{p.in_channels} to {p.out_channels} channels x {p.groups}: "
            f"tiles of {t.rows} x {t.columns}, {t.threads} threads with {t.down} x {t.across} sums each, "
            f"{self.load.lower()} loads, {self.parts} part{'s' if self.parts > 1 else ''}, {self.blocks} blocks, "
            f"{self.useful:.0%} of the tiles' products asked for, about {self.cycles:.0f} cycles"
        )


@dataclass(frozen=True)
class Override:
    """What ``use`` fixes; None leaves it to the model."""

    tile: tuple[int, int] | None = None
    parts: int | None = None


_MODEL = Override()
_override: ContextVar[Override] = ContextVar("override", default=_MODEL)


@contextmanager
def use(tile: tuple[int, int] | None = None, parts: int | None = None) -> Iterator[None]:
    """Within it every plan takes this tile (rows, columns) and number of parts, where the kernels have them."""
    if parts is not None and parts < 1:
        raise ArgumentError(f"[planner] expected parts >= 1, got {parts}")
    token = _override.set(Override(tile, parts))
    try:
        yield
    finally:
        _override.reset(token)


def plan(problem: Problem, multiprocessors: int) -> Plan:
    """The cheapest plan by the model, or the one that ``use`` names."""
    return _plan(problem, multiprocessors, _override.get())


@lru_cache(maxsize=4096)
def _plan(problem: Problem, multiprocessors: int, override: Override) -> Plan:
    load = _load(problem)
    listed = (LEAP if problem.operator == "weight_grad" else GATHER)[load]
    if problem.real == "double":
        listed = (DOUBLE,)
    listed = tuple(t for t in listed if override.tile in (None, (t.rows, t.columns))) or listed
    found = [
        candidate for tile in listed for candidate in _candidates(problem, tile, load, multiprocessors, override.parts)
    ]
    return min(found, key=lambda candidate: candidate.cycles)


def _load(problem: Problem) -> str:
    """The way operands are read."""
    if problem.operator != "weight_grad":
        depth = problem.in_channels if problem.operator == "forward" else problem.out_channels
        taps = problem.geometry.rows.filter * problem.geometry.columns.filter
        few = depth < 8 or not problem.vector
        if few and not problem.wide and taps * depth <= FLAT_LIMIT and depth % 8:
            return "FLAT"
    return "VECTOR" if problem.vector and problem.real == "float" else "SCALAR"


def _candidates(problem: Problem, tile: Tile, load: str, multiprocessors: int, parts: int | None) -> Iterator[Plan]:
    """Plans of one tile, with the splits worth a thought."""
    blocks, steps, longest = _work(problem, tile, load)
    size = _result_size(problem)
    item = 4 if problem.real == "float" else 8
    room = max(1, PARTS_BYTES // (size * item))
    most = max(1, min(longest * tile.depth // LEAST_TERMS, room)) if problem.splits else 1
    choices = [number for number in SPLITS if number <= most]
    if parts is not None and problem.splits:
        choices = [parts]
    products = problem.geometry.macs(
        problem.images, problem.in_channels * problem.groups, problem.out_channels * problem.groups, problem.groups
    )
    useful = products / max(1, steps * tile.rows * tile.columns * tile.depth)
    for number in choices:
        cycles = _cycles(tile, load, blocks, steps, longest, number, multiprocessors)
        if number > 1:
            cycles += LAUNCH + size * item * (number + 1) / (BYTES * multiprocessors)
        yield Plan(problem, tile, load, number, blocks * number, cycles, useful)


def _cycles(tile: Tile, load: str, blocks: int, steps: int, longest: int, parts: int, multiprocessors: int) -> float:
    """Cycles until the busiest multiprocessor is through."""
    step = tile.rows * tile.columns * tile.depth / FMAS * PENALTY[load] * (1.0 if tile.across == 8 else 1.1)
    step += (tile.rows + tile.columns) * tile.depth * 4 / CACHE
    each = -(-blocks * parts // multiprocessors)  # blocks of the busiest one
    resident = min(each, REGISTERS // tile.threads)
    warps = resident * tile.threads / 32
    work = max(each * steps / (blocks * parts), longest / parts)
    return work * step * (warps + LATENCY) / warps + START * -(-each // resident)


def _result_size(problem: Problem) -> int:
    """Elements of the result."""
    g = problem.geometry
    if problem.operator == "weight_grad":
        return problem.out_channels * problem.groups * problem.in_channels * g.rows.filter * g.columns.filter
    pixels = g.output if problem.operator == "forward" else g.input
    channels = problem.out_channels if problem.operator == "forward" else problem.in_channels
    return problem.images * pixels[0] * pixels[1] * channels * problem.groups


def _work(problem: Problem, tile: Tile, load: str) -> tuple[int, int, int]:
    """Blocks of one part, the steps of all of them, and of the longest."""
    g = problem.geometry
    if problem.operator == "weight_grad":
        tiles = -(-problem.out_channels // tile.rows) * -(-problem.in_channels // tile.columns) * problem.groups
        steps = -(-tables.leaps(g, problem.images) // tile.depth)
        return steps.size * tiles, int(steps.sum()) * tiles, int(steps.max())
    forward = problem.operator == "forward"
    depth, width = (problem.in_channels, problem.out_channels)[:: 1 if forward else -1]
    taps = tables.tiles(g.rows, g.columns, forward, problem.images, tile.rows).taps
    steps = -(-taps * depth // tile.depth) if load == "FLAT" else taps * -(-depth // tile.depth)
    across = -(-width // tile.columns) * problem.groups
    return steps.size * across, int(steps.sum()) * across, int(steps.max())
