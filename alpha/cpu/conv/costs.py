"""What convolutions cost, in cycles of one core: the terms that the models of several algorithms share.

A model of the micro-kernels: two fused multiply-adds and two loads a cycle, chains of four cycles, so much for each
tile's beginning and end; and of the filters, which every block of rows reads anew, at the pace of the caches behind the
second one. It ranks algorithms, and says about how long they take where the caches hold what the plans mean them to.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.kernels.microkernel import NARROW_ROWS

LATENCY = 4
"""Cycles from a multiply-add to the next that takes its result."""

TILE = 40
"""Cycles of a tile's beginning and end: pointers, the loop's start, reading and writing its sums."""

ROW = 6
"""Cycles to find where a row of scattered ones lies."""

LAUNCHES = 50_000
"""Cycles to begin and end the launches that follow a filter gradient's first one, of all cores."""

ADDED = 4.0
"""Cycles a vector of a tile's sums that are read and written in the second cache."""

WRITE = 2.0
"""Cycles a number to put it where the result's images lie."""

NEAR, FAR = 12.0, 4.0
"""Bytes of filters a cycle that a core reads where the last cache holds them all, and where it does not."""

PACK, PACK_FAR = 1.5, 1.5
"""Cycles a number to pack the filters, and more where the last cache does not hold what is packed."""

COPIES = 0.15
"""Of the filter gradient's time: copying x and dy to where they are read."""

PIECE = 4.0
"""Cycles to copy a panel's vectors of a pixel of x, or a tile's numbers of a pixel of dy."""

LAST_CACHE = 12 << 20
"""Bytes of filters that the last cache holds beside all else, about."""

TRANSFORM = 0.75
"""Cycles a load, addition or store of a vector of Winograd's inputs, and what the caches cost."""


def step(rows: int, vectors: int = ISA.vectors) -> float:
    """Cycles of one term of a tile's sums."""
    return max(rows * vectors / 2, (rows + vectors) / 2, LATENCY)


def terms(count: int, vectors: int = ISA.vectors) -> tuple[float, int]:
    """Cycles of a term for so many rows of a panel of so many vectors, and the tiles that they make."""
    most = ISA.rows if vectors > 1 else NARROW_ROWS
    whole, rest = divmod(count, most)
    total, tiles = whole * step(most, vectors), whole
    for rows in (8, 4, 2, 1):
        while rows < most and rest >= rows:
            total, tiles, rest = total + step(rows, vectors), tiles + 1, rest - rows
    return total, tiles


def in_chunks(images: int, chunk: int, vectors: int = ISA.vectors, factor: int = 1) -> tuple[float, int]:
    """``terms`` of so many rows an image, of all chunks of images."""
    whole, rest = divmod(images, chunk)
    each, tiles = terms(chunk * factor, vectors)
    last, few = terms(rest * factor, vectors)
    return whole * each + last, whole * tiles + few


def packing(nbytes: int, item: int, packs: bool) -> float:
    """Cycles to pack filters into so many bytes where a call ``packs`` them.

    The more of the last cache they take, the more of them go to memory.
    """
    if not packs:
        return 0
    return nbytes / item * (PACK + PACK_FAR * min(1, nbytes / LAST_CACHE))


def with_reading(computing: float, passes: float, nbytes: float) -> float:
    """Cycles of computing, or of reading packed filters so often where that takes longer."""
    return max(computing, passes * nbytes / (NEAR if nbytes <= LAST_CACHE else FAR))
