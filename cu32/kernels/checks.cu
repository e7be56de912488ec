// Indices made safe to follow, those out of range noted in a flag that the host reads when it waits anyway.
#include "checks.cuh"

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
