"""What a worker process runs: it prepares the batches that it is told to, and ends with its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import random as python_random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from alpha import engines, errors, random
from alpha.datasets.epoch import AnyEpoch, EndOfSamples, sequence
from alpha.datasets.files import one_line
from alpha.datasets.worker_info import WorkerInfo, set_worker_info

_CHECK = 1.0  # seconds between looks at whether the parent still lives


@dataclass(frozen=True)
class Job:
    """What all workers of a pool are given: an epoch, alpha's global seed, and what to call first."""

    seed: int
    epoch: AnyEpoch
    init: Callable[[int], Any] | None = None


@dataclass(frozen=True)
class NextEpoch:
    """Tells a worker that the tasks after this one belong to another epoch over its data set."""

    epoch: AnyEpoch


@dataclass(frozen=True)
class Failure:
    """A worker's error, as it is sent to the caller."""

    error: BaseException
    trace: str


class End:
    """A worker has no more samples."""


def work(job: Any, worker: int, count: int, tasks: Connection, writer: Connection) -> None:
    """Prepares a batch for each task, in order, until there are no more or one fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked process would run the script's own handler
    parent = os.getppid()
    threading.Thread(target=_follow_parent, args=(parent,), daemon=True).start()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(tasks, inbox), daemon=True).start()
    serial = 0
    try:
        epoch = _prepared(job, worker, count)
        ended = False
        while (task := inbox.get()) is not None:
            if isinstance(task, Exception):
                raise task
            if isinstance(task[0], NextEpoch):
                epoch, serial, ended = _with_own(task[0].epoch, epoch), serial + 1, False
            elif not ended:
                try:
                    content: Any = epoch.prepare(task[0])
                except EndOfSamples:
                    content, ended = End(), True
                if not _send(writer, pickle.dumps((serial, content), pickle.HIGHEST_PROTOCOL)):
                    return
    except BaseException as error:  # sys.exit() too is the caller's to handle, as without workers
        _send(writer, _pickle_failure(serial, error))


def _prepared(job: Any, worker: int, count: int) -> AnyEpoch:
    """The epoch of a job, once this process is made ready for it."""
    if isinstance(job, bytes):
        job = _unpickle_job(job)
    engines.set_default_engine("cpu")  # a forked process cannot use its parent's device
    epoch: AnyEpoch = job.epoch
    seed = job.seed
    if epoch.workers_seed is not None:
        seed = epoch.workers_seed + worker
        python_random.seed(seed)
        np.random.seed(sequence(epoch.workers_seed, worker).generate_state(4))
    random.manual_seed(seed)
    set_worker_info(WorkerInfo(worker, count, seed, epoch.dataset))
    if job.init is not None:
        job.init(worker)
    return epoch


def stripped(epoch: AnyEpoch) -> AnyEpoch:
    """An epoch without what workers have already: the data set and the collate function."""
    return _replaced(epoch, None, None)


def _with_own(epoch: AnyEpoch, before: AnyEpoch) -> AnyEpoch:
    return _replaced(epoch, before.dataset, before.collate_fn)


def _replaced(epoch: AnyEpoch, dataset: Any, collate_fn: Any) -> AnyEpoch:
    made = object.__new__(type(epoch))
    made.__dict__.update({**epoch.__dict__, "dataset": dataset, "collate_fn": collate_fn})
    return made


def _receive(tasks: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    """Takes tasks out of their pipe as they come: a parent that waits to send one could not read a batch."""
    try:
        while True:
            inbox.put(tasks.recv())
    except (EOFError, OSError):
        inbox.put(None)
    except Exception as error:  # an index's own code decides what unpickling raises
        inbox.put(error)


def _follow_parent(pid: int) -> None:
    """Ends this process when its parent has ended, even in the middle of a sample that takes hours."""
    parent = multiprocessing.parent_process()
    while parent is not None and os.getppid() == pid:  # a sibling that was forked holds the pipe that join waits for
        parent.join(_CHECK)
        if not parent.is_alive():
            break
    if parent is not None:
        os._exit(1)


def _send(writer: Connection, message: bytes) -> bool:
    """Sends to the parent; returns whether it is still there to read, which it is not after kill -9."""
    try:
        writer.send_bytes(message)
    except OSError:
        return False
    return True


def _unpickle_job(job: bytes) -> Job:
    try:
        made: Job = pickle.loads(job)
    except Exception as error:
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set that a worker process can unpickle, got {one_line(error)}: define its "
            "class in a module that can be imported, not in a notebook or at the prompt, or use workers=0"
        ) from error
    return made


def _pickle_failure(serial: int, error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        message = pickle.dumps((serial, Failure(error, trace)))
        _, again = pickle.loads(message)  # some exceptions pickle but do not come back, or not as what they were
        if type(again.error) is type(error):
            return message
    except Exception:
        pass
    plain = errors.DataError(
        f"[DataLoader] expected a batch from a worker process, got {one_line(error)}: see its traceback, the cause"
    )
    return pickle.dumps((serial, Failure(plain, trace)))
