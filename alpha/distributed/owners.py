"""Which rank alone has a parameter's gradient, where an optimizer shares gradients out (``optim.Sharded``)."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import numpy as np

from alpha.distributed.world import World
from alpha.tensor import Tensor


class Owners:
    """The owners of some parameters' gradients.

    Attributes:
        world: the ranks.
        ranks: by parameter.
    """

    def __init__(self, world: World, ranks: Mapping[Tensor, int]) -> None:
        self.world, self.ranks = world, ranks


_registered: weakref.WeakValueDictionary[int, Owners] = weakref.WeakValueDictionary()


def register(owners: Owners) -> None:
    """Makes owners known for as long as somebody holds them."""
    for param in owners.ranks:
        _registered[id(param)] = owners


def of(params: Sequence[Tensor]) -> Owners | None:
    """The owners of the gradients of some parameters; None where each rank has all."""
    for param in params if _registered else ():
        found = _registered.get(id(param))
        if found is not None:
            return found
    return None


def shared(owners: Owners, numbers: list[float | None]) -> list[float]:
    """Numbers of float64 of which each rank knows some, all of them on all ranks; an operation of all ranks.

    What no rank knows is left out.
    """
    table = np.array([[0.0 if one is None else one for one in numbers], [float(one is not None) for one in numbers]])
    owners.world.sum(table.reshape(1, -1), "statistics").finish()
    return [float(value) for value, known in zip(*table, strict=True) if known]
