"""Padding: a number around a tensor, or its own elements, an axis after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.composed.arrays import filled

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.records import Index, Scalar
    from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def pad(engine: Engine, x: Tensor, before: Shape, after: Shape, mode: str, value: Scalar) -> Tensor:
    """A number is filled in around a copy; elements are gathered."""
    if mode == "constant":
        shape = [n + a + b for n, a, b in zip(x.shape, before, after, strict=True)]
        out = filled(engine, shape, value, x.dtype, x.memory_order())
        offset = out.offset + sum(n * stride for n, stride in zip(before, out.strides, strict=True))
        if x.numel():
            engine.copy(x, out.strided(offset, x.shape, out.strides))
        return out
    for axis, counts in enumerate(zip(before, after, strict=True)):
        if any(counts):
            x = engine.gather(x, _entries(engine, x.shape, axis, counts, mode))
    return x


def pad_grad(engine: Engine, dy: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
    """What was gathered is added up, the last axis first."""
    for axis, counts in reversed(list(enumerate(zip(before, after, strict=True)))):
        if any(counts):
            shape = (*dy.shape[:axis], dy.shape[axis] - sum(counts), *dy.shape[axis + 1 :])
            whole = filled(engine, shape, 0, dy.dtype)
            engine.scatter(whole, _entries(engine, shape, axis, counts, mode), dy, True)
            dy = whole
    return dy


def _entries(engine: Engine, shape: Shape, axis: int, counts: tuple[int, int], mode: str) -> Index:
    """The index of the entries along an axis that the result has there."""
    key = ("pad", mode, shape[axis], *counts)
    places = engine.constant(key, partial(_places, shape[axis], *counts, mode))
    return tuple(places if a == axis else slice(None) for a in range(len(shape)))


def _places(length: int, before: int, after: int, mode: str) -> Array:
    """The positions of -before, ..., length + after - 1 on an axis that goes on as a mode says."""
    found: Array = np.arange(-before, length + after)
    if mode == "replicate":
        return found.clip(0, length - 1)
    if mode == "circular":
        return found % length
    found = np.abs(found)
    return np.where(found < length, found, 2 * (length - 1) - found)
