"""Checks of tensors without elements: what every operation but the contract's exceptions takes and gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from alpha.dtypes import int32, int64, uint8
from alpha.engine import Engine, RangeCheck, WeightedPairs
from alpha.engine_suite.checks import Checks, expect_same
from alpha.errors import IndexingError
from alpha.geometry import Axis, Geometry
from alpha.random import Draw
from alpha.tensor import Tensor
from alpha.update_rules import AdamRule, SGDRule

CHECKS = Checks()
Results = Sequence[Tensor | None]
Make = Callable[..., Tensor]
"""A tensor of zeros of a shape, and a dtype where it is not float32."""

ALL = slice(None)
SIZES = ((0, 4), (2, 0), (0, 0))
WINDOWS = Geometry(Axis(6, 2, 2), Axis(5, 3, 1))
WRONG = RangeCheck(IndexingError, "{value} at {position}")


def _filled(place: Engine, zeros: Make, n: int, c: int) -> Results:
    out, filled = zeros(n, c), zeros(n, c)
    place.copy(zeros(c), out)
    place.fill(filled, 1)
    return [out, filled]


def _scattered(place: Engine, zeros: Make, n: int, c: int) -> Results:
    out, added = zeros(3, c), zeros(3, c)
    place.scatter(out, (zeros(n, dtype=int64), ALL), zeros(n, c), False)
    place.scatter(added, (zeros(n, dtype=int64), ALL), zeros(n, c), True)
    return [out, added]


def _stepped(place: Engine, zeros: Make, n: int, c: int) -> Results:
    rows = [[zeros(n, c) for _ in range(4)] for _ in range(2)]
    place.optimizer_step(rows, AdamRule(0.1, (0.9, 0.9), 0.1, 0.1, 1))
    place.optimizer_step([], SGDRule(0.1, 0.9, 0.0, 0.0))
    return [tensor for row in rows for tensor in row]


def _pooled(place: Engine, zeros: Make, n: int, c: int) -> Results:
    x, dy = zeros(n, 6, 5, c), zeros(n, 3, 3, c)
    maxima, taps = place.max_pool2d(x, WINDOWS)
    averages = [place.avg_pool2d(x, WINDOWS, True), place.avg_pool2d_grad(dy, WINDOWS, False)]
    return [maxima, taps, place.max_pool2d_grad(dy, zeros(n, 3, 3, c, dtype=int32), WINDOWS), *averages]


def _combined(place: Engine, zeros: Make, n: int, c: int) -> Results:
    pairs = [WeightedPairs.make(np.arange(p), np.arange(p), np.ones(p), p) for p in (2, 0)]
    images = [place.resample(zeros(n, 3, 2, c), chosen, pairs[0]) for chosen in pairs]
    return [*(place.combine(zeros(n, 3, c), chosen) for chosen in pairs), *images]


def _images(place: Engine, zeros: Make, n: int, c: int) -> Results:
    mean = np.zeros(c, np.float32)
    return [place.images_to_float(zeros(n, 6, 5, c, dtype=uint8), zeros(n, 3, dtype=int32), (4, 4), mean, mean + 1)]


def _indices(place: Engine, zeros: Make, n: int, c: int) -> Results:
    labels = zeros(n, c, dtype=int64)
    return [place.check_range(labels, -3, 3, WRONG), place.check_labels(labels, 3, WRONG, -1)[0]]


OPERATIONS: dict[str, Callable[[Engine, Make, int, int], Results]] = {
    "elementwise": lambda e, zeros, n, c: [
        e.elementwise("add", zeros(n, c), zeros(c)), e.elementwise("lt", 1, zeros(n, c)),
        e.elementwise("where", e.elementwise("eq", zeros(n, c), 0), zeros(n, c), 2),
    ],
    "reduce": lambda e, zeros, n, c: [
        e.reduce("sum", zeros(n, c), (1,), False), e.reduce("prod", zeros(n, c), (0, 1), True),
        e.reduce("any", e.elementwise("eq", zeros(n, c), 0), (0,), False),
    ],
    "mean": lambda e, zeros, n, c: [e.mean(zeros(n, c), (1,), False), e.mean(zeros(n, c), (0, 1), True)],
    "arg_reduce": lambda e, zeros, n, c: [e.arg_reduce("argmax", zeros(n, 3, c), 1)],
    "sort": lambda e, zeros, n, c: e.sort(zeros(n, c), 1),
    "cumsum": lambda e, zeros, n, c: [e.cumsum(zeros(n, c), 0)],
    "copy, fill": _filled,
    "concat": lambda e, zeros, n, c: [e.concat([zeros(n, c), zeros(n, c)], axis) for axis in (0, 1)],
    "flip": lambda e, zeros, n, c: [e.flip(zeros(n, c), (1,)), e.flip(zeros(n, 3, c), (0, 2))],
    "stack": lambda e, zeros, n, c: [e.stack([zeros(n, c), zeros(n, c)], axis) for axis in (0, 1, 2)],
    "copied": lambda e, zeros, n, c: [e.copied(zeros(n, c)), e.copied(zeros(n, 3, c), (2, 0, 1))],
    "pad": lambda e, zeros, n, c: [
        e.pad(zeros(n, c), (0, 1), (2, 0), "constant", 1), e.pad(zeros(n, c, 3), (0, 0, 2), (0, 0, 1), "reflect", 0),
        e.pad_grad(zeros(n, c, 6), (0, 0, 2), (0, 0, 1), "reflect"),
    ],
    "gather": lambda e, zeros, n, c: [e.gather(zeros(3, c), (zeros(n, dtype=int64), ALL))],
    "index_select": lambda e, zeros, n, c: [
        e.index_select(zeros(3, c), zeros(n, dtype=int64), 0),
        e.index_select(zeros(2, c), zeros(n, 3, dtype=int64), 0, WRONG),
        e.index_select(zeros(n, 4, c), zeros(2, dtype=int64), 1, WRONG, False),
    ],
    "scatter": _scattered,
    "matmul": lambda e, zeros, n, c: [e.matmul(zeros(n, c), zeros(c, 3)), e.matmul(zeros(2, 3, n), zeros(n, c))],
    "gemv": lambda e, zeros, n, c: [
        e.gemv(zeros(n, c), zeros(c), plus=zeros(n)), e.gemv(zeros(n, c), zeros(n), trans=True),
    ],
    "ger": lambda e, zeros, n, c: [e.ger(zeros(n), zeros(c)), e.ger(zeros(n), zeros(c), 0.5, zeros(n, c))],
    "check_range": _indices,
    "channel_sum": lambda e, zeros, n, c: [e.channel_sum(zeros(n, 3, c))],
    "leaky_relu": lambda e, zeros, n, c: [
        e.leaky_relu(zeros(n, c), 0.1), e.leaky_relu_grad(zeros(n, c), zeros(n, c), 0),
    ],
    "pooling": _pooled,
    "combine, resample": _combined,
    "random": lambda e, zeros, n, c: [
        e.random(Draw(kind, (n, c), zeros(0).dtype, 0.0, 1.0, 1, 0)) for kind in ("uniform", "normal")
    ],
    "dropout": lambda e, zeros, n, c: e.dropout(zeros(n, c), 0.5, 1, 0),
    "images_to_float": _images,
    "optimizer_step": _stepped,
}  # fmt: skip


@CHECKS.over(*((name, *sizes) for name, sizes in product(OPERATIONS, SIZES)))
def operations_on_nothing(engine: Engine, name: str, n: int, c: int) -> None:
    """Results of the right shapes, in which sums over nothing are 0."""

    def run(place: Engine) -> Results:
        def zeros(*shape: int, dtype: Any = np.float32) -> Tensor:
            return place.from_numpy(np.zeros(shape, dtype))

        return OPERATIONS[name](place, zeros, n, c)

    expect_same(engine, run)
