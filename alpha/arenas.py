"""Arenas: memory for work that was observed once and will ask for the same again, laid out ahead.

Who knows how long each block lives can place blocks so that those that live at different times share addresses, and
needs little more than what lives at once. Observing says only where a block would be best; whether it is free there is
checked when it is lent, so work that asks for something else is served from elsewhere, and is right.
"""

from __future__ import annotations

import threading
import weakref
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha import host
from alpha.errors import OutOfMemoryError
from alpha.mempool import GRAIN, SMALL, Block, Loan, MemoryPool, Segment
from alpha.tensor import Storage

SMALLEST = SMALL
"""Fewest bytes of a block that is laid out ahead; the others take next to no room."""

FOREVER = 1 << 62
"""The event at which a block comes back that lives on."""


@dataclass
class Request:
    """A block that was asked for, and when.

    Attributes:
        nbytes: of the block, a multiple of GRAIN.
        first, last: numbers of the events at which it was lent and came back.
    """

    nbytes: int
    first: int
    last: int = FOREVER


class Observer:
    """Notes how long the large blocks live that a thread asks for.

    Attributes:
        requests: in their order.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._events = 0
        self._thread = threading.get_ident()
        self._living: dict[int, weakref.ref[Storage]] = {}

    def note(self, storage: Storage) -> None:
        """Takes notice of a new storage."""
        if storage.nbytes < SMALLEST or threading.get_ident() != self._thread:
            return
        request, number, living = Request(rounded(storage.nbytes), self._next()), len(self.requests), self._living
        self.requests.append(request)

        def ended(_: weakref.ref[Storage]) -> None:
            request.last = self._next()
            living.pop(number, None)

        living[number] = weakref.ref(storage, ended)

    def _next(self) -> int:
        self._events += 1
        return self._events

    def stop(self) -> None:
        """What lives now lives for good."""
        self._living.clear()


def place(requests: Sequence[Request], taken: Iterable[tuple[int, int]] = ()) -> tuple[list[int], int]:
    """Offsets for requests such that no two overlap that live at one time, and the end of the last.

    They are placed one after another, each at the lowest offset that is free for all of its life, in the best of three
    orders: of Pisarchyk and Lee, "Efficient memory management for deep neural net inference", arXiv 2001.03288, that by
    size; beside it those by size times life, and by the end of life.

    Args:
        taken: (begin, end) of what is in use at all times.
    """
    end = max([1, *(request.first for request in requests), *(r.last for r in requests if r.last < FOREVER)])

    def life(request: Request) -> int:
        return min(request.last, 2 * end) - request.first  # what lives on counts for more

    orders: tuple[Callable[[Request], Any], ...] = (
        lambda request: -request.nbytes * life(request),
        lambda request: (-request.nbytes, request.first),
        lambda request: -request.last,
    )
    fixed = sorted(taken)
    return min((_placed(requests, fixed, order) for order in orders), key=lambda found: found[1])


def _placed(
    requests: Sequence[Request], taken: list[tuple[int, int]], order: Callable[[Request], Any]
) -> tuple[list[int], int]:
    """Offsets of requests that are placed in an order."""
    offsets = [0] * len(requests)
    placed = [(begin, end, -1, FOREVER + 1) for begin, end in taken]
    end = 0
    for number in sorted(range(len(requests)), key=lambda one: order(requests[one])):
        request, offset = requests[number], 0
        for begin, there, first, last in placed:  # by their begin
            if first < request.last and request.first < last:
                if begin - offset >= request.nbytes:
                    break
                offset = max(offset, there)
        offsets[number] = offset
        insort(placed, (offset, offset + request.nbytes, request.first, request.last))
        end = max(end, offset + request.nbytes)
    return offsets, end


class Arena:
    """A block of a pool that is cut up as a plan says.

    Args:
        block, loan: the memory.
        nbytes: that were asked for; the block may have more.
        is_on_host: whether the host reaches the memory, and loans are the bytes of their blocks.
    """

    def __init__(self, block: Block, loan: Loan, nbytes: int, is_on_host: bool = False) -> None:
        self.nbytes = nbytes
        self._loan = loan
        self._memory = host.memory_of(loan) if is_on_host else None
        self._segment = Segment(block.address, block.nbytes, False)
        self._planned: dict[int, list[int]] = {}
        self._live: dict[int, tuple[int, int, weakref.ref[Loan]]] = {}
        self._lent = 0

    def taken(self) -> list[tuple[int, int]]:
        """What is in use now, as (begin, end)."""
        return [(begin, end) for begin, end, _ in list(self._live.values())]

    def follow(self, requests: Sequence[Request], offsets: Sequence[int]) -> None:
        """From now on lends blocks at these offsets: those of one size in their order."""
        self._planned = {}
        for request, offset in reversed(list(zip(requests, offsets, strict=True))):
            self._planned.setdefault(request.nbytes, []).append(offset)

    def lend(self, nbytes: int) -> tuple[Block, Loan] | None:
        """The next planned block of a size, and its loan; None where there is none, or where it is not free."""
        size = rounded(nbytes)
        planned = self._planned.get(size)
        if not planned:
            return None
        begin = planned.pop()
        end = begin + size
        if end > self.nbytes or any(begin < there and here < end for here, there, _ in list(self._live.values())):
            return None
        self._lent += 1
        number, loan = self._lent, np.empty(0) if self._memory is None else host.view(self._memory, begin, size)
        live = self._live
        live[number] = begin, end, weakref.ref(loan, lambda _: live.pop(number, None))
        return Block(self._segment, self._segment.address + begin, size), loan


def rounded(nbytes: int) -> int:
    """A request's bytes in an arena, in which what lies behind a block may be read too."""
    return (nbytes + GRAIN - 1) & -GRAIN


class PrivatePool(MemoryPool):
    """Blocks that only captured work uses, so that a replay overwrites nobody's: its segments are blocks of a pool.

    That pool counts them as in use, and gets them back as they fall free once the captures are gone. Large blocks come
    from an arena where an observation of the same work says where they go.
    """

    def __init__(self, owner: MemoryPool) -> None:
        self._owner = owner
        self._arenas: list[Arena] = []
        self._arena: Arena | None = None  # of the capture that goes on
        view = host.view if owner.is_on_host else None
        super().__init__(1 << 62, self._borrow, view=view)  # the owner's cap is the one that holds

    @contextmanager
    def planned(self, requests: list[Request]) -> Iterator[None]:
        """``with pool.planned(requests):`` the work of the block makes these requests, most likely."""
        self._arena = self._prepared(requests) if requests else None
        try:
            yield
        finally:
            self._arena = None

    def _prepared(self, requests: list[Request]) -> Arena:
        """An arena for requests: one that there is, if it is large enough."""
        for arena in self._arenas:
            offsets, end = place(requests, arena.taken())
            if end <= arena.nbytes:
                break
        else:
            offsets, end = place(requests)
            self._owner.release_cached()  # what the work has left there, and most likely in other pieces than one
            with self._saying_for_what(end), self._apart_from_work():
                arena = Arena(*self._owner.lend(end), end, self.is_on_host)
            self._arenas.append(arena)
        arena.follow(requests, offsets)
        return arena

    def _apart_from_work(self) -> AbstractContextManager[None]:
        """Within it the owner lends what is kept long; on the host its memory grows in one piece."""
        return nullcontext() if self.is_on_host else self._owner.apart()

    def _borrow(self, nbytes: int) -> tuple[int, object]:
        with self._apart_from_work():
            block, loan = self._owner.lend(nbytes)
        return block.address, host.memory_of(loan) if self.is_on_host else loan

    def lend(self, nbytes: int, collected: bool = False) -> tuple[Block, Loan]:
        planned = self._arena.lend(nbytes) if self._arena is not None else None
        if planned is not None:
            return planned
        with self._saying_for_what(nbytes):
            return super().lend(nbytes, collected)

    @contextmanager
    def _saying_for_what(self, nbytes: int) -> Iterator[None]:
        try:
            yield
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"[graph] expected room for {nbytes} bytes of a captured step, got {self._owner}: use a smaller batch, "
                "or raise the engine's memory="
            ) from error
