// A BatchNorm in training and its activation before a convolution: where macro NORMALISED is 1, kernels read what it was given,
// and normalise it on the way to their products, so that its result never lies in memory. The numbers are those that
// normalisation.cu would write. Padding is not read, and so not normalised.
#pragma once
#include "affine.cuh"
#include "ptx.cuh"

#ifndef NORMALISED
#define NORMALISED 0
#endif

// Its statistics and parameters; of the latter each may be null.
struct BeforeTensors {
    const double* mean;
    const double* inverse_std;
    const float* weight;
    const float* bias;
};

#if NORMALISED
#define BEFORE_TENSORS const BeforeTensors before,
#define BEFORE_SLOPE , const double slope
#else
#define BEFORE_TENSORS
#define BEFORE_SLOPE
#endif

// Fills a table in shared memory, of `count` channels from the first on. Beyond them zeros become zeros.
template <int THREADS>
__device__ __forceinline__ void fill_affine(AffineOf<float>* by, const BeforeTensors& before, int first, int count, int room) {
    for (int i = threadIdx.x; i < room; i += THREADS)
        by[i] = i < count ? affine(first + i, before.mean, before.inverse_std, before.weight, before.bias) : AffineOf<float>{0, 0, 0};
}

// What the activation makes of normalised numbers. For ReLU that is one instruction, which makes 0 of -0: no sum can tell.
template <int N>
__device__ __forceinline__ void activate(float (&normal)[N], float slope) {
    if (slope == 0) {
#pragma unroll
        for (int i = 0; i < N; ++i) normal[i] = positive(normal[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) normal[i] = normal[i] > 0 ? normal[i] : normal[i] * slope;
    }
}
