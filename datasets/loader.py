"""DataLoader: shuffled, prefetched batches of a data set as tensors, resumable at any batch."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from alpha import engines, errors, random
from alpha.atomic import AtomicReference
from alpha.changes import Changes
from alpha.datasets.dataset import Dataset
from alpha.datasets.epoch import Epoch, count_batches
from alpha.datasets.files import one_line
from alpha.datasets.iteration import Iteration, Progress
from alpha.engine import Engine
from alpha.tensor import Tensor

_SETTINGS = ("length", "batch_size", "shuffle", "drop_last")
_POSITION = ("epoch", "batch", "seed")


class DataLoader:
    """Iterates over a data set in batches ``(x, y)``: tensors x float32 (N, H, W, C) and y int64 (N,) or (N, H, W).

    Each ``for`` over the loader is one epoch. What a batch holds depends on the seed, the epoch and its place in it
    alone: it is the same, to the bit, for any ``workers`` and ``prefetch``. (A data set of your own must not draw from
    random state of its own for that; give it ``batch(indices, rng)`` and draw from ``rng``.)

    An interrupt (Ctrl-C) leaves nothing behind, and the position is that of the batches handed out: an iterator that is
    kept goes on with the next one. Threads may share an iterator, where each batch goes to one of them, or the loader,
    where each ``for`` is an epoch of its own. A forked child goes on with its copies of both. A copy or a pickle of a
    loader stands at the same position.

    Args:
        dataset: see ``datasets.Dataset``.
        batch_size: images in a batch; the last one may be smaller.
        shuffle: a new order in each epoch, else the data set's own.
        drop_last: leave out a last batch that is not full.
        seed: of order and augmentation; by default alpha's global seed when an epoch starts (``alpha.manual_seed``).
        workers: processes that prepare batches, started for each epoch with a copy of the data set. 0, the default,
            suits the data sets here, which prepare a whole batch at once with NumPy; workers suit a slow
            ``__getitem__``. The script must then guard its start with ``if __name__ == "__main__"``.
        prefetch: batches prepared ahead by one background thread; 0 prepares each when it is asked for.
        engine: where the tensors live, by default the default engine.

    Raises:
        ArgumentError: a negative or zero size, an empty data set, no full batch with ``drop_last``.
        DataError: while iterating, a thread or process that cannot be started or ends early.
        OutOfMemoryError: while iterating, no memory for a batch.
        While iterating also what the data set raises; from a worker process with its traceback as the cause.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        *,
        seed: int | None = None,
        workers: int = 0,
        prefetch: int = 2,
        engine: Engine | str | None = None,
    ) -> None:
        _check_dataset(dataset)
        self.dataset = dataset
        self.batch_size = _at_least(1, "batch_size", batch_size)
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)
        self.workers = _at_least(0, "workers", workers)
        self.prefetch = _at_least(0, "prefetch", prefetch)
        self.engine = engine
        seed = None if seed is None else _at_least(0, "seed", seed)
        if len(self) == 0:
            raise errors.ArgumentError(
                f"[DataLoader] expected at least one full batch with drop_last=True, got {len(dataset)} samples for "
                f"batch_size={batch_size}: use a smaller batch_size"
            )
        self._place = AtomicReference(_Place(0, 0, seed))

    def __len__(self) -> int:
        """Batches in an epoch."""
        return count_batches(len(self.dataset), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Starts the next epoch, or goes on in the middle of one whose position was loaded.

        Nothing has happened to the loader if this raises. Of several threads at once each gets an epoch of its own.
        """
        unfinished = engines.resolve(self.engine).finishes_images
        while True:
            place = self._place.get()
            start = place.next_start()
            if place.progress is not None:
                place.progress.release()
            seed = _in_force(place.seed)
            epoch = Epoch(self.dataset, self.batch_size, self.shuffle, self.drop_last, seed, start.epoch, unfinished)
            iteration = Iteration(epoch, start.batch, self.workers, self.prefetch, self.engine)
            try:
                if self._place.replace(place, replace(start, progress=iteration.progress)):
                    return iteration
            except BaseException:
                iteration.close()
                raise
            iteration.close()  # another thread took this epoch

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, or else of the one that the next ``for`` runs; settable.

        A ``for`` that was left early counts as an epoch. Setting it starts that epoch afresh.
        """
        place = self._place.get()
        return place.epoch + (place.progress is not None and not place.progress.running)

    @epoch.setter
    def epoch(self, value: int) -> None:
        number = _at_least(0, "epoch", value)
        self._place.update(lambda place: _Place(number, 0, place.seed))

    def state_dict(self) -> dict[str, int | bool]:
        """The position in the data, as plain numbers: what a run needs to go on with the very next batch.

        It counts the batches handed to the caller, not those prepared ahead, and stays where it is when a ``for`` is
        left early: a loader that loads it goes on with the batch after the last one handed out. So take it after the
        step on that batch, not before. At the end of an epoch it is the start of the next.
        """
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
        if not isinstance(state, Mapping):
            raise errors.CheckpointError(
                f"[DataLoader.load_state_dict] expected a state_dict, got {type(state).__name__}: load what "
                "DataLoader.state_dict() gave"
            )
        absent = [key for key in (*_POSITION, *_SETTINGS) if key not in state]
        if absent:
            raise errors.CheckpointError(
                f"[DataLoader.load_state_dict] expected the keys of a state_dict, got none for {', '.join(absent)}: "
                "load what DataLoader.state_dict() gave"
            )
        for key, mine in self._settings().items():
            if not isinstance(state[key], int) or state[key] != mine:
                raise errors.CheckpointError(
                    f"[DataLoader.load_state_dict] expected {key}={mine} as in this loader, got {state[key]}: make the "
                    "loader with the settings of the run that is resumed"
                )
        numbers = [state[key] for key in _POSITION]
        if not all(isinstance(n, int) and n >= 0 for n in numbers) or state["batch"] > len(self):
            raise errors.CheckpointError(
                f"[DataLoader.load_state_dict] expected epoch, batch <= {len(self)} and seed as numbers >= 0, got "
                f"{numbers}: the checkpoint is corrupt"
            )
        at_end = state["batch"] == len(self)
        place = _Place(state["epoch"] + at_end, 0 if at_end else state["batch"], state["seed"])
        changes.set(self, "_place", AtomicReference(place))

    def __getstate__(self) -> dict[str, Any]:
        """A copy's or a pickle's: the data set, the settings and the position; an engine goes by its name."""
        engine = self.engine if self.engine is None or isinstance(self.engine, str) else self.engine.name
        return {**self.__dict__, "engine": engine, "_place": self._place.get().standing(len(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place = AtomicReference(state["_place"])

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value}" for key, value in self._settings().items())
        return f"DataLoader({self.dataset!r}, {settings})"

    def _settings(self) -> dict[str, int | bool]:
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

    def standing(self, length: int) -> _Place:
        """The place of the next batch, without an iteration; ``length`` is the number of batches in an epoch."""
        place, progress = self, self.progress
        if progress is not None:
            progress.release()
            if progress.finished:
                return self.next_start()
            place, length = _Place(self.epoch, progress.handed_out, progress.epoch.seed), progress.end
        return _Place(place.epoch + 1, 0, place.seed) if place.batch >= length else place


def _in_force(seed: int | None) -> int:
    """The seed, or alpha's where there is none."""
    if seed is not None:
        return seed
    return random.seed()


def _check_dataset(dataset: Any) -> None:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set with __len__ and __getitem__, got {type(dataset).__name__}: see "
            "alpha.datasets.Dataset"
        )
    try:
        length = len(dataset)
    except (TypeError, ValueError, OverflowError) as error:  # of a class, say, or of a negative or huge number
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set whose len() is its number of samples, got {one_line(error)}: pass an "
            "instance, and check its __len__"
        ) from error
    if length == 0:
        raise errors.ArgumentError("[DataLoader] expected at least one sample, got an empty data set: give it images")


def _at_least(lowest: int, name: str, value: Any) -> int:
    """``value`` as an int, if it is one."""
    try:
        number = operator.index(value)
    except TypeError:
        number = lowest - 1
    if number < lowest or isinstance(value, bool):
        raise errors.ArgumentError(
            f"[DataLoader] expected {name} as an integer >= {lowest}, got {value!r}: give such a number"
        )
    return number
