// The sum of the parts that blocks of a split computation left behind: compensated, in a fixed order. Macro: REAL, float or double.
#include "common.cuh"

// A sum with what its roundings lost (Kahan, as Neumaier improved it): exact to a rounding or two for any length.
struct CompensatedSum {
    REAL sum = 0, lost = 0;

    __device__ __forceinline__ void add(REAL value) {
        const REAL next = sum + value;
        lost += fabs(sum) >= fabs(value) ? (sum - next) + value : (value - next) + sum;
        sum = next;
    }
    // Where a sum is infinite, what was lost is NaN: the sum itself says more.
    __device__ __forceinline__ REAL result() const { return lost == lost ? sum + lost : sum; }
};

// out[i] = sum over p of parts[p * count + i]: neighbouring threads read neighbouring elements.
extern "C" __global__ void sum_parts(const REAL* __restrict__ parts, REAL* __restrict__ out, int64 count, int64 n_parts) {
    GRID_STRIDE(i, count) {
        CompensatedSum total;
        for (int64 p = 0; p < n_parts; ++p) total.add(parts[p * count + i]);
        out[i] = total.result();
    }
}

// The same with a warp an element, for many parts of few elements.
extern "C" __global__ void sum_many_parts(const REAL* __restrict__ parts, REAL* __restrict__ out, int64 count, int64 n_parts) {
    const int64 i = thread_index() / WARP;
    const int lane = threadIdx.x % WARP;
    if (i >= count) return;
    CompensatedSum total;
    for (int64 p = lane; p < n_parts; p += WARP) total.add(parts[p * count + i]);
    const REAL sum = warp_sum(total.result());
    if (lane == 0) out[i] = sum;
}
