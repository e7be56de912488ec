"""The kernel of a product of matrices: blocks of the result, each on the micro-kernel of the convolutions.

It is written as LLVM IR and compiled by LLVM alone (``alpha.cpu.loops.machine``), for float32 and for float64, for a
left matrix that is read where it lies and one whose columns are dense, which is packed. Matrices of bfloat16 are
multiplied two terms at a time: whoever packs rows of terms makes words of two of them, and neighbours in memory are
words as they lie.

A task is a block of rows and columns of one product. It goes through the depth in blocks: it packs a block of the left
matrix where its columns are dense, or copies it where its rows would share a set of the L1 cache, then packs one panel
of the right matrix after the other, which the L1 or L2 cache holds while it is multiplied with all rows of the task.
What is packed next is prefetched: it may lie in memory, in pieces too short for the processor to foresee. Each element
is the sum of its depth's blocks, in their order, and a block the sum of its terms in theirs, so the bits do not depend
on how the result is cut into tasks. When the last block is added, the epilogue, a point-wise loop, runs over what the
L2 cache still holds.
"""

from __future__ import annotations

import hashlib
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import drawn
from alpha.cpu.kernels import microkernel, vectors
from alpha.cpu.kernels.microkernel import ADD, COLUMN_MAJOR, NARROW_ROWS, NARROW_WIDE_ROWS, ROW_MAJOR, ROWS, Shape
from alpha.cpu.kernels.vectors import I32, I64, Images, Vectors, every, integer
from alpha.cpu.loops import machine

TILE_GAP_BYTES = 64
"""Bytes between packed tiles, so that their rows lie in different sets of the L1 cache."""

COPY_GAP_BYTES = 64
"""Bytes between copied rows, for the same reason."""

PREFETCHED_TERMS = 16
"""How many terms before its turn a panel's term is prefetched."""

TERMS_COPIED = 8
"""Terms of a tile that are packed one after the other: as many rows of memory are read side by side."""


class Cut(NamedTuple):
    """What a plan tells the kernel, each field an int64."""

    scratches_taken: int
    """Threads that have taken a scratch buffer: the kernel counts them."""
    tasks: int
    scratch_bytes: int
    """Bytes of a scratch buffer: a panel, and then the packed block of the left matrix."""
    panel_bytes: int
    row_tasks: int
    """Tasks that the rows of a product are divided among."""
    column_tasks: int
    rows: int
    depth: int
    columns: int
    task_rows: int
    task_columns: int
    """Columns per task: whole panels."""
    depth_block: int
    x_copy_row: int
    """From row to row of a copy of the left matrix's block, in bytes; 0 where it is read where it lies."""
    y_is_by_columns: int
    """Whether columns of the right matrix are dense, not its rows."""
    epilogue_panels: int
    """Panels after which the epilogue runs over the task's rows."""


class Addresses(NamedTuple):
    """What a call tells the kernel behind the plan's fields, each an int64; steps are in bytes."""

    scratch: int
    """Address of the scratch buffers, one per thread."""
    x_row: int
    """From row to row of the left matrix."""
    x_term: int
    """From term to term of the depth, that is from column to column of the left matrix."""
    y_term: int
    y_column: int
    out_row: int
    mode: int
    """How a result is begun: STORE, or ADD to what it holds, with BIAS or without."""
    bias: int
    """Address of a row that is added, or 0."""
    epilogue: int
    """Address of a point-wise loop's ``part(job, first row, end row, first column, end column)``, or 0."""
    epilogue_job: int
    matrices: int
    """Address of a table of a batch: for each product the addresses of its left, its right matrix and its result."""
    x: int
    """Address of the left matrix; without a table, these three are the first product's."""
    y: int
    out: int
    x_next: int
    """From product to product of a batch without a table; with one, 0."""
    y_next: int
    out_next: int
    rounded: int
    """Address of the result in bfloat16, which lies as the one that the sums are added up in; or 0."""
    rounded_bias: int
    """Address of a row of bfloat16 that is added before rounding, or 0."""


FIELDS = (*Cut._fields, *Addresses._fields)
"""A job's fields."""


class Kind(NamedTuple):
    """What a kernel is made for.

    Attributes:
        bits: of a number.
        is_packed: whether the left matrix has dense columns, and its blocks are packed into tiles.
        vectors: of a panel's row: one where the result has no more columns than that.
        are_pairs: whether the matrices hold words of two bfloat16, and the result float32.
        are_halves: whether they hold bfloat16, of which the kernel makes words: of neighbours along the terms.
    """

    bits: int
    is_packed: bool
    vectors: int
    are_pairs: bool = False
    are_halves: bool = False

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return self.bits // 8

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.vectors * ISA.lanes(self.item)

    @property
    def shape(self) -> Shape:
        """The micro-kernel's tiles."""
        if self.is_packed:
            tallest = ROWS if self.vectors > 1 else NARROW_WIDE_ROWS
        else:
            tallest = ROWS if self.vectors > 1 else NARROW_ROWS
        heights = tuple(sorted({tallest, *(height for height in (8, 4, 2, 1) if height < tallest)}, reverse=True))
        return Shape(COLUMN_MAJOR if self.is_packed else ROW_MAJOR, self.vectors, heights)

    @property
    def tile(self) -> int:
        """Rows of a whole tile."""
        return self.shape.heights[0]

    def packed_bytes(self, rows: int, depth: int, copy_row: int) -> int:
        """Bytes that a block of so many rows and terms takes packed, or copied: then ``copy_row`` is not 0."""
        if not self.is_packed:
            return rows * copy_row
        return -(-rows // self.tile) * (depth * self.tile * self.item + TILE_GAP_BYTES) + ISA.bytes

    def panel_bytes(self, depth: int) -> int:
        """Bytes of a panel of so many terms; whole squares of numbers are transposed into it."""
        lanes = ISA.lanes(self.item)
        return -(-depth // lanes) * lanes * self.panel * self.item


class Compiled(NamedTuple):
    """A kernel's machine code, and the addresses of what runs a job."""

    code: machine.Functions
    entries: machine.Entries


@once
def compiled(kind: Kind) -> Compiled:
    """The compiled kernel of a kind."""
    code = _compiled(kind)
    return Compiled(code, machine.Entries(code.address("alone"), code.address("shared")))


def _compiled(kind: Kind) -> machine.Functions:
    """The machine code."""
    sources = (__file__, microkernel.__file__, vectors.__file__)
    digest = hashlib.sha256(b"".join([Path(source).read_bytes() for source in sources])).hexdigest()
    return machine.functions(f"{kind} {ISA} {digest}", lambda: _Writer(kind).text(), promoted=True)


class _Writer:
    """Writes the module of a kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.tag = types.int32 if kind.are_pairs else types.float32 if kind.bits == 32 else types.float64
        self.module = ir.Module("product")
        self.zero = ir.GlobalVariable(self.module, I64, "zero")
        self.zero.global_constant, self.zero.initializer = True, integer(0)
        self.zero.linkage = "internal"
        self.panel_row = integer(kind.vectors * ISA.bytes)
        self.tile_row = integer(kind.tile * kind.item)
        self.read_bytes = ISA.bytes // 2 if kind.are_halves else ISA.bytes
        """Bytes of a row of a matrix that become a vector."""
        self.source_row, self.source_tile = (
            integer(one.constant // 2) if kind.are_halves else one for one in (self.panel_row, self.tile_row)
        )

    def text(self) -> str:
        """The module's text."""
        self._multiply = self._write("multiply", 13, self._multiply_body)
        self._pack_rows = self._write("pack_rows", 5, self._pack_rows_body)
        self._pack_columns = self._write("pack_columns", 5, self._pack_columns_body)
        if self.kind.are_halves:
            self._round = self._write("round", 6, self._round_body)
        if self.kind.is_packed:
            self._pack_tiles = self._write("pack_tiles", 5, self._pack_tiles_body)
        else:
            self._copy_block = self._write("copy_block", 6, self._copy_block_body)
        self._task = self._write("task", 3, self._task_body)
        self._write("shared", 2, self._shared_body, is_internal=False)
        self._write("alone", 1, self._alone_body, is_internal=False)
        return str(self.module)

    def _write(self, name: str, arguments: int, body: Any, is_internal: bool = True) -> Any:
        """A function of int64 arguments without a result."""
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64] * arguments), name)
        if is_internal:
            function.linkage = "internal"
            function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        body(builder, *function.args)
        builder.ret_void()
        return function

    def _field(self, builder: Any, job: Any, name: str) -> Any:
        at = builder.add(job, integer(8 * FIELDS.index(name)))
        return builder.load(builder.inttoptr(at, I64.as_pointer()))

    # -- what a task is made of ----------------------------------------------------------------------------------

    def _multiply_body(self, b: Any, *arguments: Any) -> None:
        """Some rows of the result, one panel wide, get one block of the depth; ``tile``: bytes of a packed tile.

        ``ahead``: where the panel lies that is packed next, ``ahead_step`` bytes from term to term; 0 for none.
        """
        rows, x, panel, depth, x_row, tile, out, out_row, mode, bias, columns, ahead, ahead_step = arguments
        zero = b.ptrtoint(self.zero, I64)
        step = self.tile_row if self.kind.is_packed else x_row
        values = (
            x, zero, panel, zero, integer(1), step, self.panel_row, depth, out, out_row, mode, bias, integer(0),
            columns,
        )  # fmt: skip
        prefetched = None
        if self.kind.is_packed:  # in loops whose rows each have a pointer one more costs as much as it saves
            tiles = b.sdiv(b.add(rows, integer(self.kind.tile - 1)), integer(self.kind.tile))
            terms = b.sdiv(b.add(depth, b.sub(tiles, integer(1))), tiles)
            terms = b.select(b.icmp_signed("!=", ahead, integer(0)), terms, integer(0))
            prefetched = microkernel.Ahead(ahead, ahead_step, terms)
        microkernel.emit_rows(b, self.tag, self.kind.shape, (None, rows, tile), values, prefetched)

    def _pack_rows_body(self, b: Any, y: Any, term: Any, panel: Any, depth: Any, columns: Any) -> None:
        """A panel of terms whose columns are dense: what is missing of a row is 0."""
        emit = Vectors(b, self.tag)
        is_whole = b.icmp_signed(">=", columns, integer(self.kind.panel))
        with b.if_else(is_whole) as (whole, part):
            for branch, masked in ((whole, False), (part, True)):
                with branch, cgutils.for_range(b, depth, intp=I64) as loop:
                    source = b.add(y, b.mul(loop.index, term))
                    target = b.add(panel, b.mul(loop.index, self.panel_row))
                    for v in range(self.kind.vectors):
                        at = b.add(source, integer(v * self.read_bytes))
                        left = b.sub(columns, integer(v * emit.lanes))
                        for row in self._rows(b, at, term):
                            emit.prefetch(b.add(row, b.mul(term, integer(PREFETCHED_TERMS))))
                            if not self.kind.is_packed:  # else the panel before prefetches this one
                                emit.prefetch(b.add(row, self.source_row), into_l2=True)
                        value = self._read(emit, at, term, left if masked else None)
                        emit.store(value, b.add(target, integer(v * ISA.bytes)))

    def _rows(self, b: Any, at: Any, term: Any) -> list[Any]:
        """Where the rows begin that a term is read from: two where words are made of halves."""
        return [at, b.add(at, b.ashr(term, integer(1)))] if self.kind.are_halves else [at]

    def _read(self, emit: Vectors, at: Any, term: Any, left: Any = None) -> Any:
        """A vector of a term whose rows are dense, or its first ``left`` lanes: of halves words of two rows."""
        if not self.kind.are_halves:
            return emit.load(at) if left is None else emit.load_masked(at, left)
        b, halves = emit.builder, Images(emit, types.uint16)
        bits = ir.VectorType(I32, emit.lanes)
        lower, upper = [b.bitcast(halves.load(row, left), bits) for row in self._rows(b, at, term)]
        return b.bitcast(b.or_(b.lshr(lower, every(bits, 16)), upper), emit.vector)

    def _pack_columns_body(self, b: Any, y: Any, column: Any, panel: Any, depth: Any, columns: Any) -> None:
        """A panel of columns whose terms are dense, by squares; beyond the last column it is read again."""
        emit = Vectors(b, self.tag)
        last = b.sub(columns, integer(1))
        following = b.mul(column, integer(self.kind.panel))
        with cgutils.for_range_slice(b, integer(0), depth, integer(emit.lanes), I64) as (term, _):
            left = b.sub(depth, term)
            is_whole = b.icmp_signed(">=", left, integer(emit.lanes))
            base = b.add(y, b.mul(term, integer(self.kind.item)))
            target = b.add(panel, b.mul(term, self.panel_row))
            with b.if_else(is_whole, likely=True) as (whole, part):
                for branch, masked in ((whole, False), (part, True)):
                    with branch:
                        for v in range(self.kind.vectors):
                            rows = []
                            for lane in range(emit.lanes):
                                place = integer(v * emit.lanes + lane)
                                place = b.select(b.icmp_signed("<", place, columns), place, last)
                                at = b.add(base, b.mul(place, column))
                                emit.prefetch(b.add(at, following), into_l2=True)
                                rows.append(emit.load_masked(at, left) if masked else emit.load(at))
                            for lane, row in enumerate(emit.transposed(rows)):
                                offset = lane * self.kind.vectors * ISA.bytes + v * ISA.bytes
                                emit.store(row, b.add(target, integer(offset)))

    def _pack_tiles_body(self, b: Any, x: Any, term: Any, rows: Any, depth: Any, tiles: Any) -> None:
        """A block whose rows are dense, as tiles of neighbouring rows; each copy runs into the next one's place."""
        emit, height = Vectors(b, self.tag), self.kind.tile
        count = b.sdiv(b.add(rows, integer(height - 1)), integer(height))
        apart = b.add(b.mul(depth, self.tile_row), integer(TILE_GAP_BYTES))
        pieces = -(-height * self.kind.item // ISA.bytes)
        whole = b.mul(b.sdiv(depth, integer(TERMS_COPIED)), integer(TERMS_COPIED))
        for start, end, together in ((integer(0), whole, TERMS_COPIED), (whole, depth, 1)):
            with cgutils.for_range_slice(b, start, end, integer(together), I64) as (first, _):
                source, target = b.add(x, b.mul(first, term)), b.add(tiles, b.mul(first, self.tile_row))
                with cgutils.for_range(b, count, intp=I64) as loop:
                    read = b.add(source, b.mul(loop.index, self.source_tile))
                    write = b.add(target, b.mul(loop.index, apart))
                    ahead = b.mul(term, integer(TERMS_COPIED))
                    for _ in range(together):
                        for row in self._rows(b, read, term):
                            emit.prefetch(b.add(row, ahead))
                        for v in range(pieces):
                            value = self._read(emit, b.add(read, integer(v * self.read_bytes)), term)
                            emit.store(value, b.add(write, integer(v * ISA.bytes)))
                        read, write = b.add(read, term), b.add(write, self.tile_row)

    def _copy_block_body(self, b: Any, x: Any, row: Any, rows: Any, depth: Any, copy: Any, copy_row: Any) -> None:
        """A block whose terms are dense, as rows that lie in different sets of the L1 cache."""
        emit = Vectors(b, self.tag)
        with cgutils.for_range(b, rows, intp=I64) as at_row:
            source, target = b.add(x, b.mul(at_row.index, row)), b.add(copy, b.mul(at_row.index, copy_row))
            with cgutils.for_range_slice(b, integer(0), depth, integer(emit.lanes), I64) as (term, _):
                offset = b.mul(term, integer(self.kind.item))
                read = b.add(source, offset)
                emit.prefetch(b.add(read, row))
                emit.store_first(emit.load_first(read, b.sub(depth, term)), b.add(target, offset), b.sub(depth, term))

    # -- tasks ---------------------------------------------------------------------------------------------------

    def _task_body(self, b: Any, job: Any, task: Any, scratch: Any) -> None:
        f = {name: self._field(b, job, name) for name in FIELDS}
        item, panel = integer(self.kind.item), integer(self.kind.panel)
        across, rest = b.srem(task, f["column_tasks"]), b.sdiv(task, f["column_tasks"])
        down, number = b.srem(rest, f["row_tasks"]), b.sdiv(rest, f["row_tasks"])
        has_none = b.icmp_signed("==", f["matrices"], integer(0))
        row = b.add(f["matrices"], b.mul(number, integer(24)))
        matrices = b.select(has_none, b.add(job, integer(8 * FIELDS.index("x"))), row)
        x, y, out = (
            b.add(b.load(b.inttoptr(b.add(matrices, integer(8 * k)), I64.as_pointer())), b.mul(number, f[step]))
            for k, step in enumerate(("x_next", "y_next", "out_next"))
        )
        first_row, first = b.mul(down, f["task_rows"]), b.mul(across, f["task_columns"])
        height = _least(b, f["task_rows"], b.sub(f["rows"], first_row))
        end = _least(b, b.add(first, f["task_columns"]), f["columns"])
        x, out = b.add(x, b.mul(first_row, f["x_row"])), b.add(out, b.mul(first_row, f["out_row"]))
        tiles = b.add(scratch, f["panel_bytes"])
        with cgutils.for_range_slice(b, integer(0), f["depth"], f["depth_block"], I64) as (term, _):
            terms = _least(b, f["depth_block"], b.sub(f["depth"], term))
            apart = b.add(b.mul(terms, self.tile_row), integer(TILE_GAP_BYTES))
            left = b.add(x, b.mul(term, f["x_term"]))
            right = b.add(y, b.mul(term, f["y_term"]))
            if self.kind.is_packed:
                b.call(self._pack_tiles, [left, f["x_term"], height, terms, tiles])
                left, step = tiles, f["x_row"]
            else:
                is_copied = b.icmp_signed("!=", f["x_copy_row"], integer(0))
                with b.if_then(is_copied):
                    b.call(self._copy_block, [left, f["x_row"], height, terms, tiles, f["x_copy_row"]])
                left, step = b.select(is_copied, tiles, left), b.select(is_copied, f["x_copy_row"], f["x_row"])
            mode = b.select(b.icmp_signed("==", term, integer(0)), f["mode"], integer(ADD))
            is_last = b.icmp_signed(">=", b.add(term, f["depth_block"]), f["depth"])
            with cgutils.for_range_slice(b, first, end, panel, I64) as (column, _):
                width = _least(b, panel, b.sub(end, column))
                source, offset = b.add(right, b.mul(column, f["y_column"])), b.mul(column, item)
                ahead = self._panel_ahead(
                    b, f, (source, b.add(right, b.mul(first, f["y_column"]))), terms, (column, end)
                )
                with b.if_else(b.icmp_signed("!=", f["y_is_by_columns"], integer(0))) as (columns, rows):
                    with columns:
                        b.call(self._pack_columns, [source, f["y_column"], scratch, terms, width])
                    with rows:
                        b.call(self._pack_rows, [source, f["y_term"], scratch, terms, width])
                arguments = [
                    height, left, scratch, terms, step, apart, b.add(out, offset), f["out_row"], mode,
                    b.add(f["bias"], offset), width, ahead, f["y_term"],
                ]  # fmt: skip
                b.call(self._multiply, arguments)
                has_end = b.icmp_signed("!=", b.or_(f["epilogue"], f["rounded"]), integer(0))
                with b.if_then(b.and_(is_last, has_end)):
                    self._run_ends(b, f, (first_row, height, out), (first, column, end))

    def _panel_ahead(self, b: Any, f: dict[str, Any], places: tuple[Any, Any], terms: Any, now: tuple[Any, Any]) -> Any:
        """Where the next panel of a right matrix with dense rows lies, which may be the next block's first; else 0.

        ``places``: where this panel lies, and the block's first; ``now``: this panel's column, and the task's end.
        """
        (source, block), (column, end) = places, now
        is_last = b.icmp_signed(">=", b.add(column, integer(self.kind.panel)), end)
        next_panel, next_block = b.add(source, self.source_row), b.add(block, b.mul(terms, f["y_term"]))
        by_columns = b.icmp_signed("!=", f["y_is_by_columns"], integer(0))
        return b.select(by_columns, integer(0), b.select(is_last, next_block, next_panel))

    def _run_ends(self, b: Any, f: dict[str, Any], rows: tuple[Any, Any, Any], columns: tuple[Any, Any, Any]) -> None:
        """The epilogue and the rounding of some panels, when the last of them is done.

        ``rows``: the task's first, how many, and where they begin; ``columns``: the task's first, now, its end.
        """
        (first_row, height, out), (first, column, end) = rows, columns
        panel, together = integer(self.kind.panel), b.mul(f["epilogue_panels"], integer(self.kind.panel))
        done, following = b.sub(column, first), b.add(column, panel)
        is_end = b.icmp_signed(">=", following, end)
        is_full = b.icmp_signed("==", b.srem(b.add(done, panel), together), integer(0))
        with b.if_then(b.or_(is_end, is_full)):
            start = b.add(first, b.mul(b.sdiv(done, together), together))
            stop = _least(b, following, end)
            with b.if_then(b.icmp_signed("!=", f["epilogue"], integer(0))):
                kind = ir.FunctionType(ir.VoidType(), [I64] * 5)
                function = b.inttoptr(f["epilogue"], kind.as_pointer())
                b.call(function, [f["epilogue_job"], first_row, b.add(first_row, height), start, stop])
            if self.kind.are_halves:
                with b.if_then(b.icmp_signed("!=", f["rounded"], integer(0))):
                    sums = b.add(out, b.mul(start, integer(self.kind.item)))
                    rounded = b.add(f["rounded"], b.ashr(b.sub(sums, f["out"]), integer(1)))
                    bias, twice = f["rounded_bias"], b.mul(start, integer(2))
                    bias = b.select(b.icmp_signed("!=", bias, integer(0)), b.add(bias, twice), bias)
                    b.call(self._round, [sums, rounded, bias, height, b.sub(stop, start), f["out_row"]])

    def _round_body(self, b: Any, sums: Any, rounded: Any, bias: Any, rows: Any, columns: Any, out_row: Any) -> None:
        """Rounds sums to bfloat16, with a row of bfloat16 added where there is one."""
        emit = Vectors(b, types.float32)
        halves = Images(emit, types.uint16)
        has_bias = b.icmp_signed("!=", bias, integer(0))
        with b.if_else(has_bias) as (with_bias, without):
            for branch, adds in ((with_bias, True), (without, False)):
                with branch, cgutils.for_range(b, rows, intp=I64) as row:
                    offset = b.mul(row.index, out_row)
                    read, write = b.add(sums, offset), b.add(rounded, b.ashr(offset, integer(1)))
                    with cgutils.for_range_slice(b, integer(0), columns, integer(emit.lanes), I64) as (column, _):
                        left, place = b.sub(columns, column), b.mul(column, integer(2))
                        value = emit.load_first(b.add(read, b.mul(column, integer(4))), left)
                        if adds:
                            value = b.fadd(value, halves.load_first(b.add(bias, place), left))
                        halves.store_first(value, b.add(write, place), left)

    def _shared_body(self, b: Any, share: Any, job: Any) -> None:
        """Draws tasks until none is left."""
        taken = b.atomic_rmw("add", b.inttoptr(job, I64.as_pointer()), integer(1), "monotonic")
        scratch = b.add(self._field(b, job, "scratch"), b.mul(taken, self._field(b, job, "scratch_bytes")))
        tasks = self._field(b, job, "tasks")
        draw, run, done = (b.append_basic_block(name) for name in ("draw", "run", "done"))
        b.branch(draw)
        b.position_at_end(draw)
        task = drawn(b, share, tasks)
        b.cbranch(b.icmp_signed("<", task, tasks), run, done)
        b.position_at_end(run)
        b.call(self._task, [job, task, scratch])
        b.branch(draw)
        b.position_at_end(done)

    def _alone_body(self, b: Any, job: Any) -> None:
        """All tasks, one after the other."""
        scratch, tasks = self._field(b, job, "scratch"), self._field(b, job, "tasks")
        with cgutils.for_range(b, tasks, intp=I64) as loop:
            b.call(self._task, [job, loop.index, scratch])


def _least(b: Any, one: Any, other: Any) -> Any:
    return b.select(b.icmp_signed("<", one, other), one, other)
