// Sk-dilated-V2 on the tensor cores, over the same runs as conv_weight.cu: channels are multiples of four, and addresses of
// 16 bytes. Macros: KERNEL, its name; PRODUCTS, see tensor_core.cuh; TILE_ROWS (output channels), TILE_COLUMNS (input channels), OFFSET (see tile.cuh),
// NORMALISED (see before.cuh: of the input channels).
#pragma once
#include "before.cuh"
#include "join.cuh"
#include "leap.cuh"
#include "tensor_core.cuh"

constexpr int STAGES = 3;
constexpr int RESIDENT = TILE_ROWS == 128 && TILE_COLUMNS == 128 ? 2 : TILE_ROWS == 128 || (NORMALISED && PRODUCTS == 3) ? 3 : 4;
#if NORMALISED
using Tally = TensorSums<ALONG, ALONG, TILE_ROWS, TILE_COLUMNS, NormalisedRight>;
#else
using Tally = TensorSums<ALONG, ALONG, TILE_ROWS, TILE_COLUMNS>;
#endif

// This thread's pieces of one operand's panels: four channels of every ROUND-th term. Terms beyond the end and channels
// that are not there are zeros.
template <class Panel>
struct LeapFeed {
    const float* const source;
    const RunSteps steps;
    TermWalk<Panel::ROUND> walk;
    const int end;  // of the terms; the first one where the thread's channels are not there

    __device__ __forceinline__ LeapFeed(const float* source, const RunSteps& steps, OFFSET first, int begin, int end, int width)
        : source(source + Panel::edge()), steps(steps), walk(steps, first, begin + Panel::depth()), end(Panel::edge() < width ? end : 0) {}

    // Mostly all pieces are of one position's images, side by side: then one step of the walk does for all.
    __device__ __forceinline__ void issue(float* panel) {
        if (walk.image + (Panel::PIECES - 1) * Panel::ROUND < steps.images) {
            const float* from = source + walk.place;
            const int64 round = (int64)Panel::ROUND * steps.image;
#pragma unroll
            for (int i = 0; i < Panel::PIECES; ++i, from += round)
                cp_async16_zfill(Panel::piece(panel, i), from, walk.term + i * Panel::ROUND < end);
            walk.template advance<Panel::PIECES>(steps);
            return;
        }
#pragma unroll 1
        for (int i = 0; i < Panel::PIECES; ++i) {
            cp_async16_zfill(Panel::piece(panel, i), source + walk.place, walk.term < end);
            walk.advance(steps);
        }
    }
};

struct WeightFeed {
    LeapFeed<Tally::Left> y;
    LeapFeed<Tally::Right> x;

    __device__ __forceinline__ void issue(float* stage) {
        y.issue(stage);
        x.issue(stage + Tally::Left::FLOATS);
    }
};

// blockIdx.x = (group * out_tiles + output tile) * in_tiles + input tile, .y = tap, .z = part.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
KERNEL(const float* __restrict__ x, const float* __restrict__ y, float* out, float* parts, unsigned* counters,
       BEFORE_TENSORS const Run* __restrict__ row_runs, const Run* __restrict__ column_runs, const Leap leap BEFORE_SLOPE) {
    extern __shared__ __align__(128) float stages[];
    const int in_tile = blockIdx.x % (int)leap.in_tiles, rest = blockIdx.x / (int)leap.in_tiles;
    const int group = rest / (int)leap.out_tiles, out_tile = rest - group * (int)leap.out_tiles;
    const int out_channel = group * (int)leap.out_width + out_tile * TILE_ROWS, in_channel = in_tile * TILE_COLUMNS;
    const int rows = (int)leap.out_width - out_tile * TILE_ROWS, columns = (int)leap.in_width - in_channel;

    const Run down = row_runs[blockIdx.y / (int)leap.filter_columns], across = column_runs[blockIdx.y % (int)leap.filter_columns];
    const int terms = down.count * across.count * (int)leap.images;
    const int each = ceil_div(ceil_div(terms, DEPTH), (int)leap.parts) * DEPTH;
    const int begin = (int)blockIdx.z * each, end = begin + each < terms ? begin + each : terms;

    Tally sums;
#if NORMALISED
    __shared__ AffineOf<float> by[TILE_COLUMNS];
    fill_affine<THREADS>(by, before, group * (int)leap.in_width + in_channel, columns, TILE_COLUMNS);
    sums.change.by = by;
    sums.change.slope = (float)slope;
#endif
    if (begin < end) {
        const RunSteps y_steps = {(int)leap.images, across.count, (OFFSET)leap.y_image, (OFFSET)leap.y_column, (OFFSET)leap.y_row};
        const RunSteps x_steps = {(int)leap.images, across.count, (OFFSET)leap.x_image, (OFFSET)leap.x_step_column, (OFFSET)leap.x_step_row};
        const OFFSET y_first = (OFFSET)(down.output * leap.y_row + across.output * leap.y_column + out_channel);
        const OFFSET x_first = (OFFSET)(down.source * leap.x_row + across.source * leap.x_column + group * leap.in_width + in_channel);
        WeightFeed feed = {{y, y_steps, y_first, begin, end, rows}, {x, x_steps, x_first, begin, end, columns}};
        pipeline<STAGES>(sums, feed, ceil_div(end - begin, DEPTH), stages);
    }

    const int channel = (int)gridDim.y * (int)leap.in_width;  // from an output channel's filter to the next one's
    const int first = out_channel * channel + (int)blockIdx.y * (int)leap.in_width + in_channel;
    const bool whole = leap.parts == 1;
    float* const part = (whole ? out : parts + blockIdx.z * leap.part_stride) + first;
#pragma unroll
    for (int i = 0; i < Tally::DOWN; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = sums.row_of(i, half);
            if (row >= rows) continue;
#pragma unroll
            for (int j = 0; j < Tally::WIDE; ++j) {
                const int column = sums.column_of(j);
                write_pair(part + row * channel + column, sums.sum[i][j] + 2 * half, columns - column, leap.aligned);
            }
        }
    if (whole) return;
    const Joint<float> joint = {parts + first, leap.part_stride, (int)leap.parts, (int)leap.together, counters,
                                (int)(blockIdx.y * gridDim.x + blockIdx.x), columns, leap.aligned != 0};
    const auto place = [=](int row) { return row < rows ? row * channel : -1; };
    join_parts<THREADS, RESIDENT, TILE_ROWS, TILE_COLUMNS>(joint, blockIdx.z, out + first, reinterpret_cast<int*>(stages), place);
}
