"""Epochs: what decides which batches come, in which order and how each is prepared, the same wherever that is done."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from alpha import errors
from alpha.datasets.collate import default_collate, default_convert
from alpha.datasets.dataset import Collate, Fetched, Made, fetch, prepares_batches
from alpha.datasets.generator import BatchGenerator
from alpha.datasets.parts import BATCH, COLLATE, SAMPLE, Part, Share, cut_taken
from alpha.datasets.seeding import Draws, own_generators, seed_generators
from alpha.datasets.worker_info import get_worker_info
from alpha.layout import get_image_layout, set_image_layout

# One random stream for each purpose, beside each other under the seed.
_ORDER, _BATCH, _WORKERS, _DRAWS, _SAMPLE, _COLLATE = 0, 1, 3, 4, 5, 6

_PURPOSES = {BATCH: _BATCH, SAMPLE: _SAMPLE, COLLATE: _COLLATE}

_NO_INDICES: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, np.int64)


class EndOfSamples(Exception):
    """A data set without indices has no more samples."""


class AnyEpoch(Protocol):
    """What an iteration needs of an epoch.

    Attributes:
        dataset: where samples come from.
        seed: the loader's.
        end: the number of batches; None where it shows only when no more come.
        workers_seed: of the random numbers that a data set draws from Python's, NumPy's and alpha's generators in
            worker processes, each of which adds its number; None for alpha's alone, with the seed of this process.
    """

    @property
    def dataset(self) -> Any: ...

    @property
    def collate_fn(self) -> Collate | None: ...

    @property
    def seed(self) -> int: ...

    @property
    def end(self) -> int | None: ...

    @property
    def workers_seed(self) -> int | None: ...

    def tasks(self, start: int) -> Iterator[Any]:
        """What ``prepare`` needs to know for each batch from number ``start`` on, in order."""

    def prepare(self, task: Any) -> Fetched:
        """One batch; raises EndOfSamples where there is none."""


def count_batches(samples: int, batch_size: int | None, drop_last: bool) -> int:
    """Batches in an epoch; a last one that is not full counts unless it is dropped. Without a size each is a sample."""
    if batch_size is None:
        return samples
    return samples // batch_size if drop_last else -(-samples // batch_size)


@dataclass(frozen=True)
class Epoch:
    """Everything that decides what each batch of one epoch in the loader's own order holds.

    The order depends on (seed, epoch) alone and a batch's augmentation on (seed, epoch, batch), so a thread, a worker
    process and a resumed run all make the very same batch. ``unfinished`` leaves what it can of it to the engine.
    ``part`` is what a rank takes of each batch; None without ranks, or where each takes the whole of it.
    """

    dataset: Any
    batch_size: int | None
    shuffle: bool
    drop_last: bool
    seed: int
    number: int
    unfinished: bool = False
    collate_fn: Collate | None = None
    workers_seed: int | None = None
    part: Part | None = None
    samples: int = field(init=False)
    """The data set's length when the epoch started."""
    layout: str = field(init=False, default_factory=get_image_layout)
    """The order of the axes of images where the loop began."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", len(self.dataset))

    def __len__(self) -> int:
        return count_batches(self.samples, self.batch_size, self.drop_last)

    @property
    def end(self) -> int:
        """The number of batches."""
        return len(self)

    @property
    def order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The samples' indices in the order in which they are handed out."""
        # Not functools.cached_property: its lock, one for all epochs, stays held in a child that is forked meanwhile.
        order: np.ndarray[Any, np.dtype[np.int64]] | None = self.__dict__.get("_order")
        if order is None:
            shuffled = np.random.Generator(np.random.PCG64(sequence(self.seed, _ORDER, self.number))).permutation
            made = shuffled(self.samples) if self.shuffle else np.arange(self.samples)
            order = self.__dict__.setdefault("_order", made)
        return order

    def tasks(self, start: int) -> Iterator[int]:
        """The numbers of the batches."""
        return iter(range(start, len(self)))

    def prepare(self, batch: int) -> Fetched:
        """One batch by its number."""
        if self.batch_size is None:
            return _prepare(self, batch, int(self.order[batch]), single=True)
        return _prepare(self, batch, self.order[batch * self.batch_size : (batch + 1) * self.batch_size])


@dataclass(frozen=True)
class SampledEpoch:
    """An epoch in a sampler's order; the sampler stays in the process that began it.

    Attributes:
        sampler: gives lists of indices, a batch each; with ``single`` one index at a time, whose sample is a batch.
        part: what a rank takes of each batch, if there are ranks. The sampler then has random numbers of the epoch's.
    """

    dataset: Any
    sampler: Iterable[Any]
    single: bool
    seed: int
    number: int
    unfinished: bool = False
    collate_fn: Collate | None = None
    workers_seed: int | None = None
    part: Part | None = None
    layout: str = field(init=False, default_factory=get_image_layout)
    end: None = field(init=False, default=None)

    def tasks(self, start: int) -> Iterator[tuple[int, Any]]:
        """The batches' numbers and indices. The sampler begins anew, so there is no other start than the first."""
        if self.part is None:
            return enumerate(self.sampler)
        return enumerate(Draws(sequence(self.seed, _DRAWS, self.number)).along(self.sampler))

    def prepare(self, task: tuple[int, Any]) -> Fetched:
        """The batch of a number and indices."""
        try:
            return _prepare(self, *task, single=self.single)
        except StopIteration as error:  # which would end the epoch
            raise errors.DataError(
                "[DataLoader] expected a sample from dataset[index], got StopIteration: raise another error there"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sampler": ()}


@dataclass(frozen=True)
class IterableEpoch:
    """An epoch of a data set without indices, of which each process iterates over its own copy.

    Ranks iterate over all samples, and collate their part of each batch. The data set then has random numbers of the
    epoch's and, in a worker, of its number.
    """

    dataset: Any
    batch_size: int | None
    drop_last: bool
    seed: int
    number: int
    collate_fn: Collate | None = None
    workers_seed: int | None = None
    part: Part | None = None
    layout: str = field(init=False, default_factory=get_image_layout)
    end: None = field(init=False, default=None)

    def tasks(self, start: int) -> Iterator[None]:
        """Nothing to know, without end."""
        return itertools.repeat(None)

    def prepare(self, task: None) -> Fetched:
        """The next batch."""
        with _under(self.layout):
            samples = self.__dict__.get("_samples")
            if samples is None:
                samples = self.__dict__.setdefault("_samples", self._begun())
            wanted = 1 if self.batch_size is None else self.batch_size
            taken = list(itertools.islice(samples, wanted))
            if not taken or (len(taken) < wanted and self.drop_last):
                raise EndOfSamples
            if self.batch_size is None:
                return Made((self.collate_fn or default_convert)(taken[0]))
            if self.part is None:
                return Made((self.collate_fn or default_collate)(taken))
            return self._cut(self.part, taken)

    def _begun(self) -> Iterator[Any]:
        """The samples from the first on."""
        if self.part is None:
            return iter(self.dataset)
        return Draws(sequence(self.seed, _DRAWS, self.number, *_worker())).along(self.dataset)

    def _cut(self, part: Part, taken: list[Any]) -> Fetched:
        """A rank's part of a batch; what collating draws leaves the samples' random numbers as they are."""
        count = self.__dict__["_count"] = self.__dict__.get("_count", -1) + 1
        with own_generators():
            seed_generators(sequence(self.seed, _COLLATE, self.number, count, part.rank, *_worker()))
            return cut_taken(part, taken, self.collate_fn or default_collate)


def _prepare(epoch: Epoch | SampledEpoch, batch: int, indices: Any, single: bool = False) -> Fetched:
    """The batch of some indices, or the sample of one."""
    with _under(epoch.layout):
        if epoch.part is not None:
            seeds = partial(_seeds, epoch, batch)
            share = Share(epoch.part, seeds, epoch.seed, epoch.number, epoch.unfinished, epoch.collate_fn)
            return share.single(epoch.dataset, indices) if single else share.fetch(epoch.dataset, indices)
        if single:
            return Made((epoch.collate_fn or default_convert)(epoch.dataset[indices]))
        bits = np.random.PCG64(sequence(epoch.seed, _BATCH, epoch.number, batch))
        places = np.asarray(indices, np.int64) if prepares_batches(epoch.dataset) else _NO_INDICES
        rng = BatchGenerator(bits, epoch.seed, epoch.number, places)
        return fetch(epoch.dataset, indices, rng, epoch.unfinished, epoch.collate_fn)


def _worker() -> tuple[int, ...]:
    """The number of the worker that this process is, if it is one."""
    info = get_worker_info()
    return () if info is None else (info.id,)


def _seeds(epoch: Epoch | SampledEpoch, batch: int, purpose: str, *stream: int) -> np.random.SeedSequence:
    """The random bits of a purpose within a batch."""
    of_rank = () if epoch.part is None else epoch.part.stream
    return sequence(epoch.seed, _PURPOSES[purpose], epoch.number, batch, *stream, *of_rank)


class _Nothing:
    """A context that changes nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: Any) -> None: ...


_NOTHING = _Nothing()


def _under(layout: str) -> Any:
    """A context in which images have a layout."""
    return _NOTHING if get_image_layout() == layout else set_image_layout(layout)


def sequence(seed: int, purpose: int, *stream: int) -> np.random.SeedSequence:
    """The random bits of one purpose under a loader's seed."""
    return np.random.SeedSequence(seed, spawn_key=(purpose, *stream))


def seed_of_workers(seed: int, number: int) -> int:
    """The seed of an epoch's worker processes, 62 bits, to which each adds its number."""
    return int(sequence(seed, _WORKERS, number).generate_state(1, np.uint64)[0]) >> 2
