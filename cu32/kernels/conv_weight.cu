// Sk-dilated-V2: the gradient of the filter. A block has one tap, a tile of its output by input channels, and a part of the sum
// over the run of (output row, output column, image) that the tap meets inside the image: no zero is read. Macros:
//   REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS, OFFSET   as in conv.cu; rows are output channels
//   LOAD     VECTOR: four channels at a time; SCALAR: one
// Both operands lie with their channels side by side, so panels are straight copies; FMAs are about 90 % of what a thread
// issues, and 75 to 85 % of the FMA peak is what to expect where the tiles fill the device.
#include "leap.cuh"

enum Load { VECTOR, SCALAR };

constexpr int DEPTH = TILE_ACROSS == 8 ? 8 : 16;
constexpr int THREADS = Sums<REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS>::THREADS;
constexpr int RESIDENT = sizeof(REAL) == 8 ? 2 : 512 / THREADS;
constexpr bool WIDE = sizeof(OFFSET) == 8;

// This thread's share of the panels of one operand: EDGE channels by DEPTH terms of the sum.
template <int EDGE>
struct LeapPanel {
    static constexpr int STEP = THREADS * 4 / EDGE;  // terms between two pieces of a thread
    static constexpr int PIECES = DEPTH / STEP;
    static constexpr int PITCH = EDGE + 4;
    static_assert(PIECES > 0 && PIECES * STEP == DEPTH, "every thread moves as many pieces");

    REAL piece[PIECES][4];
    TermWalk<STEP> walk;
    const int width;  // channels of the group from the block's first on

    static __device__ __forceinline__ int edge() { return threadIdx.x % (EDGE / 4) * 4; }

    // From term `begin` of the run that starts at offset `first`.
    __device__ __forceinline__ LeapPanel(const RunSteps& steps, OFFSET first, int begin, int width)
        : walk(steps, first + (LOAD == VECTOR && edge() < width ? edge() : 0), begin + threadIdx.x / (EDGE / 4)), width(width) {}
    __device__ __forceinline__ void fetch(const REAL* __restrict__ source, const RunSteps& steps, int end) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            piece[i][0] = piece[i][1] = piece[i][2] = piece[i][3] = 0;
            if (walk.term < end) {
                if constexpr (LOAD == VECTOR) {
                    read4(piece[i], source + walk.place);
                } else {
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        if (edge() + j < width) piece[i][j] = source[walk.place + edge() + j];
                }
            }
            walk.advance(steps);
        }
    }
    __device__ __forceinline__ void store(REAL (*panel)[PITCH]) const {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) write4(&panel[threadIdx.x / (EDGE / 4) + i * STEP][edge()], piece[i]);
    }
};

using PanelY = LeapPanel<TILE_ROWS>;
using PanelX = LeapPanel<TILE_COLUMNS>;

struct Shared {
    __align__(16) REAL y[2][DEPTH][PanelY::PITCH];
    __align__(16) REAL x[2][DEPTH][PanelX::PITCH];
    int out, rows, columns;  // the tile's place in the result, and how many output and input channels are left from there
};

// blockIdx.x = (group * out_tiles + output tile) * in_tiles + input tile, .y = tap, .z = part.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
conv_weight(const REAL* __restrict__ x, const REAL* __restrict__ y, REAL* __restrict__ out, const Run* __restrict__ row_runs,
            const Run* __restrict__ column_runs, const Leap leap) {
    __shared__ Shared shared;
    __shared__ RunSteps far_y;  // steps of 64 bits, which there are no registers for
    const int in_tile = blockIdx.x % (int)leap.in_tiles, rest = blockIdx.x / (int)leap.in_tiles;
    const int group = rest / (int)leap.out_tiles, out_tile = rest - group * (int)leap.out_tiles;
    const int out_channel = group * (int)leap.out_width + out_tile * TILE_ROWS;
    const int rows = (int)leap.out_width - out_tile * TILE_ROWS, columns = (int)leap.in_width - in_tile * TILE_COLUMNS;
    if (threadIdx.x == 0) {  // read back after the main loop, which has no registers to keep them in
        shared.out = (out_channel * (int)gridDim.y + (int)blockIdx.y) * (int)leap.in_width + in_tile * TILE_COLUMNS;
        shared.rows = rows;
        shared.columns = columns;
    }

    const Run down = row_runs[blockIdx.y / (int)leap.filter_columns], across = column_runs[blockIdx.y % (int)leap.filter_columns];
    const int terms = down.count * across.count * (int)leap.images;
    const int each = ceil_div(ceil_div(terms, DEPTH), (int)leap.parts) * DEPTH;
    const int begin = (int)blockIdx.z * each, end = begin + each < terms ? begin + each : terms;

    Sums<REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS> sums;
    if (begin < end) {
        const RunSteps near_y = {(int)leap.images, across.count, (OFFSET)leap.y_image, (OFFSET)leap.y_column, (OFFSET)leap.y_row};
        const RunSteps x_steps = {(int)leap.images, across.count, (OFFSET)leap.x_image, (OFFSET)leap.x_step_column, (OFFSET)leap.x_step_row};
        if constexpr (WIDE) {
            if (threadIdx.x == 0) far_y = near_y;
            __syncthreads();
        }
        const RunSteps& y_steps = WIDE ? far_y : near_y;
        PanelY panel_y(y_steps, (OFFSET)(down.output * leap.y_row + across.output * leap.y_column + out_channel), begin, rows);
        PanelX panel_x(x_steps, (OFFSET)(down.source * leap.x_row + across.source * leap.x_column + group * leap.in_width + in_tile * TILE_COLUMNS),
                       begin, columns);
        panel_y.fetch(y, y_steps, end);
        panel_x.fetch(x, x_steps, end);
        for (int left = end - begin, buffer = 0; left > 0; left -= DEPTH, buffer ^= 1) {
            panel_y.store(shared.y[buffer]);
            panel_x.store(shared.x[buffer]);
            __syncthreads();
            if (left > DEPTH) {
                panel_y.fetch(y, y_steps, end);
                panel_x.fetch(x, x_steps, end);
            }
            sums.template accumulate<DEPTH>(shared.y[buffer], shared.x[buffer]);
        }
    }
    __syncthreads();

    out += blockIdx.z * leap.part_stride + shared.out;
    const OFFSET channel = (OFFSET)gridDim.y * (OFFSET)leap.in_width;  // from an output channel's filter to the next one's
#pragma unroll
    for (int i = 0; i < TILE_DOWN; ++i) {
        const int row = sums.row_of(i);
        if (row >= shared.rows) continue;
#pragma unroll
        for (int j = 0; j < TILE_ACROSS; j += 4) {
            const int column = sums.column_of(j);
            write_results<REAL>(out + row * channel + column, &sums.sum[i][j], shared.columns - column, nullptr, leap.aligned, false);
        }
    }
}
