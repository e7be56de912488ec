// Running sums along an axis. Macro TYPE: any dtype; integers are summed in int64, floats in float64.
#include "lines.cuh"
#include "reduce.cuh"

constexpr int THREADS = 256;
template <class T>
struct Kinds {
    using Sum = int64;
    using Result = int64;
};
template <>
struct Kinds<float> {
    using Sum = double;
    using Result = float;
};
template <>
struct Kinds<double> {
    using Sum = double;
    using Result = double;
};
using Sum = Kinds<TYPE>::Sum;
using Result = Kinds<TYPE>::Result;

// For lines that lie beside each other and are many, one thread per line and segment, the segments along blockIdx.y. First
// totals[segment, line], the sum of each segment of a line but the last.
extern "C" __global__ void __launch_bounds__(THREADS)
cumsum_line_totals(const TYPE* __restrict__ x, Sum* __restrict__ totals, const Lines lines, int64 segment) {
    GRID_STRIDE(line, lines.count) {
        const TYPE* const start = x + first_elements(lines, line).x + blockIdx.y * segment * lines.step;
        Sum sum = 0;
#pragma unroll 8
        for (int64 i = 0; i < segment; ++i) sum += start[i * lines.step];
        totals[blockIdx.y * lines.count + line] = sum;
    }
}

// Then the running sums, each segment's from the totals before it on.
extern "C" __global__ void __launch_bounds__(THREADS)
cumsum_lines(const TYPE* __restrict__ x, const Sum* __restrict__ totals, Result* __restrict__ out, const Lines lines,
             int64 segment) {
    const int64 first = blockIdx.y * segment, end = first + segment < lines.length ? first + segment : lines.length;
    GRID_STRIDE(line, lines.count) {
        const Offsets at = first_elements(lines, line);
        Sum sum = 0;
#pragma unroll 4
        for (unsigned before = 0; before < blockIdx.y; ++before) sum += totals[before * lines.count + line];
#pragma unroll 4
        for (int64 i = first; i < end; ++i) {
            sum += x[at.x + i * lines.step];
            out[at.out + i * lines.out_step] = static_cast<Result>(sum);
        }
    }
}

// values[t] = values[0] + ... + values[t] over the block.
__device__ __forceinline__ void scan(Sum* values) {
    for (int reach = 1; reach < THREADS; reach *= 2) {
        __syncthreads();
        const Sum before = threadIdx.x >= reach ? values[threadIdx.x - reach] : 0;
        __syncthreads();
        values[threadIdx.x] += before;
    }
    __syncthreads();
}

// totals[line, segment]: the sum of each segment of a line but the last. One block per segment: (lines, segments).
extern "C" __global__ void __launch_bounds__(THREADS)
cumsum_totals(const TYPE* __restrict__ x, Sum* __restrict__ totals, const Lines lines, int64 segment) {
    __shared__ Sum values[THREADS];
    const int64 line = blockIdx.x, first = blockIdx.y * segment;
    const TYPE* const start = x + first_elements(lines, line).x + first * lines.step;
    Sum sum = 0;
#pragma unroll 4
    for (int64 i = threadIdx.x; i < segment; i += THREADS) sum += start[i * lines.step];
    values[threadIdx.x] = sum;
    combine_lanes(threadIdx.x, THREADS, 1, [&](int i, int j) { values[i] += values[j]; });
    if (threadIdx.x == 0) totals[line * gridDim.y + blockIdx.y] = values[0];
}

// One block per segment, which begins with the sum of the totals (segments - 1 per line) of the segments before it.
extern "C" __global__ void __launch_bounds__(THREADS)
cumsum_segments(const TYPE* __restrict__ x, const Sum* __restrict__ totals, Result* __restrict__ out, const Lines lines,
                int64 segment) {
    __shared__ Sum values[THREADS];
    const int64 line = blockIdx.x, first = blockIdx.y * segment;
    const Offsets at = first_elements(lines, line);
    Sum carried = 0;
    for (unsigned before = threadIdx.x; before < blockIdx.y; before += THREADS)
        carried += totals[line * (gridDim.y - 1) + before];
    values[threadIdx.x] = carried;
    combine_lanes(threadIdx.x, THREADS, 1, [&](int i, int j) { values[i] += values[j]; });
    carried = values[0];
    const int64 end = first + segment < lines.length ? first + segment : lines.length;
    for (int64 tile = first; tile < end; tile += THREADS) {
        const int64 i = tile + threadIdx.x;
        __syncthreads();
        values[threadIdx.x] = i < end ? x[at.x + i * lines.step] : 0;
        scan(values);
        if (i < end) out[at.out + i * lines.out_step] = static_cast<Result>(carried + values[threadIdx.x]);
        carried += values[THREADS - 1];
    }
}
