// Reductions in general: a block's tree over the lanes that share a result, and which block of several comes last.
#pragma once
#include "common.cuh"

// Combines `lanes` threads' values[threadIdx.x] into that of lane 0, in an order that does not depend on timing. The
// lanes of a result lie `apart` threads apart. All threads of the (one-dimensional) block take part; those without a
// value pass lane = lanes. `combine(i, j)` puts entry j into entry i.
template <class Combine>
__device__ __forceinline__ void combine_lanes(int lane, int lanes, int apart, Combine combine) {
    for (int n = lanes; n > 1;) {
        const int half = (n + 1) / 2;
        __syncthreads();
        if (lane + half < n) combine(threadIdx.x, threadIdx.x + half * apart);
        n = half;
    }
    __syncthreads();
}

// Whether this block is the last of `blocks` that count themselves at `counter`, which the last sets back to 0. What
// the other blocks wrote before is then visible to it. All threads of the block call it; `flag` is
// in shared memory.
__device__ __forceinline__ bool is_last_block(unsigned* counter, unsigned blocks, int* flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *flag = atomicAdd(counter, 1u) + 1 == blocks;
        if (*flag) *counter = 0;
    }
    __syncthreads();
    __threadfence();
    return *flag;
}
