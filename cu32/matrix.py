"""MatrixOperations: batched products of strided matrices, each by the kernel that suits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape
from alpha.cu32 import planner, products, selfcheck, tf32
from alpha.cu32.base import REALS, DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.cu32.parts import sum_parts
from alpha.cu32.products import Axes, Operand, Product
from alpha.dtypes import scalar
from alpha.tensor import Storage, Tensor

_LAYOUTS = ("ALONG", "ACROSS")

SOURCES = (
    *(
        Source("gemm", REAL=real, LAYOUT_A=a, LAYOUT_B=b, VECTOR=vector, TILE=tile)
        for real, most in REALS.items()
        for vector in {most: 0, 1: 0}
        for tile in ((128, 64) if most > 1 else (64,))
        for a in _LAYOUTS
        for b in _LAYOUTS
    ),
    *(
        Source(file, LAYOUT_A=a, LAYOUT_B=b, TILE=tile)
        for file in ("gemm_tf32", "gemm_threefold")
        for tile in (128, 64)
        for a in _LAYOUTS
        for b in _LAYOUTS
    ),
    *(Source("gemv", REAL=real, VECTOR=vector) for real in REALS for vector in (4, 1)),
)


class MatrixOperations(DeviceEngine):
    """Products by tiles, or by kernels of their own where an operand is a vector, or both are."""

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        out = self.empty((*batch, x.shape[-2], y.shape[-1]), x.dtype)
        if out.numel() == 0 or x.shape[-1] == 0:
            self.fill(out, 0)
            return out
        a, b = self._operands(x, y, batch)
        axes = products.merged_axes(batch, a.batch_strides, b.batch_strides)
        if 1 in (a.depth, b.edges) and not selfcheck.sound(self, "gemv"):
            self._multiply(a, b, axes, out)
        elif a.depth == 1:
            self._outer(a, b, axes, out)
        elif b.edges == 1:
            self._matrix_vector(a, b, axes, out)
        else:
            self._multiply(a, b, axes, out)
        return out

    def gemv(self, a: Tensor, x: Tensor, trans: bool = False, plus: Tensor | None = None) -> Tensor:
        matrix = products.transposed(a) if trans else a
        product = self.matmul(matrix, x.strided(x.offset, (x.shape[0], 1), (x.strides[0], 1)))
        out = product.strided(0, (product.shape[0],), (1,))
        return out if plus is None else self.elementwise("add", out, plus, out=out)

    def ger(
        self, x: Tensor, y: Tensor, alpha: float = 1.0, a: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        if not selfcheck.sound(self, "gemv"):
            return self._rank_one(x, y, alpha, a, out)
        target = out if out is not None and out.strides[1] == 1 else self.empty((x.shape[0], y.shape[0]), x.dtype)
        if a is not None and a.strides[1] != 1:
            a = self._row_major(a)
        rows, columns = target.shape
        leading = 0 if a is None else a.strides[0]
        steps = rows, columns, leading, x.strides[0], y.strides[0], target.strides[0]
        aligned = all(t is None or t.address % 16 == 0 for t in (a, y, target)) and y.strides[0] == 1
        vector = 4 if aligned and all(n % 4 == 0 for n in (columns, leading, target.strides[0])) else 1
        source = Source("gemv", REAL=c_type(x.dtype), VECTOR=vector)
        grid = self.blocks(max(1, rows * columns // vector), 256)
        self.launch(source, "rank_one", grid, 256, a, x, y, target, *steps, scalar(x.dtype, alpha))
        if out is not None and target is not out:
            self.copy(target, out)
            return out
        return target

    def _rank_one(self, x: Tensor, y: Tensor, alpha: float, a: Tensor | None, out: Tensor | None) -> Tensor:
        """``ger`` without the kernels of gemv.cu: in two element-wise passes."""
        column = x.strided(x.offset, (x.shape[0], 1), (x.strides[0], 0))
        row = self.elementwise("mul", y.strided(y.offset, (1, y.shape[0]), (0, y.strides[0])), alpha)
        product = self.elementwise("mul", column, row, out=out if a is None else None)
        return product if a is None else self.elementwise("add", a, product, out=out)

    def _operands(self, x: Tensor, y: Tensor, batch: Shape) -> tuple[Operand, Operand]:
        """Both as the kernels take them, with a copy only where no leading dimension describes an operand.

        A vector comes second, its elements side by side: a row times a matrix is that matrix transposed times a column.
        """
        y = products.transposed(y)
        a, b = self._operand(x, batch), self._operand(y, batch)
        if len(products.merged_axes(batch, a.batch_strides, b.batch_strides)) > products.BATCH_AXES:
            a, b = (self._operand(self._expanded(tensor, batch), batch) for tensor in (x, y))
        if a.edges == 1:
            a, b = b, a
        if b.edges == 1 and not b.across:
            b = self._operand(self._row_major(b.tensor), batch)
        return a, b

    def _operand(self, x: Tensor, batch: Shape) -> Operand:
        """x: (..., edge, depth)."""
        edges, depth = x.shape[-2:]
        edge_stride, depth_stride = x.strides[-2:]
        if depth_stride == 1 or depth == 1:
            across, leading = True, edge_stride if edges > 1 else 0
        elif edge_stride == 1 or edges == 1:
            across, leading = False, depth_stride
        else:
            return self._operand(self._row_major(x), batch)
        return Operand(x, across, leading, products.broadcast_strides(x, batch))

    def _row_major(self, x: Tensor) -> Tensor:
        return self.dense(x, range(x.ndim))

    def _expanded(self, x: Tensor, batch: Shape) -> Tensor:
        """A copy with every batch axis in full."""
        strides = (*products.broadcast_strides(x, batch), *x.strides[-2:])
        return self._row_major(x.strided(x.offset, (*batch, *x.shape[-2:]), strides))

    def _outer(self, a: Operand, b: Operand, axes: Axes, out: Tensor) -> None:
        """Depth 1: each pair of elements once. Its operand's leading dimension is a vector's step."""
        side_by_side = b.leading == 1 and b.tensor.address % 16 == 0
        vector = 4 if side_by_side and all(n % 4 == 0 for n in (b.edges, *b.batch_strides)) else 1
        source = Source("gemv", REAL=c_type(out.dtype), VECTOR=vector)
        grid = self.blocks(out.numel() // vector, 256)
        problem = products.pack(a, b, axes, products.Split(1, 1, 1))
        self.launch(source, "outer", grid, 256, a.tensor, b.tensor, out, problem)

    def _matrix_vector(self, a: Operand, x: Operand, axes: Axes, out: Tensor) -> None:
        """Reads the matrix once, as it lies; parts of the depth fill the device where rows alone do not."""
        vector = 4 if a.aligned and (x.aligned or not a.across) else 1
        source = Source("gemv", REAL=c_type(out.dtype), VECTOR=vector)
        count, processors = products.batches(axes), self.device.multiprocessors
        if a.across:  # one warp per row, 8 per block
            tasks = a.edges * count
            split = products.vector_split(tasks, 32 * processors, a.depth, 1024)
            kernel, grid = "gemv_across", -(-tasks * split.parts // 8)
        else:  # one block per 32 rows, or per 128: one or four per lane
            tasks = -(-a.edges // (32 * vector)) * count
            split = products.vector_split(tasks, 4 * processors, a.depth, 128)
            kernel, grid = "gemv_along", tasks * split.parts
        problem = products.pack(a, x, axes, split)
        self._in_parts(
            out, split.parts, lambda to: self.launch(source, kernel, grid, 256, a.tensor, x.tensor, to, problem)
        )

    def _multiply(self, a: Operand, b: Operand, axes: Axes, out: Tensor) -> None:
        """By tiles: on the tensor cores where the engine's precision allows it and the operands are aligned."""
        vector = a.aligned and b.aligned and dtypes.info(out.dtype).vector > 1
        layouts = a.layout, b.layout
        high, split = tf32.allowed(self) if vector else (False, False)
        count = products.batches(axes)
        job = Product(a.edges, b.edges, a.depth, count, out.dtype.itemsize, vector, layouts, high, split)
        plan = planner.chosen(self, job, lambda plan: self._multiply_by(plan, a, b, axes, self.empty_like(out)))
        self._multiply_by(plan, a, b, axes, out)

    def _multiply_by(self, plan: Any, a: Operand, b: Operand, axes: Axes, out: Tensor) -> None:
        layouts = {"LAYOUT_A": a.layout, "LAYOUT_B": b.layout}
        split = products.split(plan)
        if plan.load in (tf32.LOAD, tf32.THREEFOLD):
            name = "gemm_tf32" if plan.load == tf32.LOAD else "gemm_threefold"
            source = Source(name, TILE=split.tile, **layouts)
            threads, shared = tf32.THREADS, tf32.shared_bytes(split.tile)
        else:
            vector = 4 if plan.load == "VECTOR" else 1
            source = Source("gemm", REAL=c_type(out.dtype), VECTOR=vector, TILE=split.tile, **layouts)
            name, threads, shared = "gemm", 256, 0
        grid = split.blocks(a.edges, b.edges) * products.batches(axes)
        problem = products.pack(a, b, axes, split)
        self._in_parts(
            out,
            split.parts,
            lambda to: self.launch(source, name, grid, threads, a.tensor, b.tensor, to, problem, shared=shared),
        )

    def _in_parts(self, out: Tensor, parts: int, launch: Callable[[Tensor | Storage], None]) -> None:
        """Launches onto the result itself, or onto its parts, which are then added."""
        if parts == 1:
            launch(out)
            return
        scratch = self.scratch(parts * out.numel() * out.dtype.itemsize)
        launch(scratch)
        sum_parts(self, scratch, parts, out)
