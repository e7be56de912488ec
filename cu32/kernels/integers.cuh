// Quotients and powers of integers.
#pragma once
#include "common.cuh"

// The quotient rounded down; y is not 0. The least integer divided by -1 wraps to itself, as in NumPy.
template <class T>
__device__ __forceinline__ T quotient(T x, T y) {
    if (T(-1) < T(0) && y == T(-1)) return (T)(0 - (uint64)x);
    const T whole = x / y, rest = x % y;
    return rest != T(0) && (rest < T(0)) != (y < T(0)) ? whole - T(1) : whole;
}

// x to a power >= 0 by squaring; it wraps.
template <class T>
__device__ __forceinline__ T power(T x, T y) {
    uint64 result = 1, square = (uint64)x;
#pragma unroll 1
    for (uint64 left = sizeof(T) == 8 ? (uint64)y : (uint32)y; left != 0; left >>= 1) {
        if (left & 1) result *= square;
        square *= square;
    }
    return (T)result;
}
