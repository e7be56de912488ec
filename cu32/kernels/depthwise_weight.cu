// Depthwise Sk-dilated-V2: a thread holds the sums of SIDE x SIDE taps of its channels and walks over (row, ACROSS columns,
// image): what it reads of dy serves all these taps and what it reads of a line of x serves a row of them. A product whose
// x lies in the padding is left out. Macros:
//   REAL, VEC   as in depthwise.cu
//   STEP        1 or 2: the stride across, where taps are neighbours: a line of x is kept in registers; 0: any
//   SIDE        3, 5 or 7: taps of a thread down and across; larger filters take several passes
// A block's threads sum over different terms and add up in a fixed order; blocks leave parts, which another kernel adds.
//
// For 3x3 filters at stride 1 four positions cost 22 reads of 16 bytes, nearly all but 8 from the caches, and 144 FMAs: some
// 22 cycles of a multiprocessor per position and warp, which memory needs 68 for.
#include "common.cuh"

constexpr int THREADS = 256, ACROSS = STEP == 1 ? 4 : 2, TAPS = SIDE * SIDE;

struct Sizes {
    int64 images, channels, divisor;      // channels of dy; how many of them share one of x
    int64 out_rows, out_columns, in_rows, in_columns;
    int64 filter_rows, filter_columns;
    int64 stride_row, stride_column, padding_row, padding_column, dilation_row, dilation_column;
    int64 x_image, x_row, x_column, y_image, y_row, y_column;
    int64 width;                          // threads of a block along channels, a power of two; the others along terms
    int64 items;                          // (row, ACROSS columns, image) of one part
    int64 part_stride;
};

struct alignas(sizeof(REAL) * VEC) Pack {
    REAL at[VEC];
};
__device__ __forceinline__ Pack load(const REAL* place) { return *reinterpret_cast<const Pack*>(place); }

struct TapSums {
    Pack at[SIDE][SIDE] = {};

    __device__ __forceinline__ void add(int u, int t, const Pack& x, const Pack& y) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) at[u][t].at[v] += x.at[v] * y.at[v];
    }
};

// Where along x a thread's line begins and which of its products exist.
struct Line {
    int column, in_columns;  // of x: the first position's first tap, and how many there are
    int positions, taps;     // that exist
    int stride, dilation;
    int64 pitch;             // from a column of x to the next

    __device__ __forceinline__ bool inside(int offset) const { return (uint32)(column + offset) < (uint32)in_columns; }
    __device__ __forceinline__ bool whole() const {
        return column >= 0 && positions == ACROSS && taps == SIDE &&
               column + (ACROSS - 1) * stride + (SIDE - 1) * dilation < in_columns;
    }
};

// A line of x against ACROSS positions of dy, for row u of the taps; WHOLE where every product exists.
template <bool WHOLE>
__device__ __forceinline__ void add_line(TapSums& sums, int u, const REAL* x, const Pack (&y)[ACROSS], const Line& line) {
    if constexpr (STEP > 0) {
        constexpr int REACH = (ACROSS - 1) * STEP + SIDE;
        Pack kept[REACH];
#pragma unroll
        for (int q = 0; q < REACH; ++q, x += line.pitch) kept[q] = WHOLE || line.inside(q) ? load(x) : Pack{};
#pragma unroll
        for (int j = 0; j < ACROSS; ++j)
#pragma unroll
            for (int t = 0; t < SIDE; ++t)
                if (WHOLE || (j < line.positions && t < line.taps && line.inside(j * STEP + t))) sums.add(u, t, kept[j * STEP + t], y[j]);
    } else {
#pragma unroll
        for (int t = 0; t < SIDE; ++t)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
                const int offset = j * line.stride + t * line.dilation;
                if (WHOLE || (j < line.positions && t < line.taps && line.inside(offset))) sums.add(u, t, load(x + offset * line.pitch), y[j]);
            }
    }
}

// The sums of all threads of equal channels into the first ones', in halves.
__device__ __forceinline__ void add_up(TapSums& sums, Pack (*shared)[THREADS / 2], int width) {
    for (int half = THREADS / 2; half >= width; half /= 2) {
        const int thread = threadIdx.x;
        __syncthreads();
        if (half <= thread && thread < 2 * half) {
#pragma unroll
            for (int k = 0; k < TAPS; ++k) shared[k][thread - half] = sums.at[k / SIDE][k % SIDE];
        }
        __syncthreads();
        if (thread < half) {
#pragma unroll
            for (int k = 0; k < TAPS; ++k) {
                const Pack other = shared[k][thread];
#pragma unroll
                for (int v = 0; v < VEC; ++v) sums.at[k / SIDE][k % SIDE].at[v] += other.at[v];
            }
        }
    }
}

// blockIdx.x = tile of channels, .y = pass over the filter's SIDE x SIDE pieces, .z = part.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
depthwise_weight(const REAL* __restrict__ x, const REAL* __restrict__ y, REAL* __restrict__ out, const Sizes s) {
    __shared__ Pack shared[TAPS][THREADS / 2];
    const int width = (int)s.width, images = (int)s.images, filter_columns = (int)s.filter_columns;
    const int channel = (blockIdx.x * width + threadIdx.x % width) * VEC;
    const int pieces = ceil_div(filter_columns, SIDE);
    const int first_row = blockIdx.y / pieces * SIDE, first_column = blockIdx.y % pieces * SIDE;
    const int segments = ceil_div((int)s.out_columns, ACROSS), all = (int)s.out_rows * segments * images;
    const int begin = (int)(blockIdx.z * s.items), end = all - begin < (int)s.items ? all : begin + (int)s.items;

    TapSums sums;
    if (channel < (int)s.channels) {
        x += channel / (int)s.divisor;
        y += channel;
        Line line = {0, (int)s.in_columns, 0, filter_columns - first_column < SIDE ? filter_columns - first_column : SIDE,
                     (int)s.stride_column, (int)s.dilation_column, s.x_column};
        for (int item = begin + threadIdx.x / width; item < end; item += THREADS / width) {
            const int segment = item / images, image = item - segment * images;
            const int row = segment / segments, column = (segment - row * segments) * ACROSS;
            line.positions = (int)s.out_columns - column < ACROSS ? (int)s.out_columns - column : ACROSS;
            line.column = column * line.stride - (int)s.padding_column + first_column * line.dilation;
            const bool whole = line.whole();
            Pack values[ACROSS];
            const REAL* place = y + (image * s.y_image + row * s.y_row + column * s.y_column);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j, place += s.y_column) values[j] = j < line.positions ? load(place) : Pack{};
#pragma unroll
            for (int u = 0; u < SIDE; ++u) {
                const int tap = first_row + u, in_row = row * (int)s.stride_row - (int)s.padding_row + tap * (int)s.dilation_row;
                if (tap >= (int)s.filter_rows || (uint32)in_row >= (uint32)s.in_rows) continue;
                const REAL* const source = x + (image * s.x_image + in_row * s.x_row + line.column * s.x_column);
                if (whole)
                    add_line<true>(sums, u, source, values, line);
                else
                    add_line<false>(sums, u, source, values, line);
            }
        }
    }
    add_up(sums, shared, width);
    if ((int)threadIdx.x >= width || channel >= (int)s.channels) return;

    out += blockIdx.z * s.part_stride;
#pragma unroll
    for (int u = 0; u < SIDE; ++u)
#pragma unroll
        for (int t = 0; t < SIDE; ++t) {
            const int row = first_row + u, column = first_column + t;
            if (row >= (int)s.filter_rows || column >= filter_columns) continue;
#pragma unroll
            for (int v = 0; v < VEC; ++v)
                out[((int64)(channel + v) * s.filter_rows + row) * s.filter_columns + column] = sums.at[u][t].at[v];
        }
}
