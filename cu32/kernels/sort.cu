// Stable sorting along an axis with the indices: runs of up to 1024 elements by a bitonic network in shared memory, then
// passes that merge neighbouring runs. NaN counts as the largest. Macro TYPE: any dtype.
//
// A merge needs no serial part: an element's place is its place in its own run plus the number of elements of the other
// run that precede it, which a binary search finds. Of equal elements those of the left run come first.
#include "lines.cuh"

constexpr int RUN = 1024;
constexpr int MERGE_THREADS = 256;

__device__ __forceinline__ bool less(TYPE a, TYPE b) { return a < b || (b != b && a == a); }

// Sorts runs of `run` elements (a power of two) of every line. A block has blockDim.x = run / 2 threads for each of
// blockDim.y runs; the runs of all lines are counted in a row, `runs` to a line.
extern "C" __global__ void __launch_bounds__(RUN / 2)
sort_runs(const TYPE* __restrict__ x, TYPE* __restrict__ values, int64* __restrict__ indices, const Lines lines, int64 run,
          int64 runs) {
    __shared__ TYPE keys[RUN];
    __shared__ int from[RUN];  // place in the run; those beyond the line's end come last
    const int length = static_cast<int>(run), base = threadIdx.y * length;
    const int64 number = static_cast<int64>(blockIdx.x) * blockDim.y + threadIdx.y;
    const int64 line = number / runs, first = (number - line * runs) * run;
    const Offsets at = first_elements(lines, line < lines.count ? line : 0);
    const int64 left = line < lines.count ? lines.length - first : 0;
    const int count = left < length ? static_cast<int>(left) : length;
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        if (i < count) keys[base + i] = x[at.x + (first + i) * lines.step];
        from[base + i] = i;
    }
    const auto precedes = [&](int i, int j) {
        const int a = from[base + i], b = from[base + j];
        if (a >= count || b >= count) return a < b;
        if (less(keys[base + i], keys[base + j])) return true;
        return !less(keys[base + j], keys[base + i]) && a < b;
    };
    for (int size = 2; size <= length; size *= 2) {
        for (int apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            const int i = 2 * threadIdx.x - (threadIdx.x & (apart - 1)), j = i + apart;
            if (precedes(j, i) == ((i & size) == 0)) {
                const TYPE key = keys[base + i];
                keys[base + i] = keys[base + j];
                keys[base + j] = key;
                const int place = from[base + i];
                from[base + i] = from[base + j];
                from[base + j] = place;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int64 to = at.out + (first + i) * lines.out_step;
        values[to] = keys[base + i];
        indices[to] = first + from[base + i];
    }
}

// Merges neighbouring runs of `run` elements: every element of every line, of dense lines, finds its place.
extern "C" __global__ void __launch_bounds__(MERGE_THREADS)
merge_runs(const TYPE* __restrict__ x, const int64* __restrict__ places, TYPE* __restrict__ values,
           int64* __restrict__ indices, const Lines lines, int64 run) {
    GRID_STRIDE(i, lines.count * lines.length) {
        const int64 line = i / lines.length, position = i - line * lines.length;
        const Offsets at = first_elements(lines, line);
        const int64 pair = position / (2 * run) * (2 * run), middle = pair + run;
        const bool right = position >= middle;
        const TYPE key = x[at.x + position];
        // Among the other run's elements, how many come first: for the right run's, those not larger; else those smaller.
        int64 low = right ? pair : middle, high = right ? middle : pair + 2 * run;
        if (high > lines.length) high = lines.length;
        if (low > high) low = high;
        const int64 begin = low;
        while (low < high) {
            const int64 half = (low + high) / 2;
            const TYPE other = x[at.x + half];
            if (right ? !less(key, other) : less(other, key))
                low = half + 1;
            else
                high = half;
        }
        const int64 own = position - (right ? middle : pair);
        const int64 to = at.out + (pair + own + low - begin) * lines.out_step;
        values[to] = key;
        indices[to] = places[at.x + position];
    }
}
