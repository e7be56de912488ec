"""Loops over broadcast strided operands: axes merged, vector width chosen, packed as kernels/strided.cuh reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from alpha.cu32.structs import KernelStruct

Shape = tuple[int, ...]
Layout = tuple[Shape, Shape]
"""A tensor's shape and strides."""

Axis = tuple[int, Shape]
"""A length, and the stride along it of the result and of each operand."""

LOOP = KernelStruct("strided.cuh", "Loop")
LOOP_AXIS = KernelStruct("strided.cuh", "Axis")
LOOP_OPERANDS = 4
"""Operands, with the results as one, that these have room for; loops of programs may have more."""
MAX_AXES = 8
"""Axes that a loop has room for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One launch of a loop.

    Attributes:
        loop: the struct Loop for the kernel.
        steps: steps to share out over threads: vectors, or tail elements where there are more of them.
        offsets: elements from the first of the result and of each operand to where the piece starts.
    """

    loop: bytes
    steps: int
    offsets: Shape


@dataclass(frozen=True, slots=True)
class Plan:
    """A loop in one launch, or several where one would be too large for 32-bit offsets or has too many axes.

    Attributes:
        width: elements of a step, the width asked for or 1.
    """

    width: int
    pieces: tuple[Piece, ...]


@lru_cache(maxsize=8192)
def plan(out: Layout, operands: tuple[Layout | None, ...], width: int, limit: int = 1 << 31) -> Plan:
    """The loop over a result's elements; None is an operand that is a number. At least one element.

    Args:
        width: elements of a vector where the memory of all tensors is aligned to vectors, 1 where it is not.
        limit: elements and offsets of one launch stay below it.
    """
    axes = merged_axes(out, operands)
    width = width if vectorises(axes, width) else 1
    return Plan(width, tuple(_pieces(axes, (0,) * (1 + len(operands)), width, limit)))


def merged_axes(out: Layout, operands: Sequence[Layout | None]) -> list[Axis]:
    """The fewest axes, innermost in the result's memory first, that reach the same elements; at least one."""
    shape, strides = out
    columns = [strides, *(broadcast_strides(operand, len(shape)) for operand in operands)]
    axes = [(n, tuple(column[a] for column in columns)) for a, n in enumerate(shape) if n > 1]
    axes.sort(key=lambda axis: abs(axis[1][0]))
    merged: list[Axis] = []
    for n, steps in axes:
        if merged:
            inner, inner_steps = merged[-1]
            if all(step == inner * inner_step for step, inner_step in zip(steps, inner_steps, strict=True)):
                merged[-1] = (inner * n, inner_steps)
                continue
        merged.append((n, steps))
    return merged or [(1, (0,) * len(columns))]


def broadcast_strides(operand: Layout | None, ndim: int) -> Shape:
    """An operand's strides along the axes of what it is broadcast to; those of a number are 0."""
    if operand is None:
        return (0,) * ndim
    shape, strides = operand
    missing = (0,) * (ndim - len(shape))
    return (*missing, *(0 if n == 1 else stride for n, stride in zip(shape, strides, strict=True)))


def vectorises(axes: Sequence[Axis], width: int) -> bool:
    """Whether every operand's innermost axis can be taken in vectors: it is dense, or repeats one element."""
    n, steps = axes[0]
    if width == 1 or n < width or (n % width and len(axes) > 1) or steps[0] != 1 or any(s not in (0, 1) for s in steps):
        return False
    dense = [operand for operand, step in enumerate(steps) if step == 1]
    return all(outer[operand] % width == 0 for _, outer in axes[1:] for operand in dense)


def _pieces(axes: list[Axis], offsets: Shape, width: int, limit: int) -> list[Piece]:
    """The loop as it is, or halves of it along its outermost axis, and so on."""
    spans = [sum((n - 1) * abs(steps[operand]) for n, steps in axes) for operand in range(len(offsets))]
    count = math.prod(n for n, _ in axes)
    if count < limit and max(spans) < limit and len(axes) <= MAX_AXES:
        return [_packed(axes, offsets, width)]
    inner, (n, steps) = axes[:-1], axes[-1]
    half = n // 2
    if not inner:  # the second half must start at a vector
        half = max(half // width, 1) * width
    moved = tuple(offset + half * step for offset, step in zip(offsets, steps, strict=True))
    # An axis of one element is left out: its strides may be beyond 32 bits.
    first, second = ([*inner, (part, steps)] if part > 1 or not inner else inner for part in (half, n - half))
    return [*_pieces(first, offsets, width, limit), *_pieces(second, moved, width, limit)]


def _packed(axes: list[Axis], offsets: Shape, width: int) -> Piece:
    n, steps = axes[0]
    splat = sum(1 << operand for operand, step in enumerate(steps) if step == 0) if width > 1 else 0
    vectors, tail = divmod(n, width)
    taken = [(vectors, tuple(step * width for step in steps)), *axes[1:]]
    count = math.prod(length for length, _ in taken)
    return Piece(packed_loop(taken, count, tail, splat), max(count, tail), offsets)


def packed_loop(axes: Sequence[Axis], count: int, tail: int = 0, splat: int = 0) -> bytes:
    """The struct Loop of kernels/strided.cuh over axes given from the innermost."""
    loop, axis = _structs(len(axes[0][1]))
    packed = []
    for length, steps in axes:
        multiplier, shift = _divisor(length)
        packed.append(axis.pack(length=length, multiplier=multiplier, shift=shift, stride=steps))
    return loop.pack(count=count, tail=tail, axes=len(axes), splat=splat, axis=packed)


@cache
def _structs(operands: int) -> tuple[KernelStruct, KernelStruct]:
    """The structs Loop and Axis with room for so many operands."""
    if operands <= LOOP_OPERANDS:
        return LOOP, LOOP_AXIS
    loop, axis = (KernelStruct("strided.cuh", name, LOOP_OPERANDS=str(operands)) for name in ("Loop", "Axis"))
    return loop, axis


def _divisor(length: int) -> tuple[int, int]:
    """(multiplier, shift): ``n // length == ((n * multiplier >> 32) + n) >> shift`` for n below 2**31.

    Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994.
    """
    length = max(length, 1)
    shift = (length - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - length) // length + 1) & 0xFFFFFFFF, shift


@lru_cache(maxsize=8192)
def is_dense(layout: Layout) -> bool:
    """Whether a tensor's elements fill a run of memory, in whatever order."""
    axes = merged_axes(layout, ())
    n, (step,) = axes[0]
    return len(axes) == 1 and (n == 1 or step == 1)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A transposition in square tiles.

    Attributes:
        loop: the struct Loop over tiles.
        count: tiles.
        rows, columns: lengths of the innermost axes of the result and of the source.
        out_step, source_step: strides of each along the other's innermost axis.
    """

    loop: bytes
    count: int
    rows: int
    columns: int
    out_step: int
    source_step: int


@lru_cache(maxsize=8192)
def tiles(out: Layout, source: Layout, side: int, shortest: int) -> Tiles | None:
    """A copy whose result and source have different innermost axes, both of a length of ``shortest`` or more."""
    axes = merged_axes(out, (source,))
    rows, (out_inner, source_step) = axes[0]
    inner = next((a for a, (n, steps) in enumerate(axes) if a and steps[1] == 1 and n >= shortest), None)
    if inner is None or out_inner != 1 or abs(source_step) <= 1 or rows < shortest or len(axes) > MAX_AXES:
        return None
    columns, (out_step, _) = axes.pop(inner)
    taken = [
        (-(-rows // side), (side, side * source_step)),
        (-(-columns // side), (side * out_step, side)),
        *axes[1:],
    ]
    count = math.prod(length for length, _ in taken)
    spans = [sum(length * abs(steps[operand]) for length, steps in taken) for operand in range(2)]
    if max(count, *spans) >= 1 << 31:
        return None
    return Tiles(packed_loop(taken, count), count, rows, columns, out_step, source_step)
