"""MemoryPool: blocks of an engine's memory under a hard cap, reused, counted."""

from __future__ import annotations

import gc
import re
import weakref
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.errors import ArgumentError, OutOfMemoryError
from alpha.locks import RobustLock

Loan = np.ndarray[Any, Any]
"""Who holds it has a block. An empty array: the garbage collector does not track arrays, so that one dies with its last
reference, after the finalizers of whatever held it; weak references to what it tracks are cleared before those."""

_new_loan = np.empty

GRAIN = 512
"""Bytes to which every request is rounded: also the alignment of a block within its segment."""

SLACK = 128
"""Bytes after every request that a kernel may read (never write): loads of a panel may run over the end of a row."""

SMALL = 1 << 20
"""Requests below this share segments of ``SMALL_SEGMENT`` bytes; larger ones get segments of their own size."""

SMALL_SEGMENT = 2 << 20

REST = 256 << 10
"""Least bytes that are split off a block of a segment that grows: they merge again with what falls free beside them."""

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_bytes(text: str | int) -> int:
    """Bytes of ``"8GB"``, ``"512 MiB"``, ``"1.5G"`` or an int; units are powers of 1024."""
    if isinstance(text, int) and not isinstance(text, bool):
        size = text
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)(I?B)?\s*", str(text).upper())
        try:
            size = int(float(match[1]) * _UNITS[match[2] + "B" if match[2] else ""]) if match else -1
        except ValueError:
            size = -1
    if size <= 0:
        raise ArgumentError(f'[memory] expected a size such as "8GB", "512MB" or a number of bytes, got {text!r}')
    return size


def format_bytes(size: int) -> str:
    """``1536 -> "1.5 KiB"``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


class Segment:
    """One allocation from the engine, cut into blocks that lie end to end.

    It may be the beginning of a reservation of ``room`` bytes, in which it grows. ``gone`` of its bytes belong to
    blocks whose memory was given back before the rest; nothing is put there again.
    """

    __slots__ = ("address", "gone", "last", "nbytes", "room", "small")

    def __init__(self, address: int, nbytes: int, small: bool, room: int = 0) -> None:
        self.address, self.nbytes, self.small, self.room = address, nbytes, small, room
        self.gone = 0
        self.last: Block | None = None  # the block at the end of one that grows


class Block:
    """A piece of a segment: in use, or free and waiting in the pool."""

    __slots__ = ("address", "free", "nbytes", "next", "previous", "segment")

    def __init__(self, segment: Segment, address: int, nbytes: int) -> None:
        self.segment, self.address, self.nbytes = segment, address, nbytes
        self.free = False
        self.previous: Block | None = None
        self.next: Block | None = None

    @property
    def whole(self) -> bool:
        """Whether the block is all of its segment."""
        return self.previous is None and self.next is None


class _Lease(weakref.ref[Loan]):
    """A block in use, and a weak reference to the loan, whose end puts this among the returned ones by a C call."""

    __slots__ = ("block",)
    block: Block

    # Leases are told apart by themselves: arrays have no hash, and their comparison is another thing.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@dataclass(frozen=True)
class MemoryStatistics:
    """A pool's figures at one moment, in bytes; printable."""

    cap: int
    in_use: int
    held: int
    peak: int
    requests: int
    hits: int

    def __str__(self) -> str:
        share = f"{self.hits / self.requests:.1%}" if self.requests else "none"
        return (
            f"in use {format_bytes(self.in_use)}, held {format_bytes(self.held)}, peak {format_bytes(self.peak)}, "
            f"cap {format_bytes(self.cap)}, hits {self.hits} of {self.requests} ({share})"
        )


class MemoryPool:
    """Segments that are kept for reuse, cut into blocks that split and merge, under a cap on all that is held.

    Small blocks go round by size alone as long as that serves: they are merged when one of another size is asked for.

    ``in_use`` counts what tensors hold, ``held`` all that the pool has from the engine, ``peak`` the largest
    ``in_use``, ``hits`` the requests served without the engine. Exhaustion climbs a ladder: free the unused segments,
    then collect Python's garbage, then raise OutOfMemoryError with the figures; the pool stays usable.

    It survives being interrupted between any two instructions: what is in use is known by the loans that are alive, and
    the lists are made anew from that and the segments where a change was begun and not finished. A signal handler or a
    finalizer that asks for memory while its own thread is in the midst of a change gets a segment of its own.

    Args:
        cap: most bytes that may be held; ``"8GB"`` or an int.
        allocate: bytes -> (address, handle); may raise MemoryError. The handle keeps the memory alive.
        release: called with the handle when a segment is given back.
        reserve: bytes -> (address, handle, room), or None where it cannot: a place for large blocks in which the
            segment may grow to ``room`` bytes; what is not used yet takes no memory. In one place neighbours merge that
            in segments of their own would wait for requests of their sizes: less is held for the same use.
        discard: called with (handle, address, bytes) to give back memory within a reservation.
    """

    def __init__(
        self,
        cap: str | int,
        allocate: Callable[[int], tuple[int, object]],
        release: Callable[[object], None] | None = None,
        reserve: Callable[[int], tuple[int, object, int] | None] | None = None,
        discard: Callable[[object, int, int], None] | None = None,
    ) -> None:
        self._cap = parse_bytes(cap)
        self._allocate = allocate
        self._release = release
        self._reserve = reserve
        self._discard = discard
        self._growing: Segment | None = None
        self._lock = RobustLock(*_HOLDERS)
        self._changing = False  # whether a change was begun: seen by who has the lock, it was interrupted
        self._segments: dict[Segment, object] = {}  # with the handles of their memory
        self._leases: set[_Lease] = set()
        self._taken: dict[Block, Loan] = {}  # loans of those who give their blocks back themselves
        # Loans end wherever references are dropped, in the midst of a change too: who comes next sorts their blocks in.
        self._returned: deque[_Lease] = deque()
        self._end_lease = self._returned.append
        self._adopted: deque[tuple[_Lease, object]] = deque()  # of segments made in the midst of a change, with handles
        self._free: list[tuple[int, int, Block]] = []
        # Small blocks wait by size, unmerged: most requests of a step are small, and the next step's are the same.
        self._small: dict[int, list[Block]] = {}
        self._in_use = self._held = self._peak = self._requests = self._hits = 0

    @property
    def cap(self) -> int:
        """Most bytes the pool may hold."""
        return self._cap

    @cap.setter
    def cap(self, value: str | int) -> None:
        cap = parse_bytes(value)
        if cap < self._held:
            self.release_cached()
        if cap < self._held:
            raise ArgumentError(
                f"[memory] expected a cap of at least the {format_bytes(self._held)} held, got "
                f"{format_bytes(cap)}: drop tensors first"
            )
        self._cap = cap

    @property
    def in_use(self) -> int:
        """Bytes that live tensors hold."""
        return self.statistics().in_use

    @property
    def held(self) -> int:
        """Bytes taken from the engine: in use and cached."""
        return self._held

    @property
    def peak(self) -> int:
        """Largest ``in_use`` since the start or ``reset_peak()``."""
        return self._peak

    @property
    def hits(self) -> int:
        """Requests served from what was held already."""
        return self._hits

    @property
    def requests(self) -> int:
        """Requests in all."""
        return self._requests

    def statistics(self) -> MemoryStatistics:
        """The figures at this moment."""
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return self._figures()
        try:
            self._begin()
            self._sort_in()
            self._changing = False
            return self._figures()
        finally:
            mutex.release()

    def _figures(self) -> MemoryStatistics:
        return MemoryStatistics(self._cap, self._in_use, self._held, self._peak, self._requests, self._hits)

    def __str__(self) -> str:
        return str(self.statistics())

    def __repr__(self) -> str:
        return f"<MemoryPool {self}>"

    def reset_peak(self) -> None:
        """Starts ``peak`` again from what is in use, and ``hits`` of ``requests`` from zero."""
        self._peak, self._requests, self._hits = self.statistics().in_use, 0, 0

    def lend(self, nbytes: int, collected: bool = False) -> tuple[Block, Loan]:
        """A block of at least ``nbytes`` + SLACK bytes, aligned to GRAIN, and the loan: once nobody holds that any
        more, the block is the pool's again. OutOfMemoryError beyond the cap; ``collected``: without a last attempt
        after a garbage collection."""
        size = (nbytes + SLACK + GRAIN - 1) // GRAIN * GRAIN
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return self._lend_aside(nbytes, size)
        try:
            if self._changing:
                self._recover()
            self._changing = True
            self._requests += 1
            block = self._dropped_last(size) if self._returned else None
            if block is None:
                block = self._found(size)
                if block is not None:
                    self._in_use = in_use = self._in_use + block.nbytes
                    if in_use > self._peak:  # noqa: PLR1730  (max() costs a call)
                        self._peak = in_use
            if block is not None:
                loan = _new_loan(0)
                lease = _Lease(loan, self._end_lease)
                lease.block = block
                self._leases.add(lease)
                self._changing = False
                return block, loan
            self._changing = False
        except MemoryError as error:  # Python's own: of a list, say
            raise self._exhausted(nbytes) from error
        finally:
            mutex.release()
        if collected:
            raise self._exhausted(nbytes)
        del lock  # which is free again: finalizers may use the pool
        gc.collect()
        return MemoryPool.lend(self, nbytes, True)

    def _exhausted(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"[memory] expected room for {nbytes} bytes ({format_bytes(nbytes)}), got {self._figures()}: use a smaller "
            "batch, raise the engine's memory=, or drop tensors that are no longer needed"
        )

    def _lend_aside(self, nbytes: int, size: int) -> tuple[Block, Loan]:
        """A segment of its own for who interrupted a change: the lists are not touched. Later it joins the others."""
        if self._held + size > self._cap:
            raise self._exhausted(nbytes)
        try:
            address, handle = self._allocate(size)
        except MemoryError as error:
            raise self._exhausted(nbytes) from error
        loan = _new_loan(0)
        lease = _Lease(loan, self._end_lease)
        lease.block = Block(Segment(address, size, size < SMALL), address, size)
        self._adopted.append((lease, handle))
        return lease.block, loan

    def take(self, nbytes: int) -> Block:
        """A block as by ``lend``, in use until it is given back with ``give``."""
        block, loan = self.lend(nbytes)
        try:
            self._taken[block] = loan
            return block
        except BaseException:  # an interrupt: nobody knows of the block
            self._taken.pop(block, None)
            raise

    def give(self, block: Block) -> None:
        """Takes back a block from ``take``. Safe from any thread and from a finalizer."""
        if self._taken.pop(block, None) is None:
            raise ArgumentError("[memory] expected a block that was taken from this pool, got one that is not in use")

    def _dropped_last(self, size: int) -> Block | None:
        """The block that was returned last, if it is of the size: what a loop drops is what it asks for next."""
        lease = self._returned.pop()
        if lease in self._leases and lease.block.nbytes == size < SMALL:
            self._leases.discard(lease)
            self._hits += 1
            return lease.block
        self._returned.append(lease)
        return None

    def _found(self, size: int) -> Block | None:
        """A free block of the size, from the lists or from the engine; None if there is none."""
        if self._returned or self._adopted:
            self._sort_in()
        waiting = self._small.get(size)
        if waiting:
            block = waiting.pop()
        else:
            fit = self._merged_fit(size)
            if fit is None:
                return self._grow(size)
            block = self._cut(fit, size)
        self._hits += 1
        return block

    def release_cached(self) -> int:
        """Gives every wholly free segment back to the engine; returns the bytes given back."""
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return 0
        try:
            self._begin()
            self._sort_in()
            released = self._release_idle()
            self._changing = False
            return released
        finally:
            mutex.release()

    def _begin(self) -> None:
        """Begins a change, after undoing one that was not finished; the lock is held."""
        if self._changing:
            self._recover()
        self._changing = True

    def _recover(self) -> None:
        """Makes the lists anew from the segments and from what is in use; where interrupted, it is done again."""
        self._adopt()
        used: set[Block] = set()
        for lease in self._leases.copy():
            if lease() is None:
                self._leases.discard(lease)
            else:
                used.add(lease.block)
        self._free, self._small = [], {}
        blocks: defaultdict[Segment, list[Block]] = defaultdict(list)
        for block in used:
            blocks[block.segment].append(block)
        for segment in self._segments:
            self._rebuild(segment, sorted(blocks[segment], key=lambda block: block.address))
        self._held = sum(segment.nbytes for segment in self._segments)
        self._in_use = sum(block.nbytes for block in used)
        if self._growing not in self._segments:
            self._growing = None
        if self._held > self._cap:  # what had been given back within a reservation counts as free again
            self._release_idle()

    def _rebuild(self, segment: Segment, used: Iterable[Block]) -> None:
        """Chains a segment's blocks in use, in order of their addresses, with free ones between them."""
        segment.last, segment.gone = None, 0
        previous: Block | None = None
        end = segment.address
        for block in (*used, None):
            start = segment.address + segment.nbytes if block is None else block.address
            between = []
            if start > end:
                gap = Block(segment, end, start - end)
                gap.free = True
                insort(self._free, (gap.nbytes, gap.address, gap))
                between.append(gap)
            for following in (*between, block):
                if following is not None:
                    following.previous, following.next = previous, None
                    if previous is not None:
                        previous.next = following
                    previous, end = following, following.address + following.nbytes
        if segment.room:
            segment.last = previous

    def _release_idle(self) -> int:
        self._merge_small()
        waiting, self._free = self._free, []
        before = self._held
        for entry in waiting:
            block = entry[2]
            if block.whole:
                self._drop(block.segment)
            elif block.segment.room:
                self._abandon(block)
            else:
                self._free.append(entry)
        return before - self._held

    def _abandon(self, block: Block) -> None:
        """Gives back the memory of a free block in the midst of a reservation; the last one ends the reservation."""
        segment, block.free = block.segment, False
        segment.gone += block.nbytes
        self._held -= block.nbytes
        if segment.gone == segment.nbytes:
            self._drop(segment)
        elif self._discard is not None:
            self._discard(self._segments[segment], block.address, block.nbytes)

    def _sort_in(self) -> None:
        """Puts returned blocks among the free ones; the lock is held."""
        if self._adopted:
            self._adopt()
        returned, leases = self._returned, self._leases
        while returned:
            lease = returned.popleft()
            if lease in leases:
                leases.discard(lease)
                self._put_back(lease.block)

    def _put_back(self, block: Block) -> None:
        size = block.nbytes
        self._in_use -= size
        if size >= SMALL:
            self._merge_in(block)
        elif size in self._small:
            self._small[size].append(block)
        else:
            self._small[size] = [block]

    def _adopt(self) -> None:
        """Counts the segments that were made in the midst of a change."""
        while self._adopted:
            lease, handle = self._adopted[0]
            segment = lease.block.segment
            if segment not in self._segments:
                self._leases.add(lease)
                self._segments[segment] = handle
                self._held += segment.nbytes
                self._in_use += segment.nbytes
            self._adopted.popleft()

    def _merge_small(self) -> None:
        """Puts the small blocks that wait by size among the free ones."""
        while self._small:
            for block in self._small.popitem()[1]:
                self._merge_in(block)

    def _merge_in(self, block: Block) -> None:
        """Puts a block among the free ones, merged with free neighbours."""
        block.free = True
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.free:
                self._remove(neighbour)
                block = self._merge(block, neighbour)
        insort(self._free, (block.nbytes, block.address, block))

    def _merged_fit(self, size: int) -> Block | None:
        """The best fit after small blocks, if they are what is asked for, have been merged."""
        if size < SMALL:
            self._merge_small()
        return self._fit(size)

    def _fit(self, size: int) -> Block | None:
        """The smallest free block that serves; where segments grow, the first in memory, so that their ends stay free.

        Small and large requests keep to their own segments, so that a stray scalar never pins a large one.
        """
        small, found = size < SMALL, -1
        for index in range(bisect_left(self._free, (size, 0)), len(self._free)):
            block = self._free[index][2]
            if block.segment.small == small and (found < 0 or block.address < self._free[found][1]):
                found = index
                if small or self._growing is None:
                    break
        if found < 0:
            return None
        block = self._free.pop(found)[2]
        block.free = False
        return block

    def _grow(self, size: int) -> Block | None:
        """A block in memory that the pool did not hold; idle segments go if the cap asks for it. None beyond it."""
        small = size < SMALL
        segment_size = SMALL_SEGMENT if small else size
        for relieved in (False, True):
            if relieved:
                self._release_idle()
                # What was merged on the way may serve the request without the engine.
                block = self._merged_fit(size)
                if block is not None:
                    return self._cut(block, size)
            block = None if small else self._lengthen(size)
            if block is not None:
                return self._cut(block, size)
            # Near the cap a small request takes a segment of its own size.
            for wanted in dict.fromkeys((segment_size, size)):
                block = self._new_segment(wanted, small) if self._held + wanted <= self._cap else None
                if block is not None:
                    return self._cut(block, size)
        return None

    def _cut(self, block: Block, size: int) -> Block:
        """The block, without what it has to spare."""
        if self._splits(block, size):
            self._split(block, size)
        return block

    def _new_segment(self, size: int, small: bool) -> Block | None:
        """A segment from the engine, as one block; None where the engine has no memory."""
        segment = handle = None
        try:
            try:
                place = None if small or self._reserve is None else self._reserve(size)
                address, handle, room = (*self._allocate(size), 0) if place is None else place
            except MemoryError:
                return None
            segment = Segment(address, size, small, room)
            self._segments[segment] = handle
        except BaseException:  # an interrupt
            if handle is not None and segment not in self._segments and self._release is not None:
                self._release(handle)
            raise
        self._held += size
        block = Block(segment, address, size)
        if room:
            self._growing, segment.last = segment, block
        return block

    def _lengthen(self, size: int) -> Block | None:
        """A block at the end of the segment that grows, of its last block's memory if that is free, and of new."""
        segment = self._growing
        last = None if segment is None else segment.last
        if segment is None or last is None:
            return None
        needed = size - (last.nbytes if last.free else 0)
        left = min(segment.room - segment.nbytes, self._cap - self._held)
        # Somewhat more, where there is room: the end is not touched before it is used, and soon nothing is asked for.
        more = min(max(needed, segment.nbytes // 16), left) // GRAIN * GRAIN
        if more < needed:
            return None
        if last.free:
            self._remove(last)
            last.free = False
            last.nbytes += more
        else:
            block = Block(segment, segment.address + segment.nbytes, more)
            self._link(last, block)
            last = segment.last = block
        segment.nbytes += more
        self._held += more
        return last

    @staticmethod
    def _splits(block: Block, size: int) -> bool:
        # A large block keeps a small rest to itself: splitting it would leave slivers that only small requests fit.
        segment = block.segment
        return block.nbytes - size >= (GRAIN if segment.small else REST if segment.room else SMALL)

    @staticmethod
    def _link(first: Block, second: Block | None) -> None:
        first.next = second
        if second is not None:
            second.previous = first
        elif first.segment.room:
            first.segment.last = first

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.segment, block.address + size, block.nbytes - size)
        self._link(rest, block.next)
        self._link(block, rest)
        block.nbytes = size
        rest.free = True
        insort(self._free, (rest.nbytes, rest.address, rest))

    def _merge(self, first: Block, second: Block) -> Block:
        low, high = (first, second) if first.address < second.address else (second, first)
        low.nbytes += high.nbytes
        self._link(low, high.next)
        low.free = True
        return low

    def _remove(self, block: Block) -> None:
        del self._free[bisect_left(self._free, (block.nbytes, block.address))]

    def _drop(self, segment: Segment) -> None:
        self._held -= segment.nbytes - segment.gone
        segment.last = None
        if segment is self._growing:
            self._growing = None
        if self._release is None:
            del self._segments[segment]
        else:
            self._release(self._segments.pop(segment))


_HOLDERS = (MemoryPool.lend, MemoryPool.statistics, MemoryPool.release_cached)
"""The functions that hold a pool's lock."""
