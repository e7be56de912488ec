// Matrix products on the tensor cores, of any strides and batches whose rows are whole pieces of 16 aligned bytes.
// Macros: KERNEL, its name; PRODUCTS, see tensor_core.cuh; LAYOUT_A and LAYOUT_B, those of the operands (ALONG, ACROSS) as layout.cuh names them; TILE, 128 or 64, the
// block's rows and columns.
#pragma once
#include "products.cuh"
#include "tensor_core.cuh"

constexpr int STAGES = TILE == 128 ? 3 : 4;
constexpr int RESIDENT = TILE == 128 ? 2 : 3;
using Sums = TensorSums<LAYOUT_A, LAYOUT_B, TILE, TILE>;

// This thread's pieces of one operand's panels. Those beyond an edge or the depth are filled with zeros.
template <Layout LAYOUT>
struct OperandFeed {
    using Panel = SharedPanel<LAYOUT, TILE>;

    const float* place;
    const int64 round;      // from a piece to the next
    const int64 step;       // from a panel to the next
    const int edges;
    int depths;             // what is left of both from this thread's first piece on

    __device__ __forceinline__ OperandFeed(const float* first, int64 leading, int64 edges, int depths)
        : place(first + (LAYOUT == ACROSS ? Panel::edge() * leading + Panel::depth() : Panel::depth() * leading + Panel::edge())),
          round(Panel::ROUND * leading),
          step(LAYOUT == ACROSS ? DEPTH : DEPTH * leading),
          edges((int)(edges < TILE ? edges : TILE) - Panel::edge()),
          depths(depths - Panel::depth()) {}

    __device__ __forceinline__ void issue(float* panel) {
        const float* from = place;
#pragma unroll
        for (int i = 0; i < Panel::PIECES; ++i, from += round) {
            const bool inside = LAYOUT == ACROSS ? i * Panel::ROUND < edges && depths > 0 : edges > 0 && i * Panel::ROUND < depths;
            cp_async16_zfill(Panel::piece(panel, i), from, inside);
        }
        place += step;
        depths -= DEPTH;
    }
};

struct ProductFeed {
    OperandFeed<LAYOUT_A> a;
    OperandFeed<LAYOUT_B> b;

    __device__ __forceinline__ void issue(float* stage) {
        a.issue(stage);
        b.issue(stage + Sums::Left::FLOATS);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
KERNEL(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, const Product p) {
    extern __shared__ __align__(128) float stages[];
    __shared__ Tile tile;  // in shared memory, so that it costs no registers until the sums are written
    if (threadIdx.x == 0) tile = tile_of_block<TILE, TILE>(p, blockIdx.x);
    __syncthreads();
    const Offsets at = batch_offsets(p, tile.batch);
    const int64 begin = tile.part * p.part;
    const int depth = (int)(p.depth - begin < p.part ? p.depth - begin : p.part);
    a += at.a + (LAYOUT_A == ALONG ? begin * p.a_leading + tile.row : tile.row * p.a_leading + begin);
    b += at.b + (LAYOUT_B == ALONG ? begin * p.b_leading + tile.column : tile.column * p.b_leading + begin);

    Sums sums;
    ProductFeed feed = {{a, p.a_leading, p.rows - tile.row, depth}, {b, p.b_leading, p.columns - tile.column, depth}};
    pipeline<STAGES>(sums, feed, ceil_div(depth, DEPTH), stages);

    out += (tile.part * p.batches + tile.batch) * p.rows * p.columns + tile.row * p.columns + tile.column;
    const int64 rows = p.rows - tile.row, columns = p.columns - tile.column;
#pragma unroll
    for (int i = 0; i < Sums::DOWN; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = sums.row_of(i, half);
            if (row >= rows) continue;
#pragma unroll
            for (int j = 0; j < Sums::WIDE; ++j) {
                const int column = sums.column_of(j);
                const int left = columns - column < 2 ? (int)(columns - column) : 2;
                write_pair(out + row * p.columns + column, sums.sum[i][j] + 2 * half, left, p.columns % 2 == 0);
            }
        }
}
