"""The cost model: what a kernel's tile and number of parts cost on a device, in cycles, from figures in the open.

A multiprocessor issues one instruction per cycle on each of its four schedulers, so a step costs what its warps issue,
a share of what they read from shared memory beside that, or what the second-level cache brings, whichever is most. A
kernel lasts as long as its busiest multiprocessor: blocks go, in the order of the launch, to the one that is free
first; few warps hide little. Starting kernels, blocks and passes over the parts of a split sum cost extra, and nothing
is faster than its operands and results pass through memory.

The constants are those of an H100 by its public figures, and of the main loops' instructions in the cubins of sm_90
(kernels/LOOPS.md). Where a device's own speeds have been measured (``cu32.figures``), those stand in for its peak of
multiply-adds, its memory's and its cache's. They choose well where candidates differ by more than some 10 %;
``alpha.set_search`` measures instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha import dtypes
from alpha.cu32 import figures
from alpha.cu32.parts import read_together

if TYPE_CHECKING:
    from alpha.cu32.driver import Device

WARP = 32

SCHEDULERS = 4
"""Schedulers of a multiprocessor; each issues one warp's instruction per cycle."""


class Moving(NamedTuple):
    """Instructions of a thread's step beside multiply-adds and reads of shared memory.

    Attributes:
        piece: those that bring four elements from memory to shared memory, their place among them.
        step: the others.
    """

    piece: int
    step: int


THROUGH_REGISTERS, COPIED = Moving(12, 40), Moving(4, 60)
"""What kernels issue that load and store, and those that copy asynchronously."""

CONTENTION = 8
"""One cycle in so many that the reads of shared memory take is not hidden behind the multiply-adds."""

LATENCY = 2.0
"""Warps that hide nothing yet: w warps keep a multiprocessor busy w / (w + LATENCY) of the time."""

OTHER_SHARED = 10 << 10
"""Bytes of shared memory that a block has beside its panels, at most."""

L2 = 28.0
"""Bytes per cycle that the second-level cache brings each multiprocessor, when all ask, where none is measured."""

MEMORY = 12.0
"""Bytes per cycle that each multiprocessor reads or writes in memory, when all do, where none is measured."""

START = 2000
"""Cycles of a block before its first step and after its last, which those beside it do not hide."""

LAUNCH = 5000
"""Cycles of starting and ending a kernel."""

JOIN = 3000
"""Cycles in which blocks that join the parts of a result wait for each other's, and for the first of them."""

ARRIVING = 700
"""Cycles until what blocks that join parts read arrives from the second-level cache."""

REGISTERS = 65536
"""Those of a multiprocessor: where a thread of a block that joins parts has many, it reads more at once."""

LEAST_TERMS = 256
"""Least terms of a part of a split sum."""

PRICE = 100 * (1 << 20)
"""Bytes of parts that cost as much as the kernel's time: one MiB must save 1 % of it."""

PARTS_BYTES = 256 << 20
"""Most bytes that parts may take."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of parts that are tried, beside those that give every multiprocessor as many blocks."""

UNTILED = 0.5
"""Share of the multiply-adds' peak that kernels without tiles reach, about, where memory does not bound them."""

_NAMES = {dtype.itemsize: dtypes.info(dtype).c_name for dtype in dtypes.FLOATS}

Lengths = tuple[tuple[int, int], ...]
"""Blocks in the order of their launch: so many, each of so many steps."""


@dataclass(frozen=True)
class Tile:
    """A block's rows and columns, and a thread's: down x across sums; ``depth`` terms of a sum per step."""

    rows: int
    columns: int
    down: int
    across: int
    depth: int = 16

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.rows * self.columns // (self.down * self.across)

    @property
    def macros(self) -> dict[str, Any]:
        """What the kernels are compiled with."""
        return {
            "TILE_ROWS": self.rows,
            "TILE_COLUMNS": self.columns,
            "TILE_DOWN": self.down,
            "TILE_ACROSS": self.across,
        }


@dataclass(frozen=True)
class Chip:
    """What a choice of kernel may depend on of a device.

    Attributes:
        clock: in Hz.
        shared_per_block, shared_per_multiprocessor: in bytes.
        l2, memory: bytes per cycle that a multiprocessor gets of the second-level cache and of memory, when all ask.
        measured_fmas: float32 multiply-adds per cycle of a multiprocessor, where they were measured.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock: int
    shared_per_block: int
    shared_per_multiprocessor: int
    l2: float = L2
    memory: float = MEMORY
    measured_fmas: float | None = None

    @staticmethod
    @cache
    def of(device: Device) -> Chip:
        """A device's, with its own speeds where they have been measured."""
        found = Chip(
            device.name,
            device.capability,
            device.multiprocessors,
            device.clock,
            device.shared_per_block,
            device.shared_per_multiprocessor,
        )
        kept = figures.read(device.name, device.multiprocessors, device.clock)
        return found if kept is None else found.measured(kept)

    def measured(self, found: figures.Figures) -> Chip:
        """The same with speeds that were measured."""
        fma, memory, l2 = (found.per_cycle(name, self.multiprocessors, self.clock) for name in figures.SPEEDS)
        return replace(self, measured_fmas=fma / 2, memory=memory, l2=l2)

    @property
    def fmas(self) -> float:
        """Float32 multiply-adds per cycle of a multiprocessor."""
        if self.measured_fmas is not None:
            return self.measured_fmas
        return 64.0 if self.capability <= (8, 0) else 128.0

    def milliseconds(self, cycles: float) -> float:
        """At the highest clock."""
        return 1e3 * cycles / self.clock


@dataclass(frozen=True)
class Kernel:
    """One that serves a problem.

    Attributes:
        tile, load: a block's tile; how operands are read, "VECTOR", "FLAT", "SCALAR" or "TF32".
        depth: terms of the sum a step.
        step: cycles of a block's step on a multiprocessor that never waits.
        resident: blocks that a multiprocessor holds.
    """

    tile: Tile
    load: str
    depth: int
    step: float
    resident: int

    @property
    def warps(self) -> float:
        """Warps of a block."""
        return self.tile.threads / WARP


def float_kernel(
    chip: Chip,
    tile: Tile,
    load: str,
    penalty: float = 1.0,
    resident: int | None = None,
    moving: Moving = THROUGH_REGISTERS,
) -> Kernel:
    """A kernel without tensor cores: each thread multiplies, reads shared memory, and moves pieces of four elements."""
    depth, threads = tile.depth, tile.threads
    multiplies = tile.down * tile.across * depth
    reads = depth * (tile.down + tile.across) / 4
    pieces = (
        (tile.rows + tile.columns) * depth / 4 / threads
    )  # each read once, and written by four elements or one by one
    issued = max(multiplies + reads + moving.piece * pieces + moving.step, multiplies * 128 / chip.fmas)
    warps = threads / WARP
    shared = (2 * reads + 4 * pieces) * warps  # a 128-bit read takes two wavefronts
    busy = max(issued * warps / SCHEDULERS + shared / CONTENTION, shared)
    step = penalty * max(busy, panel_cycles(chip, tile, depth))
    held = 2 * (tile.rows + tile.columns) * depth * 4 + OTHER_SHARED
    return Kernel(
        tile, load, depth, step, resident or max(1, min(512 // threads, chip.shared_per_multiprocessor // held))
    )


def panel_cycles(chip: Chip, tile: Tile, depth: int) -> float:
    """Cycles until the caches have brought a step's two panels of float32."""
    return (tile.rows + tile.columns) * depth * 4 / chip.l2


class Job(ABC):
    """A problem that kernels can solve: hashable, its ``repr`` the same in every process.

    Attributes:
        item: bytes of an element.
        operator: what is computed: a convolution's operator, or "matmul".
    """

    item: int
    operator: str

    @property
    def joins(self) -> bool:
        """Whether the kernels add the parts of their results themselves."""
        return False

    @property
    def real(self) -> str:
        """The elements' type in the kernels."""
        return _NAMES[self.item]

    @property
    @abstractmethod
    def products(self) -> int:
        """Multiply-adds asked for."""

    @property
    def nominal(self) -> int:
        """Multiply-adds of an algorithm that multiplies the zeros of padding too."""
        return self.products

    @property
    @abstractmethod
    def operands(self) -> int:
        """Elements of both."""

    @property
    @abstractmethod
    def results(self) -> int:
        """Elements of the result."""

    @property
    def fewest(self) -> int:
        """Least number of parts."""
        return 1

    def parts(self, number: int) -> int:
        """How many there really are where so many are asked for."""
        return number


@dataclass(frozen=True)
class Plan:
    """A way to solve a problem, and what the model thinks of it.

    Attributes:
        problem: what it is for.
        algorithm: the name of what solves it.
        cycles: until the result is there.
        parts: pieces that each sum is cut into.
    """

    problem: Any
    algorithm: str
    cycles: float
    parts: int = 1

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Kept: launches are looked up by it in every call."""
        return hash((self.problem, *self.identity.values()))

    @property
    def kernel(self) -> Hashable:
        """What plans have in common that differ in their number of parts alone."""
        return self.algorithm

    @property
    def identity(self) -> dict[str, str | int]:
        """What tells it from all other plans of its problem, as the search keeps it on disk."""
        return {"algorithm": self.algorithm, "parts": self.parts}

    @property
    def price(self) -> float:
        """Its cycles, the memory for its parts counted in."""
        memory = self.parts * self.problem.results * self.problem.item if self.parts > 1 else 0
        return self.cycles * (1 + memory / PRICE)

    @property
    def choice(self) -> str:
        """The kernel and its parts, in words."""
        return f"{self.parts} part{'s' if self.parts > 1 else ''}"

    def __str__(self) -> str:
        return f"{self.problem}: {self.algorithm}, {self.choice}, about {self.cycles:.0f} cycles"


@dataclass(frozen=True)
class TilePlan(Plan):
    """One by tiles of the result.

    Attributes:
        tile, load: which kernel.
        blocks: of all parts.
        useful: products asked for over those that the tiles compute.
    """

    tile: Tile = field(kw_only=True)
    load: str = field(kw_only=True)
    blocks: int = field(kw_only=True)
    useful: float = field(kw_only=True)

    __hash__ = Plan.__hash__

    @property
    def kernel(self) -> Hashable:
        return self.algorithm, self.tile, self.load

    @property
    def second_cache(self) -> int:
        """Bytes that its blocks bring through the second-level cache: two panels of float32 for each step."""
        tile = self.tile
        return int(self.problem.products / self.useful * 4 * (tile.rows + tile.columns) / (tile.rows * tile.columns))

    @property
    def identity(self) -> dict[str, str | int]:
        tile = {"rows": self.tile.rows, "columns": self.tile.columns, "depth": self.tile.depth}
        return {"algorithm": self.algorithm, **tile, "load": self.load, "parts": self.parts}

    @property
    def choice(self) -> str:
        t = self.tile
        return (
            f"tiles of {t.rows} x {t.columns}, {t.threads} threads with {t.down} x {t.across} sums each, {t.depth} "
            f"terms per step, {self.load.lower()} loads, {self.parts} part{'s' if self.parts > 1 else ''}, "
            f"{self.blocks} blocks, {self.useful:.0%} of the tiles' products asked for"
        )


class Covered(NamedTuple):
    """A kernel, and the blocks by which it covers a problem in one part."""

    kernel: Kernel
    blocks: Lengths


def plans(job: Job, chip: Chip, algorithm: str, kernels: Iterable[Covered], parts: int | None = None) -> list[TilePlan]:
    """An algorithm's: each kernel with every number of parts worth a thought, or the given one; the best first.

    That is the cheapest, the memory for its parts counted in.
    """
    found: list[TilePlan] = []
    for kernel, lengths in kernels:
        tile, blocks = kernel.tile, sum(number for number, _ in lengths)
        steps = sum(number * length for number, length in lengths)
        useful = job.products / max(1, steps * tile.rows * tile.columns * kernel.depth)
        numbers = _numbers(job, chip, kernel, lengths) if parts is None else [max(parts, job.fewest)]
        for number in sorted({job.parts(number) for number in numbers}):
            cycles = _cycles(job, chip, kernel, lengths, number)
            every = blocks * number
            found.append(
                TilePlan(job, algorithm, cycles, number, tile=tile, load=kernel.load, blocks=every, useful=useful)
            )
    return sorted(found, key=lambda plan: plan.price)


def reading_once(job: Job, chip: Chip) -> float:
    """Cycles of a kernel without tiles, for the most part bound by memory, which reads its operands about once."""
    computing = job.products / (UNTILED * chip.fmas * chip.multiprocessors)
    return LAUNCH + max(computing, passing(job, chip))


def _numbers(job: Job, chip: Chip, kernel: Kernel, lengths: Lengths) -> list[int]:
    """Parts to try: usual numbers, and those that make whole waves of blocks."""
    blocks, longest = sum(number for number, _ in lengths), max(length for _, length in lengths)
    room = PARTS_BYTES // (job.results * job.item)
    most = max(job.fewest, min(longest * kernel.depth // LEAST_TERMS, room))
    waves = [wave * chip.multiprocessors // blocks for wave in range(1, 2 * kernel.resident + 1)]
    return [job.fewest, *(number for number in (*SPLITS, *waves) if job.fewest <= number <= most)]


def passing(job: Job, chip: Chip, parts: int = 1) -> float:
    """Cycles in which the operands and so many results pass through memory."""
    return (job.operands + parts * job.results) * job.item / (chip.memory * chip.multiprocessors)


def _cycles(job: Job, chip: Chip, kernel: Kernel, lengths: Lengths, parts: int) -> float:
    """Cycles until the result is there, its parts added."""
    cycles = LAUNCH + max(_computing(chip, kernel, lengths, parts), passing(job, chip, parts))
    nbytes = job.results * job.item
    if parts > 1 and job.joins:
        tile = nbytes / sum(number for number, _ in lengths)
        cycles += JOIN + read_together(parts) * tile / _joined(kernel)
    elif parts > 1:
        cycles += LAUNCH + nbytes * (parts + 1) / (chip.memory * chip.multiprocessors)
    return cycles


def _joined(kernel: Kernel) -> float:
    """Bytes of parts that one block reads per cycle: each thread has 64 or 128 on their way (kernels/join.cuh)."""
    threads = kernel.tile.threads
    many = REGISTERS / (threads * kernel.resident) >= 160
    return threads * (128 if many else 64) / ARRIVING


def _computing(chip: Chip, kernel: Kernel, lengths: Lengths, parts: int) -> float:
    """Cycles until the busiest multiprocessor is through."""
    pieces = []
    for number, steps in lengths:
        piece = max(1, -(-steps // parts))
        pieces.append((number * max(1, -(-steps // piece)), min(steps, piece)))
    blocks = sum(number for number, _ in pieces)
    mean = sum(number * steps for number, steps in pieces) / blocks
    most_blocks = -(-blocks // chip.multiprocessors)  # blocks of the busiest one
    resident = min(most_blocks, kernel.resident)
    waiting = _waiting(resident * kernel.warps)
    longest = busiest(pieces, chip.multiprocessors) * waiting
    if most_blocks % resident:  # the last ones have the multiprocessor to themselves
        last = most_blocks % resident
        longest += last * mean * (_waiting(last * kernel.warps) - waiting)
    return longest * kernel.step + START * -(-most_blocks // resident)


def _waiting(warps: float) -> float:
    """Time over that of a multiprocessor which never waits."""
    return (warps + LATENCY) / warps


def busiest(pieces: Sequence[tuple[int, int]], machines: int) -> int:
    """The largest load where so many pieces, each so long, go in this order to the machine with the least."""
    loads = [(0, machines)]  # a heap: a load, and how many machines have it
    for number, length in pieces:
        if length == 0:
            continue
        apart = -(-(max(loads)[0] - loads[0][0]) // length)
        rounds = max(0, number // machines - apart - 1)  # in which every machine gets one piece, whatever its load
        if rounds:
            loads = [(load + rounds * length, count) for load, count in loads]
        left = number - rounds * machines
        while left > 0:
            load, count = heappop(loads)
            taking = min(count, left)
            heappush(loads, (load + length, taking))
            if count > taking:
                heappush(loads, (load, count - taking))
            left -= taking
    return max(load for load, _ in loads)
