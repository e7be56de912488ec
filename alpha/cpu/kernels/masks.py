"""Kernels of masks: what a mask selects, taken out in order, or overwritten by numbers in order, or by one number.

A row is what lies behind one element of the mask: one number, or several beside each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import inlined
from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels.copies import copy_row, get_byte
from alpha.cpu.kernels.records import get, next_task
from alpha.cpu.kernels.vectors import I64, Vectors, read_number, write_number

ISA_BYTES = ISA.bytes


class Selection(NamedTuple):
    """The words of a job. The mask is bool and dense, as the rows are; the taken ones are dense."""

    mask: int
    rows: int
    taken: int
    """Address of the numbers taken, or to put; of one number, its address."""
    starts: int
    """Address of a table: how many rows are selected before each task, and before the end."""
    length: int
    """Elements of the mask."""
    block: int
    """Elements of the mask per task."""
    numbers: int
    """Numbers of a row."""
    tasks: int


WORD = Selection(*range(len(Selection._fields)))
"""The place of each word."""

TAG, TAG_BYTES = np.float32(0), 4
"""A 0 of the numbers' size, and their bytes: each kernel has its own."""


def _writing(change: Callable[[Vectors, Any, Any, Any], Any]) -> Any:
    """A function of kernels that changes the numbers which a vector's worth of mask selects; returns how many.

    ``change``: the new numbers, from the vectors, the mask's bits, and the addresses of the old ones and of those to
    put. Numbers that are not selected are not written to.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def write(_typing: Any, tag: Any, mask: Any, out: Any, values: Any, left: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            _, mask, out, values, left = arguments
            vectors = Vectors(builder, tag)
            lanes = vectors.lanes
            bytes_ = ir.VectorType(ir.IntType(8), lanes)
            read = builder.load(vectors.pointer(mask, bytes_))
            read.align = 1
            holds = builder.icmp_signed("!=", read, ir.Constant(bytes_, [ir.Constant(ir.IntType(8), 0)] * lanes))
            selected = builder.and_(holds, vectors.first(left))
            value = change(vectors, selected, out, values)
            vectors.store_where(value, out, selected)
            word = builder.zext(builder.bitcast(selected, ir.IntType(lanes)), I64)
            kind = ir.FunctionType(I64, [I64])
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.i64"), [word])

        return types.int64(tag, *[types.int64] * 4), codegen

    return write


def _one(vectors: Vectors, _selected: Any, _out: Any, values: Any) -> Any:
    return vectors.broadcast(values)


def _several(vectors: Vectors, selected: Any, _out: Any, values: Any) -> Any:
    return vectors.expand(values, selected)


def _sums(vectors: Vectors, selected: Any, out: Any, values: Any) -> Any:
    return vectors.builder.fadd(vectors.load(out), vectors.expand(values, selected))


WRITE = _writing(_one)
"""What a kernel writes: each has its own."""
IS_SUM, IS_ONE = False, True
"""Whether it adds; whether one number is written everywhere."""


@inlined
def _write_row(tag, item, out, values, step, numbers, adds):  # type: ignore[no-untyped-def]
    """Writes, or adds, a row's numbers, which are ``step`` bytes apart: 0 for one number everywhere."""
    for _ in range(numbers):
        value = read_number(tag, values)
        if adds:
            value += read_number(tag, out)
        write_number(tag, out, value)
        out += item
        values += step


def _write(share, job):  # type: ignore[no-untyped-def]
    """Changes what the mask selects. The job's words: ``Selection``."""
    lanes, numbers = ISA_BYTES // TAG_BYTES, get(job, WORD.numbers)
    tasks = get(job, WORD.tasks)
    task = next_task(share, -1, tasks)
    while task < tasks:
        first = task * get(job, WORD.block)
        last = min(first + get(job, WORD.block), get(job, WORD.length))
        values = get(job, WORD.taken)
        if not IS_ONE:
            values += get(get(job, WORD.starts), task) * numbers * TAG_BYTES
        out = get(job, WORD.rows) + first * numbers * TAG_BYTES
        if numbers == 1:
            for i in range(first, last, lanes):
                written = WRITE(TAG, get(job, WORD.mask) + i, out, values, last - i)
                if not IS_ONE:
                    values += written * TAG_BYTES
                out += lanes * TAG_BYTES
        else:
            for i in range(first, last):
                if get_byte(get(job, WORD.mask), i) != 0:
                    _write_row(TAG, TAG_BYTES, out, values, 0 if IS_ONE else TAG_BYTES, numbers, IS_SUM)
                    if not IS_ONE:
                        values += numbers * TAG_BYTES
                out += numbers * TAG_BYTES
        task = next_task(share, task, tasks)


def _take(share, job):  # type: ignore[no-untyped-def]
    """Copies the rows that the mask selects one after another. The job's words: ``Selection``."""
    nbytes, mask = get(job, WORD.numbers) * TAG_BYTES, get(job, WORD.mask)
    tasks = get(job, WORD.tasks)
    task = next_task(share, -1, tasks)
    while task < tasks:
        i = task * get(job, WORD.block)
        last = min(i + get(job, WORD.block), get(job, WORD.length))
        rows, out = get(job, WORD.rows), get(job, WORD.taken) + get(get(job, WORD.starts), task) * nbytes
        stop = get(job, WORD.taken) + get(get(job, WORD.starts), task + 1) * nbytes
        while i < last and out < stop:  # behind the last that is selected, nothing is written
            if nbytes == TAG_BYTES:
                write_number(TAG, out, read_number(TAG, rows + i * nbytes))
                out += nbytes if get_byte(mask, i) != 0 else 0
            elif get_byte(mask, i) != 0:
                copy_row(out, rows + i * nbytes, nbytes, False)
                out += nbytes
            i += 1
        task = next_task(share, task, tasks)


def _by_size(function: Any, name: str, **names: Any) -> dict[int, JobKernel]:
    """The kernel for numbers of 4 and of 8 bytes."""
    return {
        tag.itemsize: JobKernel(function, f"{name}_{tag.itemsize}", TAG=tag, TAG_BYTES=tag.itemsize, **names)
        for tag in (np.float32(0), np.float64(0))
    }


take = _by_size(_take, "take_selected")
fill = _by_size(_write, "fill_selected")
put = _by_size(_write, "put_selected", WRITE=_writing(_several), IS_ONE=False)
add = _by_size(_write, "add_selected", WRITE=_writing(_sums), IS_ONE=False, IS_SUM=True)
