// Uniform and normal random numbers, equal to alpha/random.py's to the bit. REAL: float or double.
//
// Every operation is rounded by itself: the intrinsics keep the compiler from fusing a product with a sum.
#include "philox.cuh"

typedef REAL T;

constexpr int PER_COUNTER = 16 / sizeof(T);  // uniform numbers of one counter, and normal ones of it

// The polynomials and constants of alpha/random.py.
struct alignas(8) Normal {
    double log[7], sin[9], cos[9], ln2, sqrt_half, std, mean;
};

struct alignas(16) Numbers {
    T of[PER_COUNTER];
};

__device__ __forceinline__ float times_plus(float a, float b, float c) { return __fadd_rn(__fmul_rn(a, b), c); }
__device__ __forceinline__ double times_plus(double a, double b, double c) { return __dadd_rn(__dmul_rn(a, b), c); }
__device__ __forceinline__ float smaller(float a, float b) { return fminf(a, b); }
__device__ __forceinline__ double smaller(double a, double b) { return fmin(a, b); }

// [0, 1): 24 bits of a word, or 53 bits of two.
__device__ __forceinline__ float uniform_of(uint32 word) { return (float)(word >> 8) * 0x1p-24f; }
__device__ __forceinline__ double uniform_of(uint32 high, uint32 low) {
    return (double)((uint64)(high >> 5) << 26 | low >> 6) * 0x1p-53;
}

__device__ __forceinline__ void store(T* out, int64 counter, int64 n, const Numbers& numbers) {
    const int64 first = counter * PER_COUNTER;
    if (first + PER_COUNTER <= n) {
        reinterpret_cast<Numbers*>(out)[counter] = numbers;
        return;
    }
#pragma unroll
    for (int i = 0; i < PER_COUNTER; i++)
        if (first + i < n) out[first + i] = numbers.of[i];
}

__device__ __forceinline__ void uniforms(const Words& words, float (&out)[4]) {
    out[0] = uniform_of(words.x), out[1] = uniform_of(words.y), out[2] = uniform_of(words.z), out[3] = uniform_of(words.w);
}
__device__ __forceinline__ void uniforms(const Words& words, double (&out)[2]) {
    out[0] = uniform_of(words.x, words.y), out[1] = uniform_of(words.z, words.w);
}

// out[i] = min(u[i] * scale + low, last); out is aligned to 16 bytes.
extern "C" __global__ void uniform(T* out, int64 n, T scale, T low, T last, Place given, const Place* live) {
    const Place at = live ? *live : given;
    GRID_STRIDE(counter, ceil_div(n, (int64)PER_COUNTER)) {
        Numbers numbers;
        uniforms(philox(at.offset + counter, at.seed), numbers.of);
#pragma unroll
        for (int i = 0; i < PER_COUNTER; i++) numbers.of[i] = smaller(times_plus(numbers.of[i], scale, low), last);
        store(out, counter, n, numbers);
    }
}

// Horner's rule from the highest power.
template <int N>
__device__ __forceinline__ double polynomial(const double (&coefficients)[N], double x) {
    double out = __dmul_rn(x, coefficients[N - 1]);
#pragma unroll
    for (int i = N - 2; i > 0; i--) out = __dmul_rn(__dadd_rn(out, coefficients[i]), x);
    return __dadd_rn(out, coefficients[0]);
}

// The natural logarithm of a positive normal number: exponent * ln 2 + log(m), m in [sqrt(1/2), sqrt(2)).
__device__ __forceinline__ double logarithm(const Normal& c, double u) {
    const int64 bits = __double_as_longlong(u);
    const int64 exponent = (bits - __double_as_longlong(c.sqrt_half)) >> 52;
    const double m = __longlong_as_double(bits - exponent * (1LL << 52));
    const double s = __ddiv_rn(__dadd_rn(m, -1.0), __dadd_rn(m, 1.0));
    const double square = __dmul_rn(s, s);
    const double tail = __dmul_rn(__dadd_rn(__dmul_rn(polynomial(c.log, square), square), 2.0), s);
    return __dadd_rn(tail, __dmul_rn((double)exponent, c.ln2));
}

// Box and Muller: sqrt(-2 log(u)) times cosine and sine of 2 pi v, u and v in (0, 1].
template <class R>
__device__ __forceinline__ void normal_pair(const Normal& c, double u, double v, R& first, R& second) {
    const double k = rint(__dmul_rn(v, 2.0));  // v is k / 2 + r, |r| <= 1/4; half a turn changes both signs
    const double r = __dadd_rn(v, -__dmul_rn(k, 0.5));
    const double radius = __dsqrt_rn(__dmul_rn(logarithm(c, u), -2.0));
    const double signed_radius = k == 1.0 ? -radius : radius;
    const double square = __dmul_rn(r, r);
    const double cosine = __dmul_rn(signed_radius, polynomial(c.cos, square));
    const double sine = __dmul_rn(signed_radius, __dmul_rn(polynomial(c.sin, square), r));
    first = (R)times_plus(cosine, c.std, c.mean);
    second = (R)times_plus(sine, c.std, c.mean);
}

// (0, 1] for results of float: 32 bits of one word.
__device__ __forceinline__ double open_uniform(uint32 word) { return __dmul_rn(__dadd_rn((double)word, 0.5), 0x1p-32); }

__device__ __forceinline__ void normals(const Normal& c, const Words& words, float (&out)[4]) {
    normal_pair(c, open_uniform(words.x), open_uniform(words.y), out[0], out[1]);
    normal_pair(c, open_uniform(words.z), open_uniform(words.w), out[2], out[3]);
}
__device__ __forceinline__ void normals(const Normal& c, const Words& words, double (&out)[2]) {
    const double u = __dadd_rn(uniform_of(words.x, words.y), 0x1p-54), v = uniform_of(words.z, words.w);
    normal_pair(c, u, __dadd_rn(v, 0x1p-54), out[0], out[1]);
}

// out[i] = mean + std * z[i]; out is aligned to 16 bytes.
extern "C" __global__ void normal(T* out, int64 n, const __grid_constant__ Normal c, Place given, const Place* live) {
    const Place at = live ? *live : given;
    GRID_STRIDE(counter, ceil_div(n, (int64)PER_COUNTER)) {
        Numbers numbers;
        normals(c, philox(at.offset + counter, at.seed), numbers.of);
        store(out, counter, n, numbers);
    }
}
