// Element-wise kernels of one, two and three operands, for an operation given as a class with a static `of`.
#pragma once
#include "strided.cuh"

// Elements of a step: 16 bytes' worth where all operands are aligned for it (-DWIDTH=4), else 1.
constexpr int V = WIDTH;

#define KERNEL extern "C" __global__ void __launch_bounds__(LOOP_THREADS)

// Shares a loop out over the grid, U steps of a thread at a time: the loads of all U are on their way before the first
// store, which the compiler could not do by itself, as the result may be an operand.
template <int N, int U, class Body>
__device__ __forceinline__ void each(const Loop& loop, const Body& body) {
    const uint32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint32 i = first; i < loop.count; i += U * step) {
        int at[U][N];
        typename Body::template Values<V> values[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (i + u * step < loop.count) {
                locate(loop, i + u * step, at[u]);
                body.template read<V>(at[u], loop.splat, values[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (i + u * step < loop.count) body.template write<V>(at[u][0], values[u]);
        }
    }
    if (first < loop.tail) {
        int at[N];
        typename Body::template Values<1> values;
        locate_tail(loop, V, first, at);
        body.template read<1>(at, 0, values);
        body.template write<1>(at[0], values);
    }
}

template <class Op, class R, class T>
struct Unary {
    R* out;
    const T* x;
    T number;

    template <int W>
    struct Values {
        Pack<T, W> x;
    };

    template <int W>
    __device__ __forceinline__ void read(const int (&at)[2], uint32 splat, Values<W>& values) const {
        values.x = load<T, W>(x, at[1], splat & 2, number);
    }

    template <int W>
    __device__ __forceinline__ void write(int at, const Values<W>& values) const {
        Pack<R, W> result;
#pragma unroll
        for (int k = 0; k < W; ++k) result.at[k] = Op::of(values.x.at[k]);
        store(out, at, result);
    }
};

template <class Op, class R, class T>
struct Binary {
    R* out;
    const T *x, *y;
    T number;  // stands for the operand that is null

    template <int W>
    struct Values {
        Pack<T, W> x, y;
    };

    template <int W>
    __device__ __forceinline__ void read(const int (&at)[3], uint32 splat, Values<W>& values) const {
        values.x = load<T, W>(x, at[1], splat & 2, number);
        values.y = load<T, W>(y, at[2], splat & 4, number);
    }

    template <int W>
    __device__ __forceinline__ void write(int at, const Values<W>& values) const {
        Pack<R, W> result;
#pragma unroll
        for (int k = 0; k < W; ++k) result.at[k] = Op::of(values.x.at[k], values.y.at[k]);
        store(out, at, result);
    }
};

template <class T>
struct Select {
    T* out;
    const uint8* condition;
    const T *x, *y;
    T x_number, y_number;

    template <int W>
    struct Values {
        Pack<uint8, W> condition;
        Pack<T, W> x, y;
    };

    template <int W>
    __device__ __forceinline__ void read(const int (&at)[4], uint32 splat, Values<W>& values) const {
        values.condition = load<uint8, W>(condition, at[1], splat & 2, 0);
        values.x = load<T, W>(x, at[2], splat & 4, x_number);
        values.y = load<T, W>(y, at[3], splat & 8, y_number);
    }

    template <int W>
    __device__ __forceinline__ void write(int at, const Values<W>& values) const {
        Pack<T, W> result;
#pragma unroll
        for (int k = 0; k < W; ++k) result.at[k] = values.condition.at[k] ? values.x.at[k] : values.y.at[k];
        store(out, at, result);
    }
};

template <class Op, int U = 2, class R, class T>
__device__ __forceinline__ void unary(const Loop& loop, R* out, const T* x) {
    each<2, U>(loop, Unary<Op, R, T>{out, x, T()});
}

template <class Op, int U = 2, class R, class T>
__device__ __forceinline__ void binary(const Loop& loop, R* out, const T* x, const T* y, T number) {
    each<3, U>(loop, Binary<Op, R, T>{out, x, y, number});
}
