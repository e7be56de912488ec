// Sk-dilated-V2: the gradient of the filter. A block has one tap, a tile of its output by input channels, and a part of the sum
// over the run of (output row, output column, image) that the tap meets inside the image: no zero is read. Macros:
//   REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS, TILE_DEPTH, OFFSET   as in conv.cu; rows are output channels
//   LOAD     VECTOR: four channels at a time; SCALAR: one
// Both operands lie with their channels side by side, so panels are straight copies. The first threads walk over the terms for all,
// two steps ahead.
#include "join.cuh"
#include "leap.cuh"

enum Load { VECTOR, SCALAR };

constexpr int DEPTH = TILE_DEPTH;
using Tally = Sums<REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS>;
using TileY = SharedTile<REAL, WIDE, TILE_ROWS, DEPTH>;
using TileX = SharedTile<REAL, WIDE, TILE_COLUMNS, DEPTH>;
constexpr int THREADS = Tally::THREADS;
constexpr int RESIDENT = sizeof(REAL) == 8 ? 2 : 512 / THREADS;
constexpr bool WIDE_OFFSETS = sizeof(OFFSET) == 8;

struct Shared {
    TileY y[2];
    TileX x[2];
    Term terms[2][DEPTH];
    int last;
    int out, rows, columns;  // the tile's place in the result, and how many output and input channels are left from there
};

// Copies a thread's share of a step of one operand.
template <class Tile>
struct LeapPanel {
    static constexpr int PIECES = Tile::PIECES / THREADS;
    static_assert(PIECES > 0 && PIECES * THREADS == Tile::PIECES, "every thread moves as many pieces");

    static __device__ __forceinline__ int edge() { return Tile::edge(threadIdx.x); }  // that of all pieces
    static __device__ __forceinline__ int term(int i) { return Tile::term(threadIdx.x + i * THREADS); }

    static __device__ __forceinline__ void copy(Tile& tile, int i, const REAL* source, OFFSET place, bool valid, int width) {
        REAL* four = tile.element + Tile::place(threadIdx.x + i * THREADS);
        const REAL* from = source + (place + edge());
        if constexpr (LOAD == VECTOR) {
            copy4(four, from, valid && edge() < width);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) copy1(four + j, from + j, valid && edge() + j < width);
        }
    }
};
using PanelY = LeapPanel<TileY>;
using PanelX = LeapPanel<TileX>;

// blockIdx.x = (group * out_tiles + output tile) * in_tiles + input tile, .y = tap, .z = part.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
conv_weight(const REAL* __restrict__ x, const REAL* __restrict__ y, REAL* out, REAL* parts, unsigned* counters,
            const Run* __restrict__ row_runs, const Run* __restrict__ column_runs, const Leap leap) {
    __shared__ Shared shared;
    __shared__ RunSteps far_y, far_x;  // steps of 64 bits, which there are no registers for
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

    Tally sums;
    int first_row = TileY::start(sums.row_of(0)), first_column = TileX::start(sums.column_of(0));
    if (!WIDE_OFFSETS) keep(first_row), keep(first_column);  // else there are too few registers
    if (begin < end) {
        const RunSteps near_y = {(int)leap.images, across.count, (OFFSET)leap.y_image, (OFFSET)leap.y_column, (OFFSET)leap.y_row};
        const RunSteps near_x = {(int)leap.images, across.count, (OFFSET)leap.x_image, (OFFSET)leap.x_step_column, (OFFSET)leap.x_step_row};
        if constexpr (WIDE_OFFSETS) {
            if (threadIdx.x == 0) far_y = near_y, far_x = near_x;
            __syncthreads();
        }
        const RunSteps &y_steps = WIDE_OFFSETS ? far_y : near_y, &x_steps = WIDE_OFFSETS ? far_x : near_x;
        PairWalk<DEPTH> walk(y_steps, x_steps,
                             {(OFFSET)(down.output * leap.y_row + across.output * leap.y_column + out_channel),
                              (OFFSET)(down.source * leap.x_row + across.source * leap.x_column + group * leap.in_width + in_tile * TILE_COLUMNS)},
                             begin + threadIdx.x % DEPTH);
        auto note = [&](int buffer) { note_terms(shared.terms[buffer], walk, y_steps, x_steps, end); };
        auto copy = [&](int buffer) {
            constexpr int PIECES = PanelY::PIECES > PanelX::PIECES ? PanelY::PIECES : PanelX::PIECES;
#pragma unroll
            for (int i = 0; i < PIECES; ++i) {
                if (i < PanelY::PIECES) {
                    const OFFSET place = shared.terms[buffer][PanelY::term(i)].y;
                    PanelY::copy(shared.y[buffer], i, y, place, place >= 0, rows);
                }
                if (i < PanelX::PIECES) {
                    const Term term = shared.terms[buffer][PanelX::term(i)];
                    PanelX::copy(shared.x[buffer], i, x, term.x, term.y >= 0, columns);
                }
            }
            cp_async_commit();
        };
        note(0);
        note(1);
        __syncthreads();
        copy(0);
        for (int left = end - begin, buffer = 0; left > 0; left -= DEPTH, buffer ^= 1) {
            cp_async_wait<0>();
            __syncthreads();
            if (left > DEPTH) {
                copy(buffer ^ 1);
                note(buffer);
            }
            sums.add(shared.y[buffer], shared.x[buffer], first_row, first_column);
        }
    }
    __syncthreads();

    const bool whole = leap.parts == 1;
    REAL* const part = (whole ? out : parts + blockIdx.z * leap.part_stride) + shared.out;
    const int channel = (int)gridDim.y * (int)leap.in_width;  // from an output channel's filter to the next one's
#pragma unroll
    for (int i = 0; i < TILE_DOWN; ++i) {
        const int row = sums.row_of(i);
        if (row >= shared.rows) continue;
#pragma unroll
        for (int j = 0; j < TILE_ACROSS; j += 4) {
            const int column = sums.column_of(j);
            sums.write(part + row * channel + column, i, j, shared.columns - column, leap.aligned);
        }
    }
    if (whole) return;
    const Joint<REAL> joint = {parts + shared.out, leap.part_stride, (int)leap.parts, (int)leap.together, counters,
                               (int)(blockIdx.y * gridDim.x + blockIdx.x), shared.columns, leap.aligned != 0};
    const auto place = [&](int row) { return row < shared.rows ? row * channel : -1; };
    join_parts<THREADS, RESIDENT, TILE_ROWS, TILE_COLUMNS>(joint, blockIdx.z, out + shared.out, &shared.last, place);
}
