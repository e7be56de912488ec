"""The kernel of resampling: each pixel a sum of weighted rows of weighted pixels.

A plan has, for rows and for columns, where each position's pairs begin, and each pair's source and weight. The numbers
of a pixel are runs, as in pooling.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.isa import ISA
from alpha.cpu.jobs import JobKernel
from alpha.cpu.kernels.records import get, next_task
from alpha.cpu.kernels.vectors import I64, Vectors, integer

VECTORS = 4
"""Vectors of numbers that are worked on at once."""

PIECE_BYTES = 4096
"""Bytes of a piece of a run: for pixels that share rows of an image, those stay in the second cache."""

TASK_BYTES = 1 << 16
"""Bytes that a task writes, about."""

ISA_BYTES = ISA.bytes


class Resampling(NamedTuple):
    """The words of a plan; steps are in bytes."""

    tasks: int
    pixels: int
    """Pixels per task."""
    blocks: int
    """Tasks of a piece."""
    pieces: int
    """Pieces of a run."""
    piece: int
    """Numbers of a piece, the last of which may have fewer."""
    length: int
    """Numbers of a run."""
    height: int
    width: int
    row_starts: int
    """Addresses of the pairs' tables: where each position's begin; sources; weights, of the numbers' type."""
    row_sources: int
    row_weights: int
    column_starts: int
    column_sources: int
    column_weights: int
    from_row: int
    from_column: int
    from_run: int
    to_row: int
    to_column: int
    to_run: int


WORD = Resampling(*range(len(Resampling._fields)))
"""The place of each word."""


def _summing(count: int, stream: bool = False) -> Any:
    """A function of kernels that writes ``count`` vectors of a pixel; one vector only as far as numbers are left.

    ``stream``: past the caches, to addresses that are aligned to vectors.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def weighted(
        _typing: Any, tag: Any, read: Any, rows: Any, row_sources: Any, row_weights: Any, from_row: Any, columns: Any,
        column_sources: Any, column_weights: Any, from_column: Any, write: Any, left: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            (_, read, rows, row_sources, row_weights, from_row, columns, column_sources, column_weights, from_column,
             write, left) = arguments  # fmt: skip
            vectors = Vectors(builder, tag)

            def pair(sources: Any, weights: Any, step: Any, start: Any, index: Any) -> tuple[Any, Any]:
                source = vectors.load_address(builder.add(sources, builder.mul(index, integer(8))), 0)
                weight = vectors.broadcast(builder.add(weights, builder.mul(index, integer(vectors.item))))
                return builder.add(start, builder.mul(source, step)), weight

            # Nothing is added to -0 but what is there: a single pixel keeps its sign.
            empty = builder.or_(*[builder.icmp_signed("==", n, integer(0)) for n in (rows, columns)])
            start = builder.select(empty, vectors.zero, vectors.constant(-0.0))
            totals = [cgutils.alloca_once_value(builder, start) for _ in range(count)]
            lines = [cgutils.alloca_once(builder, vectors.vector) for _ in range(count)]
            for total in totals:
                builder.store(start, total)
            with cgutils.for_range(builder, rows, intp=I64) as row:
                line_at, row_weight = pair(row_sources, row_weights, from_row, read, row.index)
                for line in lines:
                    builder.store(vectors.constant(-0.0), line)
                with cgutils.for_range(builder, columns, intp=I64) as column:
                    at, weight = pair(column_sources, column_weights, from_column, line_at, column.index)
                    for v, line in enumerate(lines):
                        value = vectors.load(builder.add(at, integer(v * ISA_BYTES)))
                        builder.store(vectors.fma(weight, value, builder.load(line)), line)
                for line, total in zip(lines, totals, strict=True):
                    builder.store(vectors.fma(row_weight, builder.load(line), builder.load(total)), total)
            for v, total in enumerate(totals):
                at = builder.add(write, integer(v * ISA_BYTES))
                if stream:
                    vectors.stream(builder.load(total), at)
                elif count > 1:
                    vectors.store(builder.load(total), at)
                else:
                    vectors.store_first(builder.load(total), at, left)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 11), codegen

    return weighted


WIDE, ONE = _summing(VECTORS), _summing(1)
TAG, TAG_BYTES = np.float32(0), 4
"""A 0 of the numbers' type, and its bytes: each kernel has its own."""


def _resample(slot, job):  # type: ignore[no-untyped-def]
    """Writes the pixels of a plan. The job's words: the plan, what is read, what is written."""
    plan, x, out = get(job, 0), get(job, 1), get(job, 2)
    item, lanes = TAG_BYTES, ISA_BYTES // TAG_BYTES
    height, width, length = get(plan, WORD.height), get(plan, WORD.width), get(plan, WORD.length)
    piece, from_row, from_column = get(plan, WORD.piece), get(plan, WORD.from_row), get(plan, WORD.from_column)
    row_starts, column_starts = get(plan, WORD.row_starts), get(plan, WORD.column_starts)
    task = next_task(slot, -1)
    while task < get(plan, WORD.tasks):
        part = task // get(plan, WORD.blocks)
        first = (task - part * get(plan, WORD.blocks)) * get(plan, WORD.pixels)
        run = part // get(plan, WORD.pieces)
        low = (part - run * get(plan, WORD.pieces)) * piece
        count = min(piece, length - low)
        row, column = first // width, first % width
        source, target = (
            x + run * get(plan, WORD.from_run) + low * item,
            out + run * get(plan, WORD.to_run) + low * item,
        )
        for _ in range(first, min(first + get(plan, WORD.pixels), height * width)):
            top, left = get(row_starts, row), get(column_starts, column)
            rows, columns = get(row_starts, row + 1) - top, get(column_starts, column + 1) - left
            row_sources, row_weights = get(plan, WORD.row_sources) + 8 * top, get(plan, WORD.row_weights) + item * top
            column_sources = get(plan, WORD.column_sources) + 8 * left
            column_weights = get(plan, WORD.column_weights) + item * left
            read, write = source, target + row * get(plan, WORD.to_row) + column * get(plan, WORD.to_column)
            done = 0
            while done < count:
                if count - done >= VECTORS * lanes:
                    WIDE(
                        TAG, read, rows, row_sources, row_weights, from_row, columns, column_sources, column_weights,
                        from_column, write, count - done,
                    )  # fmt: skip
                    step = VECTORS * lanes
                else:
                    ONE(
                        TAG, read, rows, row_sources, row_weights, from_row, columns, column_sources, column_weights,
                        from_column, write, count - done,
                    )  # fmt: skip
                    step = lanes
                done += step
                read += step * item
                write += step * item
            column += 1
            if column == width:
                row, column = row + 1, 0
        task = next_task(slot, task)


def _by_size(name: str, **names: Any) -> dict[int, JobKernel]:
    """The kernel for float32 and for float64, by their bytes."""
    return {
        tag.itemsize: JobKernel(_resample, f"{name}_{tag.itemsize}", TAG=tag, TAG_BYTES=tag.itemsize, **names)
        for tag in (np.float32(0), np.float64(0))
    }


resample = _by_size("resample")
resample_past_caches = _by_size("resample_past_caches", WIDE=_summing(VECTORS, stream=True))
"""For results whose pixels begin at whole vectors."""
