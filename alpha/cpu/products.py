"""ProductOperations: the CPU engine's products of matrices, and its own where an operand is a vector."""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import int64

from alpha import caches
from alpha.autograd import is_inference
from alpha.composed import stored
from alpha.composed.arrays import cast
from alpha.cpu import compile, streaming, tapes, tasks
from alpha.cpu import pairs as words
from alpha.cpu.arrays import ArrayOperations
from alpha.cpu.compile import Entry
from alpha.cpu.conv.depthwise import STREAMED
from alpha.cpu.gemm import pairs, planner
from alpha.cpu.gemm.algorithm import Call
from alpha.cpu.gemm.epilogue import Epilogue
from alpha.cpu.gemm.problem import Product, is_by_columns, is_by_rows, product_of
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import matvec as kernels
from alpha.cpu.kernels.pairs import WORD
from alpha.cpu.launches import Call as Launch
from alpha.cpu.launches import call_of, learn, parts
from alpha.cpu.loops import blocks, dots, machine, outer
from alpha.cpu.loops.machine import Loop
from alpha.dtypes import float32, is_stored
from alpha.errors import ShapeError
from alpha.launches import DOT, LINEAR, MATMUL, PRODUCT_ALGORITHM, Launches
from alpha.records import PointwiseStep
from alpha.tensor import Tensor

PARALLEL_BYTES = 256 << 10
"""Bytes of a matrix from which several threads share a product: below, a second one would come too late."""

TASKS_PER_THREAD = 8
"""Several, so that a thread whose core is busy with something else leaves little to wait for."""

CACHED_BYTES, CACHED_TASKS_PER_THREAD = 4 << 20, 2
"""A matrix of fewer bytes stays in the caches, and has fewer tasks: a thread then often draws what its cache holds."""

ROWS = max(kernels.DOT_ROWS, kernels.UPDATE_ROWS)
"""Most rows that an iteration of a kernel works on at once."""

OUTER_TASK_BYTES = 1 << 17
"""Bytes of a result of two vectors that a task writes, about."""

MIN_TASK_COLUMNS, MAX_TASK_COLUMNS = 128, 2048
"""Columns per task of the transposed product: long runs of memory, and sums that stay in the L1 cache."""


DOT_PART, MOST_DOT_PARTS = 1 << 15, 64
"""Elements of a dot product's task at least, and its most tasks, whatever the threads."""

_DOT_JOB = struct.Struct("5q").pack
"""Plan, result, two vectors, parts."""

_OUTER_JOB = struct.Struct("4qd").pack


class ProductOperations(ArrayOperations):
    """Products of matrices, each by the algorithm that ``alpha.cpu.gemm.planner`` chooses; the bits never depend on the
    number of threads. A product with a vector reads the matrix once, in place where rows or columns are dense.
    """

    @stored.takes_stored_dtypes
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        wanted = PRODUCT_ALGORITHM.get()
        found: Tensor | None = MATMUL.launch(x, y, wanted)
        if found is not None:
            return found
        if is_stored(x.dtype) or is_stored(y.dtype):
            return self._stored_product(x, y, wanted)
        x, y = self._dense_one_way(x), self._dense_one_way(y)
        problem = product_of(x, y)
        if not (problem.macs and problem.batch):
            return self._of_nothing(x, y)
        if words.are_wanted(problem.item) and (found := self._in_pairs(problem, Call(x, y))) is not None:
            return found
        algorithm, call = planner.choose(problem), Call(x, y)
        out = algorithm.run(self, problem, call)
        learn(MATMUL, self, lambda: algorithm.launch(problem, call, out), x, y, wanted)
        return out

    @stored.takes_stored_dtypes
    def linear(
        self, x: Tensor, w: Tensor, bias: Tensor | None, step: PointwiseStep | None = None, keeps: bool = False
    ) -> tuple[Tensor, Tensor]:
        keys = PRODUCT_ALGORITHM.get(), is_inference()
        found: Tensor | None = LINEAR.launch(x, w, bias, *keys) if step is None else None
        if found is not None:
            return found, found
        if is_stored(x.dtype) or is_stored(w.dtype) or (bias is not None and is_stored(bias.dtype)):
            return self._stored_linear(x, w, bias, step, keeps, keys)
        bias = None if bias is None else self._vector(bias)  # launches learn it as it lies now
        transposed = _transposed(w)
        transposed._array = self.operand(w).T  # what a weight keeps of itself is not made for each call
        x, y = self._dense_one_way(x), self._dense_one_way(transposed)
        problem = product_of(x, y, is_inference())
        call = Call(x, y, None, bias)
        are_wanted = words.are_wanted(problem.item)
        if step is None and are_wanted and (found := self._in_pairs(problem, call)) is not None:
            return found, found
        if step is None:
            algorithm = planner.choose(problem)
            out = algorithm.run(self, problem, call)
            if y.storage is w.storage:
                learn(LINEAR, self, lambda: algorithm.launch(problem, call, out), x, w, bias, *keys)
            return out, out
        call, result, out = self._ending(call, step, keeps)
        if not are_wanted or self._in_pairs(problem, call) is None:
            planner.choose(problem).run(self, problem, call)
        return result, out

    @stored.takes_stored_dtypes
    def linear_input_grad(self, dy: Tensor, w: Tensor) -> Tensor:
        return self.matmul(dy, w)

    @stored.takes_stored_dtypes
    def linear_weight_grad(self, x: Tensor, dy: Tensor, with_bias: bool) -> tuple[Tensor, Tensor | None]:
        return self.matmul(_transposed(dy), x), self.channel_sum(dy) if with_bias else None

    def _stored_product(self, x: Tensor, y: Tensor, wanted: str | None) -> Tensor:
        """``matmul`` of a stored dtype: of bfloat16 as the matrices lie where that is faster, else of conversions."""
        if words.are_read(x, y):
            left, right = self._dense_one_way(x), self._dense_one_way(y)
            problem = product_of(left, right)
            if pairs.reads_once(problem) and wanted in (None, "vectors") and len(x.shape) == len(y.shape) == 2:
                a, v = (left, right) if problem.columns == 1 else (_transposed(right), _transposed(left))
                vector = self._stored_vector(a, v.strided(v.offset, v.shape[:1], v.strides[:1]), None)
                return vector.strided(0, (problem.rows, problem.columns), (problem.columns, 1))
            if problem.macs and problem.batch:
                call = Call(left, right)
                if (halves := pairs.of_halves(problem)) is not None:
                    shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
                    return self._rounded(MATMUL, halves, call, shape, (left, right, wanted))
                found = pairs.run(self, problem, call)
                if found is not None:
                    return cast(self, found, x.dtype)
        converted: Tensor = stored.converted(self, "matmul", x, y)
        return converted

    def _stored_linear(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        step: PointwiseStep | None,
        keeps: bool,
        keys: tuple[str | None, bool],
    ) -> tuple[Tensor, Tensor]:
        """``linear`` of a stored dtype: see ``_stored_product``."""
        if words.are_read(x, w):
            left, right = self._dense_one_way(x), self._dense_one_way(_transposed(w))
            problem = product_of(left, right)
            halves = pairs.of_halves(problem) if step is None and (bias is None or bias.dtype == x.dtype) else None
            if halves is not None:
                bias = None if bias is None else self._vector(bias)  # launches learn it as it lies now
                known = LINEAR if right.storage is w.storage else None
                given = self._rounded(known, halves, Call(left, right, None, bias), (), (left, w, bias, *keys))
                return given, given
            if pairs.choose(problem, True) is not None:
                row = None if bias is None else self._vector(cast(self, bias, float32))
                call, result, out = self._ending(Call(left, right, None, row), step, keeps)
                pairs.run(self, problem, call)
                given = cast(self, out, x.dtype)
                return given if result is out else cast(self, result, x.dtype), given
        found: tuple[Tensor, Tensor] = stored.converted(self, "linear", x, w, bias, step, keeps)
        return found

    def _rounded(
        self, known: Launches | None, problem: Product, call: Call, batch: tuple[int, ...], arguments: tuple[Any, ...]
    ) -> Tensor:
        """A product of bfloat16, rounded by its kernel; the operation's launches learn it."""
        out = self.empty((*batch, problem.rows, problem.columns), call.x.dtype)
        call = call._replace(rounded=out)
        pairs.TILES.run(self, problem, call)
        if known is not None:
            learn(
                known, self, lambda: pairs.TILES.launch(problem, call._replace(out=call.target(self)), out), *arguments
            )
        return out

    def _ending(self, call: Call, step: PointwiseStep | None, keeps: bool) -> tuple[Call, Tensor, Tensor]:
        """A call with its step as the epilogue; the step's result, and the product, which is the same unless kept."""
        out = call.target(self)
        if step is None:
            return call._replace(out=out), out, out
        result = self.empty(out.shape, out.dtype) if keeps else out
        return call._replace(out=out, epilogue=Epilogue(step, result)), result, out

    def _in_pairs(self, problem: Product, call: Call) -> Tensor | None:
        """A product of factors that are rounded to bfloat16; None where a float32 algorithm is to multiply them."""
        if words.has_instruction():
            return pairs.run(self, problem, call)
        x, y = words.factors(self, call.x, call.y)
        return planner.choose(problem).run(self, problem, call._replace(x=x, y=y))

    def _of_nothing(self, x: Tensor, y: Tensor) -> Tensor:
        """A product without elements, or of sums over nothing."""
        out = Call(x, y).target(self)
        if out.numel():
            self.fill(out, 0)
        return out

    def _dense_one_way(self, x: Tensor) -> Tensor:
        """Matrices whose rows or columns are dense, as the algorithms read them; a copy where neither are."""
        return x if is_by_rows(x) or is_by_columns(x) else self.dense(x, range(x.ndim))

    @stored.takes_stored_dtypes
    def gemv(self, a: Tensor, x: Tensor, trans: bool = False, plus: Tensor | None = None) -> Tensor:
        rows, columns = a.shape
        length, depth = (columns, rows) if trans else (rows, columns)
        dtype = a.dtype
        if x.shape != (depth,) or x.dtype != dtype or plus is not None:
            _check_vectors(a, (x, depth), (plus, length))
        if is_stored(dtype):
            return self._stored_vector(_transposed(a) if trans else a, x, plus)
        if length == 1 and plus is None:
            return self._dot(Tensor(a.storage, a.offset, x.shape, a.strides[:1] if trans else a.strides[1:], dtype), x)
        if a.strides[1] != 1:
            if a.strides[0] == 1:
                a, trans = a.strided(a.offset, a.shape[::-1], a.strides[::-1]), not trans
                rows, columns = columns, rows
            else:
                a = self.dense(a, (0, 1))
        item, step = dtype.itemsize, a.strides[0]
        storage = self.allocate(length * item)
        x = self._vector(x)
        added = 0 if plus is None else (plus := self._vector(plus)).address
        entry, task, threads = _product(rows, columns, dtype, trans, self.threads)
        tapes.enter(
            entry,
            threads,
            (1.0, item, rows, columns, task, a.address, step * item, x.address, added, storage.address),
        )
        return Tensor(storage, 0, (length,), (1,), dtype)

    def _stored_vector(self, a: Tensor, x: Tensor, plus: Tensor | None) -> Tensor:
        """``gemv`` of a stored dtype: large matrices of bfloat16 are read once, as they lie."""
        (rows, columns), a = a.shape, self._dense_one_way(a)
        problem = product_of(a, x.strided(x.offset, (columns, 1), (x.strides[0], 1)))
        if not (words.are_read(a, x) and pairs.reads_once(problem)):
            row = x.strided(x.offset, (1, columns), (columns * x.strides[0], x.strides[0]))
            product = self.linear(row, a, plus)[0]
            return product.strided(product.offset, (rows,), (1,))
        x, sums = self._vector(x), self.empty((rows,), float32)
        if not problem.x_is_by_columns:
            task, threads = _tasks(rows, columns, 2, False, self.threads)
            lies = rows, columns // 2, task, a.address, 2 * a.strides[0], x.address, sums.address
            tapes.enter(_entry(kernels.words_vector, WORD, 7), threads, (0, *lies))
        else:
            factors = cast(self, x, float32)
            task, threads = _tasks(columns, rows, 2, True, self.threads)
            lies = columns, rows, task, a.address, 2 * a.strides[1], factors.address, sums.address
            tapes.enter(_entry(kernels.vector_halves, float32, 7), threads, (1.0, *lies))
        if plus is not None:
            sums = self.elementwise("add", sums, cast(self, plus, float32), out=sums)
        return cast(self, sums, a.dtype)

    def ger(
        self, x: Tensor, y: Tensor, alpha: float = 1.0, a: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        shape = rows, columns = x.shape[0], y.shape[0]
        dtype = x.dtype
        if (
            len(x.shape) + len(y.shape) != 2
            or y.dtype != dtype
            or not (_fits(a, shape, dtype) and (out is a or _fits(out, shape, dtype)))
        ):
            raise ShapeError(
                f"[ger] expected vectors ({rows},) and ({columns},) and matrices {shape}, all of {dtype}, got "
                + ", ".join(f"{given.shape} of {given.dtype}" for given in (x, y, a, out) if given is not None)
            )
        if a is not None and a.strides[1] != 1:
            a = self.dense(a, (0, 1))
        item = dtype.itemsize
        target = out
        if target is None or target.strides[1] != 1:
            target = Tensor(self.allocate(rows * columns * item), 0, shape, (columns or 1, 1), dtype)
        x, y = self._vector(x), self._vector(y)
        nbytes = rows * columns * item
        if a is None:
            self._outer(x, y, alpha, target, streaming.streams(nbytes))
        else:
            is_aligned = (target.strides[0] * item | target.address) % ISA.bytes == 0
            streamed = nbytes >= STREAMED and a is not out and is_aligned
            entry, task, threads = _update(rows, columns, dtype, self.threads)
            places = a.address, a.strides[0] * item, x.address, y.address, target.address, target.strides[0] * item
            tapes.enter(entry, threads, (alpha, item, rows, columns, task, *places, streamed))
        if out is not None and target is not out:
            self.copy(target, out)
            return out
        return target

    def _dot(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of the products of two vectors' elements, as a vector of one."""
        left, right, plan = self._vector(x), self._vector(y), _dot_plan(x.shape[0], x.dtype.itemsize)
        out = Tensor(self.allocate(x.dtype.itemsize), 0, (1,), (1,), x.dtype)
        kept = tapes.zeros(plan.words if plan.tasks > 1 and self.threads > 1 else 0)
        job = _DOT_JOB(plan.record.address, out.storage.address, left.address, right.address, kept.ctypes.data)
        tasks.run(plan.loop, job, plan.tasks, self.threads)
        if left is x and right is y:
            learn(DOT, self, lambda: plan.call(Tensor(out.storage, 0, (), (), out.dtype), x.shape[0]), x, y)
        return out

    def _outer(self, x: Tensor, y: Tensor, alpha: float, target: Tensor, streams: bool) -> None:
        """Writes alpha * x y'."""
        item = target.dtype.itemsize
        plan = _outer_plan(*target.shape, target.strides[0] * item, item)
        job = _OUTER_JOB(plan.address, target.address, x.address, y.address, alpha)
        tasks.run(_outer_loop(8 * item, streams), job, plan.tasks, self.threads)

    def _vector(self, x: Tensor) -> Tensor:
        """The vector with its elements next to each other in memory."""
        return x if x.strides[0] == 1 else self.dense(x, (0,))


def _transposed(x: Tensor) -> Tensor:
    """A view of the transposed matrix."""
    return Tensor(x.storage, x.offset, x.shape[::-1], x.strides[::-1], x.dtype)


def _fits(matrix: Tensor | None, shape: tuple[int, int], dtype: np.dtype[Any]) -> bool:
    return matrix is None or (matrix.shape == shape and matrix.dtype == dtype)


def _check_vectors(like: Tensor, *vectors: tuple[Tensor | None, int]) -> None:
    """Checks lengths and dtypes of vectors: the kernels follow raw pointers."""
    for vector, length in vectors:
        if vector is not None and (vector.shape != (length,) or vector.dtype != like.dtype):
            raise ShapeError(
                f"[gemv] expected a vector ({length},) of {like.dtype}, got {vector.shape} of {vector.dtype}"
            )


@lru_cache(maxsize=8192)
def _product(rows: int, columns: int, dtype: np.dtype[Any], trans: bool, threads: int) -> tuple[Entry, int, int]:
    """The kernel of a matrix-vector product, rows or columns per task, and how many threads share the tasks."""
    kernel = kernels.vector_matrix if trans else kernels.matrix_vector
    return _entry(kernel, dtype, 9), *_tasks(rows, columns, dtype.itemsize, trans, threads)


class _DotPlan:
    """How a dot product of vectors of some length is divided into tasks.

    Attributes:
        record, tasks, loop: the kernel's own.
        words: 8-byte words for the parts of several threads.
    """

    def __init__(self, length: int, item: int) -> None:
        self.tasks = max(1, min(length // DOT_PART, MOST_DOT_PARTS))
        plan = dots.DotPlan(self.tasks, 1, 1, length, self.tasks, int(2 * length * item >= dots.FAR_BYTES))
        self.record, self.words, self.loop = tasks.Record(plan), dots.words(8 * item, plan), _dot_loop(8 * item)

    def call(self, out: Tensor, length: int) -> Launch:
        """How a launch calls the loop."""
        job = (*tasks.words(self.record, 1, 2), parts())
        return call_of(self.loop, job, (out,), length, self.tasks, self, parts=8 * self.words)


@caches.kept
def _dot_plan(length: int, item: int) -> _DotPlan:
    return _DotPlan(length, item)


@cache
def _dot_loop(bits: int) -> Loop:
    return machine.loop(dots.ir_of(bits))


@caches.kept
def _outer_plan(rows: int, columns: int, step: int, item: int) -> tasks.Record:
    """How the products of two vectors' numbers are divided into tasks."""
    return tasks.Record((*blocks.plan(rows, columns * item, OUTER_TASK_BYTES), *outer.Outer(columns, step)))


@cache
def _outer_loop(bits: int, streams: bool) -> Loop:
    return machine.loop(outer.ir_of(bits, streams))


@lru_cache(maxsize=8192)
def _update(rows: int, columns: int, dtype: np.dtype[Any], threads: int) -> tuple[Entry, int, int]:
    """The kernel of an update of rank one, rows per task, and how many threads share the tasks."""
    return _entry(kernels.rank_one, dtype, 11), *_tasks(rows, columns, dtype.itemsize, False, threads)


def _tasks(rows: int, columns: int, item: int, by_columns: bool, threads: int) -> tuple[int, int]:
    """Rows per task, a multiple of ROWS, or columns per task; and how many threads have a task to do."""
    length = columns if by_columns else rows
    if rows * columns * item < PARALLEL_BYTES or threads == 1:
        return max(1, length), 1
    if by_columns:
        task = min(max(columns // threads, MIN_TASK_COLUMNS), MAX_TASK_COLUMNS)
    else:
        shares = threads * (TASKS_PER_THREAD if rows * columns * item >= CACHED_BYTES else CACHED_TASKS_PER_THREAD)
        task = max(ROWS, rows // shares // ROWS * ROWS)
    return task, min(threads, -(-length // task))


@cache
def _entry(kernel: Any, dtype: np.dtype[Any], integers: int) -> Entry:
    """A kernel for numbers of a dtype, with ``integers`` integers after its first argument."""
    return compile.entry(kernel, dtype, *[int64] * integers)
