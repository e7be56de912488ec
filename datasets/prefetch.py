"""Preparing batches in one background thread while the caller works on an earlier one."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator

from datasets.dataset import Fetched

_PATIENCE = 2.0  # seconds that closing waits for the batch in preparation; the thread is a daemon, so exit never waits

_Outcome = Fetched | BaseException  # a batch, what went wrong, or StopIteration at the end


class Prefetcher(Iterator[Fetched]):
    """Iterates over ``source`` in a thread, at most ``depth`` batches ahead of the caller.

    ``on_close`` unblocks a ``source`` that waits for something else. The thread ends at the end of ``source``, at its
    first error (raised here, in its place in the order), at ``close()``, and when the Prefetcher is dropped.
    """

    def __init__(self, source: Iterator[Fetched], depth: int, on_close: Callable[[], None] | None = None) -> None:
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._slots = threading.Semaphore(depth)
        self._ended = False
        stop = threading.Event()
        # The thread must not refer to self: it would keep an abandoned Prefetcher, and so itself, alive.
        thread = threading.Thread(
            target=_run, args=(source, self._outcomes, self._slots, stop), name="alpha-prefetch", daemon=True
        )
        self._shut_down = weakref.finalize(self, _shut_down, thread, self._slots, stop, on_close)
        thread.start()

    def __next__(self) -> Fetched:
        if self._ended:
            raise StopIteration
        outcome = self._outcomes.get()
        if isinstance(outcome, BaseException):
            self.close()
            raise outcome
        self._slots.release()
        return outcome

    def close(self) -> None:
        """Ends the thread; batches that it prepared ahead are lost."""
        self._ended = True
        self._shut_down()


def _run(
    source: Iterator[Fetched],
    outcomes: queue.SimpleQueue[_Outcome],
    slots: threading.Semaphore,
    stop: threading.Event,
) -> None:
    """The thread: takes a free slot, then prepares one batch."""
    while True:
        slots.acquire()
        if stop.is_set():
            return
        try:
            outcomes.put(next(source))
        except BaseException as error:  # whatever it is belongs to the caller
            outcomes.put(error)
            return


def _shut_down(
    thread: threading.Thread,
    slots: threading.Semaphore,
    stop: threading.Event,
    on_close: Callable[[], None] | None,
) -> None:
    stop.set()
    slots.release()  # the thread may be waiting for one
    if on_close is not None:
        on_close()
    if thread is not threading.current_thread():  # where the garbage collector happens to run in it
        thread.join(_PATIENCE)
