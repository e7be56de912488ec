"""The CPU engine's lookups along an axis: entries of a table by their indices, and adding to them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.composed import arrays
from alpha.cpu import streaming, tapes, tasks
from alpha.cpu.base import Array
from alpha.cpu.copies import STREAMED_ROW_BYTES, CopyOperations
from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels import indexing as kernels
from alpha.cpu.launches import Call, call_of, constant, learn, of_result, of_tensor, verdict
from alpha.cpu.loops import along as loops_along
from alpha.cpu.loops import blocks, machine
from alpha.cpu.loops import lookups as loops
from alpha.dtypes import default_int, is_bool, is_float
from alpha.engine import Index, Operand, RangeCheck
from alpha.launches import GATHER_ALONG, INDEX_SELECT, PUT, Launches
from alpha.tensor import Tensor, dense_strides

SIZES = (4, 8)
"""Bytes of the numbers that the kernels know."""

TASK = 1 << 14
"""Numbers per task, about."""

LEAST_SHARED_BYTES = 1 << 10
"""Bytes of an entry, for each thread that writes, from which the threads overwrite parts of it."""

TAKE, ADD, PUT_ENTRIES = "take", "add", "put"
_KERNELS = {TAKE: kernels.take, ADD: kernels.add, PUT_ENTRIES: kernels.put_entries}

ENTRIES, COLUMNS, ALONG = "entries", "columns", "along"
"""What looks up: the kernels of ``alpha.cpu.kernels.indexing``; the loops of ``alpha.cpu.loops.lookups``, for one list
of indices in each row of a table; those of ``alpha.cpu.loops.along``, for an index of its own for each number."""

MOST_ENTRIES = (1 << 31) - 1
"""Entries that int32 indices name, which the loops of ``ALONG`` take by."""


class LookupOperations(CopyOperations):
    """Tables of numbers of 4 or 8 bytes; sums of float32 and float64."""

    def gather_along(self, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None) -> Tensor:
        found: Tensor | None = GATHER_ALONG.launch(x, axis, index)
        if found is not None:
            return found
        lines = lines_along(x.shape, x.strides, index.shape, axis, x.dtype.itemsize, 0)
        found = self._taken(Lookup(GATHER_ALONG, x, axis, index), lines, check is not None) if lines.serves else None
        if found is None and check is not None and index.numel():  # an error, unless what is wrong may be 0 instead
            return self.gather_along(x, self.check_range(index, -x.shape[axis], x.shape[axis], check), axis)
        return arrays.gather_along(self, x, index, axis) if found is None else found

    def gather_along_kept(self, x: Tensor, index: Tensor, axis: int, check: RangeCheck) -> tuple[Tensor, Tensor]:
        lines = lines_along(x.shape, x.strides, index.shape, axis, x.dtype.itemsize, 0)
        if lines.serves and lines.are_whole:
            kept = self.empty(index.shape, _INT32)
            found = self._taken(Lookup(GATHER_ALONG, x, axis, index), lines, True, kept)
            if found is not None:
                return found, kept
        return super().gather_along_kept(x, index, axis, check)

    def index_select(
        self, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None, from_end: bool = True
    ) -> Tensor:
        found = self.take_entries(x, index, axis, check is not None, from_end)
        return arrays.index_select(self, x, index, axis, check, from_end) if found is None else found

    def take_entries(
        self, x: Tensor, index: Tensor, axis: int, checked: bool = False, from_end: bool = True
    ) -> Tensor | None:
        """Whole entries along an axis, if a kernel serves and, where that is ``checked``, x has all of them."""
        found: Tensor | None = INDEX_SELECT.launch(x, axis, index, from_end)
        if found is not None:
            return found
        lines = lines_of_entries(TAKE, x.shape, x.strides, index.shape, axis, x.dtype.itemsize)
        return self._taken(Lookup(INDEX_SELECT, x, axis, index, from_end), lines, checked) if lines.serves else None

    def _taken(self, lookup: Lookup, lines: Plan, checked: bool, kept: Tensor | None = None) -> Tensor | None:
        """What a lookup gives; None where an index is out of range and that is ``checked``.

        ``kept``: where the indices are written as they were followed, dense in row-major order.
        """
        known, x, _, given, from_end = lookup
        index = self.dense(given, range(given.ndim))
        out = Tensor(self.allocate(lines.nbytes), 0, lines.shape, lines.strides, x.dtype)
        wrong = np.zeros(1, np.int64) if checked else None
        tapes.kept(wrong)
        mark = 0 if wrong is None else wrong.ctypes.data
        self.look_up(TAKE, lines, Looked(index, x, out, kept), mark, from_end)
        if wrong is not None and wrong[0]:
            return None
        if index is given and lines.tasks and kept is None:
            job = (
                constant(lines.address), of_tensor(1), of_tensor(0), of_result(), verdict(), constant(from_end),
                constant(0),
            )  # fmt: skip

            def call() -> Call:
                code = _code(TAKE, lines, x.dtype.itemsize, index.dtype.itemsize)
                return call_of(code, job, (out,), math.prod(lines.shape), lines.tasks, lines)

            learn(known, self, call, *(lookup[1:] if known is INDEX_SELECT else lookup[1:4]))
        return out

    def scatter_along(self, out: Tensor, index: Tensor, values: Tensor, axis: int) -> None:
        index = self.dense(index, range(index.ndim))
        lines = lines_along(out.shape, out.strides, index.shape, axis, out.dtype.itemsize, self.threads)
        if lines.serves and adds(out, values) and values.shape == index.shape:
            self.look_up(ADD, lines, Looked(index, out, self.dense(values, range(values.ndim))))
        else:
            self.put_along(out, arrays.cast(self, index, default_int), values, axis, "add")

    def gather_along_grad(
        self, dy: Tensor, index: Tensor, axis: int, shape: Sequence[int], order: Sequence[int]
    ) -> Tensor:
        shape, strides = tuple(shape), dense_strides(tuple(shape), tuple(order))
        lines = lines_along(shape, strides, index.shape, axis, dy.dtype.itemsize, self.threads, True)
        if not (lines.clears and is_float(dy.dtype) and dy.shape == index.shape):
            return super().gather_along_grad(dy, index, axis, shape, order)
        out = self.empty(shape, dy.dtype, order)
        index = self.dense(index, range(index.ndim))
        self.look_up(ADD, lines, Looked(index, out, self.dense(dy, range(dy.ndim))))
        return out

    def add_entries(self, out: Tensor, index: Tensor, axis: int, values: Tensor) -> bool:
        """Adds to whole entries along an axis, if a kernel serves; whether it did."""
        lines = lines_of_entries(ADD, out.shape, out.strides, index.shape, axis, out.dtype.itemsize, self.threads)
        if not lines.serves or values.shape != lines.shape:
            return False
        index = self.dense(index, range(index.ndim))
        self.look_up(ADD, lines, Looked(index, out, self.dense(values, range(values.ndim))))
        return True

    def put_entries(self, out: Tensor, index: Tensor, axis: int, values: Operand) -> bool:
        """Overwrites whole entries along an axis by those of a tensor, if a kernel serves; whether it did."""
        if not isinstance(values, Tensor) or values.dtype != out.dtype or values.storage is out.storage:
            return False
        if PUT.launch(out, axis, index, values) is not None:
            return True
        lines = lines_of_entries(
            PUT_ENTRIES, out.shape, out.strides, index.shape, axis, out.dtype.itemsize, self.threads
        )
        if not lines.serves or not lines.tasks or values.shape != lines.shape or 0 in out.strides:
            return False
        followed, given = self.dense(index, range(index.ndim)), self.dense(values, range(values.ndim))
        wrong = np.zeros(1, np.int64)  # which the indices are not
        tapes.kept(wrong)
        self.look_up(PUT_ENTRIES, lines, Looked(followed, out, given), wrong.ctypes.data)
        if followed is index and given is values:
            kernel = kernels.put_entries[out.dtype.itemsize]
            job = (constant(lines.address), of_tensor(1), of_tensor(0), of_tensor(2), verdict())
            elements = math.prod(lines.shape)
            learn(PUT, self, lambda: call_of(kernel, job, (), elements, lines.tasks, lines), out, axis, index, values)
        return True

    def look_up(self, op: str, lines: Plan, looked: Looked, wrong: int = 0, from_end: bool = False) -> None:
        """Looks up, or adds to, what ``lines`` describe.

        Args:
            op: TAKE, ADD or PUT_ENTRIES.
            wrong: where a 1 is written if an index is out of range; without it (0) none may be.
            from_end: whether indices below 0 count from the table's end.
        """
        if not lines.tasks:
            return
        index, table, values, kept = looked
        item = table.dtype.itemsize
        places = [tasks.address_of(x) for x in (index, table, values)]
        job = _JOB(lines.address, *places, wrong, from_end, tasks.address_of(kept))
        code = _code(op, lines, item, index.dtype.itemsize)
        if isinstance(code, JobKernel):
            code.run(job, lines.tasks, self.threads)
        else:
            tasks.run(code, job, lines.tasks, self.threads)


class Looked(NamedTuple):
    """The tensors of a lookup; all but the table are dense in row-major order."""

    positions: Tensor
    table: Tensor
    values: Tensor
    kept: Tensor | None = None
    """Where the indices are written as they were followed."""


class Lookup(NamedTuple):
    """A lookup by one index along an axis, and the launches that it belongs to."""

    known: Launches
    x: Tensor
    axis: int
    positions: Tensor
    from_end: bool = True


_JOB = struct.Struct("7q").pack
_INT32 = np.dtype(np.int32)


def adds(out: Tensor, values: Any) -> bool:
    """Whether the kernel adds such values to such entries."""
    return isinstance(values, Tensor) and is_float(out.dtype) and values.dtype == out.dtype


class Plan(NamedTuple):
    """A lookup ready to run but for the addresses; ``serves``: whether there is a kernel for it."""

    serves: bool
    tasks: int = 0
    address: int = 0
    """The record's, whose words are those of its kind: ``kernels.Lines``, ``loops.Columns`` or ``along.Along``."""
    record: Array | tasks.Record | None = None
    shape: Shape = ()
    strides: Shape = ()
    nbytes: int = 0
    """The values' bytes; they are dense in row-major order."""
    kind: str = ENTRIES
    """What looks up."""
    is_dense: bool = False
    """Whether the entries along the axis have no gaps."""
    are_whole: bool = False
    """Whether the axis is the last one, so that lines of the table are added to one by one."""
    clears: bool = False
    """Whether the table is zeroed before anything is added."""


@caches.kept
def lines_along(
    shape: Shape, strides: Shape, index: Shape, axis: int, item: int, adders: int, clears: bool = False
) -> Plan:
    """The lookup in a table by an index with one element per result, dense in row-major order.

    Args:
        adders: the threads that add to the table; 0 where it is read.
        clears: whether the table is zeroed first, if what adds does it on the way.
    """
    before, after = index[:axis], index[axis + 1 :]
    outer, inner = _merged(before, strides[:axis]), _merged(after, strides[axis + 1 :])
    if outer is None or inner is None or item not in SIZES:
        return Plan(False)
    count, length = math.prod(after), index[axis]
    sizes, steps = _Sizes(math.prod(before), length, count), (outer * item, strides[axis] * item, inner * item)
    if count == 1 or not adders:
        clears = clears and shape[:axis] == before and strides[axis] == 1
        found = _along(sizes, shape[axis], steps, adders, clears, item)
    else:
        found = _plan(ADD, sizes, shape[axis], steps, (length * count, count, 1), adders, item)
    return found._replace(shape=index, strides=dense_strides(index), nbytes=math.prod(index) * item)


@caches.kept
def lines_of_entries(
    op: str, shape: Shape, strides: Shape, index: Shape, axis: int, item: int, writers: int = 0
) -> Plan:
    """The lookup by an index of whole entries along an axis, dense in row-major order.

    Args:
        op: as in ``look_up``.
        writers: the threads that add to the table or overwrite it; 0 where it is read.
    """
    before, after = shape[:axis], shape[axis + 1 :]
    outer, inner = _merged(before, strides[:axis]), _merged(after, strides[axis + 1 :])
    if outer is None or inner is None or item not in SIZES:
        return Plan(False)
    sizes = _Sizes(math.prod(before), math.prod(index), math.prod(after))
    if op != PUT_ENTRIES and sizes.outer > 1 and sizes.length and sizes.inner == 1 and shape[axis]:
        found = _columns(sizes.outer, sizes.length, shape[axis], outer * item, strides[axis] * item)
    elif op != PUT_ENTRIES and sizes.outer == sizes.inner == 1:
        found = _along(sizes, shape[axis], (0, strides[axis] * item, 0), writers, False, item)
    else:
        steps = (outer * item, strides[axis] * item, inner * item)
        found = _plan(op, sizes, shape[axis], steps, (0, 1, 0), writers, item)
    values = before + index + after
    return found._replace(shape=values, strides=dense_strides(values), nbytes=math.prod(values) * item)


def _plan(
    op: str,
    sizes: _Sizes,
    entries: int,
    table: tuple[int, int, int],
    index: tuple[int, int, int],
    writers: int,
    item: int,
) -> Plan:
    """A lookup by the kernels; ``writers``: the threads that add to the table or overwrite it."""
    outer, length, inner = sizes
    nbytes = math.prod(sizes) * item
    stream = streaming.streams(nbytes, nbytes) and inner * item >= STREAMED_ROW_BYTES
    if op == TAKE:
        block = max(1, TASK // max(inner, 1))
        count = -(-outer * length // block)
    elif op == ADD or inner * item >= LEAST_SHARED_BYTES * writers:
        lanes = ISA.lanes(item)
        shares = writers if outer < writers else 1  # of one outer position
        block = -(-inner // (shares * lanes)) * lanes
        count = outer * -(-inner // max(block, 1))
    else:
        block, count = inner, min(outer, 4 * writers)
    if not math.prod(sizes):
        count = 0
    record = np.array(kernels.Lines(*sizes, entries, *table, *index, count, block, stream), np.int64)
    return Plan(True, count, record.ctypes.data, record)


def _columns(rows: int, length: int, entries: int, row_step: int, step: int) -> Plan:
    """The lookup of one list of indices in each row of a table."""
    planned = blocks.plan(rows, length, TASK, least=loops.ROWS)
    record = tasks.Record((*planned, *loops.Columns(length, entries, row_step, step)))
    return Plan(True, record.tasks, record.address, record, kind=COLUMNS)


class _Sizes(NamedTuple):
    """The lengths of the axes of a lookup: those before the axis as one, the indices along it, those behind it."""

    outer: int
    length: int
    inner: int


def _along(sizes: _Sizes, entries: int, table: tuple[int, int, int], adders: int, clears: bool, item: int) -> Plan:
    """The lookup by an index for each number: lines along the axis if it is the last, else along those behind it."""
    if not 0 < entries <= MOST_ENTRIES:
        return Plan(entries == 0 and not math.prod(sizes))  # of no entries there is none that stands in
    are_whole = sizes.inner == 1
    lines, numbers, group = (
        (sizes.outer, sizes.length, 1) if are_whole else (sizes.outer * sizes.length, sizes.inner, sizes.length)
    )
    piece = numbers if adders else min(numbers, TASK)  # sums of a line have their order
    block, pieces = max(1, TASK // max(1, numbers)), -(-numbers // max(1, piece))
    count = -(-lines // block) * pieces if math.prod(sizes) else 0
    step, move = table[1], 0 if are_whole else table[2]
    words = loops_along.Along(
        count, lines, block, numbers, piece, pieces, group, entries, table[0], step, move, clears
    )  # fmt: skip
    record = tasks.Record(words)
    found = Plan(True, count, record.address, record, kind=ALONG)
    return found._replace(is_dense=step == item and not move, are_whole=are_whole, clears=clears and count > 0)


def _code(op: str, lines: Plan, item: int, index_item: int) -> JobKernel | machine.Loop:
    """What looks up numbers of so many bytes by indices of so many."""
    if lines.kind == COLUMNS:
        return _columns_loop(op == ADD, 8 * item)
    if lines.kind == ALONG:
        return _adding(8 * item, 8 * index_item) if op == ADD else _taking(8 * item, lines.is_dense)
    return _KERNELS[op][item]


@cache
def _columns_loop(adds: bool, bits: int) -> machine.Loop:
    """The loop of ``COLUMNS``."""
    return machine.loop(loops.ir_of(bits, adds))


@cache
def _taking(bits: int, is_dense: bool) -> machine.Loop:
    """The loop of ``ALONG`` that takes."""
    return machine.loop(loops_along.take_ir(bits, is_dense))


@cache
def _adding(bits: int, index_bits: int) -> machine.Loop:
    """The loop of ``ALONG`` that adds."""
    return machine.loop(loops_along.add_ir(bits, index_bits))


def _merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """The stride of axes as one, in row-major order; None where they have gaps between them."""
    step: int | None = None
    covered = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if step is not None and stride != step * covered:
            return None
        step = stride if step is None else step
        covered *= n
    return 0 if step is None else step


def only_axis(index: Index) -> int | None:
    """The axis of an index that holds one tensor of integers and otherwise whole axes."""
    axis = None
    for i, entry in enumerate(index):
        if isinstance(entry, Tensor):
            if axis is not None or is_bool(entry.dtype):
                return None
            axis = i
        elif type(entry) is not slice or entry != _WHOLE:
            return None
    return axis


_WHOLE = slice(None)
