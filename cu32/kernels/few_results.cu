// ConvV2 and KS-deconv-V2 to few channels, as an image's three: tiles of channels would be nearly empty, so eight lanes
// share the sum instead. Each takes four of the summed channels, reads the line of the source that eight neighbouring
// positions of one trim need once for all taps across, and in the end the lanes add up so that each has one position. Macros:
//   WIDTH   channels of the result, 1 to 4
// float32 alone; the source's neighbouring taps and positions are neighbours.
//
// For 3x3 filters and three channels a line costs 10 reads of the source, 9 of the filter (16 bytes each, the latter from
// the first-level cache) and 288 FMAs: 76 cycles of the cache and 72 of the FMAs per warp, all of them useful but where a row of
// the trim ends.
#include "patches.cuh"

constexpr int THREADS = 256, LANES = 8, ACROSS = 8;
using Position = Patch<1, ACROSS>;

struct Few {
    Patches patches;
    int64 depth;     // channels summed over, a multiple of four
    int64 width;     // patches of a block along images; the others along positions
    int64 b_column;  // stride of the filter by channel of the result
};

struct Sums2D {
    float at[ACROSS][WIDTH] = {};
};

// One line of the source, four channels of it, against TAPS taps of the filter.
template <int TAPS>
__device__ __forceinline__ void add_line(Sums2D& sums, const float* a, const float* b, const Position& patch, int64 b_column) {
    constexpr int REACH = ACROSS - 1 + TAPS;
    const int reach = patch.columns - 1 + TAPS;
    float x[REACH][4] = {};
#pragma unroll
    for (int q = 0; q < REACH; ++q, a += patch.tap)
        if (q < reach) read4(x[q], a);
#pragma unroll
    for (int t = 0; t < TAPS; ++t, b += patch.b_tap)
#pragma unroll
        for (int c = 0; c < WIDTH; ++c) {
            float w[4];
            read4(w, b + c * b_column);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums.at[j][c] += x[j + t][k] * w[k];
        }
}

// All of this lane's channels, for TAPS taps across of every line.
template <int TAPS>
__device__ __forceinline__ void add_taps(Sums2D& sums, const float* a, const float* b, const Position& patch, const Few& f) {
    for (int k = threadIdx.x % LANES * 4; k < (int)f.depth; k += LANES * 4)
        for (int u = 0; u < patch.taps_down; ++u)
            add_line<TAPS>(sums, a + (k + (int64)u * patch.line), b + (k + u * patch.b_line), patch, f.b_column);
}

// Wide filters take several passes, of as many taps as there are registers for.
__device__ __forceinline__ void add_all_taps(Sums2D& sums, const float* a, const float* b, const Position& patch, const Few& f) {
    constexpr int MOST = 3;
    for (int left = patch.taps_across; left > 0; left -= MOST, a += MOST * patch.tap, b += MOST * patch.b_tap) {
        switch (left) {
            case 1: add_taps<1>(sums, a, b, patch, f); break;
            case 2: add_taps<2>(sums, a, b, patch, f); break;
            default: add_taps<MOST>(sums, a, b, patch, f);
        }
    }
}

// Leaves the sum over the lanes of position (lane) in at[0]: each step halves the positions a lane has and the lanes that
// have them.
__device__ __forceinline__ void add_up(Sums2D& sums) {
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) {
        const bool upper = threadIdx.x & half;
#pragma unroll
        for (int j = 0; j < half; ++j)
#pragma unroll
            for (int c = 0; c < WIDTH; ++c) {
                const float low = sums.at[j][c], high = sums.at[j + half][c];
                sums.at[j][c] = (upper ? high : low) + __shfl_xor_sync(ALL_LANES, upper ? low : high, half);
            }
    }
}

// blockIdx.x = chunk of images * entries + entry of the list, as in depthwise.cu.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
few_results(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, const float* __restrict__ bias,
            const GatherTables tables, const Few f) {
    const Patches& p = f.patches;
    const uint32 width = (uint32)f.width, chunk = blockIdx.x / (uint32)p.entries, place = threadIdx.x / LANES;
    const TileEntry tile = tables.tiles[blockIdx.x - chunk * (uint32)p.entries];
    const uint32 image = chunk * width + place % width, number = place / width;
    const bool present = image < p.images && number < tile.rows;  // the others stay, for the shuffles

    const Position patch(p, tables, tile, tile.first + (present ? number : 0));
    Sums2D sums;
    if (present) add_all_taps(sums, a + (image * p.a_image + patch.a), b + patch.b, patch, f);
    add_up(sums);

    const int position = threadIdx.x % LANES;
    if (!present || position >= patch.columns) return;
    out += image * p.out_image + patch.result(p, tables, 0, position);
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) {
        const float value = sums.at[0][c] + (bias == nullptr ? 0 : bias[c]);
        out[c] = p.accumulate ? out[c] + value : value;
    }
}
