"""The first elements of an order, and one at a place in it, through a whole sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def topk(engine: Engine, x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The end of the sorted line, turned round, or its beginning."""
    length = x.shape[axis]
    start = length - k if largest else 0
    found = [cut(part, axis, start, k) for part in engine.sort(x, axis)]
    values, indices = (engine.flip(part, (axis,)) if largest else engine.copied(part) for part in found)
    return values, indices


def rank(engine: Engine, x: Tensor, axis: int, place: int) -> Tensor:
    """One place of the sorted line."""
    return engine.copied(cut(engine.sort(x, axis)[1], axis, place, 1))


def cut(x: Tensor, axis: int, start: int, count: int) -> Tensor:
    """A view of so many entries along an axis."""
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return x.strided(x.offset + start * x.strides[axis] if count else x.offset, shape, x.strides)
