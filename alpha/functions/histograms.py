"""How often values occur: counts of integers, and histograms of one axis or several."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number, whole
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.operands import check_float, check_room, check_tensor
from alpha.tensor import Tensor

__all__ = ["bincount", "histc", "histogram", "histogramdd"]

Array = np.ndarray[Any, Any]


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 on occurs in a vector, or the sum of the weights beside it."""
    check_tensor("bincount", input)
    minlength = whole("bincount", "minlength", minlength, 0)
    if input.ndim != 1 or not dtypes.is_integer(input.dtype):
        raise DtypeError(f"[bincount] expected a vector of integers, got {input.dtype} of shape {input.shape}")
    values = input.engine.to_numpy(input)
    if values.size and values.min() < 0:
        raise ArgumentError(f"[bincount] expected integers >= 0, got {int(values.min())}")
    if weights is None:
        return input.engine.from_numpy(np.bincount(values, minlength=minlength).astype(np.int64))
    check_tensor("bincount", weights)
    if weights.shape != input.shape:
        raise ShapeError(f"[bincount] expected weights of shape {input.shape}, got {weights.shape}")
    sums = np.bincount(values, input.engine.to_numpy(weights.detach()), minlength)
    return input.engine.from_numpy(
        sums.astype(weights.dtype if dtypes.is_float(weights.dtype) else dtypes.widest_float)
    )


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of equal bins from ``min`` to ``max``, or, where both are 0, of its own range."""
    check_float("histc", input)
    count = whole("histc", "bins", bins, 1)
    values = input.engine.to_numpy(input.detach()).reshape(-1)
    low, high = _bounds("histc", values, number("histc", "min", min), number("histc", "max", max), 1.0)
    kind = input.dtype.type
    values = values[(values >= low) & (values <= high)]
    places = ((values - kind(low)) * kind(count) / (kind(high) - kind(low))).astype(np.int64)
    counts = np.bincount(np.minimum(places, count - 1), minlength=count)
    return input.engine.from_numpy(counts.astype(input.dtype))


def _bounds(name: str, values: Array, low: float, high: float, margin: float) -> tuple[float, float]:
    """The range of the bins: the values' own where it is empty, and wider on both sides where that is empty too."""
    if low == high and values.size:
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - margin, high + margin
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ArgumentError(f"[{name}] expected a finite range from min to max, got {low} and {high}")
    return low, high


class Histogram(NamedTuple):
    """How many values lie in each bin, and the bins' edges."""

    hist: Tensor
    bin_edges: Tensor


def histogram(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Histogram:
    """How many elements lie in each bin, or the sums of their weights; with ``density`` as shares per width.

    ``bins``: how many, within ``range`` (low, high) or input's own, or a vector of ascending edges.
    """
    check_float("histogram", input)
    values = input.engine.to_numpy(input.detach()).reshape(-1)
    if range is not None and (not isinstance(range, tuple | list) or len(range) != 2):
        raise ArgumentError(f"[histogram] expected range as a pair (low, high), got {described(range)}")
    edges = _edges("histogram", input, values, bins, range)
    found = _counted("histogram", input, [values], [edges], _weights("histogram", weight, input.shape), density)
    return Histogram(input.engine.from_numpy(found), input.engine.from_numpy(edges))


class HistogramOfSeveral(NamedTuple):
    """How many points lie in each bin, and the bins' edges along each axis."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramOfSeveral:
    """How many points of D numbers lie in each bin of D axes, or the sums of their weights.

    Args:
        input: (..., D) floats; each row is a point.
        bins: how many bins each axis has, an int for all axes; or a list of vectors of ascending edges.
        range: low and high of each axis, 2 D numbers; by default those of the points.
        weight: (...).
        density: whether counts are shares of all per volume of a bin.
    """
    name = "histogramdd"
    check_float(name, input)
    if input.ndim < 2:
        raise ShapeError(f"[{name}] expected points (..., D), got shape {input.shape}")
    width = input.shape[-1]
    axes = [bins] * width if isinstance(bins, int) else bins
    if not isinstance(axes, tuple | list) or len(axes) != width:
        raise ArgumentError(f"[{name}] expected bins for each of {width} axes, got {described(bins)}")
    if range is not None and (not isinstance(range, tuple | list) or len(range) != 2 * width):
        raise ArgumentError(f"[{name}] expected range as {2 * width} numbers, got {described(range)}")
    points = input.engine.to_numpy(input.detach()).reshape(-1, width)
    ranges = [None] * width if range is None else [range[2 * axis : 2 * axis + 2] for axis in builtins.range(width)]
    columns = [*points.T]
    edges = [_edges(name, input, *given) for given in zip(columns, axes, ranges, strict=True)]
    check_room(input.engine, [len(found) - 1 for found in edges], dtypes.widest_float)
    counts = _counted(name, input, columns, edges, _weights(name, weight, input.shape[:-1]), density)
    return HistogramOfSeveral(input.engine.from_numpy(counts), tuple([input.engine.from_numpy(e) for e in edges]))


def _edges(name: str, x: Tensor, values: Array, bins: Any, range: Any) -> Array:
    """The edges of bins for some of x's values: those given, or of so many equal ones within a range or the values'."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or len(bins) < 2:
            raise ShapeError(f"[{name}] expected bins as a vector of two edges or more, got shape {bins.shape}")
        edges = np.array(bins.engine.to_numpy(bins.detach()))
        if not (np.diff(edges) >= 0).all():
            raise ArgumentError(f"[{name}] expected ascending edges of bins, got others: sort them")
        return edges
    count = whole(name, "bins", bins, 1)
    check_room(x.engine, (count + 1,), dtypes.widest_float)
    empty = (0.0, 0.0) if values.size else (0.0, 1.0)
    low, high = empty if range is None else [number(name, "range", value) for value in range]
    low, high = _bounds(name, values, low, high, 0.5)
    return np.linspace(low, high, count + 1, dtype=values.dtype)


def _weights(name: str, weight: Tensor | None, shape: tuple[int, ...]) -> Array | None:
    """The weights of values as a vector."""
    if weight is None:
        return None
    check_tensor(name, weight)
    if weight.shape != shape:
        raise ShapeError(f"[{name}] expected weights of shape {shape}, got {weight.shape}")
    return weight.engine.to_numpy(weight.detach()).reshape(-1)


def _counted(
    name: str, x: Tensor, columns: list[Array], edges: list[Array], weights: Array | None, density: Any
) -> Array:
    """How many points, given by their coordinates, lie in each bin: an array with an axis for each coordinate."""
    lengths = [len(found) - 1 for found in edges]
    inside = np.ones(columns[0].shape if columns else (0,), np.bool_)
    bins = np.zeros(inside.shape, np.int64)
    for values, found, length in zip(columns, edges, lengths, strict=True):
        places = np.searchsorted(found, values, "right") - 1
        places[values == found[-1]] = length - 1  # the last bin has both its edges
        inside &= (places >= 0) & (places < length)
        bins = bins * length + places
    counts = np.bincount(bins[inside], None if weights is None else weights[inside], math.prod(lengths))
    result: Array = counts.astype(x.dtype).reshape(lengths)
    if flag(name, "density", density):
        volumes = np.ones(())
        for found in edges:
            volumes = volumes[..., None] * np.diff(found)
        with np.errstate(all="ignore"):  # of no points in any bin the shares are NaN
            result = (result / (result.sum() * volumes)).astype(x.dtype)
    return result
