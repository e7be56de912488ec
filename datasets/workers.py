"""Preparing batches in worker processes, in order, and ending those processes whatever happens."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from alpha import errors, random
from alpha.atomic import AtomicReference
from alpha.datasets.dataset import Fetched
from alpha.datasets.epoch import AnyEpoch
from alpha.datasets.files import one_line
from alpha.datasets.start_method import Start, choose, without_script
from alpha.datasets.worker import End, Failure, Job, NextEpoch, stripped, work

CLOSE_SECONDS = 5.0
"""How long a terminated process may take to end before it is killed."""

_POLL = 0.02  # seconds between looks at whether the batches are still wanted


class WorkerTraceback(Exception):
    """The cause of an error from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Resources:
    """What a pool has to free, and the process that may free it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.processes: list[BaseProcess] = []
        self.readers: list[Connection] = []
        self.tasks: list[Connection] = []


_live: dict[int, _Resources] = {}
"""The resources of this process's pools, by their identity."""


class Keeper:
    """Where a pool that has done its epoch waits for the next."""

    def __init__(self) -> None:
        self._pool: AtomicReference[WorkerPool | None] = AtomicReference(None)

    def put(self, pool: WorkerPool) -> bool:
        """Keeps a pool; returns whether there was none."""
        return self._pool.replace(None, pool)

    def take(self) -> WorkerPool | None:
        """The pool that waits in this process, which then waits no longer."""
        pool = self._pool.get()
        if pool is None or not self._pool.replace(pool, None):
            return None
        return pool if pool.is_usable else None


@dataclass(frozen=True)
class Workers:
    """How processes prepare batches.

    Attributes:
        count: how many processes.
        ahead: batches that each is told to prepare before they are asked for.
        init: called in each with its number.
        timeout: seconds that a batch may take; 0 for any time.
        context: the start method; None chooses one.
        keeper: keeps the processes between epochs; None ends them.
        prefers_fork: whether they are forked where nothing else is asked for.
    """

    count: int
    ahead: int = 2
    init: Callable[[int], Any] | None = None
    timeout: float = 0.0
    context: Any = None
    keeper: Keeper | None = None
    prefers_fork: bool = False

    def open(self, epoch: AnyEpoch, start: int, stopped: Callable[[], bool]) -> WorkerPool | Lease:
        """A pool for an epoch: the one that was kept, or a new one."""
        if self.keeper is None:
            return WorkerPool(epoch, start, self, stopped)
        kept = self.keeper.take()
        if kept is None:
            kept = WorkerPool(epoch, start, self, stopped)
        else:
            kept.begin(epoch, start, stopped)
        return Lease(kept, self.keeper)


class Lease(Iterator[Fetched]):
    """A pool for one epoch, at the end of which it is kept for the next, if it still can go on."""

    def __init__(self, pool: WorkerPool, keeper: Keeper) -> None:
        self._pool: WorkerPool | None = pool
        self._keeper = keeper

    def __next__(self) -> Fetched:
        if self._pool is None:
            raise StopIteration
        return next(self._pool)

    def close(self) -> None:
        """Gives the pool back."""
        pool, self._pool = self._pool, None
        if pool is not None and not (pool.is_usable and self._keeper.put(pool)):
            pool.close()


class WorkerPool(Iterator[Fetched]):
    """The batches ``start, start + 1, ...`` of an epoch, prepared by processes.

    Each process has a pipe for tasks and one for batches. Tasks are handed out in turn, and reading the pipes in turn
    gives the order. A full pipe stops its worker, so each holds at most one finished batch.

    An interrupt in the middle of reading loses bytes, so the loader uses a pool in a thread, where none comes.
    ``stopped`` is looked at while starting and waiting: where it is true the pool ends.

    Raises:
        ArgumentError: the data set cannot be pickled. DataError: a worker cannot be started, takes longer than its
        timeout, or ended before its batch. Whatever the data set raises, with the worker's traceback as its cause.
    """

    def __init__(self, epoch: AnyEpoch, start: int, workers: Workers, stopped: Callable[[], bool] = bool) -> None:
        self._workers, self._stopped = workers, stopped
        most = workers.count if epoch.end is None or workers.keeper is not None else epoch.end - start
        self._count = min(workers.count, most)
        how = choose(Job(random.seed(), epoch, workers.init), self._count, workers.context, workers.prefers_fork)
        self._resources = _Resources()
        self._serial, self._failed = 0, False
        # Registered before the first process starts: an interrupt in between ends those already there.
        self._shut_down = weakref.finalize(self, _release, self._resources)
        _live[id(self._resources)] = self._resources
        try:
            with _interrupts_held():
                for worker in range(self._count):
                    if not stopped():
                        self._launch(worker, how)
            self._set_out(epoch, start)
        except BaseException:
            self._failed = True
            self.close()
            raise

    def begin(self, epoch: AnyEpoch, start: int, stopped: Callable[[], bool]) -> None:
        """Goes over to another epoch of the same data set; batches of the one before are thrown away."""
        self._stopped = stopped
        self._serial += 1
        try:
            for worker in range(self._count):
                self._tell(worker, NextEpoch(stripped(epoch)))
            self._set_out(epoch, start)
        except BaseException:
            self._failed = True
            self.close()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether it can go on in this process."""
        mine = self._resources.owner == os.getpid()
        return mine and not self._failed and all(process.is_alive() for process in self._resources.processes)

    def _set_out(self, epoch: AnyEpoch, start: int) -> None:
        """Begins to hand out an epoch's tasks."""
        self._next, self._tasks = start, epoch.tasks(start)
        self._idle = False  # whether all tasks are handed out
        self._turn = deque(range(len(self._resources.processes)))
        self._awaited: deque[int] = deque()  # the workers that prepare the next batches, in order
        if self._resources.processes:
            self._hand_out()

    def _launch(self, worker: int, how: Start) -> None:
        try:
            (reader, writer), (inbox, tasks) = (how.context.Pipe(duplex=False) for _ in range(2))
            self._resources.readers.append(reader)
            self._resources.tasks.append(tasks)
            with writer, inbox:  # closed here, the worker's copy is the only one, so the pipe ends with the worker
                process = how.context.Process(
                    target=work,
                    args=(how.job, worker, self._count, inbox, writer),
                    name=f"alpha-worker-{worker}",
                    daemon=True,
                )
                self._resources.processes.append(process)
                with without_script(not how.runs_script):
                    process.start()
        except (OSError, AssertionError) as error:  # AssertionError: a daemonic process may have no children
            raise errors.DataError(
                f"[DataLoader] expected to start worker process {worker} of {self._count}, got {one_line(error)}: use "
                "fewer workers, or workers=0; end other processes, or raise the limits on processes and open files"
            ) from error

    def _hand_out(self) -> None:
        """Tells workers, in turn, what to prepare."""
        while not self._idle and len(self._awaited) < self._workers.ahead * len(self._turn):
            try:
                task = next(self._tasks)
            except StopIteration:
                self._idle = True
                return
            worker = self._turn[0]
            self._turn.rotate(-1)
            self._tell(worker, task)
            self._awaited.append(worker)

    def _tell(self, worker: int, task: Any) -> None:
        with suppress(OSError):  # it has ended: reading its pipe tells
            self._resources.tasks[worker].send((task,))

    def __next__(self) -> Fetched:
        while self._awaited and not self._stopped():
            worker = self._awaited[0]
            content: Fetched | End = self._receive(worker)
            if isinstance(content, End):
                self._turn.remove(worker)
                self._awaited = deque(other for other in self._awaited if other != worker)
            else:
                self._awaited.popleft()
                self._next += 1
                self._hand_out()
                return content
        self._leave()
        raise StopIteration

    def _leave(self) -> None:
        """Ends the workers where no other epoch follows."""
        if self._workers.keeper is None:
            self.close()

    def _receive(self, worker: int) -> Any:
        """What a worker made of its next task; raises its error."""
        while True:
            message = self._read(worker)
            try:
                serial, content = _unpickle(message)
            except BaseException:
                self._failed = True
                raise
            if serial == self._serial:  # else of an epoch that was left
                return content

    def _read(self, worker: int) -> bytes:
        """A worker's next message."""
        reader, started = self._resources.readers[worker], time.monotonic()
        try:
            while not reader.poll(_POLL):
                if self._stopped():
                    self._leave()
                    raise StopIteration
                if 0 < self._workers.timeout < time.monotonic() - started:
                    self._failed = True
                    raise errors.DataError(
                        f"[DataLoader] expected batch {self._next} from worker process {worker} within timeout="
                        f"{self._workers.timeout} seconds, got none: give it more time, or make samples faster"
                    )
                # Another thread may have forked while this worker was started. The child holds its pipe open.
                if not self._resources.processes[worker].is_alive() and not reader.poll():
                    raise EOFError
            return reader.recv_bytes()
        except (EOFError, OSError) as error:
            self._failed = True
            raise self._ended_early(worker) from error

    def close(self) -> None:
        """Ends all workers and waits until they have ended; does nothing in a forked child, which has no workers."""
        self._shut_down()

    def _ended_early(self, worker: int) -> errors.DataError:
        process = self._resources.processes[worker]
        _wait_for(process)
        return errors.DataError(
            f"[DataLoader] expected batch {self._next} from worker process {worker}, got its end (exit code "
            f"{process.exitcode}): look for a lack of memory, or use workers=0"
        )


def _release(resources: _Resources) -> None:
    if resources.owner == os.getpid():
        _terminate([process for process in resources.processes if process.pid is not None])
    for connection in (*resources.readers, *resources.tasks):
        connection.close()
    resources.processes.clear()
    _live.pop(id(resources), None)


def _disown() -> None:
    """In a forked child: the workers are the parent's. The child must not hold their pipes open, nor end them when it
    exits, as multiprocessing does with every daemonic process that it knows of."""
    known: set[BaseProcess] = getattr(multiprocessing.process, "_children", set())
    for resources in list(_live.values()):
        known.difference_update(resources.processes)
        for connection in (*resources.readers, *resources.tasks):
            connection.close()
    _live.clear()
    # Another thread of the parent may have been starting a worker. In the child nobody would free this lock.
    lock: Any = getattr(getattr(resource_tracker, "_resource_tracker", None), "_lock", None)
    if hasattr(lock, "_at_fork_reinit"):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delays Ctrl-C while processes start, in them too: it would interrupt them while they import."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it changes the mask, so not in between
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _terminate(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        _wait_for(process)
        if process.is_alive():
            process.kill()
            process.join()


def _wait_for(process: BaseProcess) -> None:
    """Waits for a process's end, but not longer than ``CLOSE_SECONDS``.

    A child that another thread forked while this one was started holds the pipe that ``join`` waits for.
    """
    deadline = time.monotonic() + CLOSE_SECONDS
    while process.is_alive() and time.monotonic() < deadline:
        process.join(_POLL)


def _unpickle(message: bytes) -> tuple[int, Any]:
    """A worker's message: the number of its epoch, and a batch or the end; raises the error if the worker sent one."""
    try:
        serial, content = pickle.loads(message)
    except Exception as error:  # an exception's own code decides what is raised
        raise errors.DataError(
            f"[DataLoader] expected a batch or an error from a worker process, got {one_line(error)} while reading it: "
            "use workers=0 to see the data set's own error"
        ) from error
    if isinstance(content, Failure):
        raise content.error from WorkerTraceback(content.trace)
    return serial, content
