"""A GPU's peak of fused multiply-adds in float32: what all its threads reach in registers alone."""

from __future__ import annotations

from typing import Any

_CHAINS = 8
_BLOCK = 256
_BLOCKS = 16
"""Blocks a multiprocessor: more than fit at once, so that none is idle but at the end."""

# As many independent chains as hide an FMA's latency; the sum is stored so that none of them can be left out.
_SOURCE = f"""
extern "C" __global__ void fma_chains(float* sink, float scale, float shift, long long count) {{
    float chain[{_CHAINS}];
#pragma unroll
    for (int i = 0; i < {_CHAINS}; ++i) chain[i] = 1.0f + i + threadIdx.x;
    for (long long n = 0; n < count; ++n) {{
#pragma unroll
        for (int step = 0; step < 16; ++step)
#pragma unroll
            for (int i = 0; i < {_CHAINS}; ++i) chain[i] = fmaf(chain[i], scale, shift);
    }}
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < {_CHAINS}; ++i) total += chain[i];
    sink[blockIdx.x * blockDim.x + threadIdx.x] = total;
}}
"""


def gpu_fma_peak(engine: Any, tries: int = 3, seconds: float = 2e-3) -> float:
    """GFLOP/s (an FMA counts two), the best of some tries that last at least so long."""
    run = engine.kernel(_SOURCE, "fma_chains")
    blocks = _BLOCKS * engine.device.multiprocessors
    sink = engine.empty((blocks * _BLOCK,))

    def time(count: int) -> float:
        start, end = engine.device.event(), engine.device.event()
        start.record()
        run(blocks, _BLOCK, sink, 0.5, 1.0, count)
        end.record()
        return float(end.seconds_since(start))

    count = 1
    while time(count) < seconds:
        count *= 2
    work: float = 2e-9 * blocks * _BLOCK * _CHAINS * 16 * count
    fastest = min(time(count) for _ in range(tries))
    return work / fastest
