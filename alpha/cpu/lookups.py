"""The CPU engine's lookups along an axis: entries of a table by their indices, and adding to them."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.composed import arrays
from alpha.cpu import tasks
from alpha.cpu.base import Array
from alpha.cpu.copies import CopyOperations
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import indexing as kernels
from alpha.cpu.launches import Call, call_of, constant, learn, of_result, of_tensor, verdict
from alpha.cpu.loops import blocks, machine
from alpha.cpu.loops import lookups as loops
from alpha.dtypes import is_bool, is_float
from alpha.engine import Index, Operand, RangeCheck
from alpha.launches import GATHER_ALONG, INDEX_SELECT, PUT, Launches
from alpha.tensor import Tensor, dense_strides

SIZES = (4, 8)
"""Bytes of the numbers that the kernels know."""

TASK = 1 << 14
"""Numbers per task, about."""

TAKE, ADD, PUT_ENTRIES = "take", "add", "put"
_KERNELS = {TAKE: kernels.take, ADD: kernels.add, PUT_ENTRIES: kernels.put_entries}


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
        lines = lines_of_entries(x.shape, x.strides, index.shape, axis, x.dtype.itemsize, 0)
        return self._taken(Lookup(INDEX_SELECT, x, axis, index, from_end), lines, checked) if lines.serves else None

    def _taken(self, lookup: Lookup, lines: Plan, checked: bool) -> Tensor | None:
        """What a lookup gives; None where an index is out of range and that is ``checked``."""
        known, x, _, given, from_end = lookup
        index = self.dense(given, range(given.ndim))
        out = Tensor(self.allocate(lines.nbytes), 0, lines.shape, lines.strides, x.dtype)
        wrong = np.zeros(1, np.int64) if checked else None
        self.look_up(TAKE, lines, index, x, out, 0 if wrong is None else wrong.ctypes.data, from_end)
        if wrong is not None and wrong[0]:
            return None
        if index is given and lines.tasks:
            job = (
                constant(lines.address), of_tensor(1), of_tensor(0), of_result(), verdict(), constant(from_end),
            )  # fmt: skip

            def call() -> Call:
                item = x.dtype.itemsize
                kernel = _loop(False, 8 * item) if lines.of_columns else kernels.take[item]
                return call_of(kernel, job, (out,), math.prod(lines.shape), lines.tasks, lines)

            learn(known, self, call, *(lookup[1:] if known is INDEX_SELECT else lookup[1:4]))
        return out

    def scatter_along(self, out: Tensor, index: Tensor, values: Tensor, axis: int) -> None:
        index = self.dense(index, range(index.ndim))
        lines = lines_along(out.shape, out.strides, index.shape, axis, out.dtype.itemsize, self.threads)
        if lines.serves and adds(out, values) and values.shape == index.shape:
            self.look_up(ADD, lines, index, out, self.dense(values, range(values.ndim)))
        else:
            arrays.scatter_along(self, out, index, values, axis)

    def add_entries(self, out: Tensor, index: Tensor, axis: int, values: Tensor) -> bool:
        """Adds to whole entries along an axis, if a kernel serves; whether it did."""
        lines = lines_of_entries(out.shape, out.strides, index.shape, axis, out.dtype.itemsize, self.threads)
        if not lines.serves or values.shape != lines.shape:
            return False
        index = self.dense(index, range(index.ndim))
        self.look_up(ADD, lines, index, out, self.dense(values, range(values.ndim)))
        return True

    def put_entries(self, out: Tensor, index: Tensor, axis: int, values: Operand) -> bool:
        """Overwrites whole entries along an axis by those of a tensor, if a kernel serves; whether it did."""
        if not isinstance(values, Tensor) or values.dtype != out.dtype or values.storage is out.storage:
            return False
        if PUT.launch(out, axis, index, values) is not None:
            return True
        lines = lines_of_entries(out.shape, out.strides, index.shape, axis, out.dtype.itemsize, 1, PUT_ENTRIES)
        if not lines.serves or not lines.tasks or values.shape != lines.shape or 0 in out.strides:
            return False
        followed, given = self.dense(index, range(index.ndim)), self.dense(values, range(values.ndim))
        wrong = np.zeros(1, np.int64)  # which the indices are not
        self.look_up(PUT_ENTRIES, lines._replace(tasks=1), followed, out, given, wrong.ctypes.data)
        if followed is index and given is values:
            kernel = kernels.put_entries[out.dtype.itemsize]
            job = (constant(lines.address), of_tensor(1), of_tensor(0), of_tensor(2), verdict())
            elements = math.prod(lines.shape)
            learn(PUT, self, lambda: call_of(kernel, job, (), elements, 1, lines), out, axis, index, values)
        return True

    def look_up(
        self,
        op: str,
        lines: Plan,
        index: Tensor,
        table: Tensor,
        values: Tensor,
        wrong: int = 0,
        from_end: bool = False,
    ) -> None:
        """Looks up, or adds to, what ``lines`` describe; index and values are dense in row-major order.

        Args:
            op: TAKE, ADD or PUT_ENTRIES.
            wrong: where a 1 is written if an index is out of range; without it (0) none may be.
            from_end: whether indices below 0 count from the table's end.
        """
        if lines.tasks:
            item = table.dtype.itemsize
            job = _JOB(
                lines.address,
                index.storage.address + 8 * index.offset,
                table.storage.address + item * table.offset,
                values.storage.address + item * values.offset,
                wrong,
                from_end,
            )
            if lines.of_columns:
                tasks.run(_loop(op == ADD, 8 * item), job, lines.tasks, self.threads)
            else:
                _KERNELS[op][item].run(job, lines.tasks, self.threads)


class Lookup(NamedTuple):
    """A lookup by one index along an axis, and the launches that it belongs to."""

    known: Launches
    x: Tensor
    axis: int
    positions: Tensor
    from_end: bool = True


_JOB = struct.Struct("6q").pack


def adds(out: Tensor, values: Any) -> bool:
    """Whether the kernel adds such values to such entries."""
    return isinstance(values, Tensor) and is_float(out.dtype) and values.dtype == out.dtype


class Plan(NamedTuple):
    """A lookup ready to run but for the addresses; ``serves``: whether there is a kernel for it."""

    serves: bool
    tasks: int = 0
    address: int = 0
    """The record's, whose words are ``kernels.Lines``, or those of ``loops.Columns``."""
    record: Array | tasks.Record | None = None
    shape: Shape = ()
    strides: Shape = ()
    nbytes: int = 0
    """The values' bytes; they are dense in row-major order."""
    of_columns: bool = False
    """Whether one list of indices is looked up in each row of the table: by ``alpha.cpu.loops.lookups``."""


@caches.kept
def lines_along(shape: Shape, strides: Shape, index: Shape, axis: int, item: int, adders: int) -> Plan:
    """The lookup in a table by an index with one element per result, dense in row-major order.

    ``adders``: the threads that add to the table; 0 where it is read.
    """
    before, after = index[:axis], index[axis + 1 :]
    outer, inner = _merged(before, strides[:axis]), _merged(after, strides[axis + 1 :])
    if outer is None or inner is None or item not in SIZES:
        return Plan(False)
    count, length = math.prod(after), index[axis]
    sizes, steps = (math.prod(before), length, count), (outer * item, strides[axis] * item, inner * item)
    found = _plan(sizes, shape[axis], steps, (length * count, count, 1), adders, item)
    return found._replace(shape=index, strides=dense_strides(index), nbytes=math.prod(index) * item)


@caches.kept
def lines_of_entries(
    shape: Shape, strides: Shape, index: Shape, axis: int, item: int, adders: int, op: str = TAKE
) -> Plan:
    """The lookup by an index of whole entries along an axis, dense in row-major order; ``op``: as in ``look_up``."""
    before, after = shape[:axis], shape[axis + 1 :]
    outer, inner = _merged(before, strides[:axis]), _merged(after, strides[axis + 1 :])
    if outer is None or inner is None or item not in SIZES:
        return Plan(False)
    sizes = (math.prod(before), math.prod(index), math.prod(after))
    if op != PUT_ENTRIES and sizes[0] > 1 and sizes[1] and sizes[2] == 1 and shape[axis]:
        found = _columns(sizes[0], sizes[1], shape[axis], outer * item, strides[axis] * item)
    else:
        steps = (outer * item, strides[axis] * item, inner * item)
        found = _plan(sizes, shape[axis], steps, (0, 1, 0), adders, item)
    values = before + index + after
    return found._replace(shape=values, strides=dense_strides(values), nbytes=math.prod(values) * item)


def _plan(
    sizes: tuple[int, int, int],
    entries: int,
    table: tuple[int, int, int],
    index: tuple[int, int, int],
    adders: int,
    item: int,
) -> Plan:
    outer, length, inner = sizes
    if adders:
        lanes = ISA.lanes(item)
        shares = adders if outer < adders else 1  # of one outer position
        block = -(-inner // (shares * lanes)) * lanes
        count = outer * -(-inner // max(block, 1))
    else:
        block = max(1, TASK // max(inner, 1))
        count = -(-outer * length // block)
    if not math.prod(sizes):
        count = 0
    record = np.array(kernels.Lines(*sizes, entries, *table, *index, count, block), np.int64)
    return Plan(True, count, record.ctypes.data, record)


def _columns(rows: int, length: int, entries: int, row_step: int, step: int) -> Plan:
    """The lookup of one list of indices in each row of a table."""
    planned = blocks.plan(rows, length, TASK, least=loops.ROWS)
    record = tasks.Record((*planned, *loops.Columns(length, entries, row_step, step)))
    return Plan(True, record.tasks, record.address, record, of_columns=True)


@cache
def _loop(adds: bool, bits: int) -> machine.Loop:
    """The loop of such a lookup; see ``alpha.cpu.loops.lookups``."""
    return machine.loop(loops.ir_of(bits, adds))


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
