"""A GPU's own speeds: multiply-adds in registers, copies within memory, reads out of the second-level cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpha

_CHAINS = 8
_BLOCK = 256
_BLOCKS = 16
"""Blocks per multiprocessor: more than fit at once, so that none is idle before the end."""

COPIED = 1 << 30
"""Bytes that are copied to measure memory: far more than any cache holds."""

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

# Four loads under way in each thread. What is read again goes past the first-level cache; the sum is stored so that no
# load can be left out.
_BANDWIDTHS = """
#include "common.cuh"
extern "C" __global__ void copy_vectors(const float4* x, float4* y, int64 n) {
    int64 step = thread_count();
    int64 i = thread_index();
    for (; i + 3 * step < n; i += 4 * step) {
        float4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
        y[i] = a;
        y[i + step] = b;
        y[i + 2 * step] = c;
        y[i + 3 * step] = d;
    }
    for (; i < n; i += step) y[i] = x[i];
}
extern "C" __global__ void read_again(const float4* x, float* sink, int n, int64 turns) {
    float total = 0.0f;
    const int step = (int)(thread_count() % n);
    int place = (int)(thread_index() % n);
    for (int64 turn = 0; turn < turns; ++turn) {
        float4 found[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            found[k] = __ldcg(x + place);
            place += step;
            place -= place >= n ? n : 0;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) total += found[k].x + found[k].y + found[k].z + found[k].w;
    }
    sink[thread_index()] = total;
}
"""


TEXTS = (_SOURCE, _BANDWIDTHS)
"""All that is compiled here."""


def _seconds(engine: Any, call: Callable[[], object]) -> float:
    """A call's time on the device."""
    start, end = engine.device.event(), engine.device.event()
    start.record()
    call()
    end.record()
    return float(end.seconds_since(start))


def gpu_fma_peak(engine: Any, tries: int = 3, seconds: float = 2e-3) -> float:
    """GFLOP/s (an FMA counts two), the best of some tries that last at least so long."""
    run = engine.kernel(_SOURCE, "fma_chains")
    blocks = _BLOCKS * engine.device.multiprocessors
    sink = engine.empty((blocks * _BLOCK,))

    def time(count: int) -> float:
        return _seconds(engine, lambda: run(blocks, _BLOCK, sink, 0.5, 1.0, count))

    count = 1
    while time(count) < seconds:
        count *= 2
    work: float = 2e-9 * blocks * _BLOCK * _CHAINS * 16 * count
    fastest = min(time(count) for _ in range(tries))
    return work / fastest


def memory_bandwidth(engine: Any, nbytes: int = COPIED, tries: int = 5) -> float:
    """GB/s of copying so many bytes within the device's memory, reads and writes counted, the best of some tries."""
    run = engine.kernel(_BANDWIDTHS, "copy_vectors")
    count = max(4, min(nbytes, engine.device.memory_info()[0] // 4) // 4 // 4 * 4)
    source, target = alpha.rand(count, engine=engine), engine.empty((count,))
    blocks = 8 * engine.device.multiprocessors
    fastest = min(_seconds(engine, lambda: run(blocks, _BLOCK, source, target, count // 4)) for _ in range(tries))
    rate: float = 2e-9 * 4 * count / fastest
    return rate


def l2_bandwidth(engine: Any, nbytes: int | None = None, tries: int = 3, seconds: float = 2e-3) -> float:
    """GB/s of reading, over and over, what the second-level cache holds: a quarter of it unless told otherwise."""
    run = engine.kernel(_BANDWIDTHS, "read_again")
    blocks = 8 * engine.device.multiprocessors
    threads = blocks * _BLOCK
    nbytes = nbytes if nbytes is not None else max(1 << 20, engine.device.l2_bytes // 4)
    vectors = max(1, min(nbytes, 1 << 33) // 16)
    source, sink = alpha.rand(4 * vectors, engine=engine), engine.empty((threads,))

    def time(turns: int) -> float:
        return _seconds(engine, lambda: run(blocks, _BLOCK, source, sink, np.int32(vectors), turns))

    turns = 1
    while time(turns) < seconds:
        turns *= 2
    fastest = min(time(turns) for _ in range(tries))
    rate: float = 16e-9 * threads * 4 * turns / fastest
    return rate
