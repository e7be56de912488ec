"""One epoch's batches: their order, their random numbers and their preparation, the same wherever they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpha.datasets.dataset import Dataset, Fetched, fetch
from alpha.datasets.generator import BatchGenerator

# One random stream for each purpose, beside each other under the seed.
_ORDER, _BATCH = 0, 1


def count_batches(samples: int, batch_size: int, drop_last: bool) -> int:
    """Batches in an epoch; a last one that is not full counts unless it is dropped."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


@dataclass(frozen=True)
class Epoch:
    """Everything that decides what each batch of one epoch holds.

    The order depends on (seed, epoch) alone and a batch's augmentation on (seed, epoch, batch), so a thread, a worker
    process and a resumed run all make the very same batch. ``unfinished`` leaves what it can of it to the engine.
    """

    dataset: Dataset
    batch_size: int
    shuffle: bool
    drop_last: bool
    seed: int
    number: int
    unfinished: bool = False
    samples: int = field(init=False)
    """The data set's length when the epoch started."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", len(self.dataset))

    def __len__(self) -> int:
        return count_batches(self.samples, self.batch_size, self.drop_last)

    @property
    def order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The samples' indices in the order in which they are handed out."""
        # Not functools.cached_property: its lock, one for all epochs, stays held in a child that is forked meanwhile.
        order: np.ndarray[Any, np.dtype[np.int64]] | None = self.__dict__.get("_order")
        if order is None:
            shuffled = np.random.Generator(self._bits(_ORDER)).permutation
            made = shuffled(self.samples) if self.shuffle else np.arange(self.samples)
            order = self.__dict__.setdefault("_order", made)
        return order

    def prepare(self, batch: int) -> Fetched:
        """The images and labels of one batch."""
        indices = self.order[batch * self.batch_size : (batch + 1) * self.batch_size]
        rng = BatchGenerator(self._bits(_BATCH, batch), self.seed, self.number, indices)
        return fetch(self.dataset, indices, rng, self.unfinished)

    def _bits(self, purpose: int, *stream: int) -> np.random.PCG64:
        return np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(purpose, self.number, *stream)))
