"""Random numbers: Philox4x32-10, counter-based, so that every engine and thread count draws the same.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A draw is a function of (seed, offset, element):
the key is the seed (64 bits), the counter offset + element // 4 (64 bits in words 0 and 1; words 2 and 3 are 0), and
the element's word is number element % 4 of the four that come out.

Floating-point numbers are made of the words by IEEE-exact operations in a fixed order (no library function but sqrt, no
fused multiply-add), so that an engine which follows the definitions here gives the same bits.
"""

from __future__ import annotations

import math
import operator
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.atomic import AtomicReference
from alpha.changes import Changes
from alpha.dtypes import DtypeLike, as_dtype, float32, float64, float_names, info, is_float, limits
from alpha.errors import ArgumentError, DtypeError, GraphError, OutOfMemoryError, ShapeError, described

Array = np.ndarray[Any, Any]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

WORDS = 4
"""Words of 32 bits that a counter gives."""

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_CHUNK = 1 << 13  # counters at a time, so that a round's intermediates stay in the cache

PIECE = 1 << 17
"""Numbers of a draw that are made at a time, an even number and of whole counters: no draw takes memory beside its
result."""

# Polynomials for Box and Muller, lowest power first, each interpolated at Chebyshev's nodes and rounded to float64.
LOG = (
    0.666666666666667,
    0.39999999999899505,
    0.28571428625975487,
    0.2222221113479508,
    0.18182889125261723,
    0.15331721600556042,
    0.14616449685043406,
)
"""(log(m) / s - 2) / s^2 in s^2 for s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)]; log's error is below 5e-18."""
SIN = (
    6.283185307179586,
    -41.341702240399755,
    81.60524927607362,
    -76.70585975282492,
    42.058693925428685,
    -15.0946416761179,
    3.8199280942271643,
    -0.7177337921413454,
    0.10089695501646812,
)
"""sin(2 pi r) / r in r^2 for |r| <= 1/4; the sine's error is below 7e-17."""
COS = (
    1.0,
    -19.739208802178705,
    64.93939402266395,
    -85.45681720598061,
    60.24464131316041,
    -26.426254066690255,
    7.903462492085097,
    -1.7132184107005932,
    0.2719458494999813,
)
"""cos(2 pi r) in r^2 for |r| <= 1/4, error below 1e-16."""
LN2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476


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
    out = _room("words", (-(-count // WORDS), WORDS), np.dtype(np.uint32))
    key = (seed & _MASK32, (seed >> 32) & _MASK32)
    for start in range(0, len(out), _CHUNK):
        rows = out[start : start + _CHUNK]
        index = np.arange(len(rows), dtype=np.uint64) + np.uint64((offset + start) & _MASK64)  # wraps around
        counter = np.zeros((WORDS, len(rows)), np.uint32)
        counter[0] = index & np.uint64(_MASK32)
        counter[1] = index >> np.uint64(32)
        rows[:] = philox(counter, key).T
    return out.reshape(-1)[:count]


def words_needed(count: int, dtype: np.dtype[Any]) -> int:
    """32-bit words that ``count`` uniform numbers of a dtype take: one for a float32, two for a float64."""
    return count if info(dtype).digits <= 32 else 2 * count


def uniforms(seed: int, offset: int, count: int, dtype: DtypeLike = float32) -> Array:
    """``count`` numbers in [0, 1): 24 bits of one word each in float32, 53 bits of two words in float64."""
    kind = _float_dtype("uniforms", dtype)
    bits = words(seed, offset, words_needed(count, kind))
    if words_needed(1, kind) == 1:
        digits = info(kind).digits
        fractions: Array = (bits >> np.uint32(32 - digits)).astype(kind) * kind.type(2**-digits)
        return fractions
    high, low = bits[0::2] >> np.uint32(5), bits[1::2] >> np.uint32(6)
    return (high.astype(np.float64) * 2**26 + low) * 2**-53


class Generator:
    """A sequence of random numbers: a seed, and how far it has been drawn; functions that draw take one.

    Every draw reserves the counters it uses. No lock: threads, signal handlers and finalizers may draw in the midst of
    each other's draws, and be interrupted. A new one starts from a seed of the operating system.

    Args:
        device: as for PyTorch's generators; one sequence serves all engines, so that it says nothing here.
    """

    def __init__(self, device: Any = None) -> None:
        self.place = AtomicReference((secrets.randbits(64), 0))

    def manual_seed(self, seed: int) -> Generator:
        """Starts from a seed, an int of which the lowest 64 bits count; returns self."""
        value = _integer("manual_seed", "an integer seed", seed) & _MASK64
        self.place = AtomicReference((value, 0))
        return self

    def seed(self) -> int:
        """Starts from a seed of the operating system, and returns it."""
        value = secrets.randbits(64)
        self.place = AtomicReference((value, 0))
        return value

    def initial_seed(self) -> int:
        """The seed in force."""
        return self.place.get()[0]

    def get_state(self) -> dict[str, int]:
        """``{"seed": ..., "offset": ...}``: all there is to know for drawing the same numbers again."""
        seed, offset = self.place.get()
        return {"seed": seed, "offset": offset}

    def set_state(self, state: Mapping[str, Any]) -> Generator:
        """Goes to a place that ``get_state`` gave, and returns self; ArgumentError for anything else."""
        changes = Changes()
        self.stage_state(state, changes)
        changes.make()
        return self

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a state, and adds to the changes what ``set_state`` does with it."""
        check_state("set_state", state)
        changes.set(self, "place", AtomicReference((int(state["seed"]), int(state["offset"]))))

    def reserve(self, count: int) -> tuple[int, int]:
        """(seed, offset) of ``count`` 32-bit words that nobody else will draw. Safe from any thread and handler."""
        counters, place = -(-count // WORDS), self.place
        while True:
            seed, offset = found = place.get()
            if place.replace(found, (seed, (offset + counters) & _MASK64)):
                return seed, offset

    def __getstate__(self) -> dict[str, int]:
        return self.get_state()

    def __setstate__(self, state: dict[str, int]) -> None:
        self.place = AtomicReference((state["seed"], state["offset"]))


class _ThreadPlace(threading.local):
    """Where a thread draws from.

    Attributes:
        place: in random numbers of its own; None in threads that draw from the process's.
        is_again: whether it draws what was drawn before.
        is_in_step: whether it is in a step that ``alpha.graph`` rehearses or captures.
    """

    place: AtomicReference[tuple[int, int]] | None = None
    is_again = False
    is_in_step = False


_thread = _ThreadPlace()


class _Default(Generator):
    """The process's sequence, in whose place a thread may have one of its own for a while."""

    _shared: AtomicReference[tuple[int, int]]

    @property
    def place(self) -> AtomicReference[tuple[int, int]]:
        place_here = _thread.place
        return self._shared if place_here is None else place_here

    @place.setter
    def place(self, value: AtomicReference[tuple[int, int]]) -> None:
        if _thread.is_in_step:
            raise GraphError(
                "[graph] expected a step that draws on from where the call before stopped, got one that seeds the "
                "generator, or sets its state: do so outside the step"
            )
        if _thread.place is None:
            self._shared = value
        else:
            _thread.place = value


def mixed(state: Mapping[str, int], stream: int) -> dict[str, int]:
    """The start of one of many sequences that follow from a place in another: a state, by one call of Philox."""
    seed, offset = state["seed"], state["offset"]
    counter = np.array([[offset & _MASK32], [offset >> 32], [stream & _MASK32], [1 + (stream >> 32)]], np.uint32)
    found = philox(counter, (seed & _MASK32, seed >> 32))
    return {"seed": int(found[0, 0]) | int(found[1, 0]) << 32, "offset": 0}


@contextmanager
def own_sequence(state: Mapping[str, int]) -> Iterator[None]:
    """``with own_sequence(state):`` what this thread draws in the block that names no generator begins at a state.

    The process's own sequence stays where it is. ``seed``, ``get_state`` and their like are of the thread's meanwhile.
    """
    with sequence_kept():
        begin_own_sequence(state)
        yield


@contextmanager
def drawing_again(state: Mapping[str, int]) -> Iterator[None]:
    """``with drawing_again(state):`` what this thread draws in the block is what it drew from that state on.

    As ``own_sequence``; and in a captured step replays draw again what they drew the first time.
    """
    before = _thread.is_again
    with own_sequence(state):
        try:
            _thread.is_again = True
            yield
        finally:
            _thread.is_again = before


def is_drawing_again() -> bool:
    """Whether this thread is within ``drawing_again``."""
    return _thread.is_again


@contextmanager
def in_step() -> Iterator[None]:
    """``with in_step():`` this thread may not seed, since replays of a step would not."""
    before = _thread.is_in_step
    try:
        _thread.is_in_step = True
        yield
    finally:
        _thread.is_in_step = before


@contextmanager
def sequence_kept() -> Iterator[None]:
    """``with sequence_kept():`` behind the block this thread draws from the sequence that it drew from before."""
    before = _thread.place
    try:
        yield
    finally:
        _thread.place = before


def sequence() -> AtomicReference[tuple[int, int]] | None:
    """The sequence that this thread draws from, for ``end_own_sequence``; None for the process's."""
    return _thread.place


def begin_own_sequence(state: Mapping[str, int]) -> AtomicReference[tuple[int, int]] | None:
    """From now on what this thread draws begins at a state; returns what ``end_own_sequence`` takes.

    To be called within ``sequence_kept``, which goes back where ``end_own_sequence`` is not reached.
    """
    before = _thread.place
    _thread.place = AtomicReference((state["seed"], state["offset"]))
    return before


def end_own_sequence(before: AtomicReference[tuple[int, int]] | None) -> None:
    """From now on this thread draws from the sequence of before."""
    _thread.place = before


default_generator: Generator = _Default()
"""What every draw of this process is from that names no generator."""


def manual_seed(seed: int) -> Generator:
    """Starts every draw of this process from a seed, an int whose lowest 64 bits count. Returns the generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """The seed in force: the last ``manual_seed``, else one drawn from the operating system at the start."""
    return default_generator.initial_seed()


def get_state() -> dict[str, int]:
    """``{"seed": ..., "offset": ...}``: all there is to know for drawing the same numbers again."""
    return default_generator.get_state()


def set_state(state: Mapping[str, Any]) -> None:
    """Goes to a place that ``get_state`` gave; ArgumentError for anything else, and nothing changes."""
    default_generator.set_state(state)


def stage_state(state: Mapping[str, Any], changes: Changes) -> None:
    """Checks a state, and adds to the changes what ``set_state`` does with it."""
    default_generator.stage_state(state, changes)


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
    """(seed, offset) of ``count`` 32-bit words that nobody else will draw. Safe from any thread and signal handler."""
    return default_generator.reserve(count)


def checked(function: str, generator: Any) -> Generator:
    """The generator, or for None the process's own; ArgumentError for anything else."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise ArgumentError(f"[{function}] expected a Generator or None, got {described(generator)}")
    return generator


@dataclass(frozen=True)
class Draw:
    """Random numbers with their place in the sequence, not made yet: the same of whichever engine makes them.

    Attributes:
        distribution: "uniform" in [first, second), or "normal" with mean first and standard deviation second.
        shape, dtype: of the result; elements are counted in row-major order.
        seed, offset: what ``reserve`` gave for its ``words``.
        is_own: whether they are of another generator than the process's.
    """

    distribution: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    first: float
    second: float
    seed: int
    offset: int
    is_own: bool = False

    @property
    def words(self) -> int:
        """32-bit words that it takes."""
        return _words_of(self.distribution, math.prod(self.shape), self.dtype)

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """The numbers in row-major order, ``PIECE`` at a time: pairs of a first element and the numbers from it on."""
        make = _uniform_piece if self.distribution == "uniform" else _normal_piece
        count = math.prod(self.shape)
        for start in range(0, count, PIECE):
            yield start, make(self, start, min(PIECE, count - start))

    def numpy(self) -> Array:
        """The numbers as an array."""
        out = _room(self.distribution, (math.prod(self.shape),), self.dtype)
        for start, numbers in self.pieces():
            out[start : start + len(numbers)] = numbers
        return out.reshape(self.shape)


def draw_uniform(
    shape: int | Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: DtypeLike = float32,
    generator: Generator | None = None,
) -> Draw:
    """Reserves numbers uniform in [low, high)."""
    kind = _float_dtype("uniform", dtype)
    if not _are_bounds(low, high, kind):
        given = f"{described(low)} and {described(high)}"
        raise ArgumentError(f"[uniform] expected finite low <= high, got {given}: both and their difference are {kind}")
    return _draw("uniform", _size("uniform", shape), kind, (low, high), generator)


def draw_normal(
    shape: int | Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DtypeLike = float32,
    generator: Generator | None = None,
) -> Draw:
    """Reserves normally distributed numbers."""
    kind = _float_dtype("normal", dtype)
    if not (_is_finite(mean, kind) and _is_finite(std, kind) and std >= 0):
        given = f"{described(mean)} and {described(std)}"
        raise ArgumentError(f"[normal] expected a finite mean and std >= 0, got {given}, for {kind}")
    return _draw("normal", _size("normal", shape), kind, (mean, std), generator)


def uniform(shape: int | Sequence[int], low: float = 0.0, high: float = 1.0, dtype: DtypeLike = float32) -> Array:
    """A NumPy array of numbers uniform in [low, high)."""
    return draw_uniform(shape, low, high, dtype).numpy()


def normal(shape: int | Sequence[int], mean: float = 0.0, std: float = 1.0, dtype: DtypeLike = float32) -> Array:
    """A NumPy array of normally distributed numbers, by Box and Muller from pairs of uniform ones."""
    return draw_normal(shape, mean, std, dtype).numpy()


def permutation(count: int, generator: Generator | None = None) -> Array:
    """The numbers 0..count-1 in random order, int64."""
    size = _integer("permutation", "a count >= 0", count)
    if size < 0:
        raise ArgumentError(f"[permutation] expected a count >= 0, got {size}")
    _room(
        "permutation", (2 * size,), np.dtype(np.int64)
    )  # what the keys and their order take: refused before it is begun
    keys = words(*checked("permutation", generator).reserve(2 * size), 2 * size).view(np.uint64)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def numpy_generator(*stream: int) -> np.random.Generator:
    """A NumPy generator that depends on the seed and these non-negative numbers alone, not on draws made before.

    Worker threads use it: ``numpy_generator(epoch, index)`` gives a sample the same augmentation in any order.
    """
    numbers = tuple(_integer("numpy_generator", "integers >= 0", value) for value in stream)
    if any(value < 0 for value in numbers):
        raise ArgumentError(f"[numpy_generator] expected integers >= 0, got {numbers}")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed(), spawn_key=numbers)))


def _draw(
    distribution: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    numbers: tuple[float, float],
    generator: Generator | None,
) -> Draw:
    source = default_generator if generator is None else checked(distribution, generator)
    place = source.reserve(_words_of(distribution, math.prod(shape), dtype))
    is_own = source is not default_generator
    return Draw(distribution, shape, dtype, float(numbers[0]), float(numbers[1]), *place, is_own)


def _words_of(distribution: str, count: int, dtype: np.dtype[Any]) -> int:
    """Words that ``count`` numbers take; normal ones are made in pairs."""
    return words_needed(count if distribution == "uniform" else count + count % 2, dtype)


def _are_bounds(low: Any, high: Any, dtype: np.dtype[Any]) -> bool:
    """Whether both and their difference are finite, and low is not above high."""
    if type(low) is float and low == 0.0 and type(high) is float and high == 1.0:
        return True  # what nearly all draws have
    return _is_finite(low, dtype) and _is_finite(high, dtype) and low <= high and _is_finite(high - low, dtype)


def uniform_bounds(draw: Draw) -> tuple[Any, Any, Any]:
    """(scale, low, last) of a uniform draw in its dtype: a number is min(u * scale + low, last), u in [0, 1)."""
    low, high = draw.dtype.type(draw.first), draw.dtype.type(draw.second)
    return high - low, low, np.nextafter(high, low)  # rounding may reach the end, which is excluded


def _uniform_piece(draw: Draw, start: int, count: int) -> Array:
    """``count`` numbers of a draw, from element ``start`` on."""
    scale, low, last = uniform_bounds(draw)
    out = uniforms(draw.seed, draw.offset + words_needed(start, draw.dtype) // WORDS, count, draw.dtype)
    out *= scale
    out += low
    np.minimum(out, last, out=out)
    return out


def _normal_piece(draw: Draw, start: int, count: int) -> Array:
    """``count`` normally distributed numbers of a draw, from element ``start`` on, which must be even."""
    out = np.empty((-(-count // 2), 2), draw.dtype)
    step = 2 * _CHUNK  # pairs that use a whole number of counters in either dtype
    for first in range(0, len(out), step):
        rows = out[first : first + step]
        offset = draw.offset + words_needed(start + 2 * first, draw.dtype) // WORDS
        u = _open_uniforms(draw.seed, offset, 2 * len(rows), draw.dtype)
        for column, standard in enumerate(_normal_pairs(u[0::2], u[1::2])):
            rows[:, column] = standard * draw.second + draw.first
    return out.reshape(-1)[:count]


def _normal_pairs(u: Array, v: Array) -> tuple[Array, Array]:
    """sqrt(-2 log(u)) times cos(2 pi v) and sin(2 pi v) of float64 numbers in (0, 1].

    v is k / 2 + r with |r| <= 1/4, and half a turn changes the sign of both. Sine and cosine are within 4e-16.
    """
    k = np.rint(v * 2)
    r = v - k * 0.5
    sign = (k - 1) * (k - 1) * 2 - 1  # of k = 0, 1, 2
    radius = np.sqrt(_log(u) * -2) * sign
    square = r * r
    return radius * _polynomial(COS, square), radius * (_polynomial(SIN, square) * r)


def _log(u: Array) -> Array:
    """Natural logarithms of positive normal float64 numbers, within 3 units in the last place."""
    bits = u.copy().view(np.int64)
    exponent = (bits - np.float64(SQRT_HALF).view(np.int64)) >> 52
    m = (bits - (exponent << 52)).view(np.float64)  # in [sqrt(1/2), sqrt(2))
    s = (m - 1) / (m + 1)
    square = s * s
    out = _polynomial(LOG, square)
    out *= square
    out += 2
    out *= s
    out += exponent * LN2
    return out


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Horner's rule from the highest power, each product and each sum rounded."""
    out = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        out += coefficient
        out *= x
    out += coefficients[0]
    return out


def _open_uniforms(seed: int, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
    """float64 numbers in (0, 1], whose logarithm is finite: 32 bits each for float32 results, 53 for float64 ones."""
    if words_needed(1, dtype) == 1:
        return (words(seed, offset, count).astype(np.float64) + 0.5) * 2**-32
    return uniforms(seed, offset, count, float64) + 2**-54


def _room(function: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array; OutOfMemoryError where there is no room for it."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError):
        nbytes = math.prod(shape) * dtype.itemsize
        raise OutOfMemoryError(
            f"[{function}] expected room for {nbytes} bytes in the host's memory, got less: use a smaller shape"
        ) from None


def _is_finite(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a number is finite in a dtype."""
    try:
        return bool(abs(float(value)) <= limits(dtype)[1])
    except (OverflowError, TypeError, ValueError):
        return False


def _float_dtype(function: str, dtype: DtypeLike) -> np.dtype[Any]:
    kind = as_dtype(dtype, function)
    if not is_float(kind):
        raise DtypeError(f"[{function}] expected {float_names()}, got {kind}: cast the result instead")
    return kind


def _size(function: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    size = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    for n in size:
        if type(n) is not int or n < 0:
            break
    else:
        return size
    size = tuple(_integer(function, "a shape of integers >= 0", n) for n in size)
    if any(n < 0 for n in size):
        raise ShapeError(f"[{function}] expected a shape of integers >= 0, got {shape!r}")
    return size


def _integer(function: str, expected: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentError(f"[{function}] expected {expected}, got {described(value)}") from error
