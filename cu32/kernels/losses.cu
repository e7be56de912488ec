// Softmax and cross entropy of rows, and its gradient. REAL: float or double.
//
// A team of `lanes` threads (a power of two) owns a row: part of a warp, a warp, or for long rows the whole block. Sums
// are accumulated in double, each lane its own elements, then over a tree: the order depends on nothing but the shape.
#include "checks.cuh"
#include "reduce.cuh"

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

// What a team finds out about its row. Its first lane alone is given the loss.
struct Row {
    const int lane;
    const int64 row;
    const bool there;

    __device__ __forceinline__ Row(int64 rows, int lanes)
        : lane(threadIdx.x % lanes), row((int64)blockIdx.x * (BLOCK / lanes) + threadIdx.x / lanes), there(row < rows) {}

    // p, unless it is null, becomes softmax(x). A label out of range reads nothing and gives NaN.
    __device__ __forceinline__ T loss(const T* x, T* p, int64 label, int64 columns, int64 x_step, double smoothing, int lanes) const {
        const int64 end = there ? columns : 0;  // every lane takes part in the exchanges
        x += there ? row * x_step : 0;
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
        if (p) {
            const T inverse = (T)1 / (T)total;
            p += there ? row * columns : 0;
            for (int64 i = lane; i < end; i += lanes) p[i] = exponential(x[i] - largest) * inverse;
        }
        if (smoothing != 0) distance = team<Sum>(distance, lanes);
        if (!there || lane != 0) return 0;
        if (label < 0 || label >= columns) return infinity() - infinity();
        const double picked = (double)(x[label] - largest);
        // Not a sum with 0 * mean: where one class is impossible the mean is infinite.
        const double target = smoothing == 0 ? picked : (1 - smoothing) * picked + smoothing * (distance / (double)columns);
        return (T)(log(total) - target);
    }
};

// losses (rows,) and p (rows, columns) = softmax(x) of x (rows, columns), rows x_step apart, for labels label_step apart.
extern "C" __global__ void __launch_bounds__(BLOCK, 2) cross_entropy(
    const T* x, const int64* labels, T* losses, T* p, int64 rows, int64 columns, int64 x_step, int64 label_step,
    double smoothing, int lanes
) {
    const Row row(rows, lanes);
    const bool tells = row.there && row.lane == 0;
    const T loss = row.loss(x, p, tells ? labels[row.row * label_step] : 0, columns, x_step, smoothing, lanes);
    if (tells) losses[row.row] = loss;
}

// Of a block's rows that count: their losses, and how many they are.
struct Total {
    double losses[BLOCK];
    int64 rows[BLOCK];
    int last;

    // In all threads' order, which is that of nothing but their numbers.
    __device__ __forceinline__ void sum(double loss, int64 count) {
        losses[threadIdx.x] = loss;
        rows[threadIdx.x] = count;
        combine_lanes(threadIdx.x, BLOCK, 1, [&](int i, int j) {
            losses[i] += losses[j];
            rows[i] += rows[j];
        });
    }
};

enum Reduction { NONE, SUM, MEAN };

// How rows' losses become a loss. followed: the labels in range, -1 of rows to ignore; factor: what the gradient of a row's
// loss is multiplied by. losses_of and rows_of: partial totals of each block; counter: 0 before and after; flag: see
// checks.cuh, or null.
struct Losses {
    T *losses, *factor;
    int64* followed;
    double* losses_of;
    int64* rows_of;
    unsigned* counter;
    uint64* flag;
    int64 ignore;
    int reduction;

    // A label that may be followed; `counts` tells whether its row does.
    __device__ __forceinline__ int64 checked(int64 label, int64 row, int64 columns, bool& counts) const {
        counts = label != ignore;
        if (!counts) return 0;
        if (label >= 0 && label < columns) return label;
        if (flag) atomicMin(flag, report(row, label));
        return 0;
    }

    // Every thread of the block calls it; those that `tell` have a row, and its loss where it counts.
    __device__ __forceinline__ void finish(Total& total, bool tells, int64 row, bool counts, int64 label, T loss) const {
        if (!counts) loss = 0;
        if (tells) followed[row] = counts ? label : -1;
        if (reduction == NONE) {
            if (tells) losses[row] = loss;
            if (blockIdx.x == 0 && threadIdx.x == 0) *factor = 1;
            return;
        }
        total.sum(loss, counts);
        if (threadIdx.x == 0) losses_of[blockIdx.x] = total.losses[0], rows_of[blockIdx.x] = total.rows[0];
        if (!is_last_block(counter, gridDim.x, &total.last)) return;
        double sum = 0;
        int64 count = 0;
        for (unsigned block = threadIdx.x; block < gridDim.x; block += BLOCK) {
            sum += __ldcg(losses_of + block);
            count += __ldcg(rows_of + block);
        }
        total.sum(sum, count);
        if (threadIdx.x != 0) return;
        const double divisor = reduction == MEAN ? (double)total.rows[0] : 1.0;
        *losses = (T)(total.losses[0] / divisor);
        *factor = (T)(1 / divisor);
    }
};

// The losses, their sum or their mean, with p as above.
extern "C" __global__ void __launch_bounds__(BLOCK, 2) cross_entropy_loss(
    const T* x, const int64* labels, T* losses, T* p, int64* followed, T* factor, double* losses_of, int64* rows_of,
    unsigned* counter, uint64* flag, int64 rows, int64 columns, int64 x_step, int64 label_step, int64 ignore,
    double smoothing, int reduction, int lanes
) {
    __shared__ Total total;
    const Losses all = {losses, factor, followed, losses_of, rows_of, counter, flag, ignore, reduction};
    const Row row(rows, lanes);
    const bool tells = row.there && row.lane == 0;
    bool counts = false;
    const int64 label = tells ? all.checked(labels[row.row * label_step], row.row, columns, counts) : 0;
    const T loss = row.loss(x, p, label, columns, x_step, smoothing, lanes);
    all.finish(total, tells, row.row, counts, label, loss);
}

// The same of -x[row][label]: a thread has a row.
extern "C" __global__ void __launch_bounds__(BLOCK) nll_loss(
    const T* x, const int64* labels, T* losses, int64* followed, T* factor, double* losses_of, int64* rows_of,
    unsigned* counter, uint64* flag, int64 rows, int64 columns, int64 x_row, int64 x_column, int64 label_step, int64 ignore,
    int reduction
) {
    __shared__ Total total;
    const Losses all = {losses, factor, followed, losses_of, rows_of, counter, flag, ignore, reduction};
    const int64 row = (int64)blockIdx.x * BLOCK + threadIdx.x;
    const bool tells = row < rows;
    bool counts = false;
    const int64 label = tells ? all.checked(labels[row * label_step], row, columns, counts) : 0;
    all.finish(total, tells, row, counts, label, counts ? -x[row * x_row + label * x_column] : (T)0);
}

// dx = -scale[row] * each where the column is the row's label, and else 0; dense.
extern "C" __global__ void __launch_bounds__(BLOCK) nll_loss_grad(
    const int64* followed, const T* scale, const T* each, T* dx, int64 rows, int64 columns, int64 scale_step
) {
    GRID_STRIDE(i, rows * columns) {
        const int64 row = i / columns;
        dx[i] = i - row * columns == followed[row] ? -(scale[row * scale_step] * *each) : (T)0;
    }
}

// dx = scale[row] * each * (p - everywhere - (at_label where the column is the label)); all dense but the steps given. An
// infinite scale is inf - inf at the label, as PyTorch's, which scales each term by itself. each: one number, or null;
// with it, rows whose label is below 0 get zeros.
extern "C" __global__ void __launch_bounds__(BLOCK) cross_entropy_grad(
    const T* p, const int64* labels, const T* scale, const T* each, T* dx, int64 rows, int64 columns, int64 label_step,
    int64 scale_step, T everywhere, T at_label, int lanes
) {
    const int64 row = (int64)blockIdx.x * (BLOCK / lanes) + threadIdx.x / lanes;
    if (row >= rows) return;
    const int64 label = labels[row * label_step];
    const T factor = each ? scale[row * scale_step] * *each : scale[row * scale_step];
    const bool counts = !each || label >= 0;
    p += row * columns;
    dx += row * columns;
    for (int64 i = threadIdx.x % lanes; i < columns; i += lanes)
        dx[i] = counts ? (p[i] - everywhere - (i == label ? at_label : (T)0)) * factor + (i == label ? factor - factor : (T)0) : (T)0;
}
