"""Kernels that copy numbers from one layout to another: rows, tiles of transposed matrices, any strides.

A layout is a table ``loops`` with a column per nested loop, outermost first: its length, and the steps in bytes of
source and target. The kernels know numbers by their bytes alone: ``tag`` is a float of the same size.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.vectors import I32, I64, Vectors, integer, read_number, transpose, write_number

LENGTH, SOURCE, TARGET = range(3)
"""Rows of a table of loops."""

TASK_BYTES = 1 << 16
"""Bytes per task, about."""

TILE_BYTES = 256
"""Bytes of a tile's row and of its column: some cache lines, of which a tile touches few enough for the first cache."""

UNROLLED = 4
"""Vectors of a row that are copied at once."""

ISA_BYTES = ISA.bytes


@inlined
def _steps(loops, count, unit):  # type: ignore[no-untyped-def]
    """Where the innermost loops begin for a unit of the ``count`` outer ones: steps in source and target."""
    source = target = 0
    for loop in range(count - 1, -1, -1):
        rest = unit // loops[LENGTH, loop]
        place = unit - rest * loops[LENGTH, loop]
        source += place * loops[SOURCE, loop]
        target += place * loops[TARGET, loop]
        unit = rest
    return source, target


def _mover(kind: ir.Type, nbytes: int, times: int = 1, align: int = 1, stream: bool = False) -> Any:
    """A function of kernels that copies ``times`` values from ``source`` to ``target``; past the caches if asked."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def move(_typing: Any, target: Any, source: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            target, source = arguments
            for i in range(times):
                read, write = (builder.add(address, integer(i * nbytes)) for address in (source, target))
                value = builder.load(builder.inttoptr(read, kind.as_pointer()), align=1)
                stored = builder.store(value, builder.inttoptr(write, kind.as_pointer()), align=align)
                if stream:
                    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return move


_BYTES = ir.VectorType(ir.IntType(8), ISA_BYTES)
_move_byte = _mover(ir.IntType(8), 1)
_move_word = _mover(I64, 8)
_move_vector = _mover(_BYTES, ISA_BYTES)
_move_run = _mover(_BYTES, ISA_BYTES, UNROLLED, ISA_BYTES)
_stream_run = _mover(_BYTES, ISA_BYTES, UNROLLED, ISA_BYTES, stream=True)
RUN_BYTES = UNROLLED * ISA_BYTES


@inlined
def copy_row(target, source, nbytes, stream):  # type: ignore[no-untyped-def]
    """Copies bytes between two addresses: runs of vectors to aligned addresses, and what lies before and behind them.

    The C library's memcpy takes twice as long for rows of some kilobytes.
    """
    done = 0
    if nbytes >= ISA_BYTES:
        _move_vector(target, source)
        done = ISA_BYTES - (target & (ISA_BYTES - 1))
        while nbytes - done >= RUN_BYTES:
            if stream:
                _stream_run(target + done, source + done)
            else:
                _move_run(target + done, source + done)
            done += RUN_BYTES
        while nbytes - done >= ISA_BYTES:
            _move_vector(target + done, source + done)
            done += ISA_BYTES
        if done < nbytes:
            _move_vector(target + nbytes - ISA_BYTES, source + nbytes - ISA_BYTES)
        return
    while nbytes - done >= 8:
        _move_word(target + done, source + done)
        done += 8
    while done < nbytes:
        _move_byte(target + done, source + done)
        done += 1


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _reverse_vector(_typing: Any, tag: Any, target: Any, source: Any) -> Any:
    """Copies a vector's numbers in reverse order; ``source`` is the address of the first of them that is written."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, target, source = arguments
        value = vectors.load(builder.sub(source, integer((vectors.lanes - 1) * vectors.item)))
        vectors.store(vectors.reversed(value), target)
        return context.get_dummy_value()

    return types.void(tag, types.int64, types.int64), codegen


@compiled
def copy_rows(counter, loops, outer, units, block, stream, source, target):  # type: ignore[no-untyped-def]
    """Copies rows that are dense on both sides: the last loop counts bytes. A task is ``block`` of the ``units``.

    ``stream``: past the caches.
    """
    nbytes = loops[LENGTH, outer]
    while True:
        first = take_task(counter) * block
        if first >= units:
            break
        for unit in range(first, min(first + block, units)):
            read, write = _steps(loops, outer, unit)
            copy_row(target + write, source + read, nbytes, stream)
    return 0


@compiled
def copy_strided(counter, tag, item, loops, outer, units, block, source, target):  # type: ignore[no-untyped-def]
    """Copies number by number along the last loop. A task is ``block`` of the ``units``."""
    length, read_step, write_step = loops[LENGTH, outer], loops[SOURCE, outer], loops[TARGET, outer]
    lanes = ISA_BYTES // item
    whole = length // lanes if read_step == -item and write_step == item else 0  # vectors, of a reversed row
    while True:
        first = take_task(counter) * block
        if first >= units:
            break
        for unit in range(first, min(first + block, units)):
            read, write = _steps(loops, outer, unit)
            read += source
            write += target
            for _ in range(whole):
                _reverse_vector(tag, write, read)
                read -= lanes * item
                write += lanes * item
            for _ in range(whole * lanes, length):
                write_number(tag, write, read_number(tag, read))
                read += read_step
                write += write_step
    return 0


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _transpose_past_caches(_typing: Any, tag: Any, source: Any, source_step: Any, target: Any, target_step: Any) -> Any:
    """As ``transpose`` of a whole square, its rows written past the caches: they are aligned to whole vectors."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, source, source_step, target, target_step = arguments
        rows = []
        for _ in range(vectors.lanes):
            rows.append(vectors.load(source))
            source = builder.add(source, source_step)
        for row in vectors.transposed(rows):
            vectors.stream(row, target)
            target = builder.add(target, target_step)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 4), codegen


@compiled
def copy_tiles(counter, tag, item, loops, outer, units, block, stream, source, target):  # type: ignore[no-untyped-def]
    """Copies matrices transposed: the last two loops are dense in source and in target, in this order.

    A task is ``block`` of the ``units``: tiles, of which each matrix has whole rows one after the other.
    """
    lanes, tile = ISA_BYTES // item, TILE_BYTES // item
    height, read_height, write_height = loops[LENGTH, outer], item, loops[TARGET, outer]
    width, read_width, write_width = loops[LENGTH, outer + 1], loops[SOURCE, outer + 1], item
    across, down = (width + tile - 1) // tile, (height + tile - 1) // tile
    while True:
        first = take_task(counter) * block
        if first >= units:
            break
        for unit in range(first, min(first + block, units)):
            matrix = unit // (across * down)
            place = unit - matrix * across * down
            read, write = _steps(loops, outer, matrix)
            row, column = place // across * tile, place % across * tile
            last_row, last_column = min(row + tile, height), min(column + tile, width)
            for i in range(row, last_row, lanes):
                count = min(lanes, last_row - i)
                for j in range(column, last_column, lanes):
                    from_ = source + read + i * read_height + j * read_width
                    to = target + write + i * write_height + j * write_width
                    if j + lanes <= last_column and count == lanes:
                        if stream:
                            _transpose_past_caches(tag, from_, read_width, to, write_height)
                        else:
                            transpose(tag, from_, read_width, to, write_height, count)
                        continue
                    for a in range(count):
                        for b in range(min(lanes, last_column - j)):
                            value = read_number(tag, from_ + a * read_height + b * read_width)
                            write_number(tag, to + a * write_height + b * write_width, value)
    return 0
