// The loop of an optimizer's step over many tensors in one launch; cu32/optimizers.py writes the kernels.
//
// A table passed by value names the tensors of the launch; each is cut into chunks, and a block takes one chunk.
#pragma once
#include "common.cuh"

constexpr int BLOCK = 256;
constexpr int CHUNK = 2048;

// For each tensor its ROWS addresses (parameter, gradient, states), its elements, and the first block that works on it.
template <class T, int ROWS, int MOST>
struct alignas(8) Table {
    T* address[ROWS][MOST];
    int64 size[MOST];
    uint32 first[MOST];
    uint32 count;
};

// The last tensor whose first block is not beyond this one.
template <class T, int ROWS, int MOST>
__device__ __forceinline__ uint32 owner(const Table<T, ROWS, MOST>& table) {
    uint32 low = 0, high = table.count - 1;
    while (low < high) {
        const uint32 middle = (low + high + 1) / 2;
        if (table.first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// step(values) on the values of every row at each element of this block's chunk; writes back all but the gradient.
template <class T, int ROWS, int MOST, class Step>
__device__ __forceinline__ void update(const Table<T, ROWS, MOST>& table, const Step& step) {
    const uint32 tensor = owner(table);
    const int64 start = (int64)(blockIdx.x - table.first[tensor]) * CHUNK;
    const int64 left = table.size[tensor] - start;
    const int length = left < CHUNK ? (int)left : CHUNK;
    T* at[ROWS];
    uint64 bits = 0;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        at[row] = table.address[row][tensor] + start;
        bits |= (uint64)at[row];
    }
    const int vectors = bits % alignof(vec4<T>) == 0 ? length / 4 : 0;
    for (int i = threadIdx.x; i < vectors; i += BLOCK) {
        vec4<T> v[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; row++) v[row] = reinterpret_cast<const vec4<T>*>(at[row])[i];
        T x[ROWS], y[ROWS], z[ROWS], w[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; row++) x[row] = v[row].x, y[row] = v[row].y, z[row] = v[row].z, w[row] = v[row].w;
        step(x), step(y), step(z), step(w);
#pragma unroll
        for (int row = 0; row < ROWS; row++)
            if (row != 1) reinterpret_cast<vec4<T>*>(at[row])[i] = {x[row], y[row], z[row], w[row]};
    }
    for (int i = 4 * vectors + threadIdx.x; i < length; i += BLOCK) {
        T x[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; row++) x[row] = at[row][i];
        step(x);
#pragma unroll
        for (int row = 0; row < ROWS; row++)
            if (row != 1) at[row][i] = x[row];
    }
}
