"""Windows, segments, places in a shape and further distributions: what stands in few of PyTorch's families."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from tests.robustness.cases import Base, Case, Draw, Input
from tests.robustness.compare import SUMS, Tolerance
from tests.robustness.record import Record

FLOATS = ("float32", "float64")
ROUNDED = Tolerance(64, 0, 4, "cosines whose sum cancels at both ends")

# -- windows -----------------------------------------------------------------------------------------------------


def _window(d: Draw) -> Case:
    return Case([d.whole(0, 40), d.chance(0.5)], {"dtype": d.pick(FLOATS)})


def _kaiser(d: Draw) -> Case:
    return Case([d.whole(0, 40), d.chance(0.5), d.pick((0.0, 1.0, 12.0, 50.0))], {"dtype": d.pick(FLOATS)})


def _of_numpy(window: Callable[..., Any]) -> Callable[..., Any]:
    def exact(length: int, periodic: bool, *numbers: float, dtype: str) -> Any:
        if length == 1:
            return np.ones(1, dtype)
        values = window(length + 1, *numbers)[:-1] if periodic else window(length, *numbers)
        return values.astype(dtype)

    return exact


def _peer_window(name: str) -> Callable[..., Any]:
    return lambda t, *args, dtype: getattr(t, name)(*args, dtype=getattr(t, dtype))


def _windows() -> list[Record]:
    table = (("bartlett", np.bartlett), ("blackman", np.blackman), ("hamming", np.hamming), ("hann", np.hanning))
    options: dict[str, Any] = {"gradient": False, "tolerance": ROUNDED, "weight": 0.2}
    options["result"] = _given
    found = [
        Record(f"alpha.{name}_window", _window, _of_numpy(exact), _peer_window(f"{name}_window"), **options)
        for name, exact in table
    ]
    return [
        *found,
        Record("alpha.kaiser_window", _kaiser, _of_numpy(np.kaiser), _peer_window("kaiser_window"), **options),
    ]


# -- places ------------------------------------------------------------------------------------------------------


def _unraveled(d: Draw) -> Case:
    shape = d.shape(1, 4, 1)
    count = int(np.prod(shape))
    return Case([Input(Base(d.np.integers(-count, count, d.shape(0, 3)))), shape])


def _unravel(indices: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    found = np.unravel_index(np.asarray(indices).astype(np.int64) % int(np.prod(shape)), shape)
    return tuple(np.asarray(part, np.int64) for part in found)


def _static(d: Draw) -> Case:
    x = d.input(d.shape(), d.dtype("fib"), "whole", grad=0)
    return Case([x], {"size": d.whole(0, 20), "fill_value": d.pick((-1, 0, 7))})


def _first_places(x: Any, size: int, fill_value: int) -> Any:
    out = np.full((size, x.ndim), fill_value, np.int64)
    found = np.argwhere(x)[:size]
    out[: len(found)] = found
    return out


def _narrowed(d: Draw) -> Case:
    x = d.input(d.shape(1), d.dtype("fib"))
    axis = d.axis(len(x.shape))
    start = d.whole(0, x.shape[axis])
    return Case([x, axis, start, d.whole(0, x.shape[axis] - start)])


def _ranged(d: Draw) -> Case:
    start, step = d.whole(-4, 4) / 2, d.pick((0.5, 1, 2, -1, -0.5))
    return Case([start, start + step * d.whole(0, 30), step], {"dtype": d.pick(FLOATS)})


def _quietly(*args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        return alpha.range(*args, **options)


def _with_end(start: float, end: float, step: float, dtype: str) -> Any:
    return (start + step * np.arange(round((end - start) / step) + 1)).astype(dtype)


def _given(case: Case) -> str:
    return str(case.options["dtype"])


def _permuted(d: Draw) -> Case:
    shape = d.shape()
    order = tuple(d.py.sample(range(len(shape)), len(shape)))
    return Case([shape, order], {"dtype": d.pick((*FLOATS, "int64"))})


def _check_permuted(result: Any, case: Case) -> str | None:
    shape, order = case.args
    strides = [result.strides[axis] for axis in order if shape[axis] > 1]
    right = result.shape == shape and result.is_contiguous(order) and strides == sorted(strides, reverse=True)
    return None if right or 0 in shape else f"shape or strides: {result.shape} {result.strides}"


def _with_strides(d: Draw) -> Case:
    shape = d.shape(0, 3)
    return Case([shape, tuple(d.whole(0, 6) for _ in shape)], {"dtype": d.pick((*FLOATS, "bool"))})


def _check_strides(result: Any, case: Case) -> str | None:
    right = (result.shape, result.strides) == (case.args[0], case.args[1])
    return None if right else f"shape or strides: {result.shape} {result.strides}"


# -- segments ----------------------------------------------------------------------------------------------------


def _segmented(d: Draw) -> Case:
    shape = d.shape(1, 3, 1)
    axis = d.whole(0, len(shape) - 1)
    segments = d.whole(1, 4)
    edges = np.sort(d.np.integers(0, shape[axis] + 1, (*shape[:axis], segments - 1)), -1)
    last_edges = np.broadcast_to(np.int64(shape[axis]), (*shape[:axis], 1))
    edges = np.concatenate([np.zeros_like(last_edges), edges, last_edges], -1)
    by = {"lengths": Input(Base(np.diff(edges)))} if d.chance(0.5) else {"offsets": Input(Base(edges))}
    initial = {"initial": d.pick((0.0, 1.0, -2.5))} if d.chance(0.4) else {}
    kind = d.pick(("sum", "mean", "prod", "max", "min"))
    if kind not in ("max", "min"):
        return Case([d.input(shape, d.dtype()), kind], {**by, **initial, "axis": axis})
    d.values = "ordinary"  # among equal extremes PyTorch shares positive gradients alone: there are none
    return Case([d.input(shape, d.dtype(), "distinct", views=0), kind], {**by, **initial, "axis": axis})


_FOLDS: dict[str, tuple[Callable[..., Any], float]] = {
    "sum": (np.add, 0.0),
    "mean": (np.add, 0.0),
    "prod": (np.multiply, 1.0),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
}


def _segments_reduced(
    x: Any, kind: str, lengths: Any = None, offsets: Any = None, initial: Any = None, axis: int = 0
) -> Any:
    edges = offsets if lengths is None else np.cumsum(np.concatenate([lengths[..., :1] * 0, lengths], -1), -1)
    out = np.empty((*edges.shape[:-1], edges.shape[-1] - 1, *x.shape[axis + 1 :]), x.dtype)
    fold, neutral = _FOLDS[kind]
    for row in np.ndindex(*edges.shape[:-1]):
        for place, (first, end) in enumerate(zip(edges[row][:-1], edges[row][1:], strict=True)):
            begun: Any = np.full(x.shape[axis + 1 :], neutral if initial is None else initial, x.dtype)
            for entry in range(int(first), int(end)):
                begun = fold(begun, x[(*row, entry)])
            if kind == "mean" and end > first:
                begun = begun / (end - first)
            if kind == "mean" and end == first and initial is None:
                begun = begun + np.nan
            out[(*row, place)] = begun
    return out


# -- random numbers ----------------------------------------------------------------------------------------------


def _written(kinds: str = "f", **options: Any) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        d.values = "ordinary"
        x = d.input(d.shape(), d.dtype(kinds), written=True, views=0.3, grad=0)
        return Case([x], {name: d.pick(values) for name, values in options.items()})

    return draw


def _within(low: float, high: float) -> Callable[[Any, Case], str | None]:
    def check(result: Any, case: Case) -> str | None:
        array, x = np.asarray(result), case.args[0]
        if array.shape != x.shape or array.dtype != x.dtype:
            return f"shape or dtype: {array.shape} {array.dtype}"
        right = not array.size or (array.min() >= low and array.max() <= high)
        return None if right else f"outside of {low}..{high}: {array.min()}..{array.max()}"

    return check


def _rates(d: Draw) -> Case:
    d.values = "ordinary"
    return Case([d.input(d.shape(), d.dtype(), "positive", grad=0, views=0.2)])


def _drawn() -> list[Record]:
    options: dict[str, Any] = {"gradient": False, "weight": 0.2}
    inf = float("inf")
    table: list[tuple[str, Callable[[Draw], Case], Any]] = [
        ("exponential_", _written(lambd=(0.5, 1.0, 3.0)), _within(0, 400)),
        ("cauchy_", _written(median=(0.0, 1.5), sigma=(0.5, 2.0)), _within(-inf, inf)),
        ("log_normal_", _written(mean=(0.0, 1.0), std=(0.5, 2.0)), _within(0, inf)),
        ("geometric_", _written("fi", p=(0.3, 0.9)), _within(1, 200)),
        ("bernoulli_", _written("fib", p=(0.0, 0.5, 1.0)), _within(0, 1)),
        ("random_", _written("fib", to=(1, 2)), _within(0, 1)),
    ]
    return [
        *[Record(f"alpha.Tensor.{name}", draw, None, check=check, **options) for name, draw, check in table],
        Record("alpha.poisson", _rates, None, check=_within(0, 1000), **options),
    ]


RECORDS = [
    *_windows(),
    *_drawn(),
    Record(
        "alpha.unravel_index",
        _unraveled,
        _unravel,
        lambda t, i, shape: t.unravel_index(i.long(), shape),
        gradient=False,
    ),
    Record("alpha.nonzero_static", _static, _first_places, lambda t, x, **o: t.nonzero_static(x, **o), gradient=False),
    Record(
        "alpha.narrow_copy",
        _narrowed,
        lambda x, dim, start, length: np.take(x, range(start, start + length), dim),
        lambda t, x, *args: t.narrow_copy(x, *args),
    ),
    Record("alpha.range", _ranged, _with_end, None, gradient=False, result=_given, call=_quietly, weight=0.3),
    Record("alpha.empty_permuted", _permuted, None, check=_check_permuted, gradient=False, weight=0.2),
    Record("alpha.empty_strided", _with_strides, None, check=_check_strides, gradient=False, weight=0.2),
    Record(
        "alpha.segment_reduce",
        _segmented,
        _segments_reduced,
        lambda t, x, kind, **o: t.segment_reduce(x, kind, unsafe=False, **o),
        tolerance=SUMS,
        solves=True,
    ),
]
