"""One pass over an epoch: makes batches into tensors and hands out each once, despite interrupts and threads."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from alpha import engines, errors
from alpha.atomic import AtomicReference
from alpha.conversion import tensor
from alpha.datasets.collate import tensors_replaced
from alpha.datasets.dataset import Fetched, Made
from alpha.datasets.epoch import AnyEpoch, EndOfSamples
from alpha.datasets.files import one_line
from alpha.datasets.pixels import Pixels
from alpha.datasets.prefetch import CLOSE_SECONDS, Prefetcher, Source
from alpha.datasets.workers import CLOSE_SECONDS as WORKERS_CLOSE_SECONDS
from alpha.datasets.workers import Workers
from alpha.engine import Engine

if TYPE_CHECKING:
    Map: TypeAlias = map[Any]
else:
    Map = map

_KEY = 0
_Box = dict[int, tuple[Any]]
"""A finished batch under ``_KEY``, as a tuple of one, which is true whatever it is; empty once it was handed out."""

_WAIT = 0.001  # seconds between looks at whether another thread has finished its batch


class _Offer(NamedTuple):
    """The latest batch that was finished, and its place in the epoch."""

    number: int
    box: _Box


class Progress:
    """The progress of an iteration. Each attribute changes by one assignment, so it is right between any two steps.

    Attributes:
        epoch: what is iterated over, and ``end``, its number of batches; None where that shows at the end alone.
        finished: whether the end was met. closed: whether it was ended earlier, by ``close`` or an error.
    """

    def __init__(self, epoch: AnyEpoch, start: int) -> None:
        self.epoch, self.end = epoch, epoch.end
        self.finished = self.closed = False
        self.offer = _Offer(start - 1, {})
        self.batches: weakref.ref[_Batches] | None = None

    @property
    def handed_out(self) -> int:
        """Batches of the epoch that the caller has, including those before the start."""
        offer = self.offer
        return offer.number + (not offer.box)

    def release(self) -> None:
        """Frees a batch that was finished, but interrupted on its way to a caller who then dropped the iteration."""
        number, box = self.offer
        if box and self.batches is not None and self.batches() is None:
            self.offer = _Offer(number - 1, {})

    @property
    def ended(self) -> bool:
        """Whether no more batches come."""
        return self.finished or self.closed

    @property
    def running(self) -> bool:
        """Whether somebody holds the iteration, and it was neither ended nor interrupted."""
        batches = self.batches() if self.batches is not None else None
        return batches is not None and batches.is_open and not self.ended


class Iteration(Map):
    """Hands out an epoch's batches from ``start`` on; ends its thread and processes when it is over or dropped.

    Several threads may share it: each batch goes to one of them. After an interrupt it goes on with the batch that was
    not handed out. So does a forked child's copy, with a thread and processes of its own.

    A batch is handed out in one step, a call of ``dict.pop`` that also changes the position. That call and the
    iterators around it are C functions, so nothing can come between it and the caller.
    """

    _batches: _Batches

    def __new__(
        cls, epoch: AnyEpoch, start: int, workers: Workers, prefetch: int, engine: Engine | str | None = None
    ) -> Iteration:
        batches = _Batches(Progress(epoch, start), workers, prefetch, engine)
        taken = map(dict.pop, batches, repeat(_KEY), repeat(None))  # None: another thread had it
        iteration = super().__new__(cls, itemgetter(0), filter(None, taken))
        iteration._batches = batches
        return iteration

    @property
    def progress(self) -> Progress:
        """The progress."""
        return self._batches.progress

    @property
    def closed(self) -> bool:
        """Whether it was ended before its end."""
        return self.progress.closed

    def close(self) -> None:
        """Ends the iteration early; dropping it does the same."""
        self._batches.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise errors.ArgumentError(
            "[DataLoader] expected a loader to copy or pickle, got an iteration over one, which has a thread or "
            "processes: copy the loader, whose next for goes on at its position"
        )


class _Run(NamedTuple):
    """A generator that makes batches, and the process whose generator it is."""

    process: int
    steps: GeneratorType[_Box, None, None]


class _Batches(Iterator[_Box]):
    """Iterates over batches as boxes to be emptied. A box comes again until somebody has emptied it.

    Batches are made in a generator. Python itself allows only one caller at a time into it and leaves it whatever
    happens; an error or interrupt ends it, and its thread and processes with it, and the next call makes another.
    """

    def __init__(self, progress: Progress, workers: Workers, prefetch: int, engine: Engine | str | None) -> None:
        self.progress = progress
        self._workers, self._prefetch, self._engine = workers, prefetch, engine
        self._prefetcher: weakref.ref[Prefetcher] | None = None
        self._run: AtomicReference[_Run | None] = AtomicReference(None)
        progress.batches = weakref.ref(self)
        self._open_run()

    @property
    def is_open(self) -> bool:
        """Whether there is a generator to continue."""
        run = self._run.get()
        return run is not None and run.steps.gi_frame is not None

    def __next__(self) -> _Box:
        try:
            return self._next_box()
        except Exception:
            raise
        except BaseException:  # an interrupt; whoever keeps its traceback must not keep a thread and processes too
            self._suspend()
            raise

    def close(self) -> None:
        """Ends the iteration; a batch being made elsewhere is finished first."""
        self.progress.closed = True
        self._suspend()
        self._run.update(lambda run: None)

    def _next_box(self) -> _Box:
        progress = self.progress
        while True:
            if progress.finished or progress.closed:
                raise StopIteration
            if self._prefetcher is not None:
                self._refuse_own_thread()
            run = self._run.get()
            if run is None or run.process != os.getpid():
                run = self._open_run()
            try:
                box = next(run.steps, None)
            except ValueError as error:
                trace = error.__traceback__
                if trace is None or trace.tb_next is not None:  # not "generator already executing", but from within
                    raise
                if _is_in_progress_here(run.steps):
                    raise _busy() from None
                time.sleep(_WAIT)
                continue
            if box is not None:
                return box
            if not progress.ended:  # an interrupt ended the generator, perhaps in another thread
                self._open_run()

    def _suspend(self) -> None:
        """Ends the generator with its thread and processes, unless another thread is making a batch with it."""
        run = self._run.get()
        if run is not None and run.process == os.getpid():
            with suppress(ValueError):
                run.steps.close()

    def _open_run(self) -> _Run:
        """The generator of this process; a new one if there is none, or an interrupt ended it."""
        progress = self.progress
        while True:
            run = self._run.get()
            if run is not None and run.process == os.getpid() and run.steps.gi_frame is not None:
                return run
            if progress.end is None and run is not None:
                progress.closed = True
                raise errors.DataError(
                    "[DataLoader] expected an iteration in the process that began it, and that no interrupt has cut "
                    "short, got one over a sampler or a data set without indices, which cannot go on where it was: "
                    "begin another"
                )
            source = _open(progress, self._workers, self._prefetch)
            try:
                elsewhere = self._engine is not None or bool(self._workers.count)
                steps = _make_batches(progress, source, self._engine, elsewhere)
                new = _Run(os.getpid(), cast("GeneratorType[_Box, None, None]", steps))
                self._prefetcher = weakref.ref(source) if isinstance(source, Prefetcher) else None
                if self._run.replace(run, new):
                    return new
            except BaseException:
                source.close()
                raise
            source.close()  # another thread was quicker

    def _refuse_own_thread(self) -> None:
        """Raises an error in the thread that prepares the batches, which would wait for itself."""
        prefetcher = self._prefetcher() if self._prefetcher is not None else None
        if prefetcher is not None and prefetcher.is_own_thread:
            raise _busy()


def _busy() -> errors.DataError:
    return errors.DataError(
        "[DataLoader] expected to be asked for one batch at a time, got a call from the data set, a signal handler or "
        "a finalizer while the same thread prepares a batch of this iteration: iterate there over a loader of its own"
    )


def _is_in_progress_here(steps: GeneratorType[Any, Any, Any]) -> bool:
    """Whether this thread's calls go through the generator."""
    frame, generator_frame = sys._getframe(), steps.gi_frame
    while frame is not None and frame is not generator_frame:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _make_batches(
    progress: Progress, source: Source, engine: Engine | str | None, elsewhere: bool
) -> Generator[_Box, None, None]:
    """Makes batches from the iteration's position on, each after the one before was handed out."""
    while (number := progress.handed_out) != progress.end:
        try:
            batch = _next_of(source, progress.end, number)
            if batch is None:
                break
            progress.offer = _Offer(number, {_KEY: (_make_tensors(batch, engine, elsewhere),)})
            del batch
        except BaseException as error:
            source.close()
            if isinstance(error, Exception):  # an interrupt ends the source, but not the iteration
                progress.closed = True
            if isinstance(error, MemoryError) and not isinstance(error, errors.AlphaError):
                of_all = f" of {progress.end}" if progress.end is not None else ""
                raise errors.OutOfMemoryError(
                    f"[DataLoader] expected memory for batch {number}{of_all}, got "
                    f"{one_line(error)}: use a smaller batch_size, or fewer workers and less prefetch"
                ) from error
            raise
        while box := progress.offer.box:
            yield box
    progress.finished = True
    source.close()


def _next_of(source: Source, end: int | None, number: int) -> Fetched | None:
    """The next batch of the source; None where an epoch of no known length is over."""
    try:
        return next(source)
    except StopIteration as error:
        if end is None:
            return None
        raise errors.DataError(
            f"[DataLoader] expected {end - number} more batches, got StopIteration from the data set: raise another "
            "error there"
        ) from error


def _make_tensors(batch: Fetched, engine: Engine | str | None, elsewhere: bool) -> Any:
    """A batch with its tensors on the engine; those that are made already only where that may be ``elsewhere``."""
    if isinstance(batch, Made):
        if not elsewhere:
            return batch.batch
        target = engines.resolve(engine)
        return tensors_replaced(batch.batch, lambda made: made if made.engine is target else made.to(target))
    images, labels = batch
    if isinstance(images, Pixels):
        finished = images.tensor(engines.resolve(engine))
    else:
        finished = tensor(images, engine=engine)
    return finished, tensor(labels, engine=engine)


class _Direct:
    """A source that prepares each batch in the caller's own thread, and leaves nothing behind."""

    def __init__(self, epoch: AnyEpoch, start: int) -> None:
        self._epoch, self._tasks = epoch, epoch.tasks(start)

    def __next__(self) -> Fetched:
        task = next(self._tasks)
        try:
            return self._epoch.prepare(task)
        except EndOfSamples:
            raise StopIteration from None

    def close(self) -> None:
        """Has nothing to end."""


def _open(progress: Progress, workers: Workers, prefetch: int) -> Source:
    """The source of an epoch's batches from the iteration's position on."""
    epoch, start, end = progress.epoch, progress.handed_out, progress.end
    if (end is not None and start >= end) or not (workers.count or prefetch):
        return _Direct(epoch, start)
    prefetch = prefetch if end is None else min(prefetch, end - start)
    if not workers.count:
        return Prefetcher(lambda stopped: _Direct(epoch, start), prefetch, CLOSE_SECONDS)
    # Also without prefetch: workers are started and ended in a thread, where no interrupt comes.
    return Prefetcher(lambda stopped: workers.open(epoch, start, stopped), prefetch, WORKERS_CLOSE_SECONDS)
