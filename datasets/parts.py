"""Parts of batches: what one rank of a distributed program takes of each, so that together they are one process's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from alpha import errors
from alpha.datasets.collate import default_convert, with_contents, with_items
from alpha.datasets.composed import items
from alpha.datasets.dataset import Collate, Fetched, Made, batch_of, fetch_batch, prepares_batches, unwrapped
from alpha.datasets.generator import BatchGenerator, says
from alpha.datasets.pixels import Pixels
from alpha.datasets.seeding import own_generators, seed_generators
from alpha.tensor import Tensor

Seeds = Callable[..., np.random.SeedSequence]
"""The random bits of a purpose, the batch, and further numbers."""

BATCH, SAMPLE, COLLATE = "batch", "sample", "collate"
"""Purposes of random numbers within a batch."""


@dataclass(frozen=True)
class Part:
    """What a rank takes.

    Attributes:
        rank, size: its number, and the number of ranks.
        splits: whether it is a part of each batch; False where the sampler gives each rank batches of its own.
    """

    rank: int
    size: int
    splits: bool = True

    def rows(self, count: int) -> slice:
        """Which of a batch's samples."""
        if not self.splits:
            return slice(0, count)
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    @property
    def stream(self) -> tuple[int, ...]:
        """What tells its random numbers from other ranks', where batches of one number are different ones."""
        return () if self.splits or self.size == 1 else (self.rank,)


@dataclass(frozen=True)
class Share:
    """One batch's part, and what it takes to prepare it.

    Attributes:
        part: of a rank. seeds: the batch's.
        seed, number: the loader's seed and the epoch's number.
        unfinished: whether images may be left for the engine to finish.
    """

    part: Part
    seeds: Seeds
    seed: int
    number: int
    unfinished: bool
    collate_fn: Collate | None

    def fetch(self, dataset: Any, indices: Any) -> Fetched:
        """The part of the batch at ``indices``: in the way of the whole batch, see ``dataset.fetch``."""
        listed = indices if isinstance(indices, np.ndarray) else list(indices)
        if self.collate_fn is None:
            whole, places = unwrapped(dataset, listed)
            if prepares_batches(whole):
                return self._prepared(whole, np.asarray(places, np.int64), np.asarray(listed, np.int64))
        listed = listed.tolist() if isinstance(listed, np.ndarray) else listed
        rows = self.part.rows(len(listed))
        is_empty = rows.start == rows.stop and bool(listed)
        first = 0 if is_empty else rows.start
        with own_generators():
            samples = self._samples(dataset, listed[:1] if is_empty else listed[rows], first)
            seed_generators(self.seeds(COLLATE, first))
            made: Fetched = made_of(samples, is_empty, lambda some: batch_of(dataset, some, self.collate_fn))
            return made

    def single(self, dataset: Any, index: Any) -> Fetched:
        """A single sample, which is a batch."""
        with own_generators():
            sample = self._samples(dataset, [index], 0)[0]
            return Made((self.collate_fn or default_convert)(sample))

    def _prepared(self, dataset: Any, places: Any, indices: Any) -> Fetched:
        """From a data set that prepares batches: a part's where it can, else cut out of the whole batch."""
        rows = self.part.rows(len(indices))
        is_empty = rows.start == rows.stop and len(indices) > 0
        if not says(dataset, "takes_parts", "batch"):
            wanted = slice(0, len(indices))
        else:
            wanted = slice(0, 1) if is_empty else rows
        bits = np.random.PCG64(self.seeds(BATCH))
        rng = BatchGenerator(bits, self.seed, self.number, indices, wanted, places)
        images, labels = fetch_batch(dataset, places[wanted], rng, self.unfinished and not is_empty)
        if wanted == rows:
            return images, labels
        cut = slice(0, 0) if is_empty else rows
        return images.rows(cut) if isinstance(images, Pixels) else np.ascontiguousarray(images[cut]), labels[cut]

    def _samples(self, dataset: Any, indices: list[Any], first: int) -> list[Any]:
        """The samples at indices, each drawn from seeds of its row in the batch; the first row has a number."""
        whole, places = unwrapped(dataset, indices)
        if says(whole, "draws_nothing", "__getitem__", "__getitems__"):
            return items(whole, list(places))
        samples = []
        for row, place in enumerate(places, first):
            seed_generators(self.seeds(SAMPLE, row))
            samples += items(whole, [place])
        return samples


def made_of(samples: list[Any], is_empty: bool, collate: Callable[[list[Any]], Any]) -> Any:
    """A batch of samples, or one of none that is else like a batch of the first."""
    if not is_empty:
        return collate(samples)
    first = samples[0]
    return emptied(collate([first]), collate([first, first]))


def emptied(one: Any, two: Any) -> Any:
    """A batch without samples, from batches of one sample and of that sample twice.

    What is longer in the second counts samples: of tensors and arrays such axes have length 0 then, lists are empty.
    Everything else is as in the batch of one: numbers and strings, and tensors and lists that are no longer.
    """
    if isinstance(one, Tensor | np.ndarray):
        if one.ndim != two.ndim:  # an axis of one sample that was left out
            return two[:0]
        axes = [slice(0, 0) if a != b else slice(None) for a, b in zip(one.shape, two.shape, strict=True)]
        return two[tuple(axes)]
    if one is None or isinstance(one, str | bytes | bool | int | float | complex | np.generic):
        return one
    if isinstance(one, Mapping):
        return with_contents(one, {key: emptied(value, two[key]) for key, value in one.items()})
    if isinstance(one, Sequence):
        if len(one) != len(two):
            return one[:0]
        parts = [emptied(a, b) for a, b in zip(one, two, strict=True)]
        return tuple(parts) if type(one) is tuple else with_items(one, parts)
    if type(one) is type(two) and hasattr(one, "__dict__"):
        made = copy.copy(one)
        made.__dict__.update({name: emptied(value, vars(two)[name]) for name, value in vars(one).items()})
        return made
    raise errors.DataError(
        f"[DataLoader] expected a batch of tensors, arrays, numbers, strings, or dicts, tuples and lists of them, got "
        f"{type(one).__name__}, which cannot be left without samples for a rank whose part of a batch is empty: use "
        "drop_last=True, or a larger batch_size"
    )


def cut_taken(part: Part | None, taken: list[Any], collate: Collate) -> Made:
    """A batch of the samples that a data set without indices gave, or a rank's part of it."""
    if part is None:
        return Made(collate(taken))
    rows = part.rows(len(taken))
    is_empty = rows.start == rows.stop
    return cast(Made, made_of(taken[:1] if is_empty else taken[rows], is_empty, lambda some: Made(collate(some))))
