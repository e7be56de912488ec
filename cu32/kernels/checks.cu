// Indices made safe to follow, those out of range noted in a flag that the host reads when it waits anyway.
#include "common.cuh"

// A flag holds ~0, or (position << 32 | value) of the first wrong element, each limited to 32 bits: the smallest such
// word is the first element's, whatever the order of the threads.
__device__ __forceinline__ uint64 report(int64 position, int64 value) {
    const int64 highest = 0x7fffffff, lowest = -highest - 1, last = 0xfffffffe;
    int64 limited = value > highest ? highest : value < lowest ? lowest : value;
    return (uint64)(position > last ? last : position) << 32 | (uint32)(int)limited;
}

extern "C" __global__ void check_range(const int64* index, int64* out, int64 count, int64 low, int64 high, int64 ignore,
                                       int may_ignore, uint64* flag) {
    GRID_STRIDE(i, count) {
        int64 value = index[i];
        bool ignored = may_ignore && value == ignore;
        bool wrong = !ignored && (value < low || value >= high);
        if (wrong && flag) atomicMin(flag, report(i, value));
        out[i] = ignored || wrong ? 0 : value < 0 ? value + high : value;
    }
}
