"""Buffers of a network in data-parallel training: all shards begin with the same, and a step changes them once."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd import no_grad
from alpha.distributed.world import World
from alpha.dtypes import is_float
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]


class Buffers:
    """The buffers of a network.

    Running statistics of BatchNorm become the mean of what the shards made of them, weighted by their rows. Of any
    other buffer that is written to, what the batch's first shard made of it counts.
    """

    def __init__(self, module: Module) -> None:
        averaged = {
            id(buffer)
            for layer in module.modules()
            if isinstance(layer, BatchNorm) and not getattr(layer, "is_synchronized", False)
            for buffer in layer.buffers(recurse=False)
        }
        distinct = list({id(buffer): buffer for buffer in module.buffers()}.values())
        self.averaged = [buffer for buffer in distinct if id(buffer) in averaged]
        self.others = [buffer for buffer in distinct if id(buffer) not in averaged]
        self.all = [*self.averaged, *self.others]

    def values(self) -> list[Tensor]:
        """Copies of all."""
        return [buffer.detach().clone() for buffer in self.all]

    def versions(self) -> list[int]:
        """By which it shows what was written to."""
        return [buffer.version for buffer in self.all]

    def restore(self, values: list[Tensor]) -> None:
        """Sets all to values from ``values``."""
        with no_grad():
            for buffer, value in zip(self.all, values, strict=True):
                buffer.copy_(value)

    def row(self, weight: float, before: list[int]) -> Array:
        """What a shard tells of them: weighted running statistics, then whether each was written to; float64."""
        written = [float(buffer.version != version) for buffer, version in zip(self.all, before, strict=True)]
        parts = [np.asarray(buffer, np.float64).reshape(-1) * weight for buffer in self.averaged]
        return np.concatenate([*parts, np.array(written)])

    @property
    def length(self) -> int:
        """Numbers in a row."""
        return sum(buffer.numel() for buffer in self.averaged) + len(self.all)

    def fold(self, world: World, total: Array, first_rank: int, first: list[Tensor] | None) -> None:
        """Sets all to what the step makes of them.

        Args:
            total: the sum of all shards' rows.
            first_rank: the rank that has the batch's first shard.
            first: there, the values after that shard.
        """
        start, written = 0, total[len(total) - len(self.all) :] > 0
        with no_grad():
            for buffer, changed in zip(self.averaged, written, strict=False):
                values = total[start : start + buffer.numel()].reshape(buffer.shape)
                start += buffer.numel()
                if changed:
                    made = values if is_float(buffer.dtype) else np.rint(values)
                    buffer.copy_(buffer.engine.from_numpy(np.asarray(made, buffer.dtype, order="C")))
            changed_others = [
                place for place, buffer in enumerate(self.all) if place >= len(self.averaged) and written[place]
            ]
            if changed_others:
                self._hand_out(world, changed_others, first_rank, first)

    def _hand_out(self, world: World, places: list[int], source: int, first: list[Tensor] | None) -> None:
        """Sets buffers to those of one rank."""
        given = self.all if first is None else first
        arrays = [np.array(given[place].engine.to_numpy(given[place].detach()), order="C") for place in places]
        data = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])
        world.broadcast(data, source, "statistics").finish()
        start = 0
        for place, array in zip(places, arrays, strict=True):
            found = data[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            start += array.nbytes
            self.all[place].copy_(self.all[place].engine.from_numpy(found.copy()))
