"""Kernels of indexing: looking entries of a table up along an axis, and adding to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from alpha.cpu.compile import inlined
from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels.copies import copy_row
from alpha.cpu.kernels.records import get, next_task, put
from alpha.cpu.kernels.vectors import Vectors, read_number, write_number

ISA_BYTES = ISA.bytes


class Lines(NamedTuple):
    """The words of a plan: the steps of a lookup along the middle one of three axes (outer, length, inner) of indices
    and values.

    Those of the table are in bytes, those of the indices in elements, 0 where an axis has none of its own. The values
    are dense.
    """

    outer: int
    length: int
    inner: int
    entries: int
    """Entries of the table along the axis of the lookup."""
    table_outer: int
    table_step: int
    table_inner: int
    index_outer: int
    index_step: int
    index_inner: int
    tasks: int
    block: int
    """What makes a task: pairs of outer and length of a lookup, inner numbers of a sum or of what is overwritten."""
    stream: int
    """Whether it writes past the caches."""


WORD = Lines(*range(len(Lines._fields)))
"""The place of each word."""

TAG, TAG_BYTES = np.float32(0), 4
"""A 0 of the numbers' size, and their bytes: each kernel has its own."""


def _take(share, job):  # type: ignore[no-untyped-def]
    """out[o, k, i] = table[o, index[k], i], 0 for an index that the table does not have.

    The job's words: the plan, index, table, out, where a 1 is written if the table has not what an index names (or 0),
    and whether indices below 0 count from its end. A task is a block of the pairs (o, k).
    """
    plan, index, table, out, place = get(job, 0), get(job, 1), get(job, 2), get(job, 3), get(job, 4)
    item, inner, length, entries = TAG_BYTES, get(plan, WORD.inner), get(plan, WORD.length), get(plan, WORD.entries)
    table_step, table_inner = get(plan, WORD.table_step), get(plan, WORD.table_inner)
    pairs, from_end, wrong = get(plan, WORD.outer) * length, get(job, 5) != 0, 0
    stream = get(plan, WORD.stream) != 0
    tasks = get(plan, WORD.tasks)
    task = next_task(share, -1, tasks)
    while task < tasks:
        first = task * get(plan, WORD.block)
        last = min(first + get(plan, WORD.block), pairs)
        while first < last:
            o = first // length
            k = first - o * length
            write = out + first * inner * item
            count = min(length - k, last - first)
            first += count
            for i in range(k, k + count):
                entry = get(index, i)
                if from_end and entry < 0:
                    entry += entries
                read = table + o * get(plan, WORD.table_outer) + entry * table_step
                is_within = 0 <= entry < entries
                wrong += not is_within
                if is_within and table_inner == item:
                    copy_row(write, read, inner * item, stream)
                else:
                    for j in range(inner):
                        value = read_number(TAG, read + j * table_inner) if is_within else TAG
                        write_number(TAG, write + j * item, value)
                write += inner * item
        task = next_task(share, task, tasks)
    if wrong and place != 0:
        put(place, 0, 1)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _add_vector(_typing: Any, tag: Any, target: Any, source: Any) -> Any:
    """Adds a vector's numbers to those at another address."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, target, source = arguments
        vectors.store(builder.fadd(vectors.load(target), vectors.load(source)), target)
        return context.get_dummy_value()

    return types.void(tag, types.int64, types.int64), codegen


@inlined
def _add_numbers(tag, item, count, index, index_step, entries, table, table_step, move, values):  # type: ignore[no-untyped-def]
    """Adds values[i] to the entry of table + i * ``move`` that index[i * index_step] names, for i < count, in order."""
    for i in range(count):
        entry = get(index, i * index_step)
        if 0 <= entry < entries:
            place = table + entry * table_step
            write_number(tag, place, read_number(tag, place) + read_number(tag, values))
        table += move
        values += item


def _add(share, job):  # type: ignore[no-untyped-def]
    """table[o, index[o, k, i], i] += values[o, k, i]; an index that the table does not have is left out.

    The job's words: the plan, index, table, values. A task is an o and a block of its i: one thread adds all k, in
    order, so threads do not change the sums.
    """
    plan, index, table, values = get(job, 0), get(job, 1), get(job, 2), get(job, 3)
    item, inner, length, entries = TAG_BYTES, get(plan, WORD.inner), get(plan, WORD.length), get(plan, WORD.entries)
    table_step, table_inner = get(plan, WORD.table_step), get(plan, WORD.table_inner)
    index_step, index_inner = get(plan, WORD.index_step), get(plan, WORD.index_inner)
    block, lanes = get(plan, WORD.block), ISA_BYTES // item
    blocks = (inner + block - 1) // block
    tasks = get(plan, WORD.tasks)
    task = next_task(share, -1, tasks)
    while task < tasks:
        o = task // blocks
        first = (task - o * blocks) * block
        count = min(block, inner - first)
        at = index + 8 * (o * get(plan, WORD.index_outer) + first * index_inner)
        write = table + o * get(plan, WORD.table_outer) + first * table_inner
        read = values + (o * length * inner + first) * item
        whole = count // lanes * lanes if inner > 1 and index_inner == 0 and table_inner == item else 0
        for _ in range(length):
            entry = get(at, 0)
            if whole and 0 <= entry < entries:
                for i in range(0, whole, lanes):
                    _add_vector(TAG, write + entry * table_step + i * item, read + i * item)
            _add_numbers(
                TAG, item, count - whole, at + 8 * whole * index_inner, index_inner, entries,
                write + whole * table_inner, table_step, table_inner, read + whole * item,
            )  # fmt: skip
            at += 8 * index_step
            read += inner * item
        task = next_task(share, task, tasks)


def _put(share, job):  # type: ignore[no-untyped-def]
    """table[o, index[k], i] = values[o, k, i], of equal indices the last; nothing where an index is out of range.

    The job's words: the plan, index, table, values, and where a 1 is written if an index is out of range; those below
    0 count from the table's end. A task is some o and a block of their i: one thread writes all k, in order.
    """
    plan, index, table, values = get(job, 0), get(job, 1), get(job, 2), get(job, 3)
    item, inner, length, entries = TAG_BYTES, get(plan, WORD.inner), get(plan, WORD.length), get(plan, WORD.entries)
    table_step, table_inner = get(plan, WORD.table_step), get(plan, WORD.table_inner)
    outer, block, tasks = get(plan, WORD.outer), get(plan, WORD.block), get(plan, WORD.tasks)
    stream, blocks = get(plan, WORD.stream) != 0, (inner + block - 1) // block
    parts = tasks // blocks
    wrong = 0
    for k in range(length):
        wrong += not -entries <= get(index, k) < entries
    if wrong:
        put(get(job, 4), 0, 1)
    task = next_task(share, -1, tasks)
    while task < tasks and not wrong:
        part = task // blocks
        first = (task - part * blocks) * block
        count = min(block, inner - first)
        for o in range(outer * part // parts, outer * (part + 1) // parts):
            start = table + o * get(plan, WORD.table_outer) + first * table_inner
            read = values + (o * length * inner + first) * item
            for k in range(length):
                entry = get(index, k)
                if entry < 0:
                    entry += entries
                if 0 <= entry < entries:  # another thread may have written to the index
                    write = start + entry * table_step
                    if table_inner == item and count > 1:
                        copy_row(write, read, count * item, stream)
                    else:
                        for i in range(count):
                            write_number(TAG, write + i * table_inner, read_number(TAG, read + i * item))
                read += inner * item
        task = next_task(share, task, tasks)


def _by_size(function: Any) -> dict[int, JobKernel]:
    """The kernel for numbers of 4 and of 8 bytes."""
    return {
        tag.itemsize: JobKernel(function, f"{function.__name__[1:]}_{tag.itemsize}", TAG=tag, TAG_BYTES=tag.itemsize)
        for tag in (np.float32(0), np.float64(0))
    }


take, add, put_entries = _by_size(_take), _by_size(_add), _by_size(_put)
