"""Ranks that are threads of one process: for tests, and for trying a program without MPI."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import random
from alpha.arguments import whole
from alpha.distributed.transport import Array, LengthError, Pending, Transport
from alpha.distributed.world import World, entered
from alpha.errors import ArgumentError, DistributedError, described

_WAIT_SECONDS = 0.05


class Hub:
    """What the ranks share: their messages under way, and the first error of any.

    Attributes:
        messages: by (sender, receiver), pairs of a tag and bytes in the order of sending.
        failure: rank and error, once a rank has failed.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.messages: dict[tuple[int, int], deque[tuple[int, bytes]]] = {}
        self.failure: tuple[int, BaseException] | None = None

    def fail(self, rank: int, error: BaseException) -> None:
        """Notes a rank's error, so that the others stop waiting for it."""
        with self.changed:
            self.failure = self.failure or (rank, error)
            self.changed.notify_all()


class ThreadTransport(Transport):
    """One rank's end of a hub."""

    name = "threads"
    tags = 1 << 30

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.size = hub, rank, hub.size

    def send(self, array: Array, peer: int, tag: int) -> Pending:
        with self.hub.changed:
            self.hub.messages.setdefault((self.rank, peer), deque()).append((tag, array.tobytes()))
            self.hub.changed.notify_all()
        return _is_through

    def receive(self, array: Array, peer: int, tag: int) -> Pending:
        state, target = [False], array.view()
        target.shape = (array.size,)  # an error, and no copy, where the array has gaps

        def through() -> bool:
            if not state[0]:
                data = self._taken(peer, tag)
                if data is not None:
                    if len(data) != array.nbytes:
                        raise LengthError(f"{len(data)} bytes and not {array.nbytes}")
                    target.view(np.uint8)[:] = np.frombuffer(data, np.uint8)
                    state[0] = True
            return state[0]

        return through

    def _taken(self, peer: int, tag: int) -> bytes | None:
        with self.hub.changed:
            waiting = self.hub.messages.get((peer, self.rank), deque())
            for place, (found, data) in enumerate(waiting):
                if found == tag:
                    del waiting[place]
                    return data
        return None

    def waiting_tag(self, peer: int) -> int | None:
        with self.hub.changed:
            waiting = self.hub.messages.get((peer, self.rank))
            return waiting[0][0] if waiting else None

    def pause(self, looks: int) -> None:
        with self.hub.changed:
            if self.hub.failure is not None:
                rank, error = self.hub.failure
                raise DistributedError(
                    f"[distributed] expected all ranks to go on, got {type(error).__name__} on rank {rank}: see its "
                    "error"
                )
            self.hub.changed.wait(_WAIT_SECONDS if looks else 0.0005)


def _is_through() -> bool:
    return True


def run_in_threads(function: Callable[..., Any], ranks: int, *args: Any, timeout: float = 600.0) -> list[Any]:
    """Calls ``function(*args)`` on each of several ranks, which are threads of this process; returns their results.

    In ``function`` this package's operations have these ranks, and each rank has random numbers of its own, which begin
    where this thread's are. All ranks share the engines and their threads, so this is no way to save time.

    Args:
        function: called once on each rank.
        ranks: how many.
        timeout: seconds after which an operation that some rank did not take part in is an error.

    Raises the error of the rank that failed first.
    """
    size = whole("run_in_threads", "ranks", ranks, 1)
    if not callable(function):
        raise ArgumentError(f"[run_in_threads] expected a function, got {described(function)}")
    hub, state = Hub(size), random.get_state()
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            with random.own_sequence(state), entered(World(ThreadTransport(hub, rank), timeout, "mpi")):
                results[rank] = function(*args)
        except BaseException as error:
            hub.fail(rank, error)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank-{rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hub.failure is not None:
        raise hub.failure[1]
    return results
