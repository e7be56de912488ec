// Matrix products on the tensor cores: panels that asynchronous copies bring to shared memory a few stages ahead, fragments
// read from them without a bank conflict, sums in float32. Macro PRODUCTS:
//   1: operands are rounded to TF32 (10 bits of mantissa, to nearest) as they are read from shared memory.
//   3: an operand is the sum of two numbers of TF32, high and low, and a product that of high by high, high by low and low
//      by high; what is left out is below 2^-21 of it. The tensor cores' sums, which are cut off, are of eight terms, and
//      are then added in float32. (Ootomo and Yokota, arXiv 2203.03341.)
// Other macros: STEP_DEPTH, of a step; TENSOR_DOWN, TENSOR_ACROSS, how a block's warps share a tile; READY, 1 where operands are
// rounded before they come to shared memory.
#pragma once
#include "before.cuh"
#include "layout.cuh"
#include "neighbours.cuh"
#include "ptx.cuh"

#ifndef STEP_DEPTH
#define STEP_DEPTH 32  // one row of an ACROSS panel is then 128 bytes
#endif
#ifndef TENSOR_DOWN
#define TENSOR_DOWN 2
#define TENSOR_ACROSS 2
#endif
#ifndef READY
#define READY 0
#endif

constexpr int DEPTH = STEP_DEPTH;
constexpr int THREADS = TENSOR_DOWN * TENSOR_ACROSS * WARP;
constexpr int STEP_K = 8;  // depth of one instruction

// By what number the pieces of a row of an ACROSS panel change places: eight neighbouring rows' then lie in different banks.
__device__ __forceinline__ int turned(int row) { return DEPTH == 32 ? row % 8 : row / 2 % 4; }

// A panel of EDGE x DEPTH elements in shared memory, in whole pieces of 16 bytes.
//   ACROSS: [edge][depth]; the pieces of a row change places by the row's number, so that ldmatrix, which takes one
//           piece from each of eight rows, finds them in different banks.
//   ALONG:  [depth][edge]; groups of eight edges change places by the depth's number, so that the four depths that a
//           fragment's lanes read at once are in different banks.
template <Layout LAYOUT, int EDGE>
struct SharedPanel {
    static constexpr int PITCH = LAYOUT == ACROSS ? DEPTH : EDGE;
    static constexpr int FLOATS = EDGE * DEPTH;
    static constexpr int RUN = (LAYOUT == ACROSS ? DEPTH : EDGE) / 4;  // pieces side by side
    static constexpr int PIECES = EDGE * DEPTH / 4 / THREADS;          // of each thread
    static constexpr int ROUND = THREADS / RUN;  // from one piece of a thread to its next: edges ACROSS, depths ALONG

    // The first piece of this thread. Its others follow by ROUND, which keeps the swizzle.
    static __device__ __forceinline__ int edge() { return LAYOUT == ACROSS ? threadIdx.x / RUN : threadIdx.x % RUN * 4; }
    static __device__ __forceinline__ int depth() { return LAYOUT == ACROSS ? threadIdx.x % RUN * 4 : threadIdx.x / RUN; }
    static __device__ __forceinline__ float* piece(float* panel, int i) {
        if (LAYOUT == ACROSS) return panel + (edge() + i * ROUND) * PITCH + ((depth() / 4) ^ turned(edge())) * 4;
        return panel + (depth() + i * ROUND) * PITCH + swizzled(edge(), depth());
    }
    static_assert(ROUND % (LAYOUT == ACROSS ? 8 : 4) == 0, "the swizzle of all pieces of a thread is that of its first");

    // Fragments of 16 rows of a left operand, from `edge` and depth k on (multiples of 16 and 8).
    static __device__ __forceinline__ void left(unsigned (&fragment)[4], const float* panel, int edge, int k) {
        const int lane = threadIdx.x % WARP;
        if (LAYOUT == ACROSS) {
            const int row = edge + lane % 16, piece = (k / 4 + lane / 16) ^ turned(lane);
            ldmatrix_x4(fragment, panel + row * PITCH + piece * 4);
        } else {
            const float* row = panel + (k + lane % 4) * PITCH;
            const int first = swizzled(edge + lane / 4, lane);
#pragma unroll
            for (int i = 0; i < 4; ++i) fragment[i] = __float_as_uint(row[i / 2 * 4 * PITCH + (first ^ i % 2 * 8)]);
        }
    }

    // Fragments of twice 8 columns of a right operand.
    static __device__ __forceinline__ void right(unsigned (&first)[2], unsigned (&second)[2], const float* panel, int edge, int k) {
        const int lane = threadIdx.x % WARP;
        if (LAYOUT == ACROSS) {
            const int row = edge + lane / 16 * 8 + lane % 8, piece = (k / 4 + lane / 8 % 2) ^ turned(lane);
            unsigned both[4];
            ldmatrix_x4(both, panel + row * PITCH + piece * 4);
            first[0] = both[0], first[1] = both[1], second[0] = both[2], second[1] = both[3];
        } else {
            const float* row = panel + (k + lane % 4) * PITCH;
            const int place = swizzled(edge + lane / 4, lane);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                first[i] = __float_as_uint(row[i * 4 * PITCH + place]);
                second[i] = __float_as_uint(row[i * 4 * PITCH + (place ^ 8)]);
            }
        }
    }

   private:
    // Where an edge lies in an ALONG panel's row of such a depth.
    static __device__ __forceinline__ int swizzled(int edge, int depth) { return edge ^ depth % 4 * 8; }
};

// What becomes of fragments before they are multiplied: they are rounded, unless they are already or are split later.
struct Rounded {
    template <int N>
    __device__ __forceinline__ void left(unsigned (&bits)[N], int) const {
        round(bits);
    }
    template <int N>
    __device__ __forceinline__ void right(unsigned (&bits)[N], int) const {
        round(bits);
    }
    __device__ __forceinline__ void advance() {}

    static __device__ __forceinline__ unsigned factor(float value) {
        return PRODUCTS == 1 && !READY ? to_tf32(value) : __float_as_uint(value);
    }

   protected:
    template <int N>
    static __device__ __forceinline__ void round(unsigned (&bits)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) bits[i] = factor(__uint_as_float(bits[i]));
    }
};

// Left fragments, which lie ACROSS, are normalised too. A stage has DEPTH neighbouring channels; behind the last ones the first
// follow, of another tap.
struct NormalisedLeft : Rounded {
    const AffineOf<float> *first, *end, *at;  // of all channels of a group, and of a stage's
    float slope;

    __device__ __forceinline__ void left(unsigned (&bits)[4], int k) const {
        const AffineOf<float>* const by = at + k + threadIdx.x % 4;
        float normal[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) normal[i] = normalise(__uint_as_float(bits[i]), by[i / 2 * 4]);
        activate(normal, slope);
#pragma unroll
        for (int i = 0; i < 4; ++i) bits[i] = factor(normal[i]);
    }
    __device__ __forceinline__ void advance() {
        at += DEPTH;
        if (at == end) at = first;
    }
};

// Right fragments, which lie ALONG, are normalised too.
struct NormalisedRight : Rounded {
    const AffineOf<float>* by;  // of the tile's columns
    float slope;

    __device__ __forceinline__ void right(unsigned (&bits)[2], int column) const {
        const AffineOf<float> own = by[column + threadIdx.x % WARP / 4];
        float normal[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) normal[i] = normalise(__uint_as_float(bits[i]), own);
        activate(normal, slope);
#pragma unroll
        for (int i = 0; i < 2; ++i) bits[i] = factor(normal[i]);
    }
};

// Bits whose upper ones, which alone the tensor cores read, are a finite number rounded to nearest.
__device__ __forceinline__ unsigned nearest(float value) { return __float_as_uint(value) + 0x1000u; }

// Bits of float32 as high and low, each rounded to nearest. `special` becomes NaN where a low one is no number: an operand,
// or its high part, is beyond all numbers.
template <int N>
__device__ __forceinline__ void split(unsigned (&high)[N], unsigned (&low)[N], float& special) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float value = __uint_as_float(high[i]);
        high[i] = nearest(value) & ~0x1fffu;
        const float rest = value - __uint_as_float(high[i]);
        special = fmaf(rest, 0.0f, special);
        low[i] = nearest(rest);
    }
}

// The same of operands that may be infinite or no number: these are in `whole`, and in neither of the other two.
template <int N>
__device__ __forceinline__ void split_special(unsigned (&whole)[N], unsigned (&high)[N], unsigned (&low)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float value = __uint_as_float(whole[i]);
        const bool finite = (whole[i] & 0x7f800000u) != 0x7f800000u;
        if (finite) whole[i] &= ~0x1fffu;  // rounded, the largest numbers would become infinite
        high[i] = finite ? whole[i] : 0;
        low[i] = finite ? nearest(value - __uint_as_float(whole[i])) : 0;
    }
}

// A warp's share of a block's ROWS x COLUMNS sums. `Change` is what becomes of fragments.
template <Layout LEFT, Layout RIGHT, int ROWS, int TILE_WIDTH, class Change = Rounded>
struct TensorSums {
    using Left = SharedPanel<LEFT, ROWS>;
    using Right = SharedPanel<RIGHT, TILE_WIDTH>;
    static constexpr int DOWN = ROWS / TENSOR_DOWN / 16, WIDE = TILE_WIDTH / TENSOR_ACROSS / 8;
    static constexpr int STAGE = Left::FLOATS + Right::FLOATS;
    static_assert(DOWN * 16 * TENSOR_DOWN == ROWS && WIDE * 8 * TENSOR_ACROSS == TILE_WIDTH && WIDE % 2 == 0,
                  "whole fragments, columns in pairs of them");

    Change change;
    float sum[DOWN][WIDE][4] = {};

    static __device__ __forceinline__ int warp_row() { return threadIdx.x / WARP / TENSOR_ACROSS * (ROWS / TENSOR_DOWN); }
    static __device__ __forceinline__ int warp_column() { return threadIdx.x / WARP % TENSOR_ACROSS * (TILE_WIDTH / TENSOR_ACROSS); }

    // Where sum[i][j][2 * half] and the sum to its right are in the block.
    static __device__ __forceinline__ int row_of(int i, int half) { return warp_row() + i * 16 + half * 8 + threadIdx.x % WARP / 4; }
    static __device__ __forceinline__ int column_of(int j) { return warp_column() + j * 8 + threadIdx.x % 4 * 2; }

    // A thread's results, as ending.cuh asks for them.
    static constexpr int EACH_DOWN = 2 * DOWN, EACH_ACROSS = 2 * WIDE, RUN = 2, SHARE = 4, WARPS_DOWN = TENSOR_DOWN;
    static constexpr int COLUMNS = TILE_WIDTH;
    static constexpr bool HELD = true;
    __device__ __forceinline__ float& at(int r, int c) { return sum[r / 2][c / 2][r % 2 * 2 + c % 2]; }
    __device__ __forceinline__ float at(int r, int c) const { return sum[r / 2][c / 2][r % 2 * 2 + c % 2]; }
    static __device__ __forceinline__ int row_at(int r) { return row_of(r / 2, r % 2); }
    static __device__ __forceinline__ int column_at(int c) { return column_of(c / 2) + c % 2; }
    static __device__ __forceinline__ int warp_down() { return threadIdx.x / WARP / TENSOR_ACROSS; }

    // Adds one stage: the left panel, behind it the right one.
    __device__ __forceinline__ void accumulate(const float* stage) {
        if (PRODUCTS == 1)
            accumulate_rounded(stage);
        else
            accumulate_threefold(stage);
        change.advance();
    }

    // Adds the products of one instruction's depth, from k on, of a right panel; read(fragment, i, k) reads left fragment i.
    template <class Read>
    __device__ __forceinline__ void multiply(Read read, const float* panel, int k) {
        unsigned left[DOWN][4], right[WIDE][2];
#pragma unroll
        for (int i = 0; i < DOWN; ++i) read(left[i], i, k);
#pragma unroll
        for (int j = 0; j < WIDE; j += 2) read_right(right[j], right[j + 1], panel, j, k);
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; ++j) mma_tf32_m16n8k8(sum[i][j], left[i], right[j]);
    }

   private:
    __device__ __forceinline__ void read_left(unsigned (&fragment)[4], const float* panel, int i, int k) const {
        Left::left(fragment, panel, warp_row() + i * 16, k);
        change.left(fragment, k);
    }
    __device__ __forceinline__ void read_right(unsigned (&first)[2], unsigned (&second)[2], const float* panel, int j, int k) const {
        const int column = warp_column() + j * 8;
        Right::right(first, second, panel, column, k);
        change.right(first, column);
        change.right(second, column + 8);
    }

    __device__ __forceinline__ void accumulate_rounded(const float* stage) {
        const auto read = [&](unsigned (&left)[4], int i, int k) { read_left(left, stage, i, k); };
#pragma unroll
        for (int k = 0; k < DEPTH; k += STEP_K) multiply(read, stage + Left::FLOATS, k);
    }

    __device__ __forceinline__ void accumulate_threefold(const float* stage) {
#pragma unroll 1
        for (int k = 0; k < DEPTH; k += STEP_K) {
            unsigned right[WIDE][2], low_right[WIDE][2];
            float special_right = 0;
#pragma unroll
            for (int j = 0; j < WIDE; j += 2) {
                read_right(right[j], right[j + 1], stage + Left::FLOATS, j, k);
                split(right[j], low_right[j], special_right);
                split(right[j + 1], low_right[j + 1], special_right);
            }
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
                unsigned left[4], low_left[4];
                float special = special_right;
                read_left(left, stage, i, k);
                split(left, low_left, special);
                if (__any_sync(0xffffffffu, special != special)) {
                    add_special(i, stage, k);
                    continue;
                }
                // The small products first. Neighbours do not wait for each other.
                float part[WIDE][4];
#pragma unroll
                for (int j = 0; j < WIDE; ++j) first_mma_tf32_m16n8k8(part[j], low_left, right[j]);
#pragma unroll
                for (int j = 0; j < WIDE; ++j) mma_tf32_m16n8k8(part[j], left, low_right[j]);
#pragma unroll
                for (int j = 0; j < WIDE; ++j) mma_tf32_m16n8k8(part[j], left, right[j]);
#pragma unroll
                for (int j = 0; j < WIDE; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[i][j][e] += part[j][e];
            }
        }
    }

    // Eight terms of 16 rows some of which may be infinite or no number, which only meet the other side's higher parts.
    __device__ __forceinline__ void add_special(int i, const float* stage, int k) {
        unsigned left[4], high_left[4], low_left[4];
        read_left(left, stage, i, k);
        split_special(left, high_left, low_left);
#pragma unroll
        for (int j = 0; j < WIDE; j += 2) {
            unsigned right[2][2], high[2], low[2];
            read_right(right[0], right[1], stage + Left::FLOATS, j, k);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                float part[4];
                split_special(right[n], high, low);
                first_mma_tf32_m16n8k8(part, low_left, high);
                mma_tf32_m16n8k8(part, high_left, low);
                mma_tf32_m16n8k8(part, left, right[n]);
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j + n][e] += part[e];
            }
        }
    }
};

// Sums `steps` stages. feed.issue(stage) starts the copies of the next step's panels, called once per step in order; while
// this step is multiplied the copies of the next STAGES - 1 are under way. One barrier per step: it says that the step's
// copies have landed for all threads, and that all have done with the stage which is then filled anew.
template <int STAGES, class Sums, class Feed>
__device__ __forceinline__ void pipeline(Sums& sums, Feed& feed, int steps, float* shared) {
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) feed.issue(shared + stage * Sums::STAGE);
        cp_async_commit();
    }
    int full = 0, empty = STAGES - 1;
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) feed.issue(shared + empty * Sums::STAGE);
        cp_async_commit();
        sums.accumulate(shared + full * Sums::STAGE);
        full = full + 1 == STAGES ? 0 : full + 1;
        empty = empty + 1 == STAGES ? 0 : empty + 1;
    }
}

// Writes two neighbouring results of a row: `left` of them are inside. `aligned`: both may be written at once.
__device__ __forceinline__ void write_pair(float* to, const float* two, int left, bool aligned) {
    write_run<float, 2>(to, {{two[0], two[1]}}, left, aligned);
}
