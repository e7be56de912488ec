// BatchNorm's arithmetic: what a channel's statistics, which are kept in float64, make of its elements. These are normalised
// as (x - centre) * scale + shift, with centre the mean rounded to T and what the rounding left out in shift: no digit is
// lost where the mean is large.
#pragma once
#include "leaky.cuh"

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// What turns a channel's x into its normalised value.
template <class T>
struct AffineOf {
    T centre, scale, shift;
};

template <class T>
__device__ __forceinline__ AffineOf<T> affine(int64 c, const double* mean, const double* inverse_std, const T* weight,
                                              const T* bias) {
    const T centre = static_cast<T>(mean[c]);
    const double scale = weight ? inverse_std[c] * weight[c] : inverse_std[c];
    const double shift = (static_cast<double>(centre) - mean[c]) * scale + (bias ? static_cast<double>(bias[c]) : 0.0);
    return {centre, static_cast<T>(scale), static_cast<T>(shift)};
}

template <class T>
__device__ __forceinline__ T normalise(T x, const AffineOf<T>& by) {
    return multiply_add(x - by.centre, by.scale, by.shift);
}

// Where the statistics of a batch go; all but the first two may be null.
template <class T>
struct Statistics {
    double* mean;
    double* inverse_std;
    T* running_mean;
    T* running_var;
    int64* batches;
};

// How the running ones follow.
struct Momentum {
    int64 mean_stride, var_stride;
    double momentum, eps;
};

// Of channel c, over `count` rows.
template <class T>
__device__ __forceinline__ void keep_statistics(const Statistics<T>& to, const Momentum& by, int64 c, double mean, double var,
                                                double count) {
    to.mean[c] = mean;
    to.inverse_std[c] = 1 / sqrt(var + by.eps);
    if (to.running_mean) {
        T& running = to.running_mean[c * by.mean_stride];
        running = static_cast<T>((1 - by.momentum) * running + by.momentum * mean);
    }
    if (to.running_var) {
        T& running = to.running_var[c * by.var_stride];
        const double unbiased = var * (count / (count > 1 ? count - 1 : 1));
        running = static_cast<T>((1 - by.momentum) * running + by.momentum * unbiased);
    }
    if (to.batches && c == 0) *to.batches += 1;
}

// Where the gradients of a BatchNorm go: the sums of g and of g * (x - mean), and those of weight and bias.
template <class T>
struct NormGradients {
    double* sums;  // 2 x channels
    T* weight;
    T* bias;
};

// The sum of g * (x - mean), from those of g and of g * (x - centre).
template <class T>
__device__ __forceinline__ double about_mean(double products, double g, double mean) {
    return products + (static_cast<double>(static_cast<T>(mean)) - mean) * g;
}

// Of channel c, from the sums of g and of g * (x - centre).
template <class T>
__device__ __forceinline__ void keep_gradients(const NormGradients<T>& to, int64 c, int64 channels, const double* found,
                                               const double* mean, const double* inverse_std) {
    const double products = about_mean<T>(found[1], found[0], mean[c]);
    to.sums[c] = found[0];
    to.sums[channels + c] = products;
    to.bias[c] = static_cast<T>(found[0]);
    to.weight[c] = static_cast<T>(products * inverse_std[c]);
}

// A BatchNorm that was added to another one before the activation: its statistics, its parameters, which may be null, and where
// its gradients go.
template <class T>
struct OtherNorm {
    const double* mean;
    const double* inverse_std;
    const T* weight;
    const T* bias;
    T* weight_gradient;
    T* bias_gradient;
};

// Of its channel c, from the sums of g and of g * (other - its centre); `sums` has a third row for it.
template <class T>
__device__ __forceinline__ void keep_other_gradients(const OtherNorm<T>& other, double* sums, int64 c, int64 channels, double g,
                                                     double products) {
    const double about = about_mean<T>(products, g, other.mean[c]);
    sums[2 * channels + c] = about;
    other.bias_gradient[c] = static_cast<T>(g);
    other.weight_gradient[c] = static_cast<T>(about * other.inverse_std[c]);
}
