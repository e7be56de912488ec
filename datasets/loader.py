"""DataLoader: shuffled, prefetched batches of a data set as tensors, resumable at any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import GenericAlias
from typing import Any

from alpha import engines, errors, random
from alpha.arguments import flag
from alpha.atomic import AtomicReference
from alpha.changes import Changes
from alpha.datasets.collate import default_collate, default_convert
from alpha.datasets.composed import IterableDataset
from alpha.datasets.dataset import Collate, gives_tensors, keeps_samples
from alpha.datasets.epoch import AnyEpoch, Epoch, IterableEpoch, SampledEpoch, count_batches, seed_of_workers
from alpha.datasets.iteration import Iteration, Progress
from alpha.datasets.loader_options import (
    at_least,
    check_callable,
    check_dataset,
    check_name,
    check_order,
    check_position,
    check_processes,
)
from alpha.datasets.parts import Part
from alpha.datasets.ranks import check_same_start, find_part, place_of
from alpha.datasets.samplers import BatchSampler, RandomSampler, SequentialSampler, drawn_seed
from alpha.datasets.start_method import context_of
from alpha.datasets.workers import Keeper, Workers
from alpha.engine import Engine
from alpha.random import Generator, checked

_SETTINGS = ("length", "batch_size", "shuffle", "drop_last")


class DataLoader:
    """Iterates over a data set in batches.

    Of a data set here, or any with ``batch(indices, rng)``, a batch is ``(x, y)``: tensors x float32 (N, H, W, C) and y
    int64 (N,) or (N, H, W). Of a ``Dataset`` of your own, a list, or with a ``collate_fn`` it is what that, or else
    ``default_collate``, makes of the samples, whatever they are. See ``datasets.Indexed`` for other objects.

    Each ``for`` over the loader is one epoch. Its order depends on the seed and the epoch, and so does augmentation in
    ``batch``: a batch of a data set here is the same, to the bit, for any number of workers and ``prefetch``.

    An interrupt (Ctrl-C) leaves nothing behind, and the position is that of the batches handed out: an iterator that is
    kept goes on with the next one, but for one over a sampler or a data set without indices, which is over then.
    Threads may share an iterator, where each batch goes to one of them, or the loader, where each ``for`` is an epoch
    of its own. A forked child goes on with its copies of both. A copy or a pickle of a loader stands at the same
    position.

    After ``alpha.distributed.init()`` a batch is that of all ranks, and rank r of n is given its rows r * N // n to
    (r + 1) * N // n, which may be none: together the ranks have one process's epoch, to the bit. Length and position
    count batches of all ranks. They begin each ``for`` together; what decides it is compared then. For each sample of a
    data set that prepares no batches Python's, NumPy's and alpha's generators are seeded by its place in the epoch.
    One without indices gives all its samples on each rank, so it must draw from these three, or nothing. What a
    ``collate_fn`` draws does depend on the number of ranks.

    Args:
        dataset: see ``datasets.Dataset``, ``datasets.IterableDataset`` and ``datasets.Indexed``.
        batch_size: samples in a batch; the last one may be smaller. None gives single samples, their arrays as tensors.
        shuffle: a new order in each epoch, else the data set's own.
        sampler: indices to take instead, one by one.
        batch_sampler: lists of indices, each a batch.
        num_workers: processes that prepare batches, started for each epoch with a copy of the data set. 0, the default,
            suits the data sets here, which prepare a whole batch at once with NumPy; workers suit a slow
            ``__getitem__``. How they are started: see ``datasets/start_method.py``.
        collate_fn: makes a batch of a list of samples; with ``batch_size=None``, of one.
        pin_memory: taken for PyTorch's sake; engines copy from any memory.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch from a worker; 0 for any time.
        worker_init_fn: called in each worker with its number, once its generators are seeded.
        multiprocessing_context: a start method ("fork", "spawn") or a context of ``multiprocessing``.
        generator: of the order that ``shuffle`` gives and of the workers' seeds.
        prefetch_factor: batches that each worker is told to prepare ahead, by default 2.
        persistent_workers: keep processes and their copies of the data set for the next epoch.
        pin_memory_device: has no effect, as ``pin_memory``.
        in_order: False allows batches to come in another order; has no effect, for a position is resumed by the order.
        seed: of order and augmentation; by default alpha's global seed when an epoch starts (``alpha.manual_seed``).
        workers: another name of ``num_workers``.
        prefetch: batches prepared ahead by one background thread; 0 prepares each when it is asked for. By default 2
            for data sets that prepare batches, where it shows in nothing but time, and 0 for others.
        engine: where the tensors live, by default the default engine.
        distributed: whether ranks share each batch; else each has all of it, and begins when it likes. Nothing is
            shared where the sampler does it, one with ``num_replicas`` as DistributedSampler has.

    Raises:
        ArgumentError: arguments that do not go together, a negative or zero size, an empty data set that is no
            ``Dataset``, no full batch with ``drop_last``.
        DataError: while iterating, a thread or process that cannot be started, ends early or takes too long.
        OutOfMemoryError: while iterating, no memory for a batch.
        DistributedError: where a ``for`` begins, other seeds, positions or options on other ranks.
        While iterating also what the data set raises; from a worker process with its traceback as the cause.
    """

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias:
        """``DataLoader[int]`` and its like in annotations."""
        return GenericAlias(cls, item)

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        workers: int | None = None,
        prefetch: int | None = None,
        engine: Engine | str | None = None,
        distributed: bool = True,
    ) -> None:
        check_dataset(dataset)
        check_order(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        check_callable("collate_fn", collate_fn)
        self.dataset = dataset
        self.batch_size = None if batch_size is None else at_least(1, "batch_size", batch_size)
        self.shuffle, self.drop_last, self.pin_memory = bool(shuffle), bool(drop_last), bool(pin_memory)
        self.pin_memory_device = check_name("pin_memory_device", pin_memory_device)
        self.in_order = flag("DataLoader", "in_order", in_order)
        self.generator = None if generator is None else checked("DataLoader", generator)
        if self.shuffle and self.generator is not None:
            sampler = RandomSampler(dataset, generator=self.generator)
        if batch_sampler is not None:
            self.batch_size = None
        elif sampler is not None and self.batch_size is not None:
            batch_sampler = BatchSampler(sampler, self.batch_size, self.drop_last)
        self._sampler, self._batch_sampler = sampler, batch_sampler
        if workers is not None and num_workers:
            raise errors.ArgumentError("[DataLoader] expected num_workers or workers, got both: they are the same")
        name, count = ("num_workers", num_workers) if workers is None else ("workers", workers)
        self.num_workers = at_least(0, name, count)
        self.timeout, self._ahead = check_processes(
            self.num_workers, timeout, prefetch_factor, persistent_workers, worker_init_fn
        )
        self.prefetch_factor = self._ahead if self.num_workers else None
        self.worker_init_fn, self.persistent_workers = worker_init_fn, bool(persistent_workers)
        self.multiprocessing_context = context_of(multiprocessing_context)
        self._keeper = Keeper()
        self._as_they_are = collate_fn is not None or self._is_single or keeps_samples(dataset)
        self._collate_fn = collate_fn
        ahead = (1 if self.num_workers else 0) if self._as_they_are else 2
        self.prefetch = ahead if prefetch is None else at_least(0, "prefetch", prefetch)
        self.engine = engine
        self.distributed = flag("DataLoader", "distributed", distributed)
        seed = None if seed is None else at_least(0, "seed", seed)
        if not self._as_they_are and self._has_own_order and len(self) == 0:
            raise errors.ArgumentError(
                f"[DataLoader] expected at least one full batch with drop_last=True, got {len(dataset)} samples for "
                f"batch_size={batch_size}: use a smaller batch_size"
            )
        self._place = AtomicReference(_Place(0, 0, seed))

    @property
    def workers(self) -> int:
        """Processes that prepare batches; settable, from the next ``for`` on."""
        return self.num_workers

    @workers.setter
    def workers(self, value: int) -> None:
        self.num_workers = at_least(0, "workers", value)

    @property
    def collate_fn(self) -> Collate:
        """What makes a batch of samples."""
        if self._collate_fn is not None:
            return self._collate_fn
        return default_convert if self._is_single else default_collate

    @property
    def sampler(self) -> Any:
        """The sampler; without one, one of the same indices."""
        if self._sampler is not None or isinstance(self.dataset, IterableDataset):
            return self._sampler
        return RandomSampler(self.dataset) if self.shuffle else SequentialSampler(self.dataset)

    @property
    def batch_sampler(self) -> Any:
        """Gives lists of indices, a batch each; without one given, one of the same sizes; None for single samples."""
        if self._batch_sampler is not None or self._is_single or isinstance(self.dataset, IterableDataset):
            return self._batch_sampler
        return BatchSampler(self.sampler, self.batch_size or 1, self.drop_last)

    @property
    def _has_own_order(self) -> bool:
        """Whether seed and epoch decide the order, so that it can be taken up in the middle."""
        given = self._sampler is not None or self._batch_sampler is not None
        return not given and not isinstance(self.dataset, IterableDataset)

    @property
    def _is_single(self) -> bool:
        """Whether samples come one by one."""
        return self.batch_size is None and self._batch_sampler is None

    def __len__(self) -> int:
        """Batches in an epoch; of a data set without indices as many as its ``__len__``, if it has one, makes."""
        if not self._has_own_order and not isinstance(self.dataset, IterableDataset):
            return len(self._sampler if self._batch_sampler is None else self._batch_sampler)
        return count_batches(len(self.dataset), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        """Starts the next epoch, or goes on in the middle of one whose position was loaded.

        Nothing has happened to the loader if this raises. Of several threads at once each gets an epoch of its own.
        """
        workers = Workers(
            self.num_workers,
            self._ahead,
            self.worker_init_fn,
            self.timeout,
            self.multiprocessing_context,
            self._keeper if self.persistent_workers else None,
            self._as_they_are or gives_tensors(self.dataset),
        )
        part = find_part(self.distributed, self._is_single, self._sampler, self._batch_sampler)
        if part is not None and part.size > 1:
            check_same_start(self._facts(self._place.get().next_start()))
        while True:
            place = self._place.get()
            start = place.next_start()
            if place.progress is not None:
                place.progress.release()
            iteration = Iteration(self._make_epoch(start, part), start.batch, workers, self.prefetch, self.engine)
            try:
                if self._place.replace(place, replace(start, progress=iteration.progress)):
                    return iteration
            except BaseException:
                iteration.close()
                raise
            iteration.close()  # another thread took this epoch

    def _facts(self, start: _Place) -> dict[str, int | None]:
        """What must be the same on all ranks where a loop begins."""
        without_indices = isinstance(self.dataset, IterableDataset)
        return {
            "seed": _in_force(start.seed),
            "epoch": start.epoch,
            "batch": start.batch,
            "samples": len(self.dataset) if hasattr(self.dataset, "__len__") else None,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "sampler": not self._has_own_order,
            "generator": place_of(self.generator, self._sampler, getattr(self._batch_sampler, "sampler", None)),
            "num_workers": self.num_workers if without_indices else None,
        }

    def _make_epoch(self, start: _Place, part: Part | None) -> AnyEpoch:
        """The epoch that begins at a place, or a rank's part of it."""
        seed = _in_force(start.seed)
        workers_seed = None
        if self._as_they_are and self.num_workers:
            drawn = None if self.generator is None else drawn_seed(self.generator) >> 1
            workers_seed = seed_of_workers(seed, start.epoch) if drawn is None else drawn
        collate = self._collate_fn
        if isinstance(self.dataset, IterableDataset):
            size, number = self.batch_size, start.epoch
            return IterableEpoch(self.dataset, size, self.drop_last, seed, number, collate, workers_seed, part)
        unfinished = engines.resolve(self.engine).finishes_images
        if self._has_own_order:
            order = (self.batch_size, self.shuffle, self.drop_last, seed, start.epoch)
            return Epoch(self.dataset, *order, unfinished, collate, workers_seed, part)
        sampler, single = (self._sampler, True) if self._is_single else (self._batch_sampler, False)
        return SampledEpoch(self.dataset, sampler, single, seed, start.epoch, unfinished, collate, workers_seed, part)

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, or else of the one that the next ``for`` runs; settable.

        A ``for`` that was left early counts as an epoch. Setting it starts that epoch afresh.
        """
        place = self._place.get()
        return place.epoch + (place.progress is not None and not place.progress.running)

    @epoch.setter
    def epoch(self, value: int) -> None:
        number = at_least(0, "epoch", value)
        self._place.update(lambda place: _Place(number, 0, place.seed))

    def state_dict(self) -> dict[str, int | bool]:
        """The position in the data, as plain numbers: what a run needs to go on with the very next batch.

        It counts the batches handed to the caller, not those prepared ahead, and stays where it is when a ``for`` is
        left early: a loader that loads it goes on with the batch after the last one handed out. So take it after the
        step on that batch, not before. At the end of an epoch it is the start of the next.

        ArgumentError where a sampler or the data set itself decides the order, which no numbers tell.
        """
        self._check_own_order("state_dict")
        place = self._place.get().standing(len(self))
        position = {"epoch": place.epoch, "batch": place.batch, "seed": _in_force(place.seed)}
        return {**position, **self._settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next ``for`` go on at a position from ``state_dict``: same order, same augmentation.

        Raises:
            CheckpointError: keys are missing or no sensible numbers, or the position is one in other data: another
                length, batch_size, shuffle or drop_last.
        """
        changes = Changes()
        self.stage_state(state, changes)
        changes.make()

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a state, and adds to the changes what ``load_state_dict`` does with it."""
        self._check_own_order("load_state_dict")
        check_position(state, self._settings(), len(self))
        at_end = state["batch"] == len(self)
        place = _Place(state["epoch"] + at_end, 0 if at_end else state["batch"], state["seed"])
        changes.set(self, "_place", AtomicReference(place))

    def __getstate__(self) -> dict[str, Any]:
        """A copy's or a pickle's: the data set, the settings and the position; an engine goes by its name."""
        engine = self.engine if self.engine is None or isinstance(self.engine, str) else self.engine.name
        length = len(self) if self._has_own_order else None
        return {**self.__dict__, "engine": engine, "_place": self._place.get().standing(length), "_keeper": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"distributed": True, **state})  # older pickles have no such attribute
        self._place, self._keeper = AtomicReference(state["_place"]), Keeper()

    def __repr__(self) -> str:
        known = self._settings() if self._has_own_order else {"batch_size": self.batch_size}
        settings = ", ".join(f"{key}={value}" for key, value in known.items())
        return f"DataLoader({self.dataset!r}, {settings})"

    def _check_own_order(self, function: str) -> None:
        if not self._has_own_order:
            raise errors.ArgumentError(
                f"[DataLoader.{function}] expected a loader whose order its seed decides, got one with a sampler, a "
                "generator or a data set without indices: use shuffle=True alone where a run is to be resumed"
            )

    def _settings(self) -> dict[str, Any]:
        values = (len(self.dataset), self.batch_size, self.shuffle, self.drop_last)
        return dict(zip(_SETTINGS, values, strict=True))


@dataclass(frozen=True)
class _Place:
    """A loader's position. It is replaced as a whole; what changes with each batch is in ``progress`` alone.

    Attributes:
        epoch, batch: the next batch; with ``progress``, the epoch under way and where in it the iteration began.
        seed: of order and augmentation; None is alpha's own.
        progress: how far the iteration is that was started last.
    """

    epoch: int
    batch: int
    seed: int | None
    progress: Progress | None = None

    def next_start(self) -> _Place:
        """Where the next ``for`` starts: an iteration that was left, or is being left now, counts as an epoch."""
        return self if self.progress is None else _Place(self.epoch + 1, 0, self.seed)

    def standing(self, length: int | None) -> _Place:
        """The place of the next batch, without an iteration; ``length`` is the number of batches in an epoch.

        Without a length an epoch cannot be taken up in the middle.
        """
        place, progress = self, self.progress
        if progress is not None:
            progress.release()
            if progress.finished or progress.end is None:
                return self.next_start()
            place, length = _Place(self.epoch, progress.handed_out, progress.epoch.seed), progress.end
        return _Place(place.epoch + 1, 0, place.seed) if length is not None and place.batch >= length else place


def _in_force(seed: int | None) -> int:
    """The seed, or alpha's where there is none."""
    if seed is not None:
        return seed
    return random.seed()
