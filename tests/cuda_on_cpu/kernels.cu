// Kernels of the test driver's own tests: some right, some with a fault planted.
#include "common.cuh"
#include "ptx.cuh"

extern "C" {

__global__ void add(const float* a, const float* b, float* out, int64 n) { GRID_STRIDE(i, n) out[i] = a[i] + SCALE * b[i]; }

__global__ void __launch_bounds__(64) bounded(float* out) { out[0] = 1; }

__global__ void increment(float* a, int64 n) { GRID_STRIDE(i, n) a[i] += 1; }

__global__ void total(const float* x, float* out, int64 n) {
    extern __shared__ float partial[];
    float sum = 0;
    GRID_STRIDE(i, n) sum += x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned count = blockDim.x; count > 1; count = (count + 1) / 2) {
        if (threadIdx.x < count / 2) partial[threadIdx.x] += partial[threadIdx.x + (count + 1) / 2];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = partial[0];
}

__global__ void warp(int* out) {
    int lane = threadIdx.x;
    out[lane] = __shfl_xor_sync(ALL_LANES, lane, 5);
    out[32 + lane] = __shfl_down_sync(ALL_LANES, lane, 3);
    out[64 + lane] = __shfl_up_sync(ALL_LANES, lane, 3);
    out[96 + lane] = __shfl_sync(ALL_LANES, lane, 2, 8);
    out[128 + lane] = (int)__ballot_sync(ALL_LANES, lane % 2);
    out[160 + lane] = __reduce_max_sync(ALL_LANES, lane);
    out[192 + lane] = warp_sum(lane);
    out[224 + lane] = __syncthreads_count(lane % 2);
    out[256 + lane] = __syncthreads_or(lane == 7) && !__syncthreads_and(lane == 7);
}

// out = a b for a of 16 x depth and b of depth x 8, eight of the depth at a time by asynchronous copies.
__global__ void product(const float* a, const float* b, float* out, int depth, int with_ldmatrix) {
    __shared__ alignas(16) float rows[2][16][8], columns[2][8][8];
    int lane = threadIdx.x, group = lane / 4, member = lane % 4;
    auto fetch = [&](int stage, int k) {
        cp_async16(&rows[stage][lane / 2][lane % 2 * 4], a + lane / 2 * depth + k + lane % 2 * 4);
        if (lane < 16) cp_async16(&columns[stage][lane / 2][lane % 2 * 4], b + (k + lane / 2) * 8 + lane % 2 * 4);
        cp_async_commit();
    };
    float sums[4] = {};
    fetch(0, 0);
    for (int k = 0, stage = 0; k < depth; k += 8, stage ^= 1) {
        if (k + 8 < depth)
            fetch(stage ^ 1, k + 8);
        else
            cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        unsigned x[4], y[2];
        if (with_ldmatrix)
            ldmatrix_x4(x, &rows[stage][lane % 16][lane / 16 * 4]);
        else
            for (int i = 0; i < 4; ++i) x[i] = __float_as_uint(rows[stage][group + 8 * (i % 2)][member + 4 * (i / 2)]);
        for (int i = 0; i < 4; ++i) x[i] = to_tf32(__uint_as_float(x[i]));
        for (int i = 0; i < 2; ++i) y[i] = to_tf32(columns[stage][member + 4 * i][group]);
        mma_tf32_m16n8k8(sums, x, y);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) out[(group + 8 * (i / 2)) * 8 + 2 * member + i % 2] = sums[i];
}

__global__ void rounded(float x, float* out) {
    out[0] = __fmaf_rn(x, x, -1.0f);
    out[1] = __fadd_rn(__fmul_rn(x, x), -1.0f);
}

__global__ void no_barrier(const float* x, float* out, int direction) {
    __shared__ float row[256];
    int t = threadIdx.x;
    row[t] = x[t];
    out[t] = row[(t - direction + 256) % 256];
}

__global__ void exchange(float* out, int with_barrier) {
    __shared__ float row[32];
    row[threadIdx.x] = 1;
    if (with_barrier) __syncwarp();
    out[threadIdx.x] = row[31 - threadIdx.x];
}

__global__ void same(int* out, int atomically) {
    if (atomically)
        atomicAdd(out + threadIdx.x, 1);
    else
        out[threadIdx.x] = 1;
}

__global__ void last_block(float* parts, int* count, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = (float)blockIdx.x;
        __threadfence();
        last = atomicAdd(count, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x) return;
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
    out[0] = sum;
}

__global__ void different_barriers(float* out) {
    if (threadIdx.x < 7)
        __syncthreads();
    else
        __syncthreads_or(1);
    out[threadIdx.x] = 1;
}

__global__ void warp_against_barrier(float* out) {
    if (threadIdx.x == 3)
        __syncthreads();
    else
        __syncwarp();
    out[threadIdx.x] = 1;
}

__global__ void different_shuffles(int* out) {
    int lane = threadIdx.x;
    if (lane < 16)
        out[lane] = __shfl_xor_sync(ALL_LANES, lane, 1);
    else
        out[lane] = __shfl_sync(ALL_LANES, lane, 1);
}

__global__ void read_at(const float* x, float* out, int64 index) { out[0] = x[index]; }
__global__ void write_at(float* x, float*, int64 index) { x[index] = 1; }

__global__ void shared_index(float* out, int index) {
    __shared__ float row[16];
    row[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = row[index];
}

__global__ void vector(const float* x, float* out) { *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(x); }

__global__ void copied(const float* x, float* out, int wait) {
    __shared__ alignas(16) float row[128];
    int first = threadIdx.x * 4;
    cp_async16(row + first, x + first);
    cp_async_commit();
    if (wait) cp_async_wait<0>();
    for (int i = first; i < first + 4; ++i) out[i] = row[i];
}

__global__ void divide(int* x) { x[0] = x[1] / x[2]; }
__global__ void trap(int*) { __trap(); }

}
