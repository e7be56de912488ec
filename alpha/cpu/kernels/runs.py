"""Runs: the LLVM IR of loops over numbers that lie side by side in memory, and of sums that are taken in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from alpha.cpu.kernels.vectors import Vectors, integer


class Runs(Vectors):
    """Emits loops over the vectors of a run. A wide vector has as many lanes, of float64 each."""

    def __init__(self, builder: ir.IRBuilder, tag: Any) -> None:
        super().__init__(builder, tag)
        self.wide = ir.VectorType(ir.DoubleType(), self.lanes)

    def for_each_vector(self, count: Any, together: int, body: Callable[[Any, int, Any], None]) -> None:
        """Emits ``body(offset, index, left)`` for each vector of ``count`` numbers, ``together`` vectors per iteration.

        ``offset`` counts bytes from the run's start, ``index`` the vectors of an iteration; ``left`` is None for a
        whole vector, else how many numbers there are in it.
        """
        builder = self.builder
        offset, left = cgutils.alloca_once_value(builder, integer(0)), cgutils.alloca_once_value(builder, count)
        bytes_ = self.lanes * self.item
        for vectors in sorted({together, 1}, reverse=True):
            test, turn, end = (builder.append_basic_block(name) for name in ("run", "run.turn", "run.end"))
            builder.branch(test)
            builder.position_at_end(test)
            lanes = integer(vectors * self.lanes)
            builder.cbranch(builder.icmp_signed(">=", builder.load(left), lanes), turn, end)
            builder.position_at_end(turn)
            at = builder.load(offset)
            for index in range(vectors):
                body(builder.add(at, integer(index * bytes_)) if index else at, index, None)
            builder.store(builder.add(at, integer(vectors * bytes_)), offset)
            builder.store(builder.sub(builder.load(left), lanes), left)
            builder.branch(test)
            builder.position_at_end(end)
        with builder.if_then(builder.icmp_signed(">", builder.load(left), integer(0))):
            body(builder.load(offset), 0, builder.load(left))

    def load_part(self, address: Any, left: Any, fill: Any = None) -> Any:
        """A vector of a run, or what is left of it: the other lanes are 0, or those of ``fill``."""
        if left is None:
            return self.load(address)
        return self.load_masked(address, left, fill)

    def store_part(self, value: Any, address: Any, left: Any) -> None:
        """The reverse of ``load_part``."""
        if left is None:
            self.store(value, address)
        else:
            self.store_masked(value, address, left)

    def widened(self, value: Any) -> Any:
        """The numbers of a vector in float64."""
        return value if self.wide == self.vector else self.builder.fpext(value, self.wide)

    def wide_constant(self, value: float) -> ir.Constant:
        """The value in every lane of a wide vector."""
        return ir.Constant(self.wide, [ir.Constant(ir.DoubleType(), value)] * self.lanes)

    def load_wide(self, address: Any) -> Any:
        """A wide vector from memory."""
        value = self.builder.load(self.pointer(address, self.wide))
        value.align = 8
        return value

    def store_wide(self, value: Any, address: Any) -> None:
        """A wide vector to memory."""
        self.builder.store(value, self.pointer(address, self.wide)).align = 8

    def wide_fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c of wide vectors."""
        kind = ir.FunctionType(self.wide, [self.wide] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fma.v{self.lanes}f64")
        return self.builder.call(function, [a, b, c])

    def variables(self, value: Any, count: int) -> list[Any]:
        """``count`` variables that begin with a value."""
        return [cgutils.alloca_once_value(self.builder, value) for _ in range(count)]

    def merged(self, values: list[Any], merge: Callable[[Any, Any], Any]) -> Any:
        """All values as one: neighbours are merged until one is left, as a pairwise sum does it."""
        while len(values) > 1:
            pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
            values = [reduce(merge, pair) for pair in pairs]
        return values[0]

    def across(self, value: Any, merge: Callable[[Any, Any], Any]) -> Any:
        """The lanes of a vector as one number: halves are merged until one lane is left."""
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            undefined = ir.Constant(value.type, ir.Undefined)
            halves = [
                self.builder.shuffle_vector(value, undefined, self._lanes(list(range(first, first + lanes))))
                for first in (0, lanes)
            ]
            value = merge(*halves)
        return self.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))
