"""A batch of matrix products as the kernels take it: operands as they lie, merged batch axes, tiles, parts."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from alpha.tensor import Shape, Tensor

LONGEST = 32768
"""Most products in one running sum: its float32 roundings then stay below 5e-6 of the largest result."""

SHORTEST = 256
"""Least depth of a part: a shorter one does not repay its pass over the result."""

STEP = 32
"""A part's depth is a multiple of this: whole panels, and 16-byte addresses."""

BATCH_AXES = 3
"""Batch axes that kernels/products.cuh has room for."""

Axes = tuple[tuple[int, int, int], ...]
"""Batch axes: length, stride of the left operand, stride of the right one; 0 where one broadcasts."""

_PRODUCT = struct.Struct("<17q")


@dataclass(frozen=True)
class Operand:
    """A batch of matrices (edge, depth), the depth being what a product sums over.

    Attributes:
        across: neighbours in depth are neighbours in memory and edges lie ``leading`` elements apart; else the other
            way round.
        batch_strides: one an axis of the product's batch, 0 where this operand broadcasts.
    """

    tensor: Tensor
    across: bool
    leading: int
    batch_strides: Shape

    @property
    def edges(self) -> int:
        """Rows of a left operand, columns of a right one."""
        return self.tensor.shape[-2]

    @property
    def depth(self) -> int:
        """Length of what the product sums over."""
        return self.tensor.shape[-1]

    @property
    def layout(self) -> str:
        """The kernels' name."""
        return "ACROSS" if self.across else "ALONG"

    @property
    def aligned(self) -> bool:
        """Whether four neighbours can be moved at once everywhere: 16-byte addresses, no odd end."""
        run = self.depth if self.across else self.edges
        return self.tensor.address % 16 == 0 and all(n % 4 == 0 for n in (run, self.leading, *self.batch_strides))


def broadcast_strides(x: Tensor, batch: Shape) -> Shape:
    """The strides of (..., edge, depth) along the axes of a batch that its own broadcast to."""
    own = [0 if n == 1 else s for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True)]
    return (*(0 for _ in range(len(batch) - len(own))), *own)


def merged_axes(batch: Shape, left: Shape, right: Shape) -> Axes:
    """Batch axes without those of length 1, neighbours made one where both operands' strides allow it."""
    axes: list[tuple[int, int, int]] = []
    for n, a, b in zip(batch, left, right, strict=True):
        if n == 1:
            continue
        if axes and axes[-1][1] == a * n and axes[-1][2] == b * n:
            axes[-1] = (axes[-1][0] * n, a, b)
        else:
            axes.append((n, a, b))
    return tuple(axes)


def batches(axes: Axes) -> int:
    """Number of products."""
    return math.prod(n for n, _, _ in axes)


@dataclass(frozen=True)
class Split:
    """How a product is shared out: the tile's edge, the number of parts of the depth, and the depth of each."""

    tile: int
    parts: int
    part: int

    def blocks(self, rows: int, columns: int) -> int:
        """Blocks a batch."""
        return -(-rows // self.tile) * -(-columns // self.tile) * self.parts


@dataclass(frozen=True)
class Rate:
    """What a kernel's blocks reach, for the choice of a split.

    Attributes:
        tiles: tile's edge, and multiply-adds a cycle and multiprocessor with it.
    """

    tiles: tuple[tuple[int, int], ...]


FLOAT32 = Rate(((128, 110), (64, 75)))
FLOAT64 = Rate(((64, 40),))
TF32 = Rate(((128, 600), (64, 330)))

_PASS = 4000
"""Cycles of one more launch."""

_BYTES = 12
"""Bytes that each multiprocessor reads or writes in a cycle, when all do."""


@lru_cache(maxsize=4096)
def split(rows: int, columns: int, depth: int, count: int, rate: Rate, multiprocessors: int) -> Split:
    """The tile and the parts that finish first, by a model of whole waves of blocks and of the parts' sum.

    Parts are used where the tiles alone leave multiprocessors idle, and where one running sum would be too long.
    """
    fewest = -(-depth // LONGEST)
    most = max(fewest, depth // SHORTEST)
    numbers = sorted({fewest, *(n for n in _PARTS if fewest <= n <= most)})
    candidates = [(_split(tile, n, depth), macs) for tile, macs in rate.tiles for n in numbers]

    def cycles(candidate: tuple[Split, int]) -> float:
        found, macs = candidate
        waves = -(-found.blocks(rows, columns) * count // multiprocessors)
        product = waves * found.tile * found.tile * found.part / macs
        if found.parts == 1:
            return product
        return product + _PASS + 4 * rows * columns * count * (2 * found.parts + 1) / (_BYTES * multiprocessors)

    return min(candidates, key=cycles)[0]


_PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)


def vector_split(tasks: int, enough: int, depth: int, least: int) -> Split:
    """Parts of a matrix by a vector: until there are enough tasks, none shorter than ``least``."""
    parts = max(1, min(-(-enough // tasks), depth // least), -(-depth // LONGEST))
    return _split(1, parts, depth)


def _split(tile: int, parts: int, depth: int) -> Split:
    """At most so many parts, of whole steps of every kernel's panels."""
    part = -(-depth // (parts * STEP)) * STEP
    return Split(tile, -(-depth // part), part)


def pack(a: Operand, b: Operand, axes: Axes, shares: Split) -> bytes:
    """The struct Product of kernels/products.cuh."""
    padded = ((1, 0, 0),) * (BATCH_AXES - len(axes)) + axes
    sizes, left, right = zip(*padded, strict=True)
    return _PRODUCT.pack(
        a.edges, b.edges, a.depth, a.leading, b.leading, batches(axes), shares.parts, shares.part,
        *sizes, *left, *right,
    )  # fmt: skip


def transposed(x: Tensor) -> Tensor:
    """A view with the last two axes exchanged."""
    shape: Sequence[int] = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return x.view(x.offset, tuple(shape), (*x.strides[:-2], x.strides[-1], x.strides[-2]))
