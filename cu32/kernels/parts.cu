// The sum of the parts that blocks of a split computation left behind: compensated, in a fixed order. Macro: REAL, float or double.
#include "common.cuh"
#include "compensated.cuh"

constexpr int THREADS = 256;

// out[i] = sum over p of parts[p * count + i], `VEC` neighbouring elements per thread. A block's threads are `lanes` times
// as many as the groups of elements it takes: where elements are few, each lane adds every lanes-th part, and the first
// lane adds the lanes' sums in their order.
template <int VEC>
__device__ __forceinline__ void sum(const REAL* __restrict__ parts, REAL* __restrict__ out, int64 count, int64 n_parts, int lanes) {
    struct alignas(VEC * sizeof(REAL)) Pack {
        REAL at[VEC];
    };
    __shared__ REAL sums[VEC][THREADS];
    const int width = THREADS / lanes, lane = threadIdx.x / width;
    const int64 i = (static_cast<int64>(blockIdx.x) * width + threadIdx.x % width) * VEC;
    CompensatedSum<REAL> total[VEC];
    if (i < count) {
#pragma unroll 4
        for (int64 p = lane; p < n_parts; p += lanes) {
            const Pack values = *reinterpret_cast<const Pack*>(parts + p * count + i);
#pragma unroll
            for (int e = 0; e < VEC; ++e) total[e].add(values.at[e]);
        }
    }
    if (lanes > 1) {
#pragma unroll
        for (int e = 0; e < VEC; ++e) sums[e][threadIdx.x] = total[e].result();
        __syncthreads();
        for (int l = 1; l < lanes && lane == 0; ++l)
#pragma unroll
            for (int e = 0; e < VEC; ++e) total[e].add(sums[e][threadIdx.x + l * width]);
    }
    if (lane != 0 || i >= count) return;
    Pack result;
#pragma unroll
    for (int e = 0; e < VEC; ++e) result.at[e] = total[e].result();
    *reinterpret_cast<Pack*>(out + i) = result;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_parts(const REAL* __restrict__ parts, REAL* __restrict__ out, int64 count, int64 n_parts, int lanes) {
    sum<1>(parts, out, count, n_parts, lanes);
}

// 128-bit accesses: count is a multiple of the elements in one, and so are the addresses.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_parts_wide(const REAL* __restrict__ parts, REAL* __restrict__ out, int64 count, int64 n_parts, int lanes) {
    sum<16 / sizeof(REAL)>(parts, out, count, n_parts, lanes);
}
