"""Tensors in another dtype, on another engine, in memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, axes_in_order
from alpha.autograd import Function
from alpha.engine import Engine
from alpha.expressions.program import conversion
from alpha.functions.operands import call, check_tensor
from alpha.launches import COPY
from alpha.memory_formats import memory_format as MemoryFormat
from alpha.memory_formats import order_in, order_of_one
from alpha.places import destination
from alpha.tensor import Tensor

__all__ = ["cast", "clone", "contiguous", "to"]


class Cast(Function):
    """The values in another dtype."""

    fresh = True

    def forward(self, x: Tensor, dtype: np.dtype[Any]) -> Tensor:
        self.dtype = x.dtype
        return x.storage.engine.pointwise("cast", conversion(dtype), (x,), ())[0]

    def backward(self, grad: Tensor) -> Tensor:
        return grad.storage.engine.pointwise("cast", conversion(self.dtype), (grad,), ())[0]

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return cast(grad, self.dtype)


class Clone(Function):
    """The values in memory of their own, in an order of axes."""

    passes_on = True

    def forward(self, x: Tensor, order: Shape | None) -> Tensor:
        return x.storage.engine.copied(x, order)

    def backward(self, grad: Tensor) -> Tensor:
        return grad


class Move(Function):
    """The values on another engine."""

    fresh = True

    def forward(self, x: Tensor, engine: Engine) -> Tensor:
        self.engine = x.engine
        return engine.from_numpy(x.engine.to_numpy(x))

    def backward(self, grad: Tensor) -> Tensor:
        return self.engine.from_numpy(grad.engine.to_numpy(grad))

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return to(grad, self.engine)


def cast(input: Tensor, dtype: dtypes.DtypeLike) -> Tensor:
    """The values in another dtype, itself if it has it; between floats gradients pass."""
    wanted = dtypes.as_dtype(dtype, "cast")
    if isinstance(input, Tensor) and input.dtype == wanted:
        return input
    found: Tensor | None = conversion(wanted).launches.launch_outside(input)
    if found is not None:
        return found
    check_tensor("cast", input)
    return call(Cast, input, wanted)


def to(x: Tensor, *target: Any, **options: Any) -> Tensor:
    """On another device or in another dtype, or both; itself where nothing changes.

    ``to("cuda")``, ``to(engine)``, ``to(alpha.float64)``, ``to(device, dtype)``, ``to(other)`` as another tensor is,
    and by name: ``device``, ``dtype``, ``copy=True`` for a copy in any case, ``memory_format`` for another order of
    elements in memory. ``non_blocking`` says nothing here.
    """
    check_tensor("to", x)
    if len(target) == 1 and not options and isinstance(target[0], np.dtype):
        return cast(x, target[0])
    engine, dtype, copy, format = destination("to", target, options)
    moved = x if engine is None or x.engine is engine else call(Move, x, engine)
    moved = moved if dtype is None else cast(moved, dtype)
    order = order_in("to", x, format)
    if order is not None and not moved.is_contiguous(order):
        moved = call(Clone, moved, order)
    return clone(x) if copy and moved is x else moved


def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """A copy with memory of its own, in the same order of axes unless a memory format says another."""
    if memory_format is None:
        found: Tensor | None = COPY.launch_outside(input, None)
        if found is not None:
            return found
    check_tensor("clone", input)
    return call(Clone, input, order_in("clone", input, memory_format))


def contiguous(
    input: Tensor, order: Sequence[int] | None = None, *, memory_format: MemoryFormat | None = None
) -> Tensor:
    """Itself if dense in the given order of axes or memory format (row-major by default), else such a copy."""
    check_tensor("contiguous", input)
    if memory_format is not None:
        order = order_of_one(input, "contiguous", order, memory_format)
    wanted = axes_in_order("contiguous", order, len(input.shape))
    if input.is_contiguous(wanted):
        return input
    found: Tensor | None = COPY.launch_outside(input, wanted)
    return call(Clone, input, wanted) if found is None else found
