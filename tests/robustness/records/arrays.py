"""Parts, diagonals and other views; order and distinct values; writing by index; counts and running values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from tests.robustness.cases import Base, Case, Draw, Input
from tests.robustness.compare import SOLVED, SUMS, Tolerance
from tests.robustness.record import Record

EXACT = Tolerance(4, 0, 0, "elements are moved or chosen, not computed")
Drawn = Callable[[Draw], Case]


def _x(d: Draw, low: int = 0, high: int = 4, kinds: str = "fib", values: str = "normal", **options: Any) -> Input:
    return d.input(d.shape(low, high), d.dtype(kinds), values, **options)


def _of(low: int = 0, high: int = 4, kinds: str = "fib", values: str = "normal", filled: bool = False) -> Drawn:
    """One tensor; ``filled``: whether there is nothing to compute of no elements."""

    def draw(d: Draw) -> Case:
        x = _x(d, low, high, kinds, values)
        return Case([x], {}, not filled or 0 not in x.shape)

    return draw


def _along(low: int = 1, kinds: str = "fib", values: str = "normal", filled: bool = False, **options: Any) -> Drawn:
    """A tensor and an axis, and options, each drawn from several values."""

    def draw(d: Draw) -> Case:
        x = _x(d, low, 4, kinds, values)
        drawn = {name: d.pick(several) for name, several in options.items()}
        return Case([x, d.axis(len(x.shape))], drawn, not filled or 0 not in x.shape)

    return draw


def _indices(d: Draw, n: int, shape: Any) -> Input:
    return Input(Base(d.np.integers(0, max(n, 1), shape)))


# -- views and diagonals -----------------------------------------------------------------------------------------


def _moved(d: Draw) -> Case:
    x = _x(d, 1)
    count = d.whole(1, len(x.shape))
    source, target = (tuple(d.py.sample(range(len(x.shape)), count)) for _ in range(2))
    return Case([x, source, target])


def _two_axes(d: Draw) -> Case:
    x = _x(d, 1)
    return Case([x, d.axis(len(x.shape)), d.axis(len(x.shape))])


def _narrowed(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape))
    start = d.whole(0, x.shape[axis])
    return Case([x, axis, start, d.whole(0, x.shape[axis] - start)])


def _cut(x: Any, dim: int, start: int, length: int) -> Any:
    return np.take(x, range(start, start + length), dim)


def _selected(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape))
    return Case([x, axis, d.whole(0, max(x.shape[axis] - 1, 0))], {}, x.shape[axis] > 0)


def _in_windows(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape))
    return Case([x, axis, d.whole(1, max(x.shape[axis], 1)), d.whole(1, 3)], {}, x.shape[axis] > 0)


def _windows(x: Any, dim: int, size: int, step: int) -> Any:
    cut = (slice(None),) * (dim % x.ndim) + (slice(None, None, step),)
    return np.lib.stride_tricks.sliding_window_view(x, size, dim)[cut]


def _strided(d: Draw) -> Case:
    x = d.input((d.whole(8, 20),), d.dtype(), views=0.0)
    return Case([x, (2, 3), d.pick(((1, 1), (3, 1), (2, 2), (0, 1))), d.whole(0, 1)])


def _diagonal(low: int) -> Drawn:
    def draw(d: Draw) -> Case:
        x = _x(d, low)
        first, second = d.py.sample(range(len(x.shape)), 2)
        return Case([x, d.whole(-3, 3), first, second])

    return draw


def _embedded(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    length = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], length, length), x.dtype)
    places = np.arange(x.shape[-1])
    out[..., places + max(-offset, 0), places + max(offset, 0)] = x
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def _with_diagonal(d: Draw) -> Case:
    x = d.input(d.shape(2, 2, 1), "float32")
    offset = d.whole(1 - x.shape[0], x.shape[1] - 1)
    return Case([x, d.input(np.diagonal(np.empty(x.shape), offset).shape, "float32"), offset])


def _put_on_diagonal(x: Any, src: Any, offset: int) -> Any:
    out, places = x.copy(), np.arange(len(src))
    out[places + max(-offset, 0), places + max(offset, 0)] = src
    return out


def _with_part(d: Draw) -> Case:
    x = d.input(d.shape(1, 3, 1), "float32")
    axis = d.whole(0, len(x.shape) - 1)
    return Case([x, d.input(x.shape[:axis] + x.shape[axis + 1 :], "float32"), axis, d.whole(0, x.shape[axis] - 1)])


def _put_in_part(x: Any, src: Any, dim: int, index: int) -> Any:
    out = x.copy()
    np.moveaxis(out, dim, 0)[index] = src
    return out


def _beside(low: int) -> Drawn:
    def draw(d: Draw) -> Case:
        shape, dtype = d.shape(low, 3), d.dtype("fib")
        return Case([[d.input(shape, dtype) for _ in range(d.whole(1, 3))]])

    return draw


def _rolled(d: Draw) -> Case:
    x = _x(d, 1)
    if d.chance(0.3):
        return Case([x, d.whole(-5, 5)])
    axes = tuple(d.py.sample(range(len(x.shape)), d.whole(1, len(x.shape))))
    return Case([x, tuple(d.whole(-5, 5) for _ in axes), axes])


def _blocks(*tensors: Any) -> Any:
    blocks = [np.atleast_2d(x) for x in tensors]
    out = np.zeros(np.sum([b.shape for b in blocks], 0), np.result_type(*blocks))
    row = column = 0
    for block in blocks:
        out[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return out


def _in_blocks(d: Draw) -> Case:
    dtype = d.dtype("fi")
    return Case([d.input(d.shape(0, 2, 1), dtype) for _ in range(d.whole(1, 3))])


def _same(name: str, draw: Drawn, oracle: Any, peer: Any = None, **options: Any) -> Record:
    """A record whose peer is PyTorch's function of the name, unless another is given or there is None of it."""
    given = peer if peer is not None else lambda torch, *args, **kwargs: getattr(torch, name)(*args, **kwargs)
    return Record(f"alpha.{name}", draw, oracle, given, options.pop("tolerance", EXACT), **options)


def _swapped(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


VIEWS = [
    _same("t", _of(0, 2), np.transpose),
    _same("adjoint", _of(2), _swapped),
    _same("movedim", _moved, np.moveaxis, covers=("alpha.moveaxis",)),
    _same("swapaxes", _two_axes, np.swapaxes, covers=("alpha.swapdims",)),
    _same("ravel", _of(), np.ravel),
    _same("narrow", _narrowed, _cut),
    _same("select", _selected, lambda x, dim, index: np.take(x, index, dim)),
    _same("unbind", _along(), lambda x, dim: list(np.moveaxis(x, dim, 0))),
    _same("tensor_split", lambda d: Case([_x(d, 1), d.whole(1, 4)]), np.array_split),
    Record("alpha.Tensor.unfold", _in_windows, _windows, lambda t, x, *args: x.unfold(*args), EXACT),
    _same("as_strided", _strided, lambda x, size, stride, offset: np.lib.stride_tricks.as_strided(
        np.ascontiguousarray(x)[offset:], size, [s * x.itemsize for s in stride])),
    _same("diagonal", _diagonal(2), np.diagonal),
    _same("diag", _of(1, 2), np.diag),
    _same("diagflat", _of(), np.diagflat),
    _same("diag_embed", lambda d: Case([_x(d, 1, 3), d.whole(-2, 2)]), _embedded),
    _same("trace", _of(2, 2, "fi"), lambda x: np.trace(x, dtype=x.dtype if x.dtype.kind == "f" else np.int64),
          tolerance=SUMS),
    _same("tril", lambda d: Case([_x(d, 2), d.whole(-3, 3)]), np.tril),
    _same("triu", lambda d: Case([_x(d, 2), d.whole(-3, 3)]), np.triu),
    _same("tril_indices", lambda d: Case([d.whole(0, 6), d.whole(0, 6), d.whole(-3, 3)]),
          lambda n, m, k: np.stack(np.tril_indices(n, k, m)), gradient=False),
    _same("triu_indices", lambda d: Case([d.whole(0, 6), d.whole(0, 6), d.whole(-3, 3)]),
          lambda n, m, k: np.stack(np.triu_indices(n, k, m)), gradient=False),
    _same("diagonal_scatter", _with_diagonal, _put_on_diagonal),
    _same("select_scatter", _with_part, _put_in_part),
    _same("block_diag", _in_blocks, _blocks),
    _same("hstack", _beside(0), np.hstack),
    _same("vstack", _beside(0), np.vstack, covers=("alpha.row_stack",)),
    _same("dstack", _beside(0), np.dstack),
    _same("column_stack", _beside(0), np.column_stack),
    _same("atleast_3d", _of(), np.atleast_3d, covers=("alpha.atleast_1d", "alpha.atleast_2d")),
    _same("roll", _rolled, lambda x, shifts, dims=None: np.roll(x, shifts, dims)),
    _same("rot90", lambda d: Case([_x(d, 2), d.whole(-5, 5)]), np.rot90),
    _same("fliplr", _of(2), np.fliplr),
    _same("flipud", _of(1), np.flipud),
    _same("meshgrid", lambda d: Case([d.input((d.length(),), "float32") for _ in range(d.whole(1, 3))],
                                     {"indexing": d.pick(("ij", "xy"))}),
          lambda *lines, indexing: list(np.meshgrid(*lines, indexing=indexing))),
]  # fmt: skip


# -- order, distinct values, places ------------------------------------------------------------------------------


def _first(x: Any, k: int, dim: int, largest: bool) -> Any:
    order = np.sort(x, dim)
    order = np.flip(order, dim) if largest else order
    return np.take(order, range(k), dim)


def _top(d: Draw) -> Case:
    x = _x(d, 1, 3, "fi", "distinct")
    axis = d.axis(len(x.shape))
    return Case([x, d.whole(0, x.shape[axis]), axis, d.chance(0.5)])


def _kth(d: Draw) -> Case:
    x = _x(d, 1, 3, "fi", "distinct")
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
    x = _x(d, 1, 3, "f", "distinct")
    valid = 0 not in x.shape
    return Case([x, d.pick((0.0, 0.25, 0.5, 0.9, 1.0)), d.axis(len(x.shape))], {}, valid)


def _quantile(x: Any, q: float, dim: int) -> Any:
    if not np.isfinite(x).all():
        raise ValueError("infinities between which NumPy and PyTorch interpolate by NaN")
    return np.quantile(x, q, dim)


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


def _masked(d: Draw) -> Case:
    shape = d.shape(0, 3)
    return Case([d.input(shape, d.dtype("fib")), d.input(d.broadcastable(shape), "bool")])


def _repeated(d: Draw) -> Case:
    x = _x(d, 1, 3)
    axis = d.axis(len(x.shape))
    return Case([x, d.whole(0, 3) if d.chance(0.5) else _indices(d, 4, x.shape[axis]), axis])


ORDER = [
    _chosen("topk", _top, _first),
    _chosen("kthvalue", _kth, _at_rank),
    _chosen("mode", _along(1, "fi", "whole", filled=True), _modes, gradient=False),
    _chosen("median", _along(1, "fi", "distinct", filled=True), _middle),
    Record("alpha.nanmedian", _of(0, 3, "fi", "distinct", True),
           _middle_known,
           lambda t, x: t.nanmedian(x), EXACT),
    _same("argsort", _along(1, "fi", descending=(False,)),
          _order,
          lambda t, x, dim, descending: t.sort(x, dim, stable=True)[1], gradient=False),
    _same("msort", _of(1, 3, "fi", "distinct"), lambda x: np.sort(x, 0)),
    _same("quantile", _share, _quantile, tolerance=SUMS, covers=("alpha.nanquantile",)),
    _same("unique", _of(0, 3, "fib", "whole"), lambda x: np.unique(x, equal_nan=False), gradient=False),
    _same("unique_consecutive", _of(0, 3, "fib", "whole"), _runs, gradient=False),
    _same("nonzero", _of(0, 3, "fib", "whole"), np.argwhere, gradient=False),
    _same("argwhere", _of(0, 3, "fib", "whole"), np.argwhere, gradient=False),
    _same("masked_select", _masked, lambda x, mask: x[np.broadcast_to(mask, x.shape)].reshape(-1)),
    _same("searchsorted", _sequence, _sides, gradient=False),
    _same("bucketize", lambda d: Case(_sequence(d).args[::-1]), lambda x, line: _sides(line, x, False),
          gradient=False),
    _same("isin", lambda d: Case([_x(d, 0, 3, "i"), _x(d, 0, 1, "i")]), np.isin, gradient=False),
    _same("repeat_interleave", _repeated, np.repeat),
]  # fmt: skip


# -- writing by index --------------------------------------------------------------------------------------------


def _scattered(whole: bool, kinds: str = "fi", values: str = "normal") -> Drawn:
    """x, an axis, an index that names no place of a line twice, and values; ``whole``: of x's other lengths."""

    def draw(d: Draw) -> Case:
        x = _x(d, 1, 3, kinds, values)
        axis = d.whole(0, len(x.shape) - 1)
        shape = [n if whole or a == axis else d.whole(0, n) for a, n in enumerate(x.shape)]
        index = d.np.permuted(
            np.broadcast_to(np.arange(x.shape[axis]), [*np.delete(shape, axis), x.shape[axis]]), axis=-1
        )
        index = np.moveaxis(index, -1, axis)
        return Case([x, axis, Input(Base(np.ascontiguousarray(index))), d.input(tuple(shape), x.dtype.name, values)])

    return draw


def _added_up(kinds: str, values: str = "normal") -> Drawn:
    """x, an axis, an index that may name places several times, and values."""

    def draw(d: Draw) -> Case:
        x = _x(d, 1, 3, kinds, values)
        axis = d.whole(0, len(x.shape) - 1)
        shape = tuple(d.whole(0, 6) if a == axis else n for a, n in enumerate(x.shape))
        index = _indices(d, x.shape[axis], shape)
        return Case([x, axis, index, d.input(shape, x.dtype.name, values)], {}, 0 not in x.shape)

    return draw


def _places(index: Any, dim: int) -> tuple[Any, ...]:
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def _written(operation: Any = None) -> Callable[..., Any]:
    def oracle(x: Any, dim: int, index: Any, src: Any) -> Any:
        out = x.copy()
        if operation is None:
            out[_places(index, dim)] = src
        else:
            operation.at(out, _places(index, dim), src)
        return out

    return oracle


def _entries(d: Draw) -> Case:
    x = _x(d, 1, 3, "fi")
    axis = d.whole(0, len(x.shape) - 1)
    shape = tuple(d.whole(0, 6) if a == axis else n for a, n in enumerate(x.shape))
    return Case([x, axis, _indices(d, x.shape[axis], shape[axis]), d.input(shape, x.dtype.name)], {}, 0 not in x.shape)


def _at_entries(x: Any, dim: int, index: Any, source: Any) -> Any:
    out = x.copy()
    np.add.at(out, (slice(None),) * dim + (index,), source)
    return out


def _once(d: Draw) -> Case:
    case = _entries(d)
    x, axis, _, source = case.args
    index = d.np.permutation(x.shape[axis])[: source.shape[axis]]
    shape = tuple(len(index) if a == axis else n for a, n in enumerate(x.shape))
    return Case([x, axis, Input(Base(index)), d.input(shape, x.dtype.name)], {}, case.valid)


def _set_entries(x: Any, dim: int, index: Any, source: Any) -> Any:
    out = x.copy()
    out[(slice(None),) * dim + (index,)] = source
    return out


def _filled_entries(d: Draw) -> Case:
    case = _entries(d)
    return Case([*case.args[:3], 1], {}, case.valid)


def _taken(d: Draw) -> Case:
    x = _x(d, 0, 3)
    return Case([x, _indices(d, int(np.prod(x.shape)), d.shape(0, 2))], {}, 0 not in x.shape)


def _put(d: Draw) -> Case:
    x, index = _taken(d).args
    return Case([x, index, d.input(index.shape, x.dtype.name), True], {}, 0 not in x.shape and x.dtype.kind != "b")


def _put_flat(x: Any, index: Any, source: Any, accumulate: bool) -> Any:
    out = x.copy()
    np.add.at(out.reshape(-1), index, source)
    return out


def _put_keys(d: Draw) -> Case:
    x, index = _x(d, 1, 1, "fi"), d.whole(1, 5)
    key = _indices(d, x.shape[0], index)
    return Case([x, (key,), d.input((index,), x.dtype.name), True], {}, 0 not in x.shape)


def _mask_source(d: Draw) -> Case:
    x, mask = _masked(d).args
    return Case([x, mask, d.input((int(np.prod(x.shape)),), x.dtype.name)])


def _from_source(x: Any, mask: Any, source: Any) -> Any:
    out, where = x.copy(), np.broadcast_to(mask, x.shape)
    out[where] = source[: where.sum()]
    return out


def _reduced_peer(how: str) -> Callable[..., Any]:
    return lambda torch, x, dim, index, src: torch.scatter_reduce(x, dim, index, src, how)


WRITING = [
    _same("scatter", _scattered(False), _written(), covers=("alpha.Tensor.scatter_",)),
    _same("scatter_add", _added_up("fi"), _written(np.add), tolerance=SUMS, covers=("alpha.Tensor.scatter_add_",)),
    *[
        Record("alpha.scatter_reduce", _added_up("fi", "whole"), _written(ufunc), _reduced_peer(how), SUMS,
               call=lambda *args, how=how: alpha.scatter_reduce(*args, how),
               covers=("alpha.Tensor.scatter_reduce_", "alpha.index_reduce", "alpha.Tensor.index_reduce_"))
        for how, ufunc in (("prod", np.multiply), ("amax", np.maximum), ("amin", np.minimum))
    ],
    _same("index_add", _entries, _at_entries, tolerance=SUMS, covers=("alpha.Tensor.index_add_",)),
    _same("index_copy", _once, _set_entries, covers=("alpha.Tensor.index_copy_",)),
    _same("index_fill", _filled_entries, _set_entries,
          covers=("alpha.Tensor.index_fill_",)),
    _same("take", _taken, lambda x, index: x.reshape(-1)[index]),
    _same("put", _put, _put_flat, tolerance=SUMS, covers=("alpha.Tensor.put_",)),
    _same("index_put", _put_keys, lambda x, key, values, accumulate: _put_flat(x, key[0], values, True),
          tolerance=SUMS, covers=("alpha.Tensor.index_put_",)),
    _same("masked_scatter", _mask_source, _from_source, covers=("alpha.Tensor.masked_scatter_",)),
]  # fmt: skip


# -- running values, differences, counts -------------------------------------------------------------------------


def _running(operation: Any) -> Callable[..., Any]:
    return lambda x, dim: operation.accumulate(x, dim, x.dtype if x.dtype.kind == "f" else np.int64)


def _counted(d: Draw) -> Case:
    return Case([Input(Base(d.np.integers(0, 9, d.whole(0, 30)))), None, d.whole(0, 12)])


def _observed(d: Draw) -> Case:
    return Case([d.input((d.whole(1, 4), d.whole(2, 9)), d.dtype())])


def _binned(d: Draw) -> Case:
    x = d.input((d.whole(1, 60),), "float64", views=0.0)
    return Case([x, d.whole(1, 9)], {"range": (-1.0, 1.5)}, bool(np.isfinite(x.numpy()).all()))


def _in_bins(x: Any, bins: int, range: Any) -> Any:
    counts, edges = np.histogram(x, bins, range)
    return [counts.astype(np.float64), edges]


RUNNING = [
    _same("cumprod", _along(1, "fi", "whole"), _running(np.multiply), tolerance=SUMS,
          covers=("alpha.Tensor.cumprod_",)),
    _chosen("cummax", _along(1, "fi", "distinct"), np.maximum.accumulate),
    _chosen("cummin", _along(1, "fi", "distinct"), np.minimum.accumulate),
    _same("logcumsumexp", _along(1, "f"), np.logaddexp.accumulate, tolerance=Tolerance(64, 16, 16, "log of a sum")),
    _same("diff", lambda d: Case([_x(d, 1, 3, "fi"), d.whole(0, 3)]), np.diff, tolerance=SUMS),
    _same("trapezoid", lambda d: Case([_x(d, 1, 3, "f")]), np.trapezoid, tolerance=SUMS,
          covers=("alpha.trapz", "alpha.cumulative_trapezoid")),
    _same("bincount", _counted, np.bincount, gradient=False),
    Record("alpha.histogram", _binned, _in_bins,
           lambda t, x, bins, range: list(t.histogram(x, bins, range=range)), SUMS, gradient=False,
           covers=("alpha.histc",), call=lambda *args, **options: list(alpha.histogram(*args, **options))),
    _same("cov", _observed, np.cov, tolerance=SOLVED, solves=True, covers=("alpha.corrcoef",)),
]  # fmt: skip

RECORDS = [*VIEWS, *ORDER, *WRITING, *RUNNING]
