"""What convolutions cost, in cycles of one core: the terms that the models of several algorithms share.

A model counts the micro-kernel's terms by its multiply-adds, loads and latency, so much for each tile's beginning and
end, and the filters, which every block of rows reads anew, at the pace of the caches behind the L2 cache. What a
processor takes for each of these is measured: ``alpha.cpu.figures``. A model ranks algorithms, and says about how long
they take where the caches hold what the plans mean them to.
"""

from __future__ import annotations

from alpha.cpu.figures import Figures
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import NARROW_ROWS

FMA_LATENCY_CYCLES = 4
"""Cycles from a multiply-add to the next one that takes its result, on most processors."""

LOADS_PER_CYCLE = 2
"""Vectors that a core reads from its L1 cache, on most processors."""


def step(rows: int, fmas_per_cycle: float, vectors: int = ISA.vectors) -> float:
    """Cycles of one term of a tile's sums."""
    return max(rows * vectors / fmas_per_cycle, (rows + vectors) / LOADS_PER_CYCLE, FMA_LATENCY_CYCLES)


def terms(count: int, fmas_per_cycle: float, vectors: int = ISA.vectors) -> tuple[float, int]:
    """Cycles of a term for so many rows of a panel of so many vectors, and the tiles that they make."""
    most = ISA.rows if vectors > 1 else NARROW_ROWS
    whole, rest = divmod(count, most)
    total, tiles = whole * step(most, fmas_per_cycle, vectors), whole
    for rows in (8, 4, 2, 1):
        while rows < most and rest >= rows:
            total, tiles, rest = total + step(rows, fmas_per_cycle, vectors), tiles + 1, rest - rows
    return total, tiles


def in_chunks(
    images: int, chunk: int, fmas_per_cycle: float, vectors: int = ISA.vectors, factor: int = 1
) -> tuple[float, int]:
    """``terms`` of so many rows per image, of all chunks of images."""
    whole, rest = divmod(images, chunk)
    cycles, tiles = terms(chunk * factor, fmas_per_cycle, vectors)
    last_cycles, last_tiles = terms(rest * factor, fmas_per_cycle, vectors)
    return whole * cycles + last_cycles, whole * tiles + last_tiles


def packing(nbytes: int, item: int, packs: bool, figures: Figures) -> float:
    """Cycles to pack filters into so many bytes where a call ``packs`` them."""
    if not packs:
        return 0
    return nbytes / item * figures.pack_cycles_per_number + 2 * reading(nbytes, figures)  # and a write per read


def reading(nbytes: float, figures: Figures) -> float:
    """Cycles of reading filters of so many bytes, from the L3 cache where it holds them."""
    held = nbytes <= figures.l3_bytes
    return nbytes / (figures.l3_bytes_per_cycle if held else figures.dram_bytes_per_cycle)


def with_reading(computing: float, passes: float, nbytes: float, figures: Figures) -> float:
    """Cycles of computing, or of reading packed filters so often where that takes longer."""
    return max(computing, passes * reading(nbytes, figures))


def spilled(traffic: float, working_set: float, figures: Figures) -> float:
    """Cycles of so many bytes read and written that make up a working set, as far as the L2 cache does not hold it."""
    return traffic * max(0.0, 1 - figures.l2_bytes / working_set) / figures.l3_bytes_per_cycle


def moved(traffic: float, working_set: float, figures: Figures) -> float:
    """Cycles of so many bytes read and written that make up a working set, from the L3 cache as far as it holds it."""
    held = min(1.0, figures.l3_bytes / working_set)
    return traffic * (held / figures.l3_bytes_per_cycle + (1 - held) / figures.dram_bytes_per_cycle)
