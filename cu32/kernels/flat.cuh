// Taps and channels as one sum, where the channels are few: a table of what each pair adds to an offset.
#pragma once
#include "tile.cuh"

// Offsets of four (tap, channel) pairs in source and filter.
struct __align__(16) Offsets {
    int a[4], b[4];
};

// Of a block's taps, up to a whole step of DEPTH pairs: what is beyond the last pair is not read.
template <int DEPTH, int THREADS, int COLUMNS>
__device__ __forceinline__ void fill_flat(Offsets* table, const Gather& g, const GatherBlock<COLUMNS>& block) {
    const int depth = (int)g.depth, end = block.taps() * depth;
    for (int k = threadIdx.x; k < ceil_div(end, DEPTH) * DEPTH; k += THREADS) {
        const int tap = k / depth, channel = k - tap * depth, row = tap / block.columns.taps, column = tap - row * block.columns.taps;
        table[k / 4].a[k % 4] = k < end ? (int)(row * g.a_tap_row + column * g.a_tap_column + channel) : 0;
        table[k / 4].b[k % 4] = k < end ? (int)(row * g.b_tap_row + column * g.b_tap_column + channel * g.b_depth) : 0;
    }
}
