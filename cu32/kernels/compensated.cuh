// Sums of many terms that lose nothing to rounding.
#pragma once

// A sum with what its roundings lost (Kahan, as Neumaier improved it): exact to a rounding or two for any length.
template <class T>
struct CompensatedSum {
    T sum = 0, lost = 0;

    __device__ __forceinline__ void add(T value) {
        const T next = sum + value;
        lost += fabs(sum) >= fabs(value) ? (sum - next) + value : (value - next) + sum;
        sum = next;
    }
    // Where a sum is infinite, what was lost is NaN: the sum itself says more.
    __device__ __forceinline__ T result() const { return lost == lost ? sum + lost : sum; }
};
