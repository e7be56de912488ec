"""What losses share: checks of their tensors, PyTorch's old names of reductions, and the reduction itself."""

from __future__ import annotations

import warnings
from typing import Any

from alpha.arguments import broadcast_shapes, flag
from alpha.dtypes import float_names, is_complex, is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import PointwiseFunction
from alpha.functions import elementwise
from alpha.functions.operands import check_tensor
from alpha.functions.reduction import mean, sum
from alpha.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def reduction_of(
    function: str, reduction: Any, size_average: Any = None, reduce: Any = None, options: tuple[str, ...] = REDUCTIONS
) -> str:
    """The reduction, or what PyTorch's older arguments ``size_average`` and ``reduce`` (True unless given) mean."""
    if size_average is not None or reduce is not None:
        reduces = reduce is None or flag(function, "reduce", reduce)
        averages = size_average is None or flag(function, "size_average", size_average)
        reduction = ("mean" if averages else "sum") if reduces else "none"
        warnings.warn(
            f'[{function}] size_average and reduce are out of use: pass reduction="{reduction}"', stacklevel=3
        )
    if type(reduction) is not str or reduction not in options:
        listed = ", ".join(f'"{option}"' for option in options[:-1])
        raise ArgumentError(f'[{function}] expected reduction {listed} or "{options[-1]}", got {described(reduction)}')
    return reduction


def check_float(function: str, name: str, value: Any) -> None:
    """DtypeError unless the value is a tensor of floats."""
    if not isinstance(value, Tensor) or not is_float(value.dtype):
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise DtypeError(f"[{function}] expected {name} as a {float_names()} tensor, got {kind}: cast it")


def together(function: str, warns: bool, **tensors: Any) -> tuple[Tensor, ...]:
    """Tensors of one engine whose shapes broadcast, the first of floats; others of integers are cast to its dtype.

    ``warns``: whether shapes that differ are most likely a mistake.
    """
    (name, first), *others = tensors.items()
    check_float(function, name, first)
    found = [first]
    for other, value in others:
        check_tensor(function, value)
        if is_complex(value.dtype):
            check_float(function, other, value)
        first.engine.check_owner(function, value)
        found.append(value if is_float(value.dtype) else elementwise.cast(value, first.dtype))
        if value.shape != first.shape:
            broadcast_shapes(function, [first.shape, value.shape])
            if warns:
                warnings.warn(
                    f"[{function}] {name} of shape {first.shape} and {other} of shape {value.shape} are broadcast, "
                    "which is most likely not what you want: reshape one",
                    stacklevel=3,
                )
    return tuple(found)


def of_one_shape(function: str, input: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """Tensors that go together and have one shape."""
    found = together(function, False, input=input, target=target)
    if input.shape != target.shape:
        raise ShapeError(
            f"[{function}] expected input and target of one shape, got input: {input.shape} and target: "
            f"{target.shape}: reshape one"
        )
    return found


def check_weight(function: str, name: str, x: Tensor, weight: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """A weight outside the graph, of x's dtype and engine, that broadcasts to x or has the given shape."""
    check_float(function, name, weight)
    if weight.dtype != x.dtype:
        raise DtypeError(f"[{function}] expected {name} of dtype {x.dtype}, got {weight.dtype}: cast it")
    if weight.requires_grad:
        raise ArgumentError(f"[{function}] expected {name} outside the graph, got one that requires grad")
    x.engine.check_owner(function, weight)
    if shape is not None and weight.shape != shape:
        raise ShapeError(f"[{function}] expected {name} of shape {shape}, got {weight.shape}")
    if shape is None and weight.shape != x.shape:
        fits = len(weight.shape) <= len(x.shape) and all(
            n in (1, m) for n, m in zip(weight.shape[::-1], x.shape[::-1], strict=False)
        )
        if not fits:
            raise ShapeError(f"[{function}] expected {name} that broadcasts to x: {x.shape}, got {weight.shape}")
    found: Tensor = weight
    return found


def reduced(function: PointwiseFunction, reduction: str, *arguments: Any) -> Tensor:
    """The elements of a point-wise loss, or their mean or sum in one pass."""
    if reduction == "none":
        return function(*arguments)
    return function.mean(*arguments) if reduction == "mean" else function.sum(*arguments)


def reduce_losses(losses: Tensor, reduction: str) -> Tensor:
    """Losses as they are, or their mean or sum."""
    return losses if reduction == "none" else mean(losses) if reduction == "mean" else sum(losses)
