"""The CPU engine's copies between layouts: which kernel serves, over which loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from alpha.arguments import Shape
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import copies as kernels
from alpha.tensor import Tensor

SMALL = 1 << 15
"""Numbers below which NumPy copies: its call costs less than a launch gains."""

LARGE_BYTES = 1 << 23
"""Bytes of a result from which it is written past the caches, which would not keep it."""

TAGS = {4: np.float32(0), 8: np.float64(0)}
"""What tells the kernels a number's size."""

Loop = tuple[int, int, int]
"""Length, and the steps in bytes of source and target."""


class Copying(NamedTuple):
    """How numbers get from one layout to another: the kernel and its loops."""

    kernel: Callable[..., Any]
    loops: Array
    outer: int
    """Loops outside of those that the kernel knows about."""
    units: int
    block: int
    """Units per task."""

    @property
    def tasks(self) -> int:
        """Their number."""
        return -(-self.units // self.block)


class CopyOperations(HostEngine):
    """Copies of one dtype between layouts."""

    def copy_layout(self, source: Tensor, out: Tensor) -> bool:
        """Copies a tensor into another of its dtype by a kernel, if one serves; they must not overlap."""
        missing = out.ndim - source.ndim
        if missing < 0 or any(n not in (1, m) for n, m in zip(source.shape, out.shape[missing:], strict=True)):
            return False
        strides = (0,) * missing + tuple(
            0 if n == 1 else stride for n, stride in zip(source.shape, source.strides, strict=True)
        )
        item = out.dtype.itemsize
        plan = planned(out.shape, strides, out.strides, item)
        if plan is None:
            return False
        places, large = (source.address, out.address), out.numel() * item >= LARGE_BYTES
        if plan.kernel is kernels.copy_rows:
            arguments: tuple[Any, ...] = (*plan[1:], large, *places)
        elif plan.kernel is kernels.copy_tiles:
            steps = plan.loops[kernels.TARGET]
            stream = large and not any(int(step) % ISA.bytes for step in (*steps[:-1], out.address))
            arguments = (TAGS[item], item, *plan[1:], stream, *places)
        else:
            arguments = (TAGS[item], item, *plan[1:], *places)
        self.launch(plan.kernel, *arguments, tasks=plan.tasks)
        return True


@lru_cache(maxsize=1024)
def planned(shape: Shape, source: Shape, target: Shape, item: int) -> Copying | None:
    """How to copy between two layouts of a shape, by their strides; None where NumPy's loops serve as well."""
    loops = merged(shape, source, target, item)
    if len(loops) < 2 and (not loops or loops[0][1:] == (item, item)):
        return None
    length, read, write = loops[-1]
    if (read, write) == (item, item):
        return _rows(loops, item)
    if item not in TAGS:
        return None
    lanes = ISA.lanes(item)
    dense = next((i for i, loop in enumerate(loops[:-1]) if loop[1] == item and loop[0] >= lanes), None)
    if write == item and read and length >= lanes and dense is not None:
        return _tiles([*loops[:dense], *loops[dense + 1 : -1], loops[dense], loops[-1]], item)
    return _strided(loops, item)


def merged(shape: Shape, source: Shape, target: Shape, item: int) -> list[Loop]:
    """The loops of a copy, outermost in the target first; neighbours that go on in both layouts are one."""
    loops: list[Loop] = []
    steps = sorted(zip(shape, source, target, strict=True), key=lambda loop: -abs(loop[2]))
    for length, read, write in steps:
        if length == 1:
            continue
        follows = loops and loops[-1][1:] == (length * read * item, length * write * item)
        whole = length * loops.pop()[0] if follows else length
        loops.append((whole, read * item, write * item))
    return loops


def _rows(loops: list[Loop], item: int) -> Copying:
    *outer, (length, _, _) = _cut(loops, kernels.TASK_BYTES // item)
    return _copying(kernels.copy_rows, [*outer, (length * item, 1, 1)], 1, length * item)


def _strided(loops: list[Loop], item: int) -> Copying:
    loops = _cut(loops, kernels.TASK_BYTES // item)
    return _copying(kernels.copy_strided, loops, 1, loops[-1][0] * item)


def _tiles(loops: list[Loop], item: int) -> Copying:
    tile = kernels.TILE_BYTES // item
    tiles = math.prod(-(-length // tile) for length, _, _ in loops[-2:])
    return _copying(kernels.copy_tiles, loops, 2, kernels.TILE_BYTES * tile, tiles)


def _cut(loops: list[Loop], most: int) -> list[Loop]:
    """The loops, the last of them as two where it is long and divides well, so that threads share it."""
    length, read, write = loops[-1]
    piece = next((n for n in range(most, most // 4, -1) if length % n == 0), length) if length > most else length
    if piece == length:
        return loops
    return [*loops[:-1], (length // piece, piece * read, piece * write), (piece, read, write)]


def _copying(kernel: Any, loops: list[Loop], inner: int, nbytes: int, pieces: int = 1) -> Copying:
    outer = len(loops) - inner
    units = math.prod(length for length, _, _ in loops[:outer]) * pieces
    table = np.array(loops, np.int64).T.copy()
    return Copying(kernel, table, outer, units, max(1, kernels.TASK_BYTES // max(nbytes, 1)))
