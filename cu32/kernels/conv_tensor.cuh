// ConvV2 and KS-deconv-V2 on the tensor cores, over the same tables and tiles as conv.cu: channels are multiples of four, and
// addresses of 16 bytes. Macros: KERNEL, its name; PRODUCTS, see tensor_core.cuh; TILE_ROWS, TILE_COLUMNS, the block's tile; FILTER, the layout of the filter:
// ACROSS for a convolution (the summed channels are neighbours), ALONG for an input gradient (the result's are); OFFSET,
// see tile.cuh; NORMALISED, see before.cuh; FLAT, 1 where the summed channels are few: taps and channels are then one sum
// through a table of offsets, and come one by one, those of an input gradient's filter alone four at a time.
#pragma once
#ifndef FLAT
#define FLAT 0
#endif
#include "before.cuh"
#include "ending.cuh"
#include "flat.cuh"
#include "tensor_core.cuh"

constexpr int STAGES = 3;
constexpr int RESIDENT = 128 * 128 * 2 / (TILE_ROWS * TILE_COLUMNS) < 4 ? 2 : TILE_ROWS * TILE_COLUMNS == 128 * 64 ? 3 : 4;
#if NORMALISED
using Tally = TensorSums<ACROSS, FILTER, TILE_ROWS, TILE_COLUMNS, NormalisedLeft>;
#else
using Tally = TensorSums<ACROSS, FILTER, TILE_ROWS, TILE_COLUMNS>;
#endif
using End = Ending<FILTER == ACROSS, float>;
static_assert(sizeof(EndRoom<Tally, float>) <= sizeof(float) * STAGES * Tally::STAGE, "it lies where the panels were");

struct Shared {
    OFFSET source[TILE_ROWS], result[TILE_ROWS];
};

// This thread's pieces of a step's panels. A row that is not there repeats another's source; channels and columns that are
// not there are zeros.
struct GatherFeed {
    using Source = Tally::Left;
    using Filter = Tally::Right;

    const float* const a;
    const float* const b;
    const Gather& g;
    OFFSET place[Source::PIECES];
    OFFSET filter;  // of the first piece
    int columns;    // from the first piece on
    const int column_taps;
    TapWalk<DEPTH> walk;

    __device__ __forceinline__ GatherFeed(const float* a, const float* b, const Gather& g, const Shared& shared,
                                          const GatherBlock<TILE_COLUMNS>& block, int step)
        : a(a), b(b), g(g), columns((int)g.width - block.column - Filter::edge()), column_taps(block.columns.taps),
          walk(g, step, block.columns.taps) {
#pragma unroll
        for (int i = 0; i < Source::PIECES; ++i) place[i] = shared.source[Source::edge() + i * Source::ROUND] + Source::depth();
        filter = block.b + (block.column + Filter::edge()) * (OFFSET)g.b_width + Filter::depth() * (OFFSET)g.b_depth;
    }

    __device__ __forceinline__ void issue(float* stage) {
        const int left = (int)g.depth - walk.k;
#pragma unroll
        for (int i = 0; i < Source::PIECES; ++i)
            cp_async16_zfill(Source::piece(stage, i), a + (place[i] + walk.a), Source::depth() < left);
        const float* from = b + (filter + walk.b);
        const int64 round = Filter::ROUND * (FILTER == ACROSS ? g.b_width : g.b_depth);
#pragma unroll
        for (int i = 0; i < Filter::PIECES; ++i, from += round) {
            const bool inside = FILTER == ACROSS ? Filter::depth() < left && i * Filter::ROUND < columns
                                                 : Filter::depth() + i * Filter::ROUND < left && 0 < columns;
            cp_async16_zfill(Filter::piece(stage + Source::FLOATS, i), from, inside);
        }
        walk.advance(g, TapWalk<DEPTH>::turns(g, column_taps));
    }
};

// The same of a FLAT sum, whose table of offsets is in shared memory.
struct FlatFeed {
    using Source = Tally::Left;
    using Filter = Tally::Right;

    const float* const a;
    const float* const b;
    const Offsets* const table;
    const int64 round;  // of the filter's pieces
    int place[Source::PIECES];
    int filter;   // of the first piece
    int columns;  // from the first piece on
    int term;     // of the step that is brought next
    const int end;

    __device__ __forceinline__ FlatFeed(const float* a, const float* b, const Gather& g, const Shared& shared,
                                        const GatherBlock<TILE_COLUMNS>& block, const Offsets* table, int step)
        : a(a), b(b), table(table), round(FILTER == ACROSS ? Filter::ROUND * g.b_width : 0),
          columns((int)g.width - block.column - Filter::edge()), term(step * DEPTH), end(block.taps() * (int)g.depth) {
#pragma unroll
        for (int i = 0; i < Source::PIECES; ++i) place[i] = (int)shared.source[Source::edge() + i * Source::ROUND];
        filter = block.b + (block.column + Filter::edge()) * (int)g.b_width;
    }

    __device__ __forceinline__ void issue(float* stage) {
        const int first = term + Source::depth();
        const Offsets own = table[first / 4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const bool inside = first + j < end;
#pragma unroll
            for (int i = 0; i < Source::PIECES; ++i) cp_async4_zfill(Source::piece(stage, i) + j, a + (place[i] + own.a[j]), inside);
            if (FILTER == ALONG) continue;
            const float* from = b + (filter + own.b[j]);
#pragma unroll
            for (int i = 0; i < Filter::PIECES; ++i, from += round)
                cp_async4_zfill(Filter::piece(stage + Source::FLOATS, i) + j, from, inside && i * Filter::ROUND < columns);
        }
#pragma unroll
        for (int i = 0; i < Filter::PIECES && FILTER == ALONG; ++i) {
            const int k = term + Filter::depth() + i * Filter::ROUND;
            cp_async16_zfill(Filter::piece(stage + Source::FLOATS, i), b + (filter + table[k / 4].b[k % 4]), k < end && 0 < columns);
        }
        term += DEPTH;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
KERNEL(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, const float* __restrict__ bias,
       const Parts<float> parts, BEFORE_TENSORS const End::Tensors end, const GatherTables tables, const Gather g,
       const End::Numbers numbers BEFORE_SLOPE) {
    extern __shared__ __align__(128) float stages[];
    __shared__ Shared shared;
    const GatherBlock<TILE_COLUMNS> block(g, tables);
    for (int i = threadIdx.x; i < TILE_ROWS; i += THREADS) block.row(g, tables, i, shared.source[i], shared.result[i]);
    __syncthreads();

    const int steps = FLAT ? ceil_div(block.taps() * (int)g.depth, DEPTH) : block.taps() * TapWalk<DEPTH>::steps(g);
    const Piece piece(steps, blockIdx.y, (int)g.parts);
    Tally sums;
#if FLAT
    Offsets* const table = reinterpret_cast<Offsets*>(stages + STAGES * Tally::STAGE);  // behind the stages
    fill_flat<DEPTH, THREADS>(table, g, block);
    __syncthreads();
#elif NORMALISED
    // Behind the stages shared memory has a table of a group's channels.
    AffineOf<float>* const by = reinterpret_cast<AffineOf<float>*>(stages + STAGES * Tally::STAGE);
    const int room = TapWalk<DEPTH>::steps(g) * DEPTH;
    fill_affine<THREADS>(by, before, block.group * (int)g.depth, (int)g.depth, room);
    sums.change.first = by;
    sums.change.end = by + room;
    sums.change.at = by + TapWalk<DEPTH>(g, piece.begin, block.columns.taps).k;
    sums.change.slope = (float)slope;
#endif
    if (piece.begin < piece.end) {
#if FLAT
        FlatFeed feed(a, b, g, shared, block, table, piece.begin);
#else
        GatherFeed feed(a, b, g, shared, block, piece.begin);
#endif
        pipeline<STAGES>(sums, feed, piece.end - piece.begin, stages);
    }

    const int columns = (int)g.width - block.column, first = block.group * (int)g.width + block.column;
    const Target<float> target = {out, shared.result, columns, g.aligned != 0, g.accumulate != 0};
    const TilePlace place = {block.index(g), block.tile.rows, block.group, block.column};
    if (!is_joined<THREADS, RESIDENT, TILE_ROWS>(sums, target, parts, 0, g, stages)) return;
    end_tile(sums, target, bias == nullptr ? nullptr : bias + first, 0, g, place, end, numbers, stages);
}
