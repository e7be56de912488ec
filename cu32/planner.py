"""The planner: which kernel, tile and split a convolution or matrix product takes on a device, and why.

``plan`` asks the cost model (``cu32/costs.py``); ``chosen``, which operators call, prefers what was timed where
``alpha.set_search`` is on. ``with planner.use(tile=(64, 64), parts=2):`` overrides either; ``cu32/explain.py`` tells.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from alpha import search as setting
from alpha.cu32 import costs, search, selfcheck, tables, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.costs import Chip, Job, Kernel, Lengths, Plan, Tile, float_kernel
from alpha.cu32.search import Question
from alpha.errors import ArgumentError
from alpha.geometry import Geometry

__all__ = ["Override", "Plan", "Problem", "Tile", "chosen", "outlook", "plan", "use"]

FLAT_LIMIT = 1024
"""Taps times channels that conv.cu's table of offsets holds."""

PENALTY = {"VECTOR": 1.0, "FLAT": 1.2, "SCALAR": 1.3}
"""What loading one element at a time costs."""

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
class Problem(Job):
    """A convolution that a plan is made for: channels are those of one group.

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

    @property
    def file(self) -> str:
        return "conv_weight" if self.operator == "weight_grad" else "conv"

    def __str__(self) -> str:
        channels = f"{self.in_channels} to {self.out_channels} channels x {self.groups}"
        rows, columns = self.geometry.rows, self.geometry.columns
        return (
            f"{self.operator} of {self.images} x {self.geometry.input}, {channels}, filter {self.geometry.filter}, "
            f"stride {(rows.stride, columns.stride)}"
        )

    def kernels(self, chip: Chip, high: bool) -> Sequence[Kernel]:
        load = self._load()
        listed = (LEAP if self.operator == "weight_grad" else GATHER)[load]
        if self.real == "double":
            return [float_kernel(chip, DOUBLE, load, 2 * PENALTY[load], resident=2)]
        found = [float_kernel(chip, tile, load, PENALTY[load]) for tile in listed]
        shallow = min(self.in_channels, self.out_channels) < tf32.SHALLOWEST
        return found if not high or not self.vector or shallow else [*tf32.convolutions(chip), *found]

    def _load(self) -> str:
        """The way operands are read in float32."""
        if self.operator != "weight_grad":
            depth = self.in_channels if self.operator == "forward" else self.out_channels
            few = depth < 8 or not self.vector
            if few and not self.wide and math.prod(self.geometry.filter) * depth <= FLAT_LIMIT and depth % 8:
                return "FLAT"
        return "VECTOR" if self.vector and self.real == "float" else "SCALAR"

    def lengths(self, kernel: Kernel) -> Lengths:
        g, tile = self.geometry, kernel.tile
        if self.operator == "weight_grad":
            count = -(-self.out_channels // tile.rows) * -(-self.in_channels // tile.columns) * self.groups
            return tuple((count, int(-(-terms // kernel.depth))) for terms in tables.leaps(g, self.images))
        forward = self.operator == "forward"
        depth, width = (self.in_channels, self.out_channels)[:: 1 if forward else -1]
        listed = tables.tiles(g.rows, g.columns, forward, self.images, tile.rows)
        counts = sorted(Counter(listed.taps.tolist()).items(), reverse=True)
        one = -(-depth // kernel.depth)
        across = -(-width // tile.columns) * self.groups
        if kernel.load == "FLAT":
            return tuple((number * across, -(-taps * depth // kernel.depth)) for taps, number in counts)
        return tuple((number * across, taps * one) for taps, number in counts)

    @property
    def products(self) -> int:
        return self.geometry.macs(
            self.images, self.in_channels * self.groups, self.out_channels * self.groups, self.groups
        )

    @property
    def nominal(self) -> int:
        return self.products * self.geometry.nominal // max(1, self.geometry.useful)

    @property
    def operands(self) -> int:
        return self._images(True) + self._images(False) + self._filters - self.results

    @property
    def results(self) -> int:
        if self.operator == "weight_grad":
            return self._filters
        return self._images(self.operator == "input_grad")

    @property
    def _filters(self) -> int:
        """Elements of all filters."""
        return self.groups * self.out_channels * math.prod(self.geometry.filter) * self.in_channels

    def _images(self, inputs: bool) -> int:
        """Elements of the images on one side."""
        pixels = math.prod(self.geometry.input if inputs else self.geometry.output)
        return self.images * pixels * (self.in_channels if inputs else self.out_channels) * self.groups


@dataclass(frozen=True)
class Override:
    """What ``use`` fixes; None leaves it to the model."""

    tile: tuple[int, int] | None = None
    parts: int | None = None
    load: str | None = None

    def among(self, plans: tuple[Plan, ...]) -> tuple[Plan, ...]:
        """Plans with the kernels named; where none loads so, or none has the tile, that does not count."""
        loading = tuple(plan for plan in plans if self.load in (None, plan.load)) or plans
        return tuple(p for p in loading if self.tile in (None, (p.tile.rows, p.tile.columns))) or loading


_MODEL = Override()
_override: ContextVar[Override] = ContextVar("override", default=_MODEL)


@contextmanager
def use(tile: tuple[int, int] | None = None, parts: int | None = None, load: str | None = None) -> Iterator[None]:
    """Within it every plan takes this tile (rows, columns), number of parts and way of loading, where there are such.

    ``load`` is "VECTOR", "FLAT", "SCALAR", or "TF32" for the tensor cores, which the precision must allow.
    """
    if parts is not None and parts < 1:
        raise ArgumentError(f"[planner] expected parts >= 1, got {parts}")
    outer = _override.get()
    try:
        try:
            _override.set(Override(tile, parts, load))
            yield
        finally:
            _override.set(outer)
    finally:
        _override.set(outer)  # once more, if an interrupt came before the first time


def plan(job: Job, chip: Chip, high: bool = False) -> Plan:
    """The cheapest plan by the model, or the one that ``use`` names; ``high``: TF32 is allowed."""
    return _plans(job, chip, high, _override.get())[0]


@lru_cache(maxsize=512)
def _plans(job: Job, chip: Chip, high: bool, override: Override) -> tuple[Plan, ...]:
    """The cheapest first."""
    return override.among(tuple(costs.plans(job, chip, high, override.parts)))


def _high(engine: DeviceEngine, job: Job) -> bool:
    """Whether a job may take the tensor cores: not where their kernels were found to compute wrongly."""
    return tf32.enabled(engine) and selfcheck.sound(engine, f"{job.file}_tf32")


def chosen(engine: DeviceEngine, job: Job, run: Callable[[Plan], object]) -> Plan:
    """The plan that an operator launches: that of ``use``, else the fastest where a search is on, else the model's.

    ``run`` does the operator's work by a plan, onto memory that nobody reads.
    """
    chip, high, override = Chip.of(engine.device), _high(engine, job), _override.get()
    if override == _MODEL and setting.get_search():
        question = Question(chip, job, high)
        return search.known(question) or search.fastest(engine, question, _plans(job, chip, high, _MODEL), run)
    return _plans(job, chip, high, override)[0]


def outlook(engine: DeviceEngine, job: Job) -> tuple[Plan, float | None]:
    """The plan that an operator would launch now, and the milliseconds that a search has measured of it, if any."""
    chip, high, override = Chip.of(engine.device), _high(engine, job), _override.get()
    times = search.kept(Question(chip, job, high), _plans(job, chip, high, _MODEL))
    if times and setting.get_search() and override == _MODEL:
        best = min(times, key=times.__getitem__)
    else:
        best = _plans(job, chip, high, override)[0]
    return best, times.get(best)
