// Large angles: what is left of them after whole quarter turns, by enough digits of 2 / pi. Payne & Hanek, 1983.
// The same steps, to the bit, as alpha/cpu/loops/turns.py.
#pragma once
#include "common.cuh"

// The binary digits of 2 / pi, after one word of zeros, as far as the largest double reaches.
__device__ const uint64 two_over_pi[22] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
    0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d, 0xa9e391615ee61b08,
};

// The upper word of (high, low) << n for n < 64.
__device__ __forceinline__ uint64 shifted(uint64 high, uint64 low, int n) {
    return n ? high << n | low >> (64 - n) : high;
}

// The rest in -pi/4..pi/4 of an angle of 2^15 or more, and how many quarter turns it is beyond; NaN of infinity and NaN.
__device__ __forceinline__ double turn(double x, int64& turns) {
    const int64 bits = __double_as_longlong(x);
    const int exponent = (int)(bits >> 52) & 2047;
    const uint64 mantissa = ((uint64)bits & 0xfffffffffffffull) | 1ull << 52;
    // x = mantissa * 2 ** (exponent - 1075). Digits of 2 / pi that make only whole turns are left out.
    const int first = exponent - 1013, word = first >> 6, offset = first & 63;
    const uint64* digits = two_over_pi + word;
    const uint64 d2 = shifted(digits[0], digits[1], offset), d1 = shifted(digits[1], digits[2], offset),
                 d0 = shifted(digits[2], digits[3], offset);
    // mantissa * digits, modulo 2 ** 192: its first two digits count quarter turns, the others are the rest in them.
    const uint64 p0 = mantissa * d0, from0 = __umul64hi(mantissa, d0), low1 = mantissa * d1, p1 = low1 + from0;
    const uint64 p2 = mantissa * d2 + __umul64hi(mantissa, d1) + (p1 < low1);
    uint64 r2 = shifted(p2, p1, 2), r1 = shifted(p1, p0, 2), r0 = p0 << 2;
    const bool nearer_next = (int64)r2 < 0;
    const int64 count = (int64)(p2 >> 62) + nearer_next;
    if (nearer_next) {
        r0 = ~r0 + 1;
        r1 = ~r1 + (r0 == 0);
        r2 = ~r2 + (r0 == 0 && r1 == 0);
    }
    int zeros = 0;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
        if (r2 == 0) r2 = r1, r1 = r0, r0 = 0, zeros += 64;
    }
    const int left = __clzll((int64)r2);
    zeros += left;
    const double scale = __longlong_as_double((int64)(959 - zeros) << 52);
    const double angle = __dmul_rn(__dmul_rn(__ull2double_rn(shifted(r2, r1, left)), scale), 1.5707963267948966);
    const bool below = bits < 0;
    turns = below ? -count : count;
    return exponent == 2047 ? __longlong_as_double(0x7ff8000000000000ll) : below != nearer_next ? -angle : angle;
}
