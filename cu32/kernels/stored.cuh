// Numbers that are stored but not computed with: short integers, and floats of 16 bits, which C++ converts as it does
// its own. A float is rounded to the nearest, ties to even; one of 64 bits is for bfloat16 rounded to 32 bits first, as
// every engine does.
#pragma once
#include "common.cuh"

typedef signed char int8;
typedef short int16;
typedef unsigned short uint16;

// The bits, without a sign, of a float of FROM digits behind the point and a bias, as those of one of fewer digits.
template <int FROM, int FROM_BIAS, int DIGITS, int BIAS, class Bits>
__device__ __forceinline__ uint16 rounded(Bits value) {
    constexpr Bits INFINITE = (Bits)(2 * FROM_BIAS + 1) << FROM, HIDDEN = (Bits)1 << FROM;
    constexpr int MOST = 2 * BIAS + 1;  // the exponent of what is not finite
    if (value > INFINITE) return (uint16)(MOST << DIGITS | 1 << (DIGITS - 1));
    const int stored = (int)(value >> FROM);
    const Bits digits = (value & (HIDDEN - 1)) | (stored != 0 ? HIDDEN : (Bits)0);
    const int exponent = (stored != 0 ? stored : 1) - FROM_BIAS + BIAS;
    if (exponent >= MOST) return (uint16)(MOST << DIGITS);
    const int dropped = FROM - DIGITS + (exponent < 1 ? 1 - exponent : 0);
    if (dropped > FROM + 1) return 0;  // less than half of the least number
    const Bits odd = digits >> dropped & 1;
    const uint32 kept = (uint32)((digits + ((Bits)1 << (dropped - 1)) - 1 + odd) >> dropped);
    return (uint16)(kept + (exponent < 1 ? 0u : (uint32)(exponent - 1) << DIGITS));  // a carry goes into the exponent
}

// A float of 16 bits: so many digits behind the point, and what its exponents are stored with.
template <int DIGITS, int BIAS>
struct Short {
    uint16 bits;

    Short() = default;

    template <class S>
    __device__ __forceinline__ explicit Short(S x) : Short((float)x) {}

    __device__ __forceinline__ explicit Short(float x) {
        const uint32 word = __float_as_uint(x);
        bits = (uint16)(rounded<23, 127, DIGITS, BIAS>(word & 0x7fffffffu) | (word >> 16 & 0x8000u));
    }

    __device__ __forceinline__ explicit Short(double x) {
        if constexpr (BIAS == 127) {
            bits = Short((float)x).bits;
        } else {
            const uint64 word = (uint64)__double_as_longlong(x);
            bits = (uint16)(rounded<52, 1023, DIGITS, BIAS>(word & ~0ull >> 1) | (word >> 48 & 0x8000u));
        }
    }

    __device__ __forceinline__ operator float() const {
        const uint32 value = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
        if constexpr (BIAS == 127) return __uint_as_float(value << (23 - DIGITS) | sign);
        // Multiplied by a power of two, numbers below the least normal one come out right too.
        const float scaled = __uint_as_float(value << (23 - DIGITS)) * __uint_as_float((uint32)(254 - BIAS) << 23);
        const bool is_finite = value < (uint32)(2 * BIAS + 1) << DIGITS;
        const uint32 found = is_finite ? __float_as_uint(scaled) : value << (23 - DIGITS) | 0x7f800000u;
        return __uint_as_float(found | sign);
    }
};

typedef Short<10, 15> half;
typedef Short<7, 127> bfloat16;
