"""A loop over a rank's shards of a global batch: what happens before, between and behind their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import steps
from alpha.autograd.walk import Walk, seed, walk_from
from alpha.distributed.gradients import GradientSums, Sum
from alpha.distributed.shards import Shard, part_of
from alpha.distributed.tensors import sum_arrays, sum_rows
from alpha.distributed.turns import Turn
from alpha.dtypes import float64
from alpha.errors import DistributedError, DtypeError, GraphError, ShapeError
from alpha.repeated import unchanged
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.distributed.data_parallel import DataParallel


class Held:
    """Gradients of this rank's shards that were added up within ``no_sync``, and what else waits with them.

    Attributes:
        sums: for each shard, the gradients by parameter.
        buffers: for each shard, the buffers as it left them.
        before: the parameters' gradients before.
        shown: what the parameters' ``.grad`` was set to meanwhile, and its version.
    """

    def __init__(self, params: list[Tensor], shards: int) -> None:
        self.sums: list[dict[Tensor, Tensor]] = [{} for _ in range(shards)]
        self.buffers: list[list[Tensor] | None] = [None] * shards
        self.before = {param: param.grad for param in params}
        self.shown: dict[Tensor, tuple[Tensor, int]] = {}

    def show(self, params: list[Tensor]) -> None:
        """Lets ``.grad`` hold the sum over this rank's shards, and what it held before."""
        for param in params:
            parts = [sums[param] for sums in self.sums if param in sums]
            before = self.before[param]
            shown = before
            for part in parts:
                shown = part.clone() if shown is None else shown + part
            param.grad = shown
            if shown is not None:
                self.shown[param] = shown, shown.version

    def is_in_force(self) -> bool:
        """Whether nobody has dropped the gradients since; DistributedError if somebody has changed them."""
        if any(param.grad is not shown for param, (shown, _) in self.shown.items()):
            return False
        changed = [shown for shown, version in self.shown.values() if shown.version != version]
        if not changed:
            return True
        if any(bool((shown != 0).any()) for shown in changed):
            raise DistributedError(
                "[no_sync] expected gradients that are left alone until a loop over par.split(...) outside of it has "
                "sent them, got changed ones: clip them behind that loop"
            )
        return False


class Loop:
    """A loop over this rank's shards of a global batch.

    Attributes:
        shards: this rank's.
        passed: how many of them are through.
    """

    def __init__(self, owner: DataParallel, turn: Turn) -> None:
        self.owner, self.world, self.turn = owner, owner.world, turn
        self.engine = owner._params[0].engine
        self.shards, self.passed = turn.division.shards, 0
        self.shards_here = len(self.shards)
        held = owner._held
        if held is not None and not held.is_in_force():
            held = owner._held = None
        self.held = held
        self.keeps = owner._is_held
        if self.keeps and self.held is None:
            self.held = owner._held = Held(owner._params, len(self.shards))
        self.sums = None if self.keeps else GradientSums(self.world, owner._layout, owner.shards)
        self.current: Shard | None = None
        self.done = False  # whether the current shard has had its backward
        self.used: list[set[int]] = [set() for _ in self.shards]
        self.written: list[list[float]] = [[0.0] * len(owner._state.all) for _ in self.shards]
        self.losses: list[Tensor | None] = [None] * len(self.shards)
        self.statistics: list[Tensor | None] = [None] * len(self.shards)
        self.first: list[Tensor] | None = None

    # -- the shards ------------------------------------------------------------------------------------------------

    def parts(self, tensors: tuple[Tensor, ...]) -> Iterator[Any]:
        """The shards' parts of tensors; what comes between them is done here."""
        owner = self.owner
        several = sum(shard.rows > 0 for shard in self.shards) > 1
        before = owner._state.values() if several or self.held is not None else []
        is_first = True
        with unchanged(owner._params if several else ()):
            for place, shard in enumerate(self.shards):
                if not shard.rows and not owner._asks_empty:
                    self._skip(place)
                    continue
                held = None if self.held is None else self.held.buffers[place]
                if not is_first or held is not None:
                    owner._state.restore(before if held is None else held)
                is_first = False
                yield from self._part(place, shard, tensors)
                self.passed += 1
        self._end(before)

    def _part(self, place: int, shard: Shard, tensors: tuple[Tensor, ...]) -> Iterator[Any]:
        """A shard's part, and what follows once the caller is through with it."""
        versions = self.owner._state.versions()
        self.current, self.done = shard, False
        parts = tuple([part_of(tensor, shard) for tensor in tensors])
        with self.turn.drawing(place):
            yield parts if len(parts) > 1 else parts[0]
        if not self.done:
            raise DistributedError(
                f"[split] expected par.backward(loss) once for each shard, got none for shard {shard.number}: call it "
                "in the loop, also where a loss is to be left out (times 0)"
            )
        self.current = None
        self._note_buffers(place, shard, versions)

    def _skip(self, place: int) -> None:
        """A shard without rows: its gradients are nothing."""
        for param in self.owner._params:
            self._take(param, place, None)
        self.passed += 1

    def _note_buffers(self, place: int, shard: Shard, versions: list[int]) -> None:
        buffers = self.owner._state
        if not buffers.all:
            return
        if self.owner.shards > 1:
            self.written[place] = buffers.written(versions)
            if shard.rows:
                self.statistics[place] = buffers.row(self._weight(place))
            if shard.number == self.turn.division.first:
                self.first = buffers.values()
        if self.held is not None:
            self.held.buffers[place] = buffers.values()

    # -- gradients -------------------------------------------------------------------------------------------------

    def backward(self, loss: Tensor) -> None:
        shard = self.current
        if shard is None or self.done:
            raise DistributedError(
                "[DataParallel.backward] expected one loss for each shard, got a second one: add them up and call it "
                "once"
            )
        seed("DataParallel.backward", loss, None)
        if loss.dtype != self.owner._params[0].dtype:
            raise DtypeError(
                f"[DataParallel.backward] expected a loss of {self.owner._params[0].dtype} as the parameters, got "
                f"{loss.dtype}: cast it"
            )
        place = shard.number - self.shards[0].number
        start = self.turn.weight(place, loss.engine, loss.shape, loss.dtype)
        left = set(self.owner._params)

        def taker(param: Tensor) -> Any:
            def take(gradient: Tensor, owned: bool) -> None:
                left.discard(param)
                self.used[place].add(id(param))
                self._take(param, place, (gradient, owned))

            return take

        walk = Walk(False)
        walk.completes = {param: taker(param) for param in left}
        walk_from([(loss, start)], walk)
        self.done = True
        self.world.note("backward")
        for param in self.owner._params:
            if param in left:
                self._take(param, place, None)
        if shard.rows:
            value = loss.detach().to(float64).reshape(1)
            self.losses[place] = self.engine.elementwise("mul", value, self._weight(place))

    def _weight(self, place: int) -> Tensor:
        return self.turn.weight(place, self.engine, (), np.dtype(np.float64))

    def _take(self, param: Tensor, place: int, gradient: Sum | None) -> None:
        """Takes a parameter's gradient of a shard; adds what was held for that shard before."""
        if self.held is not None:
            kept = self.held.sums[place]
            if param in kept and gradient is not None:
                gradient = param.engine.elementwise("add", kept[param], gradient[0]), True
            elif param in kept:
                gradient = kept[param], False
            if self.keeps:
                if gradient is not None:
                    kept[param] = gradient[0]
                return
        if self.sums is not None:
            self.sums.arrived(param, place, gradient)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, before: list[Tensor]) -> None:
        """Waits for the sums, sets gradients and buffers."""
        owner, world = self.owner, self.world
        if self.keeps:
            assert self.held is not None
            self.held.show(owner._params)
            owner._state.restore(before)
            owner._loss = None
            owner._loop = world.open = None
            return
        assert self.sums is not None
        found = self.sums.finish()
        total = sum_rows(world, [self._row(place) for place in range(len(self.shards))], owner.shards)
        used, written = self._agreed()
        if owner._state.all and owner.shards > 1:
            per_rank = owner.shards // world.size
            if before:
                owner._state.restore(before)
            first_rank = self.turn.division.first // per_rank
            owner._state.fold(
                world, total.strided(total.offset + 1, (total.numel() - 1,), (1,)), written, first_rank, self.first
            )
        held, owner._held = self.held, None
        for param, is_used in zip(owner._params, used, strict=True):
            if held is not None:
                param.grad = held.before[param]
            if is_used and param in found:
                _give(param, found[param])
        owner.note_loss(total.strided(total.offset, (), ()))
        owner._loop = world.open = None

    def _row(self, place: int) -> Tensor:
        """What a shard tells in numbers: its loss and its running statistics, weighted."""
        wanted = (1, self.owner._state.length if self.owner.shards > 1 else 0)
        parts = [
            self.engine.full((length,), 0.0, np.dtype(np.float64)) if part is None else part
            for part, length in zip((self.losses[place], self.statistics[place]), wanted, strict=True)
            if length
        ]
        return self.engine.concat(parts, 0)

    def _agreed(self) -> tuple[list[bool], list[bool]]:
        """Which parameters some shard has used, and which buffers some shard has written to.

        A capture goes by what its rehearsal found, and behind each replay ranks compare whether it is so still.
        """
        rows = [self._flags(place) for place in range(len(self.shards))]
        watch, owner = steps.watch_of(self.engine), self.owner

        def compared() -> list[bool]:
            return (sum_arrays(self.world, [row.copy() for row in rows], owner.shards) > 0).tolist()  # type: ignore[no-any-return]

        key, count = ("shards", id(owner), len(watch.conditions) if watch else 0), len(owner._params)
        if watch is None or self.engine.capture is None:
            found = compared()
            if watch is not None:
                watch.findings[key] = found
            return found[:count], found[count:]
        expected: list[bool] = watch.findings.get(key, [])

        def check() -> None:
            if compared() != expected:
                raise GraphError(
                    "[split] expected shards that use the parameters and write to the buffers that they did when the "
                    "step was captured, got others on some rank: let all calls of the step use the same, or call it "
                    "without alpha.graph"
                )

        if not expected:
            raise GraphError(
                "[split] expected the loops of the call before the capture, got others: call the step again"
            )
        steps.run_behind(check)
        return expected[:count], expected[count:]

    def _flags(self, place: int) -> Any:
        """Which parameters a shard has used, and which buffers it has written to, as 1.0 and 0.0."""
        used, kept = self.used[place], {} if self.held is None else self.held.sums[place]
        return np.array([*(float(id(p) in used or p in kept) for p in self.owner._params), *self.written[place]])


def _give(param: Tensor, gradient: Tensor) -> None:
    """Adds a gradient to a parameter's."""
    before = param.grad
    steps.note_leaf(param, before)
    if before is None:
        param.grad = gradient
    elif before.shape != gradient.shape or before.engine is not gradient.engine:
        raise ShapeError(f"[split] expected a .grad of shape {gradient.shape}, got {before.shape}: set it to None")
    else:
        before.engine.elementwise("add", before, gradient, out=before)
        before.storage.touch()
