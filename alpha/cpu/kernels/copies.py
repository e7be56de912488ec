"""The kernel that copies numbers from one layout to another: rows, tiles of transposed matrices, any strides.

It runs a list of copies into one tensor. Each has a table of loops, outermost first: a loop's length, and the steps in
bytes of source and target. The kernel knows numbers by their bytes alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from alpha.cpu.compile import inlined
from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels.records import get, next_task
from alpha.cpu.kernels.vectors import I32, I64, Vectors, integer, read_number, transpose, write_number

LENGTH, SOURCE, TARGET, LOOP_WORDS = range(4)
"""Words of a loop, and their number."""

ROWS, FILL, STRIDED, TILES = range(4)
"""How numbers are copied along the innermost loops: bytes of rows that are dense on both sides (the last loop counts
bytes); one number into a dense row; one after another; transposed matrices, whose last two loops are dense in source
and in target, in this order."""


class Piece(NamedTuple):
    """The words of a copy, of which a plan has a table."""

    first: int
    """Its first task: tasks are numbered from the first copy to the last; some may share theirs."""
    kind: int
    item: int
    """Bytes of a number."""
    source: int
    """Which word of the job holds the source's address; below 0: which word is, negated, the number to fill with."""
    source_offset: int
    target_offset: int
    """Bytes."""
    loops: int
    """Address of its loops."""
    outer: int
    """Loops outside of those that the kind knows about."""
    units: int
    """What the outer loops count, of tiles all of their tiles."""
    block: int
    """Units per task."""
    stream: int
    """Whether it writes past the caches."""


WORD = Piece(*range(len(Piece._fields)))
"""The place of each word."""

PIECE_BYTES = 8 * len(WORD)

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
        length = get(loops, LOOP_WORDS * loop + LENGTH)
        rest = unit // length
        place = unit - rest * length
        source += place * get(loops, LOOP_WORDS * loop + SOURCE)
        target += place * get(loops, LOOP_WORDS * loop + TARGET)
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
_move_half = _mover(ir.IntType(16), 2)
_move_word = _mover(I64, 8)
_move_vector = _mover(_BYTES, ISA_BYTES)
_move_run = _mover(_BYTES, ISA_BYTES, UNROLLED, ISA_BYTES)
_stream_vector = _mover(_BYTES, ISA_BYTES, 1, ISA_BYTES, stream=True)
_stream_run = _mover(_BYTES, ISA_BYTES, UNROLLED, ISA_BYTES, stream=True)
RUN_BYTES = UNROLLED * ISA_BYTES


@inlined
def _copy_few(target, source, nbytes):  # type: ignore[no-untyped-def]
    """Copies less than some vectors' bytes."""
    done = 0
    while nbytes - done >= 8:
        _move_word(target + done, source + done)
        done += 8
    while done < nbytes:
        _move_byte(target + done, source + done)
        done += 1


@inlined
def _stream_row(target, source, nbytes):  # type: ignore[no-untyped-def]
    """Copies bytes past the caches, whole cache lines alone.

    A line that is written in both ways is fetched and thrown out again, which takes longer than all else.
    """
    done = -target & (ISA_BYTES - 1)
    _copy_few(target, source, done)
    while nbytes - done >= RUN_BYTES:
        _stream_run(target + done, source + done)
        done += RUN_BYTES
    while nbytes - done >= ISA_BYTES:
        _stream_vector(target + done, source + done)
        done += ISA_BYTES
    _copy_few(target + done, source + done, nbytes - done)


@inlined
def copy_row(target, source, nbytes, stream):  # type: ignore[no-untyped-def]
    """Copies bytes between two addresses: runs of vectors to aligned addresses, and what lies before and behind them.

    The C library's memcpy takes twice as long for rows of some kilobytes.
    """
    if nbytes < ISA_BYTES:
        _copy_few(target, source, nbytes)
        return
    if stream:
        _stream_row(target, source, nbytes)
        return
    _move_vector(target, source)
    done = ISA_BYTES - (target & (ISA_BYTES - 1))
    while nbytes - done >= RUN_BYTES:
        _move_run(target + done, source + done)
        done += RUN_BYTES
    while nbytes - done >= ISA_BYTES:
        _move_vector(target + done, source + done)
        done += ISA_BYTES
    if done < nbytes:
        _move_vector(target + nbytes - ISA_BYTES, source + nbytes - ISA_BYTES)


def _filler(align: int, stream: bool) -> Any:
    """A function of kernels that writes a vector which repeats an int64; past the caches if asked."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def put_pattern(_typing: Any, target: Any, pattern: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            target, pattern = arguments
            lanes = ISA_BYTES // 8
            vector = ir.VectorType(I64, lanes)
            undefined = ir.Constant(vector, ir.Undefined)
            first = builder.insert_element(undefined, pattern, ir.Constant(I32, 0))
            places = ir.Constant(ir.VectorType(I32, lanes), [ir.Constant(I32, 0)] * lanes)
            value = builder.shuffle_vector(first, undefined, places)
            stored = builder.store(value, builder.inttoptr(target, vector.as_pointer()), align=align)
            if stream:
                stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return put_pattern


_put_pattern, _stream_pattern = _filler(1, False), _filler(ISA_BYTES, True)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _put_low(_typing: Any, target: Any, pattern: Any, nbytes: Any) -> Any:
    """Writes the first byte of an int64, or all eight of them, as ``nbytes`` says."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, pattern, nbytes = arguments
        with builder.if_else(builder.icmp_signed("==", nbytes, integer(8))) as (whole, part):
            with whole:
                builder.store(pattern, builder.inttoptr(target, I64.as_pointer()), align=1)
            with part:
                byte = builder.trunc(pattern, ir.IntType(8))
                builder.store(byte, builder.inttoptr(target, ir.IntType(8).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@inlined
def _pattern(source, item):  # type: ignore[no-untyped-def]
    """Eight bytes that repeat the number at an address."""
    value = 0
    for i in range(8 // item):
        for byte in range(item):
            value |= (get_byte(source, byte)) << (8 * (i * item + byte))
    return value


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def get_byte(_typing: Any, address: Any, position: Any) -> Any:
    """Reads the byte at a position behind an address."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        at = builder.inttoptr(builder.add(*arguments), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(at), I64)

    return types.int64(types.int64, types.int64), codegen


@inlined
def fill_row(target, pattern, nbytes, stream):  # type: ignore[no-untyped-def]
    """Fills bytes with a pattern of eight, from its first byte on."""
    done = 0
    if nbytes >= ISA_BYTES:
        while stream and target % ISA_BYTES == 0 and nbytes - done >= ISA_BYTES:
            _stream_pattern(target + done, pattern)
            done += ISA_BYTES
        while nbytes - done >= ISA_BYTES:
            _put_pattern(target + done, pattern)
            done += ISA_BYTES
        if done < nbytes:
            _put_pattern(target + nbytes - ISA_BYTES, pattern)
        return
    while nbytes - done >= 8:
        _put_low(target + done, pattern, 8)
        done += 8
    while done < nbytes:
        _put_low(target + done, pattern, 1)
        pattern >>= 8
        done += 1


def _reverser(times: int, stream: bool) -> Any:
    """A function of kernels that copies vectors' numbers in reverse order; past the caches if asked."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def reverse(_typing: Any, tag: Any, target: Any, source: Any) -> Any:
        """``source`` is the address of the first number that is written."""

        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            vectors = Vectors(builder, tag)
            _, target, source = arguments
            for i in range(times):
                behind = builder.sub(source, integer(((i + 1) * vectors.lanes - 1) * vectors.item))
                to = builder.add(target, integer(i * ISA_BYTES))
                value = vectors.reversed(vectors.load(behind))
                if stream:
                    vectors.stream(value, to)
                else:
                    vectors.store(value, to)
            return context.get_dummy_value()

        return types.void(tag, types.int64, types.int64), codegen

    return reverse


_reverse_vector, _reverse_run = _reverser(1, False), _reverser(UNROLLED, False)
_stream_vector_reversed, _stream_run_reversed = _reverser(1, True), _reverser(UNROLLED, True)


@inlined
def _reverse_few(tag, item, nbytes, target, source):  # type: ignore[no-untyped-def]
    """Copies less than some vectors' numbers in reverse order."""
    for done in range(0, nbytes, item):
        write_number(tag, target + done, read_number(tag, source - done))


@inlined
def _reverse_row(tag, item, nbytes, target, source, stream):  # type: ignore[no-untyped-def]
    """Copies at least a vector's bytes of numbers in reverse order, as ``copy_row`` and ``_stream_row`` do.

    ``source`` is the address of the first number that is written.
    """
    done = -target & (ISA_BYTES - 1)
    _reverse_few(tag, item, done, target, source)
    while nbytes - done >= RUN_BYTES:
        if stream:
            _stream_run_reversed(tag, target + done, source - done)
        else:
            _reverse_run(tag, target + done, source - done)
        done += RUN_BYTES
    while nbytes - done >= ISA_BYTES:
        if stream:
            _stream_vector_reversed(tag, target + done, source - done)
        else:
            _reverse_vector(tag, target + done, source - done)
        done += ISA_BYTES
    _reverse_few(tag, item, nbytes - done, target + done, source - done)


@inlined
def _copy_numbers(tag, item, length, target, target_step, source, source_step, stream):  # type: ignore[no-untyped-def]
    """Copies numbers of the tag's size one after another; a long reversed row in vectors."""
    if source_step == -item and target_step == item and length * item >= ISA_BYTES and target % item == 0:
        _reverse_row(tag, item, length * item, target, source, stream)
        return
    for _ in range(length):
        write_number(tag, target, read_number(tag, source))
        source += source_step
        target += target_step


FOUR, EIGHT = np.float32(0), np.float64(0)


@inlined
def _copy_strided(item, length, target, target_step, source, source_step, stream):  # type: ignore[no-untyped-def]
    """Copies numbers of any size one after another."""
    if item == 4:
        _copy_numbers(FOUR, item, length, target, target_step, source, source_step, stream)
    elif item == 8:
        _copy_numbers(EIGHT, item, length, target, target_step, source, source_step, stream)
    else:
        for _ in range(length):
            if item == 1:
                _move_byte(target, source)
            elif item == 2:
                _move_half(target, source)
            else:
                copy_row(target, source, item, False)
            source += source_step
            target += target_step


@inlined
def _copy_units(piece, first, last, source, target):  # type: ignore[no-untyped-def]
    """Copies the innermost loops for each of some units; those that differ in the last outer loop follow by steps."""
    kind, item = get(piece, WORD.kind), get(piece, WORD.item)
    loops, outer = get(piece, WORD.loops), get(piece, WORD.outer)
    inner = loops + 8 * LOOP_WORDS * outer
    length, source_step, target_step = get(inner, LENGTH), get(inner, SOURCE), get(inner, TARGET)
    stream = get(piece, WORD.stream) != 0
    is_number = get(piece, WORD.source) < 0
    pattern = _pattern(source, item) if is_number else 0
    run, read_step, write_step = 1, 0, 0
    if outer:
        around = inner - 8 * LOOP_WORDS
        run, read_step, write_step = get(around, LENGTH), get(around, SOURCE), get(around, TARGET)
    while first < last:
        read, write = _steps(loops, outer, first)
        read += source
        write += target
        units = min(run - first % run, last - first)
        first += units
        for _ in range(units):
            if kind == ROWS:
                copy_row(write, read, length, stream)
            elif kind == FILL:
                if not is_number:
                    pattern = _pattern(read, item)
                fill_row(write, pattern, length * item, stream)
            else:
                _copy_strided(item, length, write, target_step, read, source_step, stream)
            read += read_step
            write += write_step


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


@inlined
def _copy_tiles(tag, item, piece, first, last, source, target):  # type: ignore[no-untyped-def]
    """Copies some of the tiles of transposed matrices, of which each has whole rows one after the other."""
    loops, outer = get(piece, WORD.loops), get(piece, WORD.outer)
    lanes, tile = ISA_BYTES // item, TILE_BYTES // item
    rows = loops + 8 * LOOP_WORDS * outer
    columns = rows + 8 * LOOP_WORDS
    height, write_height = get(rows, LENGTH), get(rows, TARGET)
    width, read_width = get(columns, LENGTH), get(columns, SOURCE)
    stream = get(piece, WORD.stream) != 0 and target % ISA_BYTES == 0
    across, down = (width + tile - 1) // tile, (height + tile - 1) // tile
    for unit in range(first, last):
        matrix = unit // (across * down)
        place = unit - matrix * across * down
        read, write = _steps(loops, outer, matrix)
        row, column = place // across * tile, place % across * tile
        last_row, last_column = min(row + tile, height), min(column + tile, width)
        for i in range(row, last_row, lanes):
            count = min(lanes, last_row - i)
            for j in range(column, last_column, lanes):
                from_ = source + read + i * item + j * read_width
                to = target + write + i * write_height + j * item
                if j + lanes <= last_column and count == lanes:
                    if stream:
                        _transpose_past_caches(tag, from_, read_width, to, write_height)
                    else:
                        transpose(tag, from_, read_width, to, write_height, count)
                    continue
                for a in range(count):
                    for b in range(min(lanes, last_column - j)):
                        value = read_number(tag, from_ + a * item + b * read_width)
                        write_number(tag, to + a * write_height + b * item, value)


@inlined
def _copy_piece(job, piece, task):  # type: ignore[no-untyped-def]
    """Runs a copy's part of a task."""
    units, block = get(piece, WORD.units), get(piece, WORD.block)
    first = (task - get(piece, WORD.first)) * block
    last = min(first + block, units)
    place = get(piece, WORD.source)
    source = job - 8 * place if place < 0 else get(job, place) + get(piece, WORD.source_offset)
    target = get(job, 1) + get(piece, WORD.target_offset)
    if get(piece, WORD.kind) != TILES:
        _copy_units(piece, first, last, source, target)
    elif get(piece, WORD.item) == 4:
        _copy_tiles(FOUR, 4, piece, first, last, source, target)
    else:
        _copy_tiles(EIGHT, 8, piece, first, last, source, target)


def _copy(share, job):  # type: ignore[no-untyped-def]
    """Runs a list of copies. The job's words: its plan, the target's address, and what the copies name.

    The plan's: the number of tasks, then the copies. Those that begin at the same task share their tasks.
    """
    plan = get(job, 0)
    tasks, piece = get(plan, 0), plan + 8
    task = next_task(share, -1, tasks)
    while task < tasks:
        # A task's copies are the last that begin at or before it; those behind the last begin at no task at all.
        while get(piece, WORD.first) > task:
            piece -= PIECE_BYTES
        while get(piece + PIECE_BYTES, WORD.first) <= task:
            piece += PIECE_BYTES
        member, start = piece, get(piece, WORD.first)
        _copy_piece(job, member, task)
        while member > plan + 8 and get(member - PIECE_BYTES, WORD.first) == start:
            member -= PIECE_BYTES
            _copy_piece(job, member, task)
        task = next_task(share, task, tasks)


copy = JobKernel(_copy, "copy")


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _add_vector(_typing: Any, tag: Any, target: Any, source: Any, reverse: Any) -> Any:
    """Adds a vector's numbers to those at another address; in reverse order if asked, ``source`` being the last's."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        vectors = Vectors(builder, tag)
        _, target, source, reverse = arguments
        behind = builder.sub(source, integer((vectors.lanes - 1) * vectors.item))
        value = vectors.load(builder.select(reverse, behind, source))
        value = builder.select(reverse, vectors.reversed(value), value)
        vectors.store(builder.fadd(vectors.load(target), value), target)
        return context.get_dummy_value()

    return types.void(tag, types.int64, types.int64, types.boolean), codegen


TAG, TAG_BYTES = FOUR, 4
"""A 0 of the numbers' type, and their bytes: each kernel has its own."""


def _add(share, job):  # type: ignore[no-untyped-def]
    """Adds where ``_copy`` copies, one number after another, all in the order of the list: parts may overlap."""
    plan = get(job, 0)
    lanes = ISA_BYTES // TAG_BYTES
    for i in range(get(plan, 0)):
        piece = plan + 8 + i * PIECE_BYTES
        loops, outer = get(piece, WORD.loops), get(piece, WORD.outer)
        inner = loops + 8 * LOOP_WORDS * outer
        length, source_step, target_step = get(inner, LENGTH), get(inner, SOURCE), get(inner, TARGET)
        dense = target_step == TAG_BYTES and (source_step == TAG_BYTES or source_step == -TAG_BYTES)
        source = get(job, get(piece, WORD.source)) + get(piece, WORD.source_offset)
        target = get(job, 1) + get(piece, WORD.target_offset)
        for unit in range(get(piece, WORD.units)):
            read, write = _steps(loops, outer, unit)
            read += source
            write += target
            done = 0
            while dense and length - done >= lanes:
                _add_vector(TAG, write, read, source_step < 0)
                read += lanes * source_step
                write += lanes * target_step
                done += lanes
            for _ in range(done, length):
                write_number(TAG, write, read_number(TAG, write) + read_number(TAG, read))
                read += source_step
                write += target_step


add = {tag.itemsize: JobKernel(_add, f"add_{tag.itemsize}", TAG=tag, TAG_BYTES=tag.itemsize) for tag in (FOUR, EIGHT)}
"""By the bytes of a number."""
