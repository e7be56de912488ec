"""BatchGenerator: a batch's random numbers, and where in the training the batch stands."""

from __future__ import annotations

from typing import Any

import numpy as np

_SAMPLES = 2  # the stream of the samples' bits, beside those of an epoch's order and batches
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class BatchGenerator(np.random.Generator):
    """A NumPy generator that also knows its batch's place, for transforms that depend on it.

    Attributes:
        seed: the loader's.
        epoch: the number of the epoch, from 0.
        indices: the samples' indices in the data set.
    """

    def __init__(
        self,
        bits: np.random.BitGenerator,
        seed: int,
        epoch: int,
        indices: np.ndarray[Any, np.dtype[np.int64]],
    ) -> None:
        super().__init__(bits)
        self.seed, self.epoch, self.indices = seed, epoch, indices

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
        return BatchGenerator, (self.bit_generator, self.seed, self.epoch, self.indices)
