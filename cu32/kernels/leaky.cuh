// LeakyReLU and its gradient. ReLU, its slope 0, is no product: that would make NaN of infinities, and lose NaN's gradient.
#pragma once
#include "common.cuh"

// The value where it is above 0, else its product with the slope, or 0 for a slope of 0; NaN stays NaN.
template <class T>
__device__ __forceinline__ T leaky(T value, T slope) {
    return slope == T(0) ? (value < T(0) ? T(0) : value) : value > T(0) ? value : value * slope;
}

// The gradient for what leaky took: y is that, or the result where the slope is not negative.
template <class T>
__device__ __forceinline__ T past_leaky(T grad, T y, T slope) {
    return slope == T(0) ? (y <= T(0) ? T(0) : grad) : y > T(0) ? grad : grad * slope;
}
