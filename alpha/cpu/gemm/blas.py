"""blas: NumPy's matmul, for matrices that its BLAS multiplies on one thread; more would change the bits."""

from __future__ import annotations

import numpy as np

from alpha.cpu.base import HostEngine
from alpha.cpu.figures import Figures
from alpha.cpu.gemm.algorithm import ALONE_MACS, CALL_CYCLES, Algorithm, Call, finished
from alpha.cpu.gemm.problem import Product
from alpha.cpu.isa import ISA
from alpha.tensor import Tensor

MOST_MACS = 1 << 18
"""Most multiply-adds of a product of two matrices that NumPy's BLAS gives to one thread."""

MOST_OF_A_VECTOR = 1 << 13
"""Elements of a matrix that BLAS multiplies with a vector on one thread: less than its limits, 9,216 and 10,000."""

MATRIX_CYCLES = 200
"""Cycles of a product in BLAS beside its multiply-adds."""

SHARE_OF_PEAK, SHARE_BY_COLUMNS = 0.95, 0.6
"""How much of the micro-kernel's speed BLAS reaches on such products, and where the right matrix has dense columns."""

IDLE_SHARE = 1.25
"""What it counts for where several threads could have shared the work: it has one."""


class Blas(Algorithm):
    """One call, whatever the batch."""

    name = "blas"
    title = "NumPy's BLAS"

    def serves(self, problem: Product) -> bool:
        if problem.is_of_vectors:
            return problem.batch > 1 and problem.macs <= MOST_OF_A_VECTOR
        return problem.macs <= MOST_MACS

    def cycles(self, problem: Product, figures: Figures) -> float:
        share = SHARE_BY_COLUMNS if problem.y_is_by_columns else SHARE_OF_PEAK
        per_cycle = ISA.lanes(problem.item) * figures.fmas_per_cycle * share
        computing = problem.batch * (MATRIX_CYCLES + problem.macs / per_cycle)
        return CALL_CYCLES + computing * (IDLE_SHARE if problem.batch * problem.macs > ALONE_MACS else 1.0)

    def describe(self, problem: Product, threads: int) -> str:
        return "one call on one thread"

    def run(self, engine: HostEngine, problem: Product, call: Call) -> Tensor:
        out = call.target(engine)
        x, y, target = engine.operand(call.x), engine.operand(call.y), engine.operand(out)
        is_plain = target.ndim == 2 and target.flags.c_contiguous
        # dot is the same call of BLAS, with less of NumPy around it
        engine.act(np.dot if is_plain else np.matmul, x, y, target)
        return finished(engine, call, out)
