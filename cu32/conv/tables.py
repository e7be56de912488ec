"""C-K-S tables: the groups of an axis as arithmetic runs, classes of equal trim, and lists of tiles for thread blocks.

Along one axis every group of ``alpha.geometry`` (by output, by input, by tap) is an arithmetic run of index pairs: so
many, from a first pair, by steps that the whole axis shares. Indices with the same taps form a *class*. A class of rows
times a class of columns is a set of positions that share one trimmed filter, so a thread block that stays within it has
one trim and no divergence: for a convolution these are ConvV2's trims, for an input gradient KS-deconv-V2's
stride x stride sub-kernels times theirs. One list of tiles over all classes makes one launch: the unified form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from alpha import caches
from alpha.errors import EngineError
from alpha.geometry import Axis, Geometry, Groups, Pairs

Array = np.ndarray[Any, Any]

LIMIT = 2**31
"""Counts of rows must stay below: kernels hold them in 32 bits."""


@dataclass(frozen=True)
class Runs:
    """The groups of an axis: group g is the pairs (first_a[g] + t * step_a, first_b[g] + t * step_b), t < count[g]."""

    count: Array
    first_a: Array
    first_b: Array
    step_a: int
    step_b: int

    @staticmethod
    def of(groups: Groups) -> Runs:
        """From a grouping; EngineError where its groups are no arithmetic runs of common steps."""
        count = np.array([len(pairs) for pairs in groups], np.int32)
        first = np.array([pairs[0] if pairs else (0, 0) for pairs in groups], np.int32).reshape(-1, 2)
        steps = {(after[0] - before[0], after[1] - before[1]) for pairs in groups for before, after in pairwise(pairs)}
        if len(steps) > 1:
            raise EngineError(f"[tables] expected groups of one step, got steps {sorted(steps)}: a fault of ours")
        step_a, step_b = steps.pop() if steps else (0, 0)
        return Runs(count, first[:, 0], first[:, 1], step_a, step_b)

    @staticmethod
    def by(pairs: Pairs) -> Runs:
        """From a grouping that is arithmetic already. Steps that no group takes are 0."""
        count, first_a, first_b = (column.astype(np.int32) for column in (pairs.count, pairs.first, pairs.other))
        several = bool((count > 1).any())
        return Runs(count, first_a, first_b, pairs.step if several else 0, pairs.other_step if several else 0)

    def array(self) -> Array:
        """(groups, 4) int32 for a kernel: count, first_a, first_b, 0."""
        return np.stack([self.count, self.first_a, self.first_b, np.zeros_like(self.count)], 1)


@dataclass(frozen=True)
class Classes:
    """The indices of an axis sorted into classes of equal taps; the classes with the most taps first.

    Attributes:
        taps, first_b: of each class, how many taps and the first one.
        start, size: of each class, where its members begin and how many they are.
        index, first_a: of each member, its index on the axis, and its first source index.
        step_a, step_b: from a tap to the next, the steps of the source index and of the tap.
    """

    taps: Array
    first_b: Array
    start: Array
    size: Array
    index: Array
    first_a: Array
    step_a: int
    step_b: int

    @staticmethod
    def of(runs: Runs) -> Classes:
        """Members of a class are in ascending order."""
        index = np.lexsort((runs.first_b, -runs.count)).astype(np.int32)
        count, other = runs.count[index], runs.first_b[index]
        begins = np.ones(len(index), np.bool_)
        begins[1:] = (np.diff(count) != 0) | (np.diff(other) != 0)
        start = np.flatnonzero(begins).astype(np.int32)
        size = np.diff(np.append(start, len(index))).astype(np.int32)
        taps, first_b = count[start], other[start]
        return Classes(taps, first_b, start, size, index, runs.first_a[index], runs.step_a, runs.step_b)

    @cached_property
    def member_step(self) -> int:
        """From a member of a class to the next, the step of the source index: one for all classes that have taps."""
        return self._step(self.first_a)

    @cached_property
    def index_step(self) -> int:
        """The same of the index on the axis."""
        return self._step(self.index)

    def _step(self, values: Array) -> int:
        within = np.repeat(self.taps > 0, self.size)[1:]
        within[self.start[1:] - 1] = False  # from one class to the next
        steps = set(np.unique(np.diff(values)[within]).tolist())
        if len(steps) > 1:
            raise EngineError(f"[tables] expected members of one step, got steps {sorted(steps)}: a fault of ours")
        return steps.pop() if steps else 1

    def class_array(self) -> Array:
        """(classes, 4) int32 for a kernel: taps, first_b, start, size."""
        return np.stack([self.taps, self.first_b, self.start, self.size], 1)

    def member_array(self) -> Array:
        """(members, 2) int32 for a kernel: index, first_a."""
        return np.stack([self.index, self.first_a], 1)


@caches.kept
def by_output(axis: Axis) -> Classes:
    """ConvV2: outputs by their trimmed filter; a = input, b = tap."""
    return Classes.of(Runs.by(axis.pairs_by_output))


@caches.kept
def by_input(axis: Axis) -> Classes:
    """KS-deconv-V2: inputs by their sub-kernel and its trim; a = output, b = tap."""
    return Classes.of(Runs.by(axis.pairs_by_input))


@caches.kept
def by_tap(axis: Axis) -> Runs:
    """Sk-dilated-V2: for each tap the run of (input, output) it meets."""
    return Runs.by(axis.pairs_by_tap)


@dataclass(frozen=True)
class TileList:
    """Tiles of rows (position in a class, image) over all classes, the longest sums first.

    Attributes:
        tiles: (tiles, 4) int32 for a kernel: class of rows, class of columns, first row, number of rows.
        taps: (tiles,) taps each row of the tile sums over.
    """

    tiles: Array
    taps: Array

    @cached_property
    def products(self) -> int:
        """Pairs of row and tap in all tiles: times the channels of both sides, the multiply-adds issued."""
        return int((self.tiles[:, 3].astype(np.int64) * self.taps).sum())


@caches.kept
def tiles(rows: Axis, columns: Axis, forward: bool, images: int, height: int) -> TileList:
    """Covers each class's rows, numbered ((row member * column members) + column member) * images + image, by tiles.

    Args:
        rows, columns: the axes.
        forward: classes by output; else by input.
        images: N.
        height: most rows per tile; a tile never leaves its class.
    """
    both = (by_output(rows), by_output(columns)) if forward else (by_input(rows), by_input(columns))
    total = np.multiply.outer(both[0].size.astype(np.int64), both[1].size) * images
    if total.max() >= LIMIT:
        raise EngineError(
            f"[conv2d] expected fewer than 2^31 positions times images, got {total.max()}: use a smaller batch"
        )
    table = _pieces(total, height)
    taps = both[0].taps[table[:, 0]].astype(np.int64) * both[1].taps[table[:, 1]]
    order = np.argsort(-taps, kind="stable")
    return TileList(np.ascontiguousarray(table[order]), taps[order])


@dataclass(frozen=True)
class PatchList:
    """Patches of at most down x across members of one class of rows x one of columns, some of them an entry.

    Attributes:
        tiles: (entries, 4) int32 for a kernel: class of rows, class of columns, first patch, number of patches. Patches
            of two classes are numbered row-major.
        products: pairs of position and tap in all patches.
    """

    tiles: Array
    products: int


@caches.kept
def patches(rows: Axis, columns: Axis, forward: bool, down: int, across: int, together: int) -> PatchList:
    """Covers every position by patches, ``together`` of them an entry; an entry never leaves its classes."""
    both = (by_output(rows), by_output(columns)) if forward else (by_input(rows), by_input(columns))
    tall, wide = (-(-axis.size.astype(np.int64) // step) for axis, step in zip(both, (down, across), strict=True))
    products = [int((axis.size.astype(np.int64) * axis.taps).sum()) for axis in both]
    return PatchList(_pieces(np.multiply.outer(tall, wide), together), products[0] * products[1])


def _pieces(total: Array, most: int) -> Array:
    """(pieces, 4) int32: class of rows, class of columns, first of its ``total``, and at most so many from there on."""
    counts = total.ravel()
    pieces = -(-counts // most)
    pair = np.repeat(np.arange(counts.size), pieces)
    table = np.empty((pair.size, 4), np.int32)
    table[:, 0], table[:, 1] = np.divmod(pair, total.shape[1])
    first = (np.arange(pair.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * most
    table[:, 2] = first
    table[:, 3] = np.minimum(most, counts[pair] - first)
    return table


@caches.kept
def leaps(geometry: Geometry, images: int) -> Array:
    """The length of Sk-dilated-V2's sum for each tap, row-major: (output row, output column, image) inside x."""
    rows, columns = by_tap(geometry.rows).count.astype(np.int64), by_tap(geometry.columns).count.astype(np.int64)
    found: Array = np.multiply.outer(rows, columns).ravel() * images
    return found


@caches.kept
def leap_products(geometry: Geometry, images: int) -> int:
    """The sum of ``leaps``: times the channels of both sides, the multiply-adds issued."""
    return int(leaps(geometry, images).sum())
