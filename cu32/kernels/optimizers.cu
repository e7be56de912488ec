// Fused optimizer steps over many tensors in one launch. REAL: float or double.
//
// A table passed by value names the tensors of the launch; each is cut into chunks, and a block takes one chunk. What is
// written as fma here is one operation on vectors and single elements alike, so that results depend on no alignment.
#include "common.cuh"

typedef REAL T;

constexpr int BLOCK = 256;
constexpr int CHUNK = 2048;
constexpr int TABLE_BYTES = 3936;  // of the 4096 that a kernel's parameters may take

// For each tensor its ROWS addresses (parameter, gradient, states), its elements, and the first block that works on it.
template <int ROWS>
struct alignas(8) Table {
    static constexpr int MOST = TABLE_BYTES / (8 * ROWS + 12);
    T* address[ROWS][MOST];
    int64 size[MOST];
    uint32 first[MOST];
    uint32 count;
};

// The last tensor whose first block is not beyond this one.
template <int ROWS>
__device__ __forceinline__ uint32 owner(const Table<ROWS>& table) {
    uint32 low = 0, high = table.count - 1;
    while (low < high) {
        const uint32 middle = (low + high + 1) / 2;
        if (table.first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// step(values) on the values of every row at each element of this block's chunk; writes back all but the gradient.
template <int ROWS, class Step>
__device__ __forceinline__ void update(const Table<ROWS>& table, Step step) {
    const uint32 tensor = owner(table);
    const int64 start = (int64)(blockIdx.x - table.first[tensor]) * CHUNK;
    const int64 left = table.size[tensor] - start;
    const int length = left < CHUNK ? (int)left : CHUNK;
    T* at[ROWS];
    uint64 bits = 0;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        at[row] = table.address[row][tensor] + start;
        bits |= (uint64)at[row];
    }
    const int vectors = bits % alignof(vec4<T>) == 0 ? length / 4 : 0;
    for (int i = threadIdx.x; i < vectors; i += BLOCK) {
        vec4<T> v[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; row++) v[row] = reinterpret_cast<const vec4<T>*>(at[row])[i];
        T x[ROWS], y[ROWS], z[ROWS], w[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; row++) x[row] = v[row].x, y[row] = v[row].y, z[row] = v[row].z, w[row] = v[row].w;
        step(x), step(y), step(z), step(w);
#pragma unroll
        for (int row = 0; row < ROWS; row++)
            if (row != 1) reinterpret_cast<vec4<T>*>(at[row])[i] = {x[row], y[row], z[row], w[row]};
    }
    for (int i = 4 * vectors + threadIdx.x; i < length; i += BLOCK) {
        T x[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; row++) x[row] = at[row][i];
        step(x);
#pragma unroll
        for (int row = 0; row < ROWS; row++)
            if (row != 1) at[row][i] = x[row];
    }
}

// The numbers of a step, as alpha/update_rules.py has them: by value, or from memory that a captured graph rewrites
// before each replay.
struct alignas(8) Adam {
    T step_size, correction, gain1, beta2, gain2, eps, decay, shrink;
};
struct alignas(8) Sgd {
    T lr, momentum, gain, decay, first, nesterov;
};
struct alignas(8) Rmsprop {
    T lr, alpha, gain, eps, decay, momentum;
};

// The gradient with its weight decay; without decay a parameter that is not finite leaves it alone. Of the two ways to
// say so the compiler makes registers of one and spills of the other, in turn for float and double.
__device__ __forceinline__ float decayed(float decay, float parameter, float grad) {
    return fma(decay, decay == 0 ? 0.0f : parameter, grad);
}
__device__ __forceinline__ double decayed(double decay, double parameter, double grad) {
    return decay == 0 ? grad : fma(decay, parameter, grad);
}

// Rows: parameter, gradient, first and second moments.
extern "C" __global__ void __launch_bounds__(BLOCK) adam(
    const __grid_constant__ Table<4> table, Adam given, const Adam* live
) {
    const Adam s = live ? *live : given;
    update(table, [&s](T(&v)[4]) {
        const T grad = decayed(s.decay, v[0], v[1]);
        v[2] = fma(s.gain1, grad - v[2], v[2]);
        v[3] = fma(s.gain2 * grad, grad, s.beta2 * v[3]);
        v[0] = fma(-s.step_size, v[2] / (sqrt(v[3]) / s.correction + s.eps), s.shrink * v[0]);
    });
}

// Rows: parameter, gradient.
extern "C" __global__ void __launch_bounds__(BLOCK) sgd(
    const __grid_constant__ Table<2> table, Sgd given, const Sgd* live
) {
    const Sgd s = live ? *live : given;
    update(table, [&s](T(&v)[2]) { v[0] = fma(-s.lr, decayed(s.decay, v[0], v[1]), v[0]); });
}

// Rows: parameter, gradient, momentum.
extern "C" __global__ void __launch_bounds__(BLOCK) sgd_momentum(
    const __grid_constant__ Table<3> table, Sgd given, const Sgd* live
) {
    const Sgd s = live ? *live : given;
    update(table, [&s](T(&v)[3]) {
        const T grad = decayed(s.decay, v[0], v[1]);
        v[2] = s.first != 0 ? grad : fma(s.momentum, v[2], s.gain * grad);
        v[0] = fma(-s.lr, s.nesterov != 0 ? fma(s.momentum, v[2], grad) : v[2], v[0]);
    });
}

// Rows: parameter, gradient, mean of squares, then momentum and mean where they are kept.
template <bool MOMENTUM, bool CENTERED, int ROWS>
__device__ __forceinline__ void rmsprop_step(const Table<ROWS>& table, const Rmsprop& s) {
    update(table, [&s](T(&v)[ROWS]) {
        const T grad = decayed(s.decay, v[0], v[1]);
        v[2] = fma(s.gain * grad, grad, s.alpha * v[2]);
        T spread = v[2];
        if constexpr (CENTERED) {
            T& mean = v[ROWS - 1];
            mean = fma(s.gain, grad - mean, mean);
            spread = fma(-mean, mean, spread);
        }
        T move = grad / (sqrt(spread) + s.eps);
        if constexpr (MOMENTUM) move = v[3] = fma(s.momentum, v[3], move);
        v[0] = fma(-s.lr, move, v[0]);
    });
}

#define RMSPROP(name, momentum, centered)                                                                    \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                      \
        name(const __grid_constant__ Table<3 + momentum + centered> table, Rmsprop given, const Rmsprop* live) { \
        const Rmsprop s = live ? *live : given;                                                              \
        rmsprop_step<momentum, centered>(table, s);                                                          \
    }
RMSPROP(rmsprop, 0, 0)
RMSPROP(rmsprop_momentum, 1, 0)
RMSPROP(rmsprop_centered, 0, 1)
RMSPROP(rmsprop_centered_momentum, 1, 1)
