// Softmax and cross entropy of rows, and its gradient. REAL: float or double.
//
// A team of `lanes` threads (a power of two) owns a row: part of a warp, a warp, or for long rows the whole block. Sums
// are accumulated in double, each lane its own elements, then over a tree: the order depends on nothing but the shape.
#include "common.cuh"

typedef REAL T;

constexpr int BLOCK = 256;

// NVRTC knows neither INFINITY nor NAN.
__device__ __forceinline__ T infinity() { return (T)__int_as_float(0x7f800000); }

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

struct Sum {
    template <class V>
    static __device__ __forceinline__ V of(V a, V b) { return a + b; }
};
struct Largest {
    template <class V>
    static __device__ __forceinline__ V of(V a, V b) { return a > b ? a : b; }
};

// The team's result, in every lane of it. Teams of a warp or less never meet the barriers.
template <class Operation, class V>
__device__ __forceinline__ V team(V value, int lanes) {
    for (int step = min(lanes, WARP) / 2; step > 0; step /= 2)
        value = Operation::of(value, __shfl_xor_sync(ALL_LANES, value, step));
    if (lanes <= WARP) return value;
    __shared__ V of_warp[BLOCK / WARP];
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    value = of_warp[0];
    for (int warp = 1; warp < lanes / WARP; warp++) value = Operation::of(value, of_warp[warp]);
    __syncthreads();  // before the next result goes there
    return value;
}

// losses (rows,) and p (rows, columns) = softmax(x) of x (rows, columns), rows x_step apart, for labels label_step apart.
// A label out of range reads nothing and gives NaN.
extern "C" __global__ void __launch_bounds__(BLOCK, 2) cross_entropy(
    const T* x, const int64* labels, T* losses, T* p, int64 rows, int64 columns, int64 x_step, int64 label_step,
    double smoothing, int lanes
) {
    const int lane = threadIdx.x % lanes;
    const int64 row = (int64)blockIdx.x * (BLOCK / lanes) + threadIdx.x / lanes;
    const bool there = row < rows;
    const int64 end = there ? columns : 0;  // every lane takes part in the exchanges
    x += there ? row * x_step : 0;
    p += there ? row * columns : 0;
    T largest = -infinity();
    for (int64 i = lane; i < end; i += lanes) largest = Largest::of(largest, x[i]);
    largest = team<Largest>(largest, lanes);
    double total = 0, distance = 0;
    for (int64 i = lane; i < end; i += lanes) {
        const T below = x[i] - largest;
        total += (double)exponential(below);
        distance += (double)below;
    }
    total = team<Sum>(total, lanes);
    const T inverse = (T)1 / (T)total;
    for (int64 i = lane; i < end; i += lanes) p[i] = exponential(x[i] - largest) * inverse;
    if (smoothing != 0) distance = team<Sum>(distance, lanes);
    if (!there || lane != 0) return;
    const int64 label = labels[row * label_step];
    if (label < 0 || label >= columns) {
        losses[row] = infinity() - infinity();
        return;
    }
    const double picked = (double)(x[label] - largest);
    // Not a sum with 0 * mean: where one class is impossible the mean is infinite.
    const double target = smoothing == 0 ? picked : (1 - smoothing) * picked + smoothing * (distance / (double)columns);
    losses[row] = (T)(log(total) - target);
}

// dx = scale[row] * (p - everywhere - (at_label where the column is the label)); all dense but the steps given. An
// infinite scale is inf - inf at the label, as PyTorch's, which scales each term by itself.
extern "C" __global__ void __launch_bounds__(BLOCK) cross_entropy_grad(
    const T* p, const int64* labels, const T* scale, T* dx, int64 rows, int64 columns, int64 label_step,
    int64 scale_step, T everywhere, T at_label, int lanes
) {
    const int64 row = (int64)blockIdx.x * (BLOCK / lanes) + threadIdx.x / lanes;
    if (row >= rows) return;
    const int64 label = labels[row * label_step];
    const T factor = scale[row * scale_step];
    p += row * columns;
    dx += row * columns;
    for (int64 i = threadIdx.x % lanes; i < columns; i += lanes)
        dx[i] = (p[i] - everywhere - (i == label ? at_label : (T)0)) * factor + (i == label ? factor - factor : (T)0);
}
