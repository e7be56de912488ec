// Matrix products of any size, strides and batches, by register tiles. Macros: REAL, float or double; LAYOUT_A and
// LAYOUT_B, those of the operands (ALONG, ACROSS) as layout.cuh names them; VECTOR, elements per read; TILE, 128 or 64, the block's
// rows and columns.
#include "panel.cuh"
#include "products.cuh"
#include "tile.cuh"

constexpr int SIDE = TILE == 128 ? 8 : 4;
constexpr int DEPTH = TILE == 128 ? 8 : 16;
using Tally = Sums<REAL, TILE, TILE, SIDE, SIDE>;
using PanelA = Panel<REAL, LAYOUT_A, TILE, DEPTH, VECTOR, Tally::THREADS>;
using PanelB = Panel<REAL, LAYOUT_B, TILE, DEPTH, VECTOR, Tally::THREADS>;

// How many of a tile's rows or columns are inside the matrix.
__device__ __forceinline__ int inside(int64 edges, int64 first) { return (int)(edges - first < TILE ? edges - first : TILE); }

// A block has one tile of one part of one batch. The next panels are on their way in registers while this thread
// multiplies the last ones, and two buffers in shared memory make one barrier a panel enough.
extern "C" __global__ void __launch_bounds__(Tally::THREADS, 2)
gemm(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out, const Product p) {
    __shared__ __align__(16) REAL shared_a[2][DEPTH][PanelA::PITCH];
    __shared__ __align__(16) REAL shared_b[2][DEPTH][PanelB::PITCH];
    __shared__ Tile tile;  // in shared memory, so that it costs no registers until the sums are written
    if (threadIdx.x == 0) tile = tile_of_block<TILE, TILE>(p, blockIdx.x);
    __syncthreads();
    const Offsets at = batch_offsets(p, tile.batch);
    const int64 begin = tile.part * p.part;
    const int depth = (int)(p.depth - begin < p.part ? p.depth - begin : p.part);
    a += at.a + (LAYOUT_A == ALONG ? begin * p.a_leading + tile.row : tile.row * p.a_leading + begin);
    b += at.b + (LAYOUT_B == ALONG ? begin * p.b_leading + tile.column : tile.column * p.b_leading + begin);

    Tally sums;
    PanelA panel_a(a, p.a_leading, inside(p.rows, tile.row));
    PanelB panel_b(b, p.b_leading, inside(p.columns, tile.column));
    panel_a.fetch(p.a_leading, depth);
    panel_b.fetch(p.b_leading, depth);
    for (int left = depth, buffer = 0; left > 0; left -= DEPTH, buffer ^= 1) {
        panel_a.store(shared_a[buffer]);
        panel_b.store(shared_b[buffer]);
        __syncthreads();
        if (left > DEPTH) {
            panel_a.fetch(p.a_leading, left - DEPTH);
            panel_b.fetch(p.b_leading, left - DEPTH);
        }
        sums.template accumulate<DEPTH>(shared_a[buffer], shared_b[buffer]);
    }

    const int rows = inside(p.rows, tile.row), columns = inside(p.columns, tile.column);
    out += (tile.part * p.batches + tile.batch) * p.rows * p.columns + tile.row * p.columns + tile.column;
#pragma unroll
    for (int i = 0; i < SIDE; ++i) {
        const int row = sums.row_of(i);
        if (row >= rows) continue;
#pragma unroll
        for (int j = 0; j < SIDE; j += 4) {
            const int column = sums.column_of(j);
            sums.write(out + row * p.columns + column, i, j, columns - column, p.columns % 4 == 0);
        }
    }
}
