"""BatchGenerator: a batch's random numbers, and where in the training the batch stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import errors

_SAMPLES = 2  # the stream of the samples' bits, beside those of an epoch's order and batches
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

Array = np.ndarray[Any, Any]
Indices = np.ndarray[Any, np.dtype[np.int64]]


class BatchGenerator(np.random.Generator):
    """A NumPy generator that also knows its batch's place, for transforms that depend on it.

    Where ranks share batches, ``alpha.distributed``, a data set or transform with ``takes_parts = True`` is given a
    rank's part of a batch, and a generator of the whole batch: what it draws for each image it draws by ``for_rows``,
    and everything else as always. So the images do not depend on the number of ranks. Others are given whole batches.

    Attributes:
        seed: the loader's.
        epoch: the number of the epoch, from 0.
        indices: the samples' indices in the data set, those of the part alone.
        rows: the part's place in the batch, a slice.
        batch_indices: the indices of all the batch's samples.
        places: the same in the data set whose ``batch`` is called, which is another where the loader's is a Subset.
    """

    def __init__(
        self,
        bits: np.random.BitGenerator,
        seed: int,
        epoch: int,
        indices: Indices,
        rows: slice | None = None,
        places: Indices | None = None,
    ) -> None:
        super().__init__(bits)
        self.seed, self.epoch, self.batch_indices = seed, epoch, indices
        self.rows = slice(0, len(indices)) if rows is None else rows
        self.indices = indices if rows is None else indices[rows]
        self.places = indices if places is None else places

    @property
    def is_part(self) -> bool:
        """Whether the batch has more samples than these."""
        return len(self.indices) != len(self.batch_indices)

    def for_rows(self, draw: Callable[[int], Array]) -> Array:
        """Random numbers for each of the samples: of ``draw(n)``, an array with a first axis of n, the part's rows.

        ``rng.for_rows(lambda n: rng.random((n, 2)))`` are two numbers for each sample.
        """
        count = len(self.batch_indices)
        drawn = draw(count)
        if not isinstance(drawn, np.ndarray) or drawn.shape[:1] != (count,):
            raise errors.ShapeError(
                f"[for_rows] expected an array of {count} rows from draw({count}), got {errors.described(drawn)}: "
                "draw once for each sample of the batch"
            )
        return drawn[self.rows]

    def sample_bits(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """A random bit for each sample of the batch, which is the same in every epoch.

        The first bit of SplitMix64's output for the state of the seed and the index: Steele, Lea and Flood, "Fast
        splittable pseudorandom number generators", OOPSLA 2014.
        """
        key = np.random.SeedSequence(self.seed, spawn_key=(_SAMPLES,)).generate_state(1, np.uint64)
        state = key + (self.indices.astype(np.uint64) + np.uint64(1)) * _STEP
        state = (state ^ (state >> np.uint64(30))) * _FACTORS[0]
        state = (state ^ (state >> np.uint64(27))) * _FACTORS[1]
        bits: np.ndarray[Any, np.dtype[np.bool_]] = (state ^ (state >> np.uint64(31))) >> np.uint64(63) == 1
        return bits

    def __reduce__(self) -> tuple[Any, ...]:
        rows = self.rows if self.is_part else None
        return BatchGenerator, (self.bit_generator, self.seed, self.epoch, self.batch_indices, rows, self.places)


def draw_rows(rng: np.random.Generator, count: int, draw: Callable[[int], Array]) -> Array:
    """Random numbers for each of ``count`` images, where they are a part's those that the whole batch has there."""
    if not isinstance(rng, BatchGenerator) or not rng.is_part:
        return draw(count)
    if count != len(rng.indices):
        raise errors.ArgumentError(
            f"[BatchGenerator] expected the {len(rng.indices)} images of a rank's part of a batch, got {count}: draw "
            "before any are left out, or leave takes_parts out"
        )
    return rng.for_rows(draw)


def says(what: Any, name: str, *methods: str) -> bool:
    """Whether an object has an attribute that is True, and no subclass of the class with it has some methods anew."""
    if name not in getattr(what, "__dict__", ()):
        for base in type(what).__mro__:
            if name in base.__dict__:
                break
            if any(method in base.__dict__ for method in methods):
                return False
    return getattr(what, name, False) is True
