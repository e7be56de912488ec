// CUDA's vector types with their alignments, dim3 and the built-in variables.
#pragma once
#include "abi.h"
#include "qualifiers.h"

#define ALPHA_VECTOR(NAME, T)                                                                                     \
    struct NAME##1 { T x; };                                                                                      \
    struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };                                                            \
    struct NAME##3 { T x, y, z; };                                                                                \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) NAME##4 { T x, y, z, w; };                            \
    static inline NAME##1 make_##NAME##1(T x) { return {x}; }                                                     \
    static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                             \
    static inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                                     \
    static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

ALPHA_VECTOR(char, signed char)
ALPHA_VECTOR(uchar, unsigned char)
ALPHA_VECTOR(short, short)
ALPHA_VECTOR(ushort, unsigned short)
ALPHA_VECTOR(int, int)
ALPHA_VECTOR(uint, unsigned)
ALPHA_VECTOR(long, long)
ALPHA_VECTOR(ulong, unsigned long)
ALPHA_VECTOR(longlong, long long)
ALPHA_VECTOR(ulonglong, unsigned long long)
ALPHA_VECTOR(float, float)
ALPHA_VECTOR(double, double)
#undef ALPHA_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

// The driver's record is read as CUDA's type: both are three unsigned ints.
#define threadIdx (reinterpret_cast<const uint3&>(alpha_emulator_thread->index))
#define blockIdx (reinterpret_cast<const uint3&>(alpha_emulator_block.index))
#define blockDim (reinterpret_cast<const uint3&>(alpha_emulator_block.size))
#define gridDim (reinterpret_cast<const uint3&>(alpha_emulator_block.grid))
constexpr int warpSize = 32;
