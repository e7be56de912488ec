"""Algorithm: what the planner, ``explain_product`` and the tests know about a way to compute products of matrices."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from alpha.conv import algorithm
from alpha.cpu import launches
from alpha.cpu.base import HostEngine
from alpha.cpu.figures import Figures
from alpha.cpu.gemm.epilogue import Epilogue
from alpha.cpu.gemm.problem import PRODUCT, Product
from alpha.dtypes import computed_in
from alpha.expressions.graph import FLOAT
from alpha.expressions.operations import program_of
from alpha.tensor import Tensor

ALONE_MACS = 1 << 21
"""Multiply-adds up to which one thread computes all: to wake another takes as long as its half of them."""

CALL_CYCLES = 30_000
"""Cycles that Python takes to call BLAS once: there is no launch for it, and arrays are made for it."""

LAUNCH_CYCLES = 35_000
"""Cycles that Python takes to begin a kernel's job, and the threads to end it."""

LAUNCHED_CYCLES = 4_000
"""Cycles of a call that launches know (``Algorithm.launch``)."""


class Call(NamedTuple):
    """The tensors of a product, or of a batch of them.

    Attributes:
        x, y: (..., rows, depth) and (..., depth, columns), each with dense rows or dense columns.
        out: (..., rows, columns), dense, with all batch axes; None for a new tensor.
        bias: a row that is added to each row of the result; dense, of the result's dtype.
        epilogue: a point-wise function of the result.
        rounded: of matrices of bfloat16, where the result goes as such; dense. Sums are then added up in ``out``.
    """

    x: Tensor
    y: Tensor
    out: Tensor | None = None
    bias: Tensor | None = None
    epilogue: Epilogue | None = None
    rounded: Tensor | None = None

    def target(self, engine: HostEngine) -> Tensor:
        """Where the result goes, in the dtype that is computed in."""
        if self.out is not None:
            return self.out
        x, y = self.x, self.y
        rows, columns, dtype = x.shape[-2], y.shape[-1], computed_in(x.dtype)
        if len(x.shape) == len(y.shape) == 2:
            memory = engine.allocate(rows * columns * dtype.itemsize)
            return Tensor(memory, 0, (rows, columns), (columns or 1, 1), dtype)
        return engine.empty((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), rows, columns), dtype)


class Algorithm(algorithm.Algorithm[Any]):
    """A way to compute products: what it serves, its cost in cycles, a description, and how it runs."""

    operators = (PRODUCT,)

    def suits(self, problem: Product) -> bool:
        """Whether it may be the cheapest for a problem that it serves."""
        return True

    @abstractmethod
    def cycles(self, problem: Product, figures: Figures) -> float:
        """Cycles that one core should take, by a processor's figures. Threads play no part: they would change bits."""

    def tasks(self, problem: Product, threads: int) -> int:
        """Tasks that so many threads share."""
        return 1

    @abstractmethod
    def describe(self, problem: Product, threads: int) -> str:
        """How it cuts a problem for so many threads, in a few words."""

    def launch(self, problem: Product, call: Call, out: Tensor) -> launches.Call | None:
        """How a launch, of left matrix, right one and maybe a bias, computes what a call did; None where it is not to.

        The call has no epilogue; ``out``: what it returned.
        """
        return None

    @abstractmethod
    def run(self, engine: HostEngine, problem: Product, call: Call) -> Tensor:
        """Computes a problem that it serves, and returns the product, without the epilogue if that goes elsewhere."""


_ADD = program_of("add", (FLOAT, FLOAT))


def finished(engine: HostEngine, call: Call, out: Tensor) -> Tensor:
    """The product with its bias; the epilogue is computed too: a pass over memory each."""
    if call.bias is not None:
        engine.pointwise("add", _ADD, (out, call.bias), (), out)
    if call.epilogue is not None:
        call.epilogue.run(engine, out)
    return out
