"""Order along an axis, distinct values and places; running values, differences and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from tests.robustness.cases import Base, Case, Draw, Input
from tests.robustness.compare import SOLVED, SUMS, Tolerance
from tests.robustness.record import Record
from tests.robustness.records.arrays import EXACT, Drawn, along, indices, masked, of, same, some

# -- order, distinct values, places ------------------------------------------------------------------------------


def _first(x: Any, k: int, dim: int, largest: bool) -> Any:
    order = np.sort(x, dim)
    order = np.flip(order, dim) if largest else order
    return np.take(order, range(k), dim)


def _top(d: Draw) -> Case:
    x = some(d, 1, 3, "fi", "distinct")
    axis = d.axis(len(x.shape))
    return Case([x, d.whole(0, x.shape[axis]), axis, d.chance(0.5)])


def _kth(d: Draw) -> Case:
    x = some(d, 1, 3, "fi", "distinct")
    axis = d.axis(len(x.shape))
    return Case([x, d.whole(1, max(x.shape[axis], 1)), axis], {}, 0 not in x.shape)


def _at_rank(x: Any, k: int, dim: int) -> Any:
    return np.take(np.sort(x, dim), k - 1, dim)


def _modes(x: Any, dim: int) -> Any:
    def one(line: Any) -> Any:
        values, counts = np.unique(line, return_counts=True, equal_nan=False)
        return values[np.argmax(counts)]

    return np.apply_along_axis(one, dim, x)


def _middle(x: Any, dim: int) -> Any:
    ordered = np.sort(x, dim)
    found = np.take(ordered, (x.shape[dim] - 1) // 2, dim)
    return np.where(np.isnan(x).any(dim), np.nan, found) if x.dtype.kind == "f" else found


def _middle_known(x: Any) -> Any:
    known = np.sort(x[~np.isnan(x)])
    return np.asarray(known[(known.size - 1) // 2] if known.size else np.nan)


def _share(d: Draw) -> Case:
    x = some(d, 1, 3, "f", "distinct")
    valid = 0 not in x.shape
    return Case([x, d.pick((0.0, 0.25, 0.5, 0.9, 1.0)), d.axis(len(x.shape))], {}, valid)


def _quantile(x: Any, q: float, dim: int) -> Any:
    """An element's own place tells that element, be it infinite: NumPy and PyTorch make NaN of it."""
    place = q * (x.shape[dim] - 1)
    low, high = (np.take(np.sort(x, dim), int(side(place)), dim) for side in (np.floor, np.ceil))
    found = low if place == int(place) else low + (high - low) * (place - np.floor(place))
    return np.where(np.isnan(x).any(dim), np.nan, found)


def _values_of(name: str) -> Callable[..., Any]:
    """The values alone of a function that also tells where they are: of equal ones any may be named."""
    return lambda *args, **options: getattr(alpha, name)(*args, **options)[0]


def _peer_values(name: str) -> Callable[..., Any]:
    return lambda torch, *args, **options: getattr(torch, name)(*args, **options)[0]


def _chosen(name: str, draw: Drawn, oracle: Any, gradient: bool = True) -> Record:
    return Record(f"alpha.{name}", draw, oracle, _peer_values(name), EXACT, gradient, call=_values_of(name))


def _order(x: Any, dim: int, descending: bool) -> Any:
    return np.argsort(x, dim, kind="stable")


def _runs(x: Any) -> Any:
    flat = x.reshape(-1)
    return flat[np.append(True, flat[1:] != flat[:-1])] if flat.size else flat


def _sequence(d: Draw) -> Case:
    line = d.input((d.whole(0, 20),), "float32", views=0.0)
    line.base.array.sort()
    return Case([line, d.input(d.shape(0, 2), "float32")], {"right": d.chance(0.5)})


def _sides(x: Any, values: Any, right: bool) -> Any:
    return np.asarray(np.searchsorted(x, values, "right" if right else "left"))


def _repeated(d: Draw) -> Case:
    x = some(d, 1, 3)
    axis = d.axis(len(x.shape))
    return Case([x, d.whole(0, 3) if d.chance(0.5) else indices(d, 4, x.shape[axis]), axis])


ORDER = [
    _chosen("topk", _top, _first),
    _chosen("kthvalue", _kth, _at_rank),
    _chosen("mode", along(1, "fi", "whole", filled=True), _modes, gradient=False),
    _chosen("median", along(1, "fi", "distinct", filled=True), _middle),
    Record("alpha.nanmedian", of(0, 3, "fi", "distinct", True),
           _middle_known,
           lambda t, x: t.nanmedian(x), EXACT),
    same("argsort", along(1, "fi", descending=(False,)),
          _order,
          lambda t, x, dim, descending: t.sort(x, dim, stable=True)[1], gradient=False),
    same("msort", of(1, 3, "fi", "distinct"), lambda x: np.sort(x, 0)),
    same("quantile", _share, _quantile, tolerance=SUMS, covers=("alpha.nanquantile",)),
    same("unique", of(0, 3, "fib", "whole"), lambda x: np.unique(x, equal_nan=False), gradient=False),
    same("unique_consecutive", of(0, 3, "fib", "whole"), _runs, gradient=False),
    same("nonzero", of(0, 3, "fib", "whole"), np.argwhere, gradient=False),
    same("argwhere", of(0, 3, "fib", "whole"), np.argwhere, gradient=False),
    same("masked_select", masked, lambda x, mask: x[np.broadcast_to(mask, x.shape)].reshape(-1)),
    same("searchsorted", _sequence, _sides, gradient=False),
    same("bucketize", lambda d: Case(_sequence(d).args[::-1]), lambda x, line: _sides(line, x, False),
          gradient=False),
    same("isin", lambda d: Case([some(d, 0, 3, "i"), some(d, 0, 1, "i")]), np.isin, gradient=False),
    same("repeat_interleave", _repeated, np.repeat),
]  # fmt: skip


# -- running values, differences, counts -------------------------------------------------------------------------


def _running(operation: Any) -> Callable[..., Any]:
    return lambda x, dim: operation.accumulate(x, dim, x.dtype if x.dtype.kind == "f" else np.int64)


def _counted(d: Draw) -> Case:
    return Case([Input(Base(d.np.integers(0, 9, d.whole(0, 30)))), None, d.whole(0, 12)])


def _observed(d: Draw) -> Case:
    # A row that repeats one number, as an expanded view does, has a variance that is rounding alone.
    return Case([d.input((d.whole(1, 4), d.whole(2, 9)), d.dtype(), views=0.0)])


def _binned(d: Draw) -> Case:
    x = d.input((d.whole(1, 60),), "float64", views=0.0)
    return Case([x, d.whole(1, 9)], {"range": (-1.0, 1.5)}, bool(np.isfinite(x.numpy()).all()))


def _in_bins(x: Any, bins: int, range: Any) -> Any:
    counts, edges = np.histogram(x, bins, range)
    return [counts.astype(np.float64), edges]


RUNNING = [
    same("cumprod", along(1, "fi", "whole"), _running(np.multiply), tolerance=SUMS,
          covers=("alpha.Tensor.cumprod_",)),
    _chosen("cummax", along(1, "fi", "distinct"), np.maximum.accumulate),
    _chosen("cummin", along(1, "fi", "distinct"), np.minimum.accumulate),
    same("logcumsumexp", along(1, "f"), np.logaddexp.accumulate, tolerance=Tolerance(64, 16, 16, "log of a sum")),
    same("diff", lambda d: Case([some(d, 1, 3, "fi"), d.whole(0, 3)]), np.diff, tolerance=SUMS),
    same("trapezoid", lambda d: Case([some(d, 1, 3, "f")]), np.trapezoid, tolerance=SUMS,
          covers=("alpha.trapz", "alpha.cumulative_trapezoid")),
    same("bincount", _counted, np.bincount, gradient=False),
    Record("alpha.histogram", _binned, _in_bins,
           lambda t, x, bins, range: list(t.histogram(x, bins, range=range)), SUMS, gradient=False,
           covers=("alpha.histc",), call=lambda *args, **options: list(alpha.histogram(*args, **options))),
    same("cov", _observed, np.cov, tolerance=SOLVED, solves=True, covers=("alpha.corrcoef",)),
]  # fmt: skip

RECORDS = [*ORDER, *RUNNING]
