"""The CPU engine's copies between layouts: how numbers are copied, over which loops, in how many tasks."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.composed import arrays
from alpha.composed.arrays import inserted
from alpha.cpu import streaming
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import copies as kernels
from alpha.cpu.launches import call_of, constant, learn, of_result, of_tensor
from alpha.cpu.loops.parts import equal_parts
from alpha.errors import ShapeError
from alpha.launches import CONCAT, COPY, COPY_INTO, FLIP, STACK, Launches
from alpha.tensor import Tensor, dense_strides, extent, memory_order

STREAMED_ROW_BYTES = 1 << 10
"""Bytes of a row from which it is written past the caches: shorter ones share too many cache lines with others."""

MOST_COPIES = 256
"""Most copies of a plan: to plan more costs more than it saves."""

Loop = tuple[int, int, int]
"""Length, and the steps in bytes of source and target."""


class Copy(NamedTuple):
    """A copy into a part of a tensor, by the word of the job that holds the source's address (``kernels.Piece``).

    Strides and offsets count numbers.
    """

    source: int
    shape: Shape
    source_offset: int
    source_strides: Shape
    target_offset: int
    target_strides: Shape


class Plan(NamedTuple):
    """A list of copies of numbers of one size into one tensor, ready to run but for the addresses."""

    tasks: int
    record: Array
    """What the kernel reads: the tasks, the copies, their loops."""
    address: int
    """The record's."""


def plan(copies: Sequence[Copy], item: int) -> Plan:
    """A plan of copies of numbers of ``item`` bytes, each of which has a part of the target for itself."""
    read = sum(_bytes_read(copy, item) for copy in copies)
    stream = streaming.streams(sum(math.prod(copy.shape) for copy in copies) * item, read)
    tasks, pieces = 0, []
    for group in _groups([part for copy in copies if 0 not in copy.shape for part in _parts(copy, item)]):
        shares = _tasks(group, item)
        for part, (units, block) in zip(group, shares, strict=True):
            inner = 2 if part.kind == kernels.TILES else 1
            piece = kernels.Piece(
                tasks, part.kind, item, part.source, part.source_offset, part.target_offset, 0, len(part.loops) - inner,
                units, block, stream and _may_stream(part, item),
            )  # fmt: skip
            pieces.append((piece, part.loops))
        units, block = shares[0]
        tasks -= -units // block
    return _recorded(tasks, tasks, pieces)


def sums(copies: Sequence[Copy], item: int) -> Plan:
    """A plan of what is added, in this order, where ``plan`` copies: parts of the target may overlap."""
    pieces = []
    for copy in [copy for copy in copies if 0 not in copy.shape]:
        loops = merged(copy, item, by_source=True)
        units = math.prod([length for length, _, _ in loops[:-1]])
        piece = kernels.Piece(
            0, kernels.STRIDED, item, copy.source, copy.source_offset * item, copy.target_offset * item, 0,
            len(loops) - 1, units, 1, 0,
        )  # fmt: skip
        pieces.append((piece, loops))
    return _recorded(min(1, len(pieces)), len(pieces), pieces)


def _recorded(tasks: int, count: int, pieces: Sequence[tuple[kernels.Piece, list[Loop]]]) -> Plan:
    """The plan of pieces with their loops; ``count``: what the kernel finds before them."""
    width = len(kernels.WORD)
    loops_at = 1 + width * (len(pieces) + 1)
    record = np.empty(loops_at + sum(3 * len(loops) for _, loops in pieces), np.int64)
    record[0] = count
    for row, (piece, loops) in enumerate(pieces):
        first = 1 + width * row
        record[first : first + width] = piece._replace(loops=record.ctypes.data + 8 * loops_at)
        record[loops_at : loops_at + 3 * len(loops)] = np.ravel(loops)
        loops_at += 3 * len(loops)
    behind = 1 + width * len(pieces)
    record[behind : behind + width] = 1 << 62  # no task is a piece's behind the last
    return Plan(tasks, record, record.ctypes.data)


class CopyOperations(HostEngine):
    """Copies of one dtype between layouts."""

    def copy_layout(self, source: Tensor, out: Tensor) -> bool:
        """Copies a tensor into another of its dtype, unless their memory overlaps; returns whether it did."""
        item = out.dtype.itemsize
        storage, target = source.storage, out.storage
        if storage is target and _overlap(source, out):
            return False
        found = plan_of(source.shape, source.strides, out.shape, out.strides, item)
        if found.tasks:
            job = _PAIR(found.address, target.address + out.offset * item, storage.address + source.offset * item)
            kernels.copy.run(job, found.tasks, self.threads)
            if 0 not in out.strides:
                words, elements = (constant(found.address), of_tensor(0), of_tensor(1)), math.prod(out.shape)
                call = partial(call_of, kernels.copy, words, (), elements, found.tasks, found)
                learn(COPY_INTO, self, call, out, source)
        return True

    def copied(self, x: Tensor, order: Sequence[int] | None = None) -> Tensor:
        order = order if order is None or type(order) is tuple else tuple(order)
        found: Tensor | None = COPY.launch(x, order)
        if found is not None:
            return found
        wanted = _copied(x.shape, x.strides, order, x.dtype.itemsize)
        return self._join(COPY, wanted, [x], x, order)

    def flip(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        found: Tensor | None = FLIP.launch(x, axes)
        if found is not None:
            return found
        wanted = _flipped(x.shape, x.strides, axes, x.dtype.itemsize)
        return self._join(FLIP, wanted, [x], x, axes)

    def concat(self, tensors: Sequence[Tensor], axis: int, order: Sequence[int] | None = None) -> Tensor:
        several = tuple(tensors)
        found: Tensor | None = CONCAT.launch(several, axis, order)
        if found is not None:
            return found
        if len(several) > MOST_COPIES:
            return arrays.concat(self, several, axis, order)
        first = several[0]
        wanted = _joined(axis, first.dtype.itemsize, order, *[(x.shape, x.strides) for x in several])
        return self._join(CONCAT, wanted, several, several, axis, order)

    def stack(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        several = tuple(tensors)
        found: Tensor | None = STACK.launch(several, axis)
        if found is not None:
            return found
        if len(several) > MOST_COPIES:
            return arrays.stack(self, several, axis)
        first = several[0]
        lies = [(inserted(x.shape, axis), inserted(x.strides, axis)) for x in several]
        wanted = _joined(axis, first.dtype.itemsize, None, *lies)
        return self._join(STACK, wanted, several, several, axis)

    def _join(self, known: Launches, wanted: Joined, parts: Sequence[Tensor], *arguments: Any) -> Tensor:
        """The result of parts copied into it; the operation's launches get to know how."""
        plan, dtype = wanted.plan, parts[0].dtype
        out = Tensor(self.allocate(wanted.nbytes), 0, wanted.shape, wanted.strides, dtype)
        if not plan.tasks:
            return out
        sources = [x.storage.address + x.offset * dtype.itemsize for x in parts]
        job = wanted.pack(plan.address, out.storage.address, *sources)
        kernels.copy.run(job, plan.tasks, self.threads)
        words = (constant(plan.address), of_result(), *[of_tensor(k) for k in range(len(parts))])
        elements = math.prod(out.shape)
        learn(known, self, lambda: call_of(kernels.copy, words, (out,), elements, plan.tasks, plan), *arguments)
        return out


_PAIR = struct.Struct("3q").pack


@caches.kept
def plan_of(source: Shape, source_strides: Shape, shape: Shape, strides: Shape, item: int) -> Plan:
    """How a tensor is copied into another, to whose shape it is broadcast."""
    missing = len(shape) - len(source)
    if missing < 0 or any(n not in (1, m) for n, m in zip(source, shape[missing:], strict=True)):
        raise ShapeError(f"[copy] expected a source that broadcasts to {shape}, got {source}")
    steps = (0,) * missing + tuple([0 if n == 1 else stride for n, stride in zip(source, source_strides, strict=True)])
    return plan([Copy(2, shape, 0, steps, 0, strides)], item)


class Joined(NamedTuple):
    """A result of tensors copied into parts of it: its shape, strides and bytes, and how it is made."""

    shape: Shape
    strides: Shape
    nbytes: int
    plan: Plan
    pack: Callable[..., bytes]


@caches.kept
def _joined(axis: int, item: int, order: Shape | None, *lies: tuple[Shape, Shape]) -> Joined:
    """Tensors of these shapes and strides one after another along an axis."""
    if order is None:
        order = memory_order(*max(lies, key=lambda lie: math.prod(lie[0])))
    first, length = lies[0][0], sum([shape[axis] for shape, _ in lies])
    whole = (*first[:axis], length, *first[axis + 1 :])
    strides = dense_strides(whole, order)
    copies, start = [], 0
    for place, (shape, steps) in enumerate(lies):
        copies.append(Copy(2 + place, shape, 0, steps, start * strides[axis], strides))
        start += shape[axis]
    return _dense(whole, strides, copies, len(lies), item)


@caches.kept
def _copied(shape: Shape, strides: Shape, order: Shape | None, item: int) -> Joined:
    """A dense copy of a tensor of this shape and strides, in an order of axes or in its own."""
    dense = dense_strides(shape, memory_order(shape, strides) if order is None else order)
    return _dense(shape, dense, [Copy(2, shape, 0, strides, 0, dense)], 1, item)


@caches.kept
def _flipped(shape: Shape, strides: Shape, axes: tuple[int, ...], item: int) -> Joined:
    """The elements in reverse order along axes."""
    dense = dense_strides(shape, memory_order(shape, strides))
    first = sum([(shape[axis] - 1) * strides[axis] for axis in axes])
    steps = tuple([-stride if axis in axes else stride for axis, stride in enumerate(strides)])
    return _dense(shape, dense, [Copy(2, shape, first, steps, 0, dense)], 1, item)


def _dense(shape: Shape, strides: Shape, copies: Sequence[Copy], tensors: int, item: int) -> Joined:
    """A result of copies of so many tensors."""
    pack = struct.Struct(f"{2 + tensors}q").pack
    return Joined(shape, strides, math.prod(shape) * item, plan(copies, item), pack)


def _overlap(x: Tensor, y: Tensor) -> bool:
    """Whether the ranges of memory overlap from which two tensors of one dtype take their elements."""
    x_low, x_high = extent(x.shape, x.strides)
    y_low, y_high = extent(y.shape, y.strides)
    return x.offset + x_low < y.offset + y_high and y.offset + y_low < x.offset + x_high


class Part(NamedTuple):
    """A copy as the kernel does it, or a part of one; offsets in bytes."""

    kind: int
    source: int
    source_offset: int
    target_offset: int
    loops: list[Loop]


def _parts(copy: Copy, item: int) -> list[Part]:
    """The copy as the kernel does it: two parts where a long last loop does not divide into equal pieces."""
    kind, loops = planned_loops(copy, item)
    part = Part(kind, copy.source, copy.source_offset * item, copy.target_offset * item, loops)
    most = kernels.TASK_BYTES if kind == kernels.ROWS else kernels.TASK_BYTES // item
    length, read, write = loops[-1]
    if kind == kernels.TILES or length <= most:
        return [part]
    most = equal_parts(length, most, ISA.bytes)
    outer, pieces, rest = loops[:-1], length // most, length % most
    many = [*outer, (pieces, most * read, most * write), (most, read, write)]
    if not rest:
        return [part._replace(loops=many)]
    done = pieces * most
    last = Part(
        kind, copy.source, part.source_offset + done * read, part.target_offset + done * write,
        [*outer, (rest, read, write)],
    )  # fmt: skip
    return [part._replace(loops=many), last]


def planned_loops(copy: Copy, item: int) -> tuple[int, list[Loop]]:
    """How the kernel copies, and over which loops."""
    loops = merged(copy, item)
    length, read, write = loops[-1]
    if (read, write) == (item, item):
        return kernels.ROWS, [*loops[:-1], (length * item, 1, 1)]
    if read == 0 and write == item and item <= 8:
        return kernels.FILL, loops
    if item in (4, 8) and write == item and length >= ISA.lanes(item):
        lanes = ISA.lanes(item)
        dense = next((i for i, loop in enumerate(loops[:-1]) if loop[1] == item and loop[0] >= lanes), None)
        if dense is not None:
            return kernels.TILES, [*loops[:dense], *loops[dense + 1 : -1], loops[dense], loops[-1]]
    return kernels.STRIDED, loops


def merged(copy: Copy, item: int, by_source: bool = False) -> list[Loop]:
    """The loops of a copy, outermost in the target first; neighbours that go on in both layouts are one.

    ``by_source``: outermost in the source first.
    """
    loops: list[Loop] = []
    side = 1 if by_source else 2
    steps = sorted(
        zip(copy.shape, copy.source_strides, copy.target_strides, strict=True), key=lambda loop: -abs(loop[side])
    )
    for length, read, write in steps:
        if length == 1:
            continue
        follows = loops and loops[-1][1:] == (length * read * item, length * write * item)
        whole = length * loops.pop()[0] if follows else length
        loops.append((whole, read * item, write * item))
    return loops or [(1, item, item)]


def _bytes_read(copy: Copy, item: int) -> int:
    """Bytes of memory that a copy reads, where axes of stride 0 repeat the same."""
    lengths = [length for length, step in zip(copy.shape, copy.source_strides, strict=True) if step]
    return math.prod(lengths) * item


def _may_stream(part: Part, item: int) -> bool:
    """Whether a large part gains by being written past the caches: where most of what is written are whole lines."""
    if not any(write % ISA.bytes for _, _, write in part.loops[:-1]):
        return True
    nbytes = part.loops[-1][0] * (1 if part.kind == kernels.ROWS else item)
    return part.kind != kernels.TILES and nbytes >= STREAMED_ROW_BYTES


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts, those together that share tasks: neighbours that write to the same rows, in the same cache lines."""
    groups: list[list[Part]] = []
    for part in parts:
        rows = [loop[::2] for loop in groups[-1][0].loops[:-1]] if groups else []
        alike = rows and len(part.loops) > len(rows) and [loop[::2] for loop in part.loops[: len(rows)]] == rows
        if alike and kernels.TILES not in (part.kind, groups[-1][0].kind):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _tasks(group: Sequence[Part], item: int) -> list[tuple[int, int]]:
    """For each part of a group its units, and how many make a task."""
    first = group[0]
    if first.kind != kernels.TILES:
        depth = len(first.loops) - 1
        rows = math.prod([length for length, _, _ in first.loops[:-1]])
        shares = [math.prod([length for length, _, _ in part.loops[depth:-1]]) for part in group]
        lengths = [part.loops[-1][0] * (1 if part.kind == kernels.ROWS else item) for part in group]
        nbytes = sum([share * length for share, length in zip(shares, lengths, strict=True)])
        block = equal_parts(rows, kernels.TASK_BYTES // max(nbytes, 1))
        return [(rows * share, block * share) for share in shares]
    loops, tile = first.loops, kernels.TILE_BYTES // item
    tiles = math.prod([-(-length // tile) for length, _, _ in loops[-2:]])
    units = math.prod([length for length, _, _ in loops[:-2]]) * tiles
    return [(units, equal_parts(units, kernels.TASK_BYTES // (kernels.TILE_BYTES * tile)))]
