"""The memory pool over a counting allocator: cap, reuse, split and merge, the ladder on exhaustion."""

from __future__ import annotations

import gc
import random
import sys
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpha.errors import ArgumentError, OutOfMemoryError
from alpha.mempool import GRAIN, SLACK, SMALL, SMALL_SEGMENT, Block, MemoryPool, format_bytes, parse_bytes

MB = 1 << 20


class Backing:
    """Hands out addresses, and knows what is out; with ``room`` also places in which large segments grow."""

    def __init__(self, limit: int | None = None, room: int = 0) -> None:
        self.next, self.out, self.limit, self.calls, self.room = 1 << 30, {}, limit, 0, room
        self.discarded: list[tuple[int, int]] = []

    def allocate(self, nbytes: int) -> tuple[int, object]:
        self.calls += 1
        if self.limit is not None and sum(self.out.values()) + nbytes > self.limit:
            raise MemoryError
        address, self.next = self.next, self.next + nbytes + 4096
        self.out[address] = nbytes
        return address, address

    def release(self, handle: object) -> None:
        del self.out[handle]

    def reserve(self, nbytes: int) -> tuple[int, object, int] | None:
        if nbytes > self.room:
            return None
        return *self.allocate(self.room), self.room

    def discard(self, handle: object, address: int, nbytes: int) -> None:
        assert isinstance(handle, int) and handle <= address <= address + nbytes <= handle + self.room
        self.discarded.append((address, nbytes))

    def pool(self, cap: str | int = "64MB") -> MemoryPool:
        if self.room:
            return MemoryPool(cap, self.allocate, self.release, self.reserve, self.discard)
        return MemoryPool(cap, self.allocate, self.release)


def test_same_request_again_is_a_hit() -> None:
    backing = Backing()
    pool = backing.pool()
    first = pool.take(5 * MB)
    address = first.address
    pool.give(first)
    assert pool.take(5 * MB).address == address
    assert (pool.hits, pool.requests, backing.calls) == (1, 2, 1)


def test_figures() -> None:
    pool = Backing().pool()
    a = pool.take(3 * MB)
    b = pool.take(4 * MB)
    peak = pool.in_use
    pool.give(a)
    assert pool.peak == peak > pool.in_use >= 4 * MB
    assert pool.held >= 7 * MB
    pool.reset_peak()
    assert pool.peak == pool.in_use
    assert "cap 64.0 MiB" in str(pool)
    pool.give(b)
    assert pool.in_use == 0
    released = pool.release_cached()
    assert released >= 7 * MB
    assert pool.held == 0


def test_every_block_has_slack_and_alignment() -> None:
    pool = Backing().pool()
    for nbytes in (0, 1, GRAIN - SLACK, GRAIN - SLACK + 1, 3 * MB + 7):
        block = pool.take(nbytes)
        assert block.nbytes >= nbytes + SLACK
        assert block.address % 64 == 0


def test_split_and_merge() -> None:
    backing = Backing()
    pool = backing.pool()
    pool.give(pool.take(32 * MB))
    parts = [pool.take(8 * MB - GRAIN) for _ in range(4)]
    assert backing.calls == 1
    for index in (2, 0, 3, 1):
        pool.give(parts[index])
    assert pool.take(32 * MB).segment is parts[0].segment
    assert backing.calls == 1


def test_small_blocks_are_found_again_by_size_and_merge_for_other_sizes() -> None:
    backing = Backing()
    pool = backing.pool()
    blocks = [pool.take(2 * GRAIN - SLACK) for _ in range(SMALL_SEGMENT // (2 * GRAIN))]  # all of a segment
    addresses = {block.address for block in blocks}
    for block in blocks:
        pool.give(block)
    assert pool.in_use == 0
    again = [pool.take(2 * GRAIN - SLACK) for _ in blocks]
    assert {block.address for block in again} == addresses
    for block in again:
        pool.give(block)
    halves = [pool.take(SMALL - 2 * GRAIN), pool.take(SMALL - 2 * GRAIN)]
    assert backing.calls == 1
    for block in halves:
        pool.give(block)
    assert pool.release_cached() == SMALL_SEGMENT
    assert pool.held == 0


def test_a_small_block_is_lent_again_once_nobody_holds_its_loan() -> None:
    pool = Backing().pool()
    first, second = pool.lend(1000), pool.lend(1000)
    loan, address = first[1], first[0].address
    del first  # the loan is still held
    assert pool.lend(1000)[0].address not in (address, second[0].address)
    del loan
    lent = [pool.lend(1000) for _ in range(4)]
    addresses = [block.address for block, _ in lent]
    assert address in addresses and len({*addresses, second[0].address}) == 5
    size = lent[0][0].nbytes
    assert pool.peak == pool.in_use == 5 * size
    del lent
    large = pool.lend(3 * MB)  # the peak counts no block that nobody holds
    assert pool.peak == pool.in_use == size + large[0].nbytes
    pool.reset_peak()
    assert (pool.peak, pool.requests) == (pool.in_use, 0)


def test_threads_that_request_one_size_never_share_a_block() -> None:
    pool, taken, shared = Backing().pool(), set[int](), list[int]()
    interval = sys.getswitchinterval()

    def work(number: int) -> None:
        chosen = random.Random(number)
        held: list[tuple[Block, object]] = []
        for _ in range(2000):
            if held and chosen.random() < 0.5:
                block, loan = held.pop(chosen.randrange(len(held)))
                taken.discard(block.address)  # before the loan ends: then another thread may have the block
                del loan
            else:
                held.append(pool.lend(1000))
                address = held[-1][0].address
                if address in taken:
                    shared.append(address)
                taken.add(address)
        for block, _ in held:
            taken.discard(block.address)

    try:
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not shared
    assert pool.in_use == 0


def test_cap_counts_what_is_held_and_the_pool_stays_usable() -> None:
    pool = Backing().pool("16MB")
    keep = [pool.take(7 * MB), pool.take(7 * MB)]
    with pytest.raises(OutOfMemoryError, match=r"in use 14\.0 MiB, held .* cap 16\.0 MiB"):
        pool.take(4 * MB)
    pool.give(keep.pop())
    assert pool.take(4 * MB).nbytes >= 4 * MB


def test_ladder_frees_cached_segments_first() -> None:
    backing = Backing()
    pool = backing.pool("16MB")
    pool.give(pool.take(6 * MB))
    pool.give(pool.take(9 * MB))  # held: 15 MB, all idle; no block fits
    assert pool.take(12 * MB).nbytes >= 12 * MB
    assert sum(backing.out.values()) <= 16 * MB


def test_ladder_collects_garbage() -> None:
    pool = Backing().pool("16MB")

    class Holder:
        def __init__(self) -> None:
            self.block = pool.take(10 * MB)
            self.cycle = self

        def __del__(self) -> None:
            pool.give(self.block)

    gc.disable()
    try:
        Holder()
        assert pool.take(10 * MB).nbytes >= 10 * MB
    finally:
        gc.enable()


def test_a_request_beyond_the_cap_is_refused_before_anything_is_freed_or_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backing = Backing()
    pool = backing.pool("16MB")
    pool.give(pool.take(6 * MB))
    held, collections = pool.held, []
    monkeypatch.setattr(gc, "collect", lambda *generation: collections.append(generation))
    with pytest.raises(OutOfMemoryError, match=r"cap 16\.0 MiB"):
        pool.take(17 * MB)
    assert pool.held == held and not collections
    pool.cap = "32MB"
    assert pool.take(17 * MB).nbytes >= 17 * MB


def test_engine_failure_becomes_our_error() -> None:
    pool = Backing(limit=4 * MB).pool("1GB")
    with pytest.raises(OutOfMemoryError):
        pool.take(8 * MB)
    assert pool.take(2 * MB).nbytes >= 2 * MB


def test_lower_cap() -> None:
    pool = Backing().pool("32MB")
    block = pool.take(10 * MB)
    with pytest.raises(ArgumentError, match="held"):
        pool.cap = "5MB"
    pool.give(block)
    pool.cap = "5MB"
    assert pool.held <= pool.cap == 5 * MB


def test_a_reservation_grows_and_neighbours_merge() -> None:
    backing = Backing(room=256 * MB)
    pool = backing.pool("128MB")
    blocks = [pool.take(8 * MB - SLACK) for _ in range(4)]
    assert backing.calls == 1 and pool.held == 32 * MB
    assert all(a.address + a.nbytes == b.address for a, b in pairwise(blocks))
    pool.give(blocks[1])
    pool.give(blocks[2])
    assert pool.take(16 * MB - SLACK).address == blocks[1].address
    assert pool.held == 32 * MB
    pool.give(blocks[3])
    longer = pool.take(12 * MB - SLACK)  # the free end serves, 4 MB longer
    assert longer.address == blocks[3].address and pool.held == 36 * MB


def test_near_the_cap_free_parts_of_a_reservation_are_given_back() -> None:
    backing = Backing(room=256 * MB)
    pool = backing.pool("40MB")
    blocks = [pool.take(8 * MB - SLACK) for _ in range(5)]
    for index in (1, 3):
        pool.give(blocks[index])
    kept = pool.take(16 * MB - SLACK)
    assert pool.held == pool.in_use == 40 * MB
    assert backing.discarded == [(blocks[index].address, 8 * MB) for index in (1, 3)]
    for block in (blocks[0], blocks[2], blocks[4], kept):
        pool.give(block)
    assert pool.release_cached() == 40 * MB
    assert pool.held == 0 and not backing.out
    assert pool.take(30 * MB).nbytes >= 30 * MB  # a new reservation


def test_what_no_reservation_has_room_for_gets_a_segment_of_its_own() -> None:
    backing = Backing(room=16 * MB)
    pool = backing.pool("128MB")
    blocks = [pool.take(12 * MB), pool.take(12 * MB), pool.take(20 * MB), pool.take(3 * MB)]
    assert backing.calls == 3 and blocks[3].segment is blocks[1].segment
    for block in blocks:
        pool.give(block)
    pool.release_cached()
    assert pool.held == 0 and not backing.out


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 6 * MB), min_size=1, max_size=60), st.integers(0, 1 << 30), st.sampled_from([0, 24, 256])
)
def test_blocks_never_overlap_and_all_comes_back(sizes: list[int], seed: int, room: int) -> None:
    chooser = random.Random(seed)
    backing = Backing(room=room * MB)
    pool = backing.pool("48MB")
    live: list[Block] = []
    for size in sizes:
        try:
            live.append(pool.take(size))
        except OutOfMemoryError:
            assert pool.in_use + size > 24 * MB  # never refused while most of the cap is free
        spans = sorted((b.address, b.address + b.nbytes) for b in live)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert pool.in_use == sum(b.nbytes for b in live) <= pool.held <= pool.cap
        if room:
            assert pool.held <= sum(backing.out.values())
        else:
            assert pool.held == sum(backing.out.values())
        while live and chooser.random() < 0.45:
            pool.give(live.pop(chooser.randrange(len(live))))
    for block in live:
        pool.give(block)
    assert pool.in_use == 0
    pool.release_cached()
    assert pool.held == 0 and not backing.out


def test_threads_share_a_pool() -> None:
    pool = Backing().pool("1GB")

    def work() -> None:
        for size in range(1, 400):
            pool.give(pool.take(size * 977))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.in_use == 0


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8 << 30), ("512 MiB", 512 << 20), ("1.5G", 3 << 29), ("100", 100), (64, 64)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "8XB", 0, -5, "1.2.3MB"])
def test_bad_sizes(text: str | int) -> None:
    with pytest.raises(ArgumentError, match="expected a size"):
        parse_bytes(text)


def test_format() -> None:
    assert [format_bytes(n) for n in (10, 1536, 3 << 20, 5 << 30)] == ["10 B", "1.5 KiB", "3.0 MiB", "5.0 GiB"]


def test_what_is_kept_long_divides_no_larger_block() -> None:
    """Within ``apart`` a large request gets memory of its own, unless a block of just its size is free, or no room."""
    pool = Backing().pool("64MB")
    large = pool.take(16 * MB)
    pool.give(large)
    with pool.apart():
        lasting, small = pool.take(5 * MB), pool.take(100)
        with pool.apart():
            pass
        other = pool.take(5 * MB)
    whole = pool.take(16 * MB)
    assert whole.address == large.address
    assert lasting.segment is not large.segment is not other.segment
    pool.give(whole)
    divided = pool.take(5 * MB)  # elsewhere large blocks are divided as ever
    assert divided.segment is large.segment
    pool.give(lasting)
    with pool.apart():
        assert pool.take(5 * MB).address == lasting.address
        held = pool.held
        assert pool.take(8 * MB).segment is not large.segment and pool.held > held
        full = [pool.take(8 * MB) for _ in range(4)]  # up to the cap, and then from the large block too
    assert full[-1].segment is large.segment
    assert small.segment.small
