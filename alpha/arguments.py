"""Checks of arguments that are no tensors: axes, shapes, numbers, flags, arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from alpha.errors import AlphaError, ArgumentError, IndexingError, OutOfMemoryError, ShapeError, described

Shape = tuple[int, ...]

MAX_ELEMENTS = 2**60 - 1
"""Most elements of a shape, where lengths of 0 count as 1: offsets in bytes must fit into int64."""

_PLAIN_AXES, _PLAIN_LENGTH = 4, 2**15 - 1
"""Shapes of so few axes, none longer, have no more than ``MAX_ELEMENTS``."""

MAX_AXES = 64
"""Most axes of a tensor: NumPy's arrays have no more."""


MOST_ENTRIES = 1 << 20
"""Most entries of a list of tensors or numbers."""


def listed(function: str, name: str, value: Any) -> list[Any]:
    """The elements of a list, tuple, set or generator as a list; ArgumentError for anything else."""
    is_one = isinstance(value, str | bytes | range) or hasattr(value, "dtype")  # a tensor or an array
    if is_one or not isinstance(value, Iterable):
        raise ArgumentError(f"[{function}] expected {name} as a list, got {described(value)}")
    found: list[Any] = []
    for entry in value:
        if len(found) == MOST_ENTRIES:
            raise ArgumentError(f"[{function}] expected {name} of at most {MOST_ENTRIES} entries, got more")
        found.append(entry)
    return found


def one_axis(function: str, dim: Any, ndim: int) -> int:
    """A non-negative axis; IndexingError, which is a ShapeError, outside -ndim..ndim-1."""
    if type(dim) is int and -ndim <= dim < ndim:
        return dim if dim >= 0 else dim + ndim
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise ShapeError(f"[{function}] expected an axis as an int, got {described(dim)}")
    if not -ndim <= dim < ndim:
        raise IndexingError(
            f"[{function}] expected an axis in {-ndim}..{ndim - 1} of a tensor of {ndim} axes, got {described(dim)}"
        )
    return int(dim) % ndim


def whole(function: str, name: str, value: Any, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """A Python or NumPy int within bounds, as an int; ArgumentError for anything else."""
    if type(value) is not int:
        if isinstance(value, bool | np.bool_) or not isinstance(value, (int, np.integer)):
            raise ArgumentError(f"[{function}] expected {name} as an int, got {described(value)}")
        value = int(value)
    if not least <= value <= most:
        bounds = f">= {least}" if value < least else f"<= {most}"
        raise ArgumentError(f"[{function}] expected {name} {bounds}, got {described(value)}")
    return int(value)


def flag(function: str, name: str, value: Any) -> bool:
    """The truth value of a value; ArgumentError if it has none, as an array of several elements has none."""
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"[{function}] expected {name} as True or False, got {described(value)}") from None


def number(function: str, name: str, value: Any) -> float:
    """A Python or NumPy number as a float; ArgumentError for anything else. Infinities and NaN are numbers."""
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentError(f"[{function}] expected {name} as a number, got {described(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"[{function}] expected {name} within a float's range, got an int beyond it") from None


def one_of(function: str, name: str, value: Any, options: Sequence[str]) -> str:
    """One of several words; ArgumentError for anything else."""
    if isinstance(value, str) and value in options:
        return value
    words = ", ".join(repr(option) for option in options)
    raise ArgumentError(f"[{function}] expected {name} as one of {words}, got {described(value)}")


def all_axes(function: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes, from None (all of them), one axis or several; of an empty list none."""
    if dim is None:
        return _ALL_AXES[ndim]
    if type(dim) is int and -ndim <= dim < ndim:
        return (dim if dim >= 0 else dim + ndim,)
    given = dim if isinstance(dim, (tuple, list)) else (dim,)
    if not ndim:  # a tensor without axes takes those of one with one axis, as in PyTorch
        for d in given:
            one_axis(function, d, 1)
        return ()
    axes = sorted(one_axis(function, d, ndim) for d in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"[{function}] expected different axes, got {described(tuple(given))}")
    return tuple(axes)


_ALL_AXES = tuple([tuple(range(ndim)) for ndim in range(MAX_AXES + 1)])


def _is_axis(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def axes_in_order(function: str, order: Any, ndim: int) -> tuple[int, ...]:
    """An order of axes, each once, outermost first; row-major for None."""
    if order is None:
        return tuple(range(ndim))
    if isinstance(order, tuple | list | range) and len(order) == ndim:
        axes = [int(a) for a in order if _is_axis(a)]
        if sorted(axes) == list(range(ndim)):
            return tuple(axes)
    raise ArgumentError(f"[{function}] expected an order of {ndim} axes, got {described(order)}: name each axis once")


def shape_of(function: str, shape: Any) -> Shape:
    """A shape from ints or a sequence of them; ShapeError for negative or other entries, or too many elements."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = shape[0]
    if type(shape) is tuple and len(shape) <= _PLAIN_AXES:
        for n in shape:
            if type(n) is not int or not 0 <= n <= _PLAIN_LENGTH:
                break
        else:
            return shape
    if len(shape) > MAX_AXES:
        raise ShapeError(f"[{function}] expected a shape of at most {MAX_AXES} axes, got {len(shape)}")
    shape = tuple([operator.index(n) if hasattr(n, "storage") else n for n in shape])  # of tensors with one integer
    elements = 1
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ShapeError(f"[{function}] expected a shape of ints >= 0, got {described(tuple(shape))}")
        elements *= int(n) or 1
    if elements > MAX_ELEMENTS:
        raise ShapeError(
            f"[{function}] expected a shape whose lengths multiply to less than 2 ** 60, got {described(tuple(shape))}"
        )
    return tuple(int(n) for n in shape)


def broadcast_shapes(function: str, shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to; ShapeError with all of them where they do not fit."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        got = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"[{function}] expected shapes that broadcast (equal from the last axis on, or 1), got {got}"
        ) from None


def as_array(function: str, data: Any) -> np.ndarray[Any, Any]:
    """``np.asarray(data)``; ArgumentError if it cannot be an array, OutOfMemoryError if it is too large."""
    try:
        return within_memory(function, lambda: np.asarray(data))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, AlphaError):
            raise
        raise ArgumentError(
            f"[{function}] expected an array or nested lists of one shape, got {described(data)}: {error}"
        ) from error


def within_memory(function: str, make: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """``make()``; OutOfMemoryError if NumPy has no memory for its result."""
    try:
        return make()
    except MemoryError as error:
        if isinstance(error, OutOfMemoryError):
            raise
        raise OutOfMemoryError(f"[{function}] expected room for an array beside the pool, got: {error}") from error
