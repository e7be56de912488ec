// Floats divided at length, where their quotient has more digits than a float; see alpha/cpu/loops/division.py.
#pragma once
#include "common.cuh"

// C's fmod of finite numbers, |x| >= |y| > 0: the digits of x 11 at a time.
__device__ __forceinline__ double divide(double x, double y) {
    const int64 x_bits = __double_as_longlong(x), y_bits = __double_as_longlong(y);
    const int x_field = (int)(x_bits >> 52) & 2047, y_field = (int)(y_bits >> 52) & 2047;
    const uint64 x_low = (uint64)x_bits & 0xfffffffffffffull, y_low = (uint64)y_bits & 0xfffffffffffffull;
    // x = x_mantissa * 2 ** (x_exponent - 1075), and so y.
    const uint64 x_mantissa = x_field ? x_low | 1ull << 52 : x_low, y_mantissa = y_field ? y_low | 1ull << 52 : y_low;
    const int x_exponent = x_field ? x_field : 1, y_exponent = y_field ? y_field : 1;
    uint64 rest = x_mantissa % y_mantissa;
#pragma unroll 1
    for (int left = x_exponent - y_exponent; left > 0; left -= 11) rest = (rest << (left < 11 ? left : 11)) % y_mantissa;
    // The power of two in halves: it may be smaller than the least normal number.
    const int power = y_exponent - 1075, half = power >> 1;
    const double first = __longlong_as_double((int64)(half + 1023) << 52);
    const double second = __longlong_as_double((int64)(power - half + 1023) << 52);
    const double size = __dmul_rn(__dmul_rn(__ull2double_rn(rest), first), second);
    return x_bits < 0 ? -size : size;
}
