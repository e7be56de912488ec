"""Preparing batches in worker processes, in order, and ending those processes whatever happens."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from alpha import errors
from datasets.dataset import Fetched
from datasets.epoch import Epoch
from datasets.files import one_line

_PATIENCE = 5.0  # seconds for a terminated process to go before it is killed


class WorkerTraceback(Exception):
    """The cause of an error from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class _Failure:
    """A worker's error on its way to the caller."""

    error: BaseException
    trace: str


class WorkerPool(Iterator[Fetched]):
    """The batches ``start, start + 1, ...`` of an epoch, prepared by ``count`` processes.

    Worker i makes every count-th batch and sends it through a pipe of its own; reading the pipes in turn gives the
    order. A full pipe stops its worker, so each holds at most one finished batch. Processes are spawned, never forked:
    a fork copies every lock as it is, also one that another of the parent's threads holds.

    Raises:
        ArgumentError: the data set cannot be pickled. DataError: a worker ended before its batch.
        Whatever the data set raises, with the worker's traceback as its cause.
    """

    def __init__(self, epoch: Epoch, start: int, count: int) -> None:
        job = _pickle_job(epoch, count)
        self._start, self._next, self._end = start, start, len(epoch)
        self._count = min(count, self._end - start)
        self._processes: list[BaseProcess] = []
        self._readers: list[Connection] = []
        # Registered before the first process starts: an interrupt in between ends those already there.
        self._shut_down = weakref.finalize(self, _terminate, self._processes)
        with _interrupts_held():
            for worker in range(self._count):
                self._launch(worker, job)

    def _launch(self, worker: int, job: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(
            target=_work,
            args=(job, self._start + worker, self._count, writer),
            name=f"alpha-worker-{worker}",
            daemon=True,
        )
        process.start()
        writer.close()  # the worker's copy is then the only one, so the pipe ends with the worker
        self._processes.append(process)
        self._readers.append(reader)

    def __next__(self) -> Fetched:
        if self._next >= self._end:
            self.close()
            raise StopIteration
        worker = (self._next - self._start) % self._count
        try:
            message: Fetched | _Failure = pickle.loads(self._readers[worker].recv_bytes())
        except (EOFError, OSError) as error:
            raise self._ended_early(worker) from error
        if isinstance(message, _Failure):
            raise message.error from WorkerTraceback(message.trace)
        self._next += 1
        return message

    def close(self) -> None:
        """Ends all workers and waits until they are gone."""
        self._shut_down()

    def _ended_early(self, worker: int) -> errors.DataError:
        process = self._processes[worker]
        process.join(_PATIENCE)
        return errors.DataError(
            f"[DataLoader] expected batch {self._next} from worker process {worker}, got its end (exit code "
            f"{process.exitcode}): guard the script's start with if __name__ == '__main__', look for a lack of memory, "
            "or use workers=0"
        )


def _pickle_job(epoch: Epoch, count: int) -> bytes:
    """What a worker needs: alpha's global seed, for data sets that look at it, and the epoch."""
    from alpha import random  # here: alpha's packages may be importing this one

    try:
        return pickle.dumps((random.seed(), epoch), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # user code decides what pickling raises
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set that can be pickled for workers={count}, got {one_line(error)}: define "
            "its class, functions and transforms at the top of a module, or use workers=0"
        ) from error


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits while processes start, and they inherit that: else it would hit them while they still import."""
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
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


def _work(job: bytes, first: int, step: int, writer: Connection) -> None:
    """A worker process: every step-th batch from ``first`` on, until the end or the first error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends this process
    for message in _messages(job, first, step):
        try:
            writer.send_bytes(message)
        except OSError:  # the parent has gone, even by kill -9
            return


def _messages(job: bytes, first: int, step: int) -> Iterator[bytes]:
    from alpha import random

    try:
        seed, epoch = pickle.loads(job)
        random.manual_seed(seed)
        for batch in range(first, len(epoch), step):
            yield pickle.dumps(epoch.prepare(batch), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        yield _pickle_failure(error)


def _pickle_failure(error: Exception) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        message = pickle.dumps(_Failure(error, trace))
        pickle.loads(message)  # some exceptions pickle but do not come back
    except Exception:
        plain = errors.DataError(
            f"[DataLoader] expected a batch from a worker process, got {one_line(error)}: see its traceback, the cause"
        )
        return pickle.dumps(_Failure(plain, trace))
    return message
