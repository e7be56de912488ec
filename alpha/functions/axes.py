"""What reductions share: axes by PyTorch's and NumPy's names, results with their axes kept, launches by new names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from alpha.arguments import Shape, all_axes
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.shape import reshape
from alpha.launches import Launches
from alpha.tensor import Tensor

Axes = tuple[int, ...]


class ValuesAndIndices(NamedTuple):
    """What a function such as ``max``, ``sort`` or ``topk`` finds along an axis, and where."""

    values: Tensor
    indices: Tensor


def keeping(x: Tensor, shape: Shape, axes: Axes) -> Tensor:
    """A reduction's result or gradient seen with its axes at length 1, so that it broadcasts to the argument."""
    strides = list(x.strides)
    if x.ndim != len(shape):
        for axis in axes:
            strides.insert(axis, 1)
    kept = tuple([1 if a in axes else n for a, n in enumerate(shape)])
    return Tensor(x.storage, x.offset, kept, tuple(strides), x.dtype)


def restored(x: Tensor, shape: Shape, axes: Axes) -> Tensor:
    """As ``keeping``, within the graph."""
    return reshape(x, tuple([1 if a in axes else n for a, n in enumerate(shape)]))


def count_along(shape: Shape, axes: Axes) -> int:
    """How many elements a reduction over axes makes one of."""
    return math.prod(shape[axis] for axis in axes)


def numpy_names(function: str, dim: Any, axis: Any, keepdim: Any, keepdims: Any) -> tuple[Any, Any]:
    """dim and keepdim, given by NumPy's names ``axis`` and ``keepdims``; ArgumentError for both names of one."""
    if axis is not None and dim is not None:
        raise ArgumentError(f"[{function}] expected dim or axis, got both: they are the same")
    if keepdims is not None and keepdim is not False:
        raise ArgumentError(f"[{function}] expected keepdim or keepdims, got both: they are the same")
    return axis if axis is not None else dim, keepdim if keepdims is None else keepdims


def reduced_axes(function: str, dim: Any, ndim: int) -> Axes:
    """The axes to reduce over: all for an empty list, as in PyTorch."""
    return all_axes(function, None if isinstance(dim, tuple | list) and not dim else dim, ndim)


def known_as(known: Launches, result: Tensor, x: Tensor, given: tuple[Any, Any], followed: tuple[Any, Any]) -> Tensor:
    """The result, whose launches get to know axes and keepdim as they were given."""
    if not result.requires_grad:
        x.storage.engine.alias(known, (x, *followed), known, (x, *given))
    return result


def check_not_empty(name: str, x: Tensor, axes: Axes) -> None:
    """ShapeError where there is nothing to reduce over."""
    if count_along(x.shape, axes) == 0:
        raise ShapeError(f"[{name}] expected at least one element along axes {axes}, got shape {x.shape}")


def of_line(function: Callable[..., Any], x: Tensor, *args: Any, **options: Any) -> Any:
    """What a function along an axis makes of a tensor without axes: as of one of length 1, and without it again."""
    found = function(reshape(x, (1,)), *args, **options)
    if isinstance(found, Tensor):
        return reshape(found, ())
    return type(found)(*[reshape(part, ()) for part in found])
