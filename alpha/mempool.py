"""MemoryPool: lends blocks of an engine's memory, reuses them, and keeps all memory under a hard cap."""

from __future__ import annotations

import gc
import operator
import re
import sys
import threading
import weakref
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.errors import ArgumentError, OutOfMemoryError
from alpha.locks import RobustLock

Loan = np.ndarray[Any, Any]
"""A token: while somebody holds it, a block is in use. It is an array because the garbage collector does not track
arrays: weak references to it are cleared when its last reference goes, not before its holders' finalizers ran. On the
host it is the block's bytes, elsewhere empty."""

_new_loan = np.empty

_references = sys.getrefcount
_size_of, _loan_of = operator.itemgetter(0), operator.itemgetter(1)

GRAIN = 512
"""Every request is rounded up to a multiple of this many bytes, which is also the alignment of blocks in a segment."""

SLACK = 128
"""Bytes after every request that a kernel may read but never write: loads of a panel may go beyond a row's end."""

_BEYOND, _GRAINS = SLACK + GRAIN - 1, -GRAIN  # what a request's bytes are rounded up by

SMALL = 1 << 20
"""Requests below this many bytes share segments of ``SMALL_SEGMENT``; larger ones get a segment of their size."""

SMALL_SEGMENT = 2 << 20

MIN_SPLIT = 256 << 10
"""Fewest bytes that are split off a block in a growing segment; they merge again with neighbours that become free."""

MOST_RECENT = 1024
"""How many small blocks of a size are known as recently lent."""

HELD_RECENT = 64
"""How many of these may still be held: a step uses so many at a time, and finds them free in the next."""

MOST_MERGES = 1
"""How often small blocks are merged for requests of one size, before these get new memory."""

TRIES = 4
"""Recent blocks that are looked at for one that is free."""

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
    """One allocation from the engine, divided into adjacent blocks.

    It may be the beginning of a reservation of ``room`` bytes, in which it grows. ``gone`` of its bytes belong to
    blocks whose memory was given back before the rest, and are not used again.
    """

    __slots__ = ("address", "gone", "last", "nbytes", "room", "small")

    def __init__(self, address: int, nbytes: int, small: bool, room: int = 0) -> None:
        self.address, self.nbytes, self.small, self.room = address, nbytes, small, room
        self.gone = 0
        self.last: Block | None = None  # the last block, of a segment that grows


class Block:
    """A part of a segment: in use, or free."""

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
    """A block in use and a weak reference to its loan.

    When the loan ends, a C call appends this to the returned leases.
    """

    __slots__ = ("block",)
    block: Block

    # A lease equals only itself: a weak reference would compare and hash the array, which has no hash.
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
    """Keeps segments for reuse and divides them into blocks that split and merge, under a cap on all that it holds.

    Small blocks are reused for requests of the same size; they are merged when another size is requested. The pool
    keeps the loans of those lent recently: a block whose loan nobody else holds any more is lent again as it is.

    ``in_use`` counts what tensors hold, ``held`` all that the pool has from the engine, ``peak`` the largest
    ``in_use``, ``hits`` the requests served without the engine. When memory runs out, the pool frees unused segments,
    then collects Python's garbage, then raises OutOfMemoryError with the figures, and stays usable. A request beyond
    the cap is refused at once.

    It survives an interrupt between any two instructions: the loans that are alive say what is in use, and if a change
    was not finished, the lists are rebuilt from these and the segments. A signal handler or a finalizer that requests
    memory in the middle of its thread's change gets a separate segment.

    Args:
        cap: most bytes that may be held; ``"8GB"`` or an int.
        allocate: bytes -> (address, handle); may raise MemoryError. The handle keeps the memory alive.
        release: called with the handle when a segment is given back.
        reserve: bytes -> (address, handle, room), or None where it cannot: reserves addresses for a segment of large
            blocks that may grow to ``room`` bytes; unused ones take no memory. Neighbours in one segment merge, where
            separate segments would wait for requests of their size: the pool holds less for the same use.
        discard: called with (handle, address, bytes) to give back memory within a reservation.
        view: (handle, offset, bytes) -> the bytes of a block as an array, where the host can reach them.
    """

    def __init__(
        self,
        cap: str | int,
        allocate: Callable[[int], tuple[int, object]],
        release: Callable[[object], None] | None = None,
        reserve: Callable[[int], tuple[int, object, int] | None] | None = None,
        discard: Callable[[object, int, int], None] | None = None,
        view: Callable[[object, int, int], Loan] | None = None,
    ) -> None:
        self._cap = parse_bytes(cap)
        self._allocate = allocate
        self._release = release
        self._reserve = reserve
        self._discard = discard
        self._view = view
        self._growing: Segment | None = None
        self._lock = RobustLock(*_HOLDERS)
        self._apart: dict[int, int] = {}  # threads within ``apart``, and how deep
        self._changing = False  # whether a change was begun; True when the lock is taken: it was interrupted
        self._segments: dict[Segment, object] = {}  # each with the handle of its memory
        self._leases: set[_Lease] = set()
        self._taken: dict[Block, Loan] = {}  # loans of blocks that ``give`` takes back
        # Loans end wherever a reference is dropped, even during a change: the next operation takes their blocks back.
        self._returned: deque[_Lease] = deque()
        self._end_lease = self._returned.append
        # Small blocks in the order in which they were lent, by size. Whoever pops one alone decides about it, and may
        # forget it at any time: then its loan ends with its last holder, as that of any other block.
        self._recent: dict[int, deque[tuple[Block, Loan]]] = {}
        self._adopted: deque[tuple[_Lease, object]] = deque()  # of segments made during a change, with handles
        self._free: list[tuple[int, int, Block]] = []
        # Free small blocks by size, unmerged: most requests of a training step are small, and the next step repeats
        # them.
        self._small: dict[int, list[Block]] = {}
        self._merged: dict[int, int] = {}  # by size, how often small blocks were merged for a request
        self._in_use = self._held = self._peak = self._requests = self._hits = 0
        self._unheld_then = self._lent_again = 0  # when unheld bytes were counted last, and bytes lent again since

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
    def is_on_host(self) -> bool:
        """Whether the host reaches the memory as arrays."""
        return self._view is not None

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
        """Number of requests."""
        return self._requests

    def statistics(self) -> MemoryStatistics:
        """The pool's figures at this moment."""
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return self._figures()
        try:
            self._begin()
            self._forget_unheld()
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
        """A block of at least ``nbytes`` + SLACK bytes, aligned to GRAIN, and its loan.

        Once nobody holds the loan, the block returns to the pool. OutOfMemoryError beyond the cap. ``collected``: do
        not try again after a garbage collection.
        """
        size = (nbytes + _BEYOND) & _GRAINS
        recent = self._recent.get(size)
        tries = TRIES
        while recent and tries:
            tries -= 1
            try:
                pair = recent.popleft()
            except IndexError:  # another thread was faster
                break
            block, loan = pair
            if _references(pair[1]) == _UNHELD:
                recent.append(pair)
                self._requests += 1
                self._hits += 1
                self._lent_again += size
                return block, loan
            if len(recent) < HELD_RECENT:
                recent.append(pair)
        if size > self._cap:  # whatever is freed or collected, which takes a second in a large program
            raise self._exhausted(nbytes)
        lock = self._lock
        while not (mutex := lock.mutex).acquire(False):
            if lock.wait(mutex):
                return self._lend_during_change(nbytes, size)
        try:
            if self._changing:
                self._recover()
            self._changing = True
            self._requests += 1
            found = self._found(size)
            if found is not None:
                self._in_use += found.nbytes
                # What nobody holds became less by what was lent again, at most: it is counted only where that matters.
                most = self._in_use + min(0, self._lent_again - self._unheld_then)
                if most > self._peak:
                    self._lent_again, self._unheld_then = 0, self._unheld(self._in_use - self._peak)
                    self._peak = max(self._peak, self._in_use - self._unheld_then)
                loan = self._loan(found, self._segments[found.segment])
                lease = _Lease(loan, self._end_lease)
                lease.block = found
                self._leases.add(lease)
                if size < SMALL:
                    if recent is None:
                        recent = self._recent.setdefault(size, deque(maxlen=MOST_RECENT))
                    recent.append((found, loan))
                self._changing = False
                return found, loan
            self._changing = False
        except MemoryError as error:  # Python's own, such as for a list
            raise self._exhausted(nbytes) from error
        finally:
            mutex.release()
        if collected:
            raise self._exhausted(nbytes)
        del lock  # the lock is free: finalizers that the collection runs may use the pool
        gc.collect()
        return MemoryPool.lend(self, nbytes, True)

    def _exhausted(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"[memory] expected room for {nbytes} bytes ({format_bytes(nbytes)}), got {self._figures()}: use a smaller "
            "batch, raise the engine's memory=, or drop tensors that are no longer needed"
        )

    def _lend_during_change(self, nbytes: int, size: int) -> tuple[Block, Loan]:
        """Lends a separate segment to code that interrupted a change: does not touch the lists, which take it later."""
        if self._held + size > self._cap:
            raise self._exhausted(nbytes)
        try:
            address, handle = self._allocate(size)
        except MemoryError as error:
            raise self._exhausted(nbytes) from error
        block = Block(Segment(address, size, size < SMALL), address, size)
        loan = self._loan(block, handle)
        lease = _Lease(loan, self._end_lease)
        lease.block = block
        self._adopted.append((lease, handle))
        return block, loan

    def _loan(self, block: Block, handle: object) -> Loan:
        """A new loan of a block of the segment with this handle."""
        if self._view is None:
            return _new_loan(0)
        return self._view(handle, block.address - block.segment.address, block.nbytes)

    def take(self, nbytes: int) -> Block:
        """Lends a block that is in use until it is given back with ``give``."""
        block, loan = self.lend(nbytes)
        try:
            self._taken[block] = loan
            return block
        except BaseException:  # an interrupt: nobody has the block
            self._taken.pop(block, None)
            raise

    def give(self, block: Block) -> None:
        """Takes back a block from ``take``. Safe from any thread and from a finalizer."""
        if self._taken.pop(block, None) is None:
            raise ArgumentError("[memory] expected a block that was taken from this pool, got one that is not in use")

    def _found(self, size: int) -> Block | None:
        """A free block of the size, from the lists or from the engine; None if there is none."""
        if self._returned or self._adopted:
            self._sort_in()
        waiting = self._small.get(size)
        if waiting:
            block = waiting.pop()
        else:
            if self._apart and size >= SMALL and threading.get_ident() in self._apart:
                apart = self._undivided(size)
                if apart is not None:
                    return apart
            fit = self._merged_fit(size)
            if fit is None:
                return self._grow(size)
            block = self._cut(fit, size)
        self._hits += 1
        return block

    @contextmanager
    def apart(self) -> Iterator[None]:
        """``with pool.apart():`` large blocks that this thread asks for divide no larger ones, while there is room.

        For what is kept long: within a block that work comes and goes in, it would be in the way for good.
        """
        thread = threading.get_ident()
        outer = self._apart.get(thread, 0)
        try:
            self._apart[thread] = outer + 1
            yield
        finally:
            if outer:
                self._apart[thread] = outer
            else:
                self._apart.pop(thread, None)

    def _undivided(self, size: int) -> Block | None:
        """A free segment of which nothing is left over, or a new one; None beyond the cap."""
        for index in range(bisect_left(self._free, (size, 0)), len(self._free)):
            block = self._free[index][2]
            if self._splits(block, size):
                break
            if block.whole and not block.segment.small:
                del self._free[index]
                block.free = False
                self._hits += 1
                return block
        return self._new_segment(size, False) if self._held + size <= self._cap else None

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
        """Begins a change; first repairs one that was not finished. The caller holds the lock."""
        if self._changing:
            self._recover()
        self._changing = True

    def _recover(self) -> None:
        """Rebuilds the lists from the segments and from what is in use; if interrupted, it is run again."""
        self._unheld_then = 0
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
        if self._held > self._cap:  # memory given back within a reservation counts as free again
            self._release_idle()

    def _rebuild(self, segment: Segment, used: Iterable[Block]) -> None:
        """Links a segment's used blocks, in order of their addresses, with free blocks between them."""
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
        """Gives back the memory of a free block inside a reservation; after the last one also the reservation."""
        segment, block.free = block.segment, False
        segment.gone += block.nbytes
        self._held -= block.nbytes
        if segment.gone == segment.nbytes:
            self._drop(segment)
        elif self._discard is not None:
            self._discard(self._segments[segment], block.address, block.nbytes)

    def _forget_unheld(self) -> None:
        """Ends the loans that the pool alone holds."""
        self._unheld_then = 0
        for recent in list(self._recent.values()):
            for _ in range(len(recent)):
                try:
                    pair = recent.popleft()
                except IndexError:  # another thread requested memory
                    break
                _, _loan = pair
                if _references(pair[1]) != _UNHELD:
                    recent.append(pair)

    def _unheld(self, enough: int) -> int:
        """Bytes of the blocks whose loans the pool alone holds; of the largest alone where those are enough."""
        total = 0
        for size, recent in sorted(self._recent.items(), key=_size_of, reverse=True):
            total += size * _counts(list(recent)).count(_UNHELD_IN_PAIR)
            if total >= enough:
                break
        return total

    def _sort_in(self) -> None:
        """Adds returned blocks to the free ones. The caller holds the lock."""
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
        """Adds the segments that were made during a change."""
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
        """Adds the small blocks that are kept by size to the free ones, merged."""
        self._forget_unheld()
        self._sort_in()
        while self._small:
            for block in self._small.popitem()[1]:
                self._merge_in(block)

    def _merge_in(self, block: Block) -> None:
        """Adds a block to the free ones, merged with free neighbours."""
        block.free = True
        previous, following = block.previous, block.next
        if following is not None and following.free:
            self._remove(following)
            block.nbytes += following.nbytes
            self._link(block, following.next)
        if previous is not None and previous.free:
            self._remove(previous)
            previous.nbytes += block.nbytes
            self._link(previous, block.next)
            block = previous
        insort(self._free, (block.nbytes, block.address, block))

    def _merged_fit(self, size: int, short: bool = False) -> Block | None:
        """The best fit; for a small request the small blocks are merged where none is free without.

        What is merged for a size again and again is cut again and again, so that it gets blocks of its own, unless
        memory is ``short``.
        """
        found = self._fit(size)
        if found is None and size < SMALL and (short or self._merged.get(size, 0) < MOST_MERGES):
            self._merged[size] = self._merged.get(size, 0) + 1
            self._merge_small()
            found = self._fit(size)
        return found

    def _fit(self, size: int) -> Block | None:
        """The smallest free block of enough bytes; in growing segments the first in memory, so that their ends stay
        free.

        Small and large requests use different segments, so that a single scalar never keeps a large segment in use.
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
        """A block in new memory, after releasing idle segments if the cap requires it. None beyond the cap."""
        small = size < SMALL
        segment_size = SMALL_SEGMENT if small else size
        for relieved in (False, True):
            if relieved:
                self._release_idle()
                # Blocks that were merged meanwhile may serve the request without the engine.
                block = self._merged_fit(size, short=True)
                if block is not None:
                    return self._cut(block, size)
            block = None if small else self._lengthen(size)
            if block is not None:
                return self._cut(block, size)
            # Near the cap a small request takes a segment of just its size.
            for wanted in dict.fromkeys((segment_size, size)):
                block = self._new_segment(wanted, small) if self._held + wanted <= self._cap else None
                if block is not None:
                    return self._cut(block, size)
        return None

    def _cut(self, block: Block, size: int) -> Block:
        """The block, after splitting off what exceeds the size."""
        if self._splits(block, size):
            self._split(block, size)
        return block

    def _new_segment(self, size: int, small: bool) -> Block | None:
        """A new segment from the engine, as one block; None where the engine has no memory."""
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
        """A block at the end of the growing segment: its last block if that is free, extended by new memory."""
        segment = self._growing
        last = None if segment is None else segment.last
        if segment is None or last is None:
            return None
        needed = size - (last.nbytes if last.free else 0)
        left = min(segment.room - segment.nbytes, self._cap - self._held)
        # A little more than needed: it takes no memory until it is used, and makes the next requests cheap.
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
        # A large block keeps a small rest: split off, it would serve only small requests, which have other segments.
        segment = block.segment
        return block.nbytes - size >= (GRAIN if segment.small else MIN_SPLIT if segment.room else SMALL)

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


def _references_if_unheld() -> int:
    """What ``_references`` says of a loan that nobody but a pair and a function's own variable holds."""
    pair = (None, _new_loan(0))
    _, _loan = pair
    return _references(pair[1])


def _counts(pairs: Sequence[tuple[object, Loan]]) -> list[int]:
    """What ``_references`` says of the loans of pairs, without a variable of Python's that would hold one meanwhile."""
    return list(map(_references, map(_loan_of, pairs)))


_UNHELD = _references_if_unheld()
(_UNHELD_IN_PAIR,) = _counts([(None, _new_loan(0))])

_HOLDERS = (MemoryPool.lend, MemoryPool.statistics, MemoryPool.release_cached)
"""The functions that hold a pool's lock (see ``RobustLock``)."""
