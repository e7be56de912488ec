"""DataLoader: shuffled, prefetched batches of a data set as tensors, resumable at any batch."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from alpha import errors
from datasets.dataset import Dataset, Fetched
from datasets.epoch import Epoch, count_batches
from datasets.pixels import Pixels
from datasets.prefetch import Prefetcher
from datasets.workers import WorkerPool

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor

_SETTINGS = ("length", "batch_size", "shuffle", "drop_last")
_POSITION = ("epoch", "batch", "seed")


class DataLoader:
    """Iterates over a data set in batches ``(x, y)``: tensors x float32 (N, H, W, C) and y int64 (N,) or (N, H, W).

    Each ``for`` over the loader is one epoch. What a batch holds depends on the seed, the epoch and its place in it
    alone: it is the same, to the bit, for any ``workers`` and ``prefetch``. (A data set of your own must not draw from
    random state of its own for that; give it ``batch(indices, rng)`` and draw from ``rng``.)

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
        While iterating: what the data set raises; from a worker process with its traceback as the cause.
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
        self._seed = None if seed is None else _at_least(0, "seed", seed)
        if len(self) == 0:
            raise errors.ArgumentError(
                f"[DataLoader] expected at least one full batch with drop_last=True, got {len(dataset)} samples for "
                f"batch_size={batch_size}: use a smaller batch_size"
            )
        # The position: batches handed out of the epoch, and whether an iteration over that epoch was started.
        self._epoch, self._batch, self._started = 0, 0, False
        self._epoch_seed = 0
        self._running: weakref.ref[_Iteration] | None = None

    def __len__(self) -> int:
        """Batches in an epoch."""
        return count_batches(len(self.dataset), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Starts the next epoch, or goes on in the middle of one whose position was loaded."""
        if self._started:  # an iteration that was left before its end, or is being left now
            self.epoch = self._epoch + 1
        self._epoch_seed = self._current_seed()
        from alpha import engines  # here: alpha's packages may be importing this one

        epoch = Epoch(
            self.dataset,
            self.batch_size,
            self.shuffle,
            self.drop_last,
            self._epoch_seed,
            self._epoch,
            engines.resolve(self.engine).finishes_images,
        )
        iteration = _Iteration(self, epoch, self._batch, self.workers, self.prefetch)
        self._started, self._running = True, weakref.ref(iteration)
        return iteration

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, or else of the one that the next ``for`` runs; settable.

        A ``for`` that was left early counts as an epoch. Setting it starts that epoch afresh.
        """
        left = self._started and not self._is_running()
        return self._epoch + left

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch, self._batch, self._started = _at_least(0, "epoch", value), 0, False
        self._running = None

    def state_dict(self) -> dict[str, int | bool]:
        """The position in the data, as plain numbers: what a run needs to go on with the very next batch.

        It counts the batches handed to the caller, not those prepared ahead, and stays where it is when a ``for`` is
        left early: a loader that loads it goes on with the batch after the last one handed out. So take it after the
        step on that batch, not before. At the end of an epoch it is the start of the next.
        """
        at_end = self._batch >= len(self)
        seed = self._epoch_seed if self._started else self._current_seed()
        position = {"epoch": self._epoch + at_end, "batch": 0 if at_end else self._batch, "seed": seed}
        return {**position, **self._settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next ``for`` go on at a position from ``state_dict``: same order, same augmentation.

        Raises:
            CheckpointError: keys are missing or no sensible numbers, or the position is one in other data: another
                length, batch_size, shuffle or drop_last.
        """
        absent = [key for key in (*_POSITION, *_SETTINGS) if key not in state]
        if absent:
            raise errors.CheckpointError(
                f"[DataLoader.load_state_dict] expected the keys of a state_dict, got none for {', '.join(absent)}: "
                "load what DataLoader.state_dict() gave"
            )
        for key, mine in self._settings().items():
            if state[key] != mine:
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
        self.epoch = state["epoch"] + at_end
        self._batch = 0 if at_end else state["batch"]
        self._seed = state["seed"]

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={value}" for key, value in self._settings().items())
        return f"DataLoader({self.dataset!r}, {settings})"

    def _settings(self) -> dict[str, int | bool]:
        values = (len(self.dataset), self.batch_size, self.shuffle, self.drop_last)
        return dict(zip(_SETTINGS, values, strict=True))

    def _current_seed(self) -> int:
        if self._seed is not None:
            return self._seed
        from alpha import random  # here: alpha's packages may be importing this one

        return random.seed()

    def _is_running(self) -> bool:
        iteration = self._running() if self._running is not None else None
        return iteration is not None and not iteration.closed

    def _handed_out(self, iteration: _Iteration, batch: int) -> None:
        """An iteration reports its batch; one that a later ``for`` has replaced no longer counts."""
        if self._running is not None and self._running() is iteration:
            self._batch = batch + 1

    def _finished(self, iteration: _Iteration) -> None:
        if self._running is not None and self._running() is iteration:
            self.epoch = self._epoch + 1


class _Iteration(Iterator["tuple[Tensor, Tensor]"]):
    """One pass over an epoch from batch ``start`` on; ends its thread and processes when it is over or dropped."""

    def __init__(self, loader: DataLoader, epoch: Epoch, start: int, workers: int, prefetch: int) -> None:
        self._loader = loader
        self._next, self._end = start, len(epoch)
        self._source, self._close_source = _open(epoch, start, workers, prefetch)
        self.closed = False

    def __next__(self) -> tuple[Tensor, Tensor]:
        if self.closed:
            raise StopIteration
        import alpha  # here: alpha's packages may be importing this one

        engine = self._loader.engine
        try:
            images, labels = self._next_batch()
            if isinstance(images, Pixels):
                finished = images.tensor(alpha.engines.resolve(engine))
            else:
                finished = alpha.tensor(images, engine=engine)
            tensors = finished, alpha.tensor(labels, engine=engine)
        except BaseException:  # an interrupt too ends the iteration
            self.close()
            raise
        self._loader._handed_out(self, self._next)
        self._next += 1
        return tensors

    def close(self) -> None:
        """Ends the iteration early; dropping it does the same."""
        self.closed = True
        self._close_source()

    def _next_batch(self) -> Fetched:
        if self._next == self._end:
            self._loader._finished(self)
            raise StopIteration
        try:
            return next(self._source)
        except StopIteration as error:
            raise errors.DataError(
                f"[DataLoader] expected {self._end - self._next} more batches, got StopIteration from the data set: "
                "raise another error there"
            ) from error


def _open(epoch: Epoch, start: int, workers: int, prefetch: int) -> tuple[Iterator[Fetched], Callable[[], None]]:
    """The source of an epoch's batches, and what ends its thread and processes."""
    if not workers:
        batches = map(epoch.prepare, range(start, len(epoch)))
        if not prefetch:
            return batches, _nothing_to_close
        prefetcher = Prefetcher(batches, prefetch)
        return prefetcher, prefetcher.close
    pool = WorkerPool(epoch, start, workers)
    if not prefetch:
        return pool, pool.close
    prefetcher = Prefetcher(pool, prefetch, pool.close)
    return prefetcher, prefetcher.close


def _nothing_to_close() -> None:
    """Batches prepared in the caller's own thread leave nothing behind."""


def _check_dataset(dataset: Any) -> None:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set with __len__ and __getitem__, got {type(dataset).__name__}: see "
            "datasets.Dataset"
        )
    if len(dataset) == 0:
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
