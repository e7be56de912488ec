"""Grids of coordinates, products and combinations of sets, differences and integrals along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations as _combinations
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number, one_axis, one_of, whole
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.elementwise import logical_xor, mul, sub
from alpha.functions.joining import concat, several, stack
from alpha.functions.lookups import index_select
from alpha.functions.operands import check_tensor, is_number
from alpha.functions.reduction import sum
from alpha.functions.running import cumsum
from alpha.functions.shape import broadcast_to, reshape, squeeze
from alpha.functions.views import narrow
from alpha.tensor import Tensor

__all__ = [
    "cartesian_prod",
    "combinations",
    "cumulative_trapezoid",
    "diff",
    "gradient",
    "meshgrid",
    "trapezoid",
    "trapz",
]


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector repeated along the axes of the others; views.

    ``indexing`` "xy" exchanges the first two axes, as in NumPy.
    """
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    check_tensor("meshgrid", *given)
    one_of("meshgrid", "indexing", indexing, ("ij", "xy"))
    if not given or any(x.ndim > 1 or x.dtype != given[0].dtype for x in given):
        raise ShapeError("[meshgrid] expected at least one vector, all of one dtype, got others")
    lines = list(given[:2][::-1]) + list(given[2:]) if indexing == "xy" else list(given)
    shape = [x.numel() for x in lines]
    wide = [
        broadcast_to(reshape(x, [x.numel() if a == axis else 1 for a in range(len(lines))]), shape)
        for axis, x in enumerate(lines)
    ]
    return tuple([*wide[:2][::-1], *wide[2:]] if indexing == "xy" else wide)


def cartesian_prod(*tensors: Any) -> Tensor:
    """All tuples of one element from each vector, as rows in their order; of one vector itself."""
    found = several("cartesian_prod", list(tensors))
    if any(x.ndim != 1 for x in found):
        raise ShapeError(f"[cartesian_prod] expected vectors, got {', '.join(str(x.shape) for x in found)}")
    if len(found) == 1:
        return found[0]
    return stack([reshape(x, (x.numel(),)) for x in meshgrid(*found)], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to take ``r`` elements of a vector, as rows, in their order; with replacement also several times."""
    check_tensor("combinations", input)
    count = whole("combinations", "r", r, 0)
    if input.ndim != 1:
        raise ShapeError(f"[combinations] expected a vector, got shape {input.shape}")
    again = flag("combinations", "with_replacement", with_replacement)
    take = combinations_with_replacement if again else _combinations
    if not count:
        return input.new_empty((0,))
    if count == 2:
        rows = np.stack(np.triu_indices(input.shape[0], 0 if again else 1), 1)
    else:
        rows = np.array(list(take(range(input.shape[0]), count)), np.int64).reshape(-1, count)
    return reshape(index_select(input, 0, input.engine.from_numpy(rows.reshape(-1))), rows.shape)


# -- differences and integrals -----------------------------------------------------------------------------------


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis, ``n`` times; of bools whether they differ.

    ``prepend`` and ``append`` are put before and behind input first.
    """
    check_tensor("diff", input)
    axis, times = one_axis("diff", dim, input.ndim), whole("diff", "n", n, 0)
    if times and (prepend is not None or append is not None):
        input = concat([part for part in (prepend, input, append) if part is not None], axis)
    for _ in range(min(times, input.shape[axis])):
        length = max(input.shape[axis] - 1, 0)
        later, sooner = narrow(input, axis, input.shape[axis] - length, length), narrow(input, axis, 0, length)
        input = logical_xor(later, sooner) if dtypes.is_bool(input.dtype) else sub(later, sooner)
    return input


def _steps(name: str, y: Tensor, x: Tensor | None, dx: Any, axis: int) -> Any:
    """The widths between neighbours: tensors that broadcast to y's pairs, or a number."""
    if x is None:
        if not is_number(dx):
            raise ArgumentError(f"[{name}] expected dx as a number, got {described(dx)}")
        return dx
    check_tensor(name, x)
    if x.ndim == 1:
        if x.shape[0] != y.shape[axis]:
            raise ShapeError(f"[{name}] expected {y.shape[axis]} places in x, got shape {x.shape}")
        return reshape(diff(x), [-1 if a == axis else 1 for a in range(y.ndim)] if x.shape[0] > 1 else (0,))
    extra = y.ndim - x.ndim
    return diff(reshape(x, ((1,) * extra + x.shape) if extra > 0 else x.shape), 1, axis - y.ndim)


def _areas(name: str, y: Tensor, x: Tensor | None, dx: Any, axis: int) -> Tensor:
    """The areas of the trapezoids between neighbours."""
    length = max(y.shape[axis] - 1, 0)
    heights = narrow(y, axis, y.shape[axis] - length, length) + narrow(y, axis, 0, length)
    areas: Tensor = heights * _steps(name, y, x, dx, axis) / 2.0
    return areas


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule, at the places x or at steps of ``dx``."""
    check_tensor("trapezoid", y)
    axis = one_axis("trapezoid", dim, y.ndim)
    if x is None and is_number(dx) and y.shape[axis]:
        outermost = narrow(y, axis, 0, 1) + narrow(y, axis, y.shape[axis] - 1, 1)
        return mul(sum(y, axis - y.ndim) - squeeze(outermost, axis) / 2.0, dx)
    return sum(_areas("trapezoid", y, x, dx, axis), axis - y.ndim)


trapz = trapezoid


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral up to each place but the first, by the trapezoidal rule."""
    check_tensor("cumulative_trapezoid", y)
    axis = one_axis("cumulative_trapezoid", dim, y.ndim)
    return cumsum(_areas("cumulative_trapezoid", y, x, dx, axis), axis - y.ndim)


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The derivative along each axis, or those named, from neighbours on both sides: as in NumPy.

    ``spacing``: a number, one for each axis, or for each axis a vector of its places.
    """
    check_tensor("gradient", input)
    spacing = 1 if spacing is None else spacing
    order = whole("gradient", "edge_order", edge_order, 1, 2)
    given = range(input.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    axes = [one_axis("gradient", axis, input.ndim) for axis in given]
    spacings: Sequence[Any] = [spacing] * len(axes) if is_number(spacing) else spacing
    if not isinstance(spacings, tuple | list) or len(spacings) != len(axes):
        raise ArgumentError(f"[gradient] expected a number, or a spacing for each of {len(axes)} axes, got others")
    steps = [one if isinstance(one, Tensor) else number("gradient", "spacing", one) for one in spacings]
    return tuple([_slope(input, axis, step, order) for axis, step in zip(axes, steps, strict=True)])


def _slope(x: Tensor, axis: int, spacing: Any, order: int) -> Tensor:
    """The derivative along one axis."""
    length = x.shape[axis]
    if length <= order:
        raise ShapeError(f"[gradient] expected more than {order} elements along axis {axis}, got shape {x.shape}")

    def part(start: int, count: int) -> Tensor:
        return narrow(x, axis, start % length, count)

    if isinstance(spacing, Tensor):
        widths = reshape(diff(spacing), [-1 if a == axis else 1 for a in range(x.ndim)])
        left, right = narrow(widths, axis, 0, length - 2), narrow(widths, axis, 1, length - 2)
        inner = (
            part(0, length - 2) * (-right / (left * (left + right)))
            + part(1, length - 2) * ((right - left) / (left * right))
            + part(2, length - 2) * (left / (right * (left + right)))
        )
        first, second = (narrow(widths, axis, k, 1) for k in (0, min(1, length - 2)))
        last, before = (narrow(widths, axis, k, 1) for k in (length - 2, max(length - 3, 0)))
    else:
        inner = (part(2, length - 2) - part(0, length - 2)) / (2.0 * spacing)
        first = second = last = before = spacing
    if order == 1:
        return concat([(part(1, 1) - part(0, 1)) / first, inner, (part(-1, 1) - part(-2, 1)) / last], axis)
    begin = (
        part(0, 1) * (-(2.0 * first + second) / (first * (first + second)))
        + part(1, 1) * ((first + second) / (first * second))
        + part(2, 1) * (-first / (second * (first + second)))
    )
    end = (
        part(-3, 1) * (last / (before * (before + last)))
        + part(-2, 1) * (-(before + last) / (before * last))
        + part(-1, 1) * ((2.0 * last + before) / (last * (before + last)))
    )
    return concat([begin, inner, end], axis)
