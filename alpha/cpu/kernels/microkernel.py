"""The batch-reduce GEMM micro-kernel, emitted as LLVM IR: the inner loop of every convolution.

It computes one register tile, ``C[m, n] (+)= sum over taps t, k of A_t[m, k] * B_t[k, n]``, where every tap has its own
offsets into A and B: a convolution that skips zeros is then a list of taps. Numba cannot be relied on to keep a tile in
registers, so the IR says it: accumulators that LLVM promotes to registers, one vector load of B per column, one
broadcast of A per row, one FMA per accumulator.

The idea of a batch-reduce GEMM: Georganas et al., "High-Performance Deep Learning via a Single Building Block",
arXiv 1906.06440.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import inlined
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.vectors import I64, Vectors, integer, scalar_of

STORE, ADD, BIAS, ACTIVATE = 0, 1, 2, 4
"""Modes of writing C, flags that add up. STORE overwrites it. ADD adds what lies ``residual`` bytes from C (what C
holds, if 0). BIAS adds a row. ACTIVATE then applies LeakyReLU, whose slope is the value of the kernels' ``tag``."""


UNROLL = 4
"""Terms per iteration of a whole tile's loop: the loop's overhead is then a tenth of them where two threads share a
core."""

ROW_MAJOR, COLUMN_MAJOR, SCATTERED = range(3)
"""Memory layout of A: k contiguous, rows a step apart; rows contiguous, k a step apart; each row at an address of its
own, and likewise C's rows."""


class Ahead(NamedTuple):
    """What a tile prefetches into the L2 cache while it multiplies: ``width`` vectors' bytes every ``step`` bytes.

    Attributes:
        address: of the first bytes.
        step: bytes from those of an iteration of the tile's loop to those of the next.
        iterations: that prefetch.
    """

    address: Any
    step: Any
    iterations: Any


class _Emitter:
    """Emits the IR of one register tile; the attributes are the kernel's arguments as LLVM values."""

    NAMES = (
        "a",
        "a_taps",
        "b",
        "b_taps",
        "taps",
        "a_step",
        "b_step",
        "depth",
        "c",
        "c_step",
        "mode",
        "bias",
        "residual",
        "columns",
    )

    def __init__(
        self, builder: ir.IRBuilder, slope: Any, arguments: Iterable[Any], tag: Any, rows: int, layout: int, width: int
    ) -> None:
        if isinstance(tag, types.Integer) and slope is not None:
            slope = builder.bitcast(slope, scalar_of(tag)[0])
        self.builder, self.slope, self.width = builder, slope, width
        self.ahead: Ahead | None = None
        for name, value in zip(self.NAMES, arguments, strict=True):
            setattr(self, name, value)
        self.rows, self.layout = rows, layout
        if layout != COLUMN_MAJOR:
            self.b_step = integer(width * ISA.bytes)
        self.vectors = Vectors(builder, tag)
        self.item = self.vectors.item
        vector = self.vectors.vector
        self.tile = [[cgutils.alloca_once(builder, vector) for _ in range(self.width)] for _ in range(rows)]
        for row in self.tile:
            for accumulator in row:
                builder.store(self.vectors.zero, accumulator)

    a: Any
    a_taps: Any
    b: Any
    b_taps: Any
    taps: Any
    a_step: Any
    b_step: Any
    depth: Any
    c: Any
    c_step: Any
    mode: Any
    bias: Any
    residual: Any
    columns: Any

    def emit(self) -> None:
        """Emits the whole kernel."""
        self._prefetch_result()
        if self.layout == SCATTERED:
            self.scattered = [self.vectors.load_address(self.a_step, m) for m in range(self.rows)]
        with cgutils.for_range(self.builder, self.taps, intp=I64) as loop:
            at = self.builder.mul(loop.index, integer(8))
            a = self.builder.add(self.a, self.vectors.load_address(self.builder.add(self.a_taps, at), 0))
            b = self.builder.add(self.b, self.vectors.load_address(self.builder.add(self.b_taps, at), 0))
            self._depth_loop(a, b)
        full = self.builder.icmp_signed(">=", self.columns, integer(self.vectors.lanes * self.width))
        with self.builder.if_else(full) as (then, otherwise):
            with then:
                self._finish(masked=False)
            with otherwise:
                self._finish(masked=True)

    def _prefetch_result(self) -> None:
        """Prefetches C's rows, which are needed when the loops are done."""
        for row in self._result_rows():
            for offset in range(0, ISA.bytes * self.width, 64):
                self.vectors.prefetch(self.builder.add(row, integer(offset)), to_write=True)

    def _result_rows(self) -> Iterator[Any]:
        """The addresses of C's rows."""
        if self.layout == SCATTERED:
            yield from self._scattered_rows(self.c_step)
            return
        row = self.c
        for _ in range(self.rows):
            yield row
            row = self.builder.add(row, self.c_step)

    def _residual_rows(self) -> Iterator[Any]:
        """The addresses of the rows that ADD adds."""
        if self.layout == SCATTERED:
            return self._scattered_rows(self.residual)
        return (self.builder.add(row, self.residual) for row in self._result_rows())

    def _scattered_rows(self, table: Any) -> Iterator[Any]:
        return (self.builder.add(self.c, self.vectors.load_address(table, m)) for m in range(self.rows))

    def _depth_loop(self, a: Any, b: Any) -> None:
        """Loops over k: one FMA per accumulator.

        Three rows of A share a base pointer: x86 can address base + 1 or 2 steps.
        """
        builder = self.builder
        twice = builder.add(self.a_step, self.a_step)
        bases = [a]
        if self.layout == ROW_MAJOR:
            thrice = builder.add(twice, self.a_step)
            for _ in range(1, (self.rows + 2) // 3):
                bases.append(builder.add(bases[-1], thrice))
        bases = [self.vectors.opaque(base) for base in bases]
        rest = self.depth
        if self.ahead is not None:
            bases, b, rest = self._prefetching_run(self.ahead, bases, b, twice)
        for together in sorted({self._unrolled(), 1}, reverse=True):
            bases, b, rest = self._run_of_terms(bases, b, rest, twice, together)

    def _unrolled(self) -> int:
        """Terms per iteration.

        Low tiles wait for their sums anyway; and x86 addresses reach no further than two steps of k.
        """
        whole = self.rows * self.width >= ISA.rows * ISA.vectors or self.rows in TALL_HEIGHTS
        if not whole and self.layout != SCATTERED:
            return 1
        return 2 if self.layout == COLUMN_MAJOR else UNROLL

    def _prefetching_run(self, ahead: Ahead, bases: list[Any], b: Any, twice: Any) -> tuple[list[Any], Any, Any]:
        """Emits the iterations that prefetch; returns the pointers and terms left."""
        builder, together = self.builder, self._unrolled()
        most = builder.udiv(self.depth, integer(together))
        is_fewer = builder.icmp_signed("<", ahead.iterations, most)
        terms = builder.mul(builder.select(is_fewer, ahead.iterations, most), integer(together))
        (_, *bases), b, _ = self._run_of_terms([ahead.address, *bases], b, terms, twice, together, ahead.step)
        return bases, b, builder.sub(self.depth, terms)

    def _run_of_terms(
        self, bases: list[Any], b: Any, depth: Any, twice: Any, together: int, ahead_step: Any = None
    ) -> tuple[list[Any], Any, Any]:
        """Emits a loop over ``depth`` terms, ``together`` per iteration; returns the pointers and terms left.

        With ``ahead_step`` the first pointer is one to what is prefetched.
        """
        builder = self.builder
        block_before, values_before = builder.block, [*bases, b, depth]
        body, end = builder.append_basic_block("depth"), builder.append_basic_block("depth.end")
        builder.cbranch(builder.icmp_signed(">=", depth, integer(together)), body, end)
        builder.position_at_end(body)
        *a_at, b_at, left = values = [builder.phi(I64) for _ in values_before]
        first: list[Any] = []
        if ahead_step is not None:
            at, *a_at = a_at
            for offset in range(0, ISA.bytes * self.width, 64):
                self.vectors.prefetch(builder.add(at, integer(offset)), into_l2=True)
            first = [builder.add(at, ahead_step)]
        step = self.a_step if self.layout == COLUMN_MAJOR else integer(self.item)
        for _ in range(together):
            self._multiply(a_at, b_at, twice)
            a_at = [builder.add(pointer, step) for pointer in a_at]
            b_at = builder.add(b_at, self.b_step)
        left = builder.sub(left, integer(together))
        builder.cbranch(builder.icmp_signed(">=", left, integer(together)), body, end)
        values_after = [*first, *a_at, b_at, left]
        incoming = (block_before, values_before), (body, values_after)
        _join(values, *incoming)
        builder.position_at_end(end)
        *bases, b, depth = _join([builder.phi(I64) for _ in values_before], *incoming)
        return bases, b, depth

    def _multiply(self, a_at: list[Any], b_at: Any, twice: Any) -> None:
        builder = self.builder
        columns = [self.vectors.load(self._at(b_at, v)) for v in range(self.width)]
        for m in range(self.rows):
            value = self.vectors.broadcast(self._factor(m, a_at, twice))
            for v in range(self.width):
                accumulator = self.tile[m][v]
                builder.store(self.vectors.fma(value, columns[v], builder.load(accumulator)), accumulator)

    def _factor(self, m: int, a_at: list[Any], twice: Any) -> Any:
        """The address of A's row m at the loop's k."""
        builder = self.builder
        if self.layout == SCATTERED:
            return builder.add(self.scattered[m], a_at[0])
        if self.layout == COLUMN_MAJOR:
            return builder.add(a_at[0], integer(self.item * m)) if m else a_at[0]
        group, place = divmod(m, 3)
        return builder.add(a_at[group], self.a_step if place == 1 else twice) if place else a_at[group]

    def _finish(self, masked: bool) -> None:
        """Writes the tile: where ``masked`` only the columns that C has, else whole vectors."""
        builder = self.builder

        def load(row: Any, v: int) -> Any:
            at = self._at(row, v)
            return self.vectors.load_masked(at, self._left(v)) if masked else self.vectors.load(at)

        with builder.if_then(has(builder, self.mode, BIAS)):
            self._add_rows(iter([self.bias] * self.rows), load)
        with builder.if_then(has(builder, self.mode, ADD)):
            self._add_rows(self._residual_rows(), load)
        if self.slope is not None:
            with builder.if_then(has(builder, self.mode, ACTIVATE)):
                slope = self.vectors.spread(self.slope)
                for accumulator in (accumulator for row in self.tile for accumulator in row):
                    builder.store(self.vectors.leaky_relu(builder.load(accumulator), slope), accumulator)
        for m, row in enumerate(self._result_rows()):
            for v in range(self.width):
                value, at = builder.load(self.tile[m][v]), self._at(row, v)
                if masked:
                    self.vectors.store_masked(value, at, self._left(v))
                else:
                    self.vectors.store(value, at)

    def _add_rows(self, rows: Iterator[Any], load: Callable[[Any, int], Any]) -> None:
        for m, row in enumerate(rows):
            for v in range(self.width):
                accumulator = self.tile[m][v]
                self.builder.store(self.builder.fadd(self.builder.load(accumulator), load(row, v)), accumulator)

    def _at(self, address: Any, v: int) -> Any:
        offset = v * ISA.bytes
        return self.builder.add(address, integer(offset)) if offset else address

    def _left(self, v: int) -> Any:
        """How many columns C has from vector v on."""
        return self.builder.sub(self.columns, integer(v * self.vectors.lanes))


def _join(values: list[Any], *sources: tuple[Any, list[Any]]) -> list[Any]:
    """Completes phi nodes with the values that come from each preceding block."""
    for block, incoming in sources:
        for phi, value in zip(values, incoming, strict=True):
            phi.add_incoming(value, block)
    return values


def has(builder: ir.IRBuilder, mode: Any, flag: int) -> Any:
    """Emits the test whether a mode has a flag."""
    return builder.icmp_signed("!=", builder.and_(mode, integer(flag)), integer(0))


def _tile(rows: int, width: int) -> Any:
    """A kernel for one tile of ``rows`` scattered rows of ``width`` vectors.

    Its arguments are those of ``_product``, except that a_step, c_step and residual are tables of the rows' addresses,
    to which a, c and c are added.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def kernel(
        _typing: Any, tag: Any, a: Any, a_taps: Any, b: Any, b_taps: Any, taps: Any, a_step: Any, b_step: Any,
        depth: Any, c: Any, c_step: Any, mode: Any, bias: Any, residual: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _Emitter(builder, arguments[0], arguments[1:], tag, rows, SCATTERED, width).emit()
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 14), codegen

    return kernel


class Shape(NamedTuple):
    """What a kernel for rows is made for.

    Attributes:
        layout: ROW_MAJOR or COLUMN_MAJOR.
        width: vectors of a tile's row.
        heights: rows of its tiles, falling.
    """

    layout: int
    width: int
    heights: tuple[int, ...]


def emit_rows(
    builder: ir.IRBuilder,
    tag: Any,
    shape: Shape,
    first: tuple[Any, Any, Any],
    values: Iterable[Any],
    ahead: Ahead | None = None,
) -> None:
    """Emits the kernel that ``_product`` makes: its arguments ``first``, slope, m and block, and the others' values.

    Without a slope (None) it knows no ACTIVATE. ``ahead``: what the first tile prefetches; others go on behind it.
    """
    slope, m, block = first
    layout, width, heights = shape
    given = dict(zip(_Emitter.NAMES, values, strict=True))
    left, a, c = (cgutils.alloca_once_value(builder, value) for value in (m, given["a"], given["c"]))
    item = scalar_of(tag)[1]
    prefetched = None if ahead is None else cgutils.alloca_once_value(builder, ahead.address)

    def tile(height: int, whole: bool) -> None:
        at = {**given, "a": builder.load(a), "c": builder.load(c)}
        emitter = _Emitter(builder, slope, at.values(), tag, height, layout, width)
        if ahead is not None:
            emitter.ahead = ahead._replace(address=builder.load(prefetched))
            behind = builder.add(emitter.ahead.address, builder.mul(ahead.step, ahead.iterations))
            builder.store(behind, prefetched)
        emitter.emit()
        step = builder.mul(given["a_step"], integer(height)) if layout == ROW_MAJOR else integer(height * item)
        builder.store(builder.add(at["a"], block if whole and layout == COLUMN_MAJOR else step), a)
        builder.store(builder.add(at["c"], builder.mul(given["c_step"], integer(height))), c)
        builder.store(builder.sub(builder.load(left), integer(height)), left)

    most = None  # rows that may remain at this height
    for height in heights:
        if most is None or most >= 2 * height:
            with cgutils.for_range(builder, builder.sdiv(builder.load(left), integer(height)), intp=I64):
                tile(height, most is None)
        else:
            with builder.if_then(builder.icmp_signed(">=", builder.load(left), integer(height))):
                tile(height, False)
        most = height - 1


def _product(layout: int, width: int, heights: tuple[int, ...]) -> Any:
    """A kernel for m rows of ``width`` vectors, in tiles: as many as fit of the first height, then lower ones.

    Arguments, all int64 but the first, whose type chooses float32 or float64; steps and offsets in bytes:
    tag: the slope of ACTIVATE, or its bits as an int32 where A and B are words of two bfloat16 and C is float32; m:
    rows; block: where A is COLUMN_MAJOR, from one tile's rows of A to the next tile's (a tile's height where A is not
    packed); a, a_taps, b, b_taps: base addresses and addresses of the taps' offsets; taps: their number; a_step: from
    row to row of A (COLUMN_MAJOR: from k to k); b_step: from k to k of B; depth: number of k; c, c_step: the result and
    its row step; mode: STORE, or ADD, BIAS and ACTIVATE together; bias: address of a row; residual: see ADD; columns:
    how many columns of C may be written.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def kernel(
        _typing: Any, tag: Any, m: Any, block: Any, a: Any, a_taps: Any, b: Any, b_taps: Any, taps: Any, a_step: Any,
        b_step: Any, depth: Any, c: Any, c_step: Any, mode: Any, bias: Any, residual: Any, columns: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            slope, m, block, *values = arguments
            emit_rows(builder, tag, Shape(layout, width, heights), (slope, m, block), values)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 16), codegen

    return kernel


ROWS = ISA.rows

WIDE_HEIGHTS = tuple(sorted({height for height in (ROWS, 8, 5, 4, 2, 1) if height <= ROWS}, reverse=True))
"""Heights of ``outer_product``'s tiles."""

# For results of no more channels than one vector holds: more rows use the registers that more vectors would take.
NARROW_ROWS = ROWS * ISA.vectors
NARROW_WIDE_ROWS = 8

# What a tile leaves is made of powers of two: a 12-row tile leaves up to 11 rows, 8 + 2 + 1.
_FULL = _product(ROW_MAJOR, ISA.vectors, tuple(height for height in WIDE_HEIGHTS if height != 5))
_NARROW = _product(ROW_MAJOR, 1, (NARROW_ROWS, *(height for height in (8, 4, 2, 1) if height < NARROW_ROWS)))

outer_product = _product(COLUMN_MAJOR, ISA.vectors, WIDE_HEIGHTS)
"""C (m rows, one panel of columns) from A with neighbouring rows and ``a_step`` bytes from k to k."""

narrow_outer_product = _product(COLUMN_MAJOR, 1, (NARROW_WIDE_ROWS, 4, 2, 1))
"""``outer_product`` for a panel of one vector."""

# For the first layers' filter rows, 7, 5 or 3 taps of three channels: one tile where registers suffice reads B once.
TALL = ROWS * ISA.vectors >= 21
TALL_HEIGHTS = (21, 15, 9) if TALL else ()
tall_product = _product(COLUMN_MAJOR, 1, (21, 15, 9))
"""``narrow_outer_product`` whose number of rows is one of TALL_HEIGHTS."""

SCATTERED_ROWS, NARROW_SCATTERED_ROWS = min(ROWS, 6), 8
"""Height of a tile of scattered rows, each of which takes a pointer, and of one for a panel of one vector."""
_SCATTERED, _NARROW_SCATTERED = _tile(SCATTERED_ROWS, ISA.vectors), _tile(NARROW_SCATTERED_ROWS, 1)

_VECTOR_BYTES = ISA.bytes


@inlined
def panel_product(  # type: ignore[no-untyped-def]
    tag, m, a, a_taps, b, b_taps, taps, a_step, b_step, depth, c, c_step, mode, bias, residual, columns
):
    """C (m rows, one panel of columns, ``b_step`` bytes wide) from A with rows ``a_step`` bytes apart."""
    if b_step == _VECTOR_BYTES:
        _NARROW(tag, m, 0, a, a_taps, b, b_taps, taps, a_step, b_step, depth, c, c_step, mode, bias, residual, columns)
    else:
        _FULL(tag, m, 0, a, a_taps, b, b_taps, taps, a_step, b_step, depth, c, c_step, mode, bias, residual, columns)


@inlined
def scattered_rows(b_step):  # type: ignore[no-untyped-def]
    """Rows per tile of ``scattered_product``, by the bytes of a panel's row."""
    return NARROW_SCATTERED_ROWS if b_step == _VECTOR_BYTES else SCATTERED_ROWS


@inlined
def scattered_product(  # type: ignore[no-untyped-def]
    tag, a, a_taps, b, b_taps, taps, a_step, b_step, depth, c, c_step, mode, bias, residual, columns
):
    """C (one tile of scattered rows, one panel of columns) from A with scattered rows."""
    if b_step == _VECTOR_BYTES:
        _NARROW_SCATTERED(
            tag, a, a_taps, b, b_taps, taps, a_step, b_step, depth, c, c_step, mode, bias, residual, columns
        )
    else:
        _SCATTERED(tag, a, a_taps, b, b_taps, taps, a_step, b_step, depth, c, c_step, mode, bias, residual, columns)


def _copier(vectors: Callable[[int], int]) -> Any:
    """A function that copies ``count`` pieces of ``vectors(itemsize)`` vectors from strided to strided memory.

    Where pieces overlap at the target, the later one remains.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def copy(_typing: Any, tag: Any, source: Any, source_step: Any, target: Any, target_step: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, source, source_step, target, target_step, count = arguments
            emit = Vectors(builder, tag)
            with cgutils.for_range(builder, count, intp=I64) as loop:
                read = builder.add(source, builder.mul(loop.index, source_step))
                write = builder.add(target, builder.mul(loop.index, target_step))
                for v in range(vectors(emit.item)):
                    offset = integer(v * ISA.bytes)
                    emit.store(emit.load(builder.add(read, offset)), builder.add(write, offset))
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 5), codegen

    return copy


copy_rows = _copier(lambda item: -(-max(ROWS, NARROW_WIDE_ROWS) * item // ISA.bytes))
"""Copies pieces at least as long as a tile is high: A for ``outer_product`` and ``narrow_outer_product``."""

copy_panels = _copier(lambda item: ISA.vectors)
"""Copies pieces as long as a panel is wide: B."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def copy_vectors(
    _typing: Any, tag: Any, source: Any, source_step: Any, target: Any, target_step: Any, count: Any, nbytes: Any
) -> Any:
    """Copies ``count`` pieces of ``nbytes`` bytes in whole vectors: reads and writes up to a vector more."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, source, source_step, target, target_step, count, nbytes = arguments
        emit = Vectors(builder, tag)
        size = integer(ISA.bytes)
        vectors = builder.udiv(builder.add(nbytes, integer(ISA.bytes - 1)), size)
        with cgutils.for_range(builder, vectors, intp=I64) as column:
            offset = builder.mul(column.index, size)
            read, write = builder.add(source, offset), builder.add(target, offset)
            with cgutils.for_range(builder, count, intp=I64) as row:
                value = emit.load(builder.add(read, builder.mul(row.index, source_step)))
                emit.store(value, builder.add(write, builder.mul(row.index, target_step)))
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 6), codegen
