"""Numbers rounded to bfloat16 and put in pairs, two to a word of 32 bits, as the micro-kernel multiplies them.

Rounding is to the nearest, of two to the even one, in integers: it is the same on every processor, whatever its mode.
NaN stays NaN, of the same sign. What is too small for a normal number is rounded too; the instruction counts it as 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.vectors import I64, every, integer, upper_half

WORD = np.dtype(np.int32)

TASK_ROWS = 32
"""Rows per task, where these are long."""

LANES = ISA.bytes // 4

_I16, _I32 = ir.IntType(16), ir.IntType(32)


class _Reader:
    """Reads numbers of 4 or 2 bytes as words whose upper halves are bfloat16."""

    def __init__(self, builder: Any, item: int) -> None:
        self.builder, self.item = builder, item

    def upper(self, address: Any, lanes: int) -> Any:
        """``lanes`` numbers from an address on; a scalar where that is one."""
        builder, element = self.builder, _I32 if self.item == 4 else _I16
        kind = element if lanes == 1 else ir.VectorType(element, lanes)
        found = builder.load(builder.inttoptr(address, kind.as_pointer()))
        found.align = self.item
        if self.item == 4:
            return upper_half(builder, found)
        wide = _I32 if lanes == 1 else ir.VectorType(_I32, lanes)
        return builder.shl(builder.zext(found, wide), every(wide, 16))


def _store(builder: Any, value: Any, address: Any, align: int) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = align


def _for_each(builder: Any, count: Any, write: Any) -> None:
    """Calls ``write(first, lanes)`` for whole vectors, then for numbers one by one."""
    whole = builder.and_(count, integer(-LANES))
    for start, end, lanes in ((integer(0), whole, LANES), (whole, count, 1)):
        with cgutils.for_range_slice(builder, start, end, integer(lanes), I64) as (first, _):
            write(first, lanes)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _round_run(_typing: Any, tag: Any, source: Any, target: Any, count: Any) -> Any:
    """Writes ``count`` neighbouring numbers as bfloat16."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, source, target, count = arguments
        reader = _Reader(builder, tag.bitwidth // 8)

        def write(first: Any, lanes: int) -> None:
            upper = reader.upper(builder.add(source, builder.mul(first, integer(reader.item))), lanes)
            narrow = _I16 if lanes == 1 else ir.VectorType(_I16, lanes)
            halves = builder.trunc(builder.lshr(upper, every(upper.type, 16)), narrow)
            _store(builder, halves, builder.add(target, builder.mul(first, integer(2))), 2)

        _for_each(builder, count, write)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _pair_runs(_typing: Any, tag: Any, low: Any, high: Any, target: Any, count: Any) -> Any:
    """Writes ``count`` words: of two runs of numbers the first in the lower halves; 0 in the upper where high is 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, low, high, target, count = arguments
        reader = _Reader(builder, tag.bitwidth // 8)

        def write(is_pair: bool) -> Any:
            def words(first: Any, lanes: int) -> None:
                offset = builder.mul(first, integer(reader.item))
                lower = reader.upper(builder.add(low, offset), lanes)
                lower = builder.lshr(lower, every(lower.type, 16))
                if is_pair:
                    upper = reader.upper(builder.add(high, offset), lanes)
                    lower = builder.or_(lower, builder.and_(upper, every(upper.type, 0xFFFF0000)))
                _store(builder, lower, builder.add(target, builder.mul(first, integer(4))), 4)

            return words

        with builder.if_else(builder.icmp_signed("!=", high, integer(0))) as (both, one):
            with both:
                _for_each(builder, count, write(True))
            with one:
                _for_each(builder, count, write(False))
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 4), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _round_in_float32(_typing: Any, tag: Any, source: Any, target: Any, count: Any) -> Any:
    """Writes ``count`` neighbouring numbers, rounded to bfloat16, as float32."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, source, target, count = arguments
        reader = _Reader(builder, 4)

        def write(first: Any, lanes: int) -> None:
            offset = builder.mul(first, integer(4))
            upper = reader.upper(builder.add(source, offset), lanes)
            _store(builder, builder.and_(upper, every(upper.type, 0xFFFF0000)), builder.add(target, offset), 4)

        _for_each(builder, count, write)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3), codegen


@compiled
def pair_numbers(share, tag, item, x, numbers, out, task_numbers):  # type: ignore[no-untyped-def]
    """Neighbours of an even number of numbers without gaps become pairs; tasks are of an even number too."""
    tasks = (numbers + task_numbers - 1) // task_numbers
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first = task * task_numbers
        _round_run(tag, x + first * item, out + first * 2, min(task_numbers, numbers - first))


@compiled
def pair_in_rows(share, tag, item, x, rows, columns, words, out, task_rows):  # type: ignore[no-untyped-def]
    """Neighbours of a row become pairs: (rows, columns) without gaps gives (rows, words); an odd one's partner is 0.

    ``tag``: a number of 32 bits for float32, of 16 for bfloat16, as ``item`` says in bytes.
    """
    tasks = (rows + task_rows - 1) // task_rows
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        for row in range(task * task_rows, min((task + 1) * task_rows, rows)):
            source, target = x + row * columns * item, out + row * words * 4
            _round_run(tag, source, target, columns)
            if columns % 2 != 0:
                _pair_runs(tag, source + (columns - 1) * item, 0, target + (words - 1) * 4, 1)


@compiled
def pair_rows(share, tag, item, x, blocks, rows, columns, out):  # type: ignore[no-untyped-def]
    """Neighbouring rows become pairs: (blocks, rows, columns) without gaps gives (blocks, (rows + 1) // 2, columns).

    A task is some pairs of rows of all blocks. An odd row's partners are 0.
    """
    pairs = (rows + 1) // 2
    total = blocks * pairs
    tasks = (total + TASK_ROWS - 1) // TASK_ROWS
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        for index in range(task * TASK_ROWS, min((task + 1) * TASK_ROWS, total)):
            block = index // pairs
            row = (index - block * pairs) * 2
            low = x + (block * rows + row) * columns * item
            high = low + columns * item if row + 1 < rows else 0
            _pair_runs(tag, low, high, out + index * columns * 4, columns)


@compiled
def round_numbers(share, tag, x, numbers, out, task_numbers):  # type: ignore[no-untyped-def]
    """Neighbouring float32 numbers rounded to bfloat16, as float32."""
    tasks = (numbers + task_numbers - 1) // task_numbers
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        first = task * task_numbers
        _round_in_float32(tag, x + first * 4, out + first * 4, min(task_numbers, numbers - first))
