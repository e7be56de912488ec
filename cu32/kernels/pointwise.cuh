// Loops over elements: of copies, and of point-wise programs, whose kernels cu32/expressions.py writes. Macro WIDTH:
// elements of a step, 16 bytes' worth where all operands are aligned for it, else 1.
#pragma once
#include "strided.cuh"

// Offsets of step i: in a loop over runs of memory alone (N == 1) of the elements in all of them, else of the results,
// which lie alike, and of each tensor.
template <int N>
__device__ __forceinline__ void place(const Loop& loop, uint32 i, int (&at)[N]) {
    if constexpr (N == 1)
        at[0] = (int)(i * WIDTH);
    else
        locate(loop, i, at);
}

// Shares a loop out over the grid, U steps of a thread at a time: the loads of all U are on their way before the first
// store, which the compiler could not do by itself, as it does not know that no result is an operand.
template <int N, int U, class Body>
__device__ __forceinline__ void compute(const Loop& loop, const Body& body) {
    const uint32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint32 i = first; i < loop.count; i += U * step) {
        int at[U][N];
        typename Body::template Values<WIDTH> values[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (i + u * step < loop.count) {
                place(loop, i + u * step, at[u]);
                body.read(at[u], values[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (i + u * step < loop.count) body.write(at[u][0], values[u]);
        }
    }
    if constexpr (WIDTH > 1) {
        if (first < loop.tail) {
            int at[N];
            typename Body::template Values<1> values;
            locate_tail(loop, WIDTH, first, at);
            body.read(at, values);
            body.write(at[0], values);
        }
    }
}

// W neighbours, read at once.
template <int W, class T>
__device__ __forceinline__ Pack<T, W> neighbours(const T* data, int offset) {
    return *reinterpret_cast<const Pack<T, W>*>(data + offset);
}
