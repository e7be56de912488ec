"""Special values for the records of ``functions``, and how results are compared."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.robustness.functions import SIZES, Record

Array = np.ndarray[Any, Any]
GRADIENTS = (1.25, 0.0, np.inf, -np.inf, np.nan)
"""What arrives from above at every element of a function that is compared element by element."""
COMMON = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)
"""All triples of these are rows of a reduction."""
DRAWS = 8
"""Samples of ordinary numbers with special ones among them."""


class Sample(NamedTuple):
    """Arguments of a record's function, and the gradient of its result (None for one that is drawn)."""

    arguments: list[Array]
    gradient: Array | None = None


def special(dtype: Any, extremes: bool) -> Array:
    """Zeros, ones, infinities, NaN, numbers whose exponentials overflow; the largest and smallest where asked."""
    limits = np.finfo(dtype)
    found = [*COMMON, -1.0, 2.0, -2.5, 0.5, 3.0, 100.0, -100.0, 88.5, 1e-3]
    if extremes:
        found += [limits.max, limits.min, limits.tiny, -limits.tiny / 4]
    return np.array(found, dtype)


def lengths(spec: str, sizes: dict[str, int] = SIZES) -> tuple[int, ...]:
    """The shape that an entry of ``Record.shapes`` means."""
    return tuple(sizes[letter] for letter in spec.rstrip("?+~").partition("@")[0])


def is_float(spec: str) -> bool:
    """Whether an entry of ``Record.shapes`` is of floats."""
    return not spec.endswith("?") and "@" not in spec


def samples(record: Record, dtype: Any) -> Iterator[Sample]:
    """The arguments with which a record is tried."""
    drawn = {"each": _one_by_one, "rows": _rows}.get(record.values, _mixed)
    yield from drawn(record, dtype)


def _one_by_one(record: Record, dtype: Any) -> Iterator[Sample]:
    values = special(dtype, record.extremes)
    if len(record.shapes) == 1:
        x, gradient = np.meshgrid(values, np.array(GRADIENTS, dtype), indexing="ij")
        yield Sample([x.copy()], gradient.copy())
        return
    x, y = np.meshgrid(values, values, indexing="ij")
    for gradient in GRADIENTS:
        yield Sample([x.copy(), y.copy()], np.full(x.shape, gradient, dtype))


def _rows(record: Record, dtype: Any) -> Iterator[Sample]:
    triples = np.array(list(itertools.product(COMMON, repeat=3)), dtype)
    values = special(dtype, record.extremes)
    if len(record.shapes) == 3:
        yield Sample(list(triples.T.copy()))
    elif len(record.shapes) == 2:
        for label in range(3):
            yield Sample([triples, np.full(len(triples), label)])
        yield Sample([values[:, None], np.zeros(len(values), np.int64)])
    else:
        yield from (Sample([triples]), Sample([values[:, None]]))
        yield Sample([np.array(list(itertools.product(values, repeat=2)), dtype)])


def _mixed(record: Record, dtype: Any) -> Iterator[Sample]:
    rng = np.random.default_rng(zlib.crc32(str(record).encode()))
    values = special(dtype, record.extremes)
    for draw in range(DRAWS):
        arguments = []
        for spec in record.shapes:
            shape = lengths(spec)
            x = rng.standard_normal(shape).astype(dtype)
            if "@" in spec:
                x = rng.integers(0, SIZES[spec[-1]], shape)
            elif spec.endswith("?"):
                x = rng.random(shape) < 0.5
            elif spec.endswith("+"):
                x = np.abs(x) + dtype(0.5)
            elif draw and not spec.endswith("~"):
                count = (0, 1, 1, 2, 3, x.size // 2, x.size // 2, x.size // 4)[draw]
                x.reshape(-1)[rng.integers(0, x.size, count)] = rng.choice(values, count)
            arguments.append(x)
        yield Sample(arguments)


def several(value: Any) -> list[Any]:
    """A function's results, one or many, as a list."""
    return list(value) if isinstance(value, tuple | list) else [value]


def different(record: Record, ours: Array, theirs: Array, arguments: Sequence[Array]) -> Array:
    """Where two arrays of one shape differ by more than rounding: NaN, infinities and (if asked) signs of zeros too."""
    if theirs.dtype.kind != "f":
        return np.asarray(ours != theirs)
    rtol = record.rtol * (1 if theirs.dtype == np.float32 else 1e-4)
    with np.errstate(all="ignore"):
        usual = np.abs(theirs[np.isfinite(theirs)])
        # Sums round in proportion to their largest terms; element by element only what is subnormal may be lost.
        scale = np.finfo(theirs.dtype).tiny if record.values == "each" or not usual.size else 0.1 * rtol * usual.max()
        close = np.abs(ours - theirs) <= rtol * np.abs(theirs) + scale
        found = ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (close & np.isfinite(ours)))
    if record.signs:
        found |= (ours == 0) & (theirs == 0) & (np.signbit(ours) != np.signbit(theirs))
    if record.skip is not None and found.shape == arguments[0].shape:
        found &= ~record.skip(*arguments)
    return np.asarray(found)
