"""Shapes: views, pieces, joins, padding; and indexing: reading and writing parts, gathering, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from tests.robustness.cases import Case, Draw, Input
from tests.robustness.record import Record

KINDS = "fib"


def _x(d: Draw, low: int = 0, high: int = 4, **options: Any) -> Input:
    return d.input(d.shape(low, high), d.dtype(KINDS), **options)


# -- shapes ------------------------------------------------------------------------------------------------------


def _factors(d: Draw, count: int) -> list[int]:
    """A shape of so many elements."""
    if count == 0:
        return d.py.sample([0, d.whole(0, 3), d.whole(1, 3)], 3)
    found: list[int] = []
    while count > 1 and len(found) < 4:
        divisors = [n for n in range(2, min(count, 40) + 1) if count % n == 0] or [count]
        divisor = d.pick(divisors)
        found.append(divisor)
        count //= divisor
    return [*found, *([count] if count > 1 else []), *([1] if d.chance(0.2) else [])]


def _reshape(d: Draw) -> Case:
    x = _x(d)
    shape = _factors(d, int(np.prod(x.shape, dtype=int)))
    if shape and 0 not in shape and d.chance(0.4):
        shape[d.whole(0, len(shape) - 1)] = -1
    return Case([x, tuple(shape)])


def _flatten(d: Draw) -> Case:
    x = _x(d)
    ndim = max(len(x.shape), 1)
    first = d.whole(0, ndim - 1)
    last = d.whole(first, ndim - 1)
    return Case([x], {"start_dim": first - ndim * d.whole(0, 1), "end_dim": last - ndim * d.whole(0, 1)})


def _flattened(x: Any, start_dim: int, end_dim: int) -> Any:
    if x.ndim == 0:
        return x.reshape(1)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:first], int(np.prod(x.shape[first : last + 1], dtype=int)), *x.shape[last + 1 :])


def _permute(d: Draw) -> Case:
    x = _x(d)
    ndim = len(x.shape)
    return Case([x, tuple(a - ndim * d.whole(0, 1) for a in d.py.sample(range(ndim), ndim))])


def _transpose(d: Draw) -> Case:
    x = _x(d, 1)
    return Case([x, d.axis(len(x.shape)), d.axis(len(x.shape))])


def _expand(negative: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        shape = d.shape(0, 4)
        x = d.input(d.broadcastable(shape), d.dtype(KINDS))
        extra = len(shape) - len(x.shape)
        wanted = [-1 if negative and a >= extra and d.chance(0.2) else n for a, n in enumerate(shape)]
        return Case([x, tuple(wanted)])

    return draw


def _expanded(x: Any, shape: Any) -> Any:
    extra = len(shape) - x.ndim
    return np.broadcast_to(x, [x.shape[a - extra] if n == -1 else n for a, n in enumerate(shape)])


def _squeeze(d: Draw) -> Case:
    shape = tuple(1 if d.chance(0.5) else n for n in d.shape(0, 4))
    x = d.input(shape, d.dtype(KINDS))
    return Case([x], {"dim": d.axes(len(shape))})


def _squeezed(x: Any, dim: Any = None) -> Any:
    axes = range(x.ndim) if dim is None else [a % x.ndim for a in (dim if isinstance(dim, tuple) else (dim,))]
    return np.squeeze(x, tuple(a for a in axes if x.shape[a] == 1))


def _unsqueeze(d: Draw) -> Case:
    x = _x(d, 0, 3)
    return Case([x, d.axis(len(x.shape) + 1)])


def _split(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape))
    length = x.shape[axis]
    size: Any = d.whole(1, max(1, length + 1))
    if d.chance(0.4):
        cuts = sorted(d.whole(0, length) for _ in range(d.whole(0, 3)))
        size = [b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
    return Case([x, size], {"dim": axis})


def _pieces(x: Any, size: Any, dim: int = 0) -> Any:
    length = x.shape[dim]
    if isinstance(size, int):
        size = [min(size, length - start) for start in range(0, length, size)] or [0]
    return np.split(x, np.cumsum(size)[:-1], dim)


def _chunk(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape))
    return Case([x, d.whole(1, 5)], {"dim": axis}, valid=x.shape[axis] > 0)


def _chunks(x: Any, chunks: int, dim: int = 0) -> Any:
    if x.shape[dim] == 0:
        raise ValueError("how many pieces there are of nothing is not defined")
    return _pieces(x, -(-x.shape[dim] // chunks), dim)


def _joined(new: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        shape = d.shape(0 if new else 1, 3)
        axis = d.axis(len(shape) + 1) if new else d.axis(len(shape))
        dtype, parts = d.dtype(KINDS), []
        for _ in range(d.whole(1, 4)):
            part_shape = list(shape)
            if not new:
                part_shape[axis] = d.whole(0, 5)
            parts.append(d.input(tuple(part_shape), dtype if d.chance(0.85) else d.dtype(KINDS)))
        if d.chance(0.1):
            parts.append(parts[0])
        return Case([parts], {"dim": axis})

    return draw


def _concatenated(parts: Any, dim: int = 0) -> Any:
    return np.concatenate(parts, dim)


def _stacked(parts: Any, dim: int = 0) -> Any:
    return np.stack(parts, dim)


def _pad(d: Draw) -> Case:
    x = d.input(d.shape(1, 4), d.dtype("fi"))
    pairs = d.whole(0, len(x.shape))
    if d.chance(0.3) and all(x.shape):
        mode = d.pick(("reflect", "replicate", "circular"))
        most = [{"reflect": n - 1, "replicate": 5, "circular": n}[mode] for n in reversed(x.shape)]
        return Case([x, tuple(d.whole(0, most[i // 2]) for i in range(2 * pairs))], {"mode": mode, "value": None})
    value = d.number("f") if x.dtype.kind == "f" else d.whole(0, 3)
    counts = tuple(d.pick((0, 0, 1, 2, 5)) for _ in range(2 * pairs))
    return Case([x, counts], {"mode": "constant", "value": value})


def _padded(x: Any, padding: Any, mode: str, value: Any) -> Any:
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    wanted = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    if mode == "constant":
        return np.pad(x, wanted, constant_values=value)
    return np.pad(x, wanted, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def _peer_padded(torch: Any, x: Any, padding: Any, mode: str, value: Any) -> Any:
    if mode != "constant":
        raise TypeError("PyTorch pads some axes alone so, of tensors of some dtypes")
    return torch.nn.functional.pad(x, padding, value=value)


def _flip(d: Draw) -> Case:
    x = _x(d)
    ndim = len(x.shape)
    return Case([x, tuple(a - ndim * d.whole(0, 1) for a in d.py.sample(range(ndim), d.whole(0, ndim)))])


def _tile(d: Draw) -> Case:
    x = _x(d, 0, 3)
    return Case([x, tuple(d.pick((0, 1, 1, 2, 3)) for _ in range(d.whole(0, 4)))])


def _same(
    draw: Callable[[Draw], Case], name: str, oracle: Any, peer: Any, method: bool = True, covers: Any = ()
) -> list[Record]:
    records = [Record(f"alpha.{name}", draw, oracle, peer, meets=name in ("cat", "concat", "stack"), covers=covers)]
    if method and hasattr(alpha.Tensor, name):
        records.append(Record(f"alpha.Tensor.{name}", draw, oracle, peer, weight=0.2))
    return records


SHAPES = [
    *_same(_reshape, "reshape", lambda x, shape: x.reshape(shape), lambda t, x, shape: x.reshape(shape)),
    *_same(_flatten, "flatten", _flattened, lambda t, x, start_dim, end_dim: t.flatten(x, start_dim, end_dim)),
    *_same(_permute, "permute", lambda x, axes: x.transpose(axes), lambda t, x, axes: x.permute(axes)),
    *_same(_transpose, "transpose", np.swapaxes, lambda t, x, a, b: t.transpose(x, a, b)),
    *_same(_expand(True), "expand", _expanded, lambda t, x, shape: x.expand(shape)),
    *_same(_expand(False), "broadcast_to", np.broadcast_to, lambda t, x, shape: x.expand(shape)),
    *_same(_squeeze, "squeeze", _squeezed, lambda t, x, dim: t.squeeze(x) if dim is None else t.squeeze(x, dim)),
    *_same(_unsqueeze, "unsqueeze", np.expand_dims, lambda t, x, dim: t.unsqueeze(x, dim)),
    *_same(_split, "split", _pieces, lambda t, x, size, dim: t.split(x, size, dim)),
    *_same(_chunk, "chunk", _chunks, lambda t, x, chunks, dim: t.split(x, max(1, -(-x.shape[dim] // chunks)), dim)),
    *_same(_joined(False), "concat", _concatenated, lambda t, parts, dim: t.cat(parts, dim), covers=("alpha.cat",)),
    *_same(_joined(True), "stack", _stacked, lambda t, parts, dim: t.stack(parts, dim)),
    *_same(_pad, "pad", _padded, _peer_padded, covers=("nn.functional.pad",)),
    *_same(_flip, "flip", np.flip, lambda t, x, dims: t.flip(x, dims)),
    *_same(_tile, "tile", np.tile, lambda t, x, repeats: t.tile(x, repeats), covers=("alpha.repeat",)),
]


# -- indexing ----------------------------------------------------------------------------------------------------


def key(d: Draw, shape: tuple[int, ...], advanced: bool = True) -> Any:
    """An index of a tensor of a shape: ints, slices, None, ..., integer tensors and lists, masks."""
    entries: list[Any] = []
    axis = 0
    length = d.whole(2, 4)  # of integer tensors, which broadcast
    while axis < len(shape):
        n, form = shape[axis], d.py.random()
        if form < 0.08:
            entries.append(None)
            continue
        if form < 0.30 and n:
            entries.append(d.axis(n))
        elif form < 0.65 or not advanced:
            entries.append(_slice(d, n))
        elif form < 0.85 and n:
            wanted = d.pick(((length,), (1,), (2, length), (0,)) if d.chance(0.2) else ((length,), (length,), (1,)))
            index = d.np.integers(-n, n, wanted)
            entries.append(_tensor(d, index) if d.chance(0.6) else index.tolist() if wanted != (0,) else [])
        elif form < 0.93:
            covered = min(d.pick((1, 1, 2)), len(shape) - axis)
            mask = d.np.random(shape[axis : axis + covered]) < 0.5
            entries.append(_tensor(d, mask))
            axis += covered - 1
        else:
            break
        axis += 1
    # Where ... stands for no axis it separates index tensors in NumPy, the oracle, but neither here nor in PyTorch.
    if d.chance(0.15) and (axis < len(shape) or not _masks(tuple(entries))):
        entries.insert(d.whole(0, len(entries)), Ellipsis) if axis >= len(shape) else entries.append(Ellipsis)
    return entries[0] if len(entries) == 1 and d.chance(0.5) else tuple(entries)


def _tensor(d: Draw, array: Any) -> Any:
    from tests.robustness.cases import Base

    if array.dtype.kind == "i":
        array = array.astype(d.pick(("int64", "int64", "int32")))
    return Input(Base(array))


def _slice(d: Draw, n: int) -> slice:
    bounds = [d.whole(-n - 1, n + 1) if d.chance(0.5) else None for _ in range(2)]
    return slice(bounds[0], bounds[1], d.pick((None, None, 1, 2, 3, -1, -2)))


def _masks(entries: Any) -> int:
    found = entries if isinstance(entries, tuple) else (entries,)
    return sum(isinstance(e, Input | list) for e in found)


def _getitem(d: Draw) -> Case:
    x = _x(d, 1)
    entries = key(d, x.shape)
    # Masks and tensors together may not broadcast: whether they do is not known here.
    return Case([x, entries], {}, valid=_masks(entries) < 2)


def _plain(entries: Any) -> Any:
    return tuple(entries) if isinstance(entries, tuple) else entries


def _peer_key(torch: Any, entries: Any) -> Any:
    def one(entry: Any) -> Any:
        if isinstance(entry, slice) and (entry.step or 1) < 0:
            raise TypeError("PyTorch has no negative steps")
        return entry.long() if hasattr(entry, "long") and entry.dtype == torch.int32 else entry

    return tuple(map(one, entries)) if isinstance(entries, tuple) else one(entries)


def _setitem(d: Draw) -> Case:
    shape, dtype = d.shape(1), d.dtype("fib")
    x = d.input(shape, dtype, written=True, views=0.5)
    entries = key(d, shape, advanced=d.chance(0.5))
    plain = tuple(
        e.numpy() if isinstance(e, Input) else e for e in (entries if isinstance(entries, tuple) else (entries,))
    )
    value: Any = 1 if dtype != "bool" else True
    try:
        part = np.empty(shape, np.bool_)[plain].shape
    except IndexError:
        return Case([x, entries, value], {}, valid=False)
    repeated = _masks(entries) > 0
    if d.chance(0.7):
        value = d.input(d.broadcastable(part), dtype)
    elif dtype[0] == "f":
        value = d.number("f")
    if repeated and isinstance(value, Input):
        value = d.input(
            (1,) * len(part) if d.chance(0.5) else (), dtype
        )  # which of several writes stays is not defined
    return Case([x, entries, value], {}, valid=_masks(entries) < 2)


def _assigned(x: Any, entries: Any, value: Any) -> None:
    x[entries] = np.array(value)


def _peer_assigned(torch: Any, x: Any, entries: Any, value: Any) -> None:
    x[_peer_key(torch, entries)] = value


def _gather(d: Draw) -> Case:
    x = _x(d, 1)
    shape = list(x.shape)
    axis = d.axis(len(shape))
    n = shape[axis]
    wanted = [d.whole(0, m) if d.chance(0.3) else m for m in shape]
    wanted[axis] = d.whole(0, 5) if n else 0
    index = d.np.integers(0, max(n, 1), d.fit(wanted) if n else wanted)
    return Case([x, axis, _tensor(d, index)])


def _gathered(x: Any, dim: int, index: Any) -> Any:
    cut = tuple(slice(None) if a == dim % x.ndim else slice(0, n) for a, n in enumerate(index.shape))
    return np.take_along_axis(x[cut], index.astype(np.int64), dim)


def _along(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape)) % len(x.shape)
    shape = [1 if d.chance(0.3) else n for n in x.shape]
    n = x.shape[axis]
    shape[axis] = d.whole(0, 4) if n else 0
    return Case([x, _tensor(d, d.np.integers(0, max(n, 1), shape)), axis], {}, valid=0 not in x.shape)


def _select(d: Draw) -> Case:
    x = _x(d, 1)
    axis = d.axis(len(x.shape))
    n = x.shape[axis]
    return Case([x, axis, _tensor(d, d.np.integers(0, max(n, 1), d.whole(0, 6) if n else 0))])


def _one_hot(d: Draw) -> Case:
    classes = d.whole(1, 9)
    labels = d.np.integers(0, classes, d.shape(0, 3))
    return Case([_tensor(d, labels), classes], {"dtype": d.pick(("int64", "float32", "uint8", "bool"))})


def _filled(d: Draw) -> Case:
    shape, dtype = d.shape(), d.dtype("fib")
    mask = d.input(d.broadcastable(shape), "bool")
    value = d.number("f") if dtype[0] == "f" else d.chance(0.5) if dtype == "bool" else d.whole(0, 3)
    return Case([d.input(shape, dtype), mask, value])


def _mask_fill(x: Any, mask: Any, value: Any) -> Any:
    return np.where(mask, np.asarray(value).astype(x.dtype), x)


INDEXING = [
    Record(
        "alpha.getitem",
        _getitem,
        lambda x, entries: x[_plain(entries)],
        lambda t, x, entries: x[_peer_key(t, entries)],
        weight=2,
    ),
    Record(
        "operator.getitem",
        _getitem,
        lambda x, entries: x[_plain(entries)],
        lambda t, x, entries: x[_peer_key(t, entries)],
        weight=0.5,
        covers=("alpha.Tensor.__getitem__",),
    ),
    Record("alpha.setitem", _setitem, _assigned, _peer_assigned, weight=2),
    Record("operator.setitem", _setitem, _assigned, _peer_assigned, weight=0.5, covers=("alpha.Tensor.__setitem__",)),
    Record("alpha.gather", _gather, _gathered, lambda t, x, dim, index: t.gather(x, dim, index.long())),
    Record(
        "alpha.Tensor.gather", _gather, _gathered, lambda t, x, dim, index: t.gather(x, dim, index.long()), weight=0.2
    ),
    Record(
        "alpha.take_along_dim",
        _along,
        lambda x, index, dim: np.take_along_axis(x, index.astype(np.int64), dim),
        lambda t, x, index, dim: t.take_along_dim(x, index.long(), dim),
    ),
    Record(
        "alpha.index_select",
        _select,
        lambda x, dim, index: np.take(x, index.astype(np.int64), dim),
        lambda t, x, dim, index: t.index_select(x, dim, index.long()),
    ),
    Record(
        "alpha.one_hot",
        _one_hot,
        lambda labels, count, dtype: np.eye(count)[labels].astype(dtype),
        None,
        gradient=False,
        result=lambda case: str(case.options["dtype"]),
    ),
    Record("alpha.masked_fill", _filled, _mask_fill, lambda t, x, mask, value: x.masked_fill(mask, value)),
    Record(
        "alpha.Tensor.masked_fill",
        _filled,
        _mask_fill,
        lambda t, x, mask, value: x.masked_fill(mask, value),
        weight=0.2,
    ),
]

RECORDS = [*SHAPES, *INDEXING]
