"""PointwiseOperations: point-wise programs on the device, each as one kernel (``alpha.cu32.expressions``)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from alpha import caches
from alpha.arguments import Shape, broadcast_shapes
from alpha.composed import pointwise as composed
from alpha.composed import stored
from alpha.cu32 import expressions, strided
from alpha.cu32.arrays import THREADS, TILE, TRANSPOSED, VECTOR_BYTES, ArrayOperations
from alpha.cu32.base import c_type
from alpha.cu32.compiler import Source
from alpha.dtypes import DType, bool_, computed_in, is_complex, is_float, is_integer, is_stored
from alpha.expressions.dropout import DRAWN_DTYPE
from alpha.expressions.program import Conversion, Program
from alpha.random import WORDS
from alpha.tensor import Tensor, dense_strides, memory_order

MOST_INSTRUCTIONS = 500
"""Instructions of one kernel: of Bessel's and the incomplete gamma functions the registers would spill."""

MOST_OPERANDS = 64
"""Tensors, results and numbers of a program whose kernel's arguments surely fit into the 4 KiB that they may have."""

MOST_VECTORS = 12
"""Tensors and results that move 16 bytes at a time; more elements would not fit into a thread's registers."""

TRANSPOSED_FIRST = 1 << 16
"""Elements from which an element-wise operation copies an operand that lies across the result into its order first."""

TensorLayout = tuple[Shape, Shape, Any, int]
"""Shape, strides and dtype of a tensor, and by how many elements, modulo 16, it begins off the pool's grain."""


class PointwiseOperations(ArrayOperations):
    """Programs as kernels that are compiled at their first use for each way in which tensors lie."""

    def pointwise(
        self,
        function: str,
        program: Program,
        tensors: Sequence[Tensor],
        numbers: Sequence[float],
        out: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        if not is_one_kernel(program):
            return composed.pointwise(self, function, program, tensors, numbers, out)
        if out is not None:
            tensors = [self._apart(x, out) for x in tensors]
        plan = planned(program, function, None if out is None else layout_of(out), *[layout_of(x) for x in tensors])
        if plan.is_stored:
            return stored.pointwise(self, function, program, tensors, numbers, out)
        if out is None:
            results = self.results_of(plan)
        elif (out.shape, out.dtype) == (plan.shape, plan.results[0][1]):
            results = (out,)
        else:
            self.copy(self.pointwise(function, program, tensors, numbers)[0], out)
            return (out,)
        if plan.moved:
            tensors = [self._moved(x, plan) if k in plan.moved else x for k, x in enumerate(tensors)]
        if self.capture is not None:
            self.capture.keep(*results, *tensors)
        self.launch_plan(plan, [x.address for x in (*results, *tensors)], *numbers)
        return results

    def results_of(self, plan: Plan) -> tuple[Tensor, ...]:
        """New tensors for a plan's results."""
        return tuple([Tensor(self.allocate(n), 0, plan.shape, plan.strides, dtype) for n, dtype in plan.results])

    def launch_plan(self, plan: Plan, addresses: Sequence[int], *others: Any) -> None:
        """Runs a plan over memory; ``others``: the kernel's further arguments. A capture knows of the tensors."""
        for piece in plan.pieces:
            places = [address + n for address, n in zip(addresses, piece.bytes, strict=True)]
            arguments = piece.pack(piece.loop, *places, *others)
            self.launch_packed(plan.source, plan.kernel, (self.blocks(piece.steps, THREADS), 1, 1), _BLOCK, arguments)

    def _moved(self, x: Tensor, plan: Plan) -> Tensor:
        """A copy of a tensor in the results' memory order."""
        moved = Tensor(self.allocate(x.numel() * x.dtype.itemsize), 0, plan.shape, plan.dense_strides, x.dtype)
        self.copy(x, moved)
        return moved


def is_one_kernel(program: Program) -> bool:
    """Whether a program is computed by one kernel; a larger one takes a kernel an operation."""
    operands = program.tensors + len(program.results) + program.count_of_numbers
    return operands <= MOST_OPERANDS and len(program.instructions) <= MOST_INSTRUCTIONS


def layout_of(x: Tensor) -> TensorLayout:
    """How a tensor lies."""
    return x.shape, x.strides, x.dtype, x.offset & 15


_BLOCK = (THREADS, 1, 1)

_DRAW = "16sPI"
"""The formats of a draw's arguments: its place, where that lies which counts instead, and the threshold."""


class Piece:
    """One launch.

    Attributes:
        loop: the struct Loop for the kernel.
        steps: what is shared out over threads.
        bytes: how far into each result, then into each tensor, it begins.
        pack: makes the kernel's arguments of the loop, addresses and what follows these.
    """

    def __init__(self, piece: strided.Piece, results: Sequence[DType], tensors: Sequence[DType], others: str) -> None:
        """``results`` and ``tensors``: their dtypes; ``others``: the formats of the arguments behind addresses."""
        self.loop, self.steps = piece.loop, piece.steps
        places = [*[piece.offsets[0]] * len(results), *piece.offsets[1:]]
        self.bytes = [n * dtype.itemsize for n, dtype in zip(places, (*results, *tensors), strict=True)]
        self.pack = struct.Struct(f"@{len(self.loop)}s0q{len(places)}P{others}").pack


class Plan:
    """What a call with tensors that lie so needs beside addresses and numbers.

    Attributes:
        shape, strides: of the results.
        dense_strides: of a dense tensor in their memory order.
        results: bytes and dtype of each.
        is_stored: whether a tensor or a result is of a dtype that there are no kernels of.
        moved: places of the tensors that are first copied to lie so.
        pieces: the launches; none where there are no elements.
        source, kernel: what is launched.
    """

    def __init__(
        self, program: Program, function: str, out: TensorLayout | None, layouts: Sequence[TensorLayout]
    ) -> None:
        """``function``: who asks, for messages. ``out``: of the tensor that the result is written into."""
        self.shape = broadcast_shapes(function, [shape for shape, *_ in layouts])
        dtype = program.dtype([(shape, kind) for shape, _, kind, _ in layouts])
        kinds = [bool_ if is_bool else dtype for is_bool in program.bools]
        elements = math.prod(self.shape)
        self.results = tuple([(elements * kind.itemsize, kind) for kind in kinds])
        self.pieces: tuple[Piece, ...] = ()
        self.moved: frozenset[int] = frozenset()
        self.dense_strides = _result_strides(self.shape, layouts if out is None else [out])
        self.strides = self.dense_strides if out is None else out[1]
        is_copied = isinstance(program, Conversion)
        self.is_stored = not all(_has_kernels(kind, is_copied) for kind in (dtype, *[layout[2] for layout in layouts]))
        if self.is_stored or not elements or (out is not None and out[0] != self.shape):
            return
        self.moved = frozenset([place for place, layout in enumerate(layouts) if self._lies_across(layout)])
        layouts = [(self.shape, self.dense_strides, x[2], 0) if k in self.moved else x for k, x in enumerate(layouts)]
        operands = tuple([(shape, strides) for shape, strides, _, _ in layouts])
        axes = strided.merged_axes((self.shape, self.strides), operands)
        steps = axes[0][1][1:]
        # Along the innermost axis only what is dense needs to be aligned, and is moved 16 bytes at a time.
        dense = [layout for layout, step in zip(layouts, steps, strict=True) if step]
        dtypes = [layout[2] for layout in layouts]
        is_drawn = DRAWN_DTYPE in dtypes
        wide = VECTOR_BYTES // max(kind.itemsize for kind in (*kinds, *[layout[2] for layout in dense]))
        wide = WORDS if is_drawn else wide  # a step draws the words of a counter
        aligned = not any(layout[3] % wide for layout in (dense if out is None else (out, *dense)))
        in_vectors = aligned and len(layouts) + len(kinds) <= MOST_VECTORS
        found = strided.plan((self.shape, self.strides), operands, wide if in_vectors else 1)
        others = f"{program.count_of_numbers}{'q' if is_integer(dtype) else 'd'}" + _DRAW * is_drawn
        self.pieces = tuple([Piece(piece, kinds, dtypes, others) for piece in found.pieces])
        places = [(_name(kind), _place(step, found.width)) for kind, step in zip(dtypes, steps, strict=True)]
        is_flat = found.width > 1 and len(axes) == 1
        computed = dtype if is_copied else computed_in(dtype)
        stored = "" if computed == dtype else c_type(dtype)
        layout = expressions.Layout(c_type(computed), tuple(places), is_flat, found.width, stored)
        self.source, self.kernel = kernel(program, layout)

    def _lies_across(self, layout: TensorLayout) -> bool:
        """Whether a large tensor is read faster once it is copied in tiles."""
        shape, strides, dtype, _ = layout
        if strides == self.dense_strides or shape != self.shape or math.prod(shape) < TRANSPOSED_FIRST:
            return False
        if dtype == DRAWN_DTYPE:
            return False
        return strided.tiles((shape, self.dense_strides), (shape, strides), TILE, TRANSPOSED) is not None


@caches.kept
def planned(program: Program, function: str, out: TensorLayout | None, *layouts: TensorLayout) -> Plan:
    """The plan for tensors that lie so."""
    return Plan(program, function, out, layouts)


_kernels: dict[tuple[str, expressions.Layout], tuple[Source, str]] = {}


def kernel(program: Program, layout: expressions.Layout) -> tuple[Source, str]:
    """The source of a program's kernel for tensors that lie so, and its name."""
    found = _kernels.get((program.text, layout))
    if found is None:
        made = expressions.source(program, layout), expressions.kernel_name(program, layout)
        found = _kernels[program.text, layout] = made
    return found


def _has_kernels(dtype: DType, is_conversion: bool) -> bool:
    """Whether kernels read and write a dtype: of the stored ones floats, and those that convert integers too."""
    return not is_stored(dtype) or (not is_complex(dtype) if is_conversion else is_float(dtype))


def _name(dtype: DType) -> str:
    """A dtype's name in the kernels."""
    return expressions.DRAWN if dtype == DRAWN_DTYPE else c_type(dtype)


def _place(step: int, width: int) -> str:
    """How a tensor's elements lie along the innermost axis, for a kernel of this width."""
    if width == 1:
        return expressions.STRIDED
    return expressions.DENSE if step else expressions.SAME


def _result_strides(shape: Shape, layouts: Sequence[TensorLayout]) -> Shape:
    """Strides of dense results in the memory order of the largest of these."""
    largest_shape, strides, _, _ = max(layouts, key=lambda layout: math.prod(layout[0]))
    return dense_strides(shape, memory_order(largest_shape, strides) if len(largest_shape) == len(shape) else None)
