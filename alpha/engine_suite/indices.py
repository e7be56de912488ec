"""Checks of gather and scatter, and that an index is checked before it is followed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from alpha.engine import Engine, RangeCheck
from alpha.engine_suite.checks import LAYOUTS, Checks, expect, expect_equal, numbers, placed
from alpha.engine_suite.core import DTYPES, NUMBERS
from alpha.errors import CheckError, IndexingError

CHECKS = Checks()
ALL = slice(None)
OUTSIDE = RangeCheck(IndexingError, "[suite] got {value} at {position}")
INDICES: dict[str, tuple[Any, ...]] = {
    "rows": (np.array([2, 0, 2]), ALL, ALL),
    "columns": (ALL, ALL, np.array([[1, 0], [3, 3]])),
    "elements": (np.array([0, 2, 1]), np.array([1, 1, 0]), np.array([3, 0, 2])),
    "broadcast": (np.array([[0], [2]]), np.array([1, 0]), ALL),
    "parts": (slice(0, 3, 2), np.array([1, 0, 1]), slice(1, 4)),
    "mask": (np.array([[True, False], [False, True], [True, True]]), ALL),
    "none": (np.zeros(0, np.int64), ALL, ALL),
}


def _on(engine: Engine, index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(engine.from_numpy(entry) if isinstance(entry, np.ndarray) else entry for entry in index)


@CHECKS.over(*product(INDICES, DTYPES))
def gather(engine: Engine, kind: str, dtype: str) -> None:
    x, index = numbers(3, 2, 4, dtype=dtype), INDICES[kind]
    for layout in LAYOUTS:
        expect(engine, engine.gather(placed(engine, x, layout), _on(engine, index)), x[index])


@CHECKS.over(*product((kind for kind in INDICES if kind != "rows"), DTYPES))
def scatter(engine: Engine, kind: str, dtype: str) -> None:
    """Places that an index names twice get the same value twice."""
    index = INDICES[kind]
    for layout in LAYOUTS:
        x = numbers(3, 2, 4, dtype=dtype)
        values = np.broadcast_to(numbers(dtype=dtype, seed=1), x[index].shape)
        out = engine.from_numpy(x)
        engine.scatter(out, _on(engine, index), placed(engine, values, layout), False)
        x[index] = values
        expect(engine, out, x)
        engine.scatter(out, _on(engine, index), 1, False)
        x[index] = 1
        expect(engine, out, x)


@CHECKS.over(*product(INDICES, NUMBERS))
def scatter_adds_up(engine: Engine, kind: str, dtype: str) -> None:
    x, index = numbers(3, 2, 4, dtype=dtype), INDICES[kind]
    values = numbers(*x[index].shape, dtype=dtype, seed=1)
    for layout in LAYOUTS:
        out, expected = engine.from_numpy(x), x.copy()
        engine.scatter(out, _on(engine, index), placed(engine, values, layout), True)
        np.add.at(expected, index, values)
        expect(engine, out, expected)


ALONG = {"the first": 0, "the middle": 1, "the last": 2}


def _along(axis: int) -> np.ndarray[Any, Any]:
    """Indices along an axis of (3, 2, 4), some of them twice, along another axis fewer than there are."""
    shape = [2 if a == (axis + 1) % 3 else n for a, n in enumerate((3, 2, 4))]
    shape[axis] = 5
    return numbers(*shape, dtype="int64", seed=2) % (3, 2, 4)[axis]


@CHECKS.over(*product(ALONG, DTYPES))
def gather_along(engine: Engine, place: str, dtype: str) -> None:
    x, axis = numbers(3, 2, 4, dtype=dtype), ALONG[place]
    index = _along(axis)
    part = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(index.shape))]
    for layout in LAYOUTS:
        found = engine.gather_along(placed(engine, x, layout), engine.from_numpy(index), axis)
        expect(engine, found, np.take_along_axis(part, index, axis))


@CHECKS.over(*product(ALONG, NUMBERS))
def scatter_along_adds_up(engine: Engine, place: str, dtype: str) -> None:
    x, axis = numbers(3, 2, 4, dtype=dtype), ALONG[place]
    index = _along(axis)
    values = numbers(*index.shape, dtype=dtype, seed=1)
    positions = list(np.indices(index.shape))
    positions[axis] = index
    for layout in LAYOUTS:
        out, expected = placed(engine, x, layout), x.copy()
        engine.scatter_along(out, engine.from_numpy(index), placed(engine, values, layout), axis)
        np.add.at(expected, tuple(positions), values)
        expect(engine, engine.dense(out), expected)


@CHECKS.over(*product(ALONG, NUMBERS))
def gather_along_and_its_gradient(engine: Engine, place: str, dtype: str) -> None:
    """What is kept for the gradient stays, whoever writes to the index."""
    x, axis = numbers(3, 2, 4, dtype=dtype), ALONG[place]
    index, size = _along(axis), (3, 2, 4)[axis]
    part = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(index.shape))]
    dy, positions = numbers(*index.shape, dtype=dtype, seed=1), list(np.indices(index.shape))
    positions[axis] = index
    expected = np.zeros_like(x)
    np.add.at(expected, tuple(positions), dy)
    for layout in LAYOUTS:
        given = engine.from_numpy(np.where(index % 2, index - size, index))
        found, kept = engine.gather_along_kept(placed(engine, x, layout), given, axis, OUTSIDE)
        engine.fill(given, size)
        expect(engine, found, np.take_along_axis(part, index, axis))
        for order in ((0, 1, 2), (2, 0, 1)):
            grad = engine.gather_along_grad(placed(engine, dy, layout), kept, axis, x.shape, order)
            expect(engine, engine.dense(grad), expected)
        engine.scatter_along(grad, kept, placed(engine, dy, layout), axis)
        expect(engine, engine.dense(grad), expected + expected)


@CHECKS.over(*LAYOUTS)
def indices_are_made_safe(engine: Engine, layout: str) -> None:
    index = np.array([[0, -1, 4], [-5, 3, -9]])
    given = placed(engine, index, layout)
    found = engine.check_range(given, -5, 5, OUTSIDE, ignore=-9)
    expect(engine, found, np.array([[0, 4, 4], [0, 3, 0]]))
    engine.fill(given, 99)
    expect(engine, found, np.array([[0, 4, 4], [0, 3, 0]]))  # in memory of its own


@CHECKS.once
def indices_out_of_range(engine: Engine) -> None:
    """An error, when the engine next waits at the latest; unchecked, an index is 0."""
    index = engine.from_numpy(np.array([1, 7, -1, 5]))
    message = ""
    try:
        engine.check_range(index, 0, 5, OUTSIDE)
        engine.synchronize()
    except IndexingError as error:
        message = str(error)
    expect_equal("the error", message, "[suite] got 7 at 1")
    was = engine.checking
    try:
        engine.check(False)
        expect(engine, engine.check_range(index, 0, 5, OUTSIDE), np.array([1, 0, 0, 0]))
        engine.synchronize()
    finally:
        engine.check(was)


@CHECKS.over(*product(ALONG, DTYPES))
def gather_along_checks(engine: Engine, place: str, dtype: str) -> None:
    """Indices below 0 count from the end; one out of range is an error, or, unchecked, some other element's."""
    x, axis = numbers(3, 2, 4, dtype=dtype), ALONG[place]
    index, size = _along(axis), (3, 2, 4)[axis]
    part = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(index.shape))]
    expected = np.take_along_axis(part, index, axis)
    behind = engine.from_numpy(np.where(index % 2, index - size, index))
    expect(engine, engine.gather_along(engine.from_numpy(x), behind, axis, OUTSIDE), expected)
    for wrong in (size, -size - 1, 1_000_000):
        bad, message = index.copy(), ""
        bad[-1, -1, -1] = wrong
        try:
            engine.gather_along(engine.from_numpy(x), engine.from_numpy(bad), axis, OUTSIDE)
            engine.synchronize()
        except IndexingError as error:
            message = str(error)
        expect_equal("the error", message, f"[suite] got {wrong} at {bad.size - 1}")
    was = engine.checking
    try:
        engine.check(False)
        found = engine.gather_along(engine.from_numpy(x), engine.from_numpy(bad), axis, OUTSIDE)
        bad[-1, -1, -1] = 0
        expect(engine, found, np.take_along_axis(part, bad, axis))
        engine.synchronize()
    finally:
        engine.check(was)


@CHECKS.over(*product((0, 1, 2), (True, False), DTYPES))
def index_select(engine: Engine, axis: int, from_end: bool, dtype: str) -> None:
    """Indices below 0 count from the end, or are out of range as others are: an error."""
    x, size = numbers(3, 2, 4, dtype=dtype), (3, 2, 4)[axis]
    index = np.array([[0, size - 1, 1], [1, 0, 0]])
    given = np.where(index == 1, index - size, index) if from_end else index
    for layout in LAYOUTS:
        for check in (None, OUTSIDE):
            followed = engine.from_numpy(given if check else index)
            found = engine.index_select(placed(engine, x, layout), followed, axis, check, from_end)
            expect(engine, found, np.take(x, index, axis))
    for wrong in (size, -size - 1) if from_end else (size, -1):
        given[1, 2] = wrong
        message = ""
        try:
            engine.index_select(engine.from_numpy(x), engine.from_numpy(given), axis, OUTSIDE, from_end)
            engine.synchronize()
        except IndexingError as error:
            message = str(error)
        expect_equal("the error", message, f"[suite] got {wrong} at 5")


@CHECKS.once
def indices_into_nothing(engine: Engine) -> None:
    """Where there is no element, none can stand in: checked or not it is an error."""
    try:
        engine.check_range(engine.from_numpy(np.array([0])), 0, 0, OUTSIDE)
        engine.synchronize()
    except IndexingError:
        return
    raise CheckError("[engine_suite] expected IndexingError for an index into an axis of length 0, got none")
