"""Padding: a number around a tensor, or its own elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from alpha import dtypes
from alpha.arguments import Shape, shape_of
from alpha.autograd import Function
from alpha.composed import arrays
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.indexing import getitem
from alpha.functions.operands import Number, call, check_room, check_tensor, check_value, python_number
from alpha.launches import PAD, PAD_FUNCTION
from alpha.tensor import Tensor

__all__ = ["pad"]

MODES = {"reflect": -1, "replicate": None, "circular": 0}
"""Modes that repeat elements, and how many elements more than an axis has may be put before it or behind; None: any."""


class Pad(Function):
    """A number around a tensor."""

    passes_on = True

    def forward(self, x: Tensor, before: Shape, after: Shape, value: Number) -> Tensor:
        self.before, self.shape = before, x.shape
        return x.storage.engine.pad(x, before, after, "constant", value)

    def backward(self, grad: Tensor) -> Tensor:
        if 0 in self.shape:
            return arrays.filled(grad.engine, self.shape, 0, grad.dtype)
        offset = grad.offset + sum([n * stride for n, stride in zip(self.before, grad.strides, strict=True)])
        return Tensor(grad.storage, offset, self.shape, grad.strides, grad.dtype)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """The part of the gradient within the padding."""
        return getitem(grad, tuple(slice(n, n + length) for n, length in zip(self.before, self.shape, strict=True)))


class PadWithElements(Function):
    """A tensor's own elements around it."""

    fresh = True

    def forward(self, x: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
        self.before, self.after, self.mode = before, after, mode
        return x.storage.engine.pad(x, before, after, mode, 0)

    def backward(self, grad: Tensor) -> Tensor:
        return grad.storage.engine.pad_grad(grad, self.before, self.after, self.mode)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """The same as a function of the gradient."""
        return call(PadGrad, grad, self.before, self.after, self.mode)


class PadGrad(Function):
    """The gradient of a tensor whose own elements were put around it."""

    fresh = True

    def forward(self, grad: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
        self.before, self.after, self.mode = before, after, mode
        return grad.storage.engine.pad_grad(grad, before, after, mode)

    def backward(self, grad: Tensor) -> Tensor:
        return call(PadWithElements, grad, self.before, self.after, self.mode)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Number | None = None) -> Tensor:
    """Elements put around a tensor, or, where a count is negative, taken off.

    Args:
        input: of any shape.
        pad: (before, after) of the last axis, then of the one before it, ... Images (N, H, W, C) are padded by
            (0, 0, left, right, top, bottom).
        mode: ``"constant"``: a number. Any axis may be padded by its own elements too: ``"reflect"``: those beside
            its ends, mirrored, at most one less than it has; ``"replicate"``: those at its ends; ``"circular"``: those
            of the other end, at most all.
        value: the number; 0 unless given.
    """
    given = (input, tuple(pad) if type(pad) is list else pad, mode, value)
    found: Tensor | None = PAD_FUNCTION.launch_outside(*given)
    if found is not None:
        return found
    x = input
    check_tensor("pad", x)
    if not isinstance(mode, str) or (mode != "constant" and mode not in MODES):
        raise ArgumentError(
            f"[pad] expected mode constant, {', '.join(MODES)}, got {described(mode)}: a number is given as value="
        )
    if isinstance(pad, tuple | list) and any(type(n) is int and n < 0 for n in pad):
        return _cut(x, pad, mode, value)
    before, after = _counts(x, pad)
    if mode == "constant":
        nothing = False if dtypes.is_bool(x.dtype) else 0
        number = _value(x, nothing if value is None else value)
        return _known(call(Pad, x, before, after, number), (x, before, after, mode, number), given)
    if value is not None:
        raise ArgumentError(
            f'[pad] expected a value with mode="constant" alone, got {described(value)} with "{mode}": leave it out'
        )
    _check_lengths(x, before, after, mode)
    if not any(before) and not any(after):
        return x.clone()
    return _known(call(PadWithElements, x, before, after, mode), (x, before, after, mode, 0), given)


def _cut(x: Tensor, counts: Sequence[int], mode: str, value: Number | None) -> Tensor:
    """What negative counts leave of a tensor that is padded by the others: before it is padded, if circularly."""
    others = [max(n, 0) if type(n) is int else n for n in counts]
    if len(counts) % 2 or len(counts) > 2 * x.ndim:
        raise ShapeError(f"[pad] expected a pair (before, after) for each of {x.ndim} axes at most, got {counts}")
    whole = x if mode == "circular" else pad(x, others, mode, value)
    pairs = zip(counts[::2], counts[1::2], strict=True)
    parts = [slice(-min(b, 0), n + min(a, 0)) for n, (b, a) in zip(whole.shape[::-1], pairs, strict=False)]
    if any(part.stop < part.start for part in parts):
        raise ShapeError(f"[pad] expected no more elements taken off than there are, got {described(counts)}")
    left = getitem(whole, (..., *reversed(parts)))
    return pad(left, others, mode, value) if mode == "circular" else left


def _known(out: Tensor, followed: tuple[Any, ...], given: tuple[Any, ...]) -> Tensor:
    """The result, whose launches get to know the arguments as they were given."""
    if not out.requires_grad:
        out.storage.engine.alias(PAD, followed, PAD_FUNCTION, given)
    return out


def _counts(x: Tensor, padding: Any) -> tuple[Shape, Shape]:
    """Elements before and after, for each axis."""
    if not isinstance(padding, tuple | list):
        raise ShapeError(
            f"[pad] expected a pair (before, after) for each axis, last axis first, got {described(padding)}"
        )
    given = tuple(padding)
    counts = given if all(type(n) is int and n >= 0 for n in given) else shape_of("pad", (given,))
    if len(counts) % 2 or len(counts) > 2 * len(x.shape):
        raise ShapeError(
            f"[pad] expected a pair (before, after) for each of at most {x.ndim} axes, last axis first, got "
            f"{described(counts)}"
        )
    before, after, wanted = _by_axis(x.shape, counts)
    check_room(x.engine, wanted, x.dtype)
    return before, after


@lru_cache(maxsize=1024)
def _by_axis(shape: Shape, counts: Shape) -> tuple[Shape, Shape, Shape]:
    """Elements before and after each axis, and the result's shape."""
    missing = (0,) * (len(shape) - len(counts) // 2)
    before, after = (missing + tuple(reversed(counts[start::2])) for start in range(2))
    return before, after, shape_of("pad", (tuple(n + a + b for n, a, b in zip(shape, before, after, strict=True)),))


def _value(x: Tensor, value: Any) -> Any:
    """A number that the tensor holds."""
    number = python_number("pad", value)
    if isinstance(number, float) and number.is_integer() and not dtypes.is_float(x.dtype):
        number = int(number)  # 0.0, which pads integers too
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
