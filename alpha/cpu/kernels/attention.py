"""Attention in blocks with a running softmax, and its gradients: no more than a block of scores is in memory at a time.

Forward: a task is some queries of a head, in panels of a register tile's width. A block of scores is made transposed,
keys by queries, so that each lane of a vector is a query: largest scores and sums are then kept in lanes, and keys and
values are read where they lie. Backward: a task is some keys of a head, and goes over the queries that see them. Each
adds in a fixed order, so that bits do not depend on the number of threads.

Sources: FlashAttention, Dao et al., arXiv 2205.14135 and 2307.08691; the running softmax, Milakov and Gimelshein,
arXiv 1805.02867.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import FUSED, ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.elementary import KernelLanes
from alpha.cpu.kernels.microkernel import (
    ADD,
    NARROW_WIDE_ROWS,
    ROWS,
    STORE,
    copy_vectors,
    narrow_outer_product,
    outer_product,
    panel_product,
)
from alpha.cpu.kernels.philox import fill_words
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.vectors import I64, integer, read_number, rounded, transpose, write_number
from alpha.expressions import elementary

NO_MASK, BOOL_MASK, ADDED_MASK = range(3)
"""What a mask holds: whether a query sees a key, or a number that is added to the score."""

Q, K, V, MASK, Y, DY, DQ, DK, DV = range(9)
"""Rows of the table of places: where each head begins in each tensor, in bytes."""

VECTOR_BYTES = ISA.bytes
_TOGETHER = 4
"""Keys of an iteration of the softmax: independent sums."""
ALL_SEEN = 1 << 20
"""So many keys before a vector's first query, more than a block has: none is hidden."""


class AttentionSizes(NamedTuple):
    """Sizes of the problem and of the tasks; steps are the bytes from a token to the next."""

    heads: int
    """All heads of the batch."""
    queries: int
    keys: int
    size: int
    value_size: int
    item: int
    panel: int
    """Columns of a block of scores that the micro-kernel makes at once: queries forward, keys backward."""
    size_panel: int
    value_panel: int
    """The same of a product whose columns are a query's or a value's numbers."""
    chunk: int
    """Queries of a task forward, keys backward."""
    block: int
    """Keys of a block of scores."""
    rows: int
    """Queries of a block of scores, backward."""
    causal: int
    """Whether a query sees only the keys up to its own place."""
    mask: int
    """NO_MASK, BOOL_MASK or ADDED_MASK."""
    mask_step: int
    mask_key_step: int
    q_step: int
    k_step: int
    v_step: int
    y_step: int
    dy_step: int
    dq_step: int
    dk_step: int
    dv_step: int
    part: int
    """Bytes from one chunk's gradient of the queries to the next's."""


class AttentionDropout(NamedTuple):
    """Which probabilities are dropped: those whose word's top 24 bits are below the threshold; 0 drops none."""

    threshold: int
    seed: int
    offset: int
    scale: float
    """By which the kept ones are multiplied."""


def _exp(runs: Runs, x: Any) -> Any:
    return elementary.exp(KernelLanes(runs, FUSED), x)


def _larger(runs: Runs, a: Any, b: Any) -> Any:
    """The larger of a and b; b where a is NaN."""
    return runs.builder.select(runs.builder.fcmp_ordered(">", a, b), a, b)


def _for_each_row(runs: Runs, start: Any, step: Any, count: Any, body: Any) -> None:
    """Emits ``body(address, index)`` for each of ``count`` rows, _TOGETHER of them per iteration."""
    builder = runs.builder
    whole = builder.sdiv(count, integer(_TOGETHER))
    with cgutils.for_range(builder, whole, intp=I64) as loop:
        at = builder.add(start, builder.mul(builder.mul(loop.index, integer(_TOGETHER)), step))
        for index in range(_TOGETHER):
            body(at, index)
            at = builder.add(at, step)
    done = builder.mul(whole, integer(_TOGETHER))
    with cgutils.for_range(builder, builder.sub(count, done), intp=I64) as loop:
        body(builder.add(start, builder.mul(builder.add(done, loop.index), step)), 0)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _hide(_typing: Any, tag: Any, scores: Any, step: Any, keys: Any, scale: Any, added: Any, hidden: Any) -> Any:
    """scores * scale + added for a vector of queries; minus infinity in lanes below ``hidden`` + the key's index.

    ``added`` may be 0: nothing is added. Where it is minus infinity, so is the result, whatever the score.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, scores, step, keys, scale, added, hidden = arguments
        runs = Runs(builder, tag)
        scale, nothing = runs.spread(scale), runs.constant(-math.inf)
        with cgutils.for_range(builder, keys, intp=I64) as loop:
            offset = builder.mul(loop.index, step)
            at = builder.add(scores, offset)
            score = cgutils.alloca_once_value(builder, runs.zero)
            builder.store(builder.fmul(runs.load(at), scale), score)
            with builder.if_then(builder.icmp_signed("!=", added, integer(0))):
                more = runs.load(builder.add(added, offset))
                value = builder.fadd(builder.load(score), more)
                builder.store(builder.select(builder.fcmp_ordered("==", more, nothing), nothing, value), score)
            unseen = runs.below(builder.add(hidden, loop.index))
            runs.store(builder.select(unseen, nothing, builder.load(score)), at)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3, tag, *[types.int64] * 2), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _running_softmax(
    _typing: Any, tag: Any, scores: Any, step: Any, keys: Any, scale: Any, top: Any, total: Any, factor: Any
) -> Any:
    """exp(score * scale - top) in place for a vector of queries, after ``top`` has met the scores.

    ``total`` (float64) is the sum so far; ``factor`` takes by what the results so far are to be multiplied.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, scores, step, keys, scale, top, total, factor = arguments
        runs = Runs(builder, tag)
        scale, least = runs.spread(scale), runs.constant(-math.inf)
        largest, sums = runs.variables(least, _TOGETHER), runs.variables(runs.zero, _TOGETHER)

        def meet(at: Any, index: int) -> None:
            value = builder.fmul(runs.load(at), scale)
            builder.store(_larger(runs, value, builder.load(largest[index])), largest[index])

        _for_each_row(runs, scores, step, keys, meet)
        before = runs.load(top)
        found = runs.merged([builder.load(one) for one in largest], lambda a, b: _larger(runs, a, b))
        after = _larger(runs, found, before)
        runs.store(after, top)
        # All scores so far may be minus infinity: less that they would be NaN.
        base = builder.select(builder.fcmp_ordered("==", after, least), runs.zero, after)

        def raised(at: Any, index: int) -> None:
            power = _exp(runs, builder.fsub(builder.fmul(runs.load(at), scale), base))
            runs.store(power, at)
            builder.store(builder.fadd(builder.load(sums[index]), power), sums[index])

        _for_each_row(runs, scores, step, keys, raised)
        shrunk = _exp(runs, builder.fsub(before, base))
        runs.store(shrunk, factor)
        block = runs.widened(runs.merged([builder.load(one) for one in sums], builder.fadd))
        runs.store_wide(runs.wide_fma(runs.load_wide(total), runs.widened(shrunk), block), total)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3, tag, *[types.int64] * 3), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _score_gradients(
    _typing: Any, tag: Any, scores: Any, grads: Any, keys: Any, scale: Any, lse: Any, mean: Any, factor: Any
) -> Any:
    """A query's scores become probabilities p = exp(score * scale - lse), and the gradients g of p those of the
    scores, p * (g - mean) * factor."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, scores, grads, keys, *numbers = arguments
        runs = Runs(builder, tag)
        scale, lse, mean, factor = (runs.spread(number) for number in numbers)

        def put(offset: Any, index: int, left: Any) -> None:
            at, to = builder.add(scores, offset), builder.add(grads, offset)
            p = _exp(runs, builder.fsub(builder.fmul(runs.load_part(at, left), scale), lse))
            grad = builder.fmul(builder.fmul(p, factor), builder.fsub(runs.load_part(to, left), mean))
            runs.store_part(p, at, left)
            runs.store_part(grad, to, left)

        runs.for_each_vector(keys, _TOGETHER, put)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3, *[tag] * 4), codegen


def _map_of(emit: Any) -> Any:
    """``apply(tag, x, y, out, count, number)``: out = emit(runs, x, y, number), a function of vectors."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def apply(_typing: Any, tag: Any, x: Any, y: Any, out: Any, count: Any, number: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, x, y, out, count, number = arguments
            runs = Runs(builder, tag)
            constant = runs.spread(number)

            def put(offset: Any, index: int, left: Any) -> None:
                values = [runs.load_part(builder.add(at, offset), left) for at in (x, y)]
                runs.store_part(emit(runs, *values, constant), builder.add(out, offset), left)

            runs.for_each_vector(count, 2, put)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 4, tag), codegen

    return apply


def _plus_mask(runs: Runs, x: Any, added: Any, scale: Any) -> Any:
    builder, nothing = runs.builder, runs.constant(-math.inf)
    value = builder.fadd(builder.fmul(x, scale), added)
    return builder.select(builder.fcmp_ordered("==", added, nothing), nothing, value)


def _kept(runs: Runs, x: Any, keep: Any, _number: Any) -> Any:
    builder = runs.builder
    return builder.select(builder.fcmp_ordered("==", keep, runs.zero), runs.zero, builder.fmul(x, keep))


_scale = _map_of(lambda runs, x, _y, factor: runs.builder.fmul(x, factor))
_add_mask = _map_of(_plus_mask)
_drop = _map_of(_kept)
_zero = _map_of(lambda runs, _x, _y, _number: runs.zero)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _added_of_bools(_typing: Any, tag: Any, source: Any, out: Any, count: Any) -> Any:
    """0 for each byte that is true, else minus infinity; reads up to a vector's lanes of bytes more."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, source, out, count = arguments
        runs = Runs(builder, tag)
        whole = ir.VectorType(ir.IntType(8), runs.lanes)

        def put(offset: Any, index: int, left: Any) -> None:
            at = builder.add(source, builder.sdiv(offset, integer(runs.item)))
            truth = builder.load(runs.pointer(at, whole))
            truth.align = 1
            seen = builder.icmp_unsigned("!=", truth, ir.Constant(whole, [0] * runs.lanes))
            value = builder.select(seen, runs.zero, runs.constant(-math.inf))
            runs.store_part(value, builder.add(out, offset), left)

        runs.for_each_vector(count, 1, put)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 3), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _read_byte(_typing: Any, address: Any) -> Any:
    """Reads the byte at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return builder.zext(value, I64)

    return types.int64(types.int64), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _product_sum(_typing: Any, tag: Any, x: Any, y: Any, count: Any) -> Any:
    """The sum of x * y, in float64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, y, count = arguments
        runs = Runs(builder, tag)
        sums = runs.variables(runs.wide_constant(0.0), 2)

        def take(offset: Any, index: int, left: Any) -> None:
            a, b = (runs.widened(runs.load_part(builder.add(at, offset), left)) for at in (x, y))
            builder.store(runs.wide_fma(a, b, builder.load(sums[index])), sums[index])

        runs.for_each_vector(count, 2, take)
        return runs.across(runs.merged([builder.load(one) for one in sums], builder.fadd), builder.fadd)

    return types.float64(tag, *[types.int64] * 3), codegen


@inlined
def _aligned(nbytes):  # type: ignore[no-untyped-def]
    """Bytes of a buffer, so that the next one begins a cache line."""
    return (nbytes + 63) // 64 * 64


@inlined
def _of_head(places, head, q, k, v, mask, y):  # type: ignore[no-untyped-def]
    """Where a head begins in each of the tensors that forward and backward read."""
    return (
        q + places[Q, head], k + places[K, head], v + places[V, head], mask + places[MASK, head], y + places[Y, head],
    )  # fmt: skip


@inlined
def _column_product(tag, sizes, m, a, a_step, b, b_step, depth, c, c_step, mode, columns, panel, zero):  # type: ignore[no-untyped-def]
    """C (m rows, one panel of columns) from A with neighbouring rows, and B where it lies."""
    if panel * sizes.item == VECTOR_BYTES:
        high = NARROW_WIDE_ROWS * sizes.item
        narrow_outer_product(tag, m, high, a, zero, b, zero, 1, a_step, b_step, depth, c, c_step, mode, 0, 0, columns)
    else:
        high = ROWS * sizes.item
        outer_product(tag, m, high, a, zero, b, zero, 1, a_step, b_step, depth, c, c_step, mode, 0, 0, columns)


@inlined
def _pack_columns(tag, sizes, source, step, rows, size, panel, target):  # type: ignore[no-untyped-def]
    """Writes rows of ``size`` numbers as columns, in panels of ``panel`` of them; those that are missing are 0."""
    item = sizes.item
    lanes = VECTOR_BYTES // item
    for first in range(0, (rows + panel - 1) // panel * panel, lanes):
        to = target + (first // panel * size * panel + first % panel) * item
        for c in range(0, size, lanes):
            if first + lanes <= rows:
                at = source + first * step + c * item
                transpose(tag, at, step, to + c * panel * item, panel * item, min(lanes, size - c))
            else:
                for j in range(c, min(c + lanes, size)):
                    for i in range(lanes):
                        value = tag * 0
                        if first + i < rows:
                            value = read_number(tag, source + (first + i) * step + j * item)
                        write_number(tag, to + (j * panel + i) * item, value)


@inlined
def _mask_rows(tag, sizes, mask, rows, keys, target, step):  # type: ignore[no-untyped-def]
    """What a block of a mask adds to the scores: a row per query, ``step`` bytes apart."""
    item = sizes.item
    for r in range(rows):
        at, to = mask + r * sizes.mask_step, target + r * step
        if sizes.mask == BOOL_MASK and sizes.mask_key_step == 1:
            _added_of_bools(tag, at, to, keys)
        elif sizes.mask == BOOL_MASK:
            for k in range(keys):
                seen = _read_byte(at + k * sizes.mask_key_step) != 0
                write_number(tag, to + k * item, rounded(tag, 0.0 if seen else -math.inf))
        elif sizes.mask_key_step == item:
            _scale(tag, at, at, to, keys, rounded(tag, 1.0))
        else:
            for k in range(keys):
                write_number(tag, to + k * item, read_number(tag, at + k * sizes.mask_key_step))


@inlined
def _keep_row(tag, sizes, dropout, head, query, key, keys, words, target, step):  # type: ignore[no-untyped-def]
    """By what a query's probabilities are multiplied, ``step`` bytes apart: 0, or the scale of those that are kept."""
    place = (head * sizes.queries + query) * sizes.keys + key
    skipped = place % 4
    counter = np.uint64(dropout.offset) + np.uint64(place // 4)
    fill_words(words, np.uint64(dropout.seed), counter, (skipped + keys + 3) // 4)
    for k in range(keys):
        kept = np.int64(words[skipped + k] >> np.uint32(8)) >= dropout.threshold
        write_number(tag, target + k * step, rounded(tag, dropout.scale if kept else 0.0))


@inlined
def _zero_rows(tag, address, step, rows, columns):  # type: ignore[no-untyped-def]
    for r in range(rows):
        _zero(tag, address + r * step, address, address + r * step, columns, tag)


@inlined
def _hide_block(tag, sizes, mask, query, rows, key, keys, scale, scores, staged, added):  # type: ignore[no-untyped-def]
    """A panel's scores, keys by queries, scaled and with the mask; minus infinity where a query may not see a key."""
    item = sizes.item
    row, line, lanes = sizes.panel * item, sizes.block * item, VECTOR_BYTES // item
    if sizes.mask != NO_MASK:
        at = mask + query * sizes.mask_step + key * sizes.mask_key_step
        _mask_rows(tag, sizes, at, rows, keys, staged, line)
    for first in range(0, sizes.panel, lanes):
        to = 0
        if sizes.mask != NO_MASK:
            to = added + first * item
            for k in range(0, keys, lanes):
                transpose(tag, staged + first * line + k * item, line, to + k * row, row, min(lanes, keys - k))
        hidden = max(key - query - first, -ALL_SEEN) if sizes.causal != 0 else -ALL_SEEN
        _hide(tag, scores + first * item, row, keys, scale, to, hidden)


@compiled
def attention(share, tag, sizes, dropout, scale, places, q, k, v, mask, y, lse):  # type: ignore[no-untyped-def]
    """y = softmax(scale * q k' + mask) v of each head, and lse, the logarithms of the softmax's sums.

    A query that sees no key has the result 0 and the logarithm +infinity, from which its probabilities come as 0.
    """
    item, panel, block, size = sizes.item, sizes.panel, sizes.block, sizes.size
    row = panel * item
    sum_columns = (sizes.value_size + sizes.value_panel - 1) // sizes.value_panel * sizes.value_panel
    sum_row = sum_columns * item
    chunks = (sizes.queries + sizes.chunk - 1) // sizes.chunk
    packed_bytes, sum_bytes = _aligned(sizes.chunk * size * item), _aligned(sizes.chunk * sum_row)
    score_bytes = _aligned(block * row)
    masked_bytes = score_bytes if sizes.mask != NO_MASK else 0
    memory = np.empty(
        64 + packed_bytes + sum_bytes + 2 * score_bytes + 2 * masked_bytes + _aligned(sizes.chunk * 8 + 64) * 3,
        np.uint8,
    )
    words = np.empty(block + 8, np.uint32)
    tap = np.zeros(1, np.int64)
    lanes = VECTOR_BYTES // item
    while True:
        task = draw_task(share, sizes.heads * chunks)
        if task >= sizes.heads * chunks:
            break
        zero = tap.ctypes.data
        packed = (memory.ctypes.data + 63) // 64 * 64
        sums = packed + packed_bytes
        scores = sums + sum_bytes
        keep = scores + score_bytes
        staged = keep + score_bytes
        added = staged + masked_bytes
        tops = added + masked_bytes
        factors = tops + _aligned(sizes.chunk * 8 + 64)
        totals = factors + _aligned(sizes.chunk * 8 + 64)
        head = task // chunks
        # The last queries of a causal attention see most keys, and come first.
        first = (chunks - 1 - task % chunks) * sizes.chunk
        count = min(sizes.chunk, sizes.queries - first)
        q_at, k_at, v_at, mask_at, y_at = _of_head(places, head, q, k, v, mask, y)
        _pack_columns(tag, sizes, q_at + first * sizes.q_step, sizes.q_step, count, size, panel, packed)
        for i in range((count + panel - 1) // panel * panel):
            write_number(tag, tops + i * item, rounded(tag, -math.inf))
            write_number(np.float64(0), totals + i * 8, 0.0)
        seen = min(sizes.keys, first + count) if sizes.causal != 0 else sizes.keys
        for key in range(0, seen, block):
            for p in range(0, count, panel):
                query, rows = first + p, min(panel, count - p)
                keys = min(block, sizes.keys - key)
                if sizes.causal != 0:
                    keys = min(keys, query + rows - key)
                if keys <= 0:
                    continue
                panel_product(
                    tag, keys, k_at + key * sizes.k_step, zero, packed + p * size * item, zero, 1, sizes.k_step, row,
                    size, scores, row, STORE, 0, 0, panel,
                )  # fmt: skip
                factor = scale
                if sizes.mask != NO_MASK or (sizes.causal != 0 and key + keys - 1 > query):
                    _hide_block(tag, sizes, mask_at, query, rows, key, keys, scale, scores, staged, added)
                    factor = rounded(tag, 1.0)
                for c in range(0, panel, lanes):
                    i = p + c
                    _running_softmax(
                        tag, scores + c * item, row, keys, factor, tops + i * item, totals + i * 8, factors + i * item
                    )
                if dropout.threshold != 0:
                    for r in range(rows):
                        _keep_row(tag, sizes, dropout, head, query + r, key, keys, words, keep + r * item, row)
                    _drop(tag, scores, keep, scores, keys * panel, tag)
                to = sums + p * sum_row
                if key != 0:
                    for r in range(rows):
                        shrunk = read_number(tag, factors + (p + r) * item)
                        if shrunk != 1:
                            _scale(tag, to + r * sum_row, to, to + r * sum_row, sum_columns, shrunk)
                for c in range(0, sizes.value_size, sizes.value_panel):
                    _column_product(
                        tag, sizes, rows, scores, row, v_at + key * sizes.v_step + c * item, sizes.v_step, keys,
                        to + c * item, sum_row, STORE if key == 0 else ADD, sizes.value_panel, sizes.value_panel, zero,
                    )  # fmt: skip
        for r in range(count):
            total, top = read_number(np.float64(0), totals + r * 8), read_number(tag, tops + r * item)
            factor, log = 0.0, math.inf
            if total != 0:
                factor, log = 1 / total, top + math.log(total)
            at = sums + r * sum_row
            _scale(tag, at, at, y_at + (first + r) * sizes.y_step, sizes.value_size, rounded(tag, factor))
            write_number(tag, lse + (head * sizes.queries + first + r) * item, rounded(tag, log))
    return 0


@compiled
def attention_grad(  # type: ignore[no-untyped-def]
    share, tag, sizes, dropout, scale, places, q, k, v, mask, y, lse, dy, dq, dk, dv
):
    """The gradients of q, k and v. A task is a chunk of a head's keys, with a gradient of the queries of its own."""
    item, panel, block, size, value_size = sizes.item, sizes.panel, sizes.block, sizes.size, sizes.value_size
    row = panel * item
    line = (block + panel - 1) // panel * row
    chunks = (sizes.keys + sizes.chunk - 1) // sizes.chunk
    keys_bytes, values_bytes = _aligned(line * size), _aligned(line * value_size)
    size_columns = (size + sizes.size_panel - 1) // sizes.size_panel * sizes.size_panel
    rows_bytes, score_bytes = _aligned(block * size_columns * item), _aligned(sizes.rows * line)
    memory = np.empty(
        128 + keys_bytes + values_bytes + rows_bytes + 4 * score_bytes + _aligned(sizes.queries * item), np.uint8
    )
    words = np.empty(block + 8, np.uint32)
    tap = np.zeros(1, np.int64)
    while True:
        task = draw_task(share, sizes.heads * chunks)
        if task >= sizes.heads * chunks:
            break
        zero = tap.ctypes.data
        keys_packed = (memory.ctypes.data + 63) // 64 * 64
        values_packed = keys_packed + keys_bytes
        rows_packed = values_packed + values_bytes
        scores = rows_packed + rows_bytes
        grads = scores + score_bytes
        keep = grads + score_bytes
        added = keep + score_bytes
        means = added + score_bytes
        head, part = task // chunks, task % chunks
        first = part * sizes.chunk
        last = min(first + sizes.chunk, sizes.keys)
        q_at, k_at, v_at, mask_at, y_at = _of_head(places, head, q, k, v, mask, y)
        dy_at, dq_at = dy + places[DY, head], dq + part * sizes.part + places[DQ, head]
        dk_at, dv_at = dk + places[DK, head], dv + places[DV, head]
        begin = min(first, sizes.queries) if sizes.causal != 0 else 0
        _zero_rows(tag, dq_at, sizes.dq_step, begin, size)
        for i in range(begin, sizes.queries):
            mean = _product_sum(tag, dy_at + i * sizes.dy_step, y_at + i * sizes.y_step, value_size)
            write_number(tag, means + i * item, rounded(tag, mean))
        for key in range(first, last, block):
            keys = min(block, last - key)
            dk_rows, dv_rows = dk_at + key * sizes.dk_step, dv_at + key * sizes.dv_step
            begin = min(key, sizes.queries) if sizes.causal != 0 else 0
            if begin == sizes.queries:
                _zero_rows(tag, dk_rows, sizes.dk_step, keys, size)
                _zero_rows(tag, dv_rows, sizes.dv_step, keys, value_size)
                continue
            k_rows = k_at + key * sizes.k_step
            _pack_columns(tag, sizes, k_rows, sizes.k_step, keys, size, panel, keys_packed)
            _pack_columns(tag, sizes, v_at + key * sizes.v_step, sizes.v_step, keys, value_size, panel, values_packed)
            for c in range(0, size, sizes.size_panel):
                copy_vectors(
                    tag, k_rows + c * item, sizes.k_step, rows_packed + c * block * item, sizes.size_panel * item,
                    keys, min(sizes.size_panel, size - c) * item,
                )  # fmt: skip
            for query in range(begin, sizes.queries, sizes.rows):
                rows = min(sizes.rows, sizes.queries - query)
                q_rows, dy_rows = q_at + query * sizes.q_step, dy_at + query * sizes.dy_step
                for c in range(0, keys, panel):
                    panel_product(
                        tag, rows, q_rows, zero, keys_packed + c * size * item, zero, 1, sizes.q_step, row, size,
                        scores + c * item, line, STORE, 0, 0, panel,
                    )  # fmt: skip
                    panel_product(
                        tag, rows, dy_rows, zero, values_packed + c * value_size * item, zero, 1, sizes.dy_step, row,
                        value_size, grads + c * item, line, STORE, 0, 0, panel,
                    )  # fmt: skip
                factor = scale
                if sizes.mask != NO_MASK:
                    at = mask_at + query * sizes.mask_step + key * sizes.mask_key_step
                    _mask_rows(tag, sizes, at, rows, keys, added, line)
                    factor = rounded(tag, 1.0)
                if dropout.threshold != 0:
                    for r in range(rows):
                        _keep_row(tag, sizes, dropout, head, query + r, key, keys, words, keep + r * line, item)
                for r in range(rows):
                    at, to = scores + r * line, grads + r * line
                    seen = min(keys, query + r - key + 1) if sizes.causal != 0 else keys
                    if sizes.mask != NO_MASK:
                        _add_mask(tag, at, added + r * line, at, seen, scale)
                    if dropout.threshold != 0:
                        _drop(tag, to, keep + r * line, to, seen, tag)
                    i = query + r
                    _score_gradients(
                        tag, at, to, seen, factor, read_number(tag, lse + (head * sizes.queries + i) * item),
                        read_number(tag, means + i * item), scale,
                    )  # fmt: skip
                    if dropout.threshold != 0:
                        _drop(tag, at, keep + r * line, at, seen, tag)
                    if seen < keys:
                        _zero(tag, at, at, at + seen * item, keys - seen, tag)
                        _zero(tag, to, to, to + seen * item, keys - seen, tag)
                mode = STORE if query == begin else ADD
                for c in range(0, value_size, sizes.value_panel):
                    _column_product(
                        tag, sizes, keys, scores, line, dy_rows + c * item, sizes.dy_step, rows, dv_rows + c * item,
                        sizes.dv_step, mode, value_size - c, sizes.value_panel, zero,
                    )  # fmt: skip
                mode_of_queries = STORE if key == first else ADD
                for c in range(0, size, sizes.size_panel):
                    _column_product(
                        tag, sizes, keys, grads, line, q_rows + c * item, sizes.q_step, rows, dk_rows + c * item,
                        sizes.dk_step, mode, size - c, sizes.size_panel, zero,
                    )  # fmt: skip
                    panel_product(
                        tag, rows, grads, zero, rows_packed + c * block * item, zero, 1, line, sizes.size_panel * item,
                        keys, dq_at + query * sizes.dq_step + c * item, sizes.dq_step, mode_of_queries, 0, 0, size - c,
                    )  # fmt: skip
    return 0
