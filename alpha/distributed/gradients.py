"""Sums of gradients: over a rank's shards as they arrive, then in buckets over ranks while backward goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alpha.distributed.tensors import Travelling, begin_sum
from alpha.distributed.tree import additions, cover
from alpha.distributed.world import World
from alpha.tensor import Tensor, dense_strides

_ALIGNMENT = 16
"""Elements of which a parameter's place in a bucket is a multiple."""

_ALONE_BYTES = 1 << 20
"""A gradient of so many bytes travels alone, from the memory in which backward made it."""

Sum = tuple[Tensor, bool]
"""A sum of some shards' gradients, and whether nobody else holds it; None for shards that gave no gradient."""


class Layout:
    """Which parameters' gradients travel together: buckets of some size, the last parameters first.

    Args:
        params: in the order of the network.
        nbytes: of a bucket.
        size: the number of ranks.
        owners: for each parameter the only rank that gets its gradient; None where all ranks get all.

    Attributes:
        buckets: the parameters of each.
        owners: of each bucket.
        places: for each parameter its bucket and its first element there.
        lengths: elements of each bucket.
        gaps: what lies between parameters in each, as ranges of elements.
    """

    def __init__(
        self, params: Sequence[Tensor], nbytes: int, size: int, owners: Mapping[Tensor, int] | None = None
    ) -> None:
        latest: dict[int | None, list[Tensor]] = {}
        lengths: dict[int, int] = {}
        buckets: list[list[Tensor]] = []
        order: dict[int, int] = {}
        for place, param in enumerate(reversed(params)):
            owner = None if owners is None else owners[param]
            bucket = latest.get(owner)
            if param.nbytes >= _ALONE_BYTES and param.numel() % (_ALIGNMENT * size) == 0:
                buckets.append([param])
                order[id(buckets[-1])] = place
                continue
            if bucket is None or (lengths[id(bucket)] + _room(param)) * param.itemsize > nbytes:
                bucket = latest[owner] = []
                buckets.append(bucket)
                lengths[id(bucket)] = 0
            bucket.append(param)
            lengths[id(bucket)] += _room(param)
            order[id(bucket)] = place
        # They are sent in this order, each once its last gradient has come.
        self.buckets = sorted(buckets, key=lambda one: order[id(one)])
        self.owners = [None if owners is None else owners[bucket[0]] for bucket in self.buckets]
        self.places: dict[Tensor, tuple[int, int]] = {}
        self.lengths: list[int] = []
        self.gaps: list[list[tuple[int, int]]] = []
        for number, bucket in enumerate(self.buckets):
            self._lay_out(number, bucket, size)

    def _lay_out(self, number: int, bucket: list[Tensor], size: int) -> None:
        length, gaps = 0, []
        for param in bucket:
            self.places[param] = number, length
            end = length + _room(param)
            if length + param.numel() < end:
                gaps.append((length + param.numel(), end))
            length = end
        even = -(-length // size) * size  # so that ranks can share it out
        self.lengths.append(even)
        self.gaps.append([*gaps, (length, even)] if length < even else gaps)


def _room(param: Tensor) -> int:
    """Elements that a parameter takes in a bucket."""
    return -(-param.numel() // _ALIGNMENT) * _ALIGNMENT


class GradientSums:
    """The gradients of one global batch on their way.

    Args:
        world: the ranks.
        layout: the buckets.
        shards: how many there are on all ranks.
    """

    def __init__(self, world: World, layout: Layout, shards: int) -> None:
        self.world, self.layout = world, layout
        per_rank = shards // world.size
        first = world.rank * per_rank
        self.shards, self.here = shards, per_rank
        self.nodes = len(cover(first, first + per_rank, shards))
        self.additions = additions(first, first + per_rank, shards)
        self.sums: dict[Tensor, list[Sum | None]] = {param: [] for param in layout.places}
        self.missing = [len(bucket) for bucket in layout.buckets]
        self.flats: list[Tensor | None] = [None] * len(layout.buckets)
        self.travelling: list[Travelling] = []

    def arrived(self, param: Tensor, shard: int, gradient: Sum | None) -> None:
        """Takes the gradient of one of this rank's shards, which come in order; after the last it is sent."""
        stack = self.sums[param]
        stack.append(gradient)
        last = shard == self.here - 1
        count = self.additions[shard]
        for left in reversed(range(count)):
            second, first = stack.pop(), stack.pop()
            into = self._place(param, 0) if last and not left and self._goes_in_place() else None
            stack.append(_added(first, second, into))
        if last and self.world.size > 1:
            self._put(param, stack)

    def _goes_in_place(self) -> bool:
        return self.nodes == 1 and self.world.size > 1

    def _put(self, param: Tensor, stack: list[Sum | None]) -> None:
        """Lays a parameter's sums into its bucket, and sends the buckets that are full, in order."""
        self._adopt(param, stack)
        for node, found in enumerate(stack):
            place = self._place(param, node)
            if found is None:
                param.engine.fill(place, 0)
            elif found[0].storage is not place.storage:
                param.engine.copy(found[0], place)
        stack.clear()
        self.missing[self.layout.places[param][0]] -= 1
        while len(self.travelling) < len(self.missing) and not self.missing[len(self.travelling)]:
            bucket = len(self.travelling)
            owner = self.layout.owners[bucket]
            self.travelling.append(begin_sum(self.world, self._flat(bucket), self.shards, owner))
        for bucket, sums in enumerate(self.travelling):
            if (
                sums.advance() and not sums.is_carried and not self._is_ours(bucket)
            ):  # a GPU's stream still uses its own
                self._drop(bucket)

    def _adopt(self, param: Tensor, stack: list[Sum | None]) -> None:
        """Makes a gradient that nobody else holds its bucket's memory, where it is the only one there."""
        bucket, found = self.layout.places[param][0], stack[0]
        if self.nodes > 1 or found is None or self.flats[bucket] is not None or len(self.layout.buckets[bucket]) > 1:
            return
        gradient, owned = found
        if owned and gradient.numel() == self.layout.lengths[bucket] and gradient.strides == _strides_of(param):
            length = gradient.numel()
            self.flats[bucket] = gradient.strided(gradient.offset, (1, length), (length, 1))

    def _is_ours(self, bucket: int) -> bool:
        """Whether this rank gets a bucket's sums."""
        return self.layout.owners[bucket] in (None, self.world.rank)

    def _flat(self, bucket: int) -> Tensor:
        """A bucket's memory: for each node of this rank a row."""
        flat = self.flats[bucket]
        if flat is None:
            param, length = self.layout.buckets[bucket][0], self.layout.lengths[bucket]
            flat = self.flats[bucket] = param.engine.empty((self.nodes, length), param.dtype)
            for first, end in self.layout.gaps[bucket]:  # which are added up too, and never read
                param.engine.fill(flat[:, first:end], 0)
        return flat

    def _place(self, param: Tensor, node: int) -> Tensor:
        """Where a parameter's gradient lies in its bucket, shaped and ordered as the parameter."""
        bucket, start = self.layout.places[param]
        flat = self._flat(bucket)
        return flat.strided(flat.offset + start + node * self.layout.lengths[bucket], param.shape, _strides_of(param))

    def _drop(self, bucket: int) -> None:
        """Gives up the memory of a bucket of which this rank does not get the sums."""
        self.travelling[bucket].drop()
        self.flats[bucket] = None

    def finish(self) -> dict[Tensor, Tensor]:
        """Waits for the sums; for each parameter whose gradient is this rank's a tensor that nobody else holds."""
        if self.world.size == 1:
            return {param: _owned(param, stack[0]) for param, stack in self.sums.items() if stack[0] is not None}
        for bucket, sums in enumerate(self.travelling):
            sums.finish()
            if not self._is_ours(bucket):
                self._drop(bucket)
        return {
            param: self._place(param, 0) for param, (bucket, _) in self.layout.places.items() if self._is_ours(bucket)
        }


def _strides_of(param: Tensor) -> tuple[int, ...]:
    """Strides without gaps in a parameter's memory order."""
    return dense_strides(param.shape, param.memory_order())


def _added(first: Sum | None, second: Sum | None, into: Tensor | None) -> Sum | None:
    """The sum of two nodes. One without a gradient counts as zeros, as it does where ranks add."""
    if first is None and second is None:
        return None
    given = [one for one in (first, second) if one is not None]
    engine = given[0][0].engine
    free = next((tensor for tensor, owned in given if owned), None)
    operands: list[Any] = [tensor for tensor, _ in given]
    if len(operands) == 1:
        operands.append(0.0)
    out = into if into is not None else free
    return engine.elementwise("add", *operands, out=out), True


def _owned(param: Tensor, found: Sum | None) -> Tensor:
    """A gradient in memory of its own that is laid out as its parameter."""
    assert found is not None
    gradient, owned = found
    order = param.memory_order()
    if owned and (gradient.strides == param.strides or gradient.is_contiguous(order)):
        return gradient
    return param.engine.copied(gradient, order)
