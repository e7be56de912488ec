"""How the standard's functions bring arrays together: by their dtypes alone.

PyTorch's rule, which alpha's functions and Tensor's operators follow, lets an array without axes give way to those with
axes. In the standard it counts as any other; Python's numbers give way in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce, wraps
from typing import Any

from alpha import dtypes
from alpha.arguments import all_axes, flag
from alpha.errors import DtypeError, described
from alpha.functions.casting import cast
from alpha.functions.operands import check_tensor, is_number
from alpha.functions.shape import reshape, unsqueeze
from alpha.tensor import Tensor

Axis = int | tuple[int, ...] | None
Device = Any
"""A device: ``x.device``, ``alpha.device("cpu")``, its name, or an engine."""


def promoted(arrays: Sequence[Any]) -> list[Any]:
    """Arrays in their common dtype, by the standard's rule; Python's numbers among them stay as they are."""
    found = {x.dtype for x in arrays if isinstance(x, Tensor)}
    if len(found) < 2:
        return list(arrays)
    dtype = reduce(dtypes.promote, found)
    return [cast(x, dtype) if isinstance(x, Tensor) else x for x in arrays]


def check_arrays(function: str, *values: Any) -> None:
    """DtypeError unless each value is an array or a Python number, and at least one an array."""
    for value in values:
        if not isinstance(value, Tensor) and not is_number(value):
            raise DtypeError(f"[{function}] expected arrays and numbers, got {described(value)}: use asarray")
    if not any(isinstance(value, Tensor) for value in values):
        raise DtypeError(f"[{function}] expected at least one array, got numbers alone: use asarray")


def of_two(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of two arrays, or of an array and a Python number, that promotes them by the standard's rule."""

    @wraps(function)
    def of_arrays(x1: Any, x2: Any, /) -> Tensor:
        check_arrays(name, x1, x2)
        return function(*promoted((x1, x2)))

    del of_arrays.__wrapped__  # whose parameters have other names and defaults
    of_arrays.__name__ = of_arrays.__qualname__ = name
    return of_arrays


def over_axes(name: str, function: Callable[..., Tensor], x: Tensor, axis: Axis, keepdims: Any) -> Tensor:
    """A reduction ``function(x, axes, keepdims)`` over all axes (None), one or several.

    Over no axes, ``()``, each element is reduced by itself, where PyTorch's functions take that for all.
    """
    check_tensor(name, x)
    kept = flag(name, "keepdims", keepdims)
    axes = all_axes(name, axis, x.ndim)
    if not axes:
        return function(unsqueeze(x, -1), -1, False)
    return function(x, axes, kept)


def flattened(x: Tensor) -> Tensor:
    """The elements in row-major order, along one axis."""
    return reshape(x, (x.numel(),))
