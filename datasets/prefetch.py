"""Preparing batches in one background thread while the caller works on an earlier one.

Python handles signals only in the main thread, between any two of its instructions. So whatever must not be left half
done (starting a thread, starting and ending processes, reading their pipes) runs in other threads, and the caller only
puts into queues and takes out of them, each in one call.
"""

from __future__ import annotations

import _thread
import atexit
import os
import queue
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, cast

from alpha import errors
from alpha.datasets.dataset import Fetched
from alpha.datasets.files import one_line

CLOSE_SECONDS = 2.0
"""How long closing waits for the batch in preparation; the thread is a daemon, so the end of Python does not wait."""

_CHECK = 1.0  # seconds between looks at whether the thread still lives
_PERMIT = object()  # one more batch may be prepared

_Outcome = Fetched | BaseException | None
"""A batch, an error, or StopIteration at the end; None once the source is open."""


class Source(Protocol):
    """An iterator over batches, and the threads or processes that prepare them."""

    def __next__(self) -> Fetched: ...

    def close(self) -> None:
        """Ends the threads or processes that prepare the batches."""


Stopped = Callable[[], bool]
"""Whether the batches are no longer wanted."""


class _Channel:
    """What a Prefetcher and its thread share; a reference to the Prefetcher would keep an abandoned one alive."""

    def __init__(self, depth: int) -> None:
        self.permits: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self.abandoned: list[object] = []  # not empty: the thread is to end
        self.watches: tuple[weakref.ref[Prefetcher], ...] = ()
        self.launching = False
        self.thread: threading.Thread | None = None
        for _ in range(depth):
            self.permits.put(_PERMIT)

    def watch(self, owner: Prefetcher) -> None:
        """Ends the thread when ``owner`` is freed, and waits for its end.

        The callbacks that end it are C functions: an interrupt cannot cut them short, and ``SimpleQueue.put`` may be
        called wherever the garbage collector runs.
        """
        self.watches = (
            weakref.ref(owner, self.permits.put),
            weakref.ref(owner, self.abandoned.append),
            weakref.ref(owner, partial(self.finalize, os.getpid(), owner.close_seconds)),
        )

    def finalize(self, process: int, close_seconds: float, _owner: weakref.ref[Prefetcher]) -> None:
        """Ends the thread of an abandoned Prefetcher."""
        try:
            self.abandon()  # the other callbacks may come later
            self.watches = ()
            if process == os.getpid():
                self.join(close_seconds)
        except KeyboardInterrupt:
            # In a finalizer Python would print and forget it, so it is put off until the finalizer has ended. Signals
            # are looked for after each call, but not within this expression, nor between it and the end.
            _ = [*map(_thread.interrupt_main, (signal.SIGINT,))]

    def abandon(self) -> None:
        """Tells the thread to end."""
        self.abandoned.append(None)
        self.permits.put(None)

    def stopped(self) -> bool:
        """Whether the thread is to end."""
        return bool(self.abandoned)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs in the thread. (A thread's identifier tells less: a later thread may have it too.)"""
        return self.thread is not None and threading.current_thread() is self.thread

    def join(self, close_seconds: float) -> None:
        """Waits until the thread has ended, but not longer than ``close_seconds``."""
        deadline = time.monotonic() + close_seconds
        while self.launching and time.monotonic() < deadline:
            time.sleep(0.001)
        thread = self.thread
        # It may be the garbage collector's turn in that thread itself, and an interrupted launch leaves none.
        if thread is not None and thread.ident is not None and not self.is_own_thread:
            thread.join(max(0.0, deadline - time.monotonic()))


class Prefetcher(Iterator[Fetched]):
    """Iterates over a source in a thread, at most ``depth`` batches ahead of the caller.

    The thread ends, and closes the source, at the end of the source, at its first error (raised here, in its place in
    the order), at ``close()``, and when the Prefetcher is dropped. In a forked child, which has no such thread, closing
    and dropping do nothing.

    Args:
        open_source: makes the source, in the thread; it may look whether it is still wanted.
        depth: batches prepared ahead; with 0 each is prepared when it is asked for.
        close_seconds: how long closing waits for the thread.

    Raises:
        DataError: no thread can be started. What ``open_source`` raises.
    """

    def __init__(
        self, open_source: Callable[[Stopped], Source], depth: int, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        self._channel = channel = _Channel(depth)
        self._pid, self.close_seconds = os.getpid(), close_seconds
        self._ended = False
        channel.watch(self)
        try:
            _start(channel, open_source)
            self._receive()
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Fetched:
        if self._ended:
            raise StopIteration
        self._channel.permits.put(_PERMIT)
        return cast(Fetched, self._receive())  # None came once, when the source was opened

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the thread that prepares the batches, which would wait for itself."""
        return self._channel.is_own_thread

    def close(self) -> None:
        """Ends the thread; batches that it prepared ahead are lost."""
        self._ended = True
        self._channel.abandon()
        if self._pid == os.getpid():
            self._channel.join(self.close_seconds)
        self._channel.watches = ()

    def _receive(self) -> Fetched | None:
        """The thread's next outcome; raises it if it is an error or the end."""
        while True:
            try:
                outcome = self._channel.outcomes.get(timeout=_CHECK)
                break
            except queue.Empty:
                self._check_thread()
        if not isinstance(outcome, BaseException):
            return outcome
        try:
            self.close()
            raise outcome
        finally:
            del outcome  # its traceback refers to this frame, which must not refer back: self would live on

    def _check_thread(self) -> None:
        channel = self._channel
        if self._ended:  # another thread met the end
            raise StopIteration
        thread = channel.thread
        alive = self._pid == os.getpid() and (channel.launching or thread is None or thread.is_alive())
        if not alive and channel.outcomes.empty():
            raise errors.DataError(
                "[DataLoader] expected a batch from the background thread, got its end: use prefetch=0"
            )


def _start(channel: _Channel, open_source: Callable[[Stopped], Source]) -> None:
    channel.launching = True
    try:
        _thread.start_new_thread(_launch, (channel, open_source))
    except RuntimeError as error:
        channel.launching = False
        raise _no_thread(error) from error


def _launch(channel: _Channel, open_source: Callable[[Stopped], Source]) -> None:
    """Starts the thread, from another thread: an interrupt within ``Thread.start`` can leave its locks held."""
    try:
        channel.thread = threading.Thread(
            target=_serve, args=(channel, open_source), name="alpha-prefetch", daemon=True
        )
        channel.thread.start()
    except BaseException as error:
        channel.thread = None
        failure = _no_thread(error)
        failure.__cause__ = error
        channel.outcomes.put(failure)
    finally:
        channel.launching = False


def _no_thread(error: BaseException) -> errors.DataError:
    return errors.DataError(
        f"[DataLoader] expected to start a thread that prepares batches, got {one_line(error)}: end other threads or "
        "processes, or use workers=0 and prefetch=0"
    )


_serving: dict[int, _Channel] = {}
"""The channels of this process whose threads run, by the threads' identifiers."""


def _serve(channel: _Channel, open_source: Callable[[Stopped], Source]) -> None:
    """What the thread runs."""
    _serving[threading.get_ident()] = channel
    try:
        source = open_source(channel.stopped)
        try:
            channel.outcomes.put(None)
            while channel.permits.get() is _PERMIT and not channel.stopped():
                channel.outcomes.put(next(source))
        finally:
            source.close()
    except BaseException as error:  # whatever it is belongs to the caller
        channel.outcomes.put(error)
    finally:
        _serving.pop(threading.get_ident(), None)


def _end_all() -> None:
    """Ends all threads when Python ends: none may be in the middle of a batch then."""
    channels = list(_serving.values())
    for channel in channels:
        channel.abandon()
    deadline = time.monotonic() + CLOSE_SECONDS
    for channel in channels:
        channel.join(max(0.0, deadline - time.monotonic()))


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_serving.clear)  # their threads are the parent's
