// Sk-dilated-V2 for few channels on one side, as an image's three: a tile's columns are (tap, channel) pairs of that side, not
// one tap's channels, and its rows the other side's channels. The terms of a block's sum are positions of one trim, all of
// which have the same taps, so no zero of the padding is read here either; the taps that a trim lacks are zeros in that
// block's part. With few input channels y is dy, x the image, and positions are those of dy, by ConvV2's trims; with few
// output channels y is the image, x is dy, and positions are the image's, by KS-deconv-V2's sub-kernels. Macros:
//   TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS   as in conv.cu; float32 alone
//   LOAD     VECTOR: four channels of y at a time; SCALAR: one
// x comes element by element.
#include "leap.cuh"

enum Load { VECTOR, SCALAR };

constexpr int DEPTH = 32;
using Tally = Sums<float, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS>;
using TileY = SharedTile<float, WIDE, TILE_ROWS, DEPTH>;
using TileX = SharedTile<float, WIDE, TILE_COLUMNS, DEPTH, TILE_COLUMNS + 4>;
constexpr int THREADS = Tally::THREADS;

// Steps: from a position of a class to the next.
struct FewWeight {
    int64 images, x_channels, y_channels, column_tiles;
    int64 filter_rows, filter_columns;
    int64 x_image, x_row, x_column, x_step_row, x_step_column, x_tap_row, x_tap_column;
    int64 y_image, y_row, y_column, y_step_row, y_step_column;
    int64 tap_row, tap_column;                      // steps from a tap of a class to the next
    int64 out_row, out_tap, out_channel;            // strides of the result by channel of y, tap, and channel of x
    int64 part_stride;
};

// Column j of a block: a (tap, channel) pair of its trim.
struct Column {
    int row, column, channel;  // tap in the trim, and channel

    __device__ __forceinline__ Column(int j, const Class& across, int channels) {
        const int tap = j / channels;
        channel = j - tap * channels;
        row = tap / across.taps;
        column = tap - row * across.taps;
    }
    __device__ __forceinline__ int source(const FewWeight& f) const { return row * (int)f.x_tap_row + column * (int)f.x_tap_column + channel; }
    __device__ __forceinline__ int result(const FewWeight& f, const Class& down, const Class& across) const {
        const int tap_row = down.first_tap + row * (int)f.tap_row, tap_column = across.first_tap + column * (int)f.tap_column;
        return (tap_row * (int)f.filter_columns + tap_column) * (int)f.out_tap + channel * (int)f.out_channel;
    }
};

// Two terms, to be read at once.
struct __align__(16) Pair {
    Term first, second;
};

struct Shared {
    TileY y[2];
    TileX x[2];
    __align__(16) Term terms[2][DEPTH];
    int result[TILE_COLUMNS];  // of each column its place in a filter, or -1
};

// This thread's elements of the panel of x: one term, every STEP-th column.
struct PanelX {
    static constexpr int STEP = THREADS / DEPTH, PIECES = TILE_COLUMNS / STEP;

    int offset[PIECES];

    static __device__ __forceinline__ int term() { return threadIdx.x % DEPTH; }
    static __device__ __forceinline__ int column() { return threadIdx.x / DEPTH; }

    // A column that is not there reads another's, and its results are dropped.
    __device__ __forceinline__ PanelX(const FewWeight& f, const Class& across, int first, int columns) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int j = first + column() + i * STEP;
            offset[i] = Column(j < columns ? j : first, across, (int)f.x_channels).source(f);
        }
    }
    __device__ __forceinline__ void copy(TileX& tile, const float* x, const Term& at) const {
#pragma unroll
        for (int i = 0; i < PIECES; ++i)
            copy1(tile.element + term() * TileX::TO_NEXT_TERM + column() + i * STEP, x + (at.x + offset[i]), at.y != NO_TERM);
    }
};

// And of y: four channels of PIECES terms, one after another, whose places are read two at a time.
struct PanelY {
    static constexpr int PIECES = DEPTH * TILE_ROWS / (THREADS * 4);
    static_assert(PIECES * THREADS * 4 == DEPTH * TILE_ROWS && PIECES % 2 == 0, "every thread moves as many pieces, in pairs");

    static __device__ __forceinline__ int edge() { return TileY::edge(threadIdx.x); }
    static __device__ __forceinline__ int term() { return TileY::term(threadIdx.x) * PIECES; }

    // `left`: channels from this thread's first on.
    static __device__ __forceinline__ void copy(TileY& tile, int i, const float* y, int place, int left) {
        float* four = tile.element + (term() + i) * TileY::TO_NEXT_TERM + edge();
        const float* from = y + (place + edge());
        if constexpr (LOAD == VECTOR) {
            copy4(four, from, place != NO_TERM && left > 0);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) copy1(four + j, from + j, place != NO_TERM && j < left);
        }
    }
};

__device__ __forceinline__ bool has_tap(const Class& taps, int tap, int step) {
    return tap >= taps.first_tap && (tap - taps.first_tap) % step == 0 && (tap - taps.first_tap) / step < taps.taps;
}

// Zeros for the taps that the trim lacks.
__device__ __forceinline__ void clear_others(float* out, const FewWeight& f, const Class& down, const Class& across, int rows) {
    const int count = rows < TILE_ROWS ? rows : TILE_ROWS, taps = (int)(f.filter_rows * f.filter_columns);
    for (int i = threadIdx.x; i < count * taps * (int)f.x_channels; i += THREADS) {
        const int row = i % count, pair = i / count, tap = pair % taps, channel = pair / taps;
        const int tap_row = tap / (int)f.filter_columns, tap_column = tap % (int)f.filter_columns;
        if (!has_tap(down, tap_row, (int)f.tap_row) || !has_tap(across, tap_column, (int)f.tap_column))
            out[row * (int)f.out_row + tap * (int)f.out_tap + channel * (int)f.out_channel] = 0;
    }
}

// blockIdx.x = tile of y's channels * column_tiles + tile of columns, .y = part: an entry of tables.tiles.
extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
few_weight(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, const GatherTables tables, const FewWeight f) {
    __shared__ Shared shared;
    const int column_tile = blockIdx.x % (int)f.column_tiles, first_row = blockIdx.x / (int)f.column_tiles * TILE_ROWS;
    const TileEntry part = tables.tiles[blockIdx.y];
    const Class down = tables.row_classes[part.row_class], across = tables.column_classes[part.column_class];
    const int rows = (int)f.y_channels - first_row;
    const int column = column_tile * TILE_COLUMNS, columns = down.taps * across.taps * (int)f.x_channels;
    out += blockIdx.y * f.part_stride + first_row * f.out_row;
    if (column_tile == 0) clear_others(out, f, down, across, rows);
    if (column >= columns) return;
    for (int j = threadIdx.x; j < TILE_COLUMNS; j += THREADS)
        shared.result[j] = column + j < columns ? Column(column + j, across, (int)f.x_channels).result(f, down, across) : -1;

    const int images = (int)f.images, begin = part.first, end = begin + part.rows;
    const Member row = tables.row_members[down.start], first = tables.column_members[across.start];
    const RunSteps y_steps = {images, across.size, (int)f.y_image, (int)f.y_step_column, (int)f.y_step_row};
    const RunSteps x_steps = {images, across.size, (int)f.x_image, (int)f.x_step_column, (int)f.x_step_row};
    const PanelX panel_x(f, across, column, columns);
    PairWalk<DEPTH> walk(y_steps, x_steps,
                         {row.index * (int)f.y_row + first.index * (int)f.y_column + first_row,
                          row.source * (int)f.x_row + first.source * (int)f.x_column},
                         begin + threadIdx.x % DEPTH);
    auto note = [&](int buffer) { note_terms(shared.terms[buffer], walk, y_steps, x_steps, end); };
    auto copy = [&](int buffer) {
        const Term at = shared.terms[buffer][PanelX::term()];
#pragma unroll
        for (int i = 0; i < PanelY::PIECES; i += 2) {
            const Pair pair = *(const Pair*)&shared.terms[buffer][PanelY::term() + i];
            PanelY::copy(shared.y[buffer], i, y, pair.first.y, rows - PanelY::edge());
            PanelY::copy(shared.y[buffer], i + 1, y, pair.second.y, rows - PanelY::edge());
        }
        panel_x.copy(shared.x[buffer], x, at);
        cp_async_commit();
    };
    Tally sums;
    int first_sum = TileY::start(sums.row_of(0)), first_column = TileX::start(sums.column_of(0));
    keep(first_sum), keep(first_column);
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
        sums.add(shared.y[buffer], shared.x[buffer], first_sum, first_column);
    }

#pragma unroll
    for (int i = 0; i < TILE_DOWN; ++i) {
        if (sums.row_of(i) >= rows) continue;
#pragma unroll
        for (int j = 0; j < TILE_ACROSS; ++j) {
            const int place = shared.result[sums.column_of(j)];
            if (place >= 0) out[sums.row_of(i) * f.out_row + place] = sums.sum[i][j];
        }
    }
}
