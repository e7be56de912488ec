// ConvV2 and KS-deconv-V2, one kernel: each block a tile of rows of one trim by channels of the result. Macros:
//   REAL     float or double
//   TILE_ROWS, TILE_COLUMNS   the block's tile
//   TILE_DOWN, TILE_ACROSS    a thread's sums: 8 x 8, or fewer
//   TILE_DEPTH   terms of the sum in a step, 16 or 32
//   LOAD     VECTOR: four channels at a time (channel counts and addresses are multiples of four elements);
//            SCALAR: one at a time; FLAT: taps and channels as one sum through a table of offsets, for few channels
//   FILTER   BY_DEPTH: neighbours along the summed channels are neighbours in the filter (forward);
//            BY_WIDTH: neighbours along the result's channels are (input gradient)
//
// The panels of the next step are on their way to shared memory while a thread multiplies those of the last, and two
// buffers make one barrier per step enough. kernels/LOOPS.md has what the compiler makes of that.
#include "ending.cuh"
#include "flat.cuh"

enum Load { VECTOR, SCALAR, FLAT };
enum Filter { BY_DEPTH, BY_WIDTH };

constexpr int DEPTH = TILE_DEPTH, QUADS = DEPTH / 4;
constexpr int FLAT_LIMIT = 1024;  // taps times channels that FLAT's table holds; cu32/conv/tiles.py knows it
using Tally = Sums<REAL, TILE_ROWS, TILE_COLUMNS, TILE_DOWN, TILE_ACROSS, DEEP>;
using SourceTile = SharedTile<REAL, DEEP, TILE_ROWS, DEPTH>;
using FilterTile = SharedTile<REAL, WIDE, TILE_COLUMNS, DEPTH, FILTER == BY_DEPTH ? TILE_COLUMNS + 4 : TILE_COLUMNS>;
constexpr int THREADS = Tally::THREADS;
constexpr int RESIDENT = sizeof(REAL) == 8 ? 2 : 512 / THREADS;  // blocks per multiprocessor at 128 registers per thread
constexpr int A_PIECES = SourceTile::PIECES / THREADS, B_PIECES = FilterTile::PIECES / THREADS;
static_assert(A_PIECES > 0 && B_PIECES > 0, "every thread moves as many pieces");
using End = Ending<FILTER == BY_DEPTH, REAL>;
static_assert(sizeof(EndRoom<Tally, REAL>) <= sizeof(SourceTile), "it lies where the panels were");

// Where a thread's pieces of a step come from, before the step's own offsets, and where they go. The main loop has no registers
// to keep it: it is read in each step.
struct __align__(16) Pieces {
    OFFSET a[A_PIECES];
    int b[B_PIECES];
    int to_a, to_b;
};

struct Shared {
    SourceTile a[2];
    FilterTile b[2];
    Pieces pieces[THREADS];
    OFFSET source[TILE_ROWS], result[TILE_ROWS];
    int columns, bias;  // columns of the group from the block's first on, and that one's place in the bias
    TilePlace place;
    TapWalk<DEPTH>::Turns turns;
    Offsets flat[LOAD == FLAT ? FLAT_LIMIT / 4 : 1];
};

// Four summed channels, of which `left` exist from the first on.
__device__ __forceinline__ void copy_depth(REAL* four, const REAL* place, int left) {
    if constexpr (LOAD == VECTOR) {
        copy4(four, place, left > 0);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) copy1(four + j, place + j, j < left);
    }
}

// A thread's share of a step of the source: rows `row(i)`, four terms.
struct SourcePanel {
    static constexpr int NEXT = THREADS * 4;  // from a piece of the tile to the thread's next

    static __device__ __forceinline__ int row(int i) { return SourceTile::edge(threadIdx.x + i * THREADS); }
    static __device__ __forceinline__ int term() { return SourceTile::term(threadIdx.x); }  // that of all pieces

    static __device__ __forceinline__ void place(Pieces& pieces, const OFFSET* source) {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i) pieces.a[i] = source[row(i)] + (LOAD == FLAT ? 0 : term());
        pieces.to_a = SourceTile::place(threadIdx.x);
    }
    static __device__ __forceinline__ void copy(SourceTile& tile, const Pieces& pieces, const REAL* a, OFFSET offset, int left) {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i)
            copy_depth(tile.element + pieces.to_a + i * NEXT, a + (pieces.a[i] + offset), left - term());
    }
    // Term j of this thread's four in a step of the table.
    static __device__ __forceinline__ void copy_flat(SourceTile& tile, const Pieces& pieces, const REAL* a, int j, int offset, bool valid) {
#pragma unroll
        for (int i = 0; i < A_PIECES; ++i) copy1(tile.element + pieces.to_a + i * NEXT + j, a + (pieces.a[i] + offset), valid);
    }
};

// The same of the filter. By depth, the four terms of a piece lie apart in the tile, and are copied one by one.
struct FilterPanel {
    static constexpr int NEXT = FILTER == BY_DEPTH ? THREADS / QUADS : THREADS / (TILE_COLUMNS / 4) * FilterTile::TO_NEXT_TERM;

    static __device__ __forceinline__ int column(int i) {
        return FILTER == BY_DEPTH ? SourceTile::edge(threadIdx.x) + i * (THREADS / QUADS) : FilterTile::edge(threadIdx.x + i * THREADS);
    }
    static __device__ __forceinline__ int term(int i) {
        return FILTER == BY_DEPTH ? SourceTile::term(threadIdx.x) : FilterTile::term(threadIdx.x + i * THREADS);
    }
    // A column that is not there reads another's filter, and its results are dropped.
    static __device__ __forceinline__ void place(Pieces& pieces, int first, const Gather& g, int columns) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i)
            pieces.b[i] = first + (column(i) < columns ? column(i) : 0) * (int)g.b_width + (LOAD == FLAT ? 0 : term(i) * (int)g.b_depth);
        pieces.to_b = term(0) * FilterTile::TO_NEXT_TERM + column(0);
    }
    static __device__ __forceinline__ void copy(FilterTile& tile, const Pieces& pieces, const REAL* b, int offset, int left, int columns) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i)
            copy_piece(tile.element + pieces.to_b + i * NEXT, b + (pieces.b[i] + offset), left - term(i), columns - column(i));
    }
    // By depth: term j of this thread's four.
    static __device__ __forceinline__ void copy_flat(FilterTile& tile, const Pieces& pieces, const REAL* b, int j, int offset, bool valid) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i)
            copy1(tile.element + pieces.to_b + i * NEXT + j * FilterTile::TO_NEXT_TERM, b + (pieces.b[i] + offset), valid);
    }
    // By width: each piece has a term of its own.
    static __device__ __forceinline__ void copy_flat(FilterTile& tile, const Pieces& pieces, const REAL* b, const Offsets* flat, int left, int columns) {
#pragma unroll
        for (int i = 0; i < B_PIECES; ++i)
            copy_piece(tile.element + pieces.to_b + i * NEXT, b + (pieces.b[i] + flat[term(i) / 4].b[term(i) % 4]), left - term(i),
                       columns - column(i));
    }

   private:
    static __device__ __forceinline__ void copy_piece(REAL* four, const REAL* from, int left, int columns) {
        if constexpr (FILTER == BY_WIDTH && LOAD == VECTOR) {
            copy4(four, from, left > 0);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if constexpr (FILTER == BY_WIDTH)
                    copy1(four + j, from + j, left > 0 && j < columns);
                else
                    copy1(four + j * FilterTile::TO_NEXT_TERM, from + j, left > (LOAD == VECTOR ? 0 : j));
            }
        }
    }
};

// Moves the two panels of each step in turn: through the walk over taps, or through the table of offsets.
struct Feeder {
    const REAL *const a, *const b;
    const Gather& g;
    TapWalk<DEPTH> walk;
    int flat, flat_end;

    __device__ __forceinline__ Feeder(const REAL* a, const REAL* b, const Gather& g, const GatherBlock<TILE_COLUMNS>& block, int step)
        : a(a), b(b), g(g), walk(g, LOAD == FLAT ? 0 : step, block.columns.taps), flat(step * DEPTH),
          flat_end(block.taps() * (int)g.depth) {}

    // Begins the copies of the next step.
    __device__ __forceinline__ void copy(Shared& shared, int buffer) {
        const Pieces pieces = shared.pieces[threadIdx.x];
        if constexpr (LOAD == FLAT) {
            const Offsets* next = shared.flat + flat / 4;
            const Offsets own = next[SourcePanel::term() / 4];
            const int left = flat_end - flat, columns = shared.columns;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const bool valid = j < left - SourcePanel::term();
                SourcePanel::copy_flat(shared.a[buffer], pieces, a, j, own.a[j], valid);
                if constexpr (FILTER == BY_DEPTH) FilterPanel::copy_flat(shared.b[buffer], pieces, b, j, own.b[j], valid);
            }
            if constexpr (FILTER == BY_WIDTH) FilterPanel::copy_flat(shared.b[buffer], pieces, b, next, left, columns);
            flat += DEPTH;
        } else {
            SourcePanel::copy(shared.a[buffer], pieces, a, walk.a, (int)g.depth - walk.k);
            FilterPanel::copy(shared.b[buffer], pieces, b, walk.b, (int)g.depth - walk.k, shared.columns);
            walk.advance(g, shared.turns);
        }
        cp_async_commit();
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
conv(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out, const REAL* __restrict__ bias,
     const Parts<REAL> parts, const End::Tensors end, const GatherTables tables, const Gather g, const End::Numbers numbers) {
    __shared__ Shared shared;
    const GatherBlock<TILE_COLUMNS> block(g, tables);
    for (int i = threadIdx.x; i < TILE_ROWS; i += THREADS) block.row(g, tables, i, shared.source[i], shared.result[i]);
    if (threadIdx.x == 0) {  // what the main loop has no registers to keep: read where it is needed
        shared.columns = (int)g.width - block.column;
        shared.turns = TapWalk<DEPTH>::turns(g, block.columns.taps);
        shared.bias = block.group * (int)g.width + block.column;
        shared.place = {block.index(g), block.tile.rows, block.group, block.column};
    }
    if constexpr (LOAD == FLAT) fill_flat<DEPTH, THREADS>(shared.flat, g, block);
    __syncthreads();
    SourcePanel::place(shared.pieces[threadIdx.x], shared.source);
    FilterPanel::place(shared.pieces[threadIdx.x], block.b + block.column * (int)g.b_width, g, shared.columns);

    const int steps = LOAD == FLAT ? ceil_div(block.taps() * (int)g.depth, DEPTH) : block.taps() * TapWalk<DEPTH>::steps(g);
    const Piece piece(steps, blockIdx.y, (int)g.parts);
    Tally sums;
    int rows = SourceTile::start(sums.row_of(0)), columns = FilterTile::start(sums.column_of(0));
    if (sizeof(OFFSET) == 4 || LOAD == VECTOR) keep(rows);  // else there are too few registers, as for these columns:
    if (FILTER == BY_DEPTH || (TILE_COLUMNS != 64 && sizeof(OFFSET) == 4)) keep(columns);
    if (piece.begin < piece.end) {
        Feeder feeder(a, b, g, block, piece.begin);
        feeder.copy(shared, 0);
        for (int left = piece.end - piece.begin, buffer = 0; left > 0; --left, buffer ^= 1) {
            cp_async_wait<0>();
            __syncthreads();
            if (left > 1) feeder.copy(shared, buffer ^ 1);
            sums.add(shared.a[buffer], shared.b[buffer], rows, columns);
        }
    }

    const Target<REAL> target = {out, shared.result, shared.columns, g.aligned != 0, g.accumulate != 0};
    if (!is_joined<THREADS, RESIDENT, TILE_ROWS>(sums, target, parts, 0, g, shared.a)) return;
    end_tile(sums, target, bias == nullptr ? nullptr : bias + shared.bias, 0, g, shared.place, end, numbers, shared.a);
}
