// What every convolution kernel stands on: the tables of cu32/conv/tables.py as structs, the place of a block and its rows, the walk
// over taps and channels, a thread's sums, and how results are written. Nothing here knows how operands reach
// shared memory, so kernels with and without tensor cores share it.
//
// A gather (forward or input gradient) is out[row][column] = sum over taps, channels of a[row, tap, channel] * filter[tap,
// channel, column]. A row is (position, image); all rows of a block lie in one class of rows x one class of columns, so
// its taps are the same: offsets into a and into the filter that move with the tap are the block's, not the thread's.
// Macro OFFSET: the type of offsets in images, int (the default) or int64 where one has 2^30 elements or more.
#pragma once
#include "common.cuh"
#include "neighbours.cuh"
#include "ptx.cuh"

#ifndef OFFSET
#define OFFSET int
#endif

// tables.Classes.class_array(), .member_array(), tables.TileList.tiles, tables.Runs.array().
struct Class {
    int taps, first_tap, start, size;
};
struct Member {
    int index, source;
};
struct TileEntry {
    int row_class, column_class, first, rows;
};
struct Run {
    int count, source, output, unused;
};

// A gather's sizes and strides, in elements; cu32/conv/tiles.py gives them by name.
struct Gather {
    int64 images;                              // rows are position * images + image
    int64 depth, width;                        // channels summed over and channels of the result, of one group
    int64 groups, column_tiles;                // column_tiles tiles cover the width of a group
    int64 a_image, a_row, a_column;            // strides of the source image
    int64 a_tap_row, a_tap_column;             // steps in the source from a tap to the next
    int64 b_depth, b_width, b_group;           // strides of the filter
    int64 b_row, b_column;                     // strides of the filter by tap
    int64 b_tap_row, b_tap_column;             // steps in the filter from a tap of a class to the next
    int64 out_image, out_row, out_column;      // strides of the result
    int64 part_stride;                         // from a part's result to the next
    int64 parts, together;                     // pieces that the sum over taps and channels is cut into, and those of a group (join.cuh)
    int64 aligned;                             // whether four columns of the result may be written at once
    int64 accumulate;                          // whether to add to what the result holds
};

struct GatherTables {
    const TileEntry* tiles;
    const Class* row_classes;
    const Member* row_members;
    const Class* column_classes;
    const Member* column_members;
};

// The work of one block. blockIdx.x = (tile * groups + group) * column_tiles + column tile, blockIdx.y = part.
template <int COLUMNS>
struct GatherBlock {
    TileEntry tile;
    Class rows, columns;
    int group, column;  // column: first of the group's
    int b;              // offset of the first tap's filter, at the group, depth 0 and column 0 of the group

    __device__ __forceinline__ GatherBlock(const Gather& g, const GatherTables& tables) {
        const uint32 column_tiles = (uint32)g.column_tiles, groups = (uint32)g.groups;
        const uint32 rest = blockIdx.x / column_tiles;
        column = (int)(blockIdx.x - rest * column_tiles) * COLUMNS;
        group = (int)(rest % groups);
        tile = tables.tiles[rest / groups];
        rows = tables.row_classes[tile.row_class];
        columns = tables.column_classes[tile.column_class];
        b = (int)(group * g.b_group + rows.first_tap * g.b_row + columns.first_tap * g.b_column);
    }
    __device__ __forceinline__ int taps() const { return rows.taps * columns.taps; }
    // The tile's number.
    static __device__ __forceinline__ int index(const Gather& g) { return (int)(blockIdx.x / (uint32)(g.column_tiles * g.groups)); }

    // Offsets of row i of the tile in the source (first tap, group's channel 0) and in the result (the block's first column).
    // Beyond the last row: the last one's source, so that it may be read without a test, and -1.
    __device__ __forceinline__ void row(const Gather& g, const GatherTables& tables, int i, OFFSET& source, OFFSET& result) const {
        const uint32 m = tile.first + (i < tile.rows ? i : tile.rows - 1), images = (uint32)g.images;
        const uint32 position = m / images, image = m - position * images;
        const uint32 r = position / (uint32)columns.size, c = position - r * (uint32)columns.size;
        const Member down = tables.row_members[rows.start + r], across = tables.column_members[columns.start + c];
        source = (OFFSET)(image * g.a_image + down.source * g.a_row + across.source * g.a_column + group * g.depth);
        result = i < tile.rows ? (OFFSET)(image * g.out_image + down.index * g.out_row + across.index * g.out_column + group * g.width + column) : -1;
    }
};

// The walk of a block over its taps (row-major) and, within a tap, over the channels in steps of DEPTH. `a` and `b` are
// what a source row and a filter column add to their first address; the same for all threads.
template <int DEPTH>
struct TapWalk {
    int k, column;  // column: of the tap, in its row
    OFFSET a;
    int b;  // filters have fewer than 2^30 elements

    static __device__ __forceinline__ int steps(const Gather& g) { return ceil_div((int)g.depth, DEPTH); }

    // At a step number, counted over all taps.
    __device__ __forceinline__ TapWalk(const Gather& g, int step, int column_taps) {
        const int tap = step / steps(g), row = column_taps ? tap / column_taps : 0;
        k = (step - tap * steps(g)) * DEPTH;
        column = tap - row * column_taps;
        a = row * (OFFSET)g.a_tap_row + column * (OFFSET)g.a_tap_column + k;
        b = row * (int)g.b_tap_row + column * (int)g.b_tap_column + k * (int)g.b_depth;
    }
    // What the offsets change by where a tap's channels are through, and what else where a row of taps is.
    struct Turns {
        int column_taps, b, b_row;
        OFFSET a, a_row;
    };
    static __device__ __forceinline__ Turns turns(const Gather& g, int column_taps) {
        const int depth = steps(g) * DEPTH;
        return {column_taps, (int)g.b_tap_column - depth * (int)g.b_depth, (int)g.b_tap_row - column_taps * (int)g.b_tap_column,
                (OFFSET)g.a_tap_column - depth, (OFFSET)g.a_tap_row - column_taps * (OFFSET)g.a_tap_column};
    }
    __device__ __forceinline__ void advance(const Gather& g, const Turns& turns) {
        k += DEPTH;
        a += DEPTH;
        b += DEPTH * (int)g.b_depth;
        if (k < (int)g.depth) return;
        k = 0;
        a += turns.a;
        b += turns.b;
        if (++column < turns.column_taps) return;
        column = 0;
        a += turns.a_row;
        b += turns.b_row;
    }
};

// Part `part` of `steps` steps, cut evenly: [begin, end).
struct Piece {
    int begin, end;
    __device__ __forceinline__ Piece(int steps, int part, int parts) {
        const int each = ceil_div(steps, parts);
        begin = part * each < steps ? part * each : steps;
        end = begin + each < steps ? begin + each : steps;
    }
};

template <class T>
__device__ __forceinline__ void read4(T* four, const T* place) {
    const vec4<T> value = *reinterpret_cast<const vec4<T>*>(place);
    four[0] = value.x, four[1] = value.y, four[2] = value.z, four[3] = value.w;
}
template <class T>
__device__ __forceinline__ void write4(T* place, const T* four) {
    *reinterpret_cast<vec4<T>*>(place) = {four[0], four[1], four[2], four[3]};
}

// How an operand's panel of EDGE x DEPTH elements lies in shared memory: DEEP with four terms of the sum side by side, WIDE with
// four edges (rows or columns of the tile). A piece is four elements that one asynchronous copy can bring from memory where they
// are neighbours too; piece p is one that memory has beside piece p + 1, as far as that goes.
enum Order { DEEP, WIDE };

// A DEEP panel is [edge][depth], with the quads of an edge turned so that eight edges' reads fall on different banks. A WIDE one
// is [depth][edge].
template <class T, Order ORDER, int EDGE, int DEPTH, int PITCH = EDGE>
struct SharedTile {
    static constexpr int QUADS = DEPTH / 4, PIECES = EDGE * QUADS, TO_NEXT_TERM = PITCH;
    static_assert(ORDER == WIDE || QUADS == 4 || QUADS == 8, "an edge takes half of all banks, or all");

    __align__(16) T element[(ORDER == DEEP ? EDGE : PITCH) * DEPTH];

    static __device__ __forceinline__ int edge(int p) { return ORDER == DEEP ? p / QUADS : p % (EDGE / 4) * 4; }
    static __device__ __forceinline__ int term(int p) { return ORDER == DEEP ? p % QUADS * 4 : p / (EDGE / 4); }
    // Where piece p lies.
    static __device__ __forceinline__ int place(int p) {
        return ORDER == DEEP ? start(edge(p)) ^ term(p) : term(p) * PITCH + edge(p);
    }
    // Where an edge begins. Of a DEEP panel its term k lies at start ^ k, for k a multiple of four.
    static __device__ __forceinline__ int start(int edge) {
        return ORDER == DEEP ? edge * DEPTH + (QUADS == 8 ? edge % 8 : edge / 2 % 4) * 4 : edge;
    }
};

// Begins a copy of four elements, or of zeros where they are not valid.
template <class T>
__device__ __forceinline__ void copy4(T* shared, const T* global, bool valid) {
#pragma unroll
    for (int j = 0; j < 4; j += 16 / sizeof(T)) cp_async16_zfill(shared + j, global + j, valid);
}
// The same of one element.
__device__ __forceinline__ void copy1(float* shared, const float* global, bool valid) { cp_async4_zfill(shared, global, valid); }
__device__ __forceinline__ void copy1(double* shared, const double* global, bool valid) { cp_async8_zfill(shared, global, valid); }

// A thread's DOWN x ACROSS sums of a block's ROWS x COLUMNS. A warp owns 8 DOWN rows x 4 ACROSS columns; its lanes
// stand 8 below each other by 4 side by side, neighbours sharing an operand in pairs, so that a 128-bit read of shared
// memory takes two wavefronts of at most 128 bytes. A lane's columns are quads, in which results are written. So are its rows,
// unless the left operand is DEEP: then it has every eighth.
template <class T, int ROWS, int TILE_WIDTH, int DOWN, int ACROSS, Order LEFT = WIDE>
struct Sums {
    static constexpr int THREADS = ROWS * TILE_WIDTH / (DOWN * ACROSS);
    static constexpr int WARPS_ACROSS = TILE_WIDTH / (4 * ACROSS);
    static_assert(DOWN % 4 == 0 && ACROSS % 4 == 0 && ROWS % (8 * DOWN) == 0 && TILE_WIDTH % (4 * ACROSS) == 0, "whole warps");

    T sum[DOWN][ACROSS] = {};

    // Where sum[i][.] and sum[.][j] are in the block.
    static __device__ __forceinline__ int row_of(int i) {
        const int first = threadIdx.x / WARP / WARPS_ACROSS * (8 * DOWN), lane = threadIdx.x % WARP / 2 % 8;
        return LEFT == DEEP ? first + lane + i * 8 : first + lane * 4 + i / 4 * 32 + i % 4;
    }
    static __device__ __forceinline__ int column_of(int j) {
        return threadIdx.x / WARP % WARPS_ACROSS * (4 * ACROSS) + (threadIdx.x % 2 + threadIdx.x % WARP / 16 * 2) * 4 + j / 4 * 16 + j % 4;
    }

    // A thread's results, as ending.cuh asks for them.
    static constexpr int EACH_DOWN = DOWN, EACH_ACROSS = ACROSS, RUN = 4, SHARE = 2, WARPS_DOWN = ROWS / (8 * DOWN);
    static constexpr int COLUMNS = TILE_WIDTH;
    static constexpr bool HELD = sizeof(T) == 4 && DOWN * ACROSS < 64;
    __device__ __forceinline__ T& at(int r, int c) { return sum[r][c]; }
    __device__ __forceinline__ T at(int r, int c) const { return sum[r][c]; }
    static __device__ __forceinline__ int row_at(int r) { return row_of(r); }
    static __device__ __forceinline__ int column_at(int c) { return column_of(c); }
    static __device__ __forceinline__ int warp_down() { return threadIdx.x / WARP / WARPS_ACROSS; }

    // Writes row i's four from column j on: `left` of them are inside.
    __device__ __forceinline__ void write(T* to, int i, int j, int left, bool aligned) const {
        write_run<T, 4>(to, {{sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]}}, left, aligned);
    }

    template <int DEPTH, int A_PITCH, int B_PITCH>
    __device__ __forceinline__ void accumulate(const T (*a)[A_PITCH], const T (*b)[B_PITCH]) {
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            T left[DOWN], right[ACROSS];
#pragma unroll
            for (int q = 0; q < DOWN; q += 4) read4(left + q, &a[k][row_of(q)]);
#pragma unroll
            for (int q = 0; q < ACROSS; q += 4) read4(right + q, &b[k][column_of(q)]);
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) sum[i][j] += left[i] * right[j];
        }
    }

    // Adds the products of two panels, term by term in their order. `rows` and `columns` are where this thread's begin in them.
    template <class A, class B>
    __device__ __forceinline__ void add(const A& a, const B& b, int rows, int columns) {
#pragma unroll
        for (int k = 0; k < A::QUADS * 4; k += 4) {
            T left[DOWN][4];
            if constexpr (LEFT == DEEP) {
                const T* quad = a.element + (rows ^ k);
#pragma unroll
                for (int i = 0; i < DOWN; ++i) read4(left[i], quad + i * 8 * (A::QUADS * 4));
            }
#pragma unroll
            for (int t = 0; t < 4; ++t) {
                T right[ACROSS], above[DOWN];
                if constexpr (LEFT == WIDE) {
#pragma unroll
                    for (int q = 0; q < DOWN; q += 4) read4(above + q, a.element + rows + (k + t) * A::TO_NEXT_TERM + q / 4 * 32);
                }
#pragma unroll
                for (int q = 0; q < ACROSS; q += 4) read4(right + q, b.element + columns + (k + t) * B::TO_NEXT_TERM + q / 4 * 16);
#pragma unroll
                for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                    for (int i = 0; i < DOWN; ++i) sum[i][j] += (LEFT == DEEP ? left[i][t] : above[i]) * right[j];
            }
        }
    }
};
