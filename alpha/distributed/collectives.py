"""Collective operations as steps: each yields the messages that it waits for, and goes on when they are through."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from alpha.distributed.transport import Array, Pending, Transport
from alpha.distributed.tree import Node, cover, total

Steps = Generator[dict[int, list[Pending]], None, None]
"""Rounds of messages, by the other rank; the array that was given holds the result when there are no more."""


def all_reduce(transport: Transport, sums: Array, tag: int, shards: int | None = None, add: Any = np.add) -> Steps:
    """The sum of all ranks' shards, in ``sums[0]``.

    Args:
        sums: (nodes, length): the sums of the nodes that make up this rank's shards (``tree.cover``), dense.
        shards: how many there are on all ranks; by default each rank is one.
        add: ``add(a, b, out=a)``.
    """
    shards = transport.size if shards is None else shards
    add = _quietly(add)
    if transport.size & (transport.size - 1) == 0:
        return halve_and_double(transport, sums[0], tag, add)
    return exchange(transport, sums, tag, shards, add)


def _dense(transport: Transport, array: Any) -> Any:
    """A dense copy of an array."""
    copy = transport.room(array, array.shape)
    copy[...] = array
    return copy


def _quietly(add: Any) -> Any:
    """The same function, which does not warn of infinities and NaN."""

    def quiet(first: Array, second: Array, out: Array) -> Array:
        with np.errstate(all="ignore"):
            return add(first, second, out=out)  # type: ignore[no-any-return]

    return quiet


def halve_and_double(transport: Transport, flat: Array, tag: int, add: Any) -> Steps:
    """A sum by recursive halving, handed round by recursive doubling; the number of ranks is a power of two.

    2 log2(n) rounds, in which each rank sends 2 (n - 1) / n of the array: Thakur, Rabenseifner and Gropp,
    "Optimization of collective communication operations in MPICH", IJHPCA 2005. Ranks beside each other add first, so
    that the additions are those of the tree over ranks.
    """
    rank, size = transport.rank, transport.size
    low, high, distance = 0, len(flat), 1
    spans: list[tuple[int, int]] = []
    received = transport.room(flat, (-(-len(flat) // 2),))
    while distance < size:
        peer, cut = rank ^ distance, low + (high - low) // 2
        keep, give = ((cut, high), (low, cut)) if rank & distance else ((low, cut), (cut, high))
        theirs, mine = received[: keep[1] - keep[0]], flat[keep[0] : keep[1]]
        yield {peer: [transport.receive(theirs, peer, tag), transport.send(flat[give[0] : give[1]], peer, tag)]}
        add(*((mine, theirs) if rank < peer else (theirs, mine)), out=mine)
        spans.append((low, high))
        (low, high), distance = keep, distance * 2
    while distance > 1:
        distance //= 2
        peer, (first, end) = rank ^ distance, spans.pop()
        other = flat[first:low] if first < low else flat[high:end]
        yield {peer: [transport.receive(other, peer, tag), transport.send(flat[low:high], peer, tag)]}
        low, high = first, end


def exchange(transport: Transport, sums: Array, tag: int, shards: int, add: Any) -> Steps:
    """A sum for any number of ranks, in two rounds: each rank adds up one segment of the array, and hands it round."""
    rank, size, length = transport.rank, transport.size, sums.shape[1]
    per_rank = shards // size
    nodes: list[list[Node]] = [cover(peer * per_rank, (peer + 1) * per_rank, shards) for peer in range(size)]
    bounds = [peer * length // size for peer in range(size + 1)]
    others = [peer for peer in range(size) if peer != rank]
    first, end = bounds[rank], bounds[rank + 1]
    parts = {peer: transport.room(sums, (len(nodes[peer]), end - first)) for peer in others}
    sent = {peer: _dense(transport, sums[:, bounds[peer] : bounds[peer + 1]]) for peer in others}
    yield {peer: [transport.receive(parts[peer], peer, tag), transport.send(sent[peer], peer, tag)] for peer in others}
    parts[rank] = _dense(transport, sums[:, first:end])
    whole = total({node: parts[peer][i] for peer in range(size) for i, node in enumerate(nodes[peer])}, shards, add)
    result = sums[0]
    result[first:end] = whole
    yield {
        peer: [
            transport.receive(result[bounds[peer] : bounds[peer + 1]], peer, tag),
            transport.send(whole, peer, tag),
        ]
        for peer in others
    }


def broadcast(transport: Transport, flat: Array, source: int, tag: int) -> Steps:
    """One rank's array to all, down a binomial tree: log2(n) rounds."""
    size = transport.size
    place = (transport.rank - source) % size  # places count from the source
    distance = 1
    while distance < size:
        distance *= 2
    while distance > 1:
        distance //= 2
        if place % (2 * distance) == distance:
            peer = (place - distance + source) % size
            yield {peer: [transport.receive(flat, peer, tag)]}
        elif place % (2 * distance) == 0 and place + distance < size:
            peer = (place + distance + source) % size
            yield {peer: [transport.send(flat, peer, tag)]}


def reduce_to(transport: Transport, sums: Array, owner: int, tag: int, shards: int, add: Any = np.add) -> Steps:
    """The sum of all ranks' shards, in the owner's ``sums[0]`` alone: by the same tree as ``all_reduce``.

    Each other rank sends its array once. Where ranks are a power of two that takes log2(n) rounds, else one.
    """
    add = _quietly(add)
    rank, size = transport.rank, transport.size
    if size & (size - 1):
        yield from _all_to_one(transport, sums, owner, tag, shards, add)
        return
    mine, distance = sums[0], 1
    received = transport.room(mine, mine.shape)
    while distance < size:
        left = rank // (2 * distance) * 2 * distance
        holders = [_holder(first, distance, owner) for first in (left, left + distance)]
        target = holders[1] if holders[1] == owner else holders[0]
        peer = holders[0] if target == holders[1] else holders[1]
        if rank == target:
            yield {peer: [transport.receive(received, peer, tag)]}
            add(*((mine, received) if rank < peer else (received, mine)), out=mine)
        elif rank == peer:
            yield {target: [transport.send(mine, target, tag)]}
        distance *= 2


def _holder(first: int, count: int, owner: int) -> int:
    """Which of some ranks beside each other holds their sum."""
    return owner if first <= owner < first + count else first


def _all_to_one(transport: Transport, sums: Array, owner: int, tag: int, shards: int, add: Any) -> Steps:
    """Each rank sends the sums of its nodes to the owner."""
    rank, size = transport.rank, transport.size
    if rank != owner:
        yield {owner: [transport.send(sums, owner, tag)]}
        return
    per_rank = shards // size
    nodes = {peer: cover(peer * per_rank, (peer + 1) * per_rank, shards) for peer in range(size)}
    others = [peer for peer in range(size) if peer != rank]
    parts = {peer: transport.room(sums, (len(nodes[peer]), sums.shape[1])) for peer in others}
    yield {peer: [transport.receive(parts[peer], peer, tag)] for peer in others}
    parts[rank] = _dense(transport, sums)
    sums[0] = total({node: parts[peer][i] for peer in parts for i, node in enumerate(nodes[peer])}, shards, add)


def gather(transport: Transport, flat: Array, bounds: list[int], tag: int) -> Steps:
    """Hands round segments of an array: rank r has that from ``bounds[r]`` to ``bounds[r + 1]``, and all get all.

    Each rank sends (n - 1) / n of the array where segments are equal; in log2(n) rounds if ranks are a power of two,
    else in one.
    """
    rank, size = transport.rank, transport.size
    if size & (size - 1):
        mine = flat[bounds[rank] : bounds[rank + 1]]
        yield {
            peer: [
                transport.receive(flat[bounds[peer] : bounds[peer + 1]], peer, tag),
                transport.send(mine, peer, tag),
            ]
            for peer in range(size)
            if peer != rank
        }
        return
    distance = 1
    while distance < size:
        peer, first = rank ^ distance, rank // distance * distance
        theirs = peer // distance * distance
        yield {
            peer: [
                transport.receive(flat[bounds[theirs] : bounds[theirs + distance]], peer, tag),
                transport.send(flat[bounds[first] : bounds[first + distance]], peer, tag),
            ]
        }
        distance *= 2
