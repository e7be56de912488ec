"""How the batch of a loop is shared out, and how ranks agree on that around the replays of a captured step.

A step that ``alpha.graph`` captures runs its loop once. At each replay ranks share out a batch ahead of it, on the
host; what changes with the batch, weights and places in the random sequence, is then read from there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alpha import random, steps
from alpha.distributed.shards import Division, divide
from alpha.errors import GraphError
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.distributed.data_parallel import DataParallel
    from alpha.engine import Engine


class Ahead(NamedTuple):
    """A batch that was shared out ahead of its step.

    Attributes:
        division: how.
        rows: that this rank was expected to have.
        state: where random numbers were expected to be.
    """

    division: Division
    rows: int
    state: dict[str, int]


class Turn:
    """One run through a loop over shards, and all replays of it.

    Attributes:
        division: how the batch is shared out, at each replay anew.
    """

    def __init__(self, owner: DataParallel, engine: Engine, rows: int) -> None:
        state, stop = random.get_state(), owner.is_asked_to_stop()
        random.reserve(_WORDS)
        watch = steps.watch_of(engine)
        if watch is None:
            self.division = divide(owner.world, rows, owner.shards, stop, state)
            return
        if owner.world.size > 1 and engine.name not in owner.world.carriers:
            raise GraphError(
                f"[graph] expected ranks that reach each other's {engine.name} through NCCL, got ranks that go through "
                'the host: pip install "dragon-alpha[nccl]", or call the step without alpha.graph'
            )
        condition = _BatchCondition(owner, rows, len(watch.conditions), _drawn(watch.random, state))
        if condition.place in owner.ahead:
            self.division = condition.taken(rows, state)
        else:
            self.division = divide(owner.world, rows, owner.shards, stop, state)
        condition.value = self.division.cuts
        watch.conditions.append(condition)

        def go_on() -> None:
            state = random.get_state()
            random.reserve(_WORDS)
            self.division = condition.taken(rows, state)
            owner.note_division(self.division)

        steps.run_on_replay(go_on)

    @contextmanager
    def drawing(self, place: int) -> Iterator[None]:
        """``with turn.drawing(place):`` what is drawn in the block is drawn for one of this rank's shards."""
        left: list[Any] = []
        steps.run_on_replay(lambda: left.append(random.begin_own_sequence(self.division.shards[place].random)))
        with random.own_sequence(self.division.shards[place].random):
            yield
        steps.run_on_replay(lambda: random.end_own_sequence(left.pop()))

    def weight(self, place: int, engine: Engine, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        """A shard's share of the batch's rows, as a tensor."""

        def now() -> np.ndarray[Any, Any]:
            return np.full(shape, self.division.shards[place].weight, dtype)

        live = steps.live(now(), now, engine)
        # What a replay reads is the host's to write: whoever gets this may write to it, and so gets a copy.
        return engine.full(shape, float(now().flat[0]), dtype) if live is None else engine.copied(live)


_WORDS = 4
"""Random words that a loop reserves, so that every loop's shards begin elsewhere."""


def _drawn(before: dict[str, int], after: dict[str, int]) -> int:
    """How far the random sequence went on between two places."""
    return (after["offset"] - before["offset"]) % (1 << 64)


class _BatchCondition(steps.Condition):
    """How the batch of a loop will be shared out.

    Args:
        place: among the conditions of a step.
        drawn: how far the random sequence goes on between the step's begin and the loop's.
    """

    value: tuple[int, ...]

    def __init__(self, owner: DataParallel, rows: int, place: int, drawn: int) -> None:
        self.owner, self.rows, self.place, self.drawn = owner, rows, place, drawn

    def evaluate(self) -> Hashable:
        owner, state = self.owner, random.get_state()
        state["offset"] = (state["offset"] + self.drawn) % (1 << 64)
        division = divide(owner.world, self.rows, owner.shards, owner.is_asked_to_stop(), state, is_ahead=True)
        owner.ahead[self.place] = Ahead(division, self.rows, state)
        return division.cuts if division.is_ahead else None

    def forget(self) -> None:
        self.owner.ahead.pop(self.place, None)

    def agree(self, is_ready: bool) -> bool:
        world = self.owner.world
        return is_ready if world.size == 1 else bool(world.table([int(is_ready)], "start").all())

    def taken(self, rows: int, state: dict[str, int]) -> Division:
        """What ``evaluate`` found out, for a loop that begins with these rows and at this place in random numbers."""
        found = self.owner.ahead.pop(self.place)
        if found.rows != rows or (self.owner.world.rank == 0 and found.state != state):
            raise GraphError(
                f"[split] expected a captured step whose loop begins as in the call before, with {found.rows} rows and "
                f"random numbers at {found.state}, got {rows} rows and {state}: let what comes before the loop be the "
                "same in each call, and seed outside the step"
            )
        return found.division
