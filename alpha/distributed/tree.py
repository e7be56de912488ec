"""The binary tree by which shards are summed: the same additions, however many ranks hold the shards.

A node is a range of shards (first, end). Its sum is that of its left half plus that of its right half; where a range
has an odd length the left half is the longer one. Ranks hold ranges of equal length one after another. Where their
number is a power of two that divides the number of shards, each rank's range is itself a node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Node = tuple[int, int]


def middle(node: Node) -> int:
    """Where a node's range is cut into its two halves."""
    first, end = node
    return first + (end - first + 1) // 2


def cover(first: int, end: int, shards: int) -> list[Node]:
    """The largest nodes of the tree over ``shards`` that make up a range, from left to right."""
    return _within((0, shards), first, end)


def _within(node: Node, first: int, end: int) -> list[Node]:
    if first <= node[0] and node[1] <= end:
        return [node]
    if end <= node[0] or node[1] <= first:
        return []
    cut = middle(node)
    return _within((node[0], cut), first, end) + _within((cut, node[1]), first, end)


def additions(first: int, end: int, shards: int) -> list[int]:
    """For each shard of a range, taken in order, how many additions its arrival completes.

    Each adds the last two of the sums that are kept; after the last shard the sums of ``cover`` are left.
    """
    counts = [0] * (end - first)
    waiting = cover(first, end, shards)
    while waiting:
        node = waiting.pop()
        if node[1] - node[0] > 1:
            counts[node[1] - 1 - first] += 1
            cut = middle(node)
            waiting += [(node[0], cut), (cut, node[1])]
    return counts


def nodes_of(rows: list[Any], first: int, shards: int, add: Any) -> list[Any]:
    """The sums of the nodes that make up some shards, from what each shard has; some of that is overwritten."""
    found: list[Any] = []
    for row, count in zip(rows, additions(first, first + len(rows), shards), strict=True):
        found.append(row)
        for _ in range(count):
            second = found.pop()
            found[-1] = add(found[-1], second, out=found[-1])
    return found


def total(sums: dict[Node, Array], shards: int, add: Any = np.add) -> Array:
    """The sum of all shards, from the sums of nodes that together cover them; the given arrays are overwritten."""
    return _sum_of((0, shards), sums, add)


def _sum_of(node: Node, sums: dict[Node, Array], add: Any) -> Array:
    found = sums.get(node)
    if found is not None:
        return found
    cut = middle(node)
    left, right = _sum_of((node[0], cut), sums, add), _sum_of((cut, node[1]), sums, add)
    return add(left, right, out=left)  # type: ignore[no-any-return]
