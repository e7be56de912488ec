"""The processor's peak of fused multiply-adds in float32: what all threads reach in registers alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.workers import WORKERS

LANES = ISA.lanes(4)
# As many independent chains as registers allow beside the two factors: enough to hide an FMA's latency everywhere.
CHAINS = ISA.rows * ISA.vectors
_I64 = ir.IntType(64)
_COUNT = 1 << 21
"""FMAs of each chain in a try: 4 to 8 ms where two are issued a cycle."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _fma_chains(_typing: Any, count: Any, scale: Any, shift: Any, sink: Any) -> Any:
    """``count`` times chain = chain * scale + shift for every chain; their sum is stored at the address ``sink``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count, scale, shift, sink = arguments
        vector = ir.VectorType(ir.FloatType(), LANES)
        # Where the processor has no FMA this is a multiplication and an addition.
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{LANES}f32"
        )
        scales, shifts = _spread(builder, scale, vector), _spread(builder, shift, vector)
        chains = [cgutils.alloca_once(builder, vector) for _ in range(CHAINS)]
        for number, chain in enumerate(chains):  # different starts, or LLVM would make one of them
            builder.store(ir.Constant(vector, [ir.Constant(ir.FloatType(), 1.0 + number)] * LANES), chain)
        with cgutils.for_range(builder, count, intp=_I64):
            for chain in chains:
                builder.store(builder.call(fma, [builder.load(chain), scales, shifts]), chain)
        total = builder.load(chains[0])
        for chain in chains[1:]:
            total = builder.fadd(total, builder.load(chain))
        builder.store(total, builder.inttoptr(sink, vector.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.float32, types.int64), codegen


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    """A vector with the value in every lane."""
    spread = ir.Constant(vector, ir.Undefined)
    for lane in range(LANES):
        spread = builder.insert_element(spread, value, ir.Constant(ir.IntType(32), lane))
    return spread


@compiled
def _run(share, count, scale, shift, sinks):  # type: ignore[no-untyped-def]
    while True:
        task = draw_task(share, len(sinks))
        if task >= len(sinks):
            break
        _fma_chains(count, scale, shift, sinks[task].ctypes.data)


def fma_peak(threads: int, tries: int = 5) -> float:
    """GFLOP/s of all threads together (an FMA counts two), the best of some tries of milliseconds each."""
    sinks = np.empty((threads, 64), np.float32)
    factors = np.float32(0.5), np.float32(1.0)
    WORKERS.run(_run, threads, (1, *factors, sinks))  # compiled, and the threads awake
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        WORKERS.run(_run, threads, (_COUNT, *factors, sinks))
        seconds.append(time.perf_counter() - start)
    return 2e-9 * threads * _COUNT * CHAINS * LANES / min(seconds)
