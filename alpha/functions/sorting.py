"""Order along an axis: sorting, the largest and smallest elements, the most frequent ones."""

from __future__ import annotations

import numpy as np

from alpha.arguments import flag, one_axis, whole
from alpha.autograd import enters_graph
from alpha.errors import ArgumentError
from alpha.functions.axes import ValuesAndIndices, check_not_empty, of_line
from alpha.functions.joining import flip
from alpha.functions.lookups import gather
from alpha.functions.operands import check_tensor, compute
from alpha.functions.shape import squeeze
from alpha.tensor import Tensor

__all__ = ["argsort", "kthvalue", "mode", "msort", "sort", "topk"]


def found_at(x: Tensor, values: Tensor, indices: Tensor, axis: int) -> ValuesAndIndices:
    """The values that an engine found along an axis, which take their places in the graph from where they were."""
    return ValuesAndIndices(gather(x, axis, indices) if enters_graph(x) else values, indices)


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None
) -> ValuesAndIndices:
    """Values in stable order along an axis, and their int64 indices; NaN counts as the largest.

    The order is stable whatever ``stable`` says. ``axis`` is NumPy's name for ``dim``.
    """
    check_tensor("sort", input)
    dim = dim if axis is None else axis
    descending = flag("sort", "descending", descending)
    flag("sort", "stable", stable)
    if not input.shape:
        found: ValuesAndIndices = of_line(sort, input, dim, descending)
        return found
    place, given = one_axis("sort", dim, input.ndim), input.detach()
    # Turning the axis round before and after keeps equal elements in their order.
    values, indices = input.storage.engine.sort(flip(given, place) if descending else given, place)
    if descending:
        values, indices = flip(values, place), flip(indices, place)
        compute("sub", input.shape[place] - 1, indices, out=indices)
    return found_at(input, values, indices, place)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Tensor:
    """The indices of ``sort``."""
    check_tensor("argsort", input)
    return sort(input.detach(), dim, descending, stable).indices


def msort(input: Tensor) -> Tensor:
    """The values in order along the first axis."""
    return sort(input, 0).values


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesAndIndices:
    """The ``k`` largest (or smallest) values along an axis, from the largest (smallest) on, and their indices.

    NaN counts as the largest. They are in order whatever ``sorted`` says; which of equal ones are taken is not said.
    """
    check_tensor("topk", input)
    flag("topk", "sorted", sorted)
    if not input.shape:
        if whole("topk", "k", k, 0, 1) == 1:
            found: ValuesAndIndices = of_line(topk, input, k, dim, largest)
            return found
        raise ArgumentError("[topk] expected k == 1 of a tensor without axes, got 0: take k=1")
    axis = one_axis("topk", dim, input.ndim)
    k, largest = whole("topk", "k", k, 0, input.shape[axis]), flag("topk", "largest", largest)
    return found_at(input, *input.storage.engine.topk(input.detach(), k, axis, largest), axis)


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The ``k``-th smallest value along an axis, counted from 1, and its index; NaN counts as the largest."""
    check_tensor("kthvalue", input)
    keepdim = flag("kthvalue", "keepdim", keepdim)
    if not input.shape:
        found: ValuesAndIndices = of_line(kthvalue, input, k, dim, True)
        return found
    axis = one_axis("kthvalue", dim, input.ndim)
    check_not_empty("kthvalue", input, (axis,))
    k = whole("kthvalue", "k", k, 1, input.shape[axis])
    return picked(input, input.storage.engine.rank(input.detach(), axis, k - 1), axis, keepdim)


def picked(x: Tensor, indices: Tensor, axis: int, keepdim: bool) -> ValuesAndIndices:
    """The value at one index of each line, whose axis is kept if asked."""
    values = gather(x, axis, indices)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(squeeze(values, axis), squeeze(indices, axis))


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The most frequent value along an axis, the smallest of several, and the last index that holds it."""
    check_tensor("mode", input)
    keepdim = flag("mode", "keepdim", keepdim)
    if not input.shape:
        found: ValuesAndIndices = of_line(mode, input, dim, True)
        return found
    axis = one_axis("mode", dim, input.ndim)
    check_not_empty("mode", input, (axis,))
    values, indices = (
        np.moveaxis(input.engine.to_numpy(part), axis, -1) for part in input.engine.sort(input.detach(), axis)
    )
    is_end = np.ones(values.shape, bool)
    np.not_equal(values[..., 1:], values[..., :-1], out=is_end[..., :-1])
    run_ends = np.where(is_end, np.arange(1, input.shape[axis] + 1), 0)
    run_starts = np.zeros_like(run_ends)
    np.maximum.accumulate(run_ends[..., :-1], axis=-1, out=run_starts[..., 1:])
    last = np.argmax(np.where(is_end, run_ends - run_starts, 0), axis=-1, keepdims=True)
    place = np.moveaxis(np.take_along_axis(indices, last, -1), -1, axis)
    return picked(input, input.engine.from_numpy(place), axis, keepdim)
