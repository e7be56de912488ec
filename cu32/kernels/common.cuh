// What every kernel file stands on: fixed-size types, vectors of four, grid-stride loops. No standard headers: NVRTC has none.
#pragma once

typedef long long int64;
typedef unsigned long long uint64;
typedef unsigned int uint32;
typedef unsigned char uint8;

constexpr int WARP = 32;
constexpr uint32 ALL_LANES = 0xffffffffu;

// Four elements that one instruction moves: 16 bytes of float, aligned to their size (two instructions for double).
template <class T>
struct alignas(sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16) vec4 {
    T x, y, z, w;
};

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}

// Position of this thread in a one-dimensional grid, and the number of threads in it.
__device__ __forceinline__ int64 thread_index() { return (int64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64 thread_count() { return (int64)gridDim.x * blockDim.x; }

// for (i in 0..n) shared out over the grid: neighbouring threads take neighbouring elements.
#define GRID_STRIDE(i, n) for (int64 i = thread_index(), i##_step = thread_count(); i < (n); i += i##_step)

// Tree sum over the lanes of a warp in a fixed order; every lane has the result.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(ALL_LANES, value, lane);
    return value;
}
