"""Arenas: offsets that never overlap in time, near the bound; what was not foreseen is served from elsewhere."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import alpha
from alpha.arenas import FOREVER, Arena, Observer, Request, place
from alpha.mempool import GRAIN, Block, Segment
from alpha.tensor import Storage

requests_of = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(1, 20), st.booleans()), min_size=1, max_size=40
).map(
    lambda rows: [Request(size * GRAIN, first, FOREVER if lasts else first + life) for size, first, life, lasts in rows]
)


def overlaps(a: tuple[Request, int], b: tuple[Request, int]) -> bool:
    (one, here), (other, there) = a, b
    is_together = one.first < other.last and other.first < one.last
    return is_together and here < there + other.nbytes and there < here + one.nbytes


@given(requests_of, st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), max_size=3))
def test_no_two_blocks_that_live_at_one_time_overlap(requests: list[Request], fixed: list[tuple[int, int]]) -> None:
    taken = [(begin * GRAIN, (begin + length) * GRAIN) for begin, length in fixed]
    offsets, end = place(requests, taken)
    placed = list(zip(requests, offsets, strict=True))
    assert not any(overlaps(a, b) for a, b in itertools.combinations(placed, 2))
    for request, offset in placed:
        assert offset % GRAIN == 0 and offset + request.nbytes <= end
        assert not any(offset < there and begin < offset + request.nbytes for begin, there in taken)


def at_once(requests: list[Request]) -> int:
    """The most bytes that live at one time, below which no arena is enough."""
    return max(sum(r.nbytes for r in requests if r.first <= one.first < r.last) for one in requests)


def test_a_step_of_training_needs_little_more_than_lives_at_once() -> None:
    """Activations that the way back takes in the reverse order, and work memory on the way."""
    rng = np.random.default_rng(0)
    sizes = [int(size) * GRAIN for size in rng.integers(100, 4000, 40)]
    forward = [Request(size, 2 * i, 200 - 2 * i) for i, size in enumerate(sizes)]
    work = [Request(int(size) * GRAIN, i, i + 1) for i, size in enumerate(rng.integers(10, 2000, 200))]
    offsets, end = place(forward + work)
    assert len(offsets) == 240
    assert end <= 1.03 * at_once(forward + work)


def arena(nbytes: int) -> Arena:
    return Arena(Block(Segment(1 << 20, nbytes, False), 1 << 20, nbytes), np.empty(0), nbytes)


def test_blocks_come_where_they_were_planned_and_only_where_it_is_free() -> None:
    requests = [Request(1024, 0, 2), Request(1024, 1, 3), Request(512, 3, 4)]
    lent = arena(2048)
    lent.follow(requests, [0, 1024, 0])
    first, loan = lent.lend(1000) or pytest.fail("the first is planned")
    assert (first.address, first.nbytes) == (1 << 20, 1024)
    assert lent.lend(700) is not None  # the second, for its size, and dropped at once
    assert lent.lend(1024) is None  # there is no third
    assert lent.lend(512) is None  # where the first still is
    lent.follow(requests, [0, 1024, 0])
    assert lent.taken() == [(0, 1024)]
    del loan
    assert lent.taken() == []
    again = lent.lend(512)
    assert again is not None and again[0].address == 1 << 20


def test_an_observer_sees_lives_of_its_own_threads_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = alpha.engine("cpu")
    observer = Observer()
    kept: list[Any] = []

    def make(nbytes: int) -> Storage:
        storage = Storage(engine, engine.memory, nbytes)
        observer.note(storage)
        return storage

    first = make(1 << 20)
    second = make((2 << 20) + 1)
    make(100)  # too small to be of interest
    del first
    thread = threading.Thread(target=lambda: kept.append(make(1 << 20)))
    thread.start()
    thread.join()
    third = make(1 << 20)
    del third
    observer.stop()
    del second  # after the end: for good
    found = observer.requests
    assert [one.nbytes for one in found] == [1 << 20, (2 << 20) + GRAIN, 1 << 20]
    assert found[0].first < found[1].first < found[0].last < found[2].first < found[2].last
    assert found[1].last == FOREVER
