"""Kernels of indexing: checking indices, looking entries of a table up along an axis, and adding to them."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import alone, compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.copies import copy_row
from alpha.cpu.kernels.vectors import I64, Vectors, read_number, write_number

ISA_BYTES = ISA.bytes

IN_RANGE, SOME_IGNORED = -1, -2
"""What ``check_range`` returns if no index is out of range: none was equal to ``ignore``, or some were."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def get(_typing: Any, address: Any, position: Any) -> Any:
    """Reads the int64 at a position of an array, by the array's address."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(arguments[0], I64.as_pointer()), [arguments[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def put(_typing: Any, address: Any, position: Any, value: Any) -> Any:
    """Writes an int64 to a position of an array, by the array's address."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, position, value = arguments
        builder.store(value, builder.gep(builder.inttoptr(address, I64.as_pointer()), [position]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@alone
def check_range(source, out, count, low, high, ignore, may_ignore, checking):  # type: ignore[no-untyped-def]
    """Copies int64 indices between two addresses and makes the copies safe to follow.

    Indices below 0 count from ``high``; ignored and wrong ones become 0. Each is read from ``source`` only once:
    another thread may write to it meanwhile. Returns the position of the first index outside low..high-1 if
    ``checking``, and leaves the copies as they were read; else IN_RANGE or SOME_IGNORED.
    """
    wrong = changed = ignored = False
    for i in range(count):
        value = get(source, i)
        put(out, i, value)
        is_ignored = may_ignore & (value == ignore)
        ignored |= is_ignored
        changed |= value < 0
        wrong |= (not is_ignored) & ((value < low) | (value >= high))
    if wrong and checking:
        for i in range(count):
            value = get(out, i)
            if (value < low or value >= high) and not (may_ignore and value == ignore):
                return i
    if wrong or changed or ignored:
        for i in range(count):
            value = get(out, i)
            if (may_ignore and value == ignore) or value < low or value >= high:
                put(out, i, 0)
            elif value < 0:
                put(out, i, value + high)
    return SOME_IGNORED if ignored else IN_RANGE


class Lines(NamedTuple):
    """The steps of a lookup along the middle one of three axes: (outer, length, inner) of indices and values.

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


@inlined
def _take_numbers(tag, item, count, index, index_step, entries, table, table_step, move, out):  # type: ignore[no-untyped-def]
    """out[i] = the entry of table + i * ``move`` that index[i * index_step] names, for i < count; else 0."""
    for i in range(count):
        entry = get(index, i * index_step)
        value = tag
        if 0 <= entry < entries:
            value = read_number(tag, table + entry * table_step)
        write_number(tag, out, value)
        table += move
        out += item


@compiled
def take_along(counter, tag, item, lines, index, table, out, block):  # type: ignore[no-untyped-def]
    """out[o, k, i] = table[o, index[o, k, i], i], 0 for an index that the table does not have.

    A task is ``block`` of the pairs (o, k). ``tag``: a 0 of the numbers' size.
    """
    inner, length = lines.inner, lines.length
    while True:
        first = take_task(counter) * block
        if first >= lines.outer * length:
            break
        last = min(first + block, lines.outer * length)
        while first < last:
            o = first // length
            k = first - o * length
            count = min(length - k, last - first)
            at, read = index + 8 * (o * lines.index_outer + k * lines.index_step), table + o * lines.table_outer
            write = out + first * inner * item
            first += count
            if inner == 1:
                _take_numbers(
                    tag, item, count, at, lines.index_step, lines.entries, read, lines.table_step, 0, write
                )  # fmt: skip
                continue
            for i in range(count):
                entry = get(at, i * lines.index_step)
                if lines.index_inner == 0 and lines.table_inner == item and 0 <= entry < lines.entries:
                    copy_row(write, read + entry * lines.table_step, inner * item, False)
                else:
                    _take_numbers(
                        tag, item, inner, at + 8 * i * lines.index_step, lines.index_inner, lines.entries, read,
                        lines.table_step, lines.table_inner, write,
                    )  # fmt: skip
                write += inner * item
    return 0


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


@compiled
def add_along(counter, tag, item, lines, index, table, values, block):  # type: ignore[no-untyped-def]
    """table[o, index[o, k, i], i] += values[o, k, i]; an index that the table does not have is left out.

    A task is an o and ``block`` of its i: one thread adds all k, in order, so threads do not change the sums.
    """
    inner, length, lanes = lines.inner, lines.length, ISA_BYTES // item
    blocks = (inner + block - 1) // block
    while True:
        task = take_task(counter)
        if task >= lines.outer * blocks:
            break
        o = task // blocks
        first = (task - o * blocks) * block
        count = min(block, inner - first)
        at, write = index + 8 * o * lines.index_outer, table + o * lines.table_outer + first * lines.table_inner
        read = values + (o * length * inner + first) * item
        if inner == 1:
            _add_numbers(tag, item, length, at, lines.index_step, lines.entries, write, lines.table_step, 0, read)
            continue
        whole = count // lanes * lanes if lines.index_inner == 0 and lines.table_inner == item else 0
        at += 8 * first * lines.index_inner
        for _ in range(length):
            entry = get(at, 0)
            if whole and 0 <= entry < lines.entries:
                for i in range(0, whole, lanes):
                    _add_vector(tag, write + entry * lines.table_step + i * item, read + i * item)
            _add_numbers(
                tag, item, count - whole, at + 8 * whole * lines.index_inner, lines.index_inner, lines.entries,
                write + whole * lines.table_inner, lines.table_step, lines.table_inner, read + whole * item,
            )  # fmt: skip
            at += 8 * lines.index_step
            read += inner * item
    return 0
