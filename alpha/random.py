"""Random numbers: Philox4x32-10, counter-based, so that every engine and thread count draws the same.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A draw is a function of (seed, offset, element):
the key is the seed (64 bits), the counter offset + element // 4 (64 bits in words 0 and 1; words 2 and 3 are 0), and
the element's word is number element % 4 of the four that come out.
"""

from __future__ import annotations

import math
import operator
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpha.dtypes import DtypeLike, as_dtype, float32, float64, is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError

Array = np.ndarray[Any, Any]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_CHUNK = 1 << 16  # counters at a time, so that a round's intermediates stay in the cache


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Philox4x32-10 of counters (4, M) uint32 under a key of two 32-bit words, as (4, M) uint32."""
    low32, shift = np.uint64(_MASK32), np.uint64(32)
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            (second >> shift) ^ c1 ^ np.uint64(k0),
            second & low32,
            (first >> shift) ^ c3 ^ np.uint64(k1),
            first & low32,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & _MASK32, (k1 + KEY_STEPS[1]) & _MASK32
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def words(seed: int, offset: int, count: int) -> Array:
    """``count`` random 32-bit words (count,) uint32: element i is word i % 4 of counter offset + i // 4."""
    out = np.empty((-(-count // 4), 4), np.uint32)
    key = (seed & _MASK32, (seed >> 32) & _MASK32)
    for start in range(0, len(out), _CHUNK):
        rows = out[start : start + _CHUNK]
        index = np.arange(len(rows), dtype=np.uint64) + np.uint64((offset + start) & _MASK64)  # wraps around
        counter = np.zeros((4, len(rows)), np.uint32)
        counter[0] = index & np.uint64(_MASK32)
        counter[1] = index >> np.uint64(32)
        rows[:] = philox(counter, key).T
    return out.reshape(-1)[:count]


def words_needed(count: int, dtype: np.dtype[Any]) -> int:
    """32-bit words that ``count`` uniform numbers of a dtype take: one for a float32, two for a float64."""
    return count if dtype == float32 else 2 * count


def uniforms(seed: int, offset: int, count: int, dtype: DtypeLike = float32) -> Array:
    """``count`` numbers in [0, 1): 24 bits of one word each in float32, 53 bits of two words in float64."""
    kind = _float_dtype("uniforms", dtype)
    bits = words(seed, offset, words_needed(count, kind))
    if kind == float32:
        return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    high, low = bits[0::2] >> np.uint32(5), bits[1::2] >> np.uint32(6)
    return (high.astype(np.float64) * 2**26 + low) * 2**-53


class _Generator:
    """Seed and position of the process; every draw reserves the counters it uses."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed = secrets.randbits(64)
        self.offset = 0


_generator = _Generator()


def manual_seed(seed: int) -> None:
    """Starts every random draw of this process from a seed (an int; its lowest 64 bits count)."""
    value = _integer("manual_seed", "an integer seed", seed) & _MASK64
    with _generator.lock:
        _generator.seed, _generator.offset = value, 0


def seed() -> int:
    """The seed in force: the last ``manual_seed``, else one drawn from the operating system at the start."""
    return _generator.seed


def get_state() -> dict[str, int]:
    """``{"seed": ..., "offset": ...}``: all there is to know for drawing the same numbers again."""
    with _generator.lock:
        return {"seed": _generator.seed, "offset": _generator.offset}


def set_state(state: Mapping[str, Any]) -> None:
    """Goes to a place that ``get_state`` gave; ArgumentError for anything else, and nothing changes."""
    check_state("set_state", state)
    with _generator.lock:
        _generator.seed, _generator.offset = int(state["seed"]), int(state["offset"])


def check_state(function: str, state: Any) -> None:
    """ArgumentError unless ``set_state`` would take the state."""
    if isinstance(state, Mapping) and set(state) == {"seed", "offset"}:
        values = [state["seed"], state["offset"]]
        if all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= _MASK64 for v in values):
            return
    raise ArgumentError(
        f'[{function}] expected a state {{"seed": ..., "offset": ...}} of 64-bit integers, got {state!r}: pass what '
        "alpha.random.get_state() returned"
    )


def reserve(count: int) -> tuple[int, int]:
    """(seed, offset) of ``count`` 32-bit words that nobody else will draw. Safe from any thread."""
    with _generator.lock:
        offset = _generator.offset
        _generator.offset = (offset + -(-count // 4)) & _MASK64
        return _generator.seed, offset


def uniform(shape: int | Sequence[int], low: float = 0.0, high: float = 1.0, dtype: DtypeLike = float32) -> Array:
    """A NumPy array of numbers uniform in [low, high)."""
    kind = _float_dtype("uniform", dtype)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ArgumentError(f"[uniform] expected finite low <= high, got {low} and {high}")
    size = _size("uniform", shape)
    count = math.prod(size)
    out = uniforms(*reserve(words_needed(count, kind)), count, kind)
    out *= kind.type(high) - kind.type(low)
    out += kind.type(low)
    if low < high:  # rounding may reach the end, which is excluded
        np.minimum(out, np.nextafter(kind.type(high), kind.type(low)), out=out)
    return out.reshape(size)


def normal(shape: int | Sequence[int], mean: float = 0.0, std: float = 1.0, dtype: DtypeLike = float32) -> Array:
    """A NumPy array of normally distributed numbers, by Box and Muller from pairs of uniform ones."""
    kind = _float_dtype("normal", dtype)
    if not (math.isfinite(mean) and math.isfinite(std) and std >= 0):
        raise ArgumentError(f"[normal] expected a finite mean and std >= 0, got {mean} and {std}")
    size = _size("normal", shape)
    count = math.prod(size)
    pairs = -(-count // 2)
    where = reserve(words_needed(2 * pairs, kind))
    out = np.empty((pairs, 2), kind)
    step = 2 * _CHUNK  # pairs that use a whole number of counters in either dtype
    for start in range(0, pairs, step):
        rows = out[start : start + step]
        offset = where[1] + words_needed(2 * start, kind) // 4
        u = _open_uniforms(where[0], offset, 2 * len(rows), kind).reshape(-1, 2)
        radius, angle = np.sqrt(-2 * np.log(u[:, 0])), 2 * np.pi * u[:, 1]
        rows[:, 0] = mean + std * (radius * np.cos(angle))
        rows[:, 1] = mean + std * (radius * np.sin(angle))
    return out.reshape(-1)[:count].reshape(size)


def permutation(count: int) -> Array:
    """The numbers 0..count-1 in random order, int64."""
    size = _integer("permutation", "a count >= 0", count)
    if size < 0:
        raise ArgumentError(f"[permutation] expected a count >= 0, got {size}")
    keys = words(*reserve(2 * size), 2 * size).view(np.uint64)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def numpy_generator(*stream: int) -> np.random.Generator:
    """A NumPy generator that depends on the seed and these non-negative numbers alone, not on draws made before.

    Worker threads use it: ``numpy_generator(epoch, index)`` gives a sample the same augmentation in any order.
    """
    numbers = tuple(_integer("numpy_generator", "integers >= 0", value) for value in stream)
    if any(value < 0 for value in numbers):
        raise ArgumentError(f"[numpy_generator] expected integers >= 0, got {numbers}")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(_generator.seed, spawn_key=numbers)))


def _open_uniforms(seed: int, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
    """float64 numbers in (0, 1], whose logarithm is finite: 32 bits each for float32 results, 53 for float64 ones."""
    if dtype == float32:
        return (words(seed, offset, count).astype(np.float64) + 0.5) * 2**-32
    return uniforms(seed, offset, count, float64) + 2**-54


def _float_dtype(function: str, dtype: DtypeLike) -> np.dtype[Any]:
    kind = as_dtype(dtype, function)
    if not is_float(kind):
        raise DtypeError(f"[{function}] expected float32 or float64, got {kind}: cast the result instead")
    return kind


def _size(function: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    size = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    size = tuple(_integer(function, "a shape of integers >= 0", n) for n in size)
    if any(n < 0 for n in size):
        raise ShapeError(f"[{function}] expected a shape of integers >= 0, got {shape!r}")
    return size


def _integer(function: str, expected: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentError(f"[{function}] expected {expected}, got {value!r}") from error
