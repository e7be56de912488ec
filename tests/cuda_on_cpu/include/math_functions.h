// CUDA's mathematical functions. The C library's are declared here, not included: the standard headers cost more time
// than most kernels, and real device code compiled by NVRTC has none either.
#pragma once
#include "qualifiers.h"

#define ALPHA_LIBM_1(NAME)                    \
    extern "C" double NAME(double) noexcept;  \
    extern "C" float NAME##f(float) noexcept; \
    static inline float NAME(float x) { return NAME##f(x); }
#define ALPHA_LIBM_2(NAME)                            \
    extern "C" double NAME(double, double) noexcept;  \
    extern "C" float NAME##f(float, float) noexcept;  \
    static inline float NAME(float x, float y) { return NAME##f(x, y); }

ALPHA_LIBM_1(sqrt) ALPHA_LIBM_1(cbrt) ALPHA_LIBM_1(exp) ALPHA_LIBM_1(exp2) ALPHA_LIBM_1(exp10) ALPHA_LIBM_1(expm1)
ALPHA_LIBM_1(log) ALPHA_LIBM_1(log2) ALPHA_LIBM_1(log10) ALPHA_LIBM_1(log1p) ALPHA_LIBM_1(logb)
ALPHA_LIBM_1(sin) ALPHA_LIBM_1(cos) ALPHA_LIBM_1(tan) ALPHA_LIBM_1(asin) ALPHA_LIBM_1(acos) ALPHA_LIBM_1(atan)
ALPHA_LIBM_1(sinh) ALPHA_LIBM_1(cosh) ALPHA_LIBM_1(tanh) ALPHA_LIBM_1(asinh) ALPHA_LIBM_1(acosh) ALPHA_LIBM_1(atanh)
ALPHA_LIBM_1(erf) ALPHA_LIBM_1(erfc) ALPHA_LIBM_1(tgamma) ALPHA_LIBM_1(lgamma)
ALPHA_LIBM_1(floor) ALPHA_LIBM_1(ceil) ALPHA_LIBM_1(trunc) ALPHA_LIBM_1(round) ALPHA_LIBM_1(rint) ALPHA_LIBM_1(nearbyint)
ALPHA_LIBM_1(fabs)
ALPHA_LIBM_2(pow) ALPHA_LIBM_2(fmod) ALPHA_LIBM_2(remainder) ALPHA_LIBM_2(hypot) ALPHA_LIBM_2(atan2)
ALPHA_LIBM_2(fmin) ALPHA_LIBM_2(fmax) ALPHA_LIBM_2(fdim) ALPHA_LIBM_2(copysign) ALPHA_LIBM_2(nextafter)
#undef ALPHA_LIBM_1
#undef ALPHA_LIBM_2

extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" double scalbn(double, int) noexcept;
extern "C" float scalbnf(float, int) noexcept;
extern "C" double frexp(double, int*) noexcept;
extern "C" float frexpf(float, int*) noexcept;
extern "C" double modf(double, double*) noexcept;
extern "C" float modff(float, float*) noexcept;
extern "C" void sincos(double, double*, double*) noexcept;
extern "C" void sincosf(float, float*, float*) noexcept;
extern "C" long lrintf(float) noexcept;
extern "C" long lrint(double) noexcept;
extern "C" long long llrintf(float) noexcept;
extern "C" long long llrint(double) noexcept;
extern "C" long lround(double) noexcept;
extern "C" long lroundf(float) noexcept;
extern "C" int abs(int) noexcept;
extern "C" long labs(long) noexcept;
extern "C" long long llabs(long long) noexcept;
extern "C" int printf(const char*, ...);

static inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
static inline float ldexp(float x, int n) { return ldexpf(x, n); }
static inline float scalbn(float x, int n) { return scalbnf(x, n); }
static inline float frexp(float x, int* n) { return frexpf(x, n); }
static inline float modf(float x, float* whole) { return modff(x, whole); }
static inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
static inline long abs(long x) { return labs(x); }
static inline long long abs(long long x) { return llabs(x); }

// Results that CUDA has and the C library has not.
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }
static inline double sinpi(double x) { return sin(x * 3.14159265358979323846); }
static inline double cospi(double x) { return cos(x * 3.14159265358979323846); }
static inline float sinpif(float x) { return (float)sinpi((double)x); }
static inline float cospif(float x) { return (float)cospi((double)x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
static inline float fdividef(float x, float y) { return x / y; }
static inline float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

#define ALPHA_CLASSIFY(T)                                                \
    static inline bool isnan(T x) { return __builtin_isnan(x); }         \
    static inline bool isinf(T x) { return __builtin_isinf(x); }         \
    static inline bool isfinite(T x) { return __builtin_isfinite(x); }   \
    static inline bool signbit(T x) { return __builtin_signbit(x); }
ALPHA_CLASSIFY(float)
ALPHA_CLASSIFY(double)
#undef ALPHA_CLASSIFY

#define ALPHA_MIN_MAX(T)                                        \
    static constexpr T min(T a, T b) { return b < a ? b : a; }  \
    static constexpr T max(T a, T b) { return a < b ? b : a; }
ALPHA_MIN_MAX(int)
ALPHA_MIN_MAX(unsigned)
ALPHA_MIN_MAX(long)
ALPHA_MIN_MAX(unsigned long)
ALPHA_MIN_MAX(long long)
ALPHA_MIN_MAX(unsigned long long)
#undef ALPHA_MIN_MAX
// Mixed signedness becomes unsigned, as in CUDA's overloads.
static constexpr unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static constexpr unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static constexpr unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static constexpr unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
// A NaN gives way to a number, as for fminf.
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin((double)a, b); }
static inline double min(double a, float b) { return fmin(a, (double)b); }
static inline double max(float a, double b) { return fmax((double)a, b); }
static inline double max(double a, float b) { return fmax(a, (double)b); }
