"""Shards: the parts of a global batch whose gradients are summed by one tree, and which of them this rank has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha import random
from alpha.distributed.world import World
from alpha.errors import ArgumentError, ShapeError, described
from alpha.records import IMAGE_ORDER
from alpha.tensor import Tensor


@dataclass(frozen=True)
class Shard:
    """One of this rank's parts of a global batch.

    Attributes:
        number: among all shards of the batch.
        first, end: its rows, among those of this rank's part.
        weight: its share of the batch's rows.
        random: where its random numbers begin.
    """

    number: int
    first: int
    end: int
    weight: float
    random: dict[str, int]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.end - self.first


@dataclass(frozen=True)
class Division:
    """How the rows of a global batch are shared out.

    Attributes:
        shards: this rank's.
        rows: of the global batch.
        first: number of the first shard of all ranks that has rows.
        stops: whether some rank was asked to stop.
        is_ahead: whether all ranks have shared it out ahead of a step that they may replay.
    """

    shards: list[Shard]
    rows: int
    first: int
    stops: bool
    is_ahead: bool

    @property
    def cuts(self) -> tuple[int, ...]:
        """What decides which work there is to do on this rank; what else there is only changes numbers in it."""
        return self.first, *[shard.first for shard in self.shards], self.shards[-1].end


def divide(
    world: World, rows: int, shards: int, stop: bool, state: Mapping[str, int], is_ahead: bool = False
) -> Division:
    """Shares out a global batch of which this rank has some rows; an operation of all ranks.

    Args:
        state: where random numbers are when the loop begins; rank 0's count.
        is_ahead: whether the step that has the loop did not begin yet.

    Where ranks have rows as loaders hand them out, shard s of S has rows s*N//S up to (s+1)*N//S of the batch's N,
    whatever the number of ranks. Else each rank divides its own rows in the same way.
    """
    place = np.array([state["seed"], state["offset"]], np.uint64).view(np.int64).tolist()
    row = [rows, *place, int(stop), int(is_ahead)]
    table = world.table(row, "start")
    counts = table[:, 0].tolist()
    seed, offset = table[0, 1:3].view(np.uint64).tolist()
    total, size, per_rank = sum(counts), world.size, shards // world.size
    if not total:
        raise ArgumentError("[split] expected a batch with rows, got none on any rank: leave out empty batches")
    usual = [(rank + 1) * total // size - rank * total // size for rank in range(size)]
    if counts == usual:
        bounds = [number * total // shards for number in range(shards + 1)]
    else:
        starts = np.cumsum([0, *counts]).tolist()
        bounds = [
            starts[number // per_rank] + number % per_rank * counts[number // per_rank] // per_rank
            for number in range(shards)
        ] + [total]
    start = bounds[world.rank * per_rank]
    mine = [
        Shard(
            number,
            bounds[number] - start,
            bounds[number + 1] - start,
            (bounds[number + 1] - bounds[number]) / total,
            random.mixed({"seed": seed, "offset": offset}, number),
        )
        for number in range(world.rank * per_rank, (world.rank + 1) * per_rank)
    ]
    first = next(number for number in range(shards) if bounds[number + 1] > bounds[number])
    return Division(mine, total, first, bool(table[:, 3].any()), bool(table[:, 4].all()))


def rows_of(tensors: tuple[Any, ...]) -> int:
    """The length of the first axis of tensors, which they share."""
    if not tensors:
        raise ArgumentError("[split] expected a batch's tensors, got none: pass what the loader gave")
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or not tensor.ndim:
            raise ArgumentError(f"[split] expected tensors with an axis of rows, got {described(tensor)}")
    rows = {tensor.shape[0] for tensor in tensors}
    if len(rows) > 1:
        raise ShapeError(
            f"[split] expected tensors with as many rows each, got {', '.join(str(t.shape) for t in tensors)}"
        )
    return int(rows.pop())


def part_of(tensor: Tensor, shard: Shard) -> Tensor:
    """A shard's rows of a tensor, dense and in the same memory order whatever else this rank has.

    So they are computed with as they would be on a rank that has no others.
    """
    if shard.first == 0 and shard.end == tensor.shape[0]:
        return tensor
    part = tensor.detach().strided(
        tensor.offset + shard.first * tensor.strides[0], (shard.rows, *tensor.shape[1:]), tensor.strides
    )
    order = tensor.memory_order() if shard.rows else tuple(range(tensor.ndim))
    if tensor.ndim == len(IMAGE_ORDER) and tensor.is_contiguous(IMAGE_ORDER):
        order = IMAGE_ORDER
    return tensor.engine.copied(part, order)
