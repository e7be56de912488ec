// LeakyReLU and its gradient over dense memory, 16 bytes at a time. Macro REAL: float or double.
#include "leaky.cuh"

constexpr int WIDE = 16 / sizeof(REAL);

struct alignas(16) Pack {
    REAL at[WIDE];
};

// result[i] = function(i-th elements) for i < n, packs first where `packed` says that all addresses are aligned.
template <class Function>
__device__ __forceinline__ void map(const REAL* __restrict__ x, const REAL* __restrict__ y, REAL* __restrict__ result,
                                    int64 n, bool packed, Function function) {
    const int64 packs = packed ? n / WIDE : 0;
    GRID_STRIDE(i, packs) {
        const Pack a = reinterpret_cast<const Pack*>(x)[i], b = reinterpret_cast<const Pack*>(y)[i];
        Pack c;
#pragma unroll
        for (int e = 0; e < WIDE; ++e) c.at[e] = function(a.at[e], b.at[e]);
        reinterpret_cast<Pack*>(result)[i] = c;
    }
    for (int64 i = packs * WIDE + thread_index(); i < n; i += thread_count()) result[i] = function(x[i], y[i]);
}

extern "C" __global__ void leaky_relu(const REAL* __restrict__ x, REAL* __restrict__ y, int64 n, REAL slope, int packed) {
    map(x, x, y, n, packed, [=](REAL value, REAL) { return leaky(value, slope); });
}

extern "C" __global__ void leaky_relu_grad(const REAL* __restrict__ dy, const REAL* __restrict__ y, REAL* __restrict__ dx,
                                           int64 n, REAL slope, int packed) {
    map(dy, y, dx, n, packed, [=](REAL grad, REAL value) { return past_leaky(grad, value, slope); });
}
