// ConvV2 and KS-deconv-V2, one kernel: each block a tile of rows of one trim by channels of the result. Macros:
//   REAL     float or double
//   TILE_ROWS, TILE_COLUMNS   the block's tile
//   TILE_DOWN, TILE_ACROSS    a thread's sums: 8 x 8, or fewer
//   LOAD     VECTOR: four channels at a time (channel counts and addresses are multiples of four elements);
//            SCALAR: one at a time; FLAT: taps and channels as one sum through a table of offsets, for few channels
//   FILTER   BY_DEPTH: neighbours along the summed channels are neighbours in the filter (forward);
//            BY_WIDTH: neighbours along the result's channels are (input gradient)
//
// Per step of DEPTH a thread issues TILE_DOWN * TILE_ACROSS * DEPTH = 512 FMAs, 32 or 48 128-bit reads of shared memory, some
// 10 loads and stores on the way there and 20 of everything else: FMAs are nearly 90 % of what it issues. With one barrier
// per step and 16 warps per multiprocessor, 75 to 85 % of the FMA peak is to be expected (not measured) where the tiles fill
// the device.
#include "tile.cuh"

enum Load { VECTOR, SCALAR, FLAT };
enum Filter { BY_DEPTH, BY_WIDTH };

constexpr int DEPTH = TILE_ACROSS == 8 ? 8 : 16;  // of a step: threads with fewer sums have the registers for more
constexpr int FLAT_LIMIT = 1024;  // taps times channels that FLAT's table holds; cu32/conv/tiles.py knows it
constexpr int THREADS = Sums<REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS>::THREADS;
constexpr int RESIDENT = sizeof(REAL) == 8 ? 2 : 512 / THREADS;  // blocks per multiprocessor at 128 registers per thread
constexpr int A_PIECES = TILE_ROWS * DEPTH / 4 / THREADS, B_PIECES = TILE_COLUMNS * DEPTH / 4 / THREADS;
constexpr int A_PITCH = TILE_ROWS + 4, B_PITCH = TILE_COLUMNS + 4;  // + 4: turned stores fall on 32 different banks
static_assert(A_PIECES > 0 && B_PIECES > 0, "every thread moves as many pieces");

// Which of EDGE rows (or columns) and which four channels of a step piece p is, where channels are neighbours in memory. Two
// threads read a row's 32 bytes; 16 rows by 2 such fours, turned, are 32 different banks of shared memory.
template <int EDGE>
__device__ __forceinline__ int turned_edge(int p) {
    return p / 2 % EDGE;
}
template <int EDGE>
__device__ __forceinline__ int turned_k(int p) {
    return (p % 2 + p / (2 * EDGE) * 2) * 4;
}

// Offsets of one (tap, channel) pair in source and filter.
struct FlatOffset {
    int a, b;
};

struct Shared {
    __align__(16) REAL a[2][DEPTH][A_PITCH];
    __align__(16) REAL b[2][DEPTH][B_PITCH];
    OFFSET source[TILE_ROWS], result[TILE_ROWS];
    int columns, bias;  // columns of the group from the block's first on, and that one's place in the bias
    int column_taps;
    FlatOffset flat[LOAD == FLAT ? FLAT_LIMIT : 1];
};

// Four summed channels from k on, of which `left` exist.
__device__ __forceinline__ void fetch_depth(REAL* four, const REAL* place, int left) {
    if constexpr (LOAD == VECTOR) {
        four[0] = four[1] = four[2] = four[3] = 0;
        if (left > 0) read4(four, place);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) four[j] = j < left ? place[j] : REAL(0);
    }
}

// This thread's share of a step of the source: row piece_row(i), channels from piece_k() on.
struct SourcePanel {
    const REAL* const a;
    OFFSET place[A_PIECES];
    REAL piece[A_PIECES][4];

    static __device__ __forceinline__ int piece_row(int i) { return turned_edge<TILE_ROWS>(threadIdx.x + i * THREADS); }
    static __device__ __forceinline__ int piece_k(int i) { return turned_k<TILE_ROWS>(threadIdx.x + i * THREADS); }

    __device__ __forceinline__ SourcePanel(const REAL* a, const Shared& shared) : a(a) {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i) place[i] = shared.source[piece_row(i)] + (LOAD == FLAT ? 0 : piece_k(i));
    }
    __device__ __forceinline__ void fetch(OFFSET offset, int left) {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i) fetch_depth(piece[i], a + (place[i] + offset), left - piece_k(i));
    }
    __device__ __forceinline__ void fetch_flat(const FlatOffset* flat, int left) {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int k = piece_k(i) + j;
                piece[i][j] = k < left ? a[place[i] + flat[k].a] : REAL(0);
            }
    }
    __device__ __forceinline__ void store(REAL (*panel)[A_PITCH]) const {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) panel[piece_k(i) + j][piece_row(i)] = piece[i][j];
    }
};

// The same of the filter.
struct FilterPanel {
    const REAL* const b;
    int place[B_PIECES];
    REAL piece[B_PIECES][4];
    const int columns;  // of the group from the block's first on

    static __device__ __forceinline__ int piece_column(int i) {
        const int p = threadIdx.x + i * THREADS;
        return FILTER == BY_DEPTH ? turned_edge<TILE_COLUMNS>(p) : p % (TILE_COLUMNS / 4) * 4;
    }
    static __device__ __forceinline__ int piece_k(int i) {
        const int p = threadIdx.x + i * THREADS;
        return FILTER == BY_DEPTH ? turned_k<TILE_COLUMNS>(p) : p / (TILE_COLUMNS / 4);
    }
    // A column that is not there reads another's filter, and its results are dropped.
    __device__ __forceinline__ int present(int column) const { return column < columns ? column : 0; }

    __device__ __forceinline__ FilterPanel(const REAL* b, int first, const Gather& g, int columns) : b(b), columns(columns) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i)
            place[i] = first + present(piece_column(i)) * (int)g.b_width + (LOAD == FLAT ? 0 : piece_k(i) * (int)g.b_depth);
    }
    __device__ __forceinline__ void fetch(int offset, int left) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            if constexpr (FILTER == BY_DEPTH)
                fetch_depth(piece[i], b + (place[i] + offset), left - piece_k(i));
            else
                fetch_width(i, offset, piece_k(i) < left);
        }
    }
    __device__ __forceinline__ void fetch_flat(const FlatOffset* flat, int left) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            if constexpr (FILTER == BY_DEPTH) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int k = piece_k(i) + j;
                    piece[i][j] = k < left ? b[place[i] + flat[k].b] : REAL(0);
                }
            } else {
                const bool inside = piece_k(i) < left;
                fetch_width(i, inside ? flat[piece_k(i)].b : 0, inside);
            }
        }
    }
    __device__ __forceinline__ void store(REAL (*panel)[B_PITCH]) const {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i) {
            if constexpr (FILTER == BY_WIDTH) {
                write4(&panel[piece_k(i)][piece_column(i)], piece[i]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) panel[piece_k(i) + j][piece_column(i)] = piece[i][j];
            }
        }
    }

   private:
    __device__ __forceinline__ void fetch_width(int i, int offset, bool inside) {
        piece[i][0] = piece[i][1] = piece[i][2] = piece[i][3] = 0;
        if (!inside) return;
        if constexpr (LOAD == VECTOR) {
            read4(piece[i], b + (place[i] + offset));
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (piece_column(i) + j < columns) piece[i][j] = b[place[i] + offset + j];
        }
    }
};

// Moves the two panels of each step in turn: through the walk over taps, or through the table of offsets.
struct Feeder {
    const Gather& g;
    const Shared& shared;
    SourcePanel source;
    FilterPanel filter;
    TapWalk<DEPTH> walk;
    int flat, flat_end;

    __device__ __forceinline__ Feeder(const REAL* a, const REAL* b, const Gather& g, const Shared& shared, const GatherBlock<TILE_COLUMNS>& block, int step)
        : g(g), shared(shared), source(a, shared), filter(b, block.b + block.column * (int)g.b_width, g, (int)g.width - block.column),
          walk(g, LOAD == FLAT ? 0 : step, block.columns.taps), flat(step * DEPTH),
          flat_end(block.taps() * (int)g.depth) {}

    __device__ __forceinline__ void fetch() {
        if constexpr (LOAD == FLAT) {
            source.fetch_flat(shared.flat + flat, flat_end - flat);
            filter.fetch_flat(shared.flat + flat, flat_end - flat);
            flat += DEPTH;
        } else {
            source.fetch(walk.a, (int)g.depth - walk.k);
            filter.fetch(walk.b, (int)g.depth - walk.k);
            walk.advance(g, shared.column_taps);
        }
    }
};

__device__ __forceinline__ void fill_flat(Shared& shared, const Gather& g, const GatherBlock<TILE_COLUMNS>& block) {
    const int depth = (int)g.depth, end = block.taps() * depth;
    for (int k = threadIdx.x; k < end; k += THREADS) {
        const int tap = k / depth, channel = k - tap * depth, row = tap / block.columns.taps, column = tap - row * block.columns.taps;
        shared.flat[k] = {(int)(row * g.a_tap_row + column * g.a_tap_column + channel),
                          (int)(row * g.b_tap_row + column * g.b_tap_column + channel * g.b_depth)};
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
conv(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out, const REAL* __restrict__ bias,
     const GatherTables tables, const Gather g) {
    __shared__ Shared shared;
    const GatherBlock<TILE_COLUMNS> block(g, tables);
    for (int i = threadIdx.x; i < TILE_ROWS; i += THREADS) block.row(g, tables, i, shared.source[i], shared.result[i]);
    if (threadIdx.x == 0) {  // what the main loop has no registers to keep: read where it is needed
        shared.columns = (int)g.width - block.column;
        shared.column_taps = block.columns.taps;
        shared.bias = block.group * (int)g.width + block.column;
    }
    if constexpr (LOAD == FLAT) fill_flat(shared, g, block);
    __syncthreads();

    const int steps = LOAD == FLAT ? ceil_div(block.taps() * (int)g.depth, DEPTH) : block.taps() * TapWalk<DEPTH>::steps(g);
    const Piece piece(steps, blockIdx.y, (int)g.parts);
    Sums<REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS> sums;
    if (piece.begin < piece.end) {
        Feeder feeder(a, b, g, shared, block, piece.begin);
        feeder.fetch();
        for (int left = piece.end - piece.begin, buffer = 0; left > 0; --left, buffer ^= 1) {
            feeder.source.store(shared.a[buffer]);
            feeder.filter.store(shared.b[buffer]);
            __syncthreads();
            if (left > 1) feeder.fetch();
            sums.template accumulate<DEPTH>(shared.a[buffer], shared.b[buffer]);
        }
    }

    out += blockIdx.y * g.part_stride;
    bias = bias == nullptr || blockIdx.y > 0 ? nullptr : bias + shared.bias;  // one part alone adds it
#pragma unroll
    for (int i = 0; i < TILE_DOWN; ++i) {
        const OFFSET offset = shared.result[sums.row_of(i)];
        if (offset < 0) continue;
#pragma unroll
        for (int j = 0; j < TILE_ACROSS; j += 4) {
            const int column = sums.column_of(j);
            write_results(out + offset + column, &sums.sum[i][j], shared.columns - column,
                          bias == nullptr ? nullptr : bias + column, g.aligned, g.accumulate);
        }
    }
}
