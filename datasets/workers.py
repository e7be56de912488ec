"""Preparing batches in worker processes, in order, and ending those processes whatever happens."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, cast

from alpha import errors, random
from alpha.datasets.dataset import Fetched
from alpha.datasets.epoch import Epoch
from alpha.datasets.files import one_line

CLOSE_SECONDS = 5.0
"""How long a terminated process may take to end before it is killed."""

_POLL = 0.02  # seconds between looks at whether the batches are still wanted


class WorkerTraceback(Exception):
    """The cause of an error from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class _Failure:
    """A worker's error, as it is sent to the caller."""

    error: BaseException
    trace: str


class _Resources:
    """What a pool has to free, and the process that may free it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.processes: list[BaseProcess] = []
        self.readers: list[Connection] = []


_live: dict[int, _Resources] = {}
"""The resources of this process's pools, by their identity."""


class WorkerPool(Iterator[Fetched]):
    """The batches ``start, start + 1, ...`` of an epoch, prepared by ``count`` processes.

    Worker i makes every count-th batch and sends it through a pipe of its own; reading the pipes in turn gives the
    order. A full pipe stops its worker, so each holds at most one finished batch. Processes are spawned, never forked:
    a fork copies every lock as it is, also one that another of the parent's threads holds.

    An interrupt in the middle of reading loses bytes, so the loader uses a pool in a thread, where none comes.
    ``stopped`` is looked at while starting and waiting: where it is true the pool ends.

    Raises:
        ArgumentError: the data set cannot be pickled. DataError: a worker cannot be started, or ended before its batch.
        Whatever the data set raises, with the worker's traceback as its cause.
    """

    def __init__(self, epoch: Epoch, start: int, count: int, stopped: Callable[[], bool] = bool) -> None:
        job = _pickle_job(epoch, count)
        self._start, self._next, self._end = start, start, len(epoch)
        self._count = min(count, self._end - start)
        self._stopped = stopped
        self._resources = _Resources()
        # Registered before the first process starts: an interrupt in between ends those already there.
        self._shut_down = weakref.finalize(self, _release, self._resources)
        _live[id(self._resources)] = self._resources
        try:
            with _interrupts_held():
                for worker in range(self._count):
                    if not stopped():
                        self._launch(worker, job)
        except BaseException:
            self.close()
            raise

    def _launch(self, worker: int, job: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        try:
            reader, writer = context.Pipe(duplex=False)
            self._resources.readers.append(reader)
            with writer:  # closed here, the worker's copy is the only one, so the pipe ends with the worker
                process = context.Process(
                    target=_work,
                    args=(job, self._start + worker, self._count, writer),
                    name=f"alpha-worker-{worker}",
                    daemon=True,
                )
                self._resources.processes.append(process)
                process.start()
        except (OSError, AssertionError) as error:  # AssertionError: a daemonic process may have no children
            raise errors.DataError(
                f"[DataLoader] expected to start worker process {worker} of {self._count}, got {one_line(error)}: use "
                "fewer workers, or workers=0; end other processes, or raise the limits on processes and open files"
            ) from error

    def __next__(self) -> Fetched:
        if self._next >= self._end or self._stopped():
            self.close()
            raise StopIteration
        worker = (self._next - self._start) % self._count
        reader = self._resources.readers[worker]
        try:
            while not reader.poll(_POLL):
                if self._stopped():
                    self.close()
                    raise StopIteration
                # Another thread may have forked while this worker was started. The child holds its pipe open.
                if not self._resources.processes[worker].is_alive() and not reader.poll():
                    raise EOFError
            message = reader.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._ended_early(worker) from error
        batch = _unpickle(message)
        self._next += 1
        return batch

    def close(self) -> None:
        """Ends all workers and waits until they have ended; does nothing in a forked child, which has no workers."""
        self._shut_down()

    def _ended_early(self, worker: int) -> errors.DataError:
        process = self._resources.processes[worker]
        process.join(CLOSE_SECONDS)
        return errors.DataError(
            f"[DataLoader] expected batch {self._next} from worker process {worker}, got its end (exit code "
            f"{process.exitcode}): guard the script's start with if __name__ == '__main__', look for a lack of memory, "
            "or use workers=0"
        )


def _release(resources: _Resources) -> None:
    if resources.owner == os.getpid():
        _terminate([process for process in resources.processes if process.pid is not None])
    for reader in resources.readers:
        reader.close()
    resources.processes.clear()
    _live.pop(id(resources), None)


def _disown() -> None:
    """In a forked child: the workers are the parent's. The child must not hold their pipes open, nor end them when it
    exits, as multiprocessing does with every daemonic process that it knows of."""
    known: set[BaseProcess] = getattr(multiprocessing.process, "_children", set())
    for resources in list(_live.values()):
        known.difference_update(resources.processes)
        for reader in resources.readers:
            reader.close()
    _live.clear()
    # Another thread of the parent may have been starting a worker. In the child nobody would free this lock.
    lock: Any = getattr(getattr(resource_tracker, "_resource_tracker", None), "_lock", None)
    if hasattr(lock, "_at_fork_reinit"):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def _pickle_job(epoch: Epoch, count: int) -> bytes:
    """Pickles what a worker needs: alpha's global seed, for data sets that use it, and the epoch."""
    try:
        return pickle.dumps((random.seed(), epoch), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # user code decides what pickling raises
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set that can be pickled for workers={count}, got {one_line(error)}: define "
            "its class, functions and transforms at the top of a module, or use workers=0"
        ) from error


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
        process.join(CLOSE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _unpickle(message: bytes) -> Fetched:
    """Unpickles a worker's batch; raises the error if the worker sent one."""
    try:
        content: Fetched | _Failure = pickle.loads(message)
    except Exception as error:  # an exception's own code decides what is raised
        raise errors.DataError(
            f"[DataLoader] expected a batch or an error from a worker process, got {one_line(error)} while reading it: "
            "use workers=0 to see the data set's own error"
        ) from error
    if isinstance(content, _Failure):
        raise content.error from WorkerTraceback(content.trace)
    return content


def _work(job: bytes, first: int, step: int, writer: Connection) -> None:
    """A worker process: every step-th batch from ``first`` on, until the end or the first error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends this process
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        epoch = _unpickle_job(job)
        for batch in range(first, len(epoch), step):
            if not _send(writer, pickle.dumps(epoch.prepare(batch), pickle.HIGHEST_PROTOCOL)):
                return
    except BaseException as error:  # sys.exit() too is the caller's to handle, as without workers
        _send(writer, _pickle_failure(error))


def _follow_parent() -> None:
    """Ends this process when its parent has ended, even in the middle of a sample that takes hours."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send(writer: Connection, message: bytes) -> bool:
    """Sends to the parent; returns whether it is still there to read, which it is not after kill -9."""
    try:
        writer.send_bytes(message)
    except OSError:
        return False
    return True


def _unpickle_job(job: bytes) -> Epoch:
    try:
        seed, epoch = pickle.loads(job)
    except Exception as error:
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set that a worker process can unpickle, got {one_line(error)}: define its "
            "class in a module that can be imported, not in a notebook or at the prompt, or use workers=0"
        ) from error
    random.manual_seed(seed)
    return cast(Epoch, epoch)


def _pickle_failure(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        message = pickle.dumps(_Failure(error, trace))
        again = pickle.loads(message)  # some exceptions pickle but do not come back, or not as what they were
        if type(again.error) is type(error):
            return message
    except Exception:
        pass
    plain = errors.DataError(
        f"[DataLoader] expected a batch from a worker process, got {one_line(error)}: see its traceback, the cause"
    )
    return pickle.dumps(_Failure(plain, trace))
