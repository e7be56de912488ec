// CUDA's intrinsic functions: exact roundings, conversions, bits, cached loads and stores.
#pragma once
#include "math_functions.h"
#include "qualifiers.h"
#include "vector_types.h"

// Keeps the compiler from fusing what it computes with what it is computed from.
#define ALPHA_OPAQUE(x) asm("" : "+x"(x))

// Arithmetic rounded to nearest that is never contracted to a fused multiply-add.
#define ALPHA_ROUNDED(PREFIX, T, SQRT, FMA, FMA_NAME)                                                              \
    static inline T __##PREFIX##mul_rn(T a, T b) { T r = a * b; ALPHA_OPAQUE(r); return r; }                       \
    static inline T __##PREFIX##add_rn(T a, T b) { ALPHA_OPAQUE(a); ALPHA_OPAQUE(b); return a + b; }               \
    static inline T __##PREFIX##sub_rn(T a, T b) { ALPHA_OPAQUE(a); ALPHA_OPAQUE(b); return a - b; }               \
    static inline T __##PREFIX##div_rn(T a, T b) { return a / b; }                                                 \
    static inline T __##PREFIX##rcp_rn(T a) { return (T)1 / a; }                                                   \
    static inline T __##PREFIX##sqrt_rn(T a) { return SQRT(a); }                                                   \
    static inline T FMA_NAME(T a, T b, T c) { return FMA(a, b, c); }
ALPHA_ROUNDED(f, float, sqrtf, fmaf, __fmaf_rn)
ALPHA_ROUNDED(d, double, sqrt, fma, __fma_rn)
#undef ALPHA_ROUNDED

static inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return saturate(x); }

// The fast forms are as exact here as the others: macros, as some C libraries declare functions of these names.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)

// Reinterpretations.
#define ALPHA_BITS(NAME, TO, FROM)                             \
    static inline TO NAME(FROM from) {                         \
        static_assert(sizeof(TO) == sizeof(FROM), "same bits"); \
        TO to;                                                 \
        __builtin_memcpy(&to, &from, sizeof to);               \
        return to;                                             \
    }
ALPHA_BITS(__int_as_float, float, int)
ALPHA_BITS(__float_as_int, int, float)
ALPHA_BITS(__uint_as_float, float, unsigned)
ALPHA_BITS(__float_as_uint, unsigned, float)
ALPHA_BITS(__longlong_as_double, double, long long)
ALPHA_BITS(__double_as_longlong, long long, double)
#undef ALPHA_BITS
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

// Conversions: NaN becomes 0 and what is out of range the nearest end of it, as on the device.
namespace alpha_emulator {
template <class To, class From>
static inline To to_integer(From whole, From low, From beyond, To lowest, To highest) {
    return whole != whole ? (To)0 : whole < low ? lowest : whole >= beyond ? highest : (To)whole;
}
}  // namespace alpha_emulator
#define ALPHA_CONVERT(FROM, FROM_NAME, RN, FLOOR, CEIL, TRUNC)                                                        \
    ALPHA_CONVERT_TO(FROM, FROM_NAME, int, int, -2147483648.0, 2147483648.0, (int)0x80000000, 0x7fffffff, RN, FLOOR, CEIL, TRUNC) \
    ALPHA_CONVERT_TO(FROM, FROM_NAME, uint, unsigned, 0.0, 4294967296.0, 0u, 0xffffffffu, RN, FLOOR, CEIL, TRUNC)     \
    ALPHA_CONVERT_TO(FROM, FROM_NAME, ll, long long, -9223372036854775808.0, 9223372036854775808.0,                   \
                     (long long)0x8000000000000000ull, 0x7fffffffffffffffll, RN, FLOOR, CEIL, TRUNC)                  \
    ALPHA_CONVERT_TO(FROM, FROM_NAME, ull, unsigned long long, 0.0, 18446744073709551616.0, 0ull,                     \
                     0xffffffffffffffffull, RN, FLOOR, CEIL, TRUNC)
#define ALPHA_CONVERT_TO(FROM, FROM_NAME, NAME, TO, LOW, BEYOND, LOWEST, HIGHEST, RN, FLOOR, CEIL, TRUNC) \
    static inline TO __##FROM_NAME##2##NAME##_rn(FROM x) {                                               \
        return alpha_emulator::to_integer<TO, FROM>(RN(x), (FROM)LOW, (FROM)BEYOND, LOWEST, HIGHEST);     \
    }                                                                                                    \
    static inline TO __##FROM_NAME##2##NAME##_rd(FROM x) {                                               \
        return alpha_emulator::to_integer<TO, FROM>(FLOOR(x), (FROM)LOW, (FROM)BEYOND, LOWEST, HIGHEST);  \
    }                                                                                                    \
    static inline TO __##FROM_NAME##2##NAME##_ru(FROM x) {                                               \
        return alpha_emulator::to_integer<TO, FROM>(CEIL(x), (FROM)LOW, (FROM)BEYOND, LOWEST, HIGHEST);   \
    }                                                                                                    \
    static inline TO __##FROM_NAME##2##NAME##_rz(FROM x) {                                               \
        return alpha_emulator::to_integer<TO, FROM>(TRUNC(x), (FROM)LOW, (FROM)BEYOND, LOWEST, HIGHEST);  \
    }
ALPHA_CONVERT(float, float, rintf, floorf, ceilf, truncf)
ALPHA_CONVERT(double, double, rint, floor, ceil, trunc)
#undef ALPHA_CONVERT_TO
#undef ALPHA_CONVERT
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return (double)x; }
static inline double __uint2double_rn(unsigned x) { return (double)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }

// Integers.
static inline int __mul24(int a, int b) { return (int)((long long)(a << 8 >> 8) * (b << 8 >> 8)); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long r = 0;
    for (int bit = 0; bit < 64; ++bit) r |= (x >> bit & 1) << (63 - bit);
    return r;
}
static inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned which = selector >> (4 * i);
        unsigned byte = (unsigned)(bytes >> (8 * (which & 7))) & 0xff;
        r |= (which & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
    }
    return r;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (n & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}
static inline unsigned __sad(int a, int b, unsigned c) { return (unsigned)(a < b ? b - a : a - b) + c; }

// Loads and stores with a cache hint.
#define ALPHA_LOAD(NAME) \
    template <class T> static inline T NAME(const T* address) { return *address; }
#define ALPHA_STORE(NAME) \
    template <class T> static inline void NAME(T* address, T value) { *address = value; }
ALPHA_LOAD(__ldg) ALPHA_LOAD(__ldca) ALPHA_LOAD(__ldcg) ALPHA_LOAD(__ldcs) ALPHA_LOAD(__ldlu) ALPHA_LOAD(__ldcv)
ALPHA_STORE(__stcg) ALPHA_STORE(__stcs) ALPHA_STORE(__stwb) ALPHA_STORE(__stwt)
#undef ALPHA_LOAD
#undef ALPHA_STORE

static inline unsigned __cvta_generic_to_shared(const void*) = delete;  // inline PTX alone needs it: see ptx.cuh
static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
static inline int clock() { return (int)clock64(); }
static inline void __nanosleep(unsigned) {}
[[noreturn]] static inline void __trap() { alpha_emulator_fail("__trap()", nullptr, 0); }
