"""Algorithms whose threads compute patches of positions, the tables of their kernels and the structs of patches.cuh."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from alpha.cu32 import costs
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import tables
from alpha.cu32.conv.algorithm import Algorithm
from alpha.cu32.conv.problem import Call, Problem
from alpha.cu32.conv.tables import Classes, PatchList
from alpha.cu32.costs import Chip, Plan
from alpha.cu32.structs import KernelStruct
from alpha.geometry import Axis, Geometry
from alpha.tensor import Tensor

GATHER_TABLES = KernelStruct("tile.cuh", "GatherTables")
PATCHES = KernelStruct("patches.cuh", "Patches")

THREADS = 256
"""Threads per block; the kernels say the same."""


@dataclass(frozen=True)
class Cover:
    """A gather's positions by patches of down x across, ``together`` of them per block."""

    rows: Axis
    columns: Axis
    forward: bool
    down: int
    across: int
    together: int

    @property
    def listed(self) -> PatchList:
        """The list, which no number of images changes."""
        return tables.patches(self.rows, self.columns, self.forward, self.down, self.across, self.together)

    @property
    def classes(self) -> tuple[Classes, Classes]:
        """The classes of rows and of columns."""
        return classes(Geometry(self.rows, self.columns), self.forward)

    def tables(self, engine: DeviceEngine) -> list[Tensor]:
        """Its tables on the device, as ``gather_tables``."""
        place = engine.constant(("patches", self), lambda: self.listed.tiles)
        geometry = Geometry(self.rows, self.columns)
        return gather_tables(engine, place, geometry, self.forward)

    def pack(self, problem: Problem, filter_row: int, filter_column: int) -> bytes:
        """The struct that kernels compute the patches by; from a row of the filter to the next, and from a column."""
        rows, columns = self.classes
        source, target = (side.strides for side in problem.sides)
        return PATCHES.pack(
            images=problem.images,
            entries=len(self.listed.tiles),
            member_row=rows.member_step,
            member_column=columns.member_step,
            tap_row=rows.step_a or 1,
            tap_column=columns.step_a or 1,
            a_image=source[0],
            a_row=source[1],
            a_column=source[2],
            b_row=filter_row,
            b_column=filter_column,
            b_tap_row=rows.step_b * filter_row,
            b_tap_column=columns.step_b * filter_column,
            out_image=target[0],
            out_row=target[1],
            out_column=target[2],
            accumulate=problem.adds,
        )


class Launch(NamedTuple):
    """What a problem's launches have in common."""

    source: Source
    grid: int
    cover: Cover
    sizes: bytes
    macs: int


class PatchAlgorithm(Algorithm):
    """ConvV2 and KS-deconv-V2 by a kernel that reads its operands about once, and is taken wherever it serves."""

    file: ClassVar[str]
    always = True

    @abstractmethod
    def launch(self, problem: Problem) -> Launch:
        """How the kernel is launched for a problem."""

    @abstractmethod
    def filters(self, engine: DeviceEngine, w: Tensor, problem: Problem) -> Tensor:
        """The filters in the order in which the kernel reads them."""

    def plans(self, problem: Problem, chip: Chip, parts: int | None = None) -> list[Plan]:
        return [Plan(problem, self.name, costs.reading_once(problem, chip))]

    def describe(self, plan: Plan) -> str:
        return "which reads its operands about once"

    def run(self, engine: DeviceEngine, plan: Plan, call: Call) -> int:
        made, filters = self.launch(plan.problem), self.filters(engine, call.other, plan.problem)
        held = made.cover.tables(engine)
        operands = call.source, filters, call.out, call.bias
        engine.launch(made.source, self.file, made.grid, THREADS, *operands, addresses(held), made.sizes)
        return made.macs


def classes(geometry: Geometry, forward: bool) -> tuple[Classes, Classes]:
    """A gather's classes of rows and of columns."""
    find = tables.by_output if forward else tables.by_input
    return find(geometry.rows), find(geometry.columns)


def gather_tables(engine: DeviceEngine, tiles: Tensor, geometry: Geometry, forward: bool) -> list[Tensor]:
    """What a gather's kernel reads, around a list of tiles on the device: to be held until the launch."""
    found = [tiles]
    for axis, listed in zip((geometry.rows, geometry.columns), classes(geometry, forward), strict=True):
        found.append(engine.constant(("classes", axis, forward), listed.class_array))
        found.append(engine.constant(("members", axis, forward), listed.member_array))
    return found


def addresses(held: Iterable[Tensor]) -> bytes:
    """What ``gather_tables`` found, as a kernel finds it."""
    tiles, row_classes, row_members, column_classes, column_members = (table.address for table in held)
    return GATHER_TABLES.pack(
        tiles=tiles,
        row_classes=row_classes,
        row_members=row_members,
        column_classes=column_classes,
        column_members=column_members,
    )


def steps_fit(problem: Problem) -> bool:
    """Whether the source's steps from a tap or a position to the next are offsets of 32 bits; others need not be."""
    return all(
        max(abs(listed.step_a), listed.member_step) * stride < tables.LIMIT
        for listed, stride in zip(
            classes(problem.geometry, problem.by_output), problem.sides[0].strides[1:], strict=True
        )
    )


def power_of_two(count: int, least: int, most: int) -> int:
    """The smallest power of two that holds ``count``, within bounds that are powers of two."""
    return min(most, max(least, 1 << (count - 1).bit_length()))
