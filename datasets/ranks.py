"""A loader among ranks: which part of a batch it takes, and whether the other ranks' loaders begin as it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.parts import Part
from alpha.datasets.seeding import is_drawing
from alpha.distributed.world import World, find
from alpha.random import Generator

_NONE = -1
_MASK = (1 << 63) - 1


def find_part(distributed: bool, single: bool, *samplers: Any) -> Part | None:
    """What this thread's rank takes of each batch; None without ranks, or where each is to have whole batches.

    Args:
        distributed: whether batches are shared.
        single: whether samples come one by one.
        samplers: one with ``num_replicas`` gives each rank batches of its own.
    """
    world = find() if distributed else None
    if world is None:
        return None
    if is_drawing():
        raise errors.ArgumentError(
            "[DataLoader] expected a loop in which all ranks take part, got one in a data set, sampler or collate "
            "function: give the loader that is used there distributed=False"
        )
    shares = any(_has_replicas(sampler) for sampler in samplers)
    if single and world.size > 1 and not shares:
        raise errors.ArgumentError(
            f"[DataLoader] expected batch_size as the samples of all ranks, got None and {world.size} ranks: give one, "
            "a DistributedSampler to share out single samples, or distributed=False for all of them on each rank"
        )
    return Part(world.rank, world.size, not shares)


def _has_replicas(sampler: Any) -> bool:
    """Whether a sampler, or one of which it makes batches, shares out indices among ranks."""
    inner = getattr(sampler, "sampler", None)
    return any(getattr(one, "num_replicas", None) is not None for one in (sampler, inner))


def check_same_start(facts: Mapping[str, int | None]) -> None:
    """DistributedError, on all ranks, unless a loop begins alike on all; an operation of all where there are several.

    Args:
        facts: by name, in one order on all ranks.
    """
    world = find()
    if world is not None and world.size > 1:
        table = world.table([_NONE if value is None else _folded(value) for value in facts.values()], "start")
        _compare(world, list(facts), table)


def _compare(world: World, names: list[str], table: np.ndarray[Any, Any]) -> None:
    """Raises where the ranks' rows differ, with each of the values and who has it."""
    found = []
    for name, column in zip(names, table.T, strict=True):
        values = [None if value == _NONE else int(value) for value in column]
        if len(set(values)) > 1:
            who: dict[int | None, list[int]] = {}
            for rank, value in enumerate(values):
                who.setdefault(value, []).append(rank)
            found.append(f"{name} {', '.join(f'{value} on {_ranks(ranks)}' for value, ranks in who.items())}")
    if found:
        raise errors.DistributedError(
            f"[DataLoader] expected the same loader at the same position on all ranks, got {'; '.join(found)}: give "
            "all the same data, seed and options and let them begin their loops in one order, or use distributed=False"
        )


def _ranks(ranks: list[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (" and more" if len(ranks) > 8 else "")
    return f"rank{'s' * (len(ranks) > 1)} {listed}"


def _folded(value: int) -> int:
    """A number >= 0 as one below 2**63, itself where it is."""
    folded = 0
    while value:
        folded, value = folded ^ (value & _MASK), value >> 63
    return folded


def place_of(*sources: Any) -> int | None:
    """A number that tells apart where generators stand, which are among the given objects or theirs."""
    number = None
    for source in sources:
        generator = source if isinstance(source, Generator) else getattr(source, "generator", None)
        if isinstance(generator, Generator):
            state = generator.get_state()
            both = np.random.SeedSequence([state["seed"], state["offset"], number or 0])
            number = int(both.generate_state(1, np.uint64)[0]) >> 1
    return number
