"""Transport: what carries messages between ranks."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

Pending = Callable[[], bool]
"""A message under way: says, when called, whether it is through. Until then its array stays as it is."""

_YIELDS = 200
"""How often a rank that waits gives its core to others before it sleeps between looks."""
_SLEEP_SECONDS = 50e-6


class Transport(ABC):
    """Carries arrays between ranks.

    Messages with one tag from one rank to another arrive in the order of their sending.

    Attributes:
        name: of the back-end.
        rank: this rank's number, from 0.
        size: the number of ranks.
        tags: tags are below this number.
    """

    name: str
    rank: int
    size: int
    tags: int = 1 << 15

    @abstractmethod
    def send(self, array: Array, peer: int, tag: int) -> Pending:
        """Sends a dense array to a rank."""

    @abstractmethod
    def receive(self, array: Array, peer: int, tag: int) -> Pending:
        """Receives a rank's next message into a dense array; the call, or looking at it, raises LengthError."""

    @abstractmethod
    def waiting_tag(self, peer: int) -> int | None:
        """The tag of a message from a rank that nobody here has asked for yet; None where there is none."""

    def flush(self) -> None:  # noqa: B027
        """Begins the messages that were asked for since the last call, where they are not begun one by one."""

    def room(self, like: Any, shape: Sequence[int]) -> Any:
        """Memory for messages, of an array's dtype."""
        return np.empty(shape, like.dtype)

    def running(self) -> AbstractContextManager[None]:
        """Surrounds the steps of an operation."""
        return nullcontext()

    def mark(self) -> Any:
        """What ``join`` needs to know of the operations so far."""
        return None

    def join(self, mark: Any) -> None:  # noqa: B027
        """Lets what comes next find the results of operations up to a mark."""

    def pause(self, looks: int) -> None:
        """Passes some time between two looks at messages, of which there were so many already."""
        if looks < _YIELDS:
            os.sched_yield()
        else:
            time.sleep(_SLEEP_SECONDS)

    def deserted(self, peers: Iterable[int]) -> list[int]:
        """Those ranks that send nothing more, since their programs have ended, as far as the back-end knows."""
        return []

    def abort(self, status: int) -> None:  # noqa: B027 - most back-ends have nothing to do here
        """Ends all ranks' processes with a status, where the back-end can."""

    def close(self) -> None:  # noqa: B027
        """Gives back what the back-end holds."""


class LengthError(Exception):
    """A message has another length than its receiver expected."""


class Alone(Transport):
    """One rank, which has nobody to talk to."""

    name = "alone"
    rank, size = 0, 1

    def send(self, array: Array, peer: int, tag: int) -> Pending:
        raise NotImplementedError("a rank that is alone sends nothing")

    def receive(self, array: Array, peer: int, tag: int) -> Pending:
        raise NotImplementedError("a rank that is alone receives nothing")

    def waiting_tag(self, peer: int) -> int | None:
        return None
