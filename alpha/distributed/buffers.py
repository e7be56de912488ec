"""Buffers of a network in data-parallel training: all shards begin with the same, and a step changes them once."""

from __future__ import annotations

from typing import Any

from alpha.autograd import no_grad
from alpha.distributed.tensors import broadcast
from alpha.distributed.world import World
from alpha.dtypes import float64, is_float
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm
from alpha.tensor import Tensor, dense_strides


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
        kinds: dict[Any, list[Tensor]] = {}
        for buffer in distinct:
            if id(buffer) in averaged:
                kinds.setdefault(buffer.dtype, []).append(buffer)
        self._kinds = list(kinds.values())  # of one dtype each
        self.averaged = [buffer for kind in self._kinds for buffer in kind]
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

    def row(self, weight: Tensor) -> Tensor | None:
        """What a shard tells of running statistics, (length,) float64, weighted; None where there are none."""
        parts = [weight.engine.concat(_as_vectors(buffers), 0) for buffers in self._kinds]
        wide = [_converted(part, float64) for part in parts]
        joined = weight.engine.concat(wide, 0) if len(wide) > 1 else wide[0] if wide else None
        return None if joined is None else weight.engine.elementwise("mul", joined, weight)

    def written(self, before: list[int]) -> list[float]:
        """For each of all, 1.0 if it was written to since it had a version, else 0.0."""
        return [float(buffer.version != version) for buffer, version in zip(self.all, before, strict=True)]

    @property
    def length(self) -> int:
        """Numbers in a row."""
        return sum(buffer.numel() for buffer in self.averaged)

    def fold(self, world: World, total: Tensor, written: list[bool], source: int, first: list[Tensor] | None) -> None:
        """Sets all to what the step makes of them.

        Args:
            total: the sum of all shards' rows.
            written: which of all some shard has written to.
            source: the rank that has the batch's first shard.
            first: there, the values after that shard.
        """
        with no_grad():
            self._fold_averaged(total, dict(zip(self.averaged, written, strict=False)))
            for place in range(len(self.averaged), len(self.all)):
                if written[place]:
                    buffer = self.all[place]
                    value = buffer.engine.copied((buffer if first is None else first[place]).detach())
                    broadcast(world, value.reshape(-1), source, "statistics")
                    buffer.copy_(value)

    def _fold_averaged(self, total: Tensor, written: dict[Tensor, bool]) -> None:
        start = 0
        for buffers in self._kinds:
            length, dtype = sum(buffer.numel() for buffer in buffers), buffers[0].dtype
            part = total.strided(total.offset + start, (length,), (1,))
            if not is_float(dtype):
                part = part.round()
            part, start, place = _converted(part, dtype), start + length, 0
            for buffer in buffers:
                if written[buffer]:
                    shape = dense_strides(buffer.shape)
                    buffer.copy_(part.strided(part.offset + place, buffer.shape, shape))
                place += buffer.numel()


def _as_vectors(buffers: list[Tensor]) -> list[Tensor]:
    """Views, or copies, of one axis."""
    return [buffer.detach().reshape(-1) for buffer in buffers]


def _converted(x: Tensor, dtype: Any) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)
