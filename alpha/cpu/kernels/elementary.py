"""The elementary functions of ``alpha.cpu.loops`` within kernels: the same operations, emitted through llvmlite."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from alpha.cpu.kernels.vectors import Vectors
from alpha.cpu.loops.lanes import Lanes, Text

_CONDITIONS = {"lt": "<", "gt": ">", "eq": "==", "le": "<=", "ge": ">=", "ne": "!="}


class KernelLanes(Lanes):
    """Lanes whose values are llvmlite's, not text, so that they stand among a kernel's other vectors."""

    def __init__(self, vectors: Vectors, fused: bool) -> None:
        super().__init__(8 * vectors.item, vectors.lanes, fused, Text())
        self.vectors, self.builder = vectors, vectors.builder
        self.int_vector = ir.VectorType(ir.IntType(self.bits), self.count)

    def number(self, value: float) -> Any:
        return self.vectors.constant(value)

    def integer(self, value: int) -> Any:
        return ir.Constant(self.int_vector, [ir.Constant(self.int_vector.element, value)] * self.count)

    def add(self, x: Any, y: Any) -> Any:
        return self.builder.fadd(x, y)

    def sub(self, x: Any, y: Any) -> Any:
        return self.builder.fsub(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y)

    def div(self, x: Any, y: Any) -> Any:
        return self.builder.fdiv(x, y)

    def neg(self, x: Any) -> Any:
        return self.builder.fneg(x)

    def call(self, intrinsic: str, *operands: Any) -> Any:
        kind = ir.FunctionType(self.vectors.vector, [self.vectors.vector] * len(operands))
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{intrinsic}.{self.suffix}")
        return self.builder.call(function, operands)

    def compare(self, condition: str, x: Any, y: Any) -> Any:
        compare = self.builder.fcmp_ordered if condition[0] == "o" else self.builder.fcmp_unordered
        return compare(_CONDITIONS[condition[1:]], x, y)

    def select(self, mask: Any, x: Any, y: Any) -> Any:
        return self.builder.select(mask, x, y)

    def as_ints(self, x: Any) -> Any:
        return self.builder.bitcast(x, self.int_vector)

    def as_floats(self, x: Any) -> Any:
        return self.builder.bitcast(x, self.vectors.vector)

    def integers(self, operation: str, x: Any, y: Any) -> Any:
        return getattr(self.builder, {"and": "and_", "or": "or_"}.get(operation, operation))(x, y)
