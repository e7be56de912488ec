// BatchNorm with its fused residual and LeakyReLU, and sums over channels, of dense (rows, channels) matrices.
#include "affine.cuh"
#include "columns.cuh"

constexpr int APPLY_THREADS = 256;
constexpr int APPLY_CHANNELS = 128;  // most channels of a tile

using Affine = AffineOf<T>;

// Sums of x and of x * x, both less the channel's first row, which is near enough to the mean. Within a chunk they are
// taken less the chunk's first row, so that T's digits go to the deviations.
struct Moments {
    static constexpr int SUMS = 2;
    const T* __restrict__ x;
    double total[SUMS][VEC];
    T origin[VEC], first[VEC], sum[VEC], squares[VEC];

    __device__ __forceinline__ Moments(const T* x, const Place& place, int64 rows) : x(x), total{} {
        for (int e = 0; e < VEC; ++e) origin[e] = place.inside && rows ? x[place.channel + e] : 0;
    }
    __device__ __forceinline__ void begin(int64 offset) {
        const Pack start = load(x + offset);
        for (int e = 0; e < VEC; ++e) {
            first[e] = start.at[e];
            sum[e] = squares[e] = 0;
        }
    }
    using Values = Pack;
    __device__ __forceinline__ Values read(int64 offset) const { return load(x + offset); }
    __device__ __forceinline__ void add(int64, const Values& value) {
        for (int e = 0; e < VEC; ++e) {
            const T d = value.at[e] - first[e];
            sum[e] += d;
            squares[e] = multiply_add(d, d, squares[e]);
        }
    }
    __device__ __forceinline__ void end(int count) {
        for (int e = 0; e < VEC; ++e) {
            const double shift = static_cast<double>(first[e]) - origin[e], s = sum[e];
            total[0][e] += s + count * shift;
            total[1][e] += squares[e] + shift * (2 * s + count * shift);
        }
    }
};

extern "C" __global__ void __launch_bounds__(SUM_THREADS, 3)
statistics(const T* __restrict__ x, const Statistics<T> found, double* partial, unsigned* counters, int64 rows, int64 channels,
           int64 width, const Momentum momentum) {
    __shared__ Workspace<Moments::SUMS> shared;
    const Place place(channels, static_cast<int>(width));
    Moments terms(x, place, rows);
    sum_columns(terms, place, rows, channels, partial, counters, shared, [&](int64 c, const double* sums) {
        const double count = static_cast<double>(rows), deviation = sums[0] / count;
        const double squares = sums[1] - sums[0] * deviation;
        const double var = squares > 0 ? squares / count : squares * 0;  // 0, or NaN
        keep_statistics(found, momentum, c, x[c] + deviation, var, count);
    });
}

// The state of given statistics.
extern "C" __global__ void given_statistics(const T* given_mean, const T* given_var, double* mean, double* inverse_std,
                                            int64 channels, double eps) {
    const int64 c = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    mean[c] = given_mean[c];
    inverse_std[c] = 1 / sqrt(static_cast<double>(given_var[c]) + eps);
}

template <bool RESIDUAL>
__device__ __forceinline__ void apply_rows(const T* __restrict__ x, const T* __restrict__ residual, T* __restrict__ y,
                                           const Place& place, const Affine* by, T slope, int64 rows, int64 channels) {
    const int64 step = static_cast<int64>(gridDim.y) * place.rows;
#pragma unroll 4
    for (int64 row = static_cast<int64>(blockIdx.y) * place.rows + place.row; row < rows; row += step) {
        const int64 offset = row * channels + place.channel;
        const Pack value = load(x + offset), added = RESIDUAL ? load(residual + offset) : value;
        Pack result;
        for (int e = 0; e < VEC; ++e) {
            const T normal = normalise(value.at[e], by[e]);
            result.at[e] = leaky(RESIDUAL ? normal + added.at[e] : normal, slope);
        }
        store(y + offset, result);
    }
}

// y = act(normalised x + residual); a slope of 1 is no activation.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4)
apply(const T* __restrict__ x, const double* mean, const double* inverse_std, const T* weight, const T* bias,
      const T* __restrict__ residual, T* __restrict__ y, int64 rows, int64 channels, int64 width, T slope) {
    __shared__ Affine shared[APPLY_CHANNELS];
    const Place place(channels, static_cast<int>(width));
    const int64 first = static_cast<int64>(blockIdx.x) * width * VEC;
    const int channel = threadIdx.x;
    if (channel < width * VEC && first + channel < channels)
        shared[channel] = affine(first + channel, mean, inverse_std, weight, bias);
    __syncthreads();
    if (!place.inside) return;
    Affine by[VEC];
    for (int e = 0; e < VEC; ++e) by[e] = shared[place.lane * VEC + e];
    if (residual)
        apply_rows<true>(x, residual, y, place, by, slope, rows, channels);
    else
        apply_rows<false>(x, residual, y, place, by, slope, rows, channels);
}

// What tells the sign of what the activation took: the normalised x, that and the residual, or the result y.
enum Mask { FROM_X, FROM_RESIDUAL, FROM_Y };

// The gradient past the activation; other is the residual or y.
template <Mask MASK>
__device__ __forceinline__ T past(T dy, T x, T other, const Affine& by, T slope) {
    if (MASK == FROM_Y) return past_leaky(dy, other, slope);
    const T normal = normalise(x, by);
    return past_leaky(dy, MASK == FROM_RESIDUAL ? normal + other : normal, slope);
}

// Sums of g and of g * (x - centre); with WRITE, g is also stored: it is the residual's gradient.
template <Mask MASK, bool WRITE>
struct GradientSums {
    static constexpr int SUMS = 2;
    const T* __restrict__ dy;
    const T* __restrict__ x;
    const T* __restrict__ other;
    T* __restrict__ masked;
    const Affine (&by)[VEC];
    T slope;
    double total[SUMS][VEC];
    T sum[VEC], products[VEC];

    __device__ __forceinline__ GradientSums(const T* dy, const T* x, const T* other, T* masked,
                                            const Affine (&by)[VEC], T slope)
        : dy(dy), x(x), other(other), masked(masked), by(by), slope(slope), total{} {}
    __device__ __forceinline__ void begin(int64) {
        for (int e = 0; e < VEC; ++e) sum[e] = products[e] = 0;
    }
    struct Values {
        Pack grads, values, others;
    };
    __device__ __forceinline__ Values read(int64 offset) const {
        Values v = {load(dy + offset), load(x + offset), {}};
        if (MASK != FROM_X) v.others = load(other + offset);
        return v;
    }
    __device__ __forceinline__ void add(int64 offset, const Values& v) {
        const Pack &grads = v.grads, &values = v.values, &others = v.others;
        Pack kept;
        for (int e = 0; e < VEC; ++e) {
            const T g = past<MASK>(grads.at[e], values.at[e], others.at[e], by[e], slope);
            kept.at[e] = g;
            sum[e] += g;
            products[e] = multiply_add(g, values.at[e] - by[e].centre, products[e]);
        }
        if (WRITE) store(masked + offset, kept);
    }
    __device__ __forceinline__ void end(int) {
        for (int e = 0; e < VEC; ++e) {
            total[0][e] += sum[e];
            total[1][e] += products[e];
        }
    }
};

// The sums for grad_apply. other: y, or with is_residual that.
extern "C" __global__ void __launch_bounds__(SUM_THREADS, 2)
grad_sums(const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ other, const double* mean,
          const double* inverse_std, const T* weight, const T* bias, T* __restrict__ masked,
          const NormGradients<T> gradients, double* partial, unsigned* counters, int64 rows, int64 channels, int64 width,
          T slope, int64 is_residual) {
    __shared__ Workspace<2> shared;
    const Place place(channels, static_cast<int>(width));
    Affine by[VEC] = {};
    if (place.inside)
        for (int e = 0; e < VEC; ++e) by[e] = affine(place.channel + e, mean, inverse_std, weight, bias);
    const auto finish = [&](int64 c, const double* found) {
        keep_gradients(gradients, c, channels, found, mean, inverse_std);
    };
    if (is_residual) {
        GradientSums<FROM_RESIDUAL, true> terms(dy, x, other, masked, by, slope);
        sum_columns(terms, place, rows, channels, partial, counters, shared, finish);
    } else if (masked) {
        GradientSums<FROM_Y, true> terms(dy, x, other, masked, by, slope);
        sum_columns(terms, place, rows, channels, partial, counters, shared, finish);
    } else if (other) {
        GradientSums<FROM_Y, false> terms(dy, x, other, masked, by, slope);
        sum_columns(terms, place, rows, channels, partial, counters, shared, finish);
    } else {
        GradientSums<FROM_X, false> terms(dy, x, other, masked, by, slope);
        sum_columns(terms, place, rows, channels, partial, counters, shared, finish);
    }
}

// dx = gain * g + slant * (x - centre) + level.
struct Gradient {
    T gain, slant, level;
};

// From the sums of g and of g * (x - mean), which are null where the statistics were constants.
__device__ __forceinline__ Gradient gradient_of(int64 c, T centre, const double* mean, const double* inverse_std, const T* weight,
                                                const double* sums, const double* products, int64 rows) {
    const double gain = weight ? inverse_std[c] * weight[c] : inverse_std[c], share = sums ? gain / rows : 0;
    const double slant = sums ? -share * inverse_std[c] * inverse_std[c] * products[c] : 0;
    const double level = sums ? slant * (centre - mean[c]) - share * sums[c] : 0;
    return {static_cast<T>(gain), static_cast<T>(slant), static_cast<T>(level)};
}

// Constant statistics have no slant: an x that is not finite leaves the gradient alone.
__device__ __forceinline__ T slanted(T g, T x, T centre, const Gradient& by) {
    const T rest = by.slant == T(0) ? by.level : multiply_add(by.slant, x - centre, by.level);
    return multiply_add(by.gain, g, rest);
}

template <Mask MASK>
__device__ __forceinline__ void grad_rows(const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y,
                                          T* __restrict__ dx, const Place& place, const Affine* by,
                                          const Gradient* gradient, T slope, int64 rows, int64 channels) {
    const int64 step = static_cast<int64>(gridDim.y) * place.rows;
#pragma unroll 4
    for (int64 row = static_cast<int64>(blockIdx.y) * place.rows + place.row; row < rows; row += step) {
        const int64 offset = row * channels + place.channel;
        const Pack grads = load(dy + offset), values = load(x + offset), results = MASK == FROM_Y ? load(y + offset) : values;
        Pack result;
        for (int e = 0; e < VEC; ++e) {
            const T g = past<MASK>(grads.at[e], values.at[e], results.at[e], by[e], slope);
            result.at[e] = slanted(g, values.at[e], by[e].centre, gradient[e]);
        }
        store(dx + offset, result);
    }
}

// dx from grad_sums' sums, which are null where the statistics were constants.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 4)
grad_apply(const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y, const double* mean,
           const double* inverse_std, const T* weight, const T* bias, const double* sums, T* __restrict__ dx,
           int64 rows, int64 channels, int64 width, T slope) {
    __shared__ Affine affines[APPLY_CHANNELS];
    __shared__ Gradient gradients[APPLY_CHANNELS];
    const Place place(channels, static_cast<int>(width));
    const int64 c = static_cast<int64>(blockIdx.x) * width * VEC + threadIdx.x;
    if (threadIdx.x < width * VEC && c < channels) {
        const Affine by = affine(c, mean, inverse_std, weight, bias);
        affines[threadIdx.x] = by;
        gradients[threadIdx.x] = gradient_of(c, by.centre, mean, inverse_std, weight, sums, sums + channels, rows);
    }
    __syncthreads();
    if (!place.inside) return;
    Affine by[VEC];
    Gradient gradient[VEC];
    for (int e = 0; e < VEC; ++e) {
        by[e] = affines[place.lane * VEC + e];
        gradient[e] = gradients[place.lane * VEC + e];
    }
    if (y)
        grad_rows<FROM_Y>(dy, x, y, dx, place, by, gradient, slope, rows, channels);
    else
        grad_rows<FROM_X>(dy, x, y, dx, place, by, gradient, slope, rows, channels);
}

struct Plain {
    static constexpr int SUMS = 1;
    const T* __restrict__ x;
    double total[SUMS][VEC];
    T sum[VEC];

    __device__ __forceinline__ void begin(int64) {
        for (int e = 0; e < VEC; ++e) sum[e] = 0;
    }
    using Values = Pack;
    __device__ __forceinline__ Values read(int64 offset) const { return load(x + offset); }
    __device__ __forceinline__ void add(int64, const Values& value) {
        for (int e = 0; e < VEC; ++e) sum[e] += value.at[e];
    }
    __device__ __forceinline__ void end(int) {
        for (int e = 0; e < VEC; ++e) total[0][e] += sum[e];
    }
};

extern "C" __global__ void __launch_bounds__(SUM_THREADS, 4)
channel_sums(const T* __restrict__ x, T* out, double* partial, unsigned* counters, int64 rows, int64 channels,
             int64 width) {
    __shared__ Workspace<1> shared;
    const Place place(channels, static_cast<int>(width));
    Plain terms{x};
    sum_columns(terms, place, rows, channels, partial, counters, shared,
              [&](int64 c, const double* sums) { out[c] = static_cast<T>(sums[0]); });
}

// -- The sum of two BatchNorms -----------------------------------------------------------------------------------------

// What normalises both terms.
struct Pair {
    Affine first[VEC], second[VEC];

    __device__ __forceinline__ Pair(const Place& place, const double* mean, const double* inverse_std, const T* weight,
                                    const T* bias, const double* other_mean, const double* other_inverse_std,
                                    const T* other_weight, const T* other_bias)
        : first{}, second{} {
        if (!place.inside) return;
        for (int e = 0; e < VEC; ++e) {
            first[e] = affine(place.channel + e, mean, inverse_std, weight, bias);
            second[e] = affine(place.channel + e, other_mean, other_inverse_std, other_weight, other_bias);
        }
    }
    // Before the activation.
    __device__ __forceinline__ T sum(T x, T other, int e) const { return normalise(x, first[e]) + normalise(other, second[e]); }
};

// y = act(normalised x + normalised other).
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2)
apply_sum(const T* __restrict__ x, const double* mean, const double* inverse_std, const T* weight, const T* bias,
          const T* __restrict__ other, const double* other_mean, const double* other_inverse_std, const T* other_weight,
          const T* other_bias, T* __restrict__ y, int64 rows, int64 channels, int64 width, T slope) {
    const Place place(channels, static_cast<int>(width));
    if (!place.inside) return;
    const Pair by(place, mean, inverse_std, weight, bias, other_mean, other_inverse_std, other_weight, other_bias);
    const int64 step = static_cast<int64>(gridDim.y) * place.rows;
#pragma unroll 4
    for (int64 row = static_cast<int64>(blockIdx.y) * place.rows + place.row; row < rows; row += step) {
        const int64 offset = row * channels + place.channel;
        const Pack a = load(x + offset), b = load(other + offset);
        Pack result;
        for (int e = 0; e < VEC; ++e) result.at[e] = leaky(by.sum(a.at[e], b.at[e], e), slope);
        store(y + offset, result);
    }
}

// -- BatchNorms whose results are added to each other ------------------------------------------------------------------

constexpr int MOST_TERMS = 4;

// A BatchNorm; x is null where there is none.
struct Term {
    const T* x;
    const double *mean, *inverse_std;
    const T *weight, *bias;
};

struct Terms {
    Term at[MOST_TERMS];
};

struct Slopes {
    T at[MOST_TERMS];
};

// As leaky, of which no addition behind it takes up the product: it is rounded as in memory.
__device__ __forceinline__ float rounded(float value, float slope) { return __fmul_rn(value, slope); }
__device__ __forceinline__ double rounded(double value, double slope) { return __dmul_rn(value, slope); }
__device__ __forceinline__ T rounded_leaky(T value, T slope) {
    return slope == T(0) ? leaky(value, slope) : value > T(0) ? value : rounded(value, slope);
}

template <int TERMS>
__device__ __forceinline__ void chain_rows(const Terms& terms, const T* __restrict__ residual, T* __restrict__ y,
                                           const Place& place, const Slopes& slopes, int64 rows, int64 channels) {
    Affine by[TERMS][VEC];
    for (int k = 0; k < TERMS; ++k)
        for (int e = 0; e < VEC; ++e) {
            const Term& term = terms.at[k];
            by[k][e] = affine(place.channel + e, term.mean, term.inverse_std, term.weight, term.bias);
        }
    const int64 step = static_cast<int64>(gridDim.y) * place.rows;
#pragma unroll 2
    for (int64 row = static_cast<int64>(blockIdx.y) * place.rows + place.row; row < rows; row += step) {
        const int64 offset = row * channels + place.channel;
        Pack values[TERMS], below = {};
#pragma unroll
        for (int k = 0; k < TERMS; ++k) values[k] = load(terms.at[k].x + offset);
        if (residual) below = load(residual + offset);
#pragma unroll
        for (int k = TERMS - 1; k >= 0; --k)
            for (int e = 0; e < VEC; ++e) {
                const T normal = normalise(values[k].at[e], by[k][e]);
                const T sum = k < TERMS - 1 || residual ? normal + below.at[e] : normal;
                below.at[e] = rounded_leaky(sum, slopes.at[k]);
            }
        store(y + offset, below);
    }
}

// y = act(normalised x + act(normalised x + ... residual)), of two terms or more; the last one is the innermost.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2)
apply_chain(const Terms terms, const T* __restrict__ residual, T* __restrict__ y, int64 rows, int64 channels, int64 width,
            const Slopes slopes) {
    const Place place(channels, static_cast<int>(width));
    if (!place.inside) return;
    if (terms.at[3].x)
        chain_rows<4>(terms, residual, y, place, slopes, rows, channels);
    else if (terms.at[2].x)
        chain_rows<3>(terms, residual, y, place, slopes, rows, channels);
    else
        chain_rows<2>(terms, residual, y, place, slopes, rows, channels);
}

// -- The gradient of the sum of two BatchNorms -------------------------------------------------------------------------

// Sums of g, of g * (x - centre) and of g * (other - its centre); with WRITE, g is also stored.
template <bool WRITE>
struct PairSums {
    static constexpr int SUMS = 3;
    const T* __restrict__ dy;
    const T* __restrict__ x;
    const T* __restrict__ other;
    T* __restrict__ masked;
    const Pair& by;
    T slope;
    double total[SUMS][VEC];
    T sum[SUMS][VEC];

    __device__ __forceinline__ PairSums(const T* dy, const T* x, const T* other, T* masked, const Pair& by, T slope)
        : dy(dy), x(x), other(other), masked(masked), by(by), slope(slope), total{} {}
    __device__ __forceinline__ void begin(int64) {
        for (int s = 0; s < SUMS; ++s)
            for (int e = 0; e < VEC; ++e) sum[s][e] = 0;
    }
    struct Values {
        Pack grads, values, others;
    };
    __device__ __forceinline__ Values read(int64 offset) const {
        return {load(dy + offset), load(x + offset), load(other + offset)};
    }
    __device__ __forceinline__ void add(int64 offset, const Values& v) {
        Pack kept;
        for (int e = 0; e < VEC; ++e) {
            const T a = v.values.at[e], b = v.others.at[e];
            const T g = past_leaky(v.grads.at[e], by.sum(a, b, e), slope);
            kept.at[e] = g;
            sum[0][e] += g;
            sum[1][e] = multiply_add(g, a - by.first[e].centre, sum[1][e]);
            sum[2][e] = multiply_add(g, b - by.second[e].centre, sum[2][e]);
        }
        if (WRITE) store(masked + offset, kept);
    }
    __device__ __forceinline__ void end(int) {
        for (int s = 0; s < SUMS; ++s)
            for (int e = 0; e < VEC; ++e) total[s][e] += sum[s][e];
    }
};

// sums: (3, channels) float64, of g, of g * (x - mean) and of g * (other - its mean), for grad_apply_sum; the gradients of
// weights and biases. masked: where g is written, or null.
extern "C" __global__ void __launch_bounds__(SUM_THREADS, 1)
grad_sums_sum(const T* __restrict__ dy, const T* __restrict__ x, const double* mean, const double* inverse_std, const T* weight,
              const T* bias, const T* __restrict__ other, const OtherNorm<T> norm, T* __restrict__ masked,
              const NormGradients<T> gradients, double* partial, unsigned* counters, int64 rows, int64 channels, int64 width,
              T slope) {
    __shared__ Workspace<3> shared;
    const Place place(channels, static_cast<int>(width));
    const Pair by(place, mean, inverse_std, weight, bias, norm.mean, norm.inverse_std, norm.weight, norm.bias);
    const auto finish = [&](int64 c, const double* found) {
        keep_gradients(gradients, c, channels, found, mean, inverse_std);
        keep_other_gradients(norm, gradients.sums, c, channels, found[0], found[2]);
    };
    if (masked) {
        PairSums<true> terms(dy, x, other, masked, by, slope);
        sum_columns(terms, place, rows, channels, partial, counters, shared, finish);
    } else {
        PairSums<false> terms(dy, x, other, masked, by, slope);
        sum_columns(terms, place, rows, channels, partial, counters, shared, finish);
    }
}

// dx and the other's, of a gradient g past the activation. They may be x and other.
extern "C" __global__ void __launch_bounds__(APPLY_THREADS, 2)
grad_apply_sum(const T* __restrict__ g, const T* x, const double* mean, const double* inverse_std, const T* weight,
               const T* other, const double* other_mean, const double* other_inverse_std, const T* other_weight,
               const double* sums, T* dx, T* other_dx, int64 rows, int64 channels, int64 width) {
    const Place place(channels, static_cast<int>(width));
    if (!place.inside) return;
    T centre[VEC], other_centre[VEC];
    Gradient first[VEC], second[VEC];
    for (int e = 0; e < VEC; ++e) {
        const int64 c = place.channel + e;
        centre[e] = static_cast<T>(mean[c]);
        other_centre[e] = static_cast<T>(other_mean[c]);
        first[e] = gradient_of(c, centre[e], mean, inverse_std, weight, sums, sums + channels, rows);
        second[e] = gradient_of(c, other_centre[e], other_mean, other_inverse_std, other_weight, sums, sums + 2 * channels, rows);
    }
    const int64 step = static_cast<int64>(gridDim.y) * place.rows;
#pragma unroll 2
    for (int64 row = static_cast<int64>(blockIdx.y) * place.rows + place.row; row < rows; row += step) {
        const int64 offset = row * channels + place.channel;
        const Pack grads = load(g + offset), a = load(x + offset), b = load(other + offset);
        Pack result, other_result;
        for (int e = 0; e < VEC; ++e) {
            result.at[e] = slanted(grads.at[e], a.at[e], centre[e], first[e]);
            other_result.at[e] = slanted(grads.at[e], b.at[e], other_centre[e], second[e]);
        }
        store(dx + offset, result);
        store(other_dx + offset, other_result);
    }
}
