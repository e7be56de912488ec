"""The standard's functions of order, of sets, and of where something holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from alpha.arguments import flag
from alpha.array_api.promotion import check_arrays, flattened, promoted
from alpha.errors import ShapeError
from alpha.functions import comparison, lookups, running, selection, sorting
from alpha.functions.arithmetic import sub
from alpha.functions.operands import check_tensor
from alpha.tensor import Tensor

__all__ = [
    "argsort", "isin", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "where",
]  # fmt: skip

# -- order -----------------------------------------------------------------------------------------------------------


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis; equal ones keep theirs whatever ``stable`` says."""
    return sorting.sort(x, axis, descending, stable).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that put the elements in order along an axis; equal ones keep theirs whatever ``stable`` says."""
    return sorting.argsort(x, axis, descending, stable=stable)


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where values belong in an ascending vector: before the elements that equal them, or on the right behind."""
    check_arrays("searchsorted", x1, x2)
    line, values = promoted((x1, x2))
    return selection.searchsorted(line, values, side=side, sorter=sorter)


# -- where something holds -------------------------------------------------------------------------------------------


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that differ from 0, a vector for each axis; ShapeError where x has none."""
    check_tensor("nonzero", x)
    if not x.ndim:
        raise ShapeError("[nonzero] expected an array with axes, got one without: reshape it to (1,)")
    found: tuple[Tensor, ...] = selection.nonzero(x, as_tuple=True)
    return found


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """The elements of x1 where a condition holds, those of x2 elsewhere; arrays or numbers."""
    check_tensor("where", condition)
    one, other = promoted((x1, x2))
    return comparison.where(condition, one, other)


# -- sets ------------------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The distinct elements, where each is first, the place of each element among them, how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The distinct elements, and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The distinct elements, and for each element its place among them."""

    values: Tensor
    inverse_indices: Tensor


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements in ascending order; each NaN is by itself."""
    found: Tensor = selection.unique(x)
    return found


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements in ascending order, each NaN by itself, and how often each occurs."""
    return UniqueCounts(*selection.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements in ascending order, each NaN by itself, and for each element of x its place among them."""
    return UniqueInverse(*selection.unique(x, return_inverse=True))


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements in ascending order, each NaN by itself, with where each is first in the flattened array,
    for each element of x its place among them, and how often each occurs."""
    values, inverse, counts = selection.unique(x, return_inverse=True, return_counts=True)
    order = sorting.argsort(flattened(inverse))  # stable: of equal places the first comes first
    starts = sub(running.cumsum(counts, 0), counts)
    return UniqueAll(values, lookups.index_select(order, 0, starts), inverse, counts)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2, or with ``invert`` whether it is not."""
    check_arrays("isin", x1, x2)
    one, other = promoted((x1, x2))
    return selection.isin(one, other, invert=flag("isin", "invert", invert))
