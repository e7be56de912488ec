"""Tensors in operations of all ranks: in a GPU's own memory where that can travel, else through the host's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.distributed import collectives
from alpha.distributed.transport import Transport
from alpha.distributed.tree import nodes_of
from alpha.distributed.world import World
from alpha.tensor import Tensor


class Travelling:
    """An operation of all ranks that changes a dense tensor, begun.

    Args:
        make: the operation's steps, from what carries it, the memory that it changes, and its messages' tag.

    Attributes:
        tensor: the tensor; None once it is dropped.
        is_carried: whether it is the tensor itself that travels, in the order of a stream.
    """

    def __init__(
        self, world: World, tensor: Tensor, name: str, make: Callable[[Transport, Any, int], collectives.Steps]
    ) -> None:
        carrier = world.carriers.get(tensor.engine.name)
        memory: Any = tensor if carrier is not None else tensor.engine.to_numpy(tensor)
        self.tensor: Tensor | None = tensor
        self.is_carried = carrier is not None
        self._memory = memory
        self._operation = world.begin(name, memory, lambda transport, tag: make(transport, memory, tag), carrier)

    def advance(self) -> bool:
        """Goes on as far as that goes without waiting; returns whether it is through."""
        return self._operation.advance()

    def finish(self) -> None:
        """Waits, and lets what comes next find the tensor changed."""
        self._operation.finish()
        tensor, memory = self.tensor, self._memory
        if tensor is None or self.is_carried or memory.__array_interface__["data"][0] == tensor.address:
            return
        tensor.engine.copy(tensor.engine.from_numpy(memory), tensor)  # the host had a copy

    def drop(self) -> None:
        """Gives up the memory: this rank has no use for the result."""
        self.tensor = self._memory = None


def begin_sum(
    world: World, nodes: Tensor, shards: int, owner: int | None = None, name: str = "gradients"
) -> Travelling:
    """Begins a sum over all shards, which all ranks get, or one.

    Args:
        nodes: (nodes, length), the sums of this rank's nodes; the result is in the first row.
    """

    def make(transport: Transport, memory: Any, tag: int) -> collectives.Steps:
        add = add_tensors if memory is nodes else np.add
        if owner is None:
            return collectives.all_reduce(transport, memory, tag, shards, add)
        return collectives.reduce_to(transport, memory, owner, tag, shards, add)

    return Travelling(world, nodes, name, make)


def sum_rows(world: World, rows: list[Tensor], shards: int) -> Tensor:
    """The sum of vectors, one for each of this rank's shards, over all shards; some of them are overwritten."""
    nodes, length = nodes_of(rows, world.rank * len(rows), shards, add_tensors), rows[0].numel()
    first: Tensor = nodes[0]
    if world.size == 1:
        return first
    flat = first.engine.stack(nodes, 0) if len(nodes) > 1 else first.strided(first.offset, (1, length), (length, 1))
    begin_sum(world, flat, shards, name="statistics").finish()
    return flat.strided(flat.offset, (length,), (1,))


def sum_arrays(world: World, rows: list[np.ndarray[Any, Any]], shards: int) -> np.ndarray[Any, Any]:
    """The sum of vectors on the host, one for each of this rank's shards, over all shards; some are overwritten."""
    nodes = np.stack(nodes_of(rows, world.rank * len(rows), shards, np.add))
    world.sum(nodes, "statistics", shards).finish()
    total: np.ndarray[Any, Any] = nodes[0]
    return total


def broadcast(world: World, tensor: Tensor, source: int, name: str) -> None:
    """Gives a dense tensor of one axis the values that it has on one rank."""
    if world.size > 1:
        Travelling(world, tensor, name, lambda by, memory, tag: collectives.broadcast(by, memory, source, tag)).finish()


def gather(world: World, tensor: Tensor, bounds: list[int], name: str) -> None:
    """Hands round the segments of a dense tensor of one axis: see ``collectives.gather``."""
    if world.size > 1:
        Travelling(world, tensor, name, lambda by, memory, tag: collectives.gather(by, memory, bounds, tag)).finish()


def add_tensors(first: Tensor, second: Tensor, out: Tensor) -> Tensor:
    """``out = first + second``; returns it."""
    return out.engine.elementwise("add", first, second, out=out)
