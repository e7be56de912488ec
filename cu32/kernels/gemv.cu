// Products that memory alone bounds: a matrix by a vector, in both of the matrix's orders, and two vectors' outer product.
// Every element of a matrix is read or written once, by neighbouring threads. Macros: REAL, float or double; VECTOR, the
// elements that a thread moves at once, 4 (16-byte addresses, sizes in whole fours) or 1.
#include "products.cuh"

constexpr int WARPS = 8;

struct Elements {
    REAL at[VECTOR];

    __device__ __forceinline__ explicit Elements(const REAL* place) {
        if constexpr (VECTOR == 4) {
            const vec4<REAL> value = *reinterpret_cast<const vec4<REAL>*>(place);
            at[0] = value.x, at[1] = value.y, at[2] = value.z, at[3] = value.w;
        } else {
            at[0] = *place;
        }
    }
};

// out[row] = sum over depth of a[row * leading + depth] * x[depth]: one warp per row, or per part of one.
extern "C" __global__ void __launch_bounds__(WARPS * WARP)
gemv_across(const REAL* __restrict__ a, const REAL* __restrict__ x, REAL* __restrict__ out, const Product p) {
    const int64 task = thread_index() / WARP, lane = threadIdx.x % WARP;
    if (task >= p.batches * p.rows * p.parts) return;
    const int64 part = task % p.parts, row = task / p.parts % p.rows, batch = task / p.parts / p.rows;
    const Offsets at = batch_offsets(p, batch);
    a += at.a + row * p.a_leading;
    x += at.b;
    const int64 begin = part * p.part, end = p.depth - begin < p.part ? p.depth : begin + p.part;
    REAL sum[VECTOR] = {};
#pragma unroll 4
    for (int64 k = begin + lane * VECTOR; k < end; k += WARP * VECTOR) {
        const Elements left(a + k), right(x + k);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) sum[v] += left.at[v] * right.at[v];
    }
#pragma unroll
    for (int v = 1; v < VECTOR; ++v) sum[0] += sum[v];
    const REAL total = warp_sum(sum[0]);
    if (lane == 0) out[(part * p.batches + batch) * p.rows + row] = total;
}

// out[row] = sum over depth of a[depth * leading + row] * x[depth]: one or four rows per lane, a block's warps taking turns over the depth.
extern "C" __global__ void __launch_bounds__(WARPS * WARP)
gemv_along(const REAL* __restrict__ a, const REAL* __restrict__ x, REAL* __restrict__ out, const Product p) {
    constexpr int ROWS = WARP * VECTOR;
    __shared__ REAL shared[WARPS][ROWS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64 tiles = ceil_div<int64>(p.rows, ROWS), first = blockIdx.x % tiles * ROWS, rest = blockIdx.x / tiles;
    const int64 part = rest % p.parts, batch = rest / p.parts;
    const int64 row = first + lane * VECTOR;
    REAL sum[VECTOR] = {};
    if (row < p.rows) {
        const Offsets at = batch_offsets(p, batch);
        a += at.a + row;
        x += at.b;
        const int64 begin = part * p.part, end = p.depth - begin < p.part ? p.depth : begin + p.part;
#pragma unroll 4
        for (int64 k = begin + warp; k < end; k += WARPS) {
            const Elements left(a + k * p.a_leading);
            const REAL right = x[k];
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) sum[v] += left.at[v] * right;
        }
    }
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) shared[warp][lane * VECTOR + v] = sum[v];
    __syncthreads();
    const int64 mine = first + threadIdx.x;
    if (threadIdx.x >= ROWS || mine >= p.rows) return;
    REAL total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) total += shared[w][threadIdx.x];
    out[(part * p.batches + batch) * p.rows + mine] = total;
}

// out[row][column] = a[row * a_leading] * b[column * b_leading]; Index counts the elements of out.
template <class Index>
__device__ __forceinline__ void outer_product(const REAL* a, const REAL* b, REAL* out, const Product& p) {
    const Index pieces = (Index)(p.columns / VECTOR), rows = (Index)p.rows;
    GRID_STRIDE(i, p.batches * p.rows * pieces) {
        const Index line = (Index)i / pieces, column = ((Index)i - line * pieces) * VECTOR;
        const Index batch = line / rows, row = line - batch * rows;
        const Offsets at = p.batches > 1 ? batch_offsets(p, batch) : Offsets{0, 0};
        const REAL left = a[at.a + row * p.a_leading];
        REAL* place = out + i * VECTOR;
        if constexpr (VECTOR == 4) {
            const Elements right(b + at.b + column);
            *reinterpret_cast<vec4<REAL>*>(place) = {left * right.at[0], left * right.at[1], left * right.at[2],
                                                     left * right.at[3]};
        } else {
            *place = left * b[at.b + column * p.b_leading];
        }
    }
}

extern "C" __global__ void outer(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out, const Product p) {
    if (p.batches * p.rows * p.columns < (1ll << 31)) {
        outer_product<uint32>(a, b, out, p);
    } else {
        outer_product<int64>(a, b, out, p);
    }
}

// out[row][column] = a[row][column] + scale * x[row] * y[column], or without a; out may be a. Rows lie `leading` apart.
extern "C" __global__ void rank_one(
    const REAL* a, const REAL* x, const REAL* y, REAL* out, int64 rows, int64 columns, int64 a_leading, int64 x_step,
    int64 y_step, int64 out_leading, REAL scale
) {
    const int64 pieces = columns / VECTOR;
    GRID_STRIDE(i, rows * pieces) {
        const int64 row = i / pieces, column = (i - row * pieces) * VECTOR;
        const REAL factor = scale * x[row * x_step];
        REAL* place = out + row * out_leading + column;
        if constexpr (VECTOR == 4) {
            const Elements right(y + column);
            vec4<REAL> sum = {};
            if (a) sum = *reinterpret_cast<const vec4<REAL>*>(a + row * a_leading + column);
            *reinterpret_cast<vec4<REAL>*>(place) = {sum.x + factor * right.at[0], sum.y + factor * right.at[1],
                                                     sum.z + factor * right.at[2], sum.w + factor * right.at[3]};
        } else {
            *place = (a ? a[row * a_leading + column] : (REAL)0) + factor * y[column * y_step];
        }
    }
}
