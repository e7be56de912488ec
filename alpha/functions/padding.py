"""Padding: a number around a tensor, or its own elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, shape_of
from alpha.autograd import Function
from alpha.engine import Engine, Index
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.operands import Number, call, check_room, check_tensor, check_value, python_number
from alpha.tensor import Tensor

__all__ = ["pad"]

Array = np.ndarray[Any, Any]
MODES = {"reflect": -1, "replicate": None, "circular": 0}
"""Modes that repeat elements, and how many elements more than an axis has may be put before it or behind; None: any."""


class Pad(Function):
    """A number around a tensor."""

    def forward(self, x: Tensor, before: Shape, after: Shape, value: float) -> Tensor:
        self.before, self.shape = before, x.shape
        shape = tuple(n + a + b for n, a, b in zip(x.shape, before, after, strict=True))
        out = x.engine.empty(shape, x.dtype, x.memory_order())
        x.engine.fill(out, value)
        x.engine.copy(x, self._inside(out))
        return out

    def backward(self, grad: Tensor) -> Tensor:
        return self._inside(grad)

    def _inside(self, y: Tensor) -> Tensor:
        offset = y.offset + sum(n * stride for n, stride in zip(self.before, y.strides, strict=True))
        return y.view(offset, self.shape, y.strides)


class PadWithElements(Function):
    """A tensor's own elements around it."""

    fresh = True

    def forward(self, x: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
        self.shapes, self.steps = [], [step for step in enumerate(zip(before, after, strict=True)) if any(step[1])]
        self.mode = mode
        for axis, counts in self.steps:
            self.shapes.append(x.shape)
            x = x.engine.gather(x, _entries(x.engine, x.shape, axis, counts, mode))
        return x

    def backward(self, grad: Tensor) -> Tensor:
        for (axis, counts), shape in zip(reversed(self.steps), reversed(self.shapes), strict=True):
            engine = grad.engine
            whole = engine.empty(shape, grad.dtype)
            engine.fill(whole, 0)
            engine.scatter(whole, _entries(engine, shape, axis, counts, self.mode), grad, True)
            grad = whole
        return grad


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


def pad(x: Tensor, padding: Sequence[int], mode: str = "constant", value: Number | None = None) -> Tensor:
    """Elements put around a tensor.

    Args:
        x: of any shape.
        padding: (before, after) of the last axis, then of the one before it, ... Images (N, H, W, C) are padded by
            (0, 0, left, right, top, bottom).
        mode: ``"constant"``: a number. Any axis of x may be padded by its own elements too: ``"reflect"``: those beside
            its ends, mirrored, at most one less than it has; ``"replicate"``: those at its ends; ``"circular"``: those
            of the other end, at most all.
        value: the number; 0 unless given.
    """
    check_tensor("pad", x)
    if not isinstance(mode, str) or (mode != "constant" and mode not in MODES):
        raise ArgumentError(
            f"[pad] expected mode constant, {', '.join(MODES)}, got {described(mode)}: a number is given as value="
        )
    before, after = _counts(x, padding)
    if mode == "constant":
        return call(Pad, x, before, after, _value(x, 0 if value is None else value))
    if value is not None:
        raise ArgumentError(
            f'[pad] expected a value with mode="constant" alone, got {described(value)} with "{mode}": leave it out'
        )
    _check_lengths(x, before, after, mode)
    return call(PadWithElements, x, before, after, mode) if any(before) or any(after) else x.clone()


def _counts(x: Tensor, padding: Any) -> tuple[Shape, Shape]:
    """Elements before and after, for each axis."""
    if not isinstance(padding, tuple | list):
        raise ShapeError(
            f"[pad] expected a pair (before, after) for each axis, last axis first, got {described(padding)}"
        )
    counts = shape_of("pad", (tuple(padding),))
    if len(counts) % 2 or len(counts) > 2 * x.ndim:
        raise ShapeError(
            f"[pad] expected a pair (before, after) for each of at most {x.ndim} axes, last axis first, got "
            f"{described(counts)}"
        )
    missing = (0,) * (x.ndim - len(counts) // 2)
    before, after = (missing + tuple(reversed(counts[start::2])) for start in range(2))
    wanted = shape_of("pad", (tuple(n + a + b for n, a, b in zip(x.shape, before, after, strict=True)),))
    check_room(x.engine, wanted, x.dtype)
    return before, after


def _value(x: Tensor, value: Any) -> Number:
    """A number that the tensor holds."""
    number = python_number("pad", value)
    if dtypes.category(dtypes.of_scalar(number)) > dtypes.category(x.dtype):
        raise DtypeError(f"[pad] expected a number that {x.dtype} can hold, got {number!r}: cast x first")
    check_value("pad", number, x.dtype)
    return number


def _check_lengths(x: Tensor, before: Shape, after: Shape, mode: str) -> None:
    """ShapeError where an axis has too few elements."""
    more = MODES[mode]
    for axis, (n, *counts) in enumerate(zip(x.shape, before, after, strict=True)):
        if any(counts) and (n == 0 or (more is not None and max(counts) > n + more)):
            most = 0 if n == 0 else n + (more or 0)
            raise ShapeError(
                f"[pad] expected at most {most} elements before or behind axis {axis} of shape {x.shape} with mode "
                f'"{mode}", got {counts[0]} and {counts[1]}: pad by fewer'
            )
